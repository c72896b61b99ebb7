"""The content of the sandbox screen: its header, its entries as rows, and the details of one entry. Pure."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from kasmon.model.formatting import age, clock, state_label, state_name
from kasmon.model.sandbox.snapshot import USED, SnapshotVerdict, describe_origin
from kasmon.model.session import Session
from kasmon.model.transcript import syntax
from kasmon.model.transcript.run_blocks import LANGUAGES
from kasmon.model.transcript.text import BLANK, Margin, TextLine, Token, wrap
from kasmon.sandbox.checkpoint.records import CheckpointRecord
from kasmon.sandbox.checkpoint.replay import ReplayedRun
from kasmon.sandbox.network.denials import Denial
from kasmon.sanitize import clean_block, clean_line
from kasmon.supervisor.sandboxes.history import SandboxHistory
from kasmon.tui.sandbox.status import amount, badge, is_broken, lost_words, meters, phases, proof_words, sleeps_on_disk
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, width_of
from kasmon.tui.widgets.text_lines import DrawnLine

SandboxEntry: TypeAlias = ReplayedRun | CheckpointRecord | Denial | SnapshotVerdict
SHORT: Final = 8
"""So many characters of a SHA are shown in a row."""
NARROW: Final = 100
"""Below this width only the badge's shape shows whether the sandbox is verified."""
AGED: Final = 70
"""From this width on, a checkpoint's row shows its age beside the time of day."""
MEAGRE: Final = 56
"""Below this width a row only shows its subject; the rest is in the details below the list."""
KIND: Final = 11
"""Cells of the entry's kind."""
INDENT: Final[Margin] = (("  ", Token.TEXT),)


def entries(past: SandboxHistory) -> tuple[SandboxEntry, ...]:
    """Return all entries, the newest first; without checkpoints before a turn that equal the one before them."""
    points: list[SandboxEntry] = []
    commit = None
    for point in past.checkpoints:
        if point.when != "before" or point.commit != commit:
            points.append(point)
        commit = point.commit
    snapshots = past.remembered.snapshots
    return tuple(sorted([*past.runs, *points, *past.refused, *snapshots], key=lambda entry: entry.at, reverse=True))


def point_of(entry: SandboxEntry, past: SandboxHistory) -> str:
    """Return the checkpoint of the state after *entry*; empty if none is stored."""
    if isinstance(entry, CheckpointRecord):
        return entry.id
    if isinstance(entry, Denial | SnapshotVerdict) or not entry.turn:
        return ""
    kept = (point.id for point in past.checkpoints if point.when == "after" and point.turn == entry.turn)
    return next(kept, "")


def turn_of(entry: SandboxEntry) -> int:
    """Return the turn whose changes can be shown; 0 if there is none."""
    if isinstance(entry, ReplayedRun):
        return entry.turn
    return entry.turn if isinstance(entry, CheckpointRecord) and entry.when == "after" else 0


def explain_refusal(past: SandboxHistory) -> str:
    """Return why its memory snapshot cannot be resumed; empty if one can, or there never was one."""
    remembered = past.remembered
    return clean_line(remembered.missing or next((judged.refused for judged in remembered.snapshots), ""))


def head(session: Session, past: SandboxHistory | None, look: ThemeStyles, now: float, width: int) -> list[DrawnLine]:
    """Return the header: the sandbox, its state, its usage and its permissions."""
    sandbox_state = session.sandbox_state
    if sandbox_state is None:
        return [DrawnLine(((f" {clean_line(session.label)}", "text.bold"), ("  no longer has a sandbox", "soft")))]
    dot, name = f" {look.mark('dot')} ", state_name(session)
    left: list[StyledSpan] = [
        (f" {clean_line(session.label)}", "text.bold"),
        ("  ", "text"),
        *badge(session, look),
        ("" if is_broken(session) or width < NARROW else f" {proof_words(session)}", "soft"),
        ("   ", "text"),
        (f"{look.state_glyph(name)} {state_label(session)}", f"state-{name}"),
        ("".join(f"{dot}{words}" for words in phases(session, now)), "soft"),
    ]
    lines = [DrawnLine(tuple(left))]
    if used := meters(session, look, bars=width >= SHORT * 12, processes=True):
        lines.append(DrawnLine(((" ", "text"), *used)))
    if past is not None and past.policy is not None:
        policy = past.policy
        hosts = ", ".join(map(clean_line, policy.hosts))
        about: list[StyledSpan] = [(" network ", "faint"), (hosts or "off", "text")]
        if policy.hosts and policy.refuse:
            refuse = ", ".join(map(clean_line, policy.refuse))
            about += [("   always blocked ", "faint"), (refuse, "text")]
        about += [("   size ", "faint"), (policy.size, "text")]
        about += [("   project ", "faint"), (clean_line(policy.project), "text")] if policy.project else []
        about += [(" writable", "warn")] if policy.project and policy.project_writable else []
        lines.append(DrawnLine(tuple(about)))
    lines += _of_memory(session, past, now) if past is not None else []
    if is_broken(session):
        lines.append(DrawnLine(((f" {look.mark('breach')} {proof_words(session)}", "bad.bold"),)))
    if sandbox_state.lost:
        lines.append(DrawnLine(((" ! ", "warn.bold"), (f"lost {lost_words(session, now)}", "warn"))))
    return lines


