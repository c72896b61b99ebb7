"""Launch, pause, resume and cleanup of an agent in a sandbox that is reached over a connection and keeps its memory.

Its home and its folder outlive each sandbox. Its snapshot on disk is resumed where it fits, with the same process. A
new sandbox starts with the same home, in which the agent finds its conversation by its own id.
"""

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kasmon.errors import KasmonError, SandboxError, SandboxUnreachableError
from kasmon.model.commands import Launch, Mode
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.paths import Paths
from kasmon.sandbox.agent import credential_files, credential_renewal
from kasmon.sandbox.agent.context_files import OURS, SHIM, AgentContextFiles, context
from kasmon.sandbox.base import HostedTier, PauseResult, SandboxTier
from kasmon.sandbox.remote_guest import launch_spec, scripted_agent
from kasmon.sandbox.remote_guest.launch_spec import (
    BIN,
    CONTEXT,
    FOLDER,
    AgentTier,
    LaunchFile,
    RemoteAgentStatus,
    RemoteLaunchSpec,
    lodging,
)
from kasmon.sandbox.shared import credentials


class RemoteAgentLaunch(NamedTuple):
    """An agent that is to be started in a sandbox."""

    command: tuple[str, ...]
    """The command that is started instead of the agent's own."""
    home: Path
    notes: Path
    secrets: tuple[str, ...]


def kept_back(tier: SandboxTier) -> str:
    """Return why a sandbox of *tier* stores no memory of an agent with secrets."""
    return credential_files.AT_A_SERVICE if isinstance(tier, HostedTier) else credential_files.ON_DISK


def can_sleep(tier: SandboxTier, policy: SandboxPolicy) -> bool:
    """Whether the sandbox of *policy* can be paused; a service stores its memory then."""
    return not isinstance(tier, HostedTier) or credential_files.keeps_memory(policy)


def confined(
    places: Paths,
    launch: Launch,
    policy: SandboxPolicy,
    argv: Sequence[str],
    variables: Mapping[str, str],
    around: Mapping[str, str],
) -> RemoteAgentLaunch:
    """Return the launch that runs *argv* inside. An agent paused on disk is resumed; any other that is left is ended.

    Args:
        places: the paths under which the session is stored.
        launch: the launch of the agent.
        policy: the policy of its sandbox.
        argv: the program and its arguments.
        variables: its whole environment.
        around: where the variables of its credentials are looked up.

    Raises:
        KasmonError: if it cannot be started there.
        OSError: likewise.
    """
    tier = lodging(places, policy)
    ground = tier.ground.of(launch.session)
    if isinstance(tier, HostedTier):
        tier.learn(around)
    words, theirs = scripted_agent.adapted(argv, variables)
    fitted = tier.fitted(policy, words, launch.workdir, theirs)
    looked = credentials.looked_up(policy.credentials, around)
    known = _joinable(tier, policy, ground) if launch.mode is Mode.TMUX else None
    home, brought = tier.ground.home(launch.session), tuple[str, ...]()
    if known is None:
        handed = credential_renewal.noted(ground)  # the host before may have been killed
        launch_spec.wait_no_more(ground)
        tier.destroy(policy, None)
        ground = tier.ground.make(launch.session)
        brought = credential_renewal.bring_back(policy.files, home, handed)
        credential_renewal.note(policy.files, ground)
        credential_files.hand(policy.files, home, tier.ground.owner)
        if scripted_agent.SCRIPTED in argv:
            scripted_agent.put(home, tier.ground.owner)
    belongings = AgentContextFiles(ground)
    belongings.make(tier.ground.owner, context(places, launch))
    own = {**fitted.variables, **looked.values, "KASMON_CONTEXT": CONTEXT}
    why_not = () if credential_files.keeps_memory(policy) else (kept_back(tier),)
    notices = (*brought, *fitted.notices, *looked.missing, *why_not)
    told = RemoteLaunchSpec(
        policy=policy,
        fitted=msgspec.structs.replace(fitted, variables=own, notices=notices),
        run=known.run if known else secrets.token_hex(8),
        ground=str(ground),
        joins=known is not None,
        gifts=(
            LaunchFile(path=f"{FOLDER}/emit.py", content=OURS.read_bytes()),
            LaunchFile(path=f"{BIN}/kasmon", content=SHIM.encode(), mode=0o755),
        ),
        notes=str(belongings.notes),
        context=str(belongings.context),
        marks=(variables.get("KASMON_GENERATION", ""), variables.get("KASMON_NONCE", "")),
        environment=launch_spec.environment() | fitted.front,
    )
    return RemoteAgentLaunch(tuple(launch_spec.command(told)), home, belongings.notes, looked.secrets)


