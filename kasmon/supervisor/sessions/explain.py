"""Explain a session's state: its signals and the verdict from them, its transitions, and its current screen.

Signals and transitions come from its log. The screen is captured if its host runs; no host is started for that.
"""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.backends.common.environment import program_of
from kasmon.backends.tmux.evidence.hook_setup import absent
from kasmon.detection.terminal_screen import TerminalScreen, captured
from kasmon.errors import KasmonError, LaunchError, TimedOutError, UnavailableError
from kasmon.host.rpc.connect import reach_running_tmux_host
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.host.rpc.frames import DescribePane, FromHost, PaneDescription, SubscriptionEnd, TerminalRows, Watch
from kasmon.model.commands import Mode
from kasmon.model.events import AgentCommandReceived, Event, SessionStarted, SignalSeen, TurnStarted
from kasmon.model.evidence import Signal, StateVerdict, judge
from kasmon.model.permission import RequestKind
from kasmon.model.reducers.apply import apply
from kasmon.model.reducers.evidence import apply_verdict
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.store.session_reader import load_initial_session, read_events
from kasmon.store.session_reader import load_launch as launch_of

if TYPE_CHECKING:  # imported where a screen is read by rules: they take a quarter of the time of `kasmon explain`
    from kasmon.detection.reader import ScreenReading
    from kasmon.detection.rules.catalog import RuleCatalog

UNCERTAIN: Final = "an uncertain session"
"""The name of the session of an agent whose session is not certain."""
BY_TIME: Final = "time"
"""The cause of a change without an event: a signal expired, or sources disagreed for too long."""


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    """In seconds since the epoch."""
    state: SessionState
    source: str
    by: str
    """The event that caused it: its tag, for a signal with its source; or `BY_TIME`."""
    asking: RequestKind | None = None
    why: str = ""
    """Why it is unsure, or how it ended."""
    agent: str = ""
    """The name of the session whose agent stopped it, or interrupted its turn, before that; empty for a person."""


def transitions(session: Session, facts: Iterable[Event], until: float) -> list[Transition]:
    """Return the changes that *facts*, oldest first, cause in *session*, and those caused by time up to *until*."""
    found: list[Transition] = []
    agent = ""

    def record(after: Session, at: float, by: str) -> Session:
        nonlocal session, agent
        if (after.state, after.asking) != (session.state, session.asking):
            why = after.unsure_why or (after.end_why if after.state is SessionState.ENDED else "")
            ends = "" if after.state in (SessionState.WORKING, SessionState.ASKING) else agent
            found.append(
                Transition(
                    at=at, state=after.state, source=after.source, by=by, asking=after.asking, why=why or "", agent=ends
                )
            )
            agent = "" if ends else agent
        session = after
        return after

    def record_due_changes(now: float) -> None:
        while session.mode is Mode.TMUX and session.recheck_at is not None and session.recheck_at <= now:
            due_at = session.recheck_at
            aged = apply_verdict(session, due_at)
            record(aged, due_at, BY_TIME)
            if aged.recheck_at is not None and aged.recheck_at <= due_at:
                return

    for fact in facts:
        record_due_changes(fact.at)
        if isinstance(fact, AgentCommandReceived):
            agent = fact.name or UNCERTAIN
        elif isinstance(fact, TurnStarted | SessionStarted):
            agent = ""
        record(apply(session, fact), fact.at, _name(fact))
    record_due_changes(until)
    return found


def _name(fact: Event) -> str:
    tag = str(fact.__struct_config__.tag)
    return f"{tag} {fact.source}" if isinstance(fact, SignalSeen) else tag


KEPT: Final = 12
"""How many of the last changes are returned."""
LOOK_S: Final = 5.0
"""How long capturing the screen may take, in seconds."""
NO_HOST: Final = "it has no running host, so this is from its log"
NO_SCREEN: Final = "it has no screen: its agent reports its state by protocol"


