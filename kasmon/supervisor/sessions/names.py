"""Session names: validate them, and assign them so that no two sessions have the same."""

import itertools
import unicodedata
from collections.abc import Callable
from typing import Final

from kasmon.errors import NameTakenError, UnavailableError, UsageError
from kasmon.model.events import SessionCreated, SessionForgotten, SessionRenamed, SessionViewed
from kasmon.paths import Paths
from kasmon.sanitize import Clean, clean_line
from kasmon.store.event_log import EventLog
from kasmon.store.fleet_index import session_names

WIDTH_CELLS: Final = 80
"""The widest name, in terminal cells."""


def check_name(name: str) -> Clean:
    """Return *name* as it will be displayed: cleaned and stripped. Callers may compare it with the original.

    Raises:
        UsageError: if nothing is left of it, or it is too wide.
    """
    clean = Clean(clean_line(name).strip())
    if not clean:
        raise UsageError(f"the name {name!r} has no visible character.", hint="Choose another name.")
    if (width := width_cells(clean)) > WIDTH_CELLS:
        raise UsageError(
            f"the name {clean[:20] + '…'!r} is {width} cells wide.", hint=f"A name may have up to {WIDTH_CELLS} cells."
        )
    return clean


def next_name(places: Paths, name: str) -> Clean:
    """Return *name* with the first number, from 2 on, that no session has: `lab-2`."""
    stem = Clean(clean_line(name).strip())
    taken = {*session_names(event for event, _ in EventLog(places.fleet_log).read()).values()}
    numbered = (Clean(f"{stem}-{number}") for number in itertools.count(2))
    return check_name(next(each for each in numbered if each not in taken))


def note(
    places: Paths,
    fact: SessionCreated | SessionRenamed | SessionForgotten | SessionViewed,
    check: Callable[[], None] | None = None,
) -> None:
    """Append *fact* to the fleet's log.

    Raises:
        UnavailableError: if it cannot be written.
        KasmonError: raised by *check*; nothing was written then.
    """
    try:
        EventLog(places.fleet_log).append(fact, check=check)
    except OSError as error:
        raise UnavailableError(f"cannot write {str(places.fleet_log)!r}: {error.strerror or error}.") from error


def announce(places: Paths, fact: SessionCreated | SessionRenamed) -> None:
    """Append *fact* to the fleet's log, unless another session that is not forgotten has the name in it.

    Check and append are atomic: if two callers request one name at the same moment, one gets it.

    Raises:
        NameTakenError: if another session has this name or id.
        UnavailableError: if it cannot be written.
    """
    session, name = (
        (fact.launch.session, fact.launch.name) if isinstance(fact, SessionCreated) else (fact.session, fact.name)
    )

    def require_free() -> None:
        names = session_names(event for event, _ in EventLog(places.fleet_log).read())
        for other, taken in names.items():
            if other != session and name in (taken, other):
                raise NameTakenError(name, other)

    note(places, fact, require_free)


def width_cells(text: str) -> int:
    """Return how many terminal cells *text* takes, approximately: `ls` cannot wait for the tables of `wcwidth`.

    Three others deliberately count differently: `model.transcript.text.cells` as the widest terminal,
    `host.terminal.cell_widths` as tmux, and `rich.cells` in the TUI as Textual, which draws there.
    """
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
