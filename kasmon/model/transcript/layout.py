"""A session's events as rows of text at a width, drawn lazily.

`add` files events into blocks; `lines(width)` is a view on their rows. Access from the end (`lines[-40:]`, `tail`)
draws no more than it needs, so that a session of 100,000 events opens at its end at once. `len`, and anything that
counts from the beginning, has to measure every block once at that width; `TranscriptRows.measure` does it in portions.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from datetime import tzinfo
from typing import Final, TypeAlias

import msgspec

from kasmon.model import events
from kasmon.model.commands import FAILED_RECEIPTS, ReceiptId, ReceiptState
from kasmon.model.partial_text import PartialText
from kasmon.model.transcript import diff, run_blocks, tool_blocks
from kasmon.model.transcript.blocks import Block, folds, live
from kasmon.model.transcript.packed_list import PackedList
from kasmon.model.transcript.rows import TranscriptRows
from kasmon.model.transcript.style import TranscriptStyle
from kasmon.model.transcript.text import TextLine
from kasmon.sanitize import Clean, clean_line

KEPT_WIDTHS: Final = 3
PENDING: Final = 20_000
"""How many calls and requests can still be completed: the latest ones. A later end of another is a block of its own."""
NEAR: Final = 16
"""How many blocks below a call its request is looked for."""
TITLE: Final = 100
"""The maximum length of a sub-agent's title above its rows, in characters."""

PlacedEvent: TypeAlias = events.MessageWritten | events.ThoughtWritten | events.ToolStarted
"""Events that are nested under the call of their sub-agent."""


