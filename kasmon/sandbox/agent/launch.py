"""Launch of a sandboxed agent: the command that replaces its own, its session's files, its pause, and its cleanup.

The agent's command becomes one that creates a jail around it and ends with it. Its home outlives the jail, so that the
next one can resume its conversation. Copies of files that it was given are removed.
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
from kasmon.model.sandbox.policy import Mount, SandboxPolicy, SandboxRuntime
from kasmon.paths import Paths, read_json, write_private
from kasmon.sandbox.agent import credential_files, remote_launch
from kasmon.sandbox.agent.context_files import BIN, CONTEXT, AgentContextFiles, context, emit_command
from kasmon.sandbox.agent.remote_launch import AgentLaunch, replace_sandbox
from kasmon.sandbox.base import HostedTier, PauseResult
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.remote_guest import launch_spec
from kasmon.sandbox.remote_guest.launch_spec import FOLDER, AgentTier, load_agent_tier, load_status
from kasmon.sandbox.remote_guest.scripted_agent import KASMON, SCRIPTED
from kasmon.sandbox.shared import credentials
from kasmon.sandbox.shared.cleanup import forget_removed_tier
from kasmon.sandbox.shared.host_folders import HostFolders, may_use
from kasmon.sandbox.tiers import TIERS, load, policy_of

NOTICES: Final = "notices.json"
"""In the session's folder: what the user should know of how its jail was made."""
LOCATIONS: Final = (
    "CLAUDE_CONFIG_DIR", "CODEX_HOME", "CURL_CA_BUNDLE", "GEMINI_CLI_HOME", "NODE_EXTRA_CA_CERTS", "OPENCODE_CONFIG",
    "OPENCODE_CONFIG_DIR", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
)  # fmt: skip
"""Variables that name a file or folder of this machine, which is usually absent inside."""
SHARED_PATHS: Final = ("/usr/", "/etc/ssl/")
IDLE_HINT: Final = "It ends after a long time without use; `kasmon restart {}` starts it again with its conversation."


_secrets: dict[SessionId, tuple[str, ...]] = {}
"""The values of the credentials of agents that this process launched."""


def secrets_of(session: SessionId) -> tuple[str, ...]:
    """Return the secret values that this process gave to the sandbox of *session*, to be redacted everywhere."""
    return _secrets.get(session, ())


def home_of(paths: Paths, session: SessionId) -> Path:
    """Return the folder of this machine that is the home inside; it may not exist."""
    return _host_folders(paths, session).home(session)


def copy_of(paths: Paths, session: SessionId) -> Path:
    """Return the path of the copy of its folder, for a sandbox that works on a copy."""
    return _host_folders(paths, session).of(session) / "workspace"


def works_on_copy(paths: Paths, session: SessionId, folder: Path) -> bool:
    """Whether its sandbox cannot work in *folder* itself: only root may write there, and no user inside is root."""
    return not may_use(folder, _host_folders(paths, session).owner, writable=True)


def sync_folders(paths: Paths, session: SessionId) -> None:
    """Bring its folder here up to date with a running sandbox, which may not answer (`SandboxError`). Blocks."""
    host_folders = _load_tier(paths, policy_of(paths, session)).host_folders
    if (status := load_status(host_folders.of(session))) is not None:
        with contextlib.closing(GuestChannel(status.runtime.socket)) as guest:
            guest.level()


def notes_of(paths: Paths, session: SessionId) -> Path:
    """Return the file of notes from code inside to its host; it may not exist."""
    return AgentContextFiles(_host_folders(paths, session).of(session)).notes


def describe_differences(paths: Paths, session: SessionId) -> tuple[str, ...]:
    """Return a sentence for each difference between its folders and the sandbox's copies of them; each once."""
    return launch_spec.pop_differences(_host_folders(paths, session).of(session))


def build_emit_command(paths: Paths, session: SessionId) -> tuple[str, ...]:
    """Return the command by which a hook inside writes a note."""
    is_jail = True
    with contextlib.suppress(SandboxError):
        is_jail = policy_of(paths, session).tier == "jail"
    return emit_command() if is_jail else emit_command(FOLDER)