class ExplainedState(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about the cause of a state."""

    verdict: StateVerdict
    signals: tuple[Signal, ...] = ()
    absent: tuple[tuple[str, str], ...] = ()
    """Silent sources, each with the reason if known."""
    reading: "ScreenReading | None" = None
    """The screen, if screen rules recognise it."""
    note: str = ""
    """Why these rules were used, if they are not made for exactly this version."""
    unseen: str = ""
    """Why its screen was not captured; empty if it was."""
    transitions: tuple[Transition, ...] = ()
    """The last changes, oldest first."""
    text: str = ""
    """The screen as `tmux capture-pane -e` would print it."""
    shot: TerminalScreen | None = None


async def explain(
    paths: Paths, session: Session, catalogue: "Callable[[str], RuleCatalog] | None" = None
) -> ExplainedState:
    """Explain the current state of *session*.

    *catalogue* returns the screen rules for a program, by default with the user's own.
    """
    now = time.time()
    verdict = judge(session.signals, now) if session.mode is Mode.TMUX else None
    found = ExplainedState(
        verdict=StateVerdict(
            state=session.state,
            source=session.source,
            why=session.unsure_why or session.end_why,
            asking=session.asking,
            until=session.limited_until,
            lost=verdict.lost if verdict is not None else (),
        ),
        signals=session.signals,
        transitions=await run_in_thread(_changes, paths, session, now),
    )
    if session.mode is not Mode.TMUX:
        return msgspec.structs.replace(found, unseen=NO_SCREEN)
    found = msgspec.structs.replace(found, absent=await run_in_thread(_absent, paths, session))
    if session.host is None or not session.host.alive:
        return msgspec.structs.replace(found, unseen=NO_HOST)
    try:
        pane, rows = await _capture(paths, session)
    except KasmonError as error:
        return msgspec.structs.replace(found, unseen=error.message)
    return await run_in_thread(_read, paths, session, found, pane, rows, catalogue)


def program_in(paths: Paths, session: Session) -> str:
    """Return the program of *session*, as the files of screen rules name it."""
    try:
        launch = launch_of(paths, session.id)
    except LaunchError:
        return session.agent
    return program_of(launch.argv, launch.agent)


def _absent(paths: Paths, session: Session) -> tuple[tuple[str, str], ...]:
    try:
        launch = launch_of(paths, session.id)
    except LaunchError:
        return ()
    reporting = {signal.source for signal in session.signals}
    return tuple(absent(program_of(launch.argv, launch.agent), launch.argv, reporting).items())


def _changes(paths: Paths, session: Session, now: float) -> tuple[Transition, ...]:
    try:
        before, facts = load_initial_session(paths, session.id), read_events(paths, session.id)
        return tuple(transitions(before, facts, now)[-KEPT:])
    except OSError:
        return ()


async def _capture(paths: Paths, session: Session) -> tuple[PaneDescription, TerminalRows]:

    def is_screen(push: FromHost) -> bool:
        return isinstance(push, TerminalRows | SubscriptionEnd) and push.session == session.id

    async with reach_running_tmux_host(paths, session.id) as host:
        pane = await host.ask(DescribePane(n=0, session=session.id))
        try:
            rows = await host.watch(Watch(session=session.id, rate_hz=1.0), is_screen, LOOK_S)
        except TimedOutError as error:
            raise TimedOutError(f"its screen was not captured within {LOOK_S:g} s.") from error
    if not isinstance(rows, TerminalRows) or not isinstance(pane, PaneDescription):
        raise UnavailableError(rows.why if isinstance(rows, SubscriptionEnd) else "its host did not describe its pane.")
    return pane, rows


def _read(
    paths: Paths,
    session: Session,
    explained: ExplainedState,
    pane: PaneDescription,
    rows: TerminalRows,
    catalogue: "Callable[[str], RuleCatalog] | None",
) -> ExplainedState:
    text = "\n".join(f"{row}\x1b[m" if "\x1b" in row else row for _, row in sorted(rows.changed))
    shot = captured(
        text,
        pane.title,
        cursor=(rows.cursor.x, rows.cursor.y),
        cursor_visible=rows.cursor.visible,
        alternate=rows.modes.alternate,
        columns=rows.columns,
    )
    explained = msgspec.structs.replace(explained, text=text, shot=shot)
    program = program_in(paths, session)
    from kasmon.agents.catalog import catalog
    from kasmon.detection.rules.catalog import RuleCatalog

    rules = (
        catalogue(program)
        if catalogue is not None
        else RuleCatalog([paths.config / "screens"], program, catalog(paths))
    )
    chosen = rules.rules(program, pane.agent_version)
    if chosen is None:
        return msgspec.structs.replace(explained, note=f"there are no screen rules for {program!r}")
    from kasmon.detection.reader import read

    reading = read(shot, chosen.rules, time.time(), wants_all=True)
    return msgspec.structs.replace(explained, reading=reading, note=chosen.note)
