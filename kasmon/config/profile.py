"""Resolve a profile for one session: its mode, backend, command line, and why the requested mode is not used."""

import os
import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, cast, get_args

import msgspec

from kasmon.agents.catalog import catalog, find
from kasmon.config import agent_address
from kasmon.config.permission_bypass import is_bypassing
from kasmon.config.schema import Config, Profile, SandboxConfig, shipped_sandbox
from kasmon.errors import (
    AgentNotFoundError,
    ConfigError,
    KasmonError,
    NotFoundError,
    RefusedError,
    UnableError,
    UsageError,
)
from kasmon.model.agent_program import SHELLS
from kasmon.model.commands import Mode
from kasmon.model.sandbox.policy import Tier
from kasmon.paths import expanded, find_program

SCRIPTED: Final = "scripted"
"""As a program: kasmon's own scripted agent."""
AWAY: Final = "e2b"
"""The remote sandbox tier: programs are looked up there, not on this machine."""
NATIVE: Final = frozenset({"claude", "codex"})
"""Programs with a protocol of their own, each with a backend of the same name."""


class ResolvedProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How one session will run."""

    agent: str
    mode: Mode
    backend: str
    """`tmux`, or the structured backend's name."""
    argv: tuple[str, ...] = ()
    """The program and its arguments; empty for the structured scripted agent."""
    fallback: str | None = None
    """Why it does not run in the requested mode."""
    model: str = ""
    environment: dict[str, str] = {}
    """The profile's own variables."""
    bypassing: bool = False
    """The agent is started with permissions skipped."""
    is_command: bool = False
    """A program that is neither an agent nor an interactive shell: it works until it exits."""
    tools: tuple[str, ...] = ()
    """What its agent may use of `kasmon mcp --tools`."""
    sandbox: Tier | None = None
    confined: SandboxConfig = SandboxConfig()
    machine: str = ""
    """The other machine to run on; empty for this one. There *argv* begins with a bare program name, or is empty for
    the login shell."""


class ProfileOffer(msgspec.Struct, frozen=True, kw_only=True):
    """One profile that a new session can use."""

    name: str
    modes: tuple[Mode, ...]
    """The modes it can run in, its default first; empty if it cannot be started."""
    problem: str = ""
    """Why it cannot be started now; empty if it can."""
    confines: tuple[Mode, ...] = ()
    sandbox: str = ""
    """The sandbox tier of its profile; empty for none."""
    worktree: bool = False
    """Whether its sessions get a worktree of their own unless the user chooses, where they can."""
    accounts: tuple[str, ...] = ()
    """The accounts of the config that it can use beside its own log-in."""


def has_worktree_by_default(config: Config, agent: str) -> bool:
    """Return whether sessions of *agent* get a worktree of their own, by its profile, else by `worktree.default`."""
    profile = config.agents[agent].worktree
    return config.worktree.default == "new" if profile is None else profile


def resolve(
    config: Config,
    agent: str = "",
    mode: Mode | str | None = None,
    argv: Sequence[str] = (),
    *,
    sandbox: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> ResolvedProfile:
    """Resolve how a session of profile *agent* runs, in *mode* if given; *argv* is any program to run in tmux.

    *sandbox* is a tier, or empty for no sandbox; None means the profile's setting.

    `AGENT@HOST` runs in a terminal of that machine; its program is given by bare name.

    If *agent* is empty, it is the program's name if there is *argv*, else the config's default agent. Programs are
    looked up on the PATH of *environment* (default: this process's). The resulting program is a path, except for a
    remote sandbox, where it is the name there.

    Raises:
        UsageError: if there is no such mode, tier or machine, or *argv* is to run as a structured session.
        NotFoundError: if no profile has this name.
        RefusedError: if the profile is disabled.
        UnableError: if this kind of session cannot run in the requested sandbox, mode or machine.
        AgentNotFoundError: if its program is not installed; the message names the fix.
        ConfigError: if its flags cannot be split, or it sets a model for a program without a known model flag.
    """
    variables = os.environ if environment is None else environment
    requested_mode = parse_mode(mode)
    name, machine = agent_address.split(agent)
    if machine:
        return _resolve_remote(config, name or config.default_agent, machine, requested_mode, argv, sandbox)
    if argv:
        return _resolve_command_line(config, agent, requested_mode, argv, variables, sandbox)
    agent = agent or config.default_agent
    profile = _profile(config, agent)
    program = Path(profile.program).name
    flags = _split(profile.flags, f"agents.{agent}.flags")
    backend, fallback = _backend(requested_mode or Mode(profile.execution_mode or Mode.TMUX), agent, profile)
    command: tuple[str, ...] = ()
    tier = profile.sandbox if sandbox is None else sandbox
    if backend != SCRIPTED:
        command = _command(config, agent, profile, variables, tier)
    if backend == "acp":
        command += _split(profile.acp, f"agents.{agent}.acp")
    elif backend == "tmux":
        command += _model(profile, program, agent) + find(program).start.terminal
    return ResolvedProfile(
        agent=agent,
        mode=Mode.TMUX if backend == "tmux" else Mode.SDK,
        backend=backend,
        argv=(*command, *flags) if command else (),
        fallback=fallback,
        model=profile.model,
        environment=profile.env,
        bypassing=is_bypassing((program, *command[1:], *flags)),
        tools=profile.tools,
        sandbox=_sandbox(agent, tier, backend),
        confined=_merge_confined(profile, program),
    )


class ProfilePrograms(Mapping[str, str]):
    """Name -> program of each profile, which is read when it is used."""

    def __init__(self, config: Config) -> None:
        self._profiles = config.agents

    def __getitem__(self, name: str) -> str:
        return self._profiles[name].program

    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)