def _of_memory(session: Session, past: SandboxHistory, now: float) -> list[DrawnLine]:
    """Return the origin of a fork, and the state of the memory snapshot if it is paused to disk."""
    about: list[StyledSpan] = []
    if (origin := past.remembered.origin) is not None:
        text = f"{clean_line(origin.name)}, {clean_line(describe_origin(origin))}  "
        about += [(" forked from ", "faint"), (text, "text" if origin.with_memory else "warn")]
    why = explain_refusal(past) if sleeps_on_disk(session) else ""
    for judged in past.remembered.snapshots if sleeps_on_disk(session) and not why else ():
        text = f"{amount(judged.snapshot.size_bytes)}, {age(now - judged.at)} old"
        about += [(" memory snapshot ", "faint"), (text, "text")]
    lines = [DrawnLine(tuple(about))] if about else []
    if why:
        lines.append(DrawnLine(((" ! ", "warn.bold"), (f"the memory snapshot cannot be used: {why}", "warn"))))
    return lines


def row(entry: SandboxEntry, look: ThemeStyles, width: int, now: float, *, is_here: bool) -> DrawnLine:
    """Return one entry as a line; for checkpoints and snapshots with their age."""
    mark: StyledSpan = (f"{look.mark('cursor') if is_here else ' '} ", "accent")
    when: StyledSpan = (f"{clock(entry.at, None)}  ", "faint")
    loud, word = "text.bold" if is_here else "text", ""
    match entry:
        case ReplayedRun():
            is_open, is_ok = entry.exit_code is None, entry.exit_code == 0
            sign = look.mark("more") if is_open else ("✓" if look.utf8 else "+") if is_ok else f"exit {entry.exit_code}"
            word, role, text = entry.interpreter, "says-tool", _first_line(entry.code)
            ending: StyledSpan = (f" {sign}", "faint" if is_open else "good" if is_ok else "bad")
            right = [ending, (f"  turn {entry.turn}" if entry.turn else "", "faint"), _sha(entry.commit)]
        case CheckpointRecord():
            word, role = clean_line(entry.id), "info"
            text, loud = _point_words(entry), "text.bold" if is_here else "soft"
            lost = (f" {len(entry.lost)} not saved" if entry.lost else "", "warn")
            old = f"  {_old(entry.at, now)}" if width >= AGED else ""
            size = f"{old}  {amount(entry.size_bytes)}"
            right = [lost, (size, "faint"), _sha(entry.commit)]
        case SnapshotVerdict():
            word, role = "snapshot", "warn" if entry.refused not in ("", USED) else "info"
            text, loud = _memory_words(entry), "text.bold" if is_here else "soft"
            old = f"  {_old(entry.at, now)}" if width >= AGED else ""
            size = f"{old}  {amount(entry.snapshot.size_bytes)}"
            right = [(size, "faint"), (f"  {f'turn {entry.snapshot.turn}':{SHORT}}", "faint")]
        case Denial():
            word, role = "blocked", "bad"
            text, right = f"{clean_line(entry.host) or 'an address'}:{entry.port}", [("", "faint")]
    if width < MEAGRE:
        right = [] if isinstance(entry, SnapshotVerdict) else right[:1]
    first: list[StyledSpan] = [mark, when, (look.fit(word, KIND), role)]
    space = width - width_of(first) - width_of(right) - 2
    return DrawnLine((*first, (look.cut(text, max(space, 0)), loud)), (*right, (" ", "text")), chosen=is_here)


