"""A fake terminal agent that asks: it draws menus as kasmon's scripted agent does, and is as bad as it is told to be.

It says in a file what it heard and what that meant at that moment, one JSON list a line: `["key", ask, key]` and
`["taken", ask, label]`.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PLAY = r"""
import json, os, select, signal, sys, time, tty
if "--version" in sys.argv:
    sys.exit()
tty.setraw(0)
does, log = json.loads(sys.argv[1]), open(sys.argv[2], "a", buffering=1)
asks, mark, deaf, deaf_arrows = does["asks"], 0, 0, 0
def note(*words):
    log.write(json.dumps(words) + "\n")
def draw():
    rows = ["\x1b[7m scripted agent \u00b7 " + ("asks" if asks else "idle") + "\x1b[0m", ""]
    rows += ["\u2500" * 80]
    if asks:
        rows += ["Bash " + asks[0]["ask"], "Do you want to proceed?"]
        for at, label in enumerate(asks[0]["choices"]):
            rows.append(("\u276f " if at == mark else "  ") + f"{at + 1}. {label}")
    else:
        rows += ["\u276f "]
    rows += ["Enter sends \u00b7 Alt+Enter new line \u00b7 Esc interrupts \u00b7 Ctrl+C twice ends"]
    at = "" if asks else "\x1b[4;3H"
    os.write(1, ("\x1b[H\x1b[2J" + "\r\n".join(rows) + at).encode())
def next_one():
    global asks, mark, deaf, deaf_arrows
    asks, mark, deaf, deaf_arrows = asks[1:], 0, 0, 0
    draw()
def take(at):
    label = asks[0]["choices"][at]
    note("taken", asks[0]["ask"], label)
    if label in asks[0].get("opens", {}):
        asks.insert(1, asks[0]["opens"][label])
    next_one()
def swap(*_):
    note("swapped", asks[0]["ask"], "")
    next_one()
signal.signal(signal.SIGUSR1, swap)
signal.signal(signal.SIGUSR2, lambda *_: draw())
draw()
while True:
    select.select([0], [], [])
    if does.get("reads") is False:
        time.sleep(3600)
    data = os.read(0, 64).decode()
    note("key", asks[0]["ask"] if asks else "", data)
    if does.get("dies"):
        sys.exit(3)
    if not asks:
        continue
    if data[:2] == "\x1b[" and deaf_arrows < does.get("ignores_arrows", 0):
        deaf_arrows += 1
    elif data in ("\x1b[A", "\x1b[B"):
        mark = max(0, min(len(asks[0]["choices"]) - 1, mark + (1 if data[-1] == "B" else -1)))
        draw()
    elif data == "\r":
        take(mark)
    elif data.isdigit() and deaf < does.get("ignores", 0):
        deaf += 1
    elif data.isdigit() and 0 < int(data) <= len(asks[0]["choices"]):
        take(int(data) - 1)
"""
YES, ALWAYS, NO = "Yes", "Yes, and don't ask again for: Bash(it:*)", "No"


def dialog(ask: str, *choices: str, **more: Any) -> dict[str, Any]:
    """One dialog about the command *ask*."""
    return {"ask": ask, "choices": list(choices or (YES, ALWAYS, NO)), **more}


class Entry(NamedTuple):
    what: str
    ask: str
    key: str


class MenuAgent:
    """The fake in *folder*; `.argv` runs it, as a program of the name `scripted`."""

    def __init__(self, folder: Path, *asks: dict[str, Any], **does: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log"
        program = folder / "scripted"
        program.write_text(f"#!{sys.executable} -IS\n{PLAY}")
        program.chmod(0o755)
        self.argv = (str(program), json.dumps({"asks": asks, **does}), str(self.log))

    def said(self) -> Sequence[Entry]:
        """All that it noted so far."""
        return [Entry(*json.loads(line)) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def taken(self) -> list[tuple[str, str]]:
        """What was answered, and with which label."""
        return [(entry.ask, entry.key) for entry in self.said() if entry.what == "taken"]

    def heard(self) -> list[str]:
        return [entry.key for entry in self.said() if entry.what == "key"]

    def swap(self, pid: int) -> None:
        """Have it ask the next thing, as if the agent had given the first one up."""
        os.kill(pid, signal.SIGUSR1)

    def draw(self, pid: int) -> None:
        """Have it draw the same anew."""
        os.kill(pid, signal.SIGUSR2)
