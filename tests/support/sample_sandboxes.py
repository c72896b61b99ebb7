"""Sessions in sandboxes as values, with what ran in one: on the clock of `fleets`."""

from typing import Any

import msgspec

from kasmon.model import events
from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import MIB, SandboxPhase, SandboxPolicy, Tier
from kasmon.model.sandbox.snapshot import ForkOrigin, Snapshot, SnapshotMaker, SnapshotPart, SnapshotVerdict
from kasmon.model.sandbox.state import CheckpointSummary, Confinement, SandboxState, SandboxUsage
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.sandbox.checkpoint.records import CheckpointRecord
from kasmon.sandbox.checkpoint.replay import ReplayedRun
from kasmon.sandbox.network.denials import Denial
from kasmon.supervisor.sandboxes.history import SandboxHistory, StoredSnapshots
from tests.support.sample_fleet import NOW, asking, fleet, session, working

SHA = "4f1c2b9ad0e7735c18a60f2e9b7d41c3a5e6f708"
LEAK = ("the network can be reached", "it may write to /etc")
LOST_MEMORY = "interpreter state lost; files kept"
LOST = "the sandbox died and was healed: interpreter state lost; files kept"


def sandbox_state(**fields: Any) -> SandboxState:
    base: dict[str, Any] = {
        "phase": SandboxPhase.RUNNING,
        "is_intended": False,
        "generation": 1,
        "turn": 3,
        "born_at": NOW - 3600,
        "used_at": NOW - 180,
        "standby_at": NOW + 720,
        "expires_at": NOW + 1620,
        "confinement": Confinement(ok=True, at=NOW - 3000),
        "usage": SandboxUsage(
            memory_bytes=212 * MIB,
            memory_allowed=512 * MIB,
            disk_bytes=71 * MIB,
            disk_allowed=1024 * MIB,
            processes=6,
            processes_allowed=256,
        ),
        "checkpoints": (CheckpointSummary(id="c6", turn=3),),
        "checkpoints_counted": 6,
    }
    return SandboxState(**{**base, **fields})


def interpreters(name: str, state: SessionState = SessionState.IDLE, **fields: Any) -> Session:
    base: dict[str, Any] = {
        "mode": Mode.INTERPRETER,
        "backend": "interpreter",
        "agent": "interpreters",
        "sandbox": "jail",
        "last_line": "python: frame.describe()",
        "abilities": ("interrupts", "streams"),
    }
    lives = fields.pop("sandbox_state", sandbox_state())
    return session(name, state, sandbox_state=lives, **{**base, **fields})


def sandboxes() -> Fleet:
    """Sandboxes in every phase that a person may see, beside agents with and without one."""
    asleep = sandbox_state(phase=SandboxPhase.PAUSED, held=True, standby_at=None)
    confined: dict[str, Any] = {"sandbox": "jail"}
    return fleet(
        asking("fix-auth", ago=12, sandbox_state=sandbox_state(usage=None), **confined),
        working("docs", "Bash  make html", ago=8, mode=Mode.TMUX, sandbox_state=sandbox_state(usage=None), **confined),
        working(
            "parser",
            ago=47,
            sandbox_state=sandbox_state(confinement=Confinement(ok=False, mismatches=LEAK)),
            **confined,
        ),
        interpreters("numbers", ago=180),
        interpreters(
            "import-csv",
            SessionState.WORKING,
            ago=4,
            in_turn=True,
            last_line="python: rows = load('orders.csv')",
            sandbox_state=sandbox_state(
                usage=SandboxUsage(
                    memory_bytes=490 * MIB, memory_allowed=512 * MIB, disk_bytes=800 * MIB, disk_allowed=1024 * MIB
                )
            ),
        ),
        interpreters("etl", SessionState.STANDBY, ago=1100, last_line="bash: make all", sandbox_state=asleep),
        interpreters(
            "scratch",
            SessionState.STARTING,
            ago=2,
            last_line="",
            sandbox_state=sandbox_state(
                phase=SandboxPhase.HEALING, is_intended=True, standby_at=None, confinement=None, usage=None
            ),
        ),
        interpreters(
            "nightly",
            ago=1700,
            last_line="node: tally()",
            sandbox_state=sandbox_state(standby_at=None, expires_at=NOW + 95),
        ),
        working("index", agent="gemini", mode=Mode.TMUX),
    )


