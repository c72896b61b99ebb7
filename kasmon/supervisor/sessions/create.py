"""Create a session: check the command, claim an id, write its files, update the index. No agent is started.

`kasmon.backends.common.environment` decides which variables of the starter's environment the agent gets (none of
kasmon, tmux or another agent); `kasmon.model.task.environment` adds those of its task.
"""

import os
import re
import socket
from collections.abc import Collection, Iterable, Mapping

import msgspec

from kasmon.agents.catalog import find
from kasmon.backends import project_trust
from kasmon.backends.common.environment import (
    encoded,
    inherited,
    own_prefixes,
    program_of,
    secret_values,
)
from kasmon.config import Config, ResolvedProfile, resolve
from kasmon.config.agent_address import there
from kasmon.config.profile import has_worktree_by_default
from kasmon.errors import RefusedError, SessionEndedError, UnableError, UsageError
from kasmon.host.journal.redaction import Redactor
from kasmon.host.rpc.actor import find_actor
from kasmon.host.rpc.peer import evidence
from kasmon.model.commands import (
    ActingAgent,
    ConversationFork,
    Launch,
    Mode,
    SessionWorktree,
    StarterLimits,
    is_conversation_id,
)
from kasmon.model.events import SessionCreated
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.model.session_state import ALIVE
from kasmon.model.task import OWN_PREFIXES
from kasmon.paths import Paths, require_folder, write_private
from kasmon.supervisor.fleet.snapshot import read_session, require_free_conversation
from kasmon.supervisor.limits.account import AccountVariables, account_variables, find_account
from kasmon.supervisor.sessions.folder_config import profile_hash
from kasmon.supervisor.sessions.names import announce, check_name, check_tags, claim_id
from kasmon.supervisor.sessions.start import add_conversation, inherited_by, secret_names

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def named(given: Iterable[str]) -> frozenset[str]:
    """Return the names in *given*, whose items are `NAME` or `NAME=value`."""
    return frozenset(text.partition("=")[0] for text in given)


