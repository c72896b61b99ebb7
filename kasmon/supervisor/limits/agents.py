"""The limits on sessions that agents start and prompt: depth, number, money, tokens and time, by the table [fleet].

They hold for the tools of `kasmon mcp --tools fleet` and for each `kasmon new`, `kasmon send` and `kasmon restart` of
an agent's program. What has no limits, such as a plan, is a person's to start (`check_is_person`).
The top of a tree is the session that a person or a plan started. A person's shell in a session has no limits.
"""

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

from kasmon.config.parser import load_or_default
from kasmon.config.profile import programs
from kasmon.config.schema import Config, FleetConfig
from kasmon.errors import LogMissingError, RefusedError, UnavailableError
from kasmon.host.rpc.actor import find_actor
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.agent_program import is_agent
from kasmon.model.commands import ActingAgent
from kasmon.model.events import SessionCreated
from kasmon.model.fleet import Fleet
from kasmon.model.limits.budget import parse_budget
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths, private_folder
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.snapshot import read_fleet

Starters: TypeAlias = Mapping[SessionId, SessionId | None]
RAISE: Final = "The person can raise it in the config: `kasmon config fleet.{}`."
LOCK_S: Final = 60.0
"""How long a start waits for another start by an agent, in seconds."""


@contextlib.contextmanager
def starting(places: Paths, actor: ActingAgent) -> Iterator[None]:
    """Within the context *actor* may create one session: no other agent creates one meanwhile. Blocks.

    Raises:
        RefusedError: if it may not: its session is not certain, or a limit is reached.
        UnavailableError: if another agent's start takes longer than `LOCK_S`.
    """
    if not actor.is_identified:
        raise RefusedError(
            "cannot start a session: this process belongs to an agent, and it is not certain to which.",
            hint="Start it as a child of the agent's own process, not in the background of the system.",
        )
    lock = HostLock(private_folder(places.state) / "agent-starts.lock")
    if not lock.acquire(LOCK_S):
        raise UnavailableError("cannot start a session: another agent's start is not over.", hint="Try again.")
    try:
        require_start(load_or_default(places), read_fleet(places), actor, read_starters(places))
        yield
    finally:
        lock.let_go()


def require_start(config: Config, fleet: Fleet, actor: ActingAgent, starters: Starters) -> None:
    """Raise unless *actor*, whose session is certain, may start a session; *starters* as `read_starters`.

    Raises:
        RefusedError: if it may not.
    """
    if _is_persons_shell(config, fleet, actor, starters):
        return
    limits, top = config.fleet, find_ancestors(actor.session, starters)[-1]
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
    """Raise unless *actor* may prompt *session*, which an agent started; *starters* as `read_starters`.

    Raises:
        RefusedError: if its time is over, or a budget of the children of its top is used up.
    """
    if actor.is_identified and _is_persons_shell(config, fleet, actor, starters):
        return
    _require_time_and_budget(config.fleet, fleet, session, starters, f"prompt {session.name!r}")


def check_prompt(places: Paths, session: Session, actor: ActingAgent) -> None:
    """Raise as `require_prompt`. Blocks."""
    require_prompt(load_or_default(places), read_fleet(places), session, actor, read_starters(places))


def check_restart(places: Paths, session: Session) -> None:
    """Raise unless this process may start the agent of *session* again. Blocks.

    Raises:
        RefusedError: if this process is an agent's, an agent started *session*, and a limit is reached.
    """
    if session.actor is None or (actor := find_actor(places, os.getpid())) is None:
        return
    config, fleet, starters = load_or_default(places), read_fleet(places), read_starters(places)
    if actor.is_identified and _is_persons_shell(config, fleet, actor, starters):
        return
    action, top = f"restart {session.name!r}", find_ancestors(session.id, starters)[-1]
    _require_time_and_budget(config.fleet, fleet, session, starters, action)
    _require_number(config.fleet, fleet, top, {*find_descendants(top, starters)} - {session.id}, action)


def check_is_person(places: Paths, action: str) -> None:
    """Raise if this process belongs to an agent; a shell that a person opened in a session passes. Blocks.

    *action*: what it wants to do, for the message.

    Raises:
        RefusedError: if it does.
    """
    actor = find_actor(places, os.getpid())
    if actor is None:
        return
    if actor.is_identified and _is_persons_shell(
        load_or_default(places), read_fleet(places), actor, read_starters(places)
    ):
        return
    raise RefusedError(
        f"an agent cannot {action}.", hint="Ask the person: this process belongs to the agent of a session of kasmon."
    )


def read_starters(places: Paths) -> Starters:
    """Return each session that was ever created, oldest first, with the session whose agent started it. Blocks."""
    starters: dict[SessionId, SessionId | None] = {}
    with contextlib.suppress(LogMissingError):  # no session was created yet
        for event, _ in EventLog(places.fleet_log).read():
            if isinstance(event, SessionCreated):
                starters[event.launch.session] = event.launch.actor.session if event.launch.actor else None
    return starters


def find_ancestors(session: SessionId, starters: Starters) -> list[SessionId]:
    """Return *session*, the one whose agent started it, and so on up to the top."""
    found = [session]
    while (above := starters.get(found[-1])) and above not in found:
        found.append(above)
    return found


def find_descendants(session: SessionId, starters: Starters) -> list[SessionId]:
    """Return the sessions that the agent of *session* started, and those that theirs did, oldest first."""
    below: list[SessionId] = []
    for each, starter in starters.items():
        if starter and (starter == session or starter in below):
            below.append(each)
    return below


def _is_persons_shell(config: Config, fleet: Fleet, actor: ActingAgent, starters: Starters) -> bool:
    """Return whether *actor* is a shell that a person opened, and no agent is above it."""
    line = [fleet.get(each) for each in find_ancestors(actor.session, starters)]
    return all(each is not None and not is_agent(each, programs(config)) for each in line)


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
