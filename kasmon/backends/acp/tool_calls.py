"""The tool calls of a turn, merged by id from all messages about them; each start and end is reported once. Sans-IO.

A call may first appear in `tool_call`, in `tool_call_update`, or in a permission request; each contains only what is
new. It is reported as started once it runs: when the agent says so, or the user allows it.
"""

import re
from typing import Any, Final, Literal

from acp.schema import ToolCallProgress, ToolCallStart, ToolCallUpdate

from kasmon.agents.profile import Quirk
from kasmon.backends.acp.content import Content, diff_of, edits, output_of, patch_of, texts
from kasmon.backends.common.diff import shorten_path
from kasmon.backends.common.json_access import as_json
from kasmon.backends.common.json_access import at as value_at
from kasmon.model.events import Event, PlanItem, PlanUpdated, ToolFinished, ToolStarted

Mention = ToolCallStart | ToolCallProgress | ToolCallUpdate

NAMED: Final = re.compile(r"(?P<name>.{1,128}?)__(?P=name)_\d+_\d+")
"""gemini's ids of calls."""
IDENTIFIER: Final = re.compile(r"[A-Za-z_][\w.:-]{0,63}")
FILE_KINDS: Final = frozenset({"read", "edit", "delete", "move"})
NO_END: Final = "The agent did not report the result."
TITLE: Final = 500
STATES: Final[dict[str, Literal["open", "doing", "done"]]] = {
    "pending": "open",
    "in_progress": "doing",
    "completed": "done",
    "cancelled": "done",
}
"""The state of a plan or to-do entry."""


class AcpToolCall:
    """One call, as far as it is known."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.title = ""
        self.first_title = ""
        self.kind = ""
        self.input: Any = None
        self.contents: list[Content] = []
        self.paths: list[str] = []
        self.output: Any = None
        self.asked_input: Any = None
        """The input in the permission request, if the agent sends none."""
        self.asked_diff = ""
        """The diff in the permission request, used if the agent sends none at the end."""
        self.is_asked = False
        """A permission request for it is open."""
        self.is_started = self.is_finished = False

    def update(self, mention: Mention) -> None:
        """Add the fields of *mention*; a field that it leaves out stays as it is."""
        if mention.title:
            self.first_title = self.first_title or mention.title
            self.title = mention.title
        self.kind = mention.kind or self.kind
        self.input = self.input if mention.raw_input is None else mention.raw_input
        self.output = self.output if mention.raw_output is None else mention.raw_output
        if mention.content is not None:
            self.contents = list(mention.content)
        if mention.locations:
            self.paths = [location.path for location in mention.locations]


class AcpToolCalls:
    """The calls of the running turn."""

    def __init__(self, workdir: str, habits: frozenset[Quirk] = frozenset()) -> None:
        self.habits = habits
        """Those of the agent, once it is known by its introduction."""
        self._workdir = workdir
        self._tools: dict[str, AcpToolCall] = {}

    def apply(self, mention: Mention, at: float) -> list[Event]:
        before = self._tools.get(mention.tool_call_id)
        tool = self._tool(mention)
        had_input = before is tool and bool(tool.input or tool.asked_input)
        tool.update(mention)
        if tool.is_finished:
            return []
        if mention.status in ("completed", "failed"):
            return self._finish(tool, mention.status == "completed", at)
        runs = mention.status == "in_progress" or (before is tool and bool(tool.input) and not had_input)
        return self._start(tool, at) if runs and not tool.is_asked else []

    def record_request(self, mention: ToolCallUpdate) -> AcpToolCall:
        tool = self._tool(mention)
        tool.update(mention)
        tool.is_asked = True
        tool.asked_diff = diff_of(edits(tool.contents), self._workdir)
        return tool

    def apply_answer(self, call: str, allowed: bool, at: float) -> list[Event]:
        """Apply the user's answer; return the resulting events."""
        tool = self._tools.get(call)
        if tool is None:
            return []
        tool.is_asked = False
        return self._start(tool, at) if allowed else []

    def end_all(self, at: float) -> list[Event]:
        """End the turn; return events that end all open calls."""
        left = [tool for tool in self._tools.values() if tool.is_started and not tool.is_finished]
        self._tools.clear()
        return [ToolFinished(at=at, call=tool.call, ok=False, output=NO_END, diff="") for tool in left]

    def name(self, tool: AcpToolCall) -> str:
        """Return the name of the tool: the protocol only has kinds, some agents send names."""
        if Quirk.NAMED_CALLS in self.habits and (match := NAMED.fullmatch(tool.call)):
            return match["name"]
        if tool.kind and tool.kind != "other":
            return tool.kind
        return tool.first_title if IDENTIFIER.fullmatch(tool.first_title) else "tool"

    def title(self, tool: AcpToolCall) -> str:
        """Return one line that describes what the tool is used on."""
        is_name = IDENTIFIER.fullmatch(tool.title) and tool.kind in FILE_KINDS and tool.paths
        title = " ".join(shorten_path(tool.paths[0] if is_name else tool.title, self._workdir).split())
        return title if len(title) <= TITLE else f"{title[: TITLE - 1]}…"

    def _tool(self, mention: Mention) -> AcpToolCall:
        tool = self._tools.get(mention.tool_call_id)
        if tool is None or (tool.is_finished and isinstance(mention, ToolCallStart)):
            tool = self._tools[mention.tool_call_id] = AcpToolCall(mention.tool_call_id)
        return tool

    def _start(self, tool: AcpToolCall, at: float) -> list[Event]:
        if tool.is_started:
            return []
        tool.is_started = True
        name, title = self.name(tool), self.title(tool)
        given = tool.input or tool.asked_input
        arguments = as_json(given) if given else ""
        started = ToolStarted(at=at, call=tool.call, tool=name, title="" if title == name else title, input=arguments)
        return [started, *_to_do(tool.input, at)]

    def _finish(self, tool: AcpToolCall, ok: bool, at: float) -> list[Event]:
        started = self._start(tool, at)
        tool.is_finished, tool.is_asked = True, False
        output = texts(tool.contents) or output_of(tool.output)
        diff = patch_of(tool.output) or diff_of(edits(tool.contents), self._workdir) or tool.asked_diff
        finished = ToolFinished(at=at, call=tool.call, ok=ok, output=output, diff=diff if ok else "")
        return [*started, finished]


def _to_do(data: Any, at: float) -> list[Event]:
    """Return the to-do list in a tool's input: opencode has a tool for it, and reports no plan."""
    entries = value_at(data, "todos")
    if not isinstance(entries, list) or not all(
        isinstance(value_at(entry, name), str) for entry in entries for name in ("content", "status")
    ):
        return []
    items = tuple(PlanItem(text=entry["content"], state=STATES.get(entry["status"], "open")) for entry in entries)
    return [PlanUpdated(at=at, items=items)]
