"""What one event, with those that finish it, looks like: `draw` makes rows of it.

Everything foreign is cleaned here.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from kasmon.clean import Clean, clean_block, clean_line
from kasmon.model import asked, folding, markdown, ran, sandboxed, tool
from kasmon.model.command import ReceiptState
from kasmon.model.drawing import INDENT, UNDER, Look
from kasmon.model.event import (
    Checkpointed,
    ConfinementSeen,
    ContextSaid,
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
    SandboxMeasured,
    SandboxMoved,
    SessionCreated,
    SessionEnded,
    SessionForgotten,
    SessionRenamed,
    SessionStarted,
    SettingsChanged,
    SignalSeen,
    StuckSeen,
    ThoughtSaid,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Unknown,
    UsageReported,
)
from kasmon.model.figures import clock, compact, duration
from kasmon.model.text import BLANK, Line, Margin, Span, Token, cells, fitted, flowed

DEEPEST: Final = 4
"""A sub-agent's sub-agents move to the right so many times at most."""
STEP: Final = "│ "
NARROW: Final = 24
"""Where less than this would be left of the width, in cells, nothing moves to the right."""


class Block(msgspec.Struct, frozen=True):
    """An event that is drawn, and the later ones that belong to it."""

    event: Event
    then: tuple[Event, ...] = ()
    depth: int = 0
    """Within how many sub-agents it happened."""
    within: Clean = Clean("")
    """The title of the sub-agent, where what stands above is not its own."""


def draw(block: Block, look: Look) -> list[Line]:
    """The rows of *block*; none for events that only machines care about. A sub-agent's stand further right."""
    depth = min(block.depth, DEEPEST)
    if not depth:
        return _drawn(block, look)
    margin: Margin = ((STEP * depth, Token.FAINT),) if look.width - len(STEP) * depth >= NARROW else ()
    inner = msgspec.structs.replace(look, width=look.width - len(STEP) * depth if margin else look.width)
    whose = fitted([(f"within {block.within}", Token.FAINT)], inner.width) if block.within else []
    rows = _drawn(block, inner)
    rows = [*rows[:1], *whose, *rows[1:]] if rows[:1] == [BLANK] else [*whose, *rows]
    return [msgspec.structs.replace(row, spans=(*margin, *row.spans)) for row in rows]


def _drawn(block: Block, look: Look) -> list[Line]:
    match block.event:
        case TurnStarted() as turn:
            return _prompt(turn, look)
        case MessageSaid() as said:
            rows = markdown.drawn(clean_block(said.text), look.width, INDENT, colours=look.colours)
            return [BLANK, *rows, *tool.cut_off(said.blob, look)]
        case ThoughtSaid() as thought:
            return [BLANK, *folding.drawn(thought.text, "✻", Token.THOUGHT, look)]
        case ToolStarted() as run if ran.code_of(run):
            return ran.call(run, block.then, look)
        case ToolStarted() | ToolFinished():
            return tool.call(block.event, block.then, look)
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
        case StuckSeen() as seen:
            return _row([(f"! stuck? {clean_line(seen.why)}", Token.WARNING)], look) if seen.why else []
        case ContextSaid() as said_so:
            return _stands(said_so, look)
        case ReceiptMoved() as moved if moved.receipt.state in (ReceiptState.REFUSED, ReceiptState.LOST):
            reason = f" · {clean_line(moved.receipt.reason)}" if moved.receipt.reason else ""
            prompt = f"! prompt {moved.receipt.state}: {clean_line(moved.receipt.text)}{reason}"
            return _row([(prompt, Token.WARNING)], look)
        case SandboxMoved() | ConfinementSeen() | Checkpointed() as lived:
            return sandboxed.drawn(lived, look)
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
            | SandboxMeasured()
        ):
            return []
        case other:
            assert_never(other)


def _stands(said: ContextSaid, look: Look) -> list[Line]:
    """How the agent says that it stands."""
    rows = _row([(f"· waits: {clean_line(said.waiting)}", Token.NOTICE)], look) if said.waiting else []
    if said.done is not None:
        rows = [*rows, *_row([(f"· done: {clean_line(said.done)}" if said.done else "· done", Token.NOTICE)], look)]
    return rows


def live(text: str, thinking: bool, look: Look) -> list[Line]:
    """The rows of a message that is still being written."""
    if not text:
        return []
    said = ThoughtSaid(at=0.0, text=text) if thinking else MessageSaid(at=0.0, text=text)
    return draw(Block(said), msgspec.structs.replace(look, colours=False, fold=False))


def folds(block: Block) -> bool:
    """Whether some of it is hidden where folding is on."""
    if isinstance(block.event, ThoughtSaid | TurnStarted):
        return folding.folds(block.event.text if isinstance(block.event, ThoughtSaid) else block.event.prompt)
    ended = tool.ending(block.event, block.then)
    return (ended is not None and tool.folds(ended)) or ran.folds(block.event)


def _prompt(turn: TurnStarted, look: Look) -> list[Line]:
    sender = {"user": "", "wave": "wave", "peer": "peer", "agent": "by itself"}[turn.by]
    rows = folding.drawn(turn.prompt, "❯", Token.PROMPT, look)
    return [BLANK, *rows, *(_row([(f"  ({sender})", Token.FAINT)], look) if sender else [])]


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
    told = fitted(
        [(f"{' · '.join(parts)} ", Token.BOUNDARY)], look.width, (("── ", Token.BOUNDARY),), (("   ", Token.TEXT),)
    )
    rows = flowed([(clean_block(ended.error), Token.ERROR)], look.width, (("✗ ", Token.ERROR),)) if ended.error else []
    if len(told) == 1:
        filling = "─" * max(0, look.width - cells(told[0].text))
        told = [Line((*told[0].spans, (filling, Token.BOUNDARY)))]
    return [BLANK, *rows, *told]


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


def _used(usage: UsageReported) -> str:
    """The figures that its agent tells; one that is 0 it does not tell."""
    counted = f"{compact(usage.input)} in, {compact(usage.output)} out" if usage.input or usage.output else ""
    window = f"context {100 * usage.context // usage.limit} %" if usage.limit else ""
    cost = f"${usage.cost_usd:.2f}" if usage.cost_usd is not None else ""
    return " · ".join(part for part in (counted, window, cost) if part) or "no figures"
