"""The streamed text of a block whose complete event has not arrived; kept until that event replaces it. Pure."""

from kasmon.model import events
from kasmon.model.sandbox.policy import INTERPRETERS


class PartialText:
    """The streamed parts of the block without its complete event, separately for thoughts and messages."""

    def __init__(self) -> None:
        self.text = {False: "", True: ""}
        """The text streamed of the current block so far."""
        self._at = 0.0
        self._is_run = False
        """The streamed text is the output of running code, whose end brings all of it, also to a later host."""

    def add(self, event: events.Event) -> tuple[events.PartialTextWritten, ...]:
        """Add *event* and return the text that stays for good, since *event* ends what would have completed it."""
        match event:
            case events.PartialTextWritten():
                self.text[event.thinking] += event.text
                self._at = event.at
            case events.MessageWritten():
                self.text = {False: "", True: ""}
            case events.ThoughtWritten():
                self.text[True] = ""
            case events.ToolFinished() if event.exit_code is not None:
                self.text[False] = ""
                self._is_run = False
            case events.ToolStarted() if event.tool in INTERPRETERS:
                remains = self.rest() if self._is_run else ()
                self._is_run = True
                return remains
            case events.TurnEnded() | events.SessionEnded() | events.SessionStarted() if not self._is_run:
                return self.rest()
            case _:
                pass
        return ()

    def rest(self) -> tuple[events.PartialTextWritten, ...]:
        """Take all text without a complete block, thoughts first."""
        texts, self.text = self.text, {False: "", True: ""}
        return tuple(
            events.PartialTextWritten(at=self._at, text=texts[thinking], thinking=thinking)
            for thinking in (True, False)
            if texts[thinking]
        )
