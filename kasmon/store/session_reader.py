"""Reads one session without its host: the launch that its `launch.json` describes, and its state by its log.

`kasmon ls` imports this: nothing here may import what redacts or writes a log.
"""

import contextlib
from collections.abc import Iterator

import msgspec

from kasmon.errors import LaunchError, LogMissingError
from kasmon.model.commands import Launch
from kasmon.model.events import Event
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session, created
from kasmon.paths import Paths
from kasmon.store.event_log import START, Cursor, EventLog


def load_initial_session(paths: Paths, session: SessionId) -> Session:
    """Return the session before its first event, as its `launch.json` describes it; without one, only its id."""
    try:
        launch = load_launch(paths, session)
    except LaunchError:
        return Session(id=session)
    return created(launch, launch.created_at)


def apply_log(paths: Paths, session: Session, since: Cursor = START) -> tuple[Session, Cursor]:
    """Return *session* with its log's events after *since*, and the cursor behind them. The log may be missing."""
    with contextlib.suppress(LogMissingError):
        for event, cursor in EventLog(paths.log(session.id)).read(since):
            session, since = apply(session, event), cursor
    return session, since


def read_events(paths: Paths, session: SessionId) -> Iterator[Event]:
    """Yield the events of the session's log, oldest first; none while it has no log. Raises as `EventLog.read`."""
    with contextlib.suppress(LogMissingError):
        yield from EventLog(paths.log(session)).events()


def load_launch(paths: Paths, session: SessionId) -> Launch:
    """Return the session's launch, from its `launch.json`. Raises `LaunchError` if that cannot be read."""
    path = paths.launch(session)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Launch)
    except OSError as error:
        raise LaunchError(f"cannot read {str(path)!r}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LaunchError(f"{str(path)!r} does not describe how to start the session: {error}.") from error
