"""Why a session is in its state: its signals and what they add up to, its changes, and what stands on its screen now.

The signals and the changes are facts of its log. Its screen is looked at where its host is there; none is started.
"""

import asyncio
import contextlib
import time
from collections import deque
from typing import Final

import msgspec

from kasmon.backends.tmux.absent import absent
from kasmon.backends.tmux.program import program_of
from kasmon.errors import KasmonError, LaunchError, LogMissingError, TimedOutError, UnavailableError
from kasmon.host.book import begun
from kasmon.host.book import wanted as launch_of
from kasmon.host.client import HostLink
from kasmon.host.wire import FromHost, Gone, Look, PaneSeen, Rows, Watch
from kasmon.model.command import Mode
from kasmon.model.evidence import Signal, Verdict, judge
from kasmon.model.session import Session
from kasmon.model.transition import Transition, transitions
from kasmon.paths import Places
from kasmon.screens.catalogue import Catalogue
from kasmon.screens.reading import Reading, read
from kasmon.screens.shot import ScreenShot, captured
from kasmon.store.log import EventLog

KEPT: Final = 12
"""So many of the last changes are told."""
LOOK_S: Final = 5.0
"""How long a look at the screen may take, in seconds."""
NO_HOST: Final = "no host of it runs, so this is what its log says"
NO_SCREEN: Final = "it has no screen: its agent tells what it does by its protocol"


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """All that can be said of how a state came about."""

    verdict: Verdict
    signals: tuple[Signal, ...] = ()
    absent: tuple[tuple[str, str], ...] = ()
    """Sources that say nothing of it, each with the reason, where that is known."""
    reading: Reading | None = None
    """The screen, where a file knows it."""
    note: str = ""
    """Why the screen was read by these rules, where they are not made for exactly this version."""
    unseen: str = ""
    """Why its screen was not looked at; empty where it was."""
    transitions: tuple[Transition, ...] = ()
    """The last changes, oldest first."""
    text: str = ""
    """The screen as `tmux capture-pane -e` would give it."""
    shot: ScreenShot | None = None


async def explain(places: Places, session: Session, catalogue: Catalogue | None = None) -> Explained:
    """Why *session*, as it was seen now, is in its state; *catalogue* knows screens, by default with a person's own."""
    now = time.time()
    verdict = judge(session.signals, now) if session.mode is Mode.TMUX else None
    found = Explained(
        verdict=Verdict(
            state=session.state,
            source=session.source,
            why=session.unsure_why or session.end_why,
            asking=session.asking,
            until=session.limited_until,
            lost=verdict.lost if verdict is not None else (),
        ),
        signals=session.signals,
        transitions=await asyncio.to_thread(_changes, places, session, now),
    )
    if session.mode is not Mode.TMUX:
        return msgspec.structs.replace(found, unseen=NO_SCREEN)
    found = msgspec.structs.replace(found, absent=await asyncio.to_thread(_absent, places, session))
    if session.host is None or not session.host.alive:
        return msgspec.structs.replace(found, unseen=NO_HOST)
    try:
        pane, rows = await _looked(places, session)
    except KasmonError as error:
        return msgspec.structs.replace(found, unseen=error.message)
    return await asyncio.to_thread(_read, places, session, found, pane, rows, catalogue)


def program_in(places: Places, session: Session) -> str:
    """The program of *session*, as screens' files name it."""
    try:
        launch = launch_of(places, session.id)
    except LaunchError:
        return session.agent
    return program_of(launch.argv, launch.agent)


def _absent(places: Places, session: Session) -> tuple[tuple[str, str], ...]:
    try:
        launch = launch_of(places, session.id)
    except LaunchError:
        return ()
    heard = {signal.source for signal in session.signals}
    return tuple(absent(program_of(launch.argv, launch.agent), launch.argv, heard).items())


def _changes(places: Places, session: Session, now: float) -> tuple[Transition, ...]:
    try:
        facts = (event for event, _ in EventLog(places.log(session.id)).read())
        return tuple(deque(transitions(begun(places, session.id), facts, now), maxlen=KEPT))
    except (LogMissingError, OSError):
        return ()


async def _looked(places: Places, session: Session) -> tuple[PaneSeen, Rows]:
    """What stands in the session's pane now.

    Raises:
        KasmonError: if nobody can tell.
    """
    shown: asyncio.Future[Rows | Gone] = asyncio.get_running_loop().create_future()

    def take(push: FromHost) -> None:
        if isinstance(push, Rows | Gone) and push.session == session.id and not shown.done():
            shown.set_result(push)

    async with contextlib.aclosing(await HostLink.open(places.tmux_host_socket)) as host:
        host.on_push = take
        host.tell(Watch(session=session.id, rate_hz=1.0))
        pane = await host.ask(Look(n=0, session=session.id))
        try:
            rows = await asyncio.wait_for(shown, LOOK_S)
        except TimeoutError as error:
            raise TimedOutError(f"its screen was not seen within {LOOK_S:g} s.") from error
    if isinstance(rows, Gone) or not isinstance(pane, PaneSeen):
        raise UnavailableError(rows.why if isinstance(rows, Gone) else "its host did not say what its pane is like.")
    return pane, rows


def _read(
    places: Places, session: Session, found: Explained, pane: PaneSeen, rows: Rows, catalogue: Catalogue | None
) -> Explained:
    """*found* with what stands in *rows*, by the rules that there are for it."""
    text = "\n".join(f"{row}\x1b[m" if "\x1b" in row else row for _, row in sorted(rows.changed))
    shot = captured(
        text,
        pane.title,
        cursor=(rows.cursor.x, rows.cursor.y),
        cursor_visible=rows.cursor.visible,
        alternate=rows.modes.alternate,
        columns=rows.columns,
    )
    found = msgspec.structs.replace(found, text=text, shot=shot)
    program = program_in(places, session)
    chosen = (catalogue or Catalogue([places.config / "screens"])).rules(program, pane.agent_version)
    if chosen is None:
        return msgspec.structs.replace(found, note=f"nobody knows the screens of {program!r}")
    reading = read(shot, chosen.rules, time.time(), wants_all=True)
    return msgspec.structs.replace(found, reading=reading, note=chosen.note)