def prepare_launch(
    paths: Paths,
    launch: Launch,
    argv: Sequence[str],
    variables: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
) -> AgentLaunch:
    """Return the launch that runs *argv*, of the agent of *launch*, inside; a jail left from before is ended. Blocks.

    Args:
        variables: its whole environment.
        environment: where the variables of its credentials are looked up.

    Raises:
        LaunchError: if it cannot be started there; the message says why.
    """
    try:
        policy = policy_of(paths, launch.session)
        tier = _load_tier(paths, policy)
        if isinstance(tier, Jail):
            prepared = _prepare_jail(paths, launch, tier, policy, argv, variables, environment)
        else:
            variables = filter_variables(policy, launch.workdir, variables)
            prepared = remote_launch.prepare_launch(paths, launch, tier, policy, argv, variables, environment)
    except (KasmonError, OSError) as error:
        why, hint = (error.message, error.hint) if isinstance(error, KasmonError) else (f"{error}.", "")
        raise LaunchError(f"session {launch.name!r} cannot be started in its sandbox: {why}", hint=hint) from error
    _secrets[launch.session] = prepared.secrets
    return prepared


def _prepare_jail(
    paths: Paths,
    launch: Launch,
    jail: Jail,
    policy: SandboxPolicy,
    argv: Sequence[str],
    variables: Mapping[str, str],
    environment: Mapping[str, str],
) -> AgentLaunch:
    if SCRIPTED in argv:  # the scripted agent is part of kasmon
        policy = msgspec.structs.replace(policy, mounts=(*policy.mounts, Mount(source=str(KASMON))))
    found_credentials = credentials.resolve(policy.credentials, environment)
    renewal_notices = replace_sandbox(jail, policy)
    session_folder = jail.host_folders.of(launch.session)
    context_files = AgentContextFiles(session_folder)
    context_files.make(jail.host_folders.owner, context(paths, launch))
    jail_command = jail.wrap_agent(
        policy,
        argv,
        launch.workdir,
        filter_variables(policy, launch.workdir, variables) | found_credentials.values,
        context_binds=context_files.binds,
        path=(BIN,),
    )
    jail_notices = [each for each in jail_command.notices if "control group" not in each]  # reported at creation
    notices = (*renewal_notices, *jail_notices, *found_credentials.missing)
    write_private(session_folder / NOTICES, msgspec.json.encode(notices))
    return AgentLaunch(
        command=tuple(jail_command.command),
        home=jail.host_folders.home(launch.session),
        notes=context_files.notes,
        secrets=found_credentials.secrets,
    )


def keeps_memory(paths: Paths, session: SessionId) -> bool:
    """Whether its sandbox can be paused to disk, with its agent's memory."""
    with contextlib.suppress(KasmonError):
        policy = policy_of(paths, session)
        return policy.tier != "jail" and load(policy.tier, paths).keeps_memory and credential_files.keeps_memory(policy)
    return False


def can_pause(paths: Paths, session: SessionId) -> bool:
    """Whether its sandbox can be paused; a service stores its memory then."""
    with contextlib.suppress(KasmonError):
        policy = policy_of(paths, session)
        return not isinstance(load(policy.tier, paths), HostedTier) or credential_files.keeps_memory(policy)
    return True


def pause(
    paths: Paths, session: SessionId, runtime: SandboxRuntime, *, to_disk: bool = False, turn: int = 0
) -> PauseResult:
    """Pause the sandbox of an agent, which keeps its memory; with *to_disk*, no process runs then. Blocks.

    Raises:
        UnableError: for *to_disk*, where its tier cannot, or it holds secrets that must not be on disk; at a service
            it cannot be paused at all then.
        SandboxError: if it is gone, a process in it does not stop, or its memory cannot be stored; all run on then.
        OSError: likewise.
    """
    policy = policy_of(paths, session)
    if not can_pause(paths, session):
        raise UnableError(
            f"session {session!r} is not paused: {credential_files.AT_A_SERVICE}.", hint=IDLE_HINT.format(session)
        )
    if to_disk and not keeps_memory(paths, session):
        why = "a jail cannot save its memory to disk" if policy.tier == "jail" else credential_files.ON_DISK
        raise UnableError(
            f"session {session!r} is not paused to disk: {why}.",
            hint=f"`kasmon sandbox pause {session} --hold` keeps the memory in RAM.",
        )
    tier = _load_tier(paths, policy)
    if not to_disk and not isinstance(tier, HostedTier):
        return tier.pause(policy, runtime)
    session_folder = tier.host_folders.of(session)
    launch_spec.require_wait(session_folder)
    try:
        return tier.pause(policy, runtime, to_disk=True, turn=turn)
    except BaseException:
        launch_spec.end_wait(session_folder)
        raise


