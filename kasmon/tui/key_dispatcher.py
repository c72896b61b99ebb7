"""From a key to its handler, before the focused widget gets the key; and which keys count now."""

from typing import Final, Protocol

from textual import events

from kasmon.model.commands import Mode
from kasmon.tui.action import Action, Handlers, KeyContext
from kasmon.tui.keymap import ACTIONS, Keys
from kasmon.tui.permissions.controller import PermissionController
from kasmon.tui.session_pane import PaneDashboard
from kasmon.tui.status_bars import offers, offers_for
from kasmon.tui.textual_ext.modal import Overlay

NO_CODE: Final = frozenset({Keys.SUBMIT, Keys.READ, Keys.QUEUE})
"""Prompt box actions whose keys do something else in the code box."""


class KeyDashboard(PaneDashboard, Protocol):
    @property
    def permissions(self) -> PermissionController: ...


class KeyDispatcher:
    """Runs the actions of the key table by their *handlers*: `actions/handlers.py`."""

    def __init__(self, app: KeyDashboard, handlers: Handlers) -> None:
        self.app, self.handlers = app, handlers

    def run(self, action: Action) -> None:
        """Run *action*; while a session is open, ignore actions of the list."""
        view = self.app.session_pane.session_view
        box = view.box if view is not None else None
        if self.app.main_view.focused_inside and action.where is KeyContext.LIST:
            return
        if (handler := self.handlers.get(action)) is not None:
            handler()
        elif box is not None and action in box.handlers:
            box.means(action)

    def press(self, key: events.Key) -> bool:
        """Run the dashboard action of *key* at once; return False where the focused widget gets the key.

        Not by Textual's bindings: those are looked up only after the key went to the focused widget and came back. Keys
        typed behind it would take the same route meanwhile, however much the first key changed.
        """
        if self._is_help_key(key):
            self.run(Keys.HELP)
            return True
        above = self.app.screen_stack[-1] if len(self.app.screen_stack) > 1 else None
        if isinstance(above, Overlay) and above.takes(key):
            return True
        if (
            self.app.is_too_small
            and not self.app.main_view.focused_inside
            and set(key.aliases) & set(self.app.keys.of("quit"))
        ):
            self.run(Keys.QUIT)
            return True
        if self.app.list_has_keys:
            contexts: tuple[KeyContext, ...] = (KeyContext.LIST, KeyContext.EVERYWHERE)
        elif (place := self.app.session_pane.place) is not None:
            writing = place is KeyContext.FIND and key.is_printable
            contexts = (place,) if writing else (place, KeyContext.EVERYWHERE)
        elif key.is_printable or self.app.permissions.screen is not None or self.app.session_pane.is_in_terminal:
            return False
        else:
            contexts = (KeyContext.EVERYWHERE,)
        row = self.app.keys.action_of(key.aliases, *contexts)
        if row is not None:
            self.run(row)
        return row is not None

    def _is_help_key(self, key: events.Key) -> bool:
        """Whether *key* opens the help: not where it is text for an input box, or a terminal has the focus."""
        if not set(key.aliases) & set(self.app.keys.of("help")) or (
            len(self.app.screen_stack) == 1 and self.app.session_pane.is_in_terminal
        ):
            return False
        if isinstance(self.app.screen, Overlay) and self.app.screen.is_opening:
            return False
        focused = self.app.screen.focused
        return focused is None or not focused.check_consume_key(key.key, key.character)

    def restore_focus(self) -> None:
        """Give a key a focused widget. A terminal that reports loss of focus may still send keys. Textual has then
        blurred every widget, and the key would do nothing."""
        if not self.app.app_focus:
            self.app.app_focus = True
        main_view, is_on_top = self.app.main_view, len(self.app.screen_stack) == 1
        if is_on_top and self.app.screen.focused is None and not main_view.focused_inside and not self.app.is_too_small:
            self.app.screen.set_focus(main_view.filter_bar.box or main_view.table)

    @property
    def context(self) -> KeyContext:
        """The context that has the keyboard on the main screen."""
        if self.app.main_view.focused_inside:
            return self.app.session_pane.place or (
                KeyContext.TERMINAL if self.app.session_pane.terminal is not None else KeyContext.PROMPT
            )
        return KeyContext.LIST if self.app.main_view.filter_bar.box is None else KeyContext.FILTER

    @property
    def _writes_code(self) -> bool:
        session = self.app.main_view.preview.session
        return session is not None and session.mode is Mode.INTERPRETER

    @property
    def help_contexts(self) -> tuple[KeyContext, ...]:
        """The contexts whose keys the help shows first; none for the list, whose keys come first anyway."""
        place = self.context
        if place is KeyContext.LIST:
            return ()
        session_contexts = (
            KeyContext.CODE if self._writes_code else KeyContext.PROMPT,
            KeyContext.READING,
            KeyContext.QUEUE,
        )
        return (
            (place, *(other for other in session_contexts if other is not place))
            if place in session_contexts
            else (place,)
        )

    def offer(self) -> None:
        """Show in the key bar the keys that count at the current focus, for the row under the cursor."""
        main_view, place = self.app.main_view, self.context
        session = main_view.table.selected_session
        wheres = {place, KeyContext.EVERYWHERE}
        if place is KeyContext.PROMPT and self._writes_code:
            wheres.add(KeyContext.CODE)
        rows = [row for row in ACTIONS if row.where in wheres and not (KeyContext.CODE in wheres and row in NO_CODE)]
        offered = offers_for(session, bool(main_view.table.items), bool(self.app.fleet.sessions))
        rows = [row for row in rows if row.offered in offered]
        reads = place in (KeyContext.LIST, KeyContext.READING, KeyContext.QUEUE)
        shown = self.app.keys.shown if reads else self.app.keys.shown_while_writing
        main_view.key_bar.offered = offers(rows, [shown(row.id, self.app.utf8) for row in rows])
        main_view.table.keys, main_view.filter_bar.words.clear_key = (
            self.app.keys,
            self.app.keys.shown("show_all", self.app.utf8),
        )