CODE = """\
import csv, statistics

with open("orders.csv") as file:
    rows = list(csv.DictReader(file))

totals = [float(row["total"]) for row in rows]
print(len(rows), "orders, median", statistics.median(totals))
"""


def past() -> SandboxHistory:
    """What ran in `numbers`."""

    def run(number: int, interpreter: Any, code: str, ago: float, exit_code: int | None = 0) -> ReplayedRun:
        sha = f"{number}{SHA[1:]}"
        return ReplayedRun(
            at=NOW - ago, interpreter=interpreter, code=code, exit_code=exit_code, turn=number, commit=sha
        )

    def point(number: int, turn: int, when: Any, ago: float, **fields: Any) -> CheckpointRecord:
        return CheckpointRecord(
            id=f"c{number}",
            turn=turn,
            when=when,
            at=NOW - ago,
            commit=f"{turn - (when == 'before')}{SHA[1:]}",
            size_bytes=71 * MIB,
            **fields,
        )

    fix = "kasmon sandbox allow numbers example.org"
    return SandboxHistory(
        policy=SandboxPolicy(session=SessionId("numbers"), hosts=("pypi",), project="/home/you/project"),
        runs=(
            run(1, "bash", "pip install tabulate\ncurl -O https://example.org/orders.csv", 900, 6),
            run(2, "python", CODE, 400),
            run(3, "python", "frame = table(rows)\nframe.describe()", 182),
        ),
        checkpoints=(
            point(1, 1, "before", 902),
            point(2, 1, "after", 880),
            point(3, 2, "before", 401),
            point(4, 2, "after", 399, kept=("python rows", "python totals"), lost=("python file (open file)",)),
            point(5, 3, "after", 180, kept=("python rows", "python totals", "python frame")),
            point(6, 3, "asked", 60, kept=("python rows", "python totals", "python frame")),
        ),
        refused=(
            Denial(
                at=NOW - 895,
                host="example.org",
                port=443,
                why="example.org:443 is not on the list of this sandbox",
                fix=fix,
            ),
        ),
    )


MADE_BY = SnapshotMaker(program="qemu 7.2.22", machine="pc-q35-7.2", cpu="Nehalem tcg", image="be76830d4681de88")
SPENT = "it could not be resumed (its memory snapshot is not used: it is truncated: memory has 4096 bytes of 91226112)"


def memory(refused: str = "", *, ago: float = 165.0, tier: Tier = "microvm") -> SnapshotVerdict:
    """What `numbers` sleeps in, of a machine."""
    return SnapshotVerdict(
        snapshot=Snapshot(
            id="6ce25bfbf5a2",
            session=SessionId("numbers"),
            tier=tier,
            at=NOW - ago,
            turn=3,
            disk_generation=2,
            made_by=MADE_BY,
            parts=(SnapshotPart(name="memory", size_bytes=87 * MIB, sha256="0" * 64),),
        ),
        refused=refused,
    )


def remembered(refused: str = "", **fields: Any) -> SandboxHistory:
    """What is known of `numbers` where its sandbox is a machine that sleeps on disk."""
    origin = ForkOrigin(source=SessionId("base"), name="base", at=NOW - 7200, is_whole=True, with_memory=True)
    known = StoredSnapshots(snapshots=(memory(refused),), origin=origin, **fields)
    policy = SandboxPolicy(session=SessionId("numbers"), tier="microvm")
    return msgspec.structs.replace(past(), policy=policy, refused=(), remembered=known)


