"""What the agent and its sub-agents say, think and do: messages of the model, and what came back from its tools."""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from kasmon.backends.base import Chunk
from kasmon.backends.claude import diff, tool
from kasmon.backends.claude.line import RAW_CHARACTERS
from kasmon.backends.claude.todo import ToDo
from kasmon.backends.shape import Table, rows, table, text
from kasmon.model.event import (
    Event,
    ForeignSeen,
    MessageSaid,
    NoticeRaised,
    PlanUpdated,
    ThoughtSaid,
    ToolFinished,
    ToolStarted,
)

Said: TypeAlias = Event | Chunk

TOOL_BLOCKS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
SILENT_BLOCKS: Final = frozenset({"redacted_thinking", "image", "document", "fallback"})
"""Blocks with nothing to read in them."""
COMMAND_OUTPUT: Final = re.compile(
    r"\A<local-command-(?:stdout|stderr)>(.*)</local-command-(?:stdout|stderr)>\Z", re.DOTALL
)

MODEL_SET: Final = "Set model to "
"""How the agent acknowledges another model, which is a fact of its own."""


class Content:
    """The conversation's content, block by block."""

    def __init__(self) -> None:
        self.said = ""
        """What the agent itself said last."""
        self._todo = ToDo()
        self._calls: dict[str, tuple[str, Table]] = {}
        """The calls of tools that are not finished: the tool and its input."""

    def streamed(self, event: Table) -> Iterator[Chunk]:
        """A piece of what the model writes just now; *event* is of its own streaming protocol."""
        delta = table(event, "delta")
        if event.get("type") == "content_block_delta":
            if piece := text(delta, "text"):
                yield Chunk(text=piece)
            elif piece := text(delta, "thinking"):
                yield Chunk(text=piece, thinking=True)

    def of_agent(self, message: Table, at: float) -> Iterator[Event]:
        """A message of the model, or one that the agent wrote in its name."""
        within = text(message, "parent_tool_use_id")
        for block in rows(table(message, "message"), "content"):
            kind = text(block, "type")
            if kind == "text":
                if not within:
                    self.said = text(block, "text")
                if text(block, "text"):
                    yield MessageSaid(at=at, text=text(block, "text"), within=within)
            elif kind == "thinking":
                if text(block, "thinking"):
                    yield ThoughtSaid(at=at, text=text(block, "thinking"), within=within)
            elif kind in TOOL_BLOCKS:
                yield self._started(block, within, at)
            elif kind.endswith("_tool_result"):
                yield from self._finished(block, {}, at)
            elif kind not in SILENT_BLOCKS:
                yield ForeignSeen(at=at, what=f"assistant/{kind}", raw=tool.as_json(block)[:RAW_CHARACTERS])

    def of_user(self, message: Table, at: float) -> Iterator[Event]:
        """A message in the user's name: what tools gave, and what commands of the agent's own print."""
        content = table(message, "message")
        result = table(message, "tool_use_result")
        for block in rows(content, "content"):
            if block.get("type") == "tool_result":
                yield from self._finished(block, result, at)
        printed = COMMAND_OUTPUT.match(text(content, "content"))
        if printed and printed[1].strip() and not printed[1].startswith(MODEL_SET):
            yield NoticeRaised(at=at, text=printed[1].strip())

    def tasks_stated(self, message: Table, at: float) -> PlanUpdated:
        """The agent itself set the states of some tasks."""
        return PlanUpdated(at=at, items=self._todo.stated(rows(message, "statuses")))

    def cleared(self, at: float) -> Iterator[Event]:
        """A new conversation begins."""
        self.said = ""
        if self._todo.forget():
            yield PlanUpdated(at=at)

    def _started(self, block: Table, within: str, at: float) -> ToolStarted:
        call, name, asked = text(block, "id"), text(block, "name"), table(block, "input")
        self._calls[call] = name, asked
        return ToolStarted(
            at=at, call=call, tool=name, title=tool.title(asked), input=tool.as_json(asked), within=within
        )

    def _finished(self, block: Table, result: Table, at: float) -> Iterator[Event]:
        call, ok = text(block, "tool_use_id"), block.get("is_error") is not True
        name, asked = self._calls.pop(call, ("", {}))
        yield ToolFinished(at=at, call=call, ok=ok, output=tool.output(block), diff=diff.done(result))
        items = self._todo.finished(name, asked, result) if ok else None
        if items is not None:
            yield PlanUpdated(at=at, items=items)
