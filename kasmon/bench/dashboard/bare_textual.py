"""The limit for every path from a log to the screen: a bare Textual app that polls one log.

It shows the end of the newest line and parses nothing.
"""

import sys
from pathlib import Path

_PROGRAM = """
import os, sys
from textual.app import App
from textual.widgets import Static

class Follower(App):
    def compose(self):
        yield Static("bare-and-ready")

    def on_mount(self):
        self.log_file = open(sys.argv[1], "rb")
        self.log_file.seek(0, os.SEEK_END)
        self.set_interval(0.01, self.look)

    def look(self):
        lines = [line for line in self.log_file.read().splitlines() if sys.argv[2].encode() in line]
        if lines:
            at = lines[-1].index(sys.argv[2].encode())
            self.query_one(Static).update(repr(lines[-1][at : at + 60].decode()))

Follower().run()
"""
READY = b"bare-and-ready"


def following(log: Path, text: str) -> list[str]:
    """Return the command line of an app that shows each new line of *log* containing *text*, from *text* on."""
    return [sys.executable, "-P", "-c", _PROGRAM, str(log), text]
