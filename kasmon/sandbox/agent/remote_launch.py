"""Launch, pause, resume and cleanup of an agent in a sandbox that is reached over a connection and keeps its memory.

Its home and its folder outlive each sandbox. Its snapshot on disk is resumed where it fits, with the same process. A
new sandbox starts with the same home, in which the agent finds its conversation by its own id.
"""

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kasmon.errors import KasmonError, SandboxError, SandboxUnreachableError
from kasmon.model.commands import Launch, Mode
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.paths import Paths
from kasmon.sandbox.agent import credential_files
from kasmon.sandbox.agent.context_files import EMIT_PROGRAM, KASMON_SCRIPT, AgentContextFiles, context
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
    load_agent_tier,
)
from kasmon.sandbox.shared import credentials


class AgentLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is to be started in a sandbox."""

    command: tuple[str, ...]
    """The command that is started instead of the agent's own."""
    home: Path
    """The folder of this machine that is its home inside."""
    notes: Path
    """The file to which its hooks and its `kasmon ctx` write."""
    secrets: tuple[str, ...] = ()


def explain_no_memory(tier: SandboxTier) -> str:
    """Return why a sandbox of *tier* stores no memory of an agent with secrets."""
    return credential_files.AT_A_SERVICE if isinstance(tier, HostedTier) else credential_files.ON_DISK


def can_pause(tier: SandboxTier, policy: SandboxPolicy) -> bool:
    """Whether the sandbox of *policy* can be paused; a service stores its memory then."""
    return not isinstance(tier, HostedTier) or credential_files.keeps_memory(policy)


def prepare_launch(
    places: Paths,
    launch: Launch,
    policy: SandboxPolicy,
    argv: Sequence[str],
    variables: Mapping[str, str],
    environment: Mapping[str, str],
) -> AgentLaunch:
    """Return the launch that runs *argv* inside. An agent paused on disk is resumed; any other that is left is ended.

    Args:
        variables: its whole environment.
        environment: where the variables of its credentials are looked up.

    Raises:
        KasmonError: if it cannot be started there.
        OSError: likewise.
    """
    tier = load_agent_tier(places, policy)
    session_folder = tier.host_folders.of(launch.session)
    if isinstance(tier, HostedTier):
        tier.add_access(environment)
    adapted_argv, adapted_variables = scripted_agent.adapted(argv, variables)
    program_launch = tier.prepare_program(policy, adapted_argv, launch.workdir, adapted_variables)
    found_credentials = credentials.resolve(policy.credentials, environment)
    status = _find_resumable(tier, policy, session_folder) if launch.mode is Mode.TMUX else None
    home, renewal_notices = tier.host_folders.home(launch.session), tuple[str, ...]()
    if status is None:
        digests = credential_files.load_digests(session_folder)  # the host before may have been killed
        launch_spec.end_wait(session_folder)
        tier.destroy(policy, None)
        session_folder = tier.host_folders.make(launch.session)
        renewal_notices = credential_files.copy_back(policy.files, home, digests)
        credential_files.record_digests(policy.files, session_folder)
        credential_files.copy_in(policy.files, home, tier.host_folders.owner)
        if scripted_agent.SCRIPTED in argv:
            scripted_agent.put(home, tier.host_folders.owner)
    context_files = AgentContextFiles(session_folder)
    context_files.make(tier.host_folders.owner, context(places, launch))
    agent_variables = {**program_launch.variables, **found_credentials.values, "KASMON_CONTEXT": CONTEXT}
    why_not = () if credential_files.keeps_memory(policy) else (explain_no_memory(tier),)
    notices = (*renewal_notices, *program_launch.notices, *found_credentials.missing, *why_not)
    spec = RemoteLaunchSpec(
        policy=policy,
        program_launch=msgspec.structs.replace(program_launch, variables=agent_variables, notices=notices),
        run=status.run if status else secrets.token_hex(8),
        session_folder=str(session_folder),
        joins=status is not None,
        gifts=(
            LaunchFile(path=f"{FOLDER}/emit.py", content=EMIT_PROGRAM.read_bytes()),
            LaunchFile(path=f"{BIN}/kasmon", content=KASMON_SCRIPT.encode(), mode=0o755),
        ),
        notes=str(context_files.notes),
        context=str(context_files.context),
        marks=(variables.get("KASMON_GENERATION", ""), variables.get("KASMON_NONCE", "")),
        environment=launch_spec.environment() | program_launch.front,
    )
    return AgentLaunch(
        command=tuple(launch_spec.store_command(spec)),
        home=home,
        notes=context_files.notes,
        secrets=found_credentials.secrets,
    )


