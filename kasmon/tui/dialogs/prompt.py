"""Sends a prompt to one session or to several, and shows its state in each of several while the dialog is open."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.widget import Widget

from kasmon.errors import KasmonError, PromptBoxError
from kasmon.model.commands import Prompt, Receipt, ReceiptState, When
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.transcript.text import BLANK, TextLine, Token, cells, wrap
from kasmon.sanitize import clean_line
from kasmon.tui.clock import Clock
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.common import Confirmation, ConfirmDialog
from kasmon.tui.dialogs.fields import ChoiceField, DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import RECEIPT_WORDS, ThemeStyles
from kasmon.tui.transcript.prompt_box import TextBox
from kasmon.tui.widgets.reader import Reader

WHEN: dict[str, When] = {"send now": "now", "queue": "idle", "interrupt": "interrupt"}
ANYWAY: Final = "send anyway"
"""Offered once a prompt was refused because the agent's input box was not visible."""
SENDING: Final = "sending"
NAME_CELLS: Final = 30
"""A longer name is cut."""
TOKENS: Final = {
    ReceiptState.QUEUED: Token.WARNING,
    ReceiptState.TYPED: Token.NOTICE,
    ReceiptState.SUBMITTED: Token.NOTICE,
    ReceiptState.STARTED: Token.OK,
    ReceiptState.FINISHED: Token.OK,
    ReceiptState.FAILED: Token.ERROR,
    ReceiptState.UNSURE: Token.WARNING,
    ReceiptState.REFUSED: Token.ERROR,
    ReceiptState.LOST: Token.ERROR,
}
FAILED: Final = (ReceiptState.REFUSED, ReceiptState.LOST, ReceiptState.FAILED)


class PromptDialog(Dialog):
    """A prompt for one session, or for several agents; several are confirmed before anything is sent.

    *left_out* are sessions that were listed with them and get nothing, since they would execute a prompt.
    """

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        clock: Clock,
        sessions: Sequence[Session],
        draft: str = "",
        *,
        left_out: Sequence[Session] = (),
    ) -> None:
        super().__init__(look, keys)
        self.clock, self.sessions, self.draft, self.left_out = clock, tuple(sessions), draft, tuple(left_out)
        one = len(sessions) == 1
        self.title_text = f"Prompt {clean_line(sessions[0].name)}" if one else f"Prompt {len(sessions)} agents"
        self.names = Reader(look, self._names, id="names")
        self.when = ChoiceField(look, tuple(WHEN), id="when")

    def inside(self) -> Iterable[Widget]:
        if len(self.sessions) > 1:
            yield self.names
        yield TextBox(self.keys, "Type a prompt", self.draft, id="message")
        yield DialogField("If busy", self.when)

    def on_mount(self) -> None:
        newline = self.keys.shown("newline", self.look.utf8)
        self.offer(("enter", "send"), (newline, "new line"), ("tab", "delivery"), ("esc", "close"))
        self.begin(self.query_one("#message", TextBox))

    def submit(self) -> None:
        text = self.query_one("#message", TextBox).text
        if not text.strip():
            return
        prompt = Prompt(text=text, when=WHEN.get(self.when.value, "now"), anyway=self.when.value == ANYWAY)
        if len(self.sessions) == 1:
            if self.begin_operation():
                self.dashboard.session_pane.send_prompt(
                    self.sessions[0].id, prompt, done=self.handle_success, failed=self.handle_failure
                )
            return
        question = Confirmation(f"Send to {len(self.sessions)} agents?", tuple(self._recipients(prompt)), "send to all")
        self.app.push_screen(
            ConfirmDialog(self.look, self.keys, self.clock, question, lambda sure: self._broadcast(prompt))
        )

    def _recipients(self, prompt: Prompt) -> Iterable[str]:
        yield prompt.text
        yield ""
        for session in self.sessions:
            yield f"{session.label}  {session.agent}  {session.state}  {session.workdir}"
        if self.left_out:
            yield ""
            yield f"Not sent to (no agents): {', '.join(session.label for session in self.left_out)}"

    def _broadcast(self, prompt: Prompt) -> None:
        self.app.pop_screen()
        self.app.switch_screen(BroadcastDialog(self.look, self.keys, self.clock, self.sessions, prompt))

    def handle_failure(self, error: KasmonError) -> bool:
        """If the input box was not visible, add the choice to send anyway; only the user can choose it."""
        is_shown = super().handle_failure(error)
        is_unseen = isinstance(error, PromptBoxError) and error.is_unseen
        if is_shown and is_unseen and ANYWAY not in self.when.options:
            self.when.put((*self.when.options, ANYWAY), self.when.chosen)
            self.complain(error.message, f'To send it although the input box is not visible, choose "{ANYWAY}".')
        return is_shown

    def _names(self, width: int) -> Sequence[TextLine]:
        names = ", ".join(clean_line(session.label) for session in self.sessions)
        others = ", ".join(clean_line(session.label) for session in self.left_out)
        rows = wrap([(names, Token.OUTPUT)], width)
        return [*rows, *wrap([(f"not sent to (no agents): {others}", Token.FAINT)], width)] if others else rows


