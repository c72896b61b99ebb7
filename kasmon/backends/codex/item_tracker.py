"""Track codex's items from their beginning to their end, and report them as events of the session.

Codex begins an item before it asks for permission: such an item is held back, and begins when it is allowed.
"""

from typing import Final, Literal

from kasmon.backends.base import Chunk
from kasmon.backends.codex import items
from kasmon.backends.common.json_access import Table, rows, text, texts
from kasmon.model.events import Event, MessageWritten, SubtaskChanged, ToolFinished, ToolStarted

AGENT: Final = "agent"
"""The transcript's name for the tool that starts another agent."""
INTERRUPTED: Final = "interrupted"
ASKED_FIRST: Final = "agent"
"""The source of a command that has no process yet; it changes once there is one."""


class ItemTracker:
    """The items of one session. *main* is the thread that the user talks to; the others belong to its sub-agents."""

    def __init__(self, main: str, workdir: str) -> None:
        self.changes: dict[str, list[Table]] = {}
        self._main = main
        self._workdir = workdir
        self._calls: dict[str, str] = {}
        """The thread of each sub-agent -> the call that started it."""
        self._tokens: dict[str, int] = {}
        """The tokens that each of them has used."""
        self._held: dict[str, tuple[Table, str]] = {}
        """The items held back, each with its thread."""
        self._begun: dict[str, str] = {}
        """The unfinished items that have begun -> their threads."""
        self._given_up: set[str] = set()
        """The items that were reported as finished because their turn ended."""
        self._commands: set[str] = set()
        """The commands among the begun items: they may outlive their turn."""
        self._running: dict[str, str] = {}
        """The commands that codex waits for -> their threads."""
        self._writing: dict[str, tuple[str, str]] = {}
        """The messages that are being written: the thread, and the text so far."""

    def within(self, thread: str) -> str:
        """Return the call of the sub-agent that works in *thread*; empty for the agent itself."""
        return "" if thread == self._main else self._calls.get(thread, thread)

    def record_start(self, item: Table, thread: str, now: float) -> list[Event]:
        kind, call = text(item, "type"), text(item, "id")
        if kind in ("agentMessage", "reasoning"):
            self._leave_running(thread)
            if kind == "agentMessage":
                self._writing[call] = (thread, "")
        elif kind == items.PERSONS:
            return self.pop_unfinished(thread, now)
        elif kind == "fileChange":
            self.changes[call] = rows(item, "changes")
            self._held[call] = (item, thread)
        elif kind == "commandExecution" and text(item, "source") == ASKED_FIRST and item.get("processId") is None:
            self._held[call] = (item, thread)
        else:
            return self._begin(item, thread, now)
        return []

    def record_approval(self, call: str, now: float) -> list[Event]:
        item, thread = self._held.pop(call, ({}, ""))
        return self._begin(item, thread, now)

    def record_end(self, item: Table, thread: str, now: float) -> list[Event]:
        """Apply item/completed. An item that was declined before it began is not reported."""
        call = text(item, "id")
        self._writing.pop(call, None)
        self._running.pop(call, None)
        self.changes.pop(call, None)
        if text(item, "type") == "subAgentActivity":
            return self._agent(item, thread, now)
        held = self._held.pop(call, None)
        if held is not None and text(item, "status") == "declined":
            return []
        for theirs in texts(item, "receiverThreadIds"):
            self._calls.setdefault(theirs, call)
        if call in self._given_up:
            return []
        before = [] if call in self._begun else self._begin(item, thread, now)
        self._begun.pop(call, None)
        self._commands.discard(call)
        self._running.pop(call, None)
        ended_items = items.finished(item, self._workdir, self.within(thread), now)
        return before if ended_items is None else [*before, ended_items]

    def record_text(self, call: str, thread: str, delta: str) -> list[Chunk]:
        _, before = self._writing.get(call, (thread, ""))
        self._writing[call] = (thread, before + delta)
        return self.shown(thread, delta)

    def shown(self, thread: str, delta: str, *, thinking: bool = False) -> list[Chunk]:
        """Return text as it is written; of sub-agents only whole messages are reported."""
        return [Chunk(text=delta, thinking=thinking)] if thread == self._main and delta else []

    def record_usage(self, thread: str, tokens: int, now: float) -> list[Event]:
        """Record the *tokens* that *thread* has used so far, and report them if it is a sub-agent's."""
        call = self._calls.get(thread)
        if call is None or tokens == self._tokens.get(thread):
            return []
        self._tokens[thread] = tokens
        return [SubtaskChanged(at=now, id=thread, call=call, job="agent", tokens=tokens)]

    def record_output(self, call: str, now: float) -> list[Event]:
        """Record output of the command *call*, which shows that it runs."""
        return self.record_approval(call, now) if call in self._held else []

    def move_to_background(self, call: str) -> None:
        """Record that codex no longer waits for the command *call*."""
        self._running.pop(call, None)

    def foreground(self) -> dict[str, str]:
        """Return the commands that codex waits for, each with its thread."""
        return dict(self._running)

    def pop_unfinished(self, thread: str, now: float) -> list[Event]:
        """Return the unfinished messages of *thread* as far as they came; they will not be finished."""
        return [
            MessageWritten(at=now, text=written, within=self.within(thread))
            for written in self.forget_unfinished(thread)
            if written.strip()
        ]

    def forget_unfinished(self, thread: str) -> list[str]:
        """Forget the messages that *thread* was writing, and return them."""
        written = [so_far for of, so_far in self._writing.values() if of == thread]
        self._writing = {call: (of, so_far) for call, (of, so_far) in self._writing.items() if of != thread}
        return written

    def end_turn(self, thread: str, now: float) -> list[Event]:
        """End what the end of a turn leaves unfinished in *thread*."""
        ended_items = self.pop_unfinished(thread, now)
        self._held = {call: held for call, held in self._held.items() if held[1] != thread}
        self._leave_running(thread)
        for call in [call for call, of in self._begun.items() if of == thread and call not in self._commands]:
            ended_items += self.give_up(call, now)
        return ended_items

    def give_up(self, call: str, now: float) -> list[Event]:
        """Report the item *call* as finished without a result."""
        if self._begun.pop(call, None) is None:
            return []
        self._given_up.add(call)
        return [ToolFinished(at=now, call=call, ok=False, output=INTERRUPTED)]

    def _begin(self, item: Table, thread: str, now: float) -> list[Event]:
        started = items.started(item, self._workdir, self.within(thread), now)
        if started is None:
            return []
        self._begun[started.call] = thread
        for theirs in texts(item, "receiverThreadIds"):
            self._calls.setdefault(theirs, started.call)
        if text(item, "type") == "commandExecution":
            self._commands.add(started.call)
            self._running[started.call] = thread
        return [started]

    def _agent(self, item: Table, thread: str, now: float) -> list[Event]:
        """Return the start or end of a sub-agent."""
        theirs, kind = text(item, "agentThreadId"), text(item, "kind")
        if kind == "started":
            self._calls[theirs] = text(item, "id")
            title = text(item, "agentPath")
            started = ToolStarted(at=now, call=text(item, "id"), tool=AGENT, title=title, within=self.within(thread))
            return [started]
        if kind in ("completed", "interrupted") and theirs in self._calls:
            call, is_done, used = self._calls[theirs], kind == "completed", self._tokens.get(theirs, 0)
            state: Literal["done", "stopped"] = "done" if is_done else "stopped"
            ended = SubtaskChanged(at=now, id=theirs, call=call, job="agent", state=state, tokens=used)
            return [ToolFinished(at=now, call=call, ok=is_done), ended]
        return []

    def _leave_running(self, thread: str) -> None:
        self._running = {call: of for call, of in self._running.items() if of != thread}
