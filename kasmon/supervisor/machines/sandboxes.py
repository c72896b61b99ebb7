"""Sandboxes of another machine: what needs their files or a new host is done by `kasmon sandbox` there."""

from typing import Any

import msgspec

from kasmon.errors import KasmonError
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.model.commands import Allow, Checkpoint, Mode, Pause, Restore, Resume, SandboxCommand
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.model.sandbox.snapshot import ForkOrigin, Snapshot, SnapshotVerdict
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sandbox.checkpoint.records import CheckpointRecord
from kasmon.sandbox.checkpoint.replay import ReplayedRun, find_runs
from kasmon.sandbox.network.denials import Denial
from kasmon.store.event_log import EventLog
from kasmon.supervisor.machines.copied_files import read_blob
from kasmon.supervisor.machines.delegation import wait_for_copy
from kasmon.supervisor.machines.link_client import parse_reply, run_for
from kasmon.supervisor.sandboxes.history import SandboxHistory, StoredSnapshots
from kasmon.supervisor.sandboxes.sandbox_operations import ForkedSession


class _Origin(msgspec.Struct, frozen=True):
    """A fork's origin, as `kasmon sandbox ... --json` prints it."""

    session: SessionId
    name: str
    at: float
    whole: bool = False
    with_memory: bool = False
    checkpoint: str | None = None
    why: str | None = None

    def value(self) -> ForkOrigin:
        return ForkOrigin(
            source=self.session,
            name=self.name,
            at=self.at,
            is_whole=self.whole,
            with_memory=self.with_memory,
            checkpoint=self.checkpoint or "",
            why=self.why or "",
        )


class _Verdict(Snapshot, frozen=True, kw_only=True):
    """A memory snapshot, as it is printed."""

    refused: str | None = None
    this_boot: bool = True


class _Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A session with its sandbox, as it is printed; some fields only by `kasmon sandbox show`."""

    id: SessionId
    origin: _Origin | None = None
    snapshots: tuple[_Verdict, ...] = ()
    network: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    size: str = "default"
    project: str = ""
    project_writable: bool = False
    stored_checkpoints: tuple[CheckpointRecord, ...] = ()
    blocked: tuple[Denial, ...] = ()


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    session: _Sandbox
    lost: str | None = None


class _Checkpoint(msgspec.Struct, frozen=True):
    id: str


class _CheckpointReply(msgspec.Struct, frozen=True):
    checkpoint: _Checkpoint


class _Replay(msgspec.Struct, frozen=True):
    session: SessionId
    ran: tuple[dict[str, Any], ...]


async def execute(paths: Paths, session: Session, command: SandboxCommand) -> str:
    """Execute *command* there, where a host of the sandbox is started if none runs; return as `use.execute` does."""
    arguments: tuple[str, ...]
    match command:
        case Pause():
            arguments = ("pause", session.id, "--disk" if command.to_disk else "--hold")
        case Resume():
            arguments = ("resume", session.id)
        case Restore():
            arguments = ("restore", session.id, command.checkpoint)
        case Allow():
            arguments = ("allow", session.id, *command.hosts)
        case Checkpoint():
            output = await run_in_thread(run_for, paths, session, "sandbox", "checkpoint", session.id)
            return parse_reply(session.via, output, _CheckpointReply).checkpoint.id
        case _:
            raise TypeError(command)
    output = await run_in_thread(run_for, paths, session, "sandbox", *arguments)
    return "" if isinstance(command, Allow) else parse_reply(session.via, output, _Reply).lost or ""


async def fork(paths: Paths, session: Session, name: str, checkpoint: str) -> ForkedSession:
    """Fork the sandbox there; the fork is listed here when this returns. See `sandbox_operations.fork`."""
    arguments = ("fork", session.id, *([name] if name else []), *([f"--at={checkpoint}"] if checkpoint else []))
    output = await run_in_thread(run_for, paths, session, "sandbox", *arguments)
    made = parse_reply(session.via, output, _Reply)
    await wait_for_copy(paths, made.session.id, lambda now: now is not None)
    origin = made.session.origin or _Origin(session=session.id, name=session.name, at=0.0)
    return ForkedSession(session=made.session.id, origin=origin.value(), lost=made.lost or "")


async def replay(paths: Paths, session: Session, name: str, until: str) -> tuple[int, int]:
    """Replay there what the sandbox ran, in a new one; return the number of runs, and of those that failed."""
    arguments = ("replay", session.id, name, "--create", *([f"--until={until}"] if until else []))
    output = await run_in_thread(lambda: run_for(paths, session, "sandbox", *arguments, shows="ran"))
    done = parse_reply(session.via, output, _Replay)
    await wait_for_copy(paths, done.session, lambda now: now is not None)
    return len(done.ran), sum(bool(each.get("exit_code")) for each in done.ran)


def read_history(paths: Paths, session: Session) -> SandboxHistory:
    """Return the history of the sandbox; only what its log says if its machine does not answer. Blocks."""
    runs = tuple[ReplayedRun, ...]()
    if session.mode is Mode.INTERPRETER:
        facts = EventLog(paths.log(session.id)).events()
        runs = find_runs(facts, lambda digest: read_blob(paths, session, digest))
    try:
        output = run_for(paths, session, "sandbox", "show", session.id)
        shown = parse_reply(session.via, output, _Reply).session
        policy = msgspec.convert(
            {
                "session": session.id,
                "tier": session.sandbox,
                "size": shown.size,
                "project": shown.project,
                "project_writable": shown.project_writable,
                "hosts": shown.network,
                "refuse": shown.refuse,
            },
            SandboxPolicy,
        )
    except (KasmonError, msgspec.ValidationError):
        return SandboxHistory(runs=runs)
    verdicts = (
        SnapshotVerdict(snapshot=each, refused=each.refused or "", is_this_boot=each.this_boot)
        for each in shown.snapshots
    )
    return SandboxHistory(
        policy=policy,
        runs=runs,
        checkpoints=shown.stored_checkpoints,
        refused=shown.blocked,
        remembered=StoredSnapshots(
            snapshots=tuple(verdicts), origin=shown.origin.value() if shown.origin is not None else None
        ),
    )
