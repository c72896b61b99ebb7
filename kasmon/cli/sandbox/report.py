"""The output about sandboxes: rows, details of one, and objects for programs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.cli.ls import is_utf8
from kasmon.cli.output.json_objects import session_object
from kasmon.cli.output.table import state_words
from kasmon.model.commands import Mode
from kasmon.model.formatting import age, count_text
from kasmon.model.sandbox.policy import MIB
from kasmon.model.sandbox.snapshot import ForkOrigin, SnapshotVerdict, describe_origin
from kasmon.model.sandbox.state import CheckpointSummary, SandboxUsage
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.supervisor.sandboxes.history import StoredSnapshots

NOTHING: Final = StoredSnapshots()


def sandbox_object(session: Session, remembered: StoredSnapshots = NOTHING) -> dict[str, Any]:
    """Return *session* as an object for programs, with its sandbox and memory snapshots."""
    sandbox_state = session.sandbox_state
    return session_object(session) | {
        "standby_at": sandbox_state.standby_at if sandbox_state else None,
        "held": sandbox_state.held if sandbox_state else False,
        "lost": sandbox_state.lost or None if sandbox_state else None,
        "sandbox_generation": sandbox_state.generation if sandbox_state else 0,
        "turn": sandbox_state.turn if sandbox_state else 0,
        "checkpoints": sandbox_state.checkpoints_counted if sandbox_state else 0,
        "usage": msgspec.to_builtins(sandbox_state.usage) if sandbox_state and sandbox_state.usage else None,
        "lost_at": sandbox_state.lost_at or None if sandbox_state else None,
        "phase_at": sandbox_state.phase_at or None if sandbox_state else None,
        "works_in": works_in(session),
        "snapshots": [snapshot_object(judged) for judged in remembered.snapshots],
        "origin": origin_object(remembered.origin),
    }


def works_in(session: Session) -> dict[str, Any] | None:
    """Return the sandbox's work folder on its machine, and whether it is a copy of the requested one."""
    runtime = session.sandbox_state.runtime if session.sandbox_state else None
    if session.mode is not Mode.INTERPRETER or runtime is None or not runtime.workspace:
        return None
    folder = session.locate(runtime.workspace)
    return {"folder": folder, "copy_of": copy_of(session, folder) or None}


def copy_of(session: Session, folder: str) -> str:
    """Return the folder of which *folder*, where the sandbox of *session* works, is a copy; empty if it is none."""
    if not session.workdir or session.workdir == folder:
        return ""
    return session.workdir if Path(session.workdir).resolve() != Path(folder).resolve() else ""


def works_in_words(session: Session) -> str:
    """Return `It works in '/x' itself.`, or the original and the path of its copy; empty if unknown."""
    where = works_in(session)
    if where is None:
        return ""
    if where["copy_of"]:
        return f"It works on a copy of {where['copy_of']!r}: {where['folder']!r}. The original is not changed."
    return f"It works in {where['folder']!r} itself."


def snapshot_object(judged: SnapshotVerdict) -> dict[str, Any]:
    """Return one memory snapshot as an object for programs: `usable`, or in `refused` why not."""
    snapshot = judged.snapshot
    return {
        **msgspec.to_builtins(snapshot),
        "size_bytes": snapshot.size_bytes,
        "usable": not judged.refused,
        "refused": judged.refused or None,
        "this_boot": judged.is_this_boot,
    }


def origin_object(origin: ForkOrigin | None) -> dict[str, Any] | None:
    """Return how much of its source a fork has, as an object for programs."""
    if origin is None:
        return None
    return {
        "session": origin.source,
        "name": origin.name,
        "at": origin.at,
        "whole": origin.is_whole,
        "with_memory": origin.with_memory,
        "checkpoint": origin.checkpoint or None,
        "why": origin.why or None,
    }


def row(session: Session, remembered: StoredSnapshots, now: float) -> str:
    sandbox_state = session.sandbox_state
    parts = [session.id, session.label, session.sandbox or "", state_words(session, utf8=is_utf8())]
    if sandbox_state is not None and not session.has_failed_to_start:
        parts += [sandbox_state.phase.value, count_text(sandbox_state.checkpoints_counted, "checkpoint")]
        parts += [_describe_use(sandbox_state.usage)] if sandbox_state.usage and not sandbox_state.is_asleep else []
    if sandbox_state is not None and sandbox_state.is_asleep and not sandbox_state.held:  # a restored one is obsolete
        parts += [f"memory snapshot {snapshot_words(judged, now)}" for judged in remembered.snapshots]
        parts += [f"memory snapshot: {remembered.missing}"] if remembered.missing else []
    return "  ".join(part for part in parts if part)