def resume(
    paths: Paths, session: SessionId, runtime: SandboxRuntime, paused: PauseResult | None = None
) -> SandboxRuntime:
    """Resume all processes in it, from its snapshot on disk if it has one; return its runtime. Blocks.

    *paused* None: it is unknown how it is paused, or whether it is.

    Raises:
        SnapshotRefusedError: if that snapshot may not be resumed.
        SandboxError: if the sandbox is gone, or cannot be resumed.
    """
    policy = policy_of(paths, session)
    tier = _load_tier(paths, policy)
    if isinstance(tier, Jail):
        return tier.resume(policy, runtime, PauseResult(held=True))
    if paused is None:
        runtime, paused = launch_spec.find_paused(tier, policy, runtime)
    resumed = tier.resume(policy, runtime, paused)
    session_folder = tier.host_folders.of(session)
    launch_spec.end_wait(session_folder)
    if (status := load_status(session_folder)) is not None:
        launch_spec.store_status(session_folder, msgspec.structs.replace(status, runtime=resumed))
    return resumed


def clean_up(paths: Paths, session: SessionId, *, spares_memory: bool = False) -> tuple[str, ...]:
    """End what is left of the sandbox of an ended agent, and remove the files it was given. Blocks.

    Returns a sentence for each log-in that it renewed. *spares_memory*: the agent did not end but was lost from view:
    a snapshot on disk stays for its next start.

    Raises:
        SandboxError: if a part of the sandbox is left.
    """
    policy = policy_of(paths, session)
    tier = _load_tier(paths, policy)
    if spares_memory and not isinstance(tier, Jail) and tier.adopt(policy) is None and tier.kept(policy) is not None:
        return ()
    session_folder, home = tier.host_folders.of(session), tier.host_folders.home(session)
    digests = credential_files.load_digests(session_folder)
    launch_spec.end_wait(session_folder)
    if isinstance(tier, HostedTier):
        with contextlib.suppress(KasmonError):  # it may be gone; what it sent before is here
            tier.fetch(policy)
    tier.destroy(policy, None)
    if not home.is_dir():
        return ()
    sentences = credential_files.copy_back(policy.files, home, digests)
    credential_files.remove_copies(policy.files, home)
    return sentences


def forget(paths: Paths, session: SessionId) -> str:
    """Remove the home of a deleted session; return the path of its copy of a folder, which stays, or "". Blocks.

    Raises:
        SandboxError: if a part of the sandbox is left.
    """
    policy = policy_of(paths, session)
    if policy.tier not in TIERS:
        return forget_removed_tier(paths, policy)
    clean_up(paths, session)
    tier = _load_tier(paths, policy)
    if not isinstance(tier, Jail):
        return tier.forget(policy)
    launch = read_json(paths.launch(session), Launch, None)
    return tier.forget(policy, launch.workdir if launch else "/")  # "/": a copy of an unknown folder stays


def _load_tier(paths: Paths, policy: SandboxPolicy) -> Jail | AgentTier:
    return Jail(paths) if policy.tier == "jail" else load_agent_tier(paths, policy)


def _host_folders(paths: Paths, session: SessionId) -> HostFolders:
    """The host folders of its sandbox; a jail's, where no policy names another tier."""
    with contextlib.suppress(KasmonError):
        return _load_tier(paths, policy_of(paths, session)).host_folders
    return Jail(paths).host_folders


def filter_variables(policy: SandboxPolicy, workdir: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return *variables* without those that name a path that is absent inside."""
    targets = [workdir, *(mount.target or mount.source for mount in policy.mounts)]
    visible = (*SHARED_PATHS, *targets)
    visible_variables = {
        name: value
        for name, value in variables.items()
        if name not in LOCATIONS or any(Path(value).is_relative_to(each) for each in visible)
    }
    return visible_variables | {"KASMON_CONTEXT": CONTEXT}
