"""A structured session's inside: its transcript through the pyte screen, and in focus a box to write to it."""

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical

from kasmon.clean import clean_line
from kasmon.model.command import Receipt, ReceiptState
from kasmon.model.session import Session
from kasmon.model.transcript import Transcript
from kasmon.tui.keys import Keys
from kasmon.tui.lines import DrawnLine, Lines
from kasmon.tui.look import Look, Span, state_name
from kasmon.tui.screen import EventScreen

if TYPE_CHECKING:
    from kasmon.tui.prompt import PromptBox

WAITING_WORDS = {
    ReceiptState.QUEUED: "queued",
    ReceiptState.TYPED: "typed",
    ReceiptState.SUBMITTED: "submitted",
    ReceiptState.STARTED: "its turn runs",
    ReceiptState.FINISHED: "done",
    ReceiptState.REFUSED: "refused",
    ReceiptState.LOST: "lost",
}
"""How far a prompt came, for people."""
ON_THEIR_WAY = (ReceiptState.QUEUED, ReceiptState.TYPED)


class SessionView(Vertical):
    """The transcript of one session; the box below it is there between `enter` and `leave`."""

    def __init__(self, session: Session, transcript: Transcript, look: Look, keys: Keys) -> None:
        super().__init__()
        self.session, self.look, self.keys = session, look, keys
        self.transcript = transcript
        self.screen_of_events = EventScreen(transcript, look.token)
        self.receipts = Lines(look, "background", id="receipts")
        self.box: PromptBox | None = None

    def compose(self) -> ComposeResult:
        yield self.screen_of_events
        yield self.receipts

    def on_mount(self) -> None:
        self.screen_of_events.can_focus = False
        self._tell_receipts()

    def changed(self) -> None:
        """The transcript grew, or what is being written did."""
        self.screen_of_events.changed()

    def learn(self, session: Session) -> None:
        """The session is this now."""
        before, self.session = self.session, session
        if before.receipts != session.receipts or before.state is not session.state:
            self._tell_receipts()

    def dress(self, look: Look) -> None:
        self.look = self.receipts.look = look
        self.screen_of_events.dress(look.token)
        self.receipts.refresh()

    def enter(self, draft: str = "") -> None:
        """Give the keyboard to a box to write in; *draft* is what was written there before."""
        if self.box is not None:
            return
        from kasmon.tui.prompt import PromptBox  # heavy: only when somebody writes

        self.box = PromptBox(self.session.id, self.keys, f"Write to {clean_line(self.session.name)}", draft)
        self.mount(self.box)
        self.screen.set_focus(self.box)  # now: the next key may be there already
        self._tell_receipts()

    def leave(self) -> str:
        """Take the box away; return what was written and not sent."""
        if self.box is None:
            return ""
        draft = self.box.text
        self.box.remove()
        self.box = None
        self._tell_receipts()
        return draft

    def scroll_pages(self, by: int) -> None:
        self.screen_of_events.back(-by)

    def _tell_receipts(self) -> None:
        """The prompts on their way, and in focus also the last one that arrived."""
        on_their_way = [each for each in self.session.receipts if each.state in ON_THEIR_WAY]
        latest = self.session.receipts[-1:] if self.box is not None else ()
        shown = [*on_their_way, *(each for each in latest if each not in on_their_way)][-3:]
        lines = [self._receipt(each) for each in shown]
        if self.box is not None and self.session.state.value in ("ended", "lost"):
            name = state_name(self.session)
            shape = f" {self.look.state_glyph(name)} {name}"
            lines.append(DrawnLine(((shape, f"state-{name}.bold"), ("  restart it to write to it", "soft"))))
        self.receipts.say(*lines)

    def _receipt(self, receipt: Receipt) -> DrawnLine:
        bad = receipt.state in (ReceiptState.REFUSED, ReceiptState.LOST)
        left: list[Span] = [(f" {WAITING_WORDS[receipt.state]}", "bad.bold" if bad else "info")]
        left += [(f"  {clean_line(receipt.text)}", "soft"), (f"  {clean_line(receipt.reason)}" if bad else "", "bad")]
        return DrawnLine(tuple(left))
