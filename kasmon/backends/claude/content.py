"""Content of the conversation: what the agent and its sub-agents write, think and do, and results of their tools."""

import re
from collections.abc import Iterator
from typing import Final, Literal

from kasmon.backends.base import Chunk
from kasmon.backends.claude import diff, tool_text
from kasmon.backends.common.json_access import Table, as_json, rows, table, text
from kasmon.model import events

TOOL_BLOCKS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
SILENT_BLOCKS: Final = frozenset({"redacted_thinking", "image", "document", "fallback"})
"""Blocks without readable content."""
COMMAND_OUTPUT: Final = re.compile(
    r"\A<local-command-(?:stdout|stderr)>(.*)</local-command-(?:stdout|stderr)>\Z", re.DOTALL
)

MODEL_SET: Final = "Set model to "
"""How the agent confirms a model change, which has its own event."""
TODO_STATES: Final[dict[str, Literal["open", "doing", "done"]]] = {"in_progress": "doing", "completed": "done"}


class ConversationContent:
    def __init__(self) -> None:
        self.said = ""
        """The last text of the agent itself."""
        self._todo = TodoList()
        self._calls: dict[str, tuple[str, Table]] = {}
        """The unfinished tool calls: call id -> the tool and its input."""

    def translate_stream(self, event: Table) -> Iterator[Chunk]:
        """Yield the text that the model is writing; *event* is one of its streaming protocol."""
        delta = table(event, "delta")
        if event.get("type") == "content_block_delta":
            if piece := text(delta, "text"):
                yield Chunk(text=piece)
            elif piece := text(delta, "thinking"):
                yield Chunk(text=piece, thinking=True)

    def translate_assistant(self, message: Table, at: float) -> Iterator[events.Event]:
        """Yield the events in a message of the model, or one that the agent wrote in its name."""
        within = text(message, "parent_tool_use_id")
        for block in rows(table(message, "message"), "content"):
            kind = text(block, "type")
            if kind == "text":
                if not within:
                    self.said = text(block, "text")
                if text(block, "text"):
                    yield events.MessageWritten(at=at, text=text(block, "text"), within=within)
            elif kind == "thinking":
                if text(block, "thinking"):
                    yield events.ThoughtWritten(at=at, text=text(block, "thinking"), within=within)
            elif kind in TOOL_BLOCKS:
                yield self._record_call(block, within, at)
            elif kind.endswith("_tool_result"):
                yield from self._record_result(block, {}, at)
            elif kind not in SILENT_BLOCKS:
                yield events.UnknownMessageSeen(at=at, what=f"assistant/{kind}", raw=as_json(block))

    def translate_user(self, message: Table, at: float) -> Iterator[events.Event]:
        """Yield the events in a message in the user's name: tool results, and output of the agent's own commands."""
        content = table(message, "message")
        result = table(message, "tool_use_result")
        for block in rows(content, "content"):
            if block.get("type") == "tool_result":
                yield from self._record_result(block, result, at)
        printed = COMMAND_OUTPUT.match(text(content, "content"))
        if printed and printed[1].strip() and not printed[1].startswith(MODEL_SET):
            yield events.NoticeRaised(at=at, text=printed[1].strip())

    def update_task_states(self, message: Table, at: float) -> events.PlanUpdated:
        """Return the plan after the agent itself set the states of some tasks."""
        return events.PlanUpdated(at=at, items=self._todo.stated(rows(message, "statuses")))

    def clear(self, at: float) -> Iterator[events.Event]:
        """Reset for a new conversation."""
        self.said = ""
        if self._todo.forget():
            yield events.PlanUpdated(at=at)

    def _record_call(self, block: Table, within: str, at: float) -> events.ToolStarted:
        call, name, asked = text(block, "id"), text(block, "name"), table(block, "input")
        self._calls[call] = name, asked
        return events.ToolStarted(
            at=at, call=call, tool=name, title=tool_text.title(asked), input=as_json(asked), within=within
        )

    def _record_result(self, block: Table, result: Table, at: float) -> Iterator[events.Event]:
        call, ok = text(block, "tool_use_id"), block.get("is_error") is not True
        name, asked = self._calls.pop(call, ("", {}))
        yield events.ToolFinished(
            at=at, call=call, ok=ok, output=tool_text.output(block), diff=diff.diff_of_result(result)
        )
        items = self._todo.apply_result(name, asked, result) if ok else None
        if items is not None:
            yield events.PlanUpdated(at=at, items=items)


class TodoList:
    """The agent's own to-do list: the tool `TodoWrite` replaces it whole, the `Task` tools change single tasks."""

    def __init__(self) -> None:
        self._tasks: dict[str, events.PlanItem] = {}
        """By id, in order of creation."""

    def apply_result(self, tool: str, asked: Table, result: Table) -> tuple[events.PlanItem, ...] | None:
        """Return the list after *tool* finished with the input *asked*; None if that does not change it."""
        if tool == "TodoWrite":
            todos = rows(result, "newTodos") or rows(asked, "todos")
            self._tasks = {str(n): _item(todo, "content") for n, todo in enumerate(todos)}
        elif tool == "TaskCreate" and (made := table(result, "task")):
            self._tasks[text(made, "id")] = _item(made, "subject")
        elif tool == "TaskUpdate" and result.get("success") is True:
            self._update(text(result, "taskId"), asked, text(table(result, "statusChange"), "to"))
        elif tool == "TaskList" and "tasks" in result:
            self._tasks = {text(task, "id"): _item(task, "subject") for task in rows(result, "tasks")}
        else:
            return None
        return tuple(self._tasks.values())

    def stated(self, statuses: list[Table]) -> tuple[events.PlanItem, ...]:
        """Return the list after the agent itself set these *statuses*."""
        for status in statuses:
            self._update(text(status, "id"), {}, text(status, "status"))
        return tuple(self._tasks.values())

    def forget(self) -> bool:
        """Clear the list; return whether it had any tasks."""
        was_there = bool(self._tasks)
        self._tasks.clear()
        return was_there

    def _update(self, task: str, asked: Table, status: str) -> None:
        if status == "deleted":
            self._tasks.pop(task, None)
            return
        known = self._tasks.get(task)
        if known is not None:
            state = TODO_STATES.get(status, "open") if status else known.state
            self._tasks[task] = events.PlanItem(text=text(asked, "subject") or known.text, state=state)


def _item(todo: Table, name: str) -> events.PlanItem:
    return events.PlanItem(text=text(todo, name), state=TODO_STATES.get(text(todo, "status"), "open"))
