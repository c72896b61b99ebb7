"""Render an event, together with those that complete it, as rows: `draw`.

All foreign text is cleaned here.
"""

import shlex
from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from kasmon.model import events
from kasmon.model.commands import FAILED_RECEIPTS
from kasmon.model.formatting import clock, compact, duration, mb
from kasmon.model.prompts.image import PromptImage, describe
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.transcript import request_blocks, run_blocks, tool_blocks
from kasmon.model.transcript.markdown.renderer import draw_markdown
from kasmon.model.transcript.style import FOLD_CHARACTERS, FOLD_LINES, INDENT, UNDER, TranscriptStyle, fold_row, hidden
from kasmon.model.transcript.text import BLANK, Margin, Span, TextLine, Token, cells, wrap, wrap_paragraphs
from kasmon.sanitize import Clean, clean_block, clean_line

WORDS: Final = {
    SandboxPhase.CREATING: "sandbox created",
    SandboxPhase.RUNNING: "sandbox resumed",
    SandboxPhase.PAUSED: "sandbox paused",
    SandboxPhase.HEALING: "sandbox recovered",
    SandboxPhase.EXPIRED: "sandbox expired",
}
"""Phases that are shown once they are reached; the others are transitional."""
NAMES: Final = 8
"""At most this many values that could not be saved are named."""

SPARE: Final = 100
"""A remainder of at most this length is drawn rather than hidden, in characters."""


def _sandbox(
    event: events.SandboxPhaseChanged | events.ConfinementSeen | events.Checkpointed, style: TranscriptStyle
) -> list[TextLine]:
    match event:
        case events.ConfinementSeen(ok=True):
            return []
        case events.ConfinementSeen():
            reasons = ", ".join(map(clean_line, event.mismatches)) or "reason unknown"
            return _render_marked("✗ ", f"confinement not verified: {reasons}", Token.ERROR, style)
        case events.Checkpointed():
            lost = _names(event.lost)
            text = f"checkpoint {clean_line(event.checkpoint)}" + (f" · not saved: {lost}" if lost else "")
            return _render_marked("◇ ", text, Token.FAINT, style)
    if event.step == "intended" or (event.phase not in WORDS and not event.lost):
        return []
    word = (
        "sandbox paused"
        if event.phase is SandboxPhase.PAUSED and event.held
        else WORDS.get(event.phase, event.phase.value)
    )
    if event.phase is SandboxPhase.RUNNING and not (event.why or event.lost):
        return []
    text = f"{word}: {clean_line(event.why)}" if event.why else word
    rows = _render_marked("▣ ", text, Token.SESSION, style)
    return rows + (_render_marked("! ", clean_line(event.lost), Token.WARNING, style) if event.lost else [])


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(clean_line, names[:NAMES]))
    return f"{shown} and {len(names) - NAMES} more" if len(names) > NAMES else shown


DEEPEST: Final = 4
"""Nested sub-agents are indented at most this many levels."""
STEP: Final = "│ "
IMPORTED: Final = "┆ "
"""The mark of rows imported from an agent's own transcript."""
NARROW: Final = 24
"""If less than this width would remain, in cells, rows are not indented."""


class Block(msgspec.Struct, frozen=True):
    """A rendered event, and the later ones that belong to it."""

    event: events.Event
    then: tuple[events.Event, ...] = ()
    depth: int = 0
    """The nesting level of its sub-agent."""
    within: Clean = Clean("")
    """The title of the sub-agent, if the block above belongs to another one."""
    caller: int = -1
    """The index of the block with the call of its sub-agent; -1 for none."""
    steps: int = 0
    """For the call of a sub-agent: how many blocks it has."""
    last: Clean = Clean("")
    """Likewise: its last call or text, on one line."""
    repeats: bool = False
    """For a request: the call's own result shows the same change."""


