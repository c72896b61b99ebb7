"""The limits on sessions that agents start and prompt: depth, number, money, tokens and time, by the table [fleet].

They hold for the tools of `kasmon mcp --tools fleet` and for each `kasmon new`, `kasmon send` and `kasmon restart` of
an agent's program. What has no limits, such as a plan, is a person's to start (`check_is_person`).
The top of a tree is the session that a person or a plan started. A person's shell in a session has no limits.
"""

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from kasmon.config.parser import load_or_default
from kasmon.config.profile import programs
from kasmon.config.schema import Config, FleetConfig
from kasmon.errors import LaunchError, RefusedError, UnavailableError, UsageError
from kasmon.host.rpc.actor import find_actor
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.agent_program import is_agent
from kasmon.model.commands import FLEET_TOOLS, ActingAgent, StarterLimits
from kasmon.model.fleet import Fleet
from kasmon.model.limits.budget import parse_budget
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths, private_folder
from kasmon.sanitize import clean_block, clean_line
from kasmon.store.session_reader import load_launch
from kasmon.store.starters import Starters, find_ancestors, find_descendants, read_starters
from kasmon.supervisor.fleet.snapshot import read_fleet

RAISE: Final = "The person can raise it in the config: `kasmon config fleet.{}`."
LOCK_S: Final = 75.0
"""How long a start waits for another start by an agent, in seconds."""


@contextlib.contextmanager
def starting(paths: Paths, actor: ActingAgent, limits: StarterLimits | None = None) -> Iterator[None]:
    """Within the context *actor* may create one session: no other agent creates one meanwhile. Blocks.

    *limits*: those of the machine that *actor*, or an agent above it, is on, if that is another one.

    Raises:
        RefusedError: if it may not: its session is not certain, or a limit is reached.
        UnavailableError: if another agent's start takes longer than `LOCK_S`.
    """
    if not actor.is_identified:
        raise RefusedError(
            "cannot start a session: this process belongs to an agent, and it is not certain to which.",
            hint="Start it as a child of the agent's own process, not in the background of the system.",
        )
    lock = HostLock(private_folder(paths.state) / "agent-starts.lock")
    if not lock.acquire(LOCK_S):
        raise UnavailableError("cannot start a session: another agent's start is not over.", hint="Try again.")
    try:
        config = load_or_default(paths)
        if limits is not None and limits.depth < config.fleet.depth:
            fleet_config = msgspec.structs.replace(config.fleet, depth=limits.depth)
            config = msgspec.structs.replace(config, fleet=fleet_config)
        require_start(config, read_fleet(paths), actor, read_starters(paths))
        yield
    finally:
        lock.let_go()


def require_start(config: Config, fleet: Fleet, actor: ActingAgent, starters: Starters) -> None:
    """Raise `RefusedError` unless *actor*, whose session is certain, may start one; *starters* as `read_starters`."""
    if _is_persons_shell(config, fleet, actor, starters):
        return
    limits, top = config.fleet, find_ancestors(actor.session, starters)[-1]
    if (own := fleet.get(actor.session)) is not None and own.log_in_of is not None:
        raise RefusedError(
            f"cannot start a session: this process belongs to the log-in {own.name!r}.",
            hint="Start it in your own terminal.",
        )
    if actor.depth + 1 > limits.depth:
        raise RefusedError(
            f"cannot start a session: {_name(fleet, actor.session)!r} has depth {actor.depth}, and its children would "
            f"be deeper than the limit, fleet.depth = {limits.depth}.",
            hint=RAISE.format("depth"),
        )
    below = find_descendants(top, starters)
    _require_number(limits, fleet, top, below, "start a session")
    if len(below) >= limits.starts:
        raise RefusedError(
            f"cannot start a session: {len(below)} children of {_name(fleet, top)!r} were started, and the limit is "
            f"fleet.starts = {limits.starts}.",
            hint=f"Prompt one that exists. {RAISE.format('starts')}",
        )
    _require_budget(limits, fleet, top, below, "start a session")


