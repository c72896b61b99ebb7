"""Verbs on the user's own tmux: `ls --tmux` lists what could be watched, `adopt` watches it."""

import asyncio
from typing import Final

import msgspec

from kasmon.clean import clean_line
from kasmon.commands.objects import answer, session_object
from kasmon.commands.output import note, say, tell
from kasmon.commands.table import aligned
from kasmon.errors import SessionNotFoundError
from kasmon.model.candidate import Candidate
from kasmon.paths import places
from kasmon.supervisor.adopt import adopt as adopted
from kasmon.supervisor.adopt import foreign_panes
from kasmon.supervisor.look import look_once

NOTICED: Final = (
    "Your tmux shows one more client in `list-clients`, a control client of kasmon's. Sizes, names, options and "
    "environment stay as they are; `kasmon rm` lets go of it."
)
"""What the user will notice of an adoption."""
HEADS: Final = ("PANE", "TARGET", "AGENT", "RUNS", "SIZE", "WATCHED AS", "TITLE")


def ls_tmux(socket: str, *, wants_json: bool) -> None:
    """Print the panes of the user's own tmux.

    Raises:
        NotFoundError, TmuxError: if there is none.
    """
    panes = asyncio.run(foreign_panes(places(), socket))
    if wants_json:
        tell(answer(panes=[msgspec.to_builtins(pane) | {"target": pane.target} for pane in panes]))
        return
    say(*aligned([HEADS, *(_row(pane) for pane in panes)]))


def adopt(target: str, name: str, socket: str, *, wants_json: bool) -> None:
    """Watch the pane that *target* means, and say what its user will notice of that.

    Raises:
        KasmonError: why it cannot be watched.
    """
    where = places()
    launch = asyncio.run(adopted(where, target, name, socket))
    session = look_once(where).get(launch.session)
    if session is None:
        raise SessionNotFoundError(launch.session)
    if wants_json:
        tell(answer(session=session_object(session), noticed=NOTICED))
        return
    note(NOTICED)
    say(launch.session)


def _row(pane: Candidate) -> tuple[str, ...]:
    size = f"{pane.width}x{pane.height}"
    return (pane.pane, clean_line(pane.target), pane.agent or "-", pane.command, size, pane.adopted or "-", pane.title)