def machine(name: str, state: SessionState = SessionState.IDLE, tier: Tier = "microvm", **fields: Any) -> Session:
    """A session of interpreters in a tier that keeps memory; nobody has looked into that from within."""
    lived = fields.pop("sandbox_state", {})
    base = {"tier": tier, "confinement": None}
    return interpreters(name, state, sandbox=tier, sandbox_state=sandbox_state(**{**base, **lived}), **fields)


def machines() -> Fleet:
    """Sandboxes that keep memory, in every phase that a person may see."""
    asleep: dict[str, Any] = {"phase": SandboxPhase.PAUSED, "standby_at": None, "usage": None}
    moving: dict[str, Any] = {"is_intended": True, "standby_at": None, "usage": None}
    return fleet(
        machine("numbers", SessionState.PAUSED, ago=165, sandbox_state={**asleep, "snapshot": "6ce25bfbf5a2"}),
        machine("train", SessionState.WORKING, ago=41, in_turn=True, last_line="python: model.fit(rows)"),
        machine(
            "train-2",
            SessionState.PAUSED,
            ago=3,
            last_line="python: model.fit(rows)",
            sandbox_state={**moving, "phase": SandboxPhase.PAUSING, "phase_at": NOW - 3},
        ),
        machine(
            "etl",
            SessionState.STARTING,
            "microvm",
            ago=2,
            last_line="bash: make all",
            sandbox_state={**moving, "phase": SandboxPhase.RESUMING, "phase_at": NOW - 2, "snapshot": "x"},
        ),
        machine(
            "scrape",
            SessionState.STARTING,
            "microvm",
            ago=1,
            sandbox_state={**moving, "phase": SandboxPhase.HEALING, "is_intended": False, "phase_at": NOW - 1},
        ),
        machine("parse", SessionState.STANDBY, "microvm", ago=1100, sandbox_state={**asleep, "held": True}),
        machine("remote", SessionState.PAUSED, "e2b", ago=4000, sandbox_state={**asleep, "snapshot": "y"}),
        machine("crunch", ago=300, sandbox_state={"lost": f"{SPENT}: {LOST_MEMORY}", "lost_at": NOW - 290}),
        interpreters("plain", ago=500),
        working("docs"),
    )


def talk() -> tuple[events.Event, ...]:
    """The transcript of `numbers`."""

    def ran(call: str, at: float, tool: str, code: str, output: str, exit_code: int = 0) -> tuple[events.Event, ...]:
        shown = msgspec.json.encode({"code": code}).decode()
        first = code.split("\n", 1)[0]
        return (
            events.TurnStarted(at=at, prompt=f"{tool}: {first}"),
            events.ToolStarted(at=at, call=call, tool=tool, title=first, input=shown),
            events.ToolFinished(at=at + 0.012, call=call, ok=not exit_code, output=output, exit_code=exit_code),
            events.TurnEnded(at=at + 0.5),
        )

    return (
        events.SandboxPhaseChanged(at=NOW - 1000, phase=SandboxPhase.RUNNING, why="made"),
        events.ConfinementSeen(at=NOW - 1000, ok=True),
        *ran(
            "1",
            NOW - 900,
            "bash",
            "pip install tabulate\ncurl -O https://example.org/orders.csv",
            "curl: (6) Could not resolve host\nNetwork: example.org:443 is not on the list of this sandbox; "
            "allow it with `kasmon sandbox allow numbers example.org`.",
            6,
        ),
        *ran("2", NOW - 400, "python", CODE, "1042 orders, median 38.5"),
        events.Checkpointed(at=NOW - 399, checkpoint="c4", turn=2, commit=SHA, lost=("python file (open file)",)),
        events.SandboxPhaseChanged(at=NOW - 300, phase=SandboxPhase.HEALING, why="its agent inside died", lost=LOST),
        *ran("3", NOW - 182, "python", "frame = table(rows)\nframe.describe()", "mean 41.2, max 612.0"),
    )
