"""Names, tags and ids of sessions: validate names and tags, and assign names and ids that no other session has."""

import contextlib
import itertools
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kasmon.errors import LogMissingError, NameTakenError, UnavailableError, UsageError
from kasmon.model.events import SessionCreated, SessionForgotten, SessionRenamed, SessionTagged, SessionViewed
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.sanitize import Clean, clean_line
from kasmon.store.event_log import EventLog
from kasmon.store.fleet_index import session_names

FIRST_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
LETTERS: Final = f"{FIRST_LETTERS}234567"
ID_LENGTH: Final = 8
WIDTH_CELLS: Final = 80
"""The widest name, in terminal cells."""
TAG_CELLS: Final = 32
"""The widest tag, in terminal cells."""
MOST_TAGS: Final = 16


def check_name(name: str) -> Clean:
    """Return *name* as it will be displayed: cleaned and stripped. Callers may compare it with the original.

    Raises `UsageError` if nothing is left of it, or it is too wide.
    """
    clean = Clean(clean_line(name).strip())
    if not clean:
        raise UsageError(f"the name {name!r} has no visible character.", hint="Choose another name.")
    if (width := width_cells(clean)) > WIDTH_CELLS:
        raise UsageError(
            f"the name {clean[:20] + '…'!r} is {width} cells wide.", hint=f"A name may have up to {WIDTH_CELLS} cells."
        )
    return clean


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return *tags* as they are stored: in small letters, each once, sorted.

    Raises `UsageError` if one is no word that can be displayed, is too wide, or there are too many.
    """
    checked = sorted({_check_tag(tag) for tag in tags})
    if len(checked) > MOST_TAGS:
        raise UsageError(f"{len(checked)} tags are too many.", hint=f"A session may have up to {MOST_TAGS} tags.")
    return tuple(checked)


def _check_tag(tag: str) -> str:
    name = unicodedata.normalize("NFC", tag.strip()).casefold()
    if not name or name.startswith("-") or "," in name or name != clean_line(name) or any(map(str.isspace, name)):
        raise UsageError(
            f"{clean_line(tag)[:TAG_CELLS]!r} is not a tag.",
            hint="A tag is one word without commas, and does not begin with a hyphen.",
        )
    if (width := width_cells(name)) > TAG_CELLS:
        raise UsageError(
            f"the tag {name[:20] + '…'!r} is {width} cells wide.", hint=f"A tag may have up to {TAG_CELLS} cells."
        )
    return name


def next_name(paths: Paths, name: str) -> Clean:
    """Return *name* with the first number, from 2 on, that no session has: `lab-2`."""
    stem = Clean(clean_line(name).strip())
    taken: set[str] = set()
    with contextlib.suppress(LogMissingError):
        taken = {*session_names(EventLog(paths.fleet_log).events()).values()}
    numbered = (Clean(f"{stem}-{number}") for number in itertools.count(2))
    return check_name(next(each for each in numbered if each not in taken))


def note(
    paths: Paths,
    fact: SessionCreated | SessionRenamed | SessionTagged | SessionForgotten | SessionViewed,
    check: Callable[[], None] | None = None,
) -> None:
    """Append *fact* to the fleet's log, unless *check* raises. Raises `UnavailableError` if it cannot be written."""
    try:
        EventLog(paths.fleet_log).append(fact, check=check)
    except OSError as error:
        raise UnavailableError(f"cannot write {str(paths.fleet_log)!r}: {error.strerror or error}.") from error


def announce(paths: Paths, fact: SessionCreated | SessionRenamed) -> None:
    """Append *fact* to the fleet's log. Raises `NameTakenError` if another session that is not forgotten has the name.

    Check and append are atomic: if two callers request one name at the same moment, one gets it.
    """
    session, name = (
        (fact.launch.session, fact.launch.name) if isinstance(fact, SessionCreated) else (fact.session, fact.name)
    )

    def require_free() -> None:
        names = session_names(EventLog(paths.fleet_log).events())
        for other, taken in names.items():
            if other != session and name in (taken, other):
                raise NameTakenError(name, other)

    note(paths, fact, require_free)


@contextlib.contextmanager
def claim_id(paths: Paths) -> Iterator[SessionId]:
    """Claim a new session id with an empty folder; if the context raises, the folder is removed.

    Raises `UnavailableError` if the state folder is not writable.
    """
    try:
        paths.make()
        session = claim(paths)
        try:
            yield session
        except BaseException:
            import shutil  # only here: it takes as long to load as the log of a session

            shutil.rmtree(paths.folder(session), ignore_errors=True)
            raise
    except OSError as error:
        is_file = isinstance(error, FileExistsError)
        why = "a file is in the way" if is_file else error.strerror or error
        folder = error.filename if is_file else paths.state
        raise UnavailableError(
            f"cannot write into {str(folder)!r}: {why}.", hint="Run `kasmon doctor` for a diagnosis."
        ) from error


def claim(paths: Paths) -> SessionId:
    """Return a new session id, claimed by creating its folder."""
    while True:
        first, *others = os.urandom(ID_LENGTH)  # `secrets` would take 9 ms to load
        letters = (LETTERS[other % len(LETTERS)] for other in others)
        session = SessionId(FIRST_LETTERS[first % len(FIRST_LETTERS)] + "".join(letters))
        with contextlib.suppress(FileExistsError):
            paths.folder(session).mkdir(mode=0o700)
            return session


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
