"""The palette: every action of the key table, and every session, by a few letters of its name."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from kasmon.tui.keymap import ACTIONS
from kasmon.tui.messages import ActionRequested, SessionOpened

if TYPE_CHECKING:
    from kasmon.tui.app import Kasmon

Entry: TypeAlias = tuple[str, str, Callable[[], object]]
"""What is shown, what it means, and what it does."""
MOST = 40
"""So many entries stand there before anything is typed."""
SESSIONS = 8
"""So many of them are sessions at most."""
TOLD = 0.5
"""What a word in an entry's explanation counts, against one in its name."""


class KasmonCommands(Provider):
    """What the palette finds. The app tells its sessions by `palette_sessions`."""

    async def discover(self) -> Hits:
        sessions = list(islice(self._sessions(), SESSIONS))
        actions = islice(self._actions(), MOST - len(sessions))
        for words, help_text, run in (*actions, *sessions):
            yield DiscoveryHit(Content(words), run, text=words, help=literal(help_text))

    async def search(self, query: str) -> Hits:
        """What is called so stands before what is only told so."""
        matcher = self.matcher(query)
        for words, help_text, run in (*self._actions(), *self._sessions()):
            if (score := matcher.match(words) or matcher.match(help_text) * TOLD) > 0:
                yield Hit(score, Content(words), run, text=words, help=literal(help_text))

    def _actions(self) -> Iterator[Entry]:
        """What keys do here."""
        app = cast("Kasmon", self.app)
        for row in ACTIONS:
            if row.is_in_palette:
                words = f"{row.label[0].upper()}{row.label[1:]}"
                said = f"{row.help}  {app.keys.shown(row.id, app.utf8)}"
                yield words, said, partial(app.post_message, ActionRequested(row.id))

    def _sessions(self) -> Iterator[Entry]:
        """All sessions; each opens."""
        app = cast("Kasmon", self.app)
        for session, name, line in app.palette_sessions():
            yield name, line, partial(app.post_message, SessionOpened(session))


def literal(text: str) -> str:
    """*text* for Textual's palette, which reads a plain string as markup and takes `ConversationContent` as it is."""
    return cast("str", Content(text))
