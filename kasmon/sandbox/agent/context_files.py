"""What of kasmon those in a sandbox see: one folder with its context, a `kasmon` that knows only that, and notes.

The folder is the host's and read-only inside. Only the notes' file can be added to from there; it is laid over its
place in the folder, so nobody inside can put another file, or a link, where the host reads.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kasmon.model.commands import Launch
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, write_private
from kasmon.sandbox.jail.bwrap_arguments import INSIDE, BindMount
from kasmon.sandbox.shared.host_folders import PYTHON

SESSION: Final = "/opt/session"
"""Where the folder lies inside."""
BIN: Final = f"{SESSION}/bin"
CONTEXT: Final = f"{SESSION}/context.json"
NOTES: Final = f"{SESSION}/hooks.jsonl"
OURS: Final = Path(__file__).resolve().parents[2] / "emit.py"
"""`kasmon-emit`, which an agent's hooks run."""
SHIM: Final = f'#!/bin/sh\nexec {PYTHON} -I -S {INSIDE}/ctx.py "$@"\n'


def emit(folder: str = SESSION) -> tuple[str, ...]:
    """The command of a hook inside, where the folder lies at *folder*."""
    return (PYTHON, "-I", "-S", f"{folder}/emit.py", f"{folder}/hooks.jsonl")


class AgentContextFiles:
    """The folder of one session, below its ground. Making this touches nothing."""

    def __init__(self, ground: Path) -> None:
        self.folder = ground / "own"

    @property
    def notes(self) -> Path:
        """What those inside wrote to their host."""
        return self.folder / "hooks.jsonl"

    @property
    def context(self) -> Path:
        """What those inside may know of their place."""
        return self.folder / "context.json"

    @property
    def binds(self) -> tuple[BindMount, ...]:
        """What of it is seen inside: the folder, and over it the notes, which alone can be written to."""
        return (
            BindMount(source=str(self.folder), target=SESSION),
            BindMount(source=str(self.notes), target=NOTES, writable=True),
        )

    def make(self, owner: tuple[int, int], context: bytes) -> None:
        """Put all there anew, with no notes, for the sandbox's user *owner* to read.

        Raises:
            OSError: if that cannot be.
        """
        for folder in (self.folder, self.folder / "bin"):
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o755)
        self._put("emit.py", OURS.read_bytes(), 0o644)
        self._put("bin/kasmon", SHIM.encode(), 0o755)
        self.tell(context)
        self._put("hooks.jsonl", b"", 0o600)
        os.chown(self.notes, *owner)

    def tell(self, context: bytes) -> None:
        """Put another context in place of the one before.

        Raises:
            OSError: if that cannot be.
        """
        self._put("context.json", context, 0o644)

    def _put(self, name: str, content: bytes, mode: int) -> None:
        path = self.folder / name
        write_private(path, content)
        path.chmod(mode)


def context_of(places: Paths, session: SessionId) -> bytes:
    """As `context`, of the launch that the session's folder tells of; the id alone where it tells of none."""
    try:
        launch = msgspec.json.decode(places.launch(session).read_bytes(), type=Launch)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.encode({"schema": 1, "id": session})
    return context(places, launch)


def context(places: Paths, launch: Launch) -> bytes:
    """What the agent of *launch* may know of its place: what its plan's runner wrote down, and who it is itself."""
    known: Mapping[str, object] = {}
    try:
        told = msgspec.json.decode(places.context(launch.session).read_bytes())
        known = told if isinstance(told, dict) else {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        pass
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
    shared = {key: value for key, value in known.items() if key not in ("schema", "name", "plan")}
    return msgspec.json.encode(own | shared)