class Transcript:
    """The blocks of one session, oldest first.

    Args:
        fold: cut long outputs, with the exact number of hidden lines below.
        zone: the time zone of clock times; None: this machine's.
    """

    def __init__(self, *, fold: bool = True, zone: tzinfo | None = None) -> None:
        self.changes = 0
        """Grows with every change; a view drawn at this number is up to date."""
        self.blocks = PackedList(Block)
        self._fold, self._zone = fold, zone
        self._live = ("", False)
        self._parts = PartialText()
        self.replaced = array("I")
        """The indexes of replaced blocks, in the order of replacement."""
        self.turns = array("I")
        """The indexes of the blocks that begin turns."""
        self.prompts: dict[str, None] = {}
        """The users' prompts, each text once, the latest one last."""
        self.waiting: dict[ReceiptId, str] = {}
        """The whole text of each queued prompt."""
        self._images: dict[str, events.ReceiptChanged] = {}
        """The receipt of each prompt with pictures whose turn has not begun, by its text."""
        self.opened: set[int] = set()
        """The indexes of the blocks whose folds are open."""
        self.plan: events.PlanUpdated | None = None
        """The agent's own to-do list; None if it has none."""
        self.subtasks: dict[str, events.SubtaskChanged] = {}
        """The sub-agents and background commands that run, by the agent's ids of them."""
        self._callers: dict[str, array[int]] = {}
        """The call of each sub-agent -> the indexes of its blocks."""
        self._positions: dict[tuple[str, str], int] = {}
        self._turn: events.TurnStarted | None = None
        self._usage: events.UsageReported | None = None
        self._views: OrderedDict[int, TranscriptRows] = OrderedDict()

    def add(self, event: events.Event) -> None:
        """Add *event*: as a block of its own, or to the block that it completes."""
        for part in self._parts.add(event):
            self._append(Block(part))
        match event:
            case events.PartialTextWritten():
                self._continue(event)
            case events.ToolStarted():
                self._add_placed(event, ("call", event.call))
            case events.MessageWritten() | events.ThoughtWritten():
                self._add_placed(event)
            case events.ToolFinished():
                self._finish(event)
            case events.RequestOpened():
                self._append(Block(event), ("request", event.request.id))
            case events.RequestAnswered() | events.RequestSetAside() | events.RequestWithdrawn():
                self._join(("request", event.request), event)
            case events.SubtaskChanged():
                self._change_subtask(event)
            case events.PlanUpdated():
                self._update_plan(event)
            case events.UsageReported():
                self._count(event)
            case events.TurnStarted():
                if self._turn is None:  # else the running turn takes in another prompt
                    self._turn, self._usage = event, None
                self.turns.append(len(self.blocks))
                self._record_prompt(event.prompt if event.by == "user" else "")
                receipt = self._images.pop(event.prompt, None)
                self._append(Block(event, () if receipt is None else (receipt,)))
            case events.ReceiptChanged():
                self._follow_prompt(event)
            case events.TurnEnded():
                self._append(Block(event, tuple(each for each in (self._turn, self._usage) if each is not None)))
                self._turn = self._usage = None
            case events.EntryImported():
                self._import(event)
            case events.SignalSeen() | events.CommandsAnnounced():
                return
            case _:
                self._append(Block(event))
        if isinstance(
            event,
            events.MessageWritten
            | events.ThoughtWritten
            | events.TurnEnded
            | events.SessionStarted
            | events.SessionEnded,
        ):
            self._live = ("", False)
        if isinstance(event, events.SessionStarted | events.SessionEnded):
            self._turn = self._usage = None
            self.subtasks.clear()
        self.changes += 1

    def _follow_prompt(self, event: events.ReceiptChanged) -> None:
        if event.images:
            self._images[event.prompt] = event
        self._record_prompt(event.prompt if event.by == "user" else "")
        if event.prompt:
            self.waiting[event.receipt.id] = event.prompt
        elif event.receipt.state is not ReceiptState.QUEUED:
            self.waiting.pop(event.receipt.id, None)
        if event.receipt.state in FAILED_RECEIPTS:
            self._append(Block(event))

    def write(self, text: str, thinking: bool = False) -> None:
        """Show *text* behind the last block: the message so far whose event has not arrived.

        An empty text ends the display of its own kind, and leaves the other kind alone.
        """
        if text or self._live[1] == thinking:
            self._live = (text, thinking)
            self.changes += 1

    def lines(self, width: int) -> TranscriptRows:
        """Return the rows at *width* cells; the view follows later additions."""
        view = self._views.get(width)
        if view is None:
            view = self._views[width] = TranscriptRows(self, width)
            while len(self._views) > KEPT_WIDTHS:
                self._views.popitem(last=False)
        self._views.move_to_end(width)
        return view

    def tail(self, width: int, count: int, above: int = 0) -> list[TextLine]:
        """Return the *count* rows that end *above* rows over the bottom, oldest first; fewer at the beginning."""
        return self.lines(width).above_bottom(above, count)

    def _continue(self, part: events.PartialTextWritten) -> None:
        """Show the log's part of the text that is being written, unless `write` showed more of it."""
        text = self._parts.text[part.thinking]
        shown, is_thought = self._live
        if is_thought is not part.thinking or len(text) > len(shown):
            self._live = (text, part.thinking)

    def _append(self, block: Block, place: tuple[str, str] | None = None) -> None:
        if place is not None:
            self._positions[place] = len(self.blocks)
            if len(self._positions) > PENDING:
                del self._positions[next(iter(self._positions))]
        self.blocks.append(block)

    def _import(self, event: events.EntryImported) -> None:
        """Add an imported transcript entry; its calls are kept separate from those of a protocol."""
        match event.entry:
            case events.ToolStarted() as run:
                self._append(Block(event), ("imported", run.call))
            case events.ToolFinished() as end if ("imported", end.call) in self._positions:
                self._join(("imported", end.call), end)
            case events.TurnStarted() as turn:
                self.turns.append(len(self.blocks))
                self._record_prompt(turn.prompt)
                self._append(Block(event))
            case _:
                self._append(Block(event))

    def _finish(self, event: events.ToolFinished) -> None:
        """Add the end of a call: a sub-agent's result comes below its work, every other output below its call."""
        at = self._positions.get(("call", event.call))
        if event.diff and at is not None:
            self._fold_request(event.diff, at)
        if at is None or event.call not in self._callers:
            self._join(("call", event.call), event)
            return
        caller = self.blocks[at]
        self._join(("call", event.call), msgspec.structs.replace(event, output="", diff="", blob=""))
        if event.output or event.diff:
            self._append(Block(event, (caller.event,), depth=caller.depth, caller=caller.caller))

    def _fold_request(self, change: str, call: int) -> None:
        """Fold the change in the request for the block *call*, if the call made exactly that *change*."""
        made = diff.changed_lines(change.split("\n"))
        for at in range(call + 1, min(call + 1 + NEAR, len(self.blocks))):
            block = self.blocks[at]
            asked = block.event.request if isinstance(block.event, events.RequestOpened) else None
            if asked is not None and asked.is_diff and diff.changed_lines(asked.shown.split("\n")) == made:
                self._replace(at, msgspec.structs.replace(block, repeats=True))

    def _join(self, place: tuple[str, str], event: events.Event) -> None:
        at = self._positions.get(place)
        if at is None:
            self._append(Block(event))
        else:
            self._replace(at, msgspec.structs.replace(self.blocks[at], then=(*self.blocks[at].then, event)))

    def _count(self, usage: events.UsageReported) -> None:
        last = self.blocks[-1] if self.blocks else None
        if self._turn is not None:
            self._usage = usage
        elif last is not None and isinstance(last.event, events.TurnEnded):
            then = tuple(each for each in last.then if not isinstance(each, events.UsageReported))
            self._replace(len(self.blocks) - 1, Block(last.event, (*then, usage)))
        elif last is not None and isinstance(last.event, events.UsageReported):
            self._replace(len(self.blocks) - 1, Block(usage))
        else:
            self._append(Block(usage))

    def _replace(self, at: int, block: Block) -> None:
        self.blocks[at] = block
        self.replaced.append(at)

    def _update_plan(self, event: events.PlanUpdated) -> None:
        """Show the whole to-do list, in place of the one before it if nothing is between them."""
        self.plan = event
        if self.blocks and isinstance(self.blocks[-1].event, events.PlanUpdated):
            self._replace(len(self.blocks) - 1, Block(event))
        else:
            self._append(Block(event))

    def _add_placed(self, event: PlacedEvent, place: tuple[str, str] | None = None) -> None:
        """Add the block of *event*; a sub-agent's block also counts as a step of its call."""
        block = self._find_block(event)
        if block.caller >= 0:
            text = f"{event.tool} {event.title}" if isinstance(event, events.ToolStarted) else event.text[: 2 * TITLE]
            caller = self.blocks[block.caller]
            last = Clean(clean_line(text).strip()[:TITLE])
            self._replace(block.caller, msgspec.structs.replace(caller, steps=caller.steps + 1, last=last))
            self._callers[event.within].append(len(self.blocks))
        self._append(block, place)

    def _change_subtask(self, event: events.SubtaskChanged) -> None:
        """Show the state of a sub-agent or background command beside its call."""
        self.subtasks.pop(event.id, None)
        if event.state == "running":
            self.subtasks[event.id] = event
        at = self._positions.get(("call", event.call))
        if at is not None:
            before = self.blocks[at]
            then = tuple(each for each in before.then if not _is_of(each, event))
            self._replace(at, msgspec.structs.replace(before, then=(*then, event)))
        elif event.state != "running":
            self._append(Block(event))

    def _find_block(self, event: PlacedEvent) -> Block:
        """Return the block of *event*, nested under its sub-agent."""
        if not event.within:
            return Block(event)
        at = self._positions.get(("call", event.within))
        self._callers.setdefault(event.within, array("I"))
        caller = self.blocks[at] if at is not None else None
        above = self.blocks[-1] if self.blocks else None
        is_next = above is not None and (above is caller or getattr(above.event, "within", "") == event.within)
        if caller is None or not isinstance(caller.event, events.ToolStarted):
            return Block(event, depth=1, within=Clean("") if is_next else Clean("a sub-agent"))
        title = f"{clean_line(caller.event.tool)} {tool_blocks.title(caller.event)}".strip()[:TITLE]
        within = Clean("" if is_next else title)
        return Block(event, depth=caller.depth + 1, within=within, caller=-1 if at is None else at)

    def _record_prompt(self, text: str) -> None:
        if text.strip():
            self.prompts.pop(text, None)
            self.prompts[text] = None

    def toggle(self, at: int) -> bool:
        """Open block *at*, or fold it again; return False if nothing of it is hidden.

        If it is hidden itself, the calls of the sub-agents above it are opened.
        """
        if not self._fold:
            return False
        closed = [above for above in self._above(at) if above not in self.opened]
        for above in closed:
            self._flip(above)
        if folds(self.blocks[at]):
            self._flip(at)
        elif not closed:
            return False
        self.changes += 1
        return True

    def is_hidden(self, at: int) -> bool:
        """Whether block *at* belongs to a sub-agent whose work is folded."""
        return self._fold and any(above not in self.opened for above in self._above(at))

    def _above(self, at: int) -> Iterator[int]:
        """Yield the indexes of the calls of the sub-agents that block *at* is within."""
        while (at := self.blocks[at].caller) >= 0:
            yield at

    def _flip(self, at: int) -> None:
        """Open block *at* or fold it; what a sub-agent did is drawn again."""
        self.opened ^= {at}
        waiting = [at]
        while waiting:
            index = waiting.pop()
            self.replaced.append(index)
            block = self.blocks[index]
            if block.steps and isinstance(block.event, events.ToolStarted):
                waiting += self._callers.get(block.event.call, ())

    def style(self, width: int) -> TranscriptStyle:
        """Return how its blocks are drawn at *width*."""
        return TranscriptStyle(width=width, fold=self._fold, zone=self._zone)

    def written(self, width: int) -> list[TextLine]:
        """Return the rows of the text that `write` showed last."""
        last = self.blocks[-1] if self.blocks else None
        if last is not None and run_blocks.code_of(last.event):  # a run's output is shown unformatted until its event
            return run_blocks.printed(self._live[0], last.then, self.style(width))
        return live(*self._live, self.style(width))


def _is_of(event: events.Event, task: events.SubtaskChanged) -> bool:
    return isinstance(event, events.SubtaskChanged) and event.id == task.id
