"""Builders of fleet values: every state, on a clock that stands still. Read `crew()` for how they go together."""

import hashlib
from typing import Any

import msgspec

from kasmon.model.commands import Mode
from kasmon.model.evidence import Signal
from kasmon.model.fleet import Fleet
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId, seal
from kasmon.model.session import HostProbe, Session, Tokens
from kasmon.model.session_state import SessionState

NOW = 1_790_000_000.0
"""The moment of every fleet in here, in seconds since the epoch."""

STANDARD = (Decision.ALLOW, Decision.ALWAYS, Decision.DENY, Decision.EDIT, Decision.CANCEL, Decision.NEVER)


class StillClock:
    """A clock that moves only by hand."""

    def __init__(self) -> None:
        self.at, self.ticked = NOW, 1000.0

    def now(self) -> float:
        return self.at

    def ticking(self) -> float:
        return self.ticked

    def forward(self, seconds: float) -> None:
        self.at += seconds
        self.ticked += seconds


def fleet(*sessions: Session, at: float = NOW, read_only: str = "") -> Fleet:
    return Fleet(sessions=sessions, at=at, read_only=read_only)


def session(name: str, state: SessionState = SessionState.IDLE, *, ago: float = 180.0, **fields: Any) -> Session:
    """One session, in this state since *ago* seconds; it is called by its id."""
    base: dict[str, Any] = {
        "id": SessionId(name),
        "name": name,
        "agent": "claude",
        "mode": Mode.SDK,
        "backend": "scripted",
        "workdir": "/home/you/project",
        "created_at": NOW - 3600,
        "state": state,
        "since": NOW - ago,
        "source": "protocol",
        "generation": 1,
        "pid": 4000 + int(hashlib.sha256(name.encode()).hexdigest()[:3], 16),
        "host": HostProbe(pid=4000, alive=True),
    }
    if fields.get("mode") is Mode.TMUX:
        base |= {
            "backend": "tmux",
            "source": "program",
            "program": fields.get("agent", "claude").replace("shell", "bash"),
        }
        base["signals"] = (Signal(source="program", value="working", at=NOW - min(ago, 4.0)),)
    return Session(**{**base, **fields})


def working(name: str, last_line: str = "Reading kasmon/tui/fleet.py", **fields: Any) -> Session:
    return session(name, SessionState.WORKING, last_line=last_line, **fields)


def idle(name: str, last_line: str = "Done. Anything else?", **fields: Any) -> Session:
    return session(name, SessionState.IDLE, last_line=last_line, **fields)


def asking(name: str, *requests: Request, ago: float = 12.0, **fields: Any) -> Session:
    asks = requests or (command(name, "rm -rf build && make release", ago=ago),)
    return session(name, SessionState.ASKING, ago=ago, requests=asks, asking=asks[0].kind, **fields)


def ended(name: str, code: int | None = 0, *, signal: str | None = None, **fields: Any) -> Session:
    return session(name, SessionState.ENDED, exit_code=code, signal=signal, source="exit", pid=None, **fields)


