"""Opens and leaves sessions: a terminal, or a transcript with a prompt box."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from textual import events
from textual.widget import Widget

from kasmon.errors import KasmonError
from kasmon.host.rpc.frames import ClipboardCopy, FromHost, FromTerminal, SubscriptionEnd, TerminalRows
from kasmon.model.commands import Mode, Prompt, Requeue, Run
from kasmon.model.formatting import session_label
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.sanitize import clean_line
from kasmon.tmux.user_client import attach_with_message
from kasmon.tui.action import KeyContext
from kasmon.tui.actions.dialogs import confirm, offer_link
from kasmon.tui.app_protocols import Dashboard, OnFailure, OnOutcome
from kasmon.tui.error_text import what_failed
from kasmon.tui.gateway.protocol import EventBatch, Operation
from kasmon.tui.keymap import DETACHES
from kasmon.tui.preview import TerminalPane
from kasmon.tui.terminal.key_encoding import LEAVE_KEYS, ReservedKey
from kasmon.tui.transcript.cache import TranscriptCache
from kasmon.tui.widgets.text_lines import TextLines

if TYPE_CHECKING:
    from kasmon.tui.dialogs.common import ConfirmDialog
    from kasmon.tui.terminal.view import FocusView
    from kasmon.tui.transcript.prompt_box import PromptBox
    from kasmon.tui.transcript.view import SessionView

HOW_TO_COME_BACK: Final = f" {DETACHES} or F12: detach (back to kasmon) "
REST_S: Final = 0.05
"""A transcript is read after the cursor has rested this long, in seconds."""


class SessionPane:
    """Builds the preview's content, keeps unsent drafts, and moves the focus into a session and back."""

    def __init__(self, app: Dashboard) -> None:
        self.app = app
        self.leave_keys: tuple[ReservedKey, ...] = LEAVE_KEYS
        self.transcripts = TranscriptCache()
        self._drafts: dict[SessionId, str] = {}
        self._clipboard_refused: set[str] = set()
        """Agents whose refused clipboard write was already reported."""
        self._viewed: dict[SessionId, float] = {}
        """End of the last turn that was marked as viewed; the event comes back through the log a little later."""

    @property
    def widget(self) -> Widget | None:
        return self.app.main_view.preview.inside

    @property
    def terminal(self) -> "FocusView | None":
        """The terminal, if that is shown. Recognised without importing what draws it."""
        widget = self.widget
        return cast("FocusView", widget) if isinstance(widget, TerminalPane) else None

    @property
    def is_in_terminal(self) -> bool:
        """Whether a terminal has the focus and gets every key."""
        return self.terminal is not None and self.terminal.is_live

    @property
    def session_view(self) -> "SessionView | None":
        """The transcript, if that is shown. Recognised without importing what draws it, which is slow to import."""
        widget = self.widget
        return None if widget is None or isinstance(widget, TerminalPane | TextLines) else cast("SessionView", widget)

    def make(self, session: Session) -> Widget:
        gateway = self.app.gateway
        if session.mode is Mode.TMUX:
            link = gateway.terminals if gateway is not None else None
            if link is not None:
                from kasmon.tui.terminal.view import FocusView  # with the tap: not before the first frame

                return FocusView(link, session.id, self.leave_keys)
            note = TextLines(self.app.look, "background")
            note.say((), ((" Live terminals require tmux; this one cannot be shown.", "soft"),))
            return note
        from kasmon.tui.transcript.view import SessionView  # pyte and what it brings: not before the first frame

        transcript = self.transcripts.of(session.id).shown
        view = SessionView(session, transcript, self.app.look, self.app.keys, self.app.clock)
        self._follow_in_background(view)
        return view

    def reuse(self, session: Session) -> bool:
        """Let the shown transcript show *session* instead; False if that needs another widget."""
        view = self.session_view
        if session.mode is Mode.TMUX or view is None or not view.is_reusable:
            return False
        view.open(session, self.transcripts.of(session.id).shown)
        self._follow_in_background(view)
        return True

    @property
    def place(self) -> KeyContext | None:
        """The context inside an open structured session; None while the prompt is edited, or the focus is elsewhere."""
        session_view = self.session_view
        if (
            session_view is None
            or session_view.box is None
            or len(self.app.screen_stack) > 1
            or session_view.place is KeyContext.PROMPT
        ):
            return None
        return session_view.place

    def update_session(self) -> None:
        """Pass the new value of the shown session to its widget."""
        session = self.app.main_view.preview.session
        if session is not None and self.app.main_view.focused_inside:
            self.mark_viewed(session)
        if session is not None and self.session_view is not None:
            self.session_view.update_session(session)
        elif session is not None and self.terminal is not None:
            self.terminal.bar.ended = session.generation > 0 and session.state not in ALIVE

    def mark_viewed(self, session: Session) -> None:
        """Record that the user has viewed what *session* finished."""
        if session.is_unviewed and self._viewed.get(session.id) != session.finished_at:
            self._viewed[session.id] = session.finished_at
            self.app.run_operation(
                lambda operations: operations.mark_viewed(session.id),
                failed=lambda error: self._unmark_viewed(session.id),
            )

    def _unmark_viewed(self, session: SessionId) -> bool:
        """Forget that *session* was marked as viewed, since that could not be saved: it can be marked again."""
        self._viewed.pop(session, None)
        return False

    def scroll(self, pages: int) -> None:
        """Scroll the transcript down by *pages*; up if negative."""
        if self.session_view is not None:
            self.session_view.scroll_pages(pages)

    def forget(self, session: SessionId) -> None:
        self.transcripts.drop(session)
        self._viewed.pop(session, None)
        self._drafts.pop(session, None)

    def last_diff(self, session: SessionId) -> str:
        """Return the last change in the session's transcript, as a unified diff; empty if none is known."""
        transcript = self.transcripts.get(session)
        return transcript.diff if transcript else ""

    def handle_push(self, push: FromHost) -> None:
        """Handle a frame of a host: only those of the terminal on the screen matter."""
        view = self.terminal
        if isinstance(push, FromTerminal) and view is not None and view.session == push.session:
            match push:
                case TerminalRows():
                    view.bar.lost = ""
                    view.terminal.show(push)
                case ClipboardCopy():
                    self._copy_to_clipboard(push)
                case SubscriptionEnd():
                    view.show_loss(clean_line(push.why))

    def _copy_to_clipboard(self, push: ClipboardCopy) -> None:
        """Copy to the clipboard what the program asks for, if the config allows it; notify the user of either."""
        app, session = self.app, self.app.main_view.table.session(push.session)
        if session is None or not self.is_in_terminal:
            return
        name = clean_line(session.label)
        if session.agent not in app.settings.clipboard:
            if session.agent not in self._clipboard_refused:
                self._clipboard_refused.add(session.agent)
                allow = f"[agents.{clean_line(session.agent)}] clipboard = true"
                app.say(f"{name} tried to copy to the clipboard; {allow} allows it.", severity="warning")
        elif push.text is None:
            app.say(
                f"{name} tried to copy more to the clipboard than is allowed; nothing was copied.", severity="warning"
            )
        else:
            self.put_on_clipboard(push.text, f"for {name}")

    def put_on_clipboard(self, text: str, what: str = "") -> None:
        self.app.copy_to_clipboard(text)
        self.app.run_operation(lambda operations: operations.copy_text(text))
        lines = text.count("\n") + 1
        count = f"{lines} {'line' if lines == 1 else 'lines'}"
        self.app.say(f"Copied {what} ({count})." if what else f"Copied {count}.")

    def enter(self, wanted: SessionId) -> None:
        """Open this session and give it the focus; a hibernated one is resumed."""
        app = self.app
        session = app.main_view.table.session(wanted)
        if session is None:
            return
        if session.state is SessionState.HIBERNATED:
            app.run_operation(lambda operations: operations.restart(wanted))
        if app.main_view.focused_inside:
            self.leave()
        app.main_view.enter(wanted)
        if (view := self.terminal) is not None:
            view.bar.label = session_label(session, wanted)
            view.enter()
        elif self.session_view is not None:
            self.session_view.enter(self._drafts.pop(wanted, ""))
            app.add_class("-writing")
        else:
            self.leave()
            return
        self.mark_viewed(session)
        app.offer_keys()
        app.call_after_refresh(app.permissions.show_notice)

    def leave(self) -> None:
        """Give the focus back to the list; unsent text is kept as a draft."""
        app, view, session_view = self.app, self.terminal, self.session_view
        if session_view is not None and (draft := session_view.leave()):
            self._drafts[session_view.session.id] = draft
        elif view is not None:
            view.leave()
        app.remove_class("-writing")
        app.hold_still()
        app.main_view.leave()
        app.offer_keys()
        app.permissions.check_soon()
        app.permissions.show_notice()

    def leave_terminal(self) -> None:
        """Give the focus back to the list if the user has left the open terminal.

        Call it also before each key: the terminal's own message may come after the key that was typed next.
        """
        if self.app.main_view.focused_inside and self.terminal is not None and self.terminal.is_left:
            self.leave()

    def send_early_key(self, key: events.Key) -> bool:
        """Send *key* to the open terminal if it was read before that got the keyboard; return whether it was."""
        return self.terminal is not None and self.terminal.send_early_key(key)

    def send_prompt(
        self, session: SessionId, prompt: Prompt, *, done: OnOutcome | None = None, failed: OnFailure | None = None
    ) -> None:
        """Send *prompt*; a rejected one returns to the box, unless *failed* has shown it elsewhere."""

        def handle_receipt(text: str) -> bool:
            is_shown = done is not None and done(text)
            return is_shown or self._box_of(session) is not None  # the open session shows the prompt's state itself

        def handle_failure(error: KasmonError) -> bool:
            return (failed is not None and failed(error)) or self._give_back(session, prompt.text)

        self.app.run_operation(
            lambda operations: operations.send_prompt(session, prompt), done=handle_receipt, failed=handle_failure
        )

    def change_queue(self, session: SessionId, change: Requeue) -> None:
        """Change a queued prompt; a rejected text returns to the box."""
        self._run_from_box(session, change.text or "", lambda operations: operations.change_queue(session, change))

    def run_code(self, session: SessionId, code: Run) -> None:
        """Run *code* in the session's sandbox; rejected code returns to the box."""
        self._run_from_box(session, code.code, lambda operations: operations.change_sandbox(session, code))

    def run_command(self, session: SessionId, command: str) -> None:
        """Run the person's *command* in the session's folder, once the person confirms, and show its output."""
        known = self.app.main_view.table.session(session)
        if known is None:
            return
        from kasmon.tui.dialogs.shell_command import ShellCommandDialog, confirm_command  # seldom needed

        def run(dialog: "ConfirmDialog") -> None:
            if (box := self._box_of(session)) is not None:
                box.clear()
            insert, copy = self._insert, self.put_on_clipboard
            shown = ShellCommandDialog(self.app.look, self.app.keys, known, command, insert, copy)
            dialog.app.switch_screen(shown)

        confirm(self.app, confirm_command(known, command), run)

    def _insert(self, text: str) -> None:
        if (view := self.session_view) is not None:
            view.insert(text)

    def _run_from_box(self, session: SessionId, text: str, operation: Operation) -> None:
        self.app.run_operation(operation, failed=lambda error: self._give_back(session, text))

    def _box_of(self, session: SessionId) -> "PromptBox | None":
        view = self.session_view
        return view.box if view is not None and view.session.id == session else None

    def _give_back(self, session: SessionId, text: str) -> bool:
        """Put the text of a rejected prompt back into the box, unless the box has other text."""
        if (box := self._box_of(session)) is not None:
            box.text = box.text or text
        elif text:
            self._drafts.setdefault(session, text)
        return False

    def read_terminal(self, session: Session, up: int = 0) -> None:
        """Open the scrollback of the session's terminal, to read, search and copy, scrolled *up* by so many lines."""
        if self.app.gateway is not None:
            self.app.run_worker(self._read_terminal(session, up), group="scrollback", exclusive=True)

    async def _read_terminal(self, session: Session, up: int) -> None:
        from kasmon.tui.terminal.scrollback.buffer import ScrollbackBuffer  # seldom needed
        from kasmon.tui.terminal.scrollback.screen import ScrollbackScreen

        app = self.app
        assert app.gateway is not None
        try:
            lines = await app.gateway.read_output(session.id)
        except KasmonError as error:
            app.say(what_failed(error), severity="error")
            return
        if len(app.screen_stack) == 1:  # no other screen was opened meanwhile
            self.mark_viewed(session)
            name = clean_line(session.label)
            copied, looked = self.put_on_clipboard, partial(offer_link, app)
            app.push_screen(ScrollbackScreen(app.look, app.keys, name, ScrollbackBuffer(lines), copied, looked, up=up))

    def attach(self, session: SessionId) -> None:
        """Suspend the dashboard, attach to the session's real terminal, and return afterwards."""
        if self.app.gateway is not None:
            self.app.run_worker(self._attach(session), group="attach", exclusive=True)

    def redraw(self) -> None:
        if self.session_view is not None:
            self.session_view.redraw()

    def _follow_in_background(self, view: "SessionView") -> None:
        if self.app.gateway is not None:
            follow = partial(self._follow, view.session.id, view)  # not begun if the next one comes at once
            self.app.run_worker(follow, group="transcript", exclusive=True)

    async def _follow(self, session: SessionId, view: "SessionView") -> None:
        """Read the session's log into its transcript, for as long as it is shown."""
        assert self.app.gateway is not None
        await asyncio.sleep(REST_S)
        events = self.transcripts.of(session)
        async for update in self.app.gateway.transcript(session, events.cursor):
            events.add_batch(update)
            if isinstance(update, EventBatch) and update.more:
                await asyncio.sleep(0)  # let keys be handled first
            else:
                view.show(events.shown)
                if events.is_whole:
                    view.go_on_seeking()

    async def _attach(self, session: SessionId) -> None:
        from kasmon.tui.process.attach import run_in_terminal  # seldom needed

        assert self.app.gateway is not None
        try:
            argv = await self.app.gateway.attach_argv(session)
            current = self.app.main_view.table.session(session)
            if current is not None:
                self.mark_viewed(current)
            await run_in_terminal(self.app, add_message(argv, current))
        except KasmonError as error:
            self.app.say(what_failed(error), severity="error")
        self.app.hold_still()


class PaneDashboard(Dashboard, Protocol):
    """A dashboard with its session pane."""

    @property
    def session_pane(self) -> SessionPane: ...


def add_message(argv: Sequence[str], session: Session | None) -> Sequence[str]:
    """Return *argv*, which attaches to *session*, with the keys that come back, if it is a command of kasmon's tmux."""
    is_foreign = session is not None and (bool(session.adopted or session.via) or session.mode is not Mode.TMUX)
    return argv if is_foreign else attach_with_message(argv, HOW_TO_COME_BACK)