def draw(block: Block, style: TranscriptStyle) -> list[TextLine]:
    """Return the rows of *block*; none for events that only programs need. A sub-agent's rows are indented."""
    if isinstance(block.event, events.EntryImported):
        return _render_imported(block.event, block, style)
    depth = min(block.depth, DEEPEST)
    if not depth:
        return _render(block, style)
    margin: Margin = ((STEP * depth, Token.FAINT),) if style.width - len(STEP) * depth >= NARROW else ()
    inner = msgspec.structs.replace(style, width=style.width - len(STEP) * depth if margin else style.width)
    whose = wrap([(f"within {block.within}", Token.FAINT)], inner.width) if block.within else []
    rows = _render(block, inner)
    rows = [*rows[:1], *whose, *rows[1:]] if rows[:1] == [BLANK] else [*whose, *rows]
    return [msgspec.structs.replace(row, spans=(*margin, *row.spans)) for row in rows]


def _render_imported(imported: events.EntryImported, block: Block, style: TranscriptStyle) -> list[TextLine]:
    """Return the rows of an imported entry, each with a mark; a prompt shows its source and time."""
    inner = msgspec.structs.replace(style, width=style.width - len(IMPORTED)) if style.width >= NARROW else style
    rows = _render(msgspec.structs.replace(block, event=imported.entry), inner)
    if isinstance(imported.entry, events.TurnStarted):
        own = f"from {clean_line(imported.program)}'s own transcript"
        at = f"in the terminal at {clock(imported.entry.at, style.zone)}; " if imported.entry.at else ""
        rows = [*rows, *_row([(f"  ({at}{own})", Token.FAINT)], inner)]
    if inner is style:
        return rows
    return [msgspec.structs.replace(row, spans=((IMPORTED, Token.FAINT), *row.spans)) for row in rows]


def _describe_settings(now: events.SettingsChanged) -> str:
    """Return the settings that *now* names, in one line; empty if it names none that are shown."""
    switches = (f"{each.title or each.id} {'on' if each.is_on else 'off'}" for each in now.switches or ())
    return " · ".join(clean_line(text) for text in (now.model, now.permission_mode, *switches) if text)