def require_prompt(config: Config, fleet: Fleet, session: Session, actor: ActingAgent, starters: Starters) -> None:
    """Raise `RefusedError` if the time of *session*, which an agent started, or a budget of its tree is used up."""
    if actor.is_identified and _is_persons_shell(config, fleet, actor, starters):
        return
    _require_time_and_budget(config.fleet, fleet, session, starters, f"prompt {session.name!r}")


def check_prompt(paths: Paths, session: Session, actor: ActingAgent) -> None:
    """Raise as `require_prompt`. Blocks."""
    config = _within(load_or_default(paths), find_limits(paths, session.id))
    require_prompt(config, read_fleet(paths), session, actor, read_starters(paths))


def check_restart(paths: Paths, session: Session, actor: ActingAgent | None = None) -> None:
    """Raise `RefusedError` if an agent started *session*, an agent restarts it, and a limit is reached. Blocks.

    *actor*: the agent of another machine that requests it; an agent of this machine is found instead.
    """
    if session.actor is None or (actor := find_actor(paths, os.getpid()) or actor) is None:
        return
    config, fleet, starters = load_or_default(paths), read_fleet(paths), read_starters(paths)
    if actor.is_identified and _is_persons_shell(config, fleet, actor, starters):
        return
    action, top = f"restart {session.name!r}", find_ancestors(session.id, starters)[-1]
    config = _within(config, find_limits(paths, session.id))
    _require_time_and_budget(config.fleet, fleet, session, starters, action)
    _require_number(config.fleet, fleet, top, {*find_descendants(top, starters)} - {session.id}, action)


def check_is_person(paths: Paths, action: str) -> None:
    """Raise `RefusedError` if this process belongs to an agent; a person's shell in a session passes. Blocks.

    *action*: what it wants to do, for the message.
    """
    actor = find_actor(paths, os.getpid())
    if actor is None:
        return
    if actor.is_identified and _is_persons_shell(
        load_or_default(paths), read_fleet(paths), actor, read_starters(paths)
    ):
        return
    raise RefusedError(
        f"an agent cannot {action}.", hint="Ask the person: this process belongs to the agent of a session of kasmon."
    )


def _within(config: Config, limits: StarterLimits | None) -> Config:
    """Return *config* with at most the time that the machine of the starting agent allows."""
    if limits is None:
        return config
    fleet = msgspec.structs.replace(config.fleet, minutes=min(config.fleet.minutes, limits.minutes))
    return msgspec.structs.replace(config, fleet=fleet)


def find_limits(paths: Paths, session: SessionId) -> StarterLimits | None:
    """Return what another machine allows what the agent of *session* starts; None if none is above it. Blocks."""
    try:
        return load_launch(paths, session).limits
    except LaunchError:
        return None


def require_tool(fleet: Fleet, actor: ActingAgent) -> Session:
    """Return the session of *actor*. Raises `RefusedError` if the person did not allow its agent `FLEET_TOOLS`."""
    session = fleet.get(actor.session)
    if session is None or FLEET_TOOLS not in session.tools:
        name = actor.session if session is None else session.name
        raise RefusedError(
            f"session {name!r} may not use the fleet tools: they are off.",
            hint="The person allows them: `kasmon new NAME --tools fleet`, or tools = ['fleet'] in the profile.",
        )
    return session


def require_choices(limits: FleetConfig, own_agent: str, agent: str, sandbox: str | None) -> None:
    """Raise `RefusedError` if the person did not allow the tools of an agent *own_agent* to start *agent* in *sandbox*.

    *sandbox*: None for that of its profile.
    """
    if agent != own_agent and agent not in limits.agents:
        raise RefusedError(
            f"cannot start {agent!r}: the person allows {', '.join(map(repr, (own_agent, *limits.agents)))}.",
            hint="The person can add it to fleet.agents in the config.",
        )
    if sandbox is not None and sandbox not in limits.sandboxes:
        raise RefusedError(
            f"cannot choose the sandbox {sandbox!r}: the person allows "
            f"{', '.join(map(repr, limits.sandboxes)) or 'none besides that of the profile'}.",
            hint="Leave it out, or the person can add it to fleet.sandboxes in the config.",
        )


