"""An agent inside a sandbox: what is started in its place, who it is on this machine, and what goes when it has ended.

The agent's command becomes one that makes a jail around it and ends with it. Its home outlives that, so that its next
jail can go on with its conversation; copies of files that it was handed do not.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import KasmonError, LaunchError, SandboxError, UnableError
from kasmon.model.commands import Launch
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import LoggedTier, Mount, SandboxPolicy, SandboxRuntime
from kasmon.paths import Paths, write_private
from kasmon.sandbox.agent import credential_files, credential_renewal, remote_launch
from kasmon.sandbox.agent.context_files import BIN, CONTEXT, AgentContextFiles, context, emit
from kasmon.sandbox.base import PauseResult
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.remote_guest import launch_spec
from kasmon.sandbox.remote_guest.launch_spec import FOLDER, lodging, stay
from kasmon.sandbox.remote_guest.scripted_agent import KASMON, SCRIPTED
from kasmon.sandbox.shared import credentials
from kasmon.sandbox.shared.cleanup import forget_removed_tier
from kasmon.sandbox.shared.host_folders import HostFolders, may_use
from kasmon.sandbox.tiers import TIERS, load

NOTICES: Final = "notices.json"
"""In a ground: what a person should know of how its jail was made."""
LOCATIONS: Final = (
    "CLAUDE_CONFIG_DIR", "CODEX_HOME", "CURL_CA_BUNDLE", "GEMINI_CLI_HOME", "NODE_EXTRA_CA_CERTS", "OPENCODE_CONFIG",
    "OPENCODE_CONFIG_DIR", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
)  # fmt: skip
"""Variables that name a file or folder of this machine, which is mostly not there inside."""
SEEN: Final = ("/usr/", "/etc/ssl/")
ENDS: Final = "It ends after a long time without use; `kasmon restart {}` starts it again with its conversation."


class AgentLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is to be started inside."""

    command: tuple[str, ...]
    """What is started in its place."""
    home: Path
    """What is its home folder inside."""
    notes: Path
    """The file of what its hooks and its `kasmon ctx` say."""
    secrets: tuple[str, ...] = ()
    """The values of its credentials."""


_secrets: dict[SessionId, tuple[str, ...]] = {}
"""The values of the credentials of agents that this process started."""


def secrets_of(session: SessionId) -> tuple[str, ...]:
    """What nobody may see of what the sandbox of *session* was given by this process."""
    return _secrets.get(session, ())


def policy_of(places: Paths, session: SessionId) -> SandboxPolicy:
    """What the sandbox of *session* is.

    Raises:
        SandboxError: if nothing says so.
    """
    path = places.sandbox(session)
    try:
        return msgspec.json.decode(path.read_bytes(), type=SandboxPolicy)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SandboxError(f"the sandbox of {session!r} is unknown", f"{str(path)!r} cannot be read: {error}") from (
            error
        )


def home_of(places: Paths, session: SessionId) -> Path:
    """What is the home folder inside, whether it is there or not."""
    return _ground(places, session).home(session)


def copy_of(places: Paths, session: SessionId) -> Path:
    """Where the copy of its folder is that its sandbox works on, where it works on one."""
    return _ground(places, session).of(session) / "workspace"


def works_on_copy(places: Paths, session: SessionId, folder: Path) -> bool:
    """Whether its sandbox cannot work in *folder* itself: only root may write there, and nobody inside is root."""
    return not may_use(folder, _ground(places, session).owner, writable=True)


def level(places: Paths, session: SessionId) -> None:
    """Have its folder here as it is inside, where that is mirrored and it is awake. Blocks.

    Raises:
        SandboxError: if it does not answer.
    """
    policy = policy_of(places, session)
    noted = None if policy.tier == "jail" else stay(lodging(places, policy).ground.of(session))
    if noted is not None:
        with contextlib.closing(GuestChannel(noted.runtime.socket)) as inside:
            inside.level()


def notes_of(places: Paths, session: SessionId) -> Path:
    """The file of what those inside say to their host, whether it is there or not."""
    return AgentContextFiles(_ground(places, session).of(session)).notes


