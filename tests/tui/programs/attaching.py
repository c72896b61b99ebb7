"""A busy dashboard that hands its terminal to a shell at once: it counts on the screen, and into a file, meanwhile."""

import sys
from pathlib import Path

from textual.app import App, ComposeResult
from textual.widgets import Static

from kasmon.tui.attach import attached
from kasmon.tui.driver import TapDriver

SHELL = ("sh", "-c", "echo it is yours; read line")


class Attaching(App[None]):
    def __init__(self, counted: Path) -> None:
        super().__init__(driver_class=TapDriver)
        self.counted, self.number = counted, 0

    def compose(self) -> ComposeResult:
        yield Static(id="counter")
        yield Static("what does not change")

    def on_mount(self) -> None:
        self.set_interval(0.005, self._count)
        self.call_after_refresh(lambda: self.run_worker(attached(self, SHELL)))

    def _count(self) -> None:
        self.number += 1
        self.query_one("#counter", Static).update(f"<{self.number}>")
        self.counted.write_text(str(self.number))


if __name__ == "__main__":
    Attaching(Path(sys.argv[1])).run()
