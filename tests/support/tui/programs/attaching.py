"""A busy dashboard that hands its terminal to a program at once: it counts on the screen, and into a file, then."""

import sys
from collections.abc import Sequence
from pathlib import Path

from textual.app import App, ComposeResult
from textual.widgets import Static

from kasmon.errors import KasmonError
from kasmon.tui.process.attach import run_in_terminal
from kasmon.tui.textual_ext.driver import TapDriver

SHELL = ("sh", "-c", "echo it is yours; read line")


class Attaching(App[None]):
    def __init__(self, counted: Path, argv: Sequence[str]) -> None:
        super().__init__(driver_class=TapDriver)
        self.counted, self.number, self.argv = counted, 0, argv

    def compose(self) -> ComposeResult:
        yield Static(id="counter")
        yield Static("what does not change", id="told")

    def on_mount(self) -> None:
        self.set_interval(0.005, self._count)
        self.call_after_refresh(lambda: self.run_worker(self._hand_over()))

    async def _hand_over(self) -> None:
        try:
            await run_in_terminal(self, self.argv)
        except KasmonError as error:
            self.query_one("#told", Static).update(error.message)

    def _count(self) -> None:
        self.number += 1
        self.query_one("#counter", Static).update(f"<{self.number}>")
        self.counted.write_text(str(self.number))


if __name__ == "__main__":
    Attaching(Path(sys.argv[1]), sys.argv[2:] or SHELL).run()