def apart(places: Paths, session: SessionId) -> tuple[str, ...]:
    """What of its folders is not the same on both sides, where it has copies of them: a sentence each, once."""
    return launch_spec.apart(_ground(places, session).of(session))


def emit_of(places: Paths, session: SessionId) -> tuple[str, ...]:
    """The command by which a hook inside leaves a note."""
    return emit() if _tier(places, session) == "jail" else emit(FOLDER)


def confined(
    places: Paths,
    launch: Launch,
    argv: Sequence[str],
    variables: Mapping[str, str],
    around: Mapping[str, str] = os.environ,
) -> AgentLaunch:
    """*argv* of the agent of *launch* inside; what is left of a jail that it had is ended. Blocks.

    Args:
        places: where the session is kept.
        launch: whose agent it is.
        argv: the program and its arguments.
        variables: all that it is to have.
        around: where its credentials' variables are looked up.

    Raises:
        LaunchError: if it cannot be started there; the message says why.
    """
    try:
        policy, jail = policy_of(places, launch.session), Jail(places)
        if policy.tier != "jail":
            return _lodged(places, launch, policy, argv, seen_inside(policy, launch.workdir, variables), around)
        if SCRIPTED in argv:  # it is a part of kasmon
            policy = msgspec.structs.replace(policy, mounts=(*policy.mounts, Mount(source=str(KASMON))))
        handed = credential_renewal.noted(jail.ground.of(launch.session))  # whoever had it before may have been killed
        jail.destroy(policy, None)
        ground = jail.ground.make(launch.session)
        home = jail.ground.home(launch.session)
        looked = credentials.looked_up(policy.credentials, around)
        brought = credential_renewal.bring_back(policy.files, home, handed)
        credential_renewal.note(policy.files, ground)
        credential_files.hand(policy.files, home, jail.ground.owner)
        belongings = AgentContextFiles(ground)
        belongings.make(jail.ground.owner, context(places, launch))
        outfit = jail.outfit(
            policy,
            argv,
            launch.workdir,
            seen_inside(policy, launch.workdir, variables) | looked.values,
            belongings=belongings.binds,
            path=(BIN,),
        )
        told = [notice for notice in outfit.notices if "control group" not in notice]  # who began it said that before
        notices = (*brought, *told, *looked.missing)
        write_private(ground / NOTICES, msgspec.json.encode(notices))
    except KasmonError as error:
        raise LaunchError(
            f"session {launch.name!r} cannot be started in its sandbox: {error.message}", hint=error.hint
        ) from error
    except OSError as error:
        raise LaunchError(f"session {launch.name!r} cannot be started in its sandbox: {error}.") from error
    _secrets[launch.session] = looked.secrets
    return AgentLaunch(
        command=tuple(outfit.command),
        home=home,
        notes=belongings.notes,
        secrets=looked.secrets,
    )


def keeps_memory(places: Paths, session: SessionId) -> bool:
    """Whether its sandbox can be paused to disk, with what its agent holds."""
    with contextlib.suppress(KasmonError):
        policy = policy_of(places, session)
        return (
            policy.tier != "jail" and load(policy.tier, places).keeps_memory and credential_files.keeps_memory(policy)
        )
    return False


def can_sleep(places: Paths, session: SessionId) -> bool:
    """Whether it can be put to sleep at all."""
    with contextlib.suppress(KasmonError):
        policy = policy_of(places, session)
        return remote_launch.can_sleep(load(policy.tier, places), policy)
    return True


