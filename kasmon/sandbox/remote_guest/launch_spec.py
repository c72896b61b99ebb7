"""Launch specs of agents in sandboxes reached over a connection, and the status that their stdio proxy records.

The stdio proxy (`stdio_proxy.py`) has the place of bubblewrap before a jail: it is the pane's program, or the host's
child. It reads its launch spec from a private file, and records where the agent runs.
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

from kasmon import system
from kasmon.errors import SandboxError, UnableError
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime, Tier
from kasmon.paths import Paths, read_json, write_private
from kasmon.sandbox.base import PauseResult, RecordTier, SandboxTier
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.tiers import TIERS, load
from kasmon.sanitize import clean_line

FRONT: Final = "kasmon.sandbox.remote_guest.stdio_proxy"
FOLDER: Final = "/tmp/.kasmon"
"""The folder inside for kasmon's files of a session: in memory, not shared."""
BIN: Final = f"{FOLDER}/bin"
CONTEXT: Final = f"{FOLDER}/context.json"
NOTES: Final = f"{FOLDER}/hooks.jsonl"
APART: Final = "apart.jsonl"
"""In a session folder: the differences between both sides of its folders, one sentence a line, until reported."""
KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH")
KEPT_BEGIN: Final = ("XDG_", "KASMON_")


class ProgramLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is run in a sandbox of some tier."""

    argv: tuple[str, ...]
    workdir: str
    """Its working directory, inside."""
    variables: dict[str, str]
    programs: tuple[str, ...] = ()
    """Paths of this machine that must be visible inside, at the same path."""
    notices: tuple[str, ...] = ()
    front: dict[str, str] = {}
    """Variables for the stdio proxy; the program gets none of them."""


class AgentTier(SandboxTier, RecordTier, Protocol):
    """A tier that runs agents behind a stdio proxy."""

    host_folders: HostFolders

    def prepare_program(
        self, policy: SandboxPolicy, argv: tuple[str, ...], workdir: str, variables: Mapping[str, str], /
    ) -> ProgramLaunch:
        """Return how *argv* is run in a sandbox of *policy*, which need not exist.

        Raises:
            RefusedError, UnableError: if it cannot be run, with the reason.
            NotFoundError: if the program does not exist.
        """

    def create_for_agent(self, policy: SandboxPolicy, program_launch: ProgramLaunch, /) -> SandboxRuntime:
        """Do as `create`, and provide what *program_launch* needs inside."""


def has_agents(tier: Tier, paths: Paths) -> bool:
    """Whether this version runs agents in sandboxes of *tier*: in a jail, and in each `AgentTier`."""
    return tier == "jail" or _runs_agents(load(tier, paths))


def load_agent_tier(paths: Paths, policy: SandboxPolicy) -> AgentTier:
    """Return the tier of *policy*. Raises `UnableError` if it cannot run agents."""
    tier = load(policy.tier, paths)
    if not _runs_agents(tier):
        raise UnableError(
            f"this version of kasmon cannot run an agent in a sandbox {policy.tier!r}.",
            hint=f"Take {', '.join(f'`{each}`' for each in TIERS if has_agents(each, paths))}.",
        )
    return tier


def find_paused(tier: AgentTier, policy: SandboxPolicy, runtime: SandboxRuntime) -> tuple[SandboxRuntime, PauseResult]:
    """Return the sandbox of *policy*, last known at *runtime*, and how it is paused; one that runs counts as held.

    Raises:
        SandboxError: if it does not run, and nothing of it was saved.
    """
    if (running := tier.adopt(policy)) is not None:
        return running, PauseResult(held=True)
    if (snapshot := tier.kept(policy)) is None:
        raise SandboxError(
            f"the sandbox of {policy.session!r} has ended", "it is not running, and nothing of it was saved"
        )
    return runtime, PauseResult(held=False, snapshot=snapshot.id)


class LaunchFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is copied inside before the program starts."""

    path: str
    content: bytes
    mode: int = 0o644


class RemoteLaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The launch spec that a stdio proxy reads."""

    policy: SandboxPolicy
    program_launch: ProgramLaunch
    run: str
    """The id of the process inside."""
    session_folder: str
    """The folder where the stdio proxy records its status, and reads whether it should wait."""
    joins: bool = False
    """Whether a process of that id may run already, or be in a snapshot: the stdio proxy attaches to it."""
    files: tuple[LaunchFile, ...] = ()
    notes: str = ""
    """The file of this machine for notes from inside; empty: they are not wanted."""
    context: str = ""
    """The file of this machine that is visible inside as `CONTEXT`; changes are copied inside."""
    marks: tuple[str, str] = ("", "")
    """Generation and nonce that mark the notes from now on."""
    environment: dict[str, str] = {}
    """The stdio proxy's own environment."""


class RemoteAgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status that a stdio proxy records once the agent runs."""

    run: str
    front: int
    runtime: SandboxRuntime
    notices: tuple[str, ...] = ()
    marks: tuple[str, str] = ("", "")
    """Generation and nonce that the agent was started with."""
    lost: str = ""
    """What of the former agent was lost, as one sentence; empty if nothing."""


def store_command(spec: RemoteLaunchSpec) -> list[str]:
    """Store *spec*; return the command of its stdio proxy, for the caller's terminal or pipes. May raise `OSError`."""
    path = Path(spec.session_folder) / f"front-{spec.run}.json"
    write_private(path, msgspec.json.encode(spec))
    return [sys.executable, "-P", "-m", FRONT, str(path)]


def wrap_program(
    tier: AgentTier, policy: SandboxPolicy, argv: Sequence[str], workdir: str, variables: Mapping[str, str]
) -> list[str]:
    """Return the command that runs *argv* in a sandbox of its own on its caller's terminal; as `SandboxTier.wrap`.

    Raises:
        KasmonError: as `AgentTier.prepare_program`.
        SandboxError: if the launch spec cannot be written.
    """
    policy = msgspec.structs.replace(policy, workspace=policy.workspace or workdir)
    program_launch = tier.prepare_program(policy, tuple(argv), workdir, variables)
    try:
        spec = RemoteLaunchSpec(
            policy=policy,
            program_launch=program_launch,
            run=secrets.token_hex(8),
            session_folder=str(tier.host_folders.make(policy.session)),
            environment=environment() | program_launch.front,
        )
        return store_command(spec)
    except OSError as error:
        raise SandboxError("cannot create a sandbox", str(error)) from error


def environment() -> dict[str, str]:
    """The stdio proxy's own environment."""
    return {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_BEGIN)}


def build_file_request(path: str, content: bytes, mode: int) -> dict[str, object]:
    """Return the fields of a request to write a file inside."""
    return {"path": path, "data": base64.b64encode(content).decode("ascii"), "mode": mode}


def is_front(pid: int) -> bool:
    """Whether process *pid* is a stdio proxy."""
    return FRONT in system.HERE.read_arguments(pid)


def load_status(session_folder: Path) -> RemoteAgentStatus | None:
    """Return the last recorded status of the agent of *session_folder*; None if there is none."""
    return read_json(session_folder / "stay.json", RemoteAgentStatus, None)


def store_status(session_folder: Path, noted: RemoteAgentStatus) -> None:
    """Record the status of the agent of *session_folder*; raises `OSError` if it cannot be written."""
    write_private(session_folder / "stay.json", msgspec.json.encode(noted))


def add_differences(session_folder: Path, sentences: Sequence[str]) -> None:
    """Add *sentences* to the differences to report for *session_folder*; do nothing if they cannot be written."""
    lines = b"".join(msgspec.json.encode(each) + b"\n" for each in sentences)
    path = session_folder / APART
    with contextlib.suppress(OSError):
        write_private(path, (path.read_bytes() if path.exists() else b"") + lines)


def pop_differences(session_folder: Path) -> tuple[str, ...]:
    """Take the differences to report for *session_folder*: return and remove them."""
    try:
        (session_folder / APART).rename(taken := session_folder / f"{APART}~")
        lines = taken.read_bytes().splitlines()
        taken.unlink()
    except OSError:
        return ()
    differences: list[str] = []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):
            differences.append(clean_line(msgspec.json.decode(line, type=str)))
    return tuple(differences)


def require_wait(session_folder: Path) -> None:
    """Make a stdio proxy of *session_folder* without a connection wait for one. Raises `OSError` if that fails."""
    write_private(session_folder / "asleep", b"")


def end_wait(session_folder: Path) -> None:
    """Make a stdio proxy of *session_folder* that loses its connection not wait for a new one. Idempotent."""
    with contextlib.suppress(FileNotFoundError):
        (session_folder / "asleep").unlink()


def is_waiting(session_folder: Path) -> bool:
    """Whether a stdio proxy of *session_folder* that loses its connection waits."""
    return (session_folder / "asleep").exists()


def _runs_agents(tier: SandboxTier) -> TypeGuard[AgentTier]:
    return hasattr(tier, "create_for_agent")
