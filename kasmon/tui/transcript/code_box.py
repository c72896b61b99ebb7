"""A box to write code in: Enter runs it with the chosen interpreter, Tab chooses the next."""

from collections.abc import Callable, Sequence

from textual import events
from textual.content import Content

from kasmon.model.commands import Run, When
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter
from kasmon.tui.action import KeyContext
from kasmon.tui.app_protocols import dashboard_of
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import ActionRequested
from kasmon.tui.transcript.prompt_box import PromptBox


class CodeBox(PromptBox):
    """Runs code in one session's sandbox; the history keys recall earlier code.

    Args:
        codes: returns the earlier code, the last one last.
        interpreter: the initial interpreter.
    """

    def __init__(
        self,
        session: SessionId,
        keys: KeyMap,
        text: str = "",
        *,
        codes: Callable[[], Sequence[str]] = tuple,
        interpreter: Interpreter = "python",
    ) -> None:
        super().__init__(session, keys, "", text, history=codes)
        self.interpreter: Interpreter = interpreter
        self.handlers = {
            **self.handlers,
            "run_code": lambda: self._submit("now"),
            "interpreter": self._choose_interpreter,
            "read_run": lambda: self.post_message(ActionRequested("read")),
        }
        self._show_interpreter()

    def takes(self, event: events.Key) -> bool:
        row = next((row for name in event.aliases if (row := self.keys.action(name, KeyContext.CODE))), None)
        return (row is not None and self.means(row.id)) or super().takes(event)

    def _choose_interpreter(self) -> None:
        self.interpreter = INTERPRETERS[(INTERPRETERS.index(self.interpreter) + 1) % len(INTERPRETERS)]
        self._show_interpreter()

    def _show_interpreter(self) -> None:
        others = "  ".join(f"[{each}]" if each == self.interpreter else each for each in INTERPRETERS)
        self.border_title = Content(others)
        self.placeholder = Content(f"Code for {self.interpreter}")

    def _submit(self, when: When) -> None:
        if self.text.strip():
            dashboard_of(self).session_pane.run_code(self.session, Run(interpreter=self.interpreter, code=self.text))
            self._back = None
            self.clear()
