"""Names of sessions: what makes one proper, and how one is given so that no other session has it."""

import itertools
import unicodedata
from collections.abc import Callable
from typing import Final

from kasmon.errors import NameTakenError, UnavailableError, UsageError
from kasmon.model.events import SessionCreated, SessionForgotten, SessionRenamed, SessionViewed
from kasmon.paths import Paths
from kasmon.sanitize import Clean, clean_line
from kasmon.store.event_log import EventLog
from kasmon.store.fleet_index import named

WIDTH_CELLS: Final = 80
"""The widest name, in terminal cells."""


def proper(name: str) -> Clean:
    """*name* as it will be shown: cleaned, without blanks around it. A caller that cares compares the two.

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
    """*name* with the first number behind it, from 2 on, that no session has: `lab-2`."""
    stem = Clean(clean_line(name).strip())
    taken = {*named(event for event, _ in EventLog(places.fleet_log).read()).values()}
    numbered = (Clean(f"{stem}-{number}") for number in itertools.count(2))
    return proper(next(each for each in numbered if each not in taken))


def note(
    places: Paths,
    fact: SessionCreated | SessionRenamed | SessionForgotten | SessionViewed,
    check: Callable[[], None] | None = None,
) -> None:
    """Write *fact* into the fleet's log.

    Raises:
        UnavailableError: if it cannot be written.
        KasmonError: what *check* says; nothing was written then.
    """
    try:
        EventLog(places.fleet_log).append(fact, check=check)
    except OSError as error:
        raise UnavailableError(f"cannot write {str(places.fleet_log)!r}: {error.strerror or error}.") from error


def announce(places: Paths, fact: SessionCreated | SessionRenamed) -> None:
    """Write *fact* into the fleet's log, unless another session that is not forgotten has the name it gives.

    Looking and writing are one step: of two that want one name at the same moment, one gets it.

    Raises:
        NameTakenError: if another session is called so, or has this as its id.
        UnavailableError: if it cannot be written.
    """
    session, name = (
        (fact.launch.session, fact.launch.name) if isinstance(fact, SessionCreated) else (fact.session, fact.name)
    )

    def is_free() -> None:
        names = named(event for event, _ in EventLog(places.fleet_log).read())
        for other, taken in names.items():
            if other != session and name in (taken, other):
                raise NameTakenError(name, other)

    note(places, fact, is_free)


def width_cells(text: str) -> int:
    """How many terminal cells *text* takes, near enough for a table: `ls` cannot wait for the tables of `wcwidth`.

    Three others count on purpose as somebody else does: `model.transcript.text.cells` as the widest terminal,
    `host.terminal.cell_widths` as tmux, and `rich.cells` in the TUI as Textual, which draws there.
    """
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
