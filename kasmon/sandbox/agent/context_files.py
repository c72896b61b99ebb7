"""The folder of kasmon's files that a sandboxed agent sees: its context, a `kasmon` limited to `ctx`, and its notes.

The host owns the folder, and it is read-only inside. Only the notes file is writable there. It is bind-mounted over its
path in the folder, so code inside cannot put another file, or a link, where the host reads.

What code inside appends to the notes is untrusted: the reader checks its shape, and reads a bounded amount at a time.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from kasmon.model.commands import Launch
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, read_json, write_private
from kasmon.sandbox.shared.guest_paths import INSIDE, BindMount
from kasmon.sandbox.shared.host_folders import PYTHON

READ_BYTES: Final = 64 * 1024
LINE_BYTES: Final = 8192
NOTE_EVENT: Final = "kasmon.ctx"
"""The kind of note that `kasmon ctx` inside writes."""


class ContextNote(msgspec.Struct):
    """A note that `kasmon ctx` inside wrote."""

    event: str = ""
    at: float = 0.0
    """When, in seconds since the epoch, by the sandbox's clock."""
    done: str | None = None
    waiting: str | None = None


class ContextNotes:
    """Reads the notes in one file, each once."""

    def __init__(self) -> None:
        self._read_to = 0
        self._rest = b""

    def new(self, path: Path) -> list[ContextNote]:
        """Return the notes added to *path* since the last call; none without it. May raise `OSError`."""
        notes = []
        for line in self._lines(path):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                note = msgspec.json.decode(line, type=ContextNote)
                if note.event == NOTE_EVENT and (note.done is not None or note.waiting is not None):
                    notes.append(note)
        return notes

    def _lines(self, path: Path) -> list[bytes]:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._read_to:  # the file was replaced
                    self._read_to, self._rest = 0, b""
                file.seek(self._read_to)
                content = file.read(READ_BYTES)
        except FileNotFoundError:
            return []
        self._read_to += len(content)
        *lines, rest = (self._rest + content).split(b"\n")
        self._rest = rest if len(rest) <= LINE_BYTES else b""
        return [line for line in lines if NOTE_EVENT.encode() in line and len(line) <= LINE_BYTES]


SESSION: Final = "/opt/session"
"""The path of the folder inside."""
BIN: Final = f"{SESSION}/bin"
CONTEXT: Final = f"{SESSION}/context.json"
NOTES: Final = f"{SESSION}/hooks.jsonl"
EMIT_PROGRAM: Final = Path(__file__).resolve().parents[2] / "emit.py"
"""`kasmon-emit`, which an agent's hooks run."""
KASMON_SCRIPT: Final = f'#!/bin/sh\nexec {PYTHON} -I -S {INSIDE}/ctx.py "$@"\n'


def emit_command(folder: str = SESSION) -> tuple[str, ...]:
    """Return the command of a hook inside, for the folder at *folder*."""
    return (PYTHON, "-I", "-S", f"{folder}/emit.py", f"{folder}/hooks.jsonl")


class AgentContextFiles:
    """The context files of one session, in its session folder. The constructor touches no file."""

    def __init__(self, session_folder: Path) -> None:
        self.folder = session_folder / "own"
        self.notes = self.folder / "hooks.jsonl"
        """The notes that code inside wrote for its host."""
        self.context = self.folder / "context.json"
        """What code inside may know of its session."""
        self.binds = (
            BindMount(source=str(self.folder), target=SESSION),
            BindMount(source=str(self.notes), target=NOTES, writable=True),
        )
        """The bind mounts: the folder, and over it the notes file, the only writable part."""

    def make(self, owner: tuple[int, int], context: bytes) -> None:
        """Rewrite all files, with empty notes, readable for the user *owner*. Raises `OSError` if that fails."""
        for folder in (self.folder, self.folder / "bin"):
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o755)
        self._put("emit.py", EMIT_PROGRAM.read_bytes(), 0o644)
        self._put("bin/kasmon", KASMON_SCRIPT.encode(), 0o755)
        self.write_context(context)
        self._put("hooks.jsonl", b"", 0o600)
        os.chown(self.notes, *owner)

    def write_context(self, context: bytes) -> None:
        """Replace the context. Raises `OSError` if it cannot be written."""
        self._put("context.json", context, 0o644)

    def _put(self, name: str, content: bytes, mode: int) -> None:
        path = self.folder / name
        write_private(path, content)
        path.chmod(mode)


def load_context(paths: Paths, session: SessionId) -> bytes:
    """Return `context` of the launch stored in the session's folder; only the id where none is stored."""
    launch = read_json(paths.launch(session), Launch, None)
    return context(paths, launch) if launch else msgspec.json.encode({"schema": 1, "id": session})


def context(paths: Paths, launch: Launch) -> bytes:
    """Return as JSON what the agent of *launch* may know: its own fields, and the context from the plan runner."""
    plan_context = read_json(paths.context(launch.session), dict[str, object], {})
    own = {
        "schema": 1,
        "id": launch.session,
        "name": launch.name,
        "agent": launch.agent,
        "workdir": launch.workdir,
        "sandbox": launch.sandbox,
        "task": launch.task,
        "wave": launch.wave,
        "peers": launch.peers,
        "plan": launch.plan,
    }
    shared = {key: value for key, value in plan_context.items() if key not in ("schema", "name", "plan")}
    return msgspec.json.encode(own | shared)
