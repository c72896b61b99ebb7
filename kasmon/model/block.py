"""What one event, with those that finish it, looks like: `draw` makes rows of it.

Everything foreign is cleaned here.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from kasmon.clean import Clean, clean_block, clean_line
from kasmon.model import asked, diff, markdown
from kasmon.model.command import ReceiptState
from kasmon.model.drawing import BELOW, INDENT, UNDER, Look
from kasmon.model.event import (
    Event,
    ForeignSeen,
    LimitLifted,
    LimitReached,
    LineFound,
    LineLost,
    MessageSaid,
    NoticeRaised,
    Opened,
    PlanUpdated,
    QueueOrdered,
    ReceiptMoved,
    RequestAnswered,
    RequestOpened,
    RequestSetAside,
    RequestWithdrawn,
    SessionCreated,
    SessionEnded,
    SessionForgotten,
    SessionRenamed,
    SessionStarted,
    SettingsChanged,
    SignalSeen,
    ThoughtSaid,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Unknown,
    UsageReported,
)
from kasmon.model.figures import clock, compact, duration
from kasmon.model.text import BLANK, Line, Span, Token, cells, fitted, flowed

FOLD_LINES: Final = 12
"""How many lines of a tool's output are drawn where folding is on."""
FOLD_DIFF_LINES: Final = 60
FOLD_CHARACTERS: Final = 1000
"""How much of one long line is drawn likewise."""


class Block(msgspec.Struct, frozen=True):
    """An event that is drawn, and the later ones that belong to it."""

    event: Event
    then: tuple[Event, ...] = ()


def draw(block: Block, look: Look) -> list[Line]:
    """The rows of *block*; none for events that only machines care about."""
    match block.event:
        case TurnStarted() as turn:
            return _prompt(turn, look)
        case MessageSaid() as said:
            return [BLANK, *markdown.drawn(clean_block(said.text), look.width, INDENT), *_cut_off(said.blob, look)]
        case ThoughtSaid() as thought:
            return [BLANK, *flowed([(clean_block(thought.text), Token.THOUGHT)], look.width, (("✻ ", Token.THOUGHT),))]
        case ToolStarted() | ToolFinished():
            return _tool(block.event, block.then, look)
        case PlanUpdated() as plan:
            return _plan(plan, look)
        case RequestOpened() as opened:
            return [
                *asked.request(opened.request, look),
                *(row for event in block.then for row in asked.answer(event, look)),
            ]
        case RequestAnswered() | RequestSetAside() | RequestWithdrawn():
            return asked.answer(block.event, look)
        case UsageReported() as usage:
            return _row([(f"· {_used(usage)}", Token.FAINT)], look)
        case NoticeRaised() as notice:
            token = {"info": Token.NOTICE, "warning": Token.WARNING, "error": Token.ERROR}[notice.level]
            sign = {"info": "·", "warning": "!", "error": "✗"}[notice.level]
            return flowed([(clean_block(notice.text), token)], look.width, ((f"{sign} ", token),))
        case ForeignSeen() as foreign:
            return _row([(f"· {clean_line(foreign.what)}: not known to this version of kasmon", Token.FAINT)], look)
        case SettingsChanged() as now:
            told = " · ".join(clean_line(text) for text in (now.model, now.permission_mode) if text)
            return _row([(f"· now {told}", Token.FAINT)], look) if told else []
        case LimitReached() as limit:
            until = f" · until {clock(limit.until, look.zone)}" if limit.until is not None else ""
            return _row([(f"◔ {clean_line(limit.text) or 'limited'}{until}", Token.LIMIT)], look)
        case LimitLifted():
            return _row([("◔ the limit is lifted", Token.LIMIT)], look)
        case TurnEnded() as ended:
            return _turn_end(ended, block.then, look)
        case SessionStarted() as started:
            return _started(started, look)
        case SessionEnded() as ended_session:
            return _ended(ended_session, look)
        case LineLost() as lost:
            why = f": {clean_line(lost.why)}" if lost.why else ""
            return _row([(f"✗ the {lost.what} is gone{why}", Token.ERROR)], look)
        case LineFound():
            return _row([("· it is back", Token.NOTICE)], look)
        case ReceiptMoved() as moved if moved.receipt.state in (ReceiptState.REFUSED, ReceiptState.LOST):
            reason = f" · {clean_line(moved.receipt.reason)}" if moved.receipt.reason else ""
            prompt = f"! prompt {moved.receipt.state}: {clean_line(moved.receipt.text)}{reason}"
            return _row([(prompt, Token.WARNING)], look)
        case Unknown():
            return _row([("· something that this version of kasmon cannot read", Token.FAINT)], look)
        case (
            Opened()
            | SessionCreated()
            | SessionRenamed()
            | SessionForgotten()
            | SignalSeen()
            | ReceiptMoved()
            | QueueOrdered()
        ):
            return []
        case other:
            assert_never(other)


def live(text: str, thinking: bool, look: Look) -> list[Line]:
    """The rows of a message that is still being written."""
    if not text:
        return []
    said = ThoughtSaid(at=0.0, text=text) if thinking else MessageSaid(at=0.0, text=text)
    return draw(Block(said), look)


def _prompt(turn: TurnStarted, look: Look) -> list[Line]:
    sender = {"user": "", "wave": "wave", "peer": "peer", "agent": "by itself"}[turn.by]
    rows = flowed([(clean_block(turn.prompt), Token.PROMPT)], look.width, (("❯ ", Token.PROMPT),))
    return [BLANK, *rows, *(_row([(f"  ({sender})", Token.FAINT)], look) if sender else [])]