def freeze(
    places: Paths, session: SessionId, runtime: SandboxRuntime, *, to_disk: bool = False, turn: int = 0
) -> PauseResult:
    """Stop all in the sandbox of an agent; it keeps its memory, and *to_disk* has no process then. Blocks.

    Raises:
        UnableError: for *to_disk*, where its tier cannot, or it was handed what must not be there; elsewhere it cannot
            sleep at all then.
        SandboxError: if it is gone, or somebody in it does not stop; all go on then.
    """
    policy = policy_of(places, session)
    if not can_sleep(places, session):
        raise UnableError(
            f"session {session!r} is not paused: {credential_files.AT_A_SERVICE}.", hint=ENDS.format(session)
        )
    if to_disk and not keeps_memory(places, session):
        why = "a jail cannot save its memory to disk" if policy.tier == "jail" else credential_files.ON_DISK
        raise UnableError(
            f"session {session!r} is not paused to disk: {why}.",
            hint=f"`kasmon sandbox pause {session} --hold` keeps the memory in RAM.",
        )
    if policy.tier == "jail":
        return Jail(places).pause(policy, runtime)
    return remote_launch.asleep(places, policy, runtime, to_disk=to_disk, turn=turn)


def thaw(
    places: Paths, session: SessionId, runtime: SandboxRuntime, slept: PauseResult | None = None
) -> SandboxRuntime:
    """Let all in it go on, from its memory on disk where it sleeps there; where it lives then. Blocks.

    *slept* None: nobody knows how it sleeps, or whether it does.

    Raises:
        SnapshotRefusedError: if that memory may not be gone on from.
        SandboxError: if it is gone.
    """
    policy = policy_of(places, session)
    if policy.tier == "jail":
        return Jail(places).resume(policy, runtime, PauseResult(held=True))
    return remote_launch.awake(places, policy, runtime, slept)


def left(places: Paths, session: SessionId, *, spares_memory: bool = False) -> tuple[str, ...]:
    """End what is left of the sandbox of an agent that has ended, and take away what it was handed. Blocks.

    What became of a log-in that it renewed, a sentence each. *spares_memory*: the agent did not end, nobody sees it any
    more: what sleeps on disk stays for its next start.

    Raises:
        SandboxError: if something of it is left.
    """
    policy = policy_of(places, session)
    if policy.tier != "jail":
        return remote_launch.left(places, policy, spares_memory=spares_memory)
    jail = Jail(places)
    handed = credential_renewal.noted(jail.ground.of(session))
    jail.destroy(policy, None)
    return remote_launch.taken_back(policy, jail.ground.home(session), handed)


def forget(places: Paths, session: SessionId) -> str:
    """Remove the home of a session that is given up; where its work lies, if that is a copy, which stays. Blocks.

    Raises:
        SandboxError: if something of it is left.
    """
    policy = policy_of(places, session)
    if policy.tier not in TIERS:
        return forget_removed_tier(places, policy)
    if policy.tier != "jail":
        return remote_launch.forget(places, policy)
    left(places, session)
    workdir = "/"  # nobody's: a copy of what is not known stays
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        workdir = msgspec.json.decode(places.launch(session).read_bytes(), type=Launch).workdir
    return Jail(places).forget(policy, workdir)


def _lodged(
    places: Paths,
    launch: Launch,
    policy: SandboxPolicy,
    argv: Sequence[str],
    variables: Mapping[str, str],
    around: Mapping[str, str],
) -> AgentLaunch:
    made = remote_launch.confined(places, launch, policy, argv, variables, around)
    _secrets[launch.session] = made.secrets
    return AgentLaunch(command=made.command, home=made.home, notes=made.notes, secrets=made.secrets)


def _tier(places: Paths, session: SessionId) -> LoggedTier:
    with contextlib.suppress(SandboxError):
        return policy_of(places, session).tier
    return "jail"


def _ground(places: Paths, session: SessionId) -> HostFolders:
    """What its sandbox stands on; a jail's, where nothing says otherwise."""
    with contextlib.suppress(KasmonError):
        policy = policy_of(places, session)
        if policy.tier != "jail":
            return lodging(places, policy).ground
    return Jail(places).ground


def seen_inside(policy: SandboxPolicy, workdir: str, variables: Mapping[str, str]) -> dict[str, str]:
    """*variables*, without those that name what is not there inside."""
    targets = [workdir, *(mount.target or mount.source for mount in policy.mounts)]
    there = (*SEEN, *targets)
    kept = {
        name: value
        for name, value in variables.items()
        if name not in LOCATIONS or any(Path(value).is_relative_to(each) for each in there)
    }
    return kept | {"KASMON_CONTEXT": CONTEXT}