def _render(block: Block, style: TranscriptStyle) -> list[TextLine]:
    match block.event:
        case events.TurnStarted() as turn:
            return _prompt(turn, images_of(block), style)
        case events.MessageWritten() as said:
            shown, colours, buttons = clean_block(said.text), style.colours, style.buttons
            rows = draw_markdown(shown, style.width, INDENT, colours=colours, buttons=buttons)
            return [BLANK, *rows, *tool_blocks.cut_off(said.blob, style)]
        case events.ThoughtWritten() as thought:
            return [BLANK, *fold_text(thought.text, "✻", Token.THOUGHT, style)]
        case events.PartialTextWritten() as part:
            rows = _render(_whole_block(part.text, part.thinking, part.at), style)
            return [*rows, *_row([("· truncated: the rest was not received", Token.FAINT)], style)]
        case events.ToolStarted() as run if run_blocks.code_of(run):
            return run_blocks.call(run, block.then, style)
        case events.ToolStarted() | events.ToolFinished():
            return [*tool_blocks.call(block.event, block.then, style), *_steps(block, style)]
        case events.SubtaskChanged() as task:
            return tool_blocks.subtask(task, style)
        case events.PlanUpdated() as plan:
            return _plan(plan, style)
        case events.RequestOpened() as opened:
            return [
                *request_blocks.request(opened.request, style, repeats=block.repeats),
                *(row for event in block.then for row in request_blocks.answer(event, style)),
            ]
        case events.RequestAnswered() | events.RequestSetAside() | events.RequestWithdrawn():
            return request_blocks.answer(block.event, style)
        case events.UsageReported() as usage:
            return _row([(f"· {_describe_use(usage)}", Token.FAINT)], style)
        case events.NoticeRaised() as notice:
            token = {"info": Token.NOTICE, "warning": Token.WARNING, "error": Token.ERROR}[notice.level]
            sign = {"info": "·", "warning": "!", "error": "✗"}[notice.level]
            return _render_marked(f"{sign} ", clean_block(notice.text), token, style)
        case events.UnknownMessageSeen() as foreign:
            return _row([(f"· {clean_line(foreign.what)}: unknown to this version of kasmon", Token.FAINT)], style)
        case events.SettingsChanged() as now:
            return (
                _row([(f"· now {settings_text}", Token.FAINT)], style)
                if (settings_text := _describe_settings(now))
                else []
            )
        case events.LogInRequired() as required:
            return _row([(f"· requires a log-in: {clean_line(shlex.join(required.log_in.argv))}", Token.NOTICE)], style)
        case events.LimitReached() as limit:
            until = f" · until {clock(limit.until, style.zone)}" if limit.until is not None else ""
            return _row([(f"◔ {clean_line(limit.text) or 'limited'}{until}", Token.LIMIT)], style)
        case events.LimitLifted():
            return _row([("◔ limit lifted", Token.LIMIT)], style)
        case events.TurnEnded() as ended:
            return _turn_end(ended, block.then, style)
        case events.SessionStarted() as started:
            return _render_start(started, style)
        case events.SessionEnded() as ended_session:
            return _render_end(ended_session, style)
        case events.ConnectionLost() as lost:
            why = f": {clean_line(lost.why)}" if lost.why else ""
            return _row([(f"✗ lost the {lost.what}{why}", Token.ERROR)], style)
        case events.ConnectionRestored():
            return _row([("· reconnected", Token.NOTICE)], style)
        case events.HibernationBegun(freed_bytes=freed):
            return _row([(f"· hibernated, {mb(freed)} of memory freed", Token.NOTICE)], style)
        case events.StuckSeen() as seen:
            return _row([(f"! stuck? {clean_line(seen.why)}", Token.WARNING)], style) if seen.why else []
        case events.ContextReported() as said_so:
            return _status_report(said_so, style)
        case events.FinishProposed() as proposed:
            before = f"· {_agent_of(proposed.name)} proposes to finish this session: "
            return _render_marked(before, clean_block(proposed.text), Token.NOTICE, style)
        case events.AgentCommandReceived() as received:
            done = {"stop": "stopped this session", "interrupt": "interrupted the turn"}[received.command]
            return _row([(f"· {_agent_of(received.name)} {done}", Token.NOTICE)], style)
        case events.PeerMessageWritten(name=name, text=text):
            return _render_marked(f"· to {clean_line(name)}: ", clean_block(text), Token.NOTICE, style)
        case events.ReceiptChanged() as moved if moved.receipt.state in FAILED_RECEIPTS:
            reason = f" · {clean_line(moved.receipt.reason)}" if moved.receipt.reason else ""
            prompt = f"! prompt {moved.receipt.state}: {clean_line(moved.receipt.text)}{reason}"
            return _row([(prompt, Token.WARNING)], style)
        case events.CommentWritten(comment=comment):
            where = f"· comment on {clean_line(comment.file)}:{comment.line}: "
            return _render_marked(where, clean_block(comment.text), Token.NOTICE, style)
        case events.CommentsSent() as sent:
            count = len(sent.comments)
            return _row([(f"· {count} {'comment' if count == 1 else 'comments'} sent", Token.NOTICE)], style)
        case events.SandboxPhaseChanged() | events.ConfinementSeen() | events.Checkpointed() as lived:
            return _sandbox(lived, style)
        case events.UnknownEvent():
            return _row([("· an event that this version of kasmon cannot read", Token.FAINT)], style)
        case (
            events.LogOpened()
            | events.SessionCreated()
            | events.SessionRenamed()
            | events.SessionTagged()
            | events.SessionForgotten()
            | events.SessionViewed()
            | events.SignalSeen()
            | events.LimitsReported()
            | events.CommandsAnnounced()
            | events.ReceiptChanged()
            | events.QueueOrdered()
            | events.SandboxMeasured()
            | events.EntryImported()
            | events.CommentRemoved()
            | events.CommentMarked()
        ):
            return []
        case other:
            assert_never(other)


