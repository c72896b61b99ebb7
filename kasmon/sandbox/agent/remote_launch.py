"""An agent inside a sandbox that is reached over a line and keeps its memory: its front, its sleep, what stays of it.

Its home and its folder outlive each sandbox. Its memory on disk is gone on from where it fits, in the same process; a
new sandbox begins with the same home, in which the agent finds its conversation by its own id.
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
    """An agent that is to be started inside."""

    command: tuple[str, ...]
    """What is started in its place."""
    home: Path
    notes: Path
    secrets: tuple[str, ...]


def kept_back(tier: SandboxTier) -> str:
    """Why a sandbox of *tier* keeps no memory of an agent that was handed something."""
    return credential_files.AT_A_SERVICE if isinstance(tier, HostedTier) else credential_files.ON_DISK


def can_sleep(tier: SandboxTier, policy: SandboxPolicy) -> bool:
    """Whether the sandbox of *policy* can be put to sleep: elsewhere its memory is kept then."""
    return not isinstance(tier, HostedTier) or credential_files.keeps_memory(policy)


def confined(
    places: Paths,
    launch: Launch,
    policy: SandboxPolicy,
    argv: Sequence[str],
    variables: Mapping[str, str],
    around: Mapping[str, str],
) -> RemoteAgentLaunch:
    """*argv* of the agent of *launch* inside. One that sleeps on disk is gone on with; any other that is left is ended.

    Args:
        places: where the session is kept.
        launch: whose agent it is.
        policy: what its sandbox is.
        argv: the program and its arguments.
        variables: all that it is to have.
        around: where its credentials' variables are looked up.

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
        handed = credential_renewal.noted(ground)  # whoever had it before may have been killed
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
    """Stop all in it; *to_disk* ends its processes and keeps their memory, as it is elsewhere at once. Its front waits
    then. Blocks.

    Raises:
        UnableError: if its memory must be kept for that, and may not be.
        SandboxError: if it is gone, or its memory cannot be kept; it can go on then.
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
    """Let it go on; *slept* None: nobody knows how it sleeps, or whether it does. Blocks.

    Raises:
        SnapshotRefusedError: if its memory on disk may not be gone on from.
        SandboxError: if it is gone, or does not go on.
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
    """End what is left of the sandbox of an agent that has ended, and take away what it was handed. Blocks.

    *spares_memory*: the agent did not end, nobody sees it any more: what sleeps on disk stays for its next start.

    Raises:
        SandboxError: if something of it is left.
    """
    tier = lodging(places, policy)
    if spares_memory and tier.adopt(policy) is None and tier.kept(policy) is not None:
        return ()
    handed = credential_renewal.noted(tier.ground.of(policy.session))
    launch_spec.wait_no_more(tier.ground.of(policy.session))
    if isinstance(tier, HostedTier):
        with contextlib.suppress(KasmonError):  # it may be gone; what it had told by then is here
            tier.fetch(policy)
    tier.destroy(policy, None)
    return taken_back(policy, tier.ground.home(policy.session), handed)


def taken_back(policy: SandboxPolicy, home: Path, handed: Mapping[str, str]) -> tuple[str, ...]:
    """Take away what was *handed* to an agent into *home*, its renewed log-ins back to where they belong; in words."""
    if not home.is_dir():
        return ()
    told = credential_renewal.bring_back(policy.files, home, handed)
    credential_files.take_away(policy.files, home)
    return told


def forget(places: Paths, policy: SandboxPolicy) -> str:
    """Remove its home; where its work lies, if that is a copy, which stays. Blocks.

    Raises:
        SandboxError: if something of it is left.
    """
    left(places, policy, spares_memory=False)
    return lodging(places, policy).forget(policy)


def _joinable(tier: AgentTier, policy: SandboxPolicy, ground: Path) -> RemoteAgentStatus | None:
    """The agent that lives, or sleeps on disk; None where there is none that can be gone on with.

    Raises:
        SandboxUnreachableError: if nobody can tell now.
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
