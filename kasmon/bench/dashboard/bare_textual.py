"""The limit of every way from a log to a screen: a bare Textual app that looks at one log all the time.

It shows the end of the newest line and knows nothing else of what it reads.
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


def following(log: Path, word: str) -> list[str]:
    """The command line of one that shows, of each new line of *log* with *word* in it, what begins there."""
    return [sys.executable, "-P", "-c", _PROGRAM, str(log), word]
