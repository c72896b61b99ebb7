"""What a new tmux host finds: sessions that run, those that ended or were lost meanwhile, and stray panes."""

import logging
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from kasmon.errors import LaunchError, LogMissingError
from kasmon.host.journal.session_log import advanced, load_launch
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import SessionForgotten
from kasmon.model.permission import SessionId
from kasmon.model.session import Session, created
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.store.event_log import EventLog
from kasmon.tmux.formats import PaneFacts

log = logging.getLogger(__name__)


class TakeoverOutcome(StrEnum):
    """What happened to a session while it had no host."""

    NOTHING = "nothing"
    """It did not run, and does not."""
    FOUND = "found"
    """Its pane exists: its agent runs, or ended in it."""
    GONE = "gone"
    """Its pane alone is gone."""
    LOST = "lost"
    """The tmux server that it ran in is gone."""


class OrphanedSession(msgspec.Struct, frozen=True):
    """One session as an earlier host left it."""

    launch: Launch
    session: Session


class TakeoverSurvey(msgspec.Struct, frozen=True):
    """All tmux sessions that have a folder."""

    left: tuple[OrphanedSession, ...]
    forgotten: frozenset[str]


def survey(places: Paths) -> TakeoverSurvey:
    """Read the state of every tmux session from its log. An unreadable folder is skipped, and logged."""
    forgotten = _forgotten(places)
    left: list[OrphanedSession] = []
    for folder in sorted(places.sessions.iterdir()):
        if folder.name in forgotten or not folder.is_dir():
            continue
        session = SessionId(folder.name)
        try:
            launch = load_launch(places, session)
        except LaunchError as error:
            log.warning("session %s is left alone: %s", session, error)
            continue
        if launch.mode is Mode.TMUX:
            now, _ = advanced(places, created(launch, launch.created_at))
            left.append(OrphanedSession(launch, now))
    return TakeoverSurvey(tuple(left), forgotten)


def outcome_of(
    session: Session, facts: PaneFacts | None, server_started: float | None, of_boot: str
) -> TakeoverOutcome:
    """Return what happened to *session*, with the pane *facts* if that exists. Pure.

    Args:
        server_started: when today's tmux server began, on the clock of `Session.pid_started`; None if there is none.
        of_boot: today's boot of the machine, as in `Session.pid_boot`.
    """
    if facts is not None and not facts.is_dead:
        return TakeoverOutcome.FOUND  # even if its log does not show that: a killed host may not have logged it
    if not session.generation or session.state is SessionState.ENDED:
        return TakeoverOutcome.NOTHING
    if facts is not None:
        return TakeoverOutcome.FOUND
    if session.state is SessionState.LOST:
        return TakeoverOutcome.NOTHING
    if server_started is None or (session.pid_started is not None and server_started > session.pid_started):
        return TakeoverOutcome.LOST
    if session.pid_boot and session.pid_boot != of_boot:
        return TakeoverOutcome.LOST
    return TakeoverOutcome.GONE


def strays(survey_result: TakeoverSurvey, panes: Mapping[str, PaneFacts]) -> tuple[list[PaneFacts], list[PaneFacts]]:
    """Return dead panes of forgotten sessions, which can be ended; and other panes that belong to no session. Pure."""
    known = {left.launch.session for left in survey_result.left}
    unknown = {session: facts for session, facts in panes.items() if session not in known}
    dead = [facts for session, facts in unknown.items() if facts.is_dead and session in survey_result.forgotten]
    return dead, [facts for facts in unknown.values() if facts not in dead]


def _forgotten(places: Paths) -> frozenset[str]:
    try:
        events = EventLog(places.fleet_log).read()
        return frozenset(event.session for event, _ in events if isinstance(event, SessionForgotten))
    except LogMissingError:
        return frozenset()