def as_given(own: Mapping[str, str], public: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the variables *own* as `NewSession` takes them: the secret ones, and those with a name in *public*."""
    return (
        tuple(f"{name}={value}" for name, value in own.items() if name not in public),
        tuple(f"{name}={value}" for name, value in own.items() if name in public),
    )


def own_variables(profile: Mapping[str, str], given: Iterable[str], caller: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *profile*, overridden by *given*: `NAME` with the *caller*'s value, or `NAME=value`.

    Raises `UsageError` if one has an invalid name, is reserved for kasmon, or is not set by the caller.
    """
    own = dict(profile)
    for text in given:
        name, is_given, value = text.partition("=")
        if not is_given:
            if name not in caller:
                raise UsageError(
                    f"the environment variable {name!r} is not set.", hint=(f"Set it, or write {name}=value.")
                )
            value = caller[name]
        own[name] = value
    for name, value in own.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a valid variable name.")
        if name.startswith(OWN_PREFIXES):
            raise UsageError(f"{name!r} is set by kasmon itself.")
        if "\0" in value:
            raise UsageError(f"the value of {name!r} contains a NUL character.")
    return own


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """The request for a new session. Omitted fields come from the config, or from the caller's folder."""

    name: str
    agent: str = ""
    """A profile's name; if empty, the program's own name with *argv*, else the config's default."""
    mode: Mode | None = None
    argv: tuple[str, ...] = ()
    """Any program to run in tmux, with its arguments."""
    workdir: str = ""
    """If empty, the caller's own folder. On another machine it is a path there; if empty, the home folder."""
    worktree: bool | None = None
    """Whether it gets a git worktree of its own; None means the profile's setting, else the config's."""
    base: str = ""
    """The branch, tag or commit that its worktree begins at, or `pr:NUMBER`; empty for the checked out branch."""
    branch: str = ""
    """The branch of its worktree; empty for a new one from the config's template."""
    reuses_branch: bool = False
    """Whether `branch` exists already."""
    prompt: str = ""
    fork: ConversationFork | None = None
    """structured: the conversation to begin with a copy of, where its agent can copy that."""
    resume: str = ""
    """The agent's own id of a stored conversation to resume; empty for a new one."""
    parent: SessionId | None = None
    """Open another window next to this tmux session's."""
    environment: tuple[str, ...] = ()
    """`NAME` takes the caller's value, `NAME=value` sets it. The values count as secret."""
    public_environment: tuple[str, ...] = ()
    """As `environment`, for variables whose values are not secret."""
    task: int | None = None
    wave: int | None = None
    peers: int | None = None
    """The size of the wave, including this session."""
    plan: str | None = None
    tags: tuple[str, ...] = ()
    account: str = ""
    """An account of the config; empty for the agent's own log-in."""
    sandbox: str | None = None
    """The sandbox: a tier, or empty for none; None means the profile's setting."""
    tools: tuple[str, ...] = ()
    """What its agent may use of `kasmon mcp --tools`, beside its profile's setting. Only a person may set it."""
    actor: ActingAgent | None = None
    """The agent of another machine that starts it, as its kasmon says it. An agent of this machine is found instead."""
    limits: StarterLimits | None = None
    """What that machine allows it."""
    log_in_of: SessionId | None = None
    """The session whose agent offered *argv* as its log-in."""
    agrees: bool = False
    """Whether the user confirms what its sandbox gets; required once for each profile's settings."""
    window: str = ""
    """tmux: the name of its window; if empty, the session's name."""
    seed: int = 0
    """For the scripted agent: the random seed of its pauses."""
    speed: float = 1.0
    """For the scripted agent: its pauses are divided by this; 0 means none."""


def prepare(
    paths: Paths, config: Config, new: NewSession, at: float, variables: Mapping[str, str] = os.environ
) -> Launch:
    """Create the requested session, announce it to the fleet, and return its launch.

    *at*: the time of day. *variables*: the caller's environment.

    Raises:
        UsageError: if the name, a tag, the folder, a variable or the mode is invalid.
        NameTakenError: if another session that is not forgotten has the name.
        KasmonError: as `config.resolve` raises for an agent that cannot be started.
        UnableError, SessionEndedError, SessionNotFoundError: if there is no terminal for a window next to it.
        UntrustedFolderError: if a structured agent would run code from the folder that the user has not trusted.
        RefusedError: if its worktree's branch exists already, or its folder would be in the repository; or if an agent
            requests it, and may not.
        GitError: if git cannot create its worktree.
        UnavailableError: if the state folder is not writable.
    """
    check_name(new.name)
    check_tags(new.tags)
    shown = "it says so itself" if new.actor is not None else ""
    if new.tools and (shown := shown or evidence(os.getpid())):
        raise RefusedError(
            "an agent cannot give a session tools.",
            hint=f"Do it in your own terminal: this came from a process of kasmon ({shown}).",
        )
    actor = find_actor(paths, os.getpid())
    if actor is None and new.actor is None:
        return _create(paths, config, msgspec.structs.replace(new, limits=None), at, variables)
    from kasmon.supervisor.limits.agents import check_is_person, find_limits, starting  # only for agents

    if actor is None:
        assert new.actor is not None
        actor, limits = new.actor, new.limits
    elif new.plan:
        check_is_person(paths, "start sessions of a plan")
        return _create(paths, config, msgspec.structs.replace(new, actor=None, limits=None), at, variables)
    else:
        limits = find_limits(paths, actor.session)
    new = msgspec.structs.replace(new, actor=actor, limits=limits)
    with starting(paths, actor, limits):
        return _create(paths, config, new, at, variables)


def _create(paths: Paths, config: Config, new: NewSession, at: float, variables: Mapping[str, str]) -> Launch:
    if new.account and not (new.agent or new.argv):
        new = msgspec.structs.replace(new, agent=find_account(config, new.account).agent)
    resolved = resolve(config, new.agent, new.mode, new.argv, sandbox=new.sandbox, environment=variables)
    if not has_worktree(config, new, resolved):
        return _prepare(paths, config, new, resolved, at, variables)
    from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, new_worktree  # rarely needed

    request = WorktreeRequest(base=new.base, branch=new.branch, reuses_branch=new.reuses_branch)
    with new_worktree(config.worktree, request, require_folder(new.workdir), new.name) as (tree, workdir):
        return _prepare(paths, config, new, resolved, at, variables, tree, workdir)


def has_worktree(config: Config, new: NewSession, resolved: ResolvedProfile) -> bool:
    """Return whether the requested session gets a worktree: if asked for, else by its profile, else by the config.

    By these, only in a git repository, and never a program after `--`, a plan's task or a window of another session.
    Raises `UsageError` if it cannot have the one that is asked for.
    """
    if new.resume and (new.worktree or new.base or new.branch):
        raise UsageError("--resume excludes a worktree.", hint="A conversation is resumed in its own folder.")
    if new.worktree is False and (new.base or new.branch):
        raise UsageError("--base and --branch require a new worktree.", hint="Leave out --no-worktree.")
    if new.reuses_branch and not (new.branch and not new.base):
        raise UsageError(
            "--reuse-branch requires --branch, and excludes --base.", hint="The worktree begins at that branch."
        )
    if new.worktree or new.base or new.branch:
        if resolved.machine:
            raise UsageError(
                f"a worktree on {resolved.machine!r} cannot be created from here.", hint="Create it there."
            )
        return True
    if new.worktree is False or new.resume or resolved.machine or new.argv or new.plan or new.parent:
        return False
    if not has_worktree_by_default(config, resolved.agent):
        return False
    from kasmon.supervisor.worktrees.session_worktree import locate

    return locate(require_folder(new.workdir)) is not None


def _prepare(
    paths: Paths,
    config: Config,
    new: NewSession,
    resolved: ResolvedProfile,
    at: float,
    variables: Mapping[str, str],
    worktree: SessionWorktree | None = None,
    workdir: str = "",
) -> Launch:
    """Create the session as `prepare` does; *workdir* is its folder in its *worktree*, if it has one."""
    name = check_name(new.name)
    account = _account(config, new, resolved, variables)
    own = own_variables(resolved.environment | account.own, (*new.environment, *new.public_environment), variables)
    argv = _build_resume_command(paths, new, resolved) if new.resume else resolved.argv
    secret, public = named(new.environment), named(new.public_environment)
    directory_variable = find(program_of(resolved.argv, resolved.agent)).variables.config_folder
    if both := secret & public:
        raise UsageError(f"{min(both)!r} is given by both --env and --env-public.", hint="Give it once.")
    launch = Launch(
        session=SessionId(""),
        name=name,
        agent=resolved.agent,
        mode=resolved.mode,
        backend=resolved.backend,
        argv=argv,
        resume=new.resume or None,
        workdir=there(resolved.machine, new.workdir)
        if resolved.machine
        else workdir or str(require_folder(new.workdir)),
        worktree=worktree,
        prompt=new.prompt,
        fork=new.fork,
        model=resolved.model,
        parent=_parent(paths, new.parent, resolved),
        actor=new.actor,
        limits=new.limits,
        tools=tuple(sorted({*new.tools, *resolved.tools})),
        task=new.task,
        wave=new.wave,
        peers=new.peers,
        plan=new.plan,
        tags=check_tags(new.tags),
        fallback=resolved.fallback,
        log_in_of=new.log_in_of,
        bypassing=resolved.bypassing,
        is_command=resolved.is_command,
        public_variables=tuple(sorted(public.union(account.public, own.keys() & {directory_variable}))),
        brought="" if resolved.machine else profile_hash(paths, config, new.workdir, resolved.agent),
        machine=resolved.machine,
        sandbox=resolved.sandbox,
        window=new.window,
        seed=new.seed,
        speed=new.speed,
        created_at=at,
    )
    _check_writable(launch)
    passed = inherited_by(launch, variables)
    if not launch.machine:
        launch = msgspec.structs.replace(launch, account=new.account or (passed | own).get(directory_variable, ""))
    if launch.mode is Mode.SDK:
        project_trust.check(launch.backend, launch.argv, launch.workdir, passed | own)
    policy = _policy(paths, resolved, launch, agrees=new.agrees)
    if policy is not None:
        secrets = secret | secret_names(launch, passed | own)
        policy = msgspec.structs.replace(policy, secret_variables=tuple(sorted(secrets)))
    with claim_id(paths) as session:
        launch = msgspec.structs.replace(launch, session=session)
        _write_files(paths, launch, own, variables, policy)
    return launch


def agent_variables(
    config: Config, new: NewSession, resolved: ResolvedProfile, variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the own variables of the agent of *new*, from its profile, its account and the request."""
    account = _account(config, new, resolved, variables)
    return own_variables(resolved.environment | account.own, (*new.environment, *new.public_environment), variables)


def _build_resume_command(paths: Paths, new: NewSession, resolved: ResolvedProfile) -> tuple[str, ...]:
    """Return the command line of the session that resumes `new.resume`.

    Raises:
        UsageError: if that cannot be an id.
        UnableError: if an agent of this kind cannot be given an earlier conversation.
        RefusedError: if a running session has it.
    """
    if not is_conversation_id(new.resume):
        raise UsageError(f"{new.resume!r} is not the id of a conversation.")
    if resolved.sandbox is not None:
        raise UnableError("a new sandbox has no earlier conversations to resume.", hint="Leave out --resume.")
    if resolved.machine:
        raise UnableError(f"the conversations on {resolved.machine!r} are not known here.", hint="Leave out --resume.")
    require_free_conversation(paths, new.resume)
    if resolved.mode is not Mode.TMUX:
        return resolved.argv
    command = add_conversation(program_of(resolved.argv, resolved.agent), resolved.argv, new.resume)
    if command is None or new.argv:
        raise UnableError(
            f"kasmon does not know how {resolved.agent!r} resumes a conversation in a terminal.",
            hint="Leave out --resume.",
        )
    return command


def _account(
    config: Config, new: NewSession, resolved: ResolvedProfile, variables: Mapping[str, str]
) -> AccountVariables:
    """Return the variables of the account that *new* requests; none without one. Raises as `account_variables`.

    It raises `UnableError` if its config directory would be in a sandbox, or on another machine.
    """
    if not new.account:
        return AccountVariables(own={}, public=frozenset(), directory=None)
    if resolved.machine:
        raise UnableError(
            f"the account {new.account!r} cannot be used on {resolved.machine!r}: its log-in is on this machine."
        )
    program = program_of(resolved.argv, resolved.agent)
    account = account_variables(config, new.account, resolved.agent, program, variables)
    if account.directory is not None and resolved.sandbox is not None:
        raise UnableError(
            f"the account {new.account!r} has a config directory, which a sandbox does not see.",
            hint="Copy its log-in into the sandbox by a profile of its own: [agents.NAME.confined] files.",
        )
    return account


def _policy(paths: Paths, resolved: ResolvedProfile, launch: Launch, *, agrees: bool) -> SandboxPolicy | None:
    """Return the policy of its sandbox; None if it has none.

    Raises `RefusedError` if it gets something that the user has not confirmed, or an agent confirms it.
    """
    if launch.sandbox is None:
        return None
    from kasmon.supervisor.sandboxes import agent_policy, availability  # only imported if there is a sandbox

    policy = agent_policy.policy_of(resolved)
    if agrees and not agent_policy.is_agreed(paths, resolved):
        from kasmon.supervisor.limits.agents import check_is_person  # once for each profile

        check_is_person(paths, "confirm what a sandbox gets")
    availability.must_confine(paths, resolved, launch.workdir)
    agent_policy.check_agreed(paths, resolved, agrees=agrees)
    return policy


def _write_files(
    paths: Paths, launch: Launch, own: Mapping[str, str], variables: Mapping[str, str], policy: SandboxPolicy | None
) -> None:
    """Write the files into the session's folder and announce it to the fleet."""
    if policy is not None:
        workspace = "" if policy.tier == "jail" else launch.workdir  # a jail gets it at each start
        policy = msgspec.structs.replace(policy, session=launch.session, workspace=workspace)
        write_private(paths.sandbox(launch.session), msgspec.json.encode(policy))
    write_private(paths.environment(launch.session), encoded(own))
    write_private(paths.launch(launch.session), msgspec.json.encode(launch))
    passed = inherited(own_prefixes(launch.argv), variables)
    hidden = [value for name, value in own.items() if name not in launch.public_variables]
    logged = Redactor((*hidden, *secret_values(passed))).fact(msgspec.structs.replace(launch, prompt=""))
    machine = launch.machine or socket.gethostname()
    announce(paths, SessionCreated(at=launch.created_at, launch=logged, machine=machine))


def _parent(paths: Paths, requested: SessionId | None, resolved: ResolvedProfile) -> SessionId | None:
    """Return the session whose terminal gets another window; None if none is requested."""
    if requested is None:
        return None
    parent = read_session(paths, requested)
    if parent.mode is not Mode.TMUX:
        raise UnableError(f"cannot open a window of {parent.name!r}: a structured session has no terminal.")
    if resolved.mode is not Mode.TMUX:
        raise UsageError("a structured session cannot open in a window.", hint="Leave out --in, or pass --mode tmux.")
    if parent.state not in ALIVE:
        raise SessionEndedError(parent.name)
    return parent.id


def _check_writable(launch: Launch) -> None:
    """Refuse text that is not UTF-8, which the log could not hold."""
    for text in (launch.workdir, launch.prompt, *launch.argv, launch.plan or ""):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{text!r} is not UTF-8.") from error
        if "\0" in text:
            raise UsageError(f"{text!r} contains a NUL character.")