def asleep(
    places: Paths, policy: SandboxPolicy, runtime: SandboxRuntime, *, to_disk: bool, turn: int = 0
) -> PauseResult:
    """Pause it; *to_disk* ends its processes and stores their memory, as a service always does. Its front waits.

    Raises:
        UnableError: if its memory must be stored for that, and may not be.
        SandboxError: if it is gone, or its memory cannot be stored; it can be resumed then.
        OSError: likewise.
    """
    tier = lodging(places, policy)
    ground = tier.ground.of(policy.session)
    if not to_disk and not isinstance(tier, HostedTier):
        return tier.pause(policy, runtime)
    launch_spec.let_wait(ground)
    try:
        return tier.pause(policy, runtime, to_disk=True, turn=turn)
    except BaseException:
        launch_spec.wait_no_more(ground)
        raise


def awake(places: Paths, policy: SandboxPolicy, runtime: SandboxRuntime, slept: PauseResult | None) -> SandboxRuntime:
    """Resume it; *slept* None: it is unknown how it is paused, or whether it is. Blocks.

    Raises:
        SnapshotRefusedError: if its snapshot on disk may not be resumed.
        SandboxError: if it is gone, or cannot be resumed.
    """
    tier = lodging(places, policy)
    ground = tier.ground.of(policy.session)
    if slept is None and (there := tier.adopt(policy)) is not None:
        runtime, slept = there, PauseResult(held=True)
    elif slept is None:
        kept = tier.kept(policy)
        if kept is None:
            raise SandboxError(
                f"the sandbox of {policy.session!r} has ended", "it is not running, and nothing of it was saved"
            )
        slept = PauseResult(held=False, snapshot=kept.id)
    goes_on = tier.resume(policy, runtime, slept)
    launch_spec.wait_no_more(ground)
    if (known := launch_spec.stay(ground)) is not None:
        launch_spec.note(ground, msgspec.structs.replace(known, runtime=goes_on))
    return goes_on


def left(places: Paths, policy: SandboxPolicy, *, spares_memory: bool) -> tuple[str, ...]:
    """End what is left of the sandbox of an ended agent, and remove the files it was given. Blocks.

    *spares_memory*: the agent did not end but was lost from view: a snapshot on disk stays for its next start.

    Raises:
        SandboxError: if a part of the sandbox is left.
    """
    tier = lodging(places, policy)
    if spares_memory and tier.adopt(policy) is None and tier.kept(policy) is not None:
        return ()
    handed = credential_renewal.noted(tier.ground.of(policy.session))
    launch_spec.wait_no_more(tier.ground.of(policy.session))
    if isinstance(tier, HostedTier):
        with contextlib.suppress(KasmonError):  # it may be gone; what it sent before is here
            tier.fetch(policy)
    tier.destroy(policy, None)
    return taken_back(policy, tier.ground.home(policy.session), handed)


def taken_back(policy: SandboxPolicy, home: Path, handed: Mapping[str, str]) -> tuple[str, ...]:
    """Remove the copied files from *home*; copy renewed log-ins back to their sources; return a sentence for each."""
    if not home.is_dir():
        return ()
    told = credential_renewal.bring_back(policy.files, home, handed)
    credential_files.take_away(policy.files, home)
    return told


def forget(places: Paths, policy: SandboxPolicy) -> str:
    """Remove its home; return the path of its copy of a folder, which stays, or "". Blocks.

    Raises:
        SandboxError: if a part of the sandbox is left.
    """
    left(places, policy, spares_memory=False)
    return lodging(places, policy).forget(policy)


def _joinable(tier: AgentTier, policy: SandboxPolicy, ground: Path) -> RemoteAgentStatus | None:
    """Return the status of an agent that runs, or is paused on disk; None where none can be resumed.

    Raises:
        SandboxUnreachableError: if that cannot be determined now.
    """
    known = launch_spec.stay(ground)
    if known is None:
        return None
    try:
        if tier.adopt(policy) is not None or tier.kept(policy) is not None:
            return known
    except SandboxUnreachableError:
        raise
    except (KasmonError, OSError):
        return None
    return None