def about(entry: SandboxEntry, past: SandboxHistory, width: int) -> Sequence[TextLine]:
    match entry:
        case ReplayedRun():
            return _about_run(entry, past, width)
        case CheckpointRecord():
            return _about_point(entry, width)
        case SnapshotVerdict():
            return _about_memory(entry, width)
    detail_rows = [(entry.why, Token.ERROR)]
    fix = f"Allow it here, or with `{entry.fix}`." if entry.fix else "No command allows this."
    rows = [row for text, token in detail_rows for row in wrap([(clean_line(text), token)], width)]
    return [*rows, BLANK, *wrap([(clean_line(fix), Token.NOTICE)], width)]


def _about_run(run: ReplayedRun, past: SandboxHistory, width: int) -> list[TextLine]:
    end = "exit code unknown" if run.exit_code is None else f"exit code {run.exit_code}"
    token = Token.FAINT if run.exit_code is None else Token.OK if not run.exit_code else Token.FAILED
    rows = wrap([(f"{run.interpreter}  ", Token.TOOL), (end, token)], width)
    rows += wrap([(f"started {clock(run.at, None, day=True)}", Token.FAINT)], width)
    if point := point_of(run, past):
        rows += wrap(
            [(f"turn {run.turn}, checkpoint {clean_line(point)}, {clean_line(run.commit)}", Token.FAINT)], width
        )
    else:
        rows += wrap([("no checkpoint", Token.FAINT)], width)
    rows.append(BLANK)
    lines = clean_block(run.code).rstrip("\n").split("\n")
    for spans in syntax.highlight(lines, LANGUAGES.get(run.interpreter, "")):
        rows += wrap(spans or (("", Token.CODE_BLOCK),), width, words=False)
    return rows


def _about_point(point: CheckpointRecord, width: int) -> list[TextLine]:
    rows = wrap([(f"{clean_line(point.id)}  ", Token.TOOL), (_point_words(point), Token.SUBJECT)], width)
    for text in (clock(point.at, None, day=True), f"files {amount(point.size_bytes)}, {clean_line(point.commit)}"):
        rows += wrap([(text, Token.FAINT)], width)
    parts = (
        ("Saved variables", point.kept, Token.OUTPUT),
        ("Not saved", point.lost, Token.WARNING),
        ("Files not included", point.left, Token.WARNING),
    )
    for title, names, token in parts:
        if names:
            rows += [BLANK, *wrap([(title, Token.HEADING)], width)]
            rows += [row for name in names for row in wrap([(clean_line(name), token)], width, INDENT, INDENT)]
    if not point.kept and not point.lost:
        rows += [BLANK, *wrap([("No variables to save.", Token.FAINT)], width)]
    return rows


def _about_memory(judged: SnapshotVerdict, width: int) -> list[TextLine]:
    snapshot = judged.snapshot
    boot_text = "since the last boot" if judged.is_this_boot else "before the last boot"
    rows = wrap([(f"snapshot {clean_line(snapshot.id)}  ", Token.TOOL), (_memory_words(judged), Token.SUBJECT)], width)
    for text in (
        f"{clock(judged.at, None, day=True)}, {boot_text}",
        f"{amount(snapshot.size_bytes)}, after turn {snapshot.turn}, disk {snapshot.disk_generation}",
        f"by {clean_line(', '.join(part for part in (snapshot.made_by.program, snapshot.made_by.machine) if part))}",
    ):
        rows += wrap([(text, Token.FAINT)], width)
    note = "Can be resumed once, with all interpreter state."
    if judged.refused == USED:
        note = "Already resumed; kept until the next snapshot is written."
    elif judged.refused:
        note = "Resuming keeps the files. Interpreter state that was not saved is lost."
    return [*rows, BLANK, *wrap([(note, Token.WARNING if judged.refused not in ("", USED) else Token.NOTICE)], width)]


def _memory_words(judged: SnapshotVerdict) -> str:
    if judged.refused == USED:
        return "on disk, used"
    return f"cannot be used: {clean_line(judged.refused)}" if judged.refused else "on disk, valid"


def _point_words(point: CheckpointRecord) -> str:
    return "manual checkpoint" if point.when == "asked" else f"{point.when} turn {point.turn}"


def _first_line(text: str) -> str:
    return next((clean_line(line) for line in clean_block(text).split("\n") if line.strip()), "")


def _old(at: float, now: float) -> str:
    return f"{age(now - at):>3}"


def _sha(commit: str) -> StyledSpan:
    return (f"  {clean_line(commit)[:SHORT]}" if commit else "", "faint")