def configured(config: Config) -> Mapping[str, Profile]:
    """Return the profiles that a config sets, wholly or in part; those that only kasmon knows are not read."""
    return ChainMap(*config.agents.maps[:-1]) if isinstance(config.agents, ChainMap) else {}


def programs(config: Config) -> Mapping[str, str]:
    """Return name -> program of each profile, for `model.agent_program.is_agent`."""
    return ProfilePrograms(config)


def offers(config: Config, environment: Mapping[str, str] | None = None) -> tuple[ProfileOffer, ...]:
    """Return the enabled profiles: first those that can be started, each part in config order."""
    found: list[ProfileOffer] = []
    for name, profile in config.agents.items():
        if not profile.enabled:
            continue
        modes: list[Mode] = []
        confines: list[Mode] = []
        problem = ""
        for mode in (Mode.TMUX, Mode.SDK):
            try:
                resolved = resolve(config, name, mode, environment=environment)
            except KasmonError as error:
                problem = problem or error.message
            else:
                modes += [mode] if resolved.mode is mode else []
                confines += [mode] if resolved.mode is mode and resolved.backend != SCRIPTED else []
        modes.sort(key=lambda mode: mode != (profile.execution_mode or Mode.TMUX))
        found.append(
            ProfileOffer(
                name=name,
                modes=tuple(modes),
                problem="" if modes else problem,
                confines=tuple(confines),
                sandbox=profile.sandbox,
                worktree=has_worktree_by_default(config, name),
                accounts=_find_accounts(config, name),
            )
        )
    return tuple(sorted(found, key=lambda offer: bool(offer.problem)))


def _find_accounts(config: Config, agent: str) -> tuple[str, ...]:

    def program(name: str) -> str:
        return PurePath(config.agents[name].program or name).name if name in config.agents else ""

    return tuple(name for name, each in config.accounts.items() if program(each.agent) == program(agent))


def parse_mode(mode: Mode | str | None) -> Mode | None:
    """Return the mode of sessions that *mode* names; None without one. Raises `UsageError` if there is none."""
    if mode in (None, "", Mode.TMUX, Mode.SDK):
        return Mode(mode) if mode else None
    raise UsageError(f"unknown mode {str(mode)!r}.", hint="Use tmux or sdk.")


def _resolve_command_line(
    config: Config,
    agent: str,
    mode: Mode | None,
    argv: Sequence[str],
    variables: Mapping[str, str],
    sandbox: str | None,
) -> ResolvedProfile:
    if mode is Mode.SDK:
        raise UsageError(
            f"{argv[0]!r} cannot run in mode 'sdk': a program given after -- runs in tmux.",
            hint="Leave out --mode, or pass a profile with --agent.",
        )
    profile = _profile(config, agent) if agent else Profile()
    name, tier = agent or Path(argv[0]).name, profile.sandbox if sandbox is None else sandbox
    return ResolvedProfile(
        agent=name,
        mode=Mode.TMUX,
        backend="tmux",
        argv=(argv[0] if tier == AWAY else _find_program(config, name, argv[0], variables), *argv[1:]),
        fallback="a program given after -- runs in tmux" if profile.execution_mode == "sdk" else None,
        model=profile.model,
        environment=profile.env,
        bypassing=is_bypassing(argv),
        is_command=not agent and name not in config.agents and not _is_interactive_shell(name, argv[1:]),
        sandbox=_sandbox(name, tier, "tmux"),
        confined=_merge_confined(profile, Path(argv[0]).name),
    )


def _is_interactive_shell(program: str, arguments: Sequence[str]) -> bool:
    """Whether *program* reads its commands from the terminal: a shell without a script or a command."""
    return program in SHELLS and all(argument.startswith("-") for argument in arguments)


