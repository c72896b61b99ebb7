"""The palette: every action of the key table, and every session, found by a few letters of its name."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from kasmon.tui.keymap import ACTIONS
from kasmon.tui.messages import ActionRequested, SessionOpened

if TYPE_CHECKING:
    from kasmon.tui.app_protocols import Dashboard

PaletteEntry: TypeAlias = tuple[str, str, Callable[[], object]]
"""Name, explanation and what it does."""
MOST = 60
"""Entries shown before anything is typed."""
SESSIONS = 8
"""At most this many of them are sessions."""
TOLD = 0.5
"""Weight of a match in the explanation, against one in the name."""


class KasmonCommands(Provider):
    """Finds actions and sessions; the sessions come from the app's `palette_sessions`."""

    async def discover(self) -> Hits:
        sessions = list(islice(self._sessions(), SESSIONS))
        actions = islice(self._actions(), MOST - len(sessions))
        for label, help_text, run in (*actions, *sessions):
            yield DiscoveryHit(Content(label), run, text=label, help=literal(help_text))

    async def search(self, query: str) -> Hits:
        """Yield matches of the name before matches of the explanation only."""
        matcher = self.matcher(query)
        for label, help_text, run in (*self._actions(), *self._sessions()):
            if (score := matcher.match(label) or matcher.match(help_text) * TOLD) > 0:
                yield Hit(score, Content(label), run, text=label, help=literal(help_text))

    def _actions(self) -> Iterator[PaletteEntry]:
        app = cast("Dashboard", self.app)
        for row in ACTIONS:
            if row.is_in_palette:
                label = f"{row.label[0].upper()}{row.label[1:]}"
                explanation = f"{row.help}  {app.keys.shown(row.id, app.utf8)}"
                yield label, explanation, partial(self.app.post_message, ActionRequested(row.id))

    def _sessions(self) -> Iterator[PaletteEntry]:
        app = cast("Dashboard", self.app)
        for session, name, line in app.palette_sessions():
            yield name, line, partial(self.app.post_message, SessionOpened(session))


def literal(text: str) -> str:
    """Wrap *text* for Textual's palette, which reads a plain string as markup and takes `Content` as it is."""
    return cast("str", Content(text))