def _tool(event: ToolStarted | ToolFinished, then: Sequence[Event], look: Look) -> list[Line]:
    finished = next((each for each in (event, *then) if isinstance(each, ToolFinished)), None)
    if isinstance(event, ToolStarted):
        subject = clean_line(event.title) or clean_line(event.input if event.input != "{}" else "")
        name = clean_line(event.tool)
    else:
        name, subject = clean_line("a tool"), clean_line(event.call)
    sign: Span = (" …", Token.FAINT)
    if finished is not None:
        sign = (" ✓", Token.OK) if finished.ok else (" ✗", Token.FAILED)
    beginning, hidden = _short(subject, look)
    more = f"… {hidden} more characters" if hidden else ""
    head = [(name, Token.TOOL), (f" {beginning}" if subject else "", Token.SUBJECT), (more, Token.FAINT), sign]
    rows = [BLANK, *fitted(head, look.width, (("● ", sign[1]),), INDENT)]
    if finished is not None:
        rows += _result(finished, look)
    return rows


def _result(finished: ToolFinished, look: Look) -> list[Line]:
    rows: list[Line] = []
    if finished.diff:
        shown, hidden = _folded(clean_block(finished.diff), FOLD_DIFF_LINES, look)
        rows += [*diff.drawn(shown, look.width, UNDER), *_hidden(hidden, "lines", look)]
    if finished.output:
        token = Token.OUTPUT if finished.ok else Token.FAILED
        shown, hidden = _folded(clean_block(finished.output), FOLD_LINES, look)
        for number, line in enumerate(shown):
            beginning, cut = _short(line, look)
            rows += fitted([(beginning, token)], look.width, UNDER if number else BELOW, UNDER, words=False)
            rows += _hidden(cut, "characters", look)
        rows += _hidden(hidden, "lines", look)
    return [*rows, *_cut_off(finished.blob, look)]


def _plan(plan: PlanUpdated, look: Look) -> list[Line]:
    rows = [BLANK, *fitted([("Plan", Token.TOOL)], look.width, (("● ", Token.TOOL),), INDENT)]
    for item in plan.items:
        sign, token = {"open": ("☐", Token.OPEN), "doing": ("◐", Token.DOING), "done": ("☒", Token.DONE)}[item.state]
        rows += fitted([(clean_line(item.text), token)], look.width, ((f"  {sign} ", token),), UNDER)
    return rows


def _turn_end(ended: TurnEnded, then: Sequence[Event], look: Look) -> list[Line]:
    began = next((event.at for event in then if isinstance(event, TurnStarted)), None)
    usage = next((event for event in then if isinstance(event, UsageReported)), None)
    word = {"done": "done", "interrupted": "interrupted", "limit": "stopped by a limit", "error": "failed"}
    parts = [word[ended.reason], clock(ended.at, look.zone)]
    if began is not None and ended.at >= began:
        parts.append(duration(ended.at - began))
    if usage is not None:
        parts.append(_used(usage))
    label = f"── {' · '.join(parts)} "
    rows = flowed([(clean_block(ended.error), Token.ERROR)], look.width, (("✗ ", Token.ERROR),)) if ended.error else []
    filling = "─" * max(0, look.width - cells(label))
    return [BLANK, *rows, *_row([(label + filling, Token.BOUNDARY)], look)]


def _started(started: SessionStarted, look: Look) -> list[Line]:
    again = f" · start {started.generation}" if started.generation > 1 else ""
    parts = [clean_line(part) for part in (started.backend, started.model) if part]
    told = " · ".join(["▶ session started" + again, *dict.fromkeys(parts), clock(started.at, look.zone, day=True)])
    return _row([(told, Token.SESSION)], look)


def _ended(ended: SessionEnded, look: Look) -> list[Line]:
    bad = ended.signal is not None or ended.exit_code != 0
    if ended.signal is not None:
        told = f"killed by {clean_line(ended.signal)}"
    elif ended.exit_code is not None:
        told = f"ended with exit code {ended.exit_code}"
    else:
        told = "ended; nobody could say how"
    why = f" · {clean_line(ended.why)}" if ended.why else ""
    token = Token.ERROR if bad and ended.why != "stopped" else Token.SESSION
    return [BLANK, *_row([(f"■ {told}{why} · {clock(ended.at, look.zone)}", token)], look)]


def _row(spans: Sequence[Span], look: Look) -> list[Line]:
    return fitted(spans, look.width)


def _folded(text: Clean, most: int, look: Look) -> tuple[list[str], int]:
    """The lines of *text* that are drawn, and how many are not."""
    lines = text.removesuffix("\n").split("\n")
    if not look.fold or len(lines) <= most + 1:
        return lines, 0
    return lines[:most], len(lines) - most


def _hidden(count: int, what: str, look: Look) -> list[Line]:
    return fitted([(f"… {count} more {what}", Token.FAINT)], look.width, UNDER, UNDER) if count else []


def _short(line: str, look: Look) -> tuple[str, int]:
    """As much of *line* as is drawn, and how many characters are not."""
    hidden = max(0, len(line) - FOLD_CHARACTERS) if look.fold else 0
    return line[: len(line) - hidden], hidden


def _cut_off(blob: str, look: Look) -> list[Line]:
    told = f"… cut here; the whole of it is kept as blob {clean_line(blob)[:12]}"
    return fitted([(told, Token.FAINT)], look.width, UNDER, UNDER) if blob else []


def _used(usage: UsageReported) -> str:
    cost = f" · ${usage.cost_usd:.2f}" if usage.cost_usd is not None else ""
    window = f" · context {100 * usage.context // usage.limit} %" if usage.limit else ""
    return f"{compact(usage.input)} in, {compact(usage.output)} out{window}{cost}"
