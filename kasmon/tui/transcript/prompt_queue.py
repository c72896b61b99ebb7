"""The states of sent prompts, above the prompt box: queued ones can be chosen, moved, changed and removed."""

from typing import Final

from textual.message import Message

from kasmon.model.commands import Receipt, ReceiptId, ReceiptState, Requeue
from kasmon.model.formatting import state_label, state_name
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.scripted_agent.script import SCRIPTED, displayed_prompt
from kasmon.tui.app_protocols import dashboard_of
from kasmon.tui.theme.look import RECEIPT_WORDS, StyledSpan, ThemeStyles
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines

SHOWN: Final = 3
"""The maximum number of rows, unless the queue has the keyboard."""
CHOOSING: Final = 8
"""The maximum number of rows while it has the keyboard."""
ON_THEIR_WAY: Final = (ReceiptState.QUEUED, ReceiptState.TYPED)


class PromptQueueView(TextLines, can_focus=True):
    """The pending prompts of one session. With the keyboard it shows all queued ones, one of them chosen."""

    class Change(Message):
        """The user wants to edit this prompt."""

        def __init__(self, receipt: ReceiptId) -> None:
            super().__init__()
            self.receipt = receipt

    class Empty(Message):
        """The queue became empty while it had the keyboard."""

    def __init__(self, session: Session, look: ThemeStyles) -> None:
        super().__init__(look, "background", id="receipts")
        self.session = session
        self.writing = False
        """Whether the prompt box is open: then the state of the last prompt is shown too."""
        self.chosen: ReceiptId | None = None
        self.can_focus = False

    @property
    def waiting(self) -> list[Receipt]:
        return [each for each in self.session.receipts if each.state is ReceiptState.QUEUED]

    def show_session(self, session: Session, writing: bool) -> None:
        self.session, self.writing = session, writing
        if self.chosen is not None and self.chosen not in [each.id for each in self.waiting]:
            waiting = self.waiting
            self.chosen = waiting[0].id if waiting else None
            if not waiting:
                self.post_message(self.Empty())
        self._update()

    def choose(self, on: bool) -> None:
        """Choose the first queued prompt; or none."""
        self.chosen = self.waiting[0].id if on and self.waiting else None
        self._update()

    def move(self, by: int) -> None:
        waiting = self.waiting
        if waiting and self.chosen is not None:
            self.chosen = waiting[min(max(self._place() + by, 0), len(waiting) - 1)].id
            self._update()

    def shift(self, by: int) -> None:
        """Move the chosen prompt later in the queue, or earlier if negative."""
        place = self._place() + by
        if self.chosen is not None and 0 <= place < len(self.waiting):
            self._request_change(Requeue(receipt=self.chosen, place=place))

    def withdraw(self) -> None:
        if self.chosen is not None:
            self._request_change(Requeue(receipt=self.chosen, drop=True))

    def change(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Change(self.chosen))

    def _place(self) -> int:
        return next((number for number, each in enumerate(self.waiting) if each.id == self.chosen), 0)

    def _request_change(self, change: Requeue) -> None:
        session = self.session.id
        dashboard_of(self).run_operation(lambda operations: operations.change_queue(session, change))

    def _update(self) -> None:
        if self.chosen is not None:
            first = max(0, min(self._place() - CHOOSING // 2, len(self.waiting) - CHOOSING))
            lines = [self._choice(number, each) for number, each in enumerate(self.waiting)]
            self.say(*lines[first : first + CHOOSING])
            return
        on_their_way = [each for each in self.session.receipts if each.state in ON_THEIR_WAY]
        latest = self.session.receipts[-1:] if self.writing else ()
        receipts = [*on_their_way, *(each for each in latest if each not in on_their_way)]
        before = len(receipts) - SHOWN + 1 if len(receipts) > SHOWN else 0
        lines = [self._before(before)] if before else []
        lines += [self._receipt(each) for each in receipts[before:]]
        if self.writing and self.session.state.value in ("ended", "lost"):
            name = state_name(self.session)
            shape = f" {self.look.state_glyph(name)} {state_label(self.session)}"
            lines.append(DrawnLine(((shape, f"state-{name}.bold"), ("  restart to send prompts", "soft"))))
        self.say(*lines)

    def _choice(self, number: int, receipt: Receipt) -> DrawnLine:
        is_selected = receipt.id == self.chosen
        mark = self.look.mark("cursor") if is_selected else " "
        text: StyledSpan = (clean_line(receipt.text), "text.bold" if is_selected else "soft")
        return DrawnLine(((f" {mark} ", "accent"), (f"{number + 1}. ", "info"), text))

    def _before(self, count: int) -> DrawnLine:
        return DrawnLine(
            ((f" {RECEIPT_WORDS[ReceiptState.QUEUED]}", "info"), (f"  {count} more above", "soft")), action="queue"
        )

    def _receipt(self, receipt: Receipt) -> DrawnLine:
        bad = receipt.state in (ReceiptState.REFUSED, ReceiptState.LOST, ReceiptState.FAILED, ReceiptState.UNSURE)
        left: list[StyledSpan] = [(f" {RECEIPT_WORDS[receipt.state]}", "bad.bold" if bad else "info")]
        text = displayed_prompt(receipt.text) if self.session.agent == SCRIPTED else receipt.text
        left += [(f"  {clean_line(text)}", "soft"), (f"  {clean_line(receipt.reason)}" if bad else "", "bad")]
        return DrawnLine(tuple(left), action="queue" if receipt.state is ReceiptState.QUEUED else "")