def require_child(session: Session, actor: ActingAgent, starters: Starters, action: str) -> None:
    """Raise `RefusedError` unless *actor*, or an agent below it, started *session*. *action*: for the message."""
    if session.id not in find_descendants(actor.session, starters):
        raise RefusedError(
            f"cannot {action} {session.label!r}: you did not start it.",
            hint="`message` reaches peers. Only sessions that you started, or that those started, are yours.",
        )


def find_kin(session: SessionId, starters: Starters) -> set[SessionId]:
    """Return the sessions that `message` reaches besides peers: the one at the top of the tree, and all below it."""
    top = find_ancestors(session, starters)[-1]
    return {top, *find_descendants(top, starters)} - {session}


def with_sender(session: Session, text: str) -> str:
    """Return the prompt *text* of the agent of *session* as a child reads it, with a line that names its sender.

    So it never begins with what an agent's own screen executes, such as `/` or `!`. Raises `UsageError` without text.
    """
    cleaned = clean_block(text).strip()
    if not cleaned:
        raise UsageError("missing prompt.")
    return f"[From {clean_line(session.name)}, the agent that started you, not from the person you work for]\n{cleaned}"


def _is_persons_shell(config: Config, fleet: Fleet, actor: ActingAgent, starters: Starters) -> bool:
    """Return whether *actor* is a shell that a person opened here, and no agent is above it.

    An agent's log-in runs the agent's own program, whatever its name is.
    """
    if actor.machine:
        return False
    line = [fleet.get(each) for each in find_ancestors(actor.session, starters)]
    return all(
        each is not None
        and not (each.via or (each.actor and each.actor.machine))  # it is what another machine says
        and each.log_in_of is None
        and not is_agent(each, programs(config))
        for each in line
    )


def _name(fleet: Fleet, session: SessionId) -> str:
    found = fleet.get(session)
    return session if found is None else found.name


def _require_number(
    limits: FleetConfig, fleet: Fleet, top: SessionId, below: Collection[SessionId], action: str
) -> None:
    alive = sum(each.id in below and each.state in ALIVE for each in fleet.sessions)
    if alive >= limits.sessions:
        raise RefusedError(
            f"cannot {action}: {alive} children of {_name(fleet, top)!r} exist, and the limit is "
            f"fleet.sessions = {limits.sessions}.",
            hint=f"Stop one of them first. {RAISE.format('sessions')}",
        )


def _require_time_and_budget(
    limits: FleetConfig, fleet: Fleet, session: Session, starters: Starters, action: str
) -> None:
    if time.time() > session.created_at + 60 * limits.minutes:
        raise RefusedError(
            f"cannot {action}: an agent started it more than fleet.minutes = {limits.minutes:g} minutes ago.",
            hint=f"Start another session, or propose to finish it. {RAISE.format('minutes')}",
        )
    top = find_ancestors(session.id, starters)[-1]
    _require_budget(limits, fleet, top, find_descendants(top, starters), action)


def _require_budget(
    limits: FleetConfig, fleet: Fleet, top: SessionId, below: Collection[SessionId], action: str
) -> None:
    members = [each for each in fleet.sessions if each.id in below]
    for name, text in (("money", limits.money), ("tokens", limits.tokens)):
        if (budget := parse_budget("session", text)) is None:
            continue
        used = sum(each.cost_usd or 0.0 for each in members)
        if not budget.is_money:
            used = float(sum(each.tokens.used or 0 for each in members if each.tokens is not None))
        if used >= budget.most:
            raise RefusedError(
                f"cannot {action}: the children of {_name(fleet, top)!r} used {budget.amount(used)}, and the limit is "
                f"fleet.{name} = {text!r}.",
                hint=RAISE.format(name),
            )