def _resolve_remote(
    config: Config, agent: str, machine: str, requested_mode: Mode | None, argv: Sequence[str], sandbox: str | None
) -> ResolvedProfile:
    """Resolve a session on another machine: in a terminal, whichever mode the profile sets."""
    profile, address = _profile(config, agent), f"{agent}@{machine}"
    if profile.sandbox if sandbox is None else sandbox:
        raise UnableError(
            f"cannot start {address!r} in a sandbox: sandboxes are available on this machine only.",
            hint="Leave out --sandbox and the profile's `sandbox`.",
        )
    if requested_mode is Mode.SDK:
        raise UnableError(
            f"{address!r} cannot run in mode 'sdk': on another machine, an agent runs in a terminal.",
            hint="Leave out --mode.",
        )
    if profile.program == SCRIPTED and not argv:
        raise UnableError(f"cannot start {address!r}: the scripted agent runs on this machine only.")
    command = tuple(argv)
    if not command:
        program, flags = Path(profile.program).name, _split(profile.flags, f"agents.{agent}.flags")
        own = (program, *_model(profile, program, agent), *find(program).start.terminal) if program else ()
        if flags and not program:
            raise ConfigError(
                "config", ("a login shell on another machine accepts no flags"), key=f"agents.{agent}.flags"
            )
        command = (*own, *flags)
    return ResolvedProfile(
        agent=address,
        mode=Mode.TMUX,
        backend="tmux",
        argv=command,
        fallback="on another machine an agent runs in tmux" if profile.execution_mode == "sdk" else None,
        model=profile.model,
        environment=profile.env,
        bypassing=is_bypassing(command),
        machine=machine,
    )


def _profile(config: Config, agent: str) -> Profile:
    profile = config.agents.get(agent)
    if profile is not None and profile.enabled:
        return profile
    if profile is None and agent in config.agents:
        catalog().load(agent)  # it says what is wrong in the agent's folder
    enabled = ", ".join(name for name, each in config.agents.items() if each.enabled)
    if profile is None:
        raise NotFoundError(
            f"there is no profile {agent!r}.", hint=f"Available: {enabled}, or `-- PROGRAM` for any program."
        )
    raise RefusedError(
        f"the profile {agent!r} is disabled.", hint=f"Set agents.{agent}.enabled to true, or use {enabled}."
    )


def _merge_confined(profile: Profile, program: str) -> SandboxConfig:
    """Return the sandbox settings of *profile*; if it has none, those of the shipped profile for *program*."""
    return shipped_sandbox(find(program)) if profile.confined == SandboxConfig() else profile.confined


def _sandbox(agent: str, tier: str, backend: str) -> Tier | None:
    """Return the sandbox tier of a session; whether agents can run in it, and on this machine, is checked elsewhere.

    Raises:
        UnableError: if the session cannot have a sandbox.
    """
    if tier not in ("", *get_args(Tier)):
        raise UsageError(f"unknown sandbox tier {tier!r}.", hint=f"Tiers: {', '.join(get_args(Tier))}.")
    if tier and backend == SCRIPTED:
        raise UnableError(
            f"cannot start {agent!r} in {tier!r}: as a structured session it is part of its host and runs no program.",
            hint="Leave out --sandbox, or pass --mode tmux.",
        )
    return cast("Tier", tier) if tier else None


def _backend(requested_mode: Mode, agent: str, profile: Profile) -> tuple[str, str | None]:
    """Return the backend of a session, and why it does not run in *requested_mode*, if so."""
    if requested_mode is Mode.TMUX:
        return "tmux", None
    program = Path(profile.program).name
    protocol = profile.protocol or ("acp" if profile.acp else program)
    if protocol in NATIVE or protocol in ("acp", SCRIPTED):
        return protocol, None
    return "tmux", f"{program or agent} has no structured protocol"


def _split(flags: Sequence[str], key: str) -> tuple[str, ...]:
    import shlex  # only here: the dashboard's first frame parses no flags

    try:
        return tuple(word for flag in flags for word in shlex.split(flag))
    except ValueError as error:
        why = f"a flag cannot be split as a shell would ({str(error).lower()})"
        raise ConfigError("config", why, key=key) from error


def _model(profile: Profile, program: str, agent: str) -> tuple[str, ...]:
    if not profile.model:
        return ()
    flag = find(program).start.model
    if not flag:
        why = f"kasmon does not know how to set the model of {program or agent}; set it in the profile's flags"
        raise ConfigError("config", why, key=f"agents.{agent}.model")
    return (flag, profile.model)


def _command(config: Config, agent: str, profile: Profile, variables: Mapping[str, str], tier: str) -> tuple[str, ...]:
    if profile.program == SCRIPTED:
        return (sys.executable, "-P", "-m", "kasmon.scripted")
    if tier == AWAY:
        return (profile.program or "/bin/bash",)
    return (_find_program(config, agent, profile.program or variables.get("SHELL") or "/bin/sh", variables),)


def _find_program(config: Config, agent: str, program: str, variables: Mapping[str, str]) -> str:
    """Return the path of *program*; a relative path is returned as is, for the folder it is started in."""
    if "/" in program and not program.startswith(("/", "~")):
        return program
    path = find_program(str(expanded(program)), variables.get("PATH", os.defpath))
    if path is None:
        raise AgentNotFoundError(agent, program, _list_startable(config, variables))
    return str(path)


def _list_startable(config: Config, variables: Mapping[str, str]) -> list[str]:
    names: list[str] = []
    for name, profile in config.agents.items():
        program = str(expanded(profile.program)) if profile.program else ""
        own = program in ("", SCRIPTED)
        if profile.enabled and (own or find_program(program, variables.get("PATH", os.defpath))):
            names.append(name)
    return names