def pause(
    places: Paths, policy: SandboxPolicy, runtime: SandboxRuntime, *, to_disk: bool, turn: int = 0
) -> PauseResult:
    """Pause it; *to_disk* ends its processes and stores their memory, as a service always does. Its front waits.

    Raises:
        UnableError: if its memory must be stored for that, and may not be.
        SandboxError: if it is gone, or its memory cannot be stored; it can be resumed then.
        OSError: likewise.
    """
    tier = load_agent_tier(places, policy)
    session_folder = tier.host_folders.of(policy.session)
    if not to_disk and not isinstance(tier, HostedTier):
        return tier.pause(policy, runtime)
    launch_spec.require_wait(session_folder)
    try:
        return tier.pause(policy, runtime, to_disk=True, turn=turn)
    except BaseException:
        launch_spec.end_wait(session_folder)
        raise


def resume(places: Paths, policy: SandboxPolicy, runtime: SandboxRuntime, paused: PauseResult | None) -> SandboxRuntime:
    """Resume it; *paused* None: it is unknown how it is paused, or whether it is. Blocks.

    Raises:
        SnapshotRefusedError: if its snapshot on disk may not be resumed.
        SandboxError: if it is gone, or cannot be resumed.
    """
    tier = load_agent_tier(places, policy)
    session_folder = tier.host_folders.of(policy.session)
    if paused is None and (running := tier.adopt(policy)) is not None:
        runtime, paused = running, PauseResult(held=True)
    elif paused is None:
        snapshot = tier.kept(policy)
        if snapshot is None:
            raise SandboxError(
                f"the sandbox of {policy.session!r} has ended", "it is not running, and nothing of it was saved"
            )
        paused = PauseResult(held=False, snapshot=snapshot.id)
    resumed = tier.resume(policy, runtime, paused)
    launch_spec.end_wait(session_folder)
    if (status := launch_spec.load_status(session_folder)) is not None:
        launch_spec.store_status(session_folder, msgspec.structs.replace(status, runtime=resumed))
    return resumed


def clean_up(places: Paths, policy: SandboxPolicy, *, spares_memory: bool) -> tuple[str, ...]:
    """End what is left of the sandbox of an ended agent, and remove the files it was given. Blocks.

    *spares_memory*: the agent did not end but was lost from view: a snapshot on disk stays for its next start.

    Raises:
        SandboxError: if a part of the sandbox is left.
    """
    tier = load_agent_tier(places, policy)
    if spares_memory and tier.adopt(policy) is None and tier.kept(policy) is not None:
        return ()
    digests = credential_files.load_digests(tier.host_folders.of(policy.session))
    launch_spec.end_wait(tier.host_folders.of(policy.session))
    if isinstance(tier, HostedTier):
        with contextlib.suppress(KasmonError):  # it may be gone; what it sent before is here
            tier.fetch(policy)
    tier.destroy(policy, None)
    return reclaim_files(policy, tier.host_folders.home(policy.session), digests)


def reclaim_files(policy: SandboxPolicy, home: Path, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Remove the copied files from *home*; copy renewed log-ins back to their sources; return a sentence for each."""
    if not home.is_dir():
        return ()
    sentences = credential_files.copy_back(policy.files, home, digests)
    credential_files.remove_copies(policy.files, home)
    return sentences


def forget(places: Paths, policy: SandboxPolicy) -> str:
    """Remove its home; return the path of its copy of a folder, which stays, or "". Blocks.

    Raises:
        SandboxError: if a part of the sandbox is left.
    """
    clean_up(places, policy, spares_memory=False)
    return load_agent_tier(places, policy).forget(policy)


def _find_resumable(tier: AgentTier, policy: SandboxPolicy, session_folder: Path) -> RemoteAgentStatus | None:
    """Return the status of an agent that runs, or is paused on disk; None where none can be resumed.

    Raises:
        SandboxUnreachableError: if that cannot be determined now.
    """
    status = launch_spec.load_status(session_folder)
    if status is None:
        return None
    try:
        if tier.adopt(policy) is not None or tier.kept(policy) is not None:
            return status
    except SandboxUnreachableError:
        raise
    except (KasmonError, OSError):
        return None
    return None
