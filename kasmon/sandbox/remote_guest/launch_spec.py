"""An agent inside a sandbox that is reached over a line: what its front is told, and what that notes for its host.

The front (`front.py`) stands where bubblewrap stands before a jail: it is the pane's program, or the host's child. It
reads the quarters from a file that is ours alone, and leaves a note of where the agent is.
"""

import base64
import contextlib
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeGuard

import msgspec

from kasmon.errors import SandboxError, UnableError
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime, Tier
from kasmon.paths import Paths, write_private
from kasmon.sandbox.base import RecordTier, SandboxTier
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.tiers import TIERS, load
from kasmon.sanitize import clean_line

FRONT: Final = "kasmon.sandbox.remote_guest.stdio_proxy"
FOLDER: Final = "/tmp/.kasmon"
"""Inside, where what is ours of a session lies: in memory, where nobody else is."""
BIN: Final = f"{FOLDER}/bin"
CONTEXT: Final = f"{FOLDER}/context.json"
NOTES: Final = f"{FOLDER}/hooks.jsonl"
APART: Final = "apart.jsonl"
"""In a ground: what of its folders is not the same on both sides, a sentence a line, until somebody was told."""
KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH")
KEPT_BEGIN: Final = ("XDG_", "KASMON_")


class FittedProgram(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is run in a sandbox of some tier."""

    argv: tuple[str, ...]
    workdir: str
    """Where it starts, inside."""
    variables: dict[str, str]
    programs: tuple[str, ...] = ()
    """What of this machine is to be seen inside, each where it is outside."""
    notices: tuple[str, ...] = ()
    front: dict[str, str] = {}
    """Variables that what stands in front of it needs; the program gets none of them."""


class AgentTier(SandboxTier, RecordTier, Protocol):
    """A tier that has agents whom their front reaches over a line."""

    ground: HostFolders

    def fitted(
        self, policy: SandboxPolicy, argv: tuple[str, ...], workdir: str, variables: Mapping[str, str], /
    ) -> FittedProgram:
        """How *argv* is run in a sandbox of *policy*, which need not be there.

        Raises:
            RefusedError, UnableError: if it cannot be, and why.
            NotFoundError: if there is no such program.
        """
        ...

    def lodge(self, policy: SandboxPolicy, fitted: FittedProgram, /) -> SandboxRuntime:
        """As `create`, and what *fitted* needs is inside."""
        ...


def has_agents(tier: Tier, places: Paths) -> bool:
    """Whether agents run in sandboxes of *tier* with this version: in a jail, and where one can be lodged."""
    return tier == "jail" or _lodges(load(tier, places))


def lodging(places: Paths, policy: SandboxPolicy) -> AgentTier:
    """The tier of *policy*.

    Raises:
        UnableError: if it has no agents.
    """
    tier = load(policy.tier, places)
    if not _lodges(tier):
        raise UnableError(
            f"this version of kasmon cannot run an agent in a sandbox {policy.tier!r}.",
            hint=f"Take {', '.join(f'`{each}`' for each in TIERS if has_agents(each, places))}.",
        )
    return tier


class LaunchFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is put inside before the program starts."""

    path: str
    content: bytes
    mode: int = 0o644


class RemoteLaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a front is told."""

    policy: SandboxPolicy
    fitted: FittedProgram
    run: str
    """The name of the process inside."""
    ground: str
    """The folder in which the front leaves its note, and finds whether it is to wait."""
    joins: bool = False
    """A process of that name may be there already, or in a memory on disk: the front goes on with that."""
    gifts: tuple[LaunchFile, ...] = ()
    notes: str = ""
    """The file of this machine for what those inside note; empty: nobody wants that."""
    context: str = ""
    """The file of this machine that those inside see as `CONTEXT`; what changes there changes inside."""
    marks: tuple[str, str] = ("", "")
    """Generation and nonce by which the notes are known from now on."""
    environment: dict[str, str] = {}
    """The front's own."""


class RemoteAgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a front notes: the agent is inside."""

    run: str
    front: int
    runtime: SandboxRuntime
    notices: tuple[str, ...] = ()
    marks: tuple[str, str] = ("", "")
    """Generation and nonce that the agent was started with."""
    lost: str = ""
    """What is lost of the one before, as one sentence; empty where nothing is."""


def command(quarters: RemoteLaunchSpec) -> list[str]:
    """What stands in for the agent of *quarters*, on its caller's stdin, stdout and terminal.

    Raises:
        OSError: if it cannot be written down.
    """
    path = Path(quarters.ground) / f"front-{quarters.run}.json"
    write_private(path, msgspec.json.encode(quarters))
    return [sys.executable, "-P", "-m", FRONT, str(path)]


def wrapped(
    tier: AgentTier, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str]
) -> list[str]:
    """What runs *argv* inside a sandbox of its own on its caller's stdin, stdout and terminal; as `SandboxTier.wrap`.

    Raises:
        KasmonError: as `AgentTier.fitted`.
        SandboxError: if what it is told cannot be written down.
    """
    policy = msgspec.structs.replace(policy, workspace=policy.workspace or workdir)
    fitted = tier.fitted(policy, tuple(argv), workdir, variables)
    try:
        ground = tier.ground.make(policy.session)
        run = secrets.token_hex(8)
        own = environment() | fitted.front
        return command(RemoteLaunchSpec(policy=policy, fitted=fitted, run=run, ground=str(ground), environment=own))
    except OSError as error:
        raise SandboxError("cannot create a sandbox", str(error)) from error


def environment(around: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of *around* a front needs to find the kasmon that it belongs to."""
    return {name: value for name, value in around.items() if name in KEPT or name.startswith(KEPT_BEGIN)}


def volatile(path: str, content: bytes, mode: int) -> dict[str, object]:
    """The words of a request to write a file inside."""
    return {"path": path, "data": base64.b64encode(content).decode("ascii"), "mode": mode}


def stay(ground: Path) -> RemoteAgentStatus | None:
    """What was noted last of the agent of *ground*; None where nothing was."""
    try:
        return msgspec.json.decode((ground / "stay.json").read_bytes(), type=RemoteAgentStatus)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def note(ground: Path, noted: RemoteAgentStatus) -> None:
    """
    Raises:
        OSError: if it cannot be noted.
    """
    write_private(ground / "stay.json", msgspec.json.encode(noted))


def tell_apart(ground: Path, sentences: Sequence[str]) -> None:
    """Add *sentences* to what is to be told of *ground*'s folders; nothing where they cannot be noted."""
    lines = b"".join(msgspec.json.encode(each) + b"\n" for each in sentences)
    path = ground / APART
    with contextlib.suppress(OSError):
        write_private(path, (path.read_bytes() if path.exists() else b"") + lines)


def apart(ground: Path) -> tuple[str, ...]:
    """What is to be told of *ground*'s folders, and is not there any more."""
    try:
        (ground / APART).rename(taken := ground / f"{APART}~")
        lines = taken.read_bytes().splitlines()
        taken.unlink()
    except OSError:
        return ()
    told: list[str] = []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):
            told.append(clean_line(msgspec.json.decode(line, type=str)))
    return tuple(told)


def let_wait(ground: Path) -> None:
    """From now on a front of *ground* that loses its line waits until there is one again.

    Raises:
        OSError: if that cannot be noted.
    """
    write_private(ground / "asleep", b"")


def wait_no_more(ground: Path) -> None:
    """From now on a front of *ground* that loses its line does not wait for another one. Idempotent."""
    with contextlib.suppress(FileNotFoundError):
        (ground / "asleep").unlink()


def waits(ground: Path) -> bool:
    """Whether a front of *ground* that loses its line is to wait."""
    return (ground / "asleep").exists()


def _lodges(tier: SandboxTier) -> TypeGuard[AgentTier]:
    return hasattr(tier, "lodge")
