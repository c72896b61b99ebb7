"""The text that an agent streamed before its whole block was an event: kept until that supersedes it. Pure."""

from kasmon.model.events import (
    Event,
    MessageWritten,
    PartialTextWritten,
    SessionEnded,
    SessionStarted,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnEnded,
)
from kasmon.model.sandbox.policy import INTERPRETERS


class PartialText:
    """The parts, by whether they are of a thought, whose whole block has not come."""

    def __init__(self) -> None:
        self.text = {False: "", True: ""}
        """All that was streamed of the block that is being written."""
        self._at = 0.0
        self._is_run = False
        """Code runs, and the text is what it prints. Its end brings the whole output, also to a later host."""

    def add(self, event: Event) -> tuple[PartialTextWritten, ...]:
        """File *event*; the text that stays for good, since *event* ends what would have completed it."""
        match event:
            case PartialTextWritten():
                self.text[event.thinking] += event.text
                self._at = event.at
            case MessageWritten():
                self.text = {False: "", True: ""}
            case ThoughtWritten():
                self.text[True] = ""
            case ToolFinished() if event.exit_code is not None:
                self.text[False] = ""
                self._is_run = False
            case ToolStarted() if event.tool in INTERPRETERS:
                remains = self.rest() if self._is_run else ()
                self._is_run = True
                return remains
            case TurnEnded() | SessionEnded() | SessionStarted() if not self._is_run:
                return self.rest()
            case _:
                pass
        return ()

    def rest(self) -> tuple[PartialTextWritten, ...]:
        """Take all the text of which no whole block came, a thought first."""
        texts, self.text = self.text, {False: "", True: ""}
        return tuple(
            PartialTextWritten(at=self._at, text=texts[thinking], thinking=thinking)
            for thinking in (True, False)
            if texts[thinking]
        )