class BroadcastDialog(Dialog):
    """Sends *prompt* to *sessions* and shows its progress; where it failed, it can be sent again or edited."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "again", "again", show=False),
        Binding("e", "change", "change", show=False),
    ]

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, clock: Clock, sessions: Sequence[Session], prompt: Prompt
    ) -> None:
        super().__init__(look, keys, self._rows)
        self.title_text = f"Prompt {len(sessions)} agents"
        self.clock, self.sessions, self.prompt = clock, tuple(sessions), prompt
        self._before: dict[SessionId, frozenset[str]] = {}
        """The receipts that existed before it was sent."""
        self._receipts: dict[SessionId, Receipt] = {}
        self._failed: dict[SessionId, str] = {}

    def on_mount(self) -> None:
        """Textual calls it besides that of `Dialog`."""
        self._send(self.sessions)

    def follow(self, fleet: Fleet) -> None:
        for session in (now for known in self.sessions if (now := fleet.get(known.id)) is not None):
            if (receipt := self._find_receipt(session)) is not None:
                self._receipts[session.id] = receipt
        self._redraw()

    def handle_success(self, text: str) -> bool:
        """Return whether the table shows the outcome."""
        return self.is_open

    def _handle_failure_of(self, session: SessionId, error: KasmonError) -> bool:
        if self.is_open:
            self._failed[session] = error.message
            self._redraw()
        return self.is_open

    def action_again(self) -> None:
        """Send it again to the sessions where it failed."""
        self._send(self._list_failed())

    def action_change(self) -> None:
        """Open an editor with this prompt, for the sessions where it failed."""
        if failing := self._list_failed():
            self.app.switch_screen(PromptDialog(self.look, self.keys, self.clock, failing, self.prompt.text))

    def _list_failed(self) -> list[Session]:
        return [session for session in self.sessions if self._has_failed(session.id)]

    def _send(self, sessions: Iterable[Session]) -> None:
        for session in sessions:
            known = self._receipts.pop(session.id, None)
            self._failed.pop(session.id, None)
            before = self._before.get(session.id) or frozenset(receipt.id for receipt in session.receipts)
            self._before[session.id] = before | ({known.id} if known is not None else set())
            self.dashboard.session_pane.send_prompt(
                session.id,
                self.prompt,
                done=self.handle_success,
                failed=partial(self._handle_failure_of, session.id),
            )
        self._redraw()

    def _find_receipt(self, session: Session) -> Receipt | None:
        """The receipt of this prompt; distinguished by text from others of the same moment."""
        first_line = next((line.strip() for line in self.prompt.text.splitlines() if line.strip()), "")
        new = [receipt for receipt in session.receipts if receipt.id not in self._before.get(session.id, ())]
        return min(new, key=lambda receipt: not first_line.startswith(receipt.text[:20]), default=None)

    def _has_failed(self, session: SessionId) -> bool:
        receipt = self._receipts.get(session)
        return session in self._failed or (receipt is not None and receipt.state in FAILED)

    def _describe(self, session: SessionId) -> tuple[str, Token, str]:
        """The prompt's state in *session*, the state's colour, and the reason."""
        if (receipt := self._receipts.get(session)) is not None:
            code = "" if receipt.exit_code is None else f"exit code {receipt.exit_code}"
            return RECEIPT_WORDS[receipt.state], TOKENS[receipt.state], clean_line(receipt.reason) or code
        if session in self._failed:
            return RECEIPT_WORDS[ReceiptState.REFUSED], Token.ERROR, clean_line(self._failed[session])
        return SENDING, Token.FAINT, ""

    def _rows(self, width: int) -> Sequence[TextLine]:
        names = {session.id: clean_line(session.label) for session in self.sessions}
        name_cells = min(max((cells(name) for name in names.values()), default=0), NAME_CELLS)
        descriptions = {session: self._describe(session) for session in names}
        word_room = max((cells(word) for word, _, _ in descriptions.values()), default=0)
        rows: list[TextLine] = [*wrap([(clean_line(self.prompt.text), Token.PROMPT)], width)[:2], BLANK]
        for session, name in names.items():
            word, token, why = descriptions[session]
            shown = wrap([(name, Token.STRONG)], name_cells, words=False)[0].text
            left = ((shown + " " * (name_cells - cells(shown) + 2), Token.STRONG), (f"{word:<{word_room}}  ", token))
            blank = ((" " * sum(cells(text) for text, _ in left), Token.TEXT),)
            rows += wrap([(why, Token.NOTICE)], width, left, blank) if why else [TextLine(left)]
        counts = Counter(word for word, _, _ in descriptions.values())
        return [
            *rows,
            BLANK,
            TextLine(((" · ".join(f"{count} {word}" for word, count in counts.items()), Token.NOTICE),)),
        ]

    def _redraw(self) -> None:
        if not self.is_mounted:
            return
        at = self.text.scroll_offset.y
        self.text.read(self._rows)
        self.text.scroll_rows(at)
        failed = len(self._list_failed())
        again = [("enter", f"retry {failed} failed"), ("e", "edit for failed")] if failed else []
        self.offer(*again, ("up down", "scroll"), ("esc", "close"))