def spent(session: Session, tokens: int, usd: float) -> Session:
    used = Tokens(input=int(tokens * 0.9), output=tokens - int(tokens * 0.9), context=tokens // 2, limit=200_000)
    return msgspec.structs.replace(session, tokens=used, cost_usd=usd)


def request(name: str, number: int = 1, *, ago: float = 12.0, **fields: Any) -> Request:
    base: dict[str, Any] = {
        "id": RequestId(f"{name}-{number}"),
        "session": SessionId(name),
        "asked_at": NOW - ago,
        "choices": STANDARD,
    }
    return seal(Request(**{**base, **fields}))


def command(name: str, line: str, number: int = 1, *, ago: float = 12.0, **fields: Any) -> Request:
    """Permission to run a shell command."""
    base: dict[str, Any] = {
        "tool": "Bash",
        "title": line,
        "input": {"command": line},
        "shown": line,
        "rule": f"Bash({line})",
    }
    return request(name, number, ago=ago, **{**base, **fields})


DIFF = """\
--- a/kasmon/tui/row.py
+++ b/kasmon/tui/row.py
@@ -41,9 +41,11 @@ def columns(width, names=20):
     widest = 14 if width < 60 else 20
-    name = Column("name", widest)
-    state = Column("state", 10)
+    name = Column("name", max(8, min(names, widest)))
+    state = Column("state", 12 if width >= 50 else 10)
+    since = Column("since", 5, right=True)
     agent = Column("agent", 9)
     return (state, name, agent)
"""


def change(name: str, number: int = 1, *, ago: float = 40.0, **fields: Any) -> Request:
    """Permission to edit a file."""
    base: dict[str, Any] = {
        "tool": "Edit",
        "title": "kasmon/tui/row.py",
        "input": {"file_path": "kasmon/tui/row.py"},
        "shown": DIFF,
        "is_diff": True,
        "rule": "Edit(kasmon/tui/row.py)",
    }
    return request(name, number, ago=ago, **{**base, **fields})


def question(name: str, number: int = 1, *, ago: float = 95.0, many: bool = False, **fields: Any) -> Request:
    base: dict[str, Any] = {
        "kind": RequestKind.QUESTION,
        "title": "Which database should the index use?",
        "shown": "Which database should the index use?\n\nThe tests pass with each of them; SQLite needs no server.",
        "options": ("SQLite in the state folder", "DuckDB, one more dependency", "A plain JSON file"),
        "choices": (Decision.CHOOSE,),
        "many": many,
    }
    return request(name, number, ago=ago, **{**base, **fields})


def plan(name: str, number: int = 1, *, ago: float = 60.0, **fields: Any) -> Request:
    text = (
        "## Plan\n\n1. Move the parser into a module of its own\n2. Give it tests of its own\n3. Delete the old one\n\n"
        "Nothing outside `kasmon/tmux` changes."
    )
    base: dict[str, Any] = {
        "kind": RequestKind.PLAN,
        "title": "Move the parser out of the server",
        "shown": text,
        "choices": (Decision.ALLOW, Decision.DENY),
    }
    return request(name, number, ago=ago, **{**base, **fields})


def login(name: str, number: int = 1, *, ago: float = 30.0) -> Request:
    return request(
        name,
        number,
        ago=ago,
        kind=RequestKind.AUTH,
        title="Sign in to continue",
        shown="The agent asks for a login in its own terminal.",
        choices=(),
        answerable=False,
    )


def crew() -> Fleet:
    """Twenty sessions, every state, two waves: what the pictures show."""
    tmux: dict[str, Any] = {"mode": Mode.TMUX}
    one: dict[str, Any] = {"plan": "search", "wave": 1, "peers": 4}
    two: dict[str, Any] = {"plan": "search", "wave": 2, "peers": 3}
    return fleet(
        spent(asking("fix-auth", ago=12, **one, task=3), 48_200, 0.31),
        spent(asking("rows-to-strips", change("rows-to-strips"), ago=40, agent="codex", **one, task=4), 91_000, 0.77),
        spent(asking("choose-store", question("choose-store"), plan("choose-store", 2), ago=95), 22_400, 0.14),
        asking("release-notes", login("release-notes"), ago=230, agent="gemini", **tmux),
        session(
            "migrate-db",
            SessionState.LOST,
            ago=65,
            last_line="Copying table sessions (41 of 60)",
            source="host",
            pid=None,
        ),
        spent(ended("flaky-ci", 3, ago=340, last_line="AssertionError: 2 != 3", agent="codex"), 12_900, 0.08),
        session(
            "legacy-shell",
            SessionState.UNSURE,
            ago=700,
            agent="shell",
            source="output",
            unsure_why="unknown program: no status detection",
            last_line="make: *** [all] Error 2",
            **tmux,
        ),
        spent(
            session(
                "big-refactor",
                SessionState.LIMITED,
                ago=410,
                limited_until=NOW + 1500,
                last_line="5-hour limit reached",
                **two,
                task=1,
            ),
            412_000,
            3.92,
        ),
        spent(idle("readme", "The README now opens with one command.", ago=75), 31_700, 0.22),
        idle("playground", "$ ", ago=5400, agent="shell", **tmux),
        session("seed-data", SessionState.STARTING, ago=2, agent="codex", source="launch", **two, task=2),
        spent(working("docs", "Bash  make html", ago=8, **tmux), 18_300, 0.11),
        spent(working("docs-links", "Grep  http:// in docs/", ago=21, parent=SessionId("docs"), **tmux), 4_100, 0.03),
        spent(working("tmux-hub", "Linking window @17 into the hub", ago=33, bypassing=True, **tmux), 77_000, 0.52),
        spent(working("parser", "Edit  kasmon/tmux/control.py", ago=47, agent="codex", **one, task=1), 64_500, 0.41),
        spent(
            working(
                "index",
                "Let me look at how the cursor is kept.",
                ago=64,
                agent="gemini",
                fallback="no protocol",
                **tmux,
            ),
            9_800,
            0.05,
        ),
        spent(working("perf", "pytest -k bench", ago=1240, stuck=True, agent="opencode", **tmux), 155_000, 1.36),
        spent(ended("typing", 0, ago=900, last_line="All 214 files pass mypy --strict", **one, task=2), 58_000, 0.44),
        session("night-run", SessionState.PAUSED, ago=7300, last_line="Paused until 06:00", **two, task=3),
        ended("spike", 0, ago=86500, stopped=True, end_why="stopped", last_line="pyte reads 0.45 MB/s"),
    )


def tagged_crew() -> Fleet:
    """`crew()`, with tags and in several folders."""
    tags = {
        "fix-auth": ("api", "urgent"),
        "rows-to-strips": ("tui",),
        "choose-store": ("api",),
        "migrate-db": ("api", "urgent"),
        "big-refactor": ("tui",),
        "readme": ("docs",),
        "docs": ("docs",),
        "docs-links": ("docs",),
        "parser": ("tui",),
        "spike": ("a-tag-with-a-long-name", "tui"),
    }
    folders = {"docs": "/home/you/site", "docs-links": "/home/you/site", "readme": "/home/you/site"}
    return fleet(
        *(
            msgspec.structs.replace(each, tags=tags.get(each.id, ()), workdir=folders.get(each.id, each.workdir))
            for each in crew().sessions
        )
    )