def _steps(block: Block, style: TranscriptStyle) -> list[TextLine]:
    """Return the row that hides and shows what a sub-agent did."""
    if not block.steps or not (style.fold or style.opened):
        return []
    what = "step" if block.steps == 1 else "steps"
    last = f", last: {block.last}" if block.last and not style.opened else ""
    label = f"{'▾' if style.opened else '▸'} {block.steps} {what}{last}"
    return [TextLine(row.spans, fold=True) for row in wrap([(label, Token.FAINT)], style.width, UNDER, UNDER)][:1]


def _status_report(report: events.ContextReported, style: TranscriptStyle) -> list[TextLine]:
    rows = _row([(f"· waits: {clean_line(report.waiting)}", Token.NOTICE)], style) if report.waiting else []
    if report.done is not None:
        rows = [
            *rows,
            *_row([(f"· done: {clean_line(report.done)}" if report.done else "· done", Token.NOTICE)], style),
        ]
    return rows


def live(text: str, thinking: bool, style: TranscriptStyle) -> list[TextLine]:
    """Return the rows of a message that is still being written."""
    plain = msgspec.structs.replace(style, colours=False, fold=False)
    return draw(_whole_block(text, thinking, 0.0), plain) if text else []


def _whole_block(text: str, thinking: bool, at: float) -> Block:
    return Block(events.ThoughtWritten(at=at, text=text) if thinking else events.MessageWritten(at=at, text=text))


def folds(block: Block) -> bool:
    """Whether folding hides a part of it."""
    if isinstance(block.event, events.EntryImported):
        return folds(msgspec.structs.replace(block, event=block.event.entry))
    if block.steps:
        return True
    if isinstance(block.event, events.ThoughtWritten | events.TurnStarted):
        return folds_text(block.event.text if isinstance(block.event, events.ThoughtWritten) else block.event.prompt)
    if isinstance(block.event, events.RequestOpened):
        return block.repeats
    return tool_blocks.folds(block.event, block.then) or run_blocks.folds(block.event)


def images_of(block: Block) -> tuple[PromptImage, ...]:
    return next((each.images for each in block.then if isinstance(each, events.ReceiptChanged)), ())


def _prompt(turn: events.TurnStarted, images: Sequence[PromptImage], style: TranscriptStyle) -> list[TextLine]:
    sender = {"user": "", "wave": "sent by plan", "peer": "peer", "agent": "automatic"}[turn.by]
    rows = fold_text(turn.prompt, "❯", Token.PROMPT, style)
    for image in images:
        named = [(clean_line(image.name), Token.PROMPT), (f"  {describe(image)}", Token.FAINT)]
        rows += wrap(named, style.width, (("  ▣ ", Token.PROMPT),), INDENT)
    return [BLANK, *rows, *(_row([(f"  ({sender})", Token.FAINT)], style) if sender else [])]


def _plan(plan: events.PlanUpdated, style: TranscriptStyle) -> list[TextLine]:
    rows = [BLANK, *wrap([("Plan", Token.TOOL)], style.width, (("● ", Token.TOOL),), INDENT)]
    for item in plan.items:
        sign, token = {"open": ("☐", Token.OPEN), "doing": ("◐", Token.DOING), "done": ("☒", Token.DONE)}[item.state]
        rows += wrap([(clean_line(item.text), token)], style.width, ((f"  {sign} ", token),), UNDER)
    return rows


def _turn_end(ended: events.TurnEnded, then: Sequence[events.Event], style: TranscriptStyle) -> list[TextLine]:
    began = next((event.at for event in then if isinstance(event, events.TurnStarted)), None)
    usage = next((event for event in then if isinstance(event, events.UsageReported)), None)
    word = {"done": "done", "interrupted": "interrupted", "limit": "stopped by a limit", "error": "failed"}
    parts = [word[ended.reason], clock(ended.at, style.zone)]
    if began is not None and ended.at >= began:
        parts.append(duration(ended.at - began))
    if usage is not None:
        parts.append(_describe_use(usage))
    lines = wrap(
        [(f"{' · '.join(parts)} ", Token.BOUNDARY)], style.width, (("── ", Token.BOUNDARY),), (("   ", Token.TEXT),)
    )
    rows = _render_marked("✗ ", clean_block(ended.error), Token.ERROR, style) if ended.error else []
    if len(lines) == 1:
        filling = "─" * max(0, style.width - cells(lines[0].text))
        lines = [TextLine((*lines[0].spans, (filling, Token.BOUNDARY)))]
    return [BLANK, *rows, *lines]


