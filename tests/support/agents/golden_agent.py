"""A program that plays an agent: it shows golden screens, sets titles, reports itself, and calls its hooks, when told.

It is run under the agent's own name and says the agent's own version, so kasmon takes it for that agent.
"""

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping
from typing import Any

from kasmon.model.permission import SessionId
from kasmon.model.reducers.evidence import apply_verdict
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from tests.support.detection.golden import FOLDER, load
from tests.support.host.tmux_env import TmuxEnv
from tests.support.wait import LIMIT_S, until

PLAYER = r"""
import json, os, subprocess, sys, threading, tty
tty.setraw(0)
pipe, words = sys.argv[1], sys.argv[2:]
def read():
    with open(pipe + ".typed", "ab", buffering=0) as typed:
        while data := os.read(0, 65536):
            typed.write(data)
threading.Thread(target=read, daemon=True).start()
def show(text):
    os.write(1, text.encode("utf-8", "surrogateescape"))
show("\x1b[?25h")
# open for writing too: else what is written between an end of file and the next `open` is lost
for line in open(os.open(pipe, os.O_RDWR), encoding="utf-8", errors="surrogateescape"):
    do = json.loads(line)
    if "title" in do:
        show("\x1b]0;" + do["title"] + "\x07")
    if "screen" in do:
        x, y = do.get("cursor") or (0, 0)
        text = do["screen"].rstrip("\n").replace("\n", "\r\n")
        where = "\x1b[%d;%dH" % (y + 1, x + 1)
        mode = "\x1b[?25h" if do.get("cursor_visible", True) else "\x1b[?25l"
        screen = "\x1b[?1049h" if do.get("alternate") else "\x1b[?1049l"
        show(screen + "\x1b[0m\x1b[H\x1b[2J" + text + "\x1b[0m" + where + mode)
    if "print" in do:
        show(do["print"])
    if "hook" in do:
        hooks = json.loads(words[words.index("--settings") + 1])["hooks"]
        entry = hooks[do["hook"]["hook_event_name"]][0]["hooks"][0]
        subprocess.run(entry["command"], shell=True, input=json.dumps(do["hook"]).encode(), check=True)
    if "end" in do:
        sys.exit(do["end"])
"""


class GoldenAgent:
    """The agent *name* as the session *session*; `.argv` starts it."""

    def __init__(self, tmux: TmuxEnv, session: str, name: str, version: str) -> None:
        self.tmux_env, self.session, self.name, self.version = tmux, SessionId(session), name, version
        folder = tmux.root / f"bin-{session}"
        folder.mkdir()
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        (folder / "player.py").write_text(PLAYER)
        program = folder / name
        play = shlex.join([sys.executable, "-I", "-S", str(folder / "player.py"), str(self.pipe)])
        program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo {version} && exit\nexec {play} "$@"\n')
        program.chmod(0o755)
        self.argv: tuple[str, ...] = (str(program),)

    @property
    def typed(self) -> bytes:
        """What was typed into it until now."""
        typed = self.pipe.with_name("pipe.typed")
        return typed.read_bytes() if typed.exists() else b""

    def do(self, **what: Any) -> None:
        """Have it done; when this returns it was told."""
        with self.pipe.open("w") as pipe:
            pipe.write(json.dumps(what) + "\n")

    def shows(self, case: str, version: str = "", *, date: tuple[str, str] = ("", ""), **more: Any) -> None:
        """Show the golden screen *case*, of *version* or its own; *date*: a recorded date, and its substitute."""
        golden = load(FOLDER / self.name / (version or self.version) / case)
        facts: Mapping[str, Any] = golden.shot.facts
        title = {"title": golden.shot.title} if "title" not in more else {}
        self.do(screen=golden.shot.text.replace(*date) if date[0] else golden.shot.text, **title, **facts, **more)

    def now(self) -> Session:
        """The session as its log says, judged now."""
        return apply_verdict(self.tmux_env.session(self.session), time.time())

    def is_judged(self, state: SessionState, limit_s: float = LIMIT_S) -> Session:
        """Wait until it is in *state*; the session then."""
        with contextlib.suppress(TimeoutError):
            until(lambda: self.now().state is state, limit_s)
        now = self.now()
        assert now.state is state, (now.state, now.source, now.unsure_why, now.signals)
        return now
