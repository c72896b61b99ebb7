"""Sends one prompt to several sessions, and shows its state in each for as long as the dialog is open."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from kasmon.errors import KasmonError
from kasmon.model.commands import Prompt, Receipt, ReceiptState
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.transcript.text import BLANK, TextLine, Token, cells, fitted
from kasmon.sanitize import clean_line
from kasmon.tui.clock import Clock
from kasmon.tui.dialogs.common import PromptDialog, TextDialog
from kasmon.tui.gateway.protocol import SendToAgent, UserCommand
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import RECEIPT_WORDS, ThemeStyles

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


class BroadcastDialog(TextDialog):
    """Sends *prompt* to *sessions* and shows its progress; where it failed, it can be sent again or edited."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "again", "again", show=False),
        Binding("e", "change", "change", show=False),
    ]

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, clock: Clock, sessions: Sequence[Session], prompt: Prompt
    ) -> None:
        super().__init__(look, keys, f"Prompt {len(sessions)} agents", self._rows)
        self.clock, self.sessions, self.prompt = clock, tuple(sessions), prompt
        self._before: dict[SessionId, frozenset[str]] = {}
        """The receipts that existed before it was sent."""
        self._receipts: dict[SessionId, Receipt] = {}
        self._failed: dict[SessionId, str] = {}

    def on_mount(self) -> None:
        """Textual calls it besides that of `TextDialog`."""
        self._send(self.sessions)

    def follow(self, fleet: Fleet) -> None:
        """Update the state of the prompt in each session."""
        for session in (now for known in self.sessions if (now := fleet.get(known.id)) is not None):
            if (receipt := self._find_receipt(session)) is not None:
                self._receipts[session.id] = receipt
        self._redraw()

    def done(self, wanted: UserCommand, word: str) -> str:
        """Return nothing: the table shows the outcome."""
        self.busy = False
        return ""

    def refused(self, wanted: UserCommand, error: KasmonError) -> None:
        self.busy = False
        if isinstance(wanted, SendToAgent):
            self._failed[wanted.session] = error.message
        self._redraw()

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
            self.busy = False
            self.want(SendToAgent(session=session.id, wish=self.prompt))
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
        names = {session.id: clean_line(session.name) for session in self.sessions}
        room = min(max((cells(name) for name in names.values()), default=0), NAME_CELLS)
        words = {session: self._describe(session) for session in names}
        word_room = max((cells(word) for word, _, _ in words.values()), default=0)
        rows: list[TextLine] = [*fitted([(clean_line(self.prompt.text), Token.PROMPT)], width)[:2], BLANK]
        for session, name in names.items():
            word, token, why = words[session]
            shown = fitted([(name, Token.STRONG)], room, words=False)[0].text
            left = ((shown + " " * (room - cells(shown) + 2), Token.STRONG), (f"{word:<{word_room}}  ", token))
            blank = ((" " * sum(cells(text) for text, _ in left), Token.TEXT),)
            rows += fitted([(why, Token.NOTICE)], width, left, blank) if why else [TextLine(left)]
        counts = Counter(word for word, _, _ in words.values())
        return [
            *rows,
            BLANK,
            TextLine(((" · ".join(f"{count} {word}" for word, count in counts.items()), Token.NOTICE),)),
        ]

    def _redraw(self) -> None:
        if not self.is_mounted:
            return
        at = self.reader.scroll_offset.y
        self.reader.read(self._rows)
        self.reader.scroll_rows(at)
        failed = len(self._list_failed())
        again = [("enter", f"retry {failed} failed"), ("e", "edit for failed")] if failed else []
        self.offer(*again, ("up down", "scroll"), ("esc", "close"))