def _render_start(started: events.SessionStarted, style: TranscriptStyle) -> list[TextLine]:
    again = f" · start {started.generation}" if started.generation > 1 else ""
    parts = [clean_line(part) for part in (started.backend, started.model) if part]
    label = " · ".join(["▶ session started" + again, *dict.fromkeys(parts), clock(started.at, style.zone, day=True)])
    return _row([(label, Token.SESSION)], style)


def _render_end(ended: events.SessionEnded, style: TranscriptStyle) -> list[TextLine]:
    bad = ended.signal is not None or ended.exit_code != 0
    if ended.signal is not None:
        outcome = f"killed by {clean_line(ended.signal)}"
    elif ended.exit_code is not None:
        outcome = f"ended with exit code {ended.exit_code}"
    else:
        outcome = "ended; exit status unknown"
    why = f" · {clean_line(ended.why)}" if ended.why else ""
    token = Token.ERROR if bad and ended.why != "stopped" else Token.SESSION
    return [BLANK, *_row([(f"■ {outcome}{why} · {clock(ended.at, style.zone)}", token)], style)]


def _agent_of(name: str) -> str:
    """Return the agent of the session *name* in words; empty: it is not known of which."""
    return f"the agent of {clean_line(name)}" if name else "an agent"


def _row(spans: Sequence[Span], style: TranscriptStyle) -> list[TextLine]:
    return wrap(spans, style.width)


def _render_marked(sign: str, text: str, token: Token, style: TranscriptStyle) -> list[TextLine]:
    """Return *text*, which may hold line breaks, behind *sign*, both as *token*."""
    return wrap_paragraphs([(text, token)], style.width, ((sign, token),))


def _describe_use(usage: events.UsageReported) -> str:
    """Return the figures that its agent reports; one that is 0 is not reported."""
    counted = f"{compact(usage.input)} in, {compact(usage.output)} out" if usage.input or usage.output else ""
    window = f"context {100 * usage.context // usage.limit} %" if usage.limit else ""
    cost = f"${usage.cost_usd:.2f}" if usage.cost_usd is not None else ""
    return " · ".join(part for part in (counted, window, cost) if part) or "no figures"


def fold_text(text: str, sign: str, token: Token, style: TranscriptStyle) -> list[TextLine]:
    """Return *text* behind *sign*, both as *token*; a long one truncated, with the amount that is hidden."""
    whole = clean_block(text).rstrip()
    shown = _cut_text(whole) if style.fold else whole
    rows = _render_marked(f"{sign} ", shown, token, style)
    rest = whole[len(shown) :].strip()
    if "\n" in rest:
        rows += hidden(rest.count("\n") + 1, "more lines", style, INDENT)
    else:
        rows += hidden(len(rest), "more characters", style, INDENT)
    return [*rows, *(fold_row("▴ collapse", style, INDENT) if style.opened and folds_text(text) else [])]


def folds_text(text: str) -> bool:
    """Whether folding hides a part of it."""
    whole = clean_block(text).rstrip()
    return len(_cut_text(whole)) < len(whole)


def _cut_text(text: str) -> str:
    """Return the beginning of a long *text*, up to the end of a word; all of it if little would be hidden."""
    lines = text.split("\n")
    short = text if len(lines) <= FOLD_LINES + 1 else "\n".join(lines[:FOLD_LINES])
    if len(short) <= FOLD_CHARACTERS + SPARE:
        return short
    end = max(short.rfind(" ", 0, FOLD_CHARACTERS), short.rfind("\n", 0, FOLD_CHARACTERS))
    return short[: end if end > 0 else FOLD_CHARACTERS]
