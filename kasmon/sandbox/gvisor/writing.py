"""runsc writes the memory of a sandbox, and ends it with that: also where whoever told it to is killed meanwhile.

What it wrote to its end gets a note beside it, whoever dies meanwhile; whoever comes next waits for that, and lets the
memory count. Without this the only one there was would be lost.
"""

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.snapshot import Maker
from kasmon.sandbox.memory import Draft, Memories

NOTE: Final = ".written"
"""The end of a note's name, which begins with the draft's id; it lies beside the draft."""
LOCK: Final = "writing"
"""The file, beside the drafts, that is locked by whoever still writes."""
THEN_NOTE: Final = 'note=$1 said=$2; shift 2; "$@" && printf %s "$said" >"$note.new" && mv "$note.new" "$note"'
LIMIT_S: Final = 60.0
LOOK_S: Final = 0.02


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be known of a memory that was written to its end and does not count yet."""

    made_by: Maker
    turn: int


def write(draft: Draft, command: Sequence[str], written: Written) -> None:
    """Let *command* write the memory into *draft*; it goes on to its end though we are killed.

    Raises:
        SandboxError: if it fails, or takes too long.
    """
    note = _note(draft)
    said = msgspec.json.encode(written).decode()
    with _locked(draft.folder.parent, 0.0) as handle:
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", THEN_NOTE, "sh", str(note), said, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
                pass_fds=[handle],
                start_new_session=True,
                umask=0o077,
                env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError("runsc does not checkpoint it", str(error)) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
        raise SandboxError("runsc does not checkpoint it", last[-300:].rstrip("."))


def forget(draft: Draft) -> None:
    """Its note is not wanted any more: the memory counts, or never will. Idempotent."""
    _note(draft).unlink(missing_ok=True)


def settle(memories: Memories, clean: Callable[[Path], object]) -> None:
    """Wait for who still writes since before us, and let count what was written to its end, once *clean* was there.

    Raises:
        SandboxError: if it takes too long, or what was written cannot be cleaned; it does not count then.
        OSError: if that cannot be written down.
    """
    if not (memories.folder / LOCK).exists():
        return
    with _locked(memories.folder, LIMIT_S):
        for note in memories.folder.glob(f"*{NOTE}"):
            try:
                written = msgspec.json.decode(note.read_bytes(), type=Written)
            except msgspec.DecodeError as error:
                raise SandboxError("what is known of its memory on disk cannot be read", str(error)) from error
            draft = memories.left(note.name.removesuffix(NOTE))
            if draft is not None:
                clean(draft.folder)
                draft.confirm(written.made_by, written.turn)
            note.unlink()


def _note(draft: Draft) -> Path:
    return draft.folder.with_name(f"{draft.id}{NOTE}")


@contextlib.contextmanager
def _locked(folder: Path, limit_s: float) -> Iterator[int]:
    """Nobody else writes in *folder* meanwhile, nor while a process has the handle."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + limit_s
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise SandboxError("its memory is still being written", "whoever writes it does not end") from None
                time.sleep(LOOK_S)
        yield handle
    finally:
        os.close(handle)
