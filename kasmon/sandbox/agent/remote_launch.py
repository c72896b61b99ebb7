"""Preparation of an agent's launch: what each tier does first, and the launch in a sandbox reached over a connection.

Such a sandbox keeps its memory. Its home and its folder outlive each sandbox. Its snapshot on disk is resumed where it
fits, with the same process. A new sandbox starts with the same home, in which the agent finds its conversation.
"""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kasmon.errors import KasmonError, SandboxUnreachableError
from kasmon.model.commands import Launch, Mode
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import Paths
from kasmon.sandbox.agent import credential_files
from kasmon.sandbox.agent.context_files import EMIT_PROGRAM, KASMON_SCRIPT, AgentContextFiles, context
from kasmon.sandbox.base import HostedTier
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.remote_guest import launch_spec, scripted_agent
from kasmon.sandbox.remote_guest.launch_spec import (
    BIN,
    CONTEXT,
    FOLDER,
    AgentTier,
    LaunchFile,
    RemoteAgentStatus,
    RemoteLaunchSpec,
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


def replace_sandbox(tier: AgentTier | Jail, policy: SandboxPolicy) -> tuple[str, ...]:
    """End a sandbox left from before, and copy the files of *policy* into the home of the next one.

    Returns a sentence for each log-in that the former one renewed.

    Raises:
        KasmonError, OSError: if that fails.
    """
    host_folders, session = tier.host_folders, policy.session
    digests = credential_files.load_digests(host_folders.of(session))  # its last host may have been killed
    launch_spec.end_wait(host_folders.of(session))
    tier.destroy(policy, None)
    session_folder, home = host_folders.make(session), host_folders.home(session)
    renewal_notices = credential_files.copy_back(policy.files, home, digests)
    credential_files.record_digests(policy.files, session_folder)
    credential_files.copy_in(policy.files, home, host_folders.owner)
    return renewal_notices


def prepare_launch(
    paths: Paths,
    launch: Launch,
    tier: AgentTier,
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
    session_folder, home = tier.host_folders.of(launch.session), tier.host_folders.home(launch.session)
    if isinstance(tier, HostedTier):
        tier.add_access(environment)
    adapted_argv, adapted_variables = scripted_agent.adapted(argv, variables)
    program_launch = tier.prepare_program(policy, adapted_argv, launch.workdir, adapted_variables)
    found_credentials = credentials.resolve(policy.credentials, environment)
    status = _find_resumable(tier, policy, session_folder) if launch.mode is Mode.TMUX else None
    renewal_notices = () if status else replace_sandbox(tier, policy)
    if status is None and scripted_agent.SCRIPTED in argv:
        scripted_agent.put(home, tier.host_folders.owner)
    context_files = AgentContextFiles(session_folder)
    context_files.make(tier.host_folders.owner, context(paths, launch))
    agent_variables = {**program_launch.variables, **found_credentials.values, "KASMON_CONTEXT": CONTEXT}
    notices = (*renewal_notices, *program_launch.notices, *found_credentials.missing)
    if not credential_files.keeps_memory(policy):
        notices += (credential_files.AT_A_SERVICE if isinstance(tier, HostedTier) else credential_files.ON_DISK,)
    spec = RemoteLaunchSpec(
        policy=policy,
        program_launch=msgspec.structs.replace(program_launch, variables=agent_variables, notices=notices),
        run=status.run if status else secrets.token_hex(8),
        session_folder=str(session_folder),
        joins=status is not None,
        files=(
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


def _find_resumable(tier: AgentTier, policy: SandboxPolicy, session_folder: Path) -> RemoteAgentStatus | None:
    """Return the status of an agent that runs, or is paused on disk; None where none can be resumed."""
    status = launch_spec.load_status(session_folder)
    try:
        is_kept = status is not None and (tier.adopt(policy) is not None or tier.kept(policy) is not None)
    except SandboxUnreachableError:
        raise
    except (KasmonError, OSError):
        return None
    return status if is_kept else None