def snapshot_words(judged: SnapshotVerdict, now: float) -> str:
    """Return a snapshot's size, age, and why it is not restored: `54 MiB, 3m old, not valid: it is truncated`."""
    size = f"{_mib(judged.snapshot.size_bytes)}, " if judged.snapshot.parts else ""  # a service does not report it
    text = f"{size}{age(now - judged.at)} old"
    return f"{text}, not valid: {judged.refused}" if judged.refused else text


def about(session: Session, remembered: StoredSnapshots, points: Sequence[CheckpointSummary], now: float) -> list[str]:
    """Return all details of one sandbox, a line each; times as ages."""
    sandbox_state = session.sandbox_state
    lines = [
        f"{session.id}  {session.label}  {session.sandbox or 'no sandbox'}  {state_words(session, utf8=is_utf8())}"
    ]
    lines += [f"why         {session.end_why}"] if session.has_failed_to_start else []
    if sandbox_state is not None and not session.has_failed_to_start:
        held = " (in RAM)" if sandbox_state.held else ""
        lines.append(f"phase       {sandbox_state.phase.value}{held}")
        lines += [f"to come     {line}" for line in _to_come(session, now)]
        lines += (
            [f"uses        {_describe_use(sandbox_state.usage)}"]
            if sandbox_state.usage and not sandbox_state.is_asleep
            else []
        )
    lines += [f"work        {folder_text}"] if (folder_text := works_in_words(session)) else []
    if (origin := remembered.origin) is not None:
        lines.append(f"forked      from {origin.name} {age(now - origin.at)} ago, {describe_origin(origin)}")
    lines += [f"memory      {line}" for judged in remembered.snapshots for line in _about_memory(judged, now)]
    lines += [f"memory      {remembered.missing}"] if remembered.missing else []
    lines += [f"checkpoint  {point_row(point)}  {age(now - point.at)} old" for point in points]
    if sandbox_state is not None and sandbox_state.lost:
        lines.append(f"lost        {age(now - sandbox_state.lost_at)} ago: {sandbox_state.lost}")
    return lines


def _to_come(session: Session, now: float) -> list[str]:
    """Return the next timed steps if it stays unused, each as a few words."""
    sandbox_state = session.sandbox_state
    if sandbox_state is None or session.state not in ALIVE or session.in_turn:
        return []
    steps = (
        (sandbox_state.standby_at, "pauses"),
        (sandbox_state.pause_at, "pauses" if sandbox_state.tier == "e2b" else "pauses to disk"),
        (sandbox_state.expires_at, "expires"),
    )
    return [f"{what} in {age(at - now)} if unused" for at, what in steps if at is not None and at > now]


def _about_memory(judged: SnapshotVerdict, now: float) -> list[str]:
    snapshot = judged.snapshot
    boots = "this boot of the machine" if judged.is_this_boot else "an earlier boot of the machine"
    made_by = ", ".join(part for part in (snapshot.made_by.program, snapshot.made_by.machine) if part)
    return [
        f"{snapshot.id}  {snapshot_words(judged, now)}",
        f"of turn {snapshot.turn}, disk {snapshot.disk_generation}, by {made_by}, in {boots}",
    ]


def point_row(point: CheckpointSummary) -> str:
    lost = f"not saved: {', '.join(point.lost)}" if point.lost else ""
    parts = (point.id, f"{point.when} turn {point.turn}", _mib(point.size_bytes), point.commit[:12], point.what, lost)
    return "  ".join(part for part in parts if part)


def _describe_use(usage: SandboxUsage) -> str:
    of_memory = f" of {_mib(usage.memory_allowed)}" if usage.memory_allowed else ""
    of_disk = f" of {_mib(usage.disk_allowed)}" if usage.disk_allowed else ""
    return f"memory {_mib(usage.memory_bytes)}{of_memory}, disk {_mib(usage.disk_bytes)}{of_disk}"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.0f} MiB" if size_bytes >= 10 * MIB else f"{size_bytes / MIB:.1f} MiB"
