"""A session's events as rows of text at a width, drawn lazily.

`add` files events into blocks; `lines(width)` is a view on their rows. Access from the end (`lines[-40:]`, `tail`)
draws no more than it needs, so that a session of 100,000 events opens at its end at once. `len`, and anything that
counts from the beginning, has to measure every block once at that width; `TranscriptRows.measure` does it in portions.
"""

from collections import OrderedDict
from datetime import tzinfo
from typing import Final

import msgspec

from kasmon.model import events
from kasmon.model.commands import FAILED_RECEIPTS, ReceiptId, ReceiptState
from kasmon.model.partial_text import PartialText
from kasmon.model.transcript import run_blocks, tool_blocks
from kasmon.model.transcript.blocks import Block, folds, live
from kasmon.model.transcript.packed_list import PackedList
from kasmon.model.transcript.rows import TranscriptRows
from kasmon.model.transcript.style import TranscriptStyle
from kasmon.model.transcript.text import TextLine
from kasmon.sanitize import Clean, clean_line

KEPT_WIDTHS: Final = 3
PENDING: Final = 20_000
"""How many calls and requests can still be completed: the latest ones. A later end of another is a block of its own."""
TITLE: Final = 100
"""The maximum length of a sub-agent's title above its rows, in characters."""


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
        self.replaced: list[int] = []
        """The indexes of replaced blocks, in the order of replacement."""
        self.turns: list[int] = []
        """The indexes of the blocks that begin turns."""
        self.prompts: dict[str, None] = {}
        """The users' prompts, each text once, the latest one last."""
        self.waiting: dict[ReceiptId, str] = {}
        """The whole text of each queued prompt."""
        self.opened: set[int] = set()
        """The indexes of the blocks whose folds are open."""
        self._callers: set[str] = set()
        self._places: dict[tuple[str, str], int] = {}
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
                self._append(self._placed(event), ("call", event.call))
            case events.MessageWritten() | events.ThoughtWritten():
                self._append(self._placed(event))
            case events.ToolFinished():
                self._finish(event)
            case events.RequestOpened():
                self._append(Block(event), ("request", event.request.id))
            case events.RequestAnswered() | events.RequestSetAside() | events.RequestWithdrawn():
                self._join(("request", event.request), event)
            case events.PlanUpdated() if self.blocks and isinstance(self.blocks[-1].event, events.PlanUpdated):
                self._replace(len(self.blocks) - 1, Block(event))
            case events.UsageReported():
                self._count(event)
            case events.TurnStarted():
                if self._turn is None:  # else the running turn takes in another prompt
                    self._turn, self._usage = event, None
                self.turns.append(len(self.blocks))
                self._record_prompt(event.prompt if event.by == "user" else "")
                self._append(Block(event))
            case events.ReceiptChanged():
                self._record_prompt(event.prompt if event.by == "user" else "")
                if event.prompt:
                    self.waiting[event.receipt.id] = event.prompt
                elif event.receipt.state is not ReceiptState.QUEUED:
                    self.waiting.pop(event.receipt.id, None)
                if event.receipt.state in FAILED_RECEIPTS:
                    self._append(Block(event))
            case events.TurnEnded():
                self._append(Block(event, tuple(each for each in (self._turn, self._usage) if each is not None)))
                self._turn = self._usage = None
            case events.EntryImported():
                self._import(event)
            case events.SignalSeen():
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
        self.changes += 1

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
            self._places[place] = len(self.blocks)
            if len(self._places) > PENDING:
                del self._places[next(iter(self._places))]
        self.blocks.append(block)

    def _import(self, event: events.EntryImported) -> None:
        """Add an imported transcript entry; its calls are kept separate from those of a protocol."""
        match event.entry:
            case events.ToolStarted() as run:
                self._append(Block(event), ("imported", run.call))
            case events.ToolFinished() as end if ("imported", end.call) in self._places:
                self._join(("imported", end.call), end)
            case events.TurnStarted() as turn:
                self.turns.append(len(self.blocks))
                self._record_prompt(turn.prompt)
                self._append(Block(event))
            case _:
                self._append(Block(event))

    def _finish(self, event: events.ToolFinished) -> None:
        """Add the end of a call: a sub-agent's result comes below its work, every other output below its call."""
        at = self._places.get(("call", event.call))
        if at is None or event.call not in self._callers:
            self._join(("call", event.call), event)
            return
        caller = self.blocks[at]
        self._join(("call", event.call), msgspec.structs.replace(event, output="", diff="", blob=""))
        if event.output or event.diff:
            self._append(Block(event, (caller.event,), depth=caller.depth))

    def _join(self, place: tuple[str, str], event: events.Event) -> None:
        at = self._places.get(place)
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

    def _placed(self, event: events.MessageWritten | events.ThoughtWritten | events.ToolStarted) -> Block:
        """Return the block of *event*, nested under its sub-agent."""
        if not event.within:
            return Block(event)
        at = self._places.get(("call", event.within))
        self._callers.add(event.within)
        caller = self.blocks[at] if at is not None else None
        above = self.blocks[-1] if self.blocks else None
        is_next = above is not None and (above is caller or getattr(above.event, "within", "") == event.within)
        if caller is None or not isinstance(caller.event, events.ToolStarted):
            return Block(event, depth=1, within=Clean("") if is_next else Clean("a sub-agent"))
        title = f"{clean_line(caller.event.tool)} {tool_blocks.title(caller.event)}".strip()[:TITLE]
        return Block(event, depth=caller.depth + 1, within=Clean("" if is_next else title))

    def _record_prompt(self, text: str) -> None:
        if text.strip():
            self.prompts.pop(text, None)
            self.prompts[text] = None

    def toggle(self, at: int) -> bool:
        """Open block *at*, or fold it again; return False if nothing of it is hidden."""
        if not self._fold or not folds(self.blocks[at]):
            return False
        self.opened ^= {at}
        self.replaced.append(at)
        self.changes += 1
        return True

    def style(self, width: int) -> TranscriptStyle:
        """Return how its blocks are drawn at *width*."""
        return TranscriptStyle(width=width, fold=self._fold, zone=self._zone)

    def written(self, width: int) -> list[TextLine]:
        """Return the rows of the text that `write` showed last."""
        last = self.blocks[-1] if self.blocks else None
        if last is not None and run_blocks.code_of(last.event):  # a run's output is shown unformatted until its event
            return run_blocks.printed(self._live[0], last.then, self.style(width))
        return live(*self._live, self.style(width))
