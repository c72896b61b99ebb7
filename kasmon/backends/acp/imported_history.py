"""The replayed history of a conversation that kasmon has no log of, as imported entries. Pure.

Only the last entries are kept: a conversation of weeks has thousands.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from acp import schema

from kasmon.agents.profile import Quirk
from kasmon.backends.acp.content import text_of
from kasmon.backends.acp.streamed_message import StreamedMessage
from kasmon.backends.acp.tool_calls import AcpToolCalls
from kasmon.model.events import (
    EntryImported,
    MessageWritten,
    NoticeRaised,
    TerminalEntry,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)

MOST: Final = 500
"""How many entries are kept, the last ones."""
ENTRIES: Final = (MessageWritten, ThoughtWritten, ToolStarted, ToolFinished, TurnStarted)
OMITTED: Final = "The beginning of this conversation is omitted here; the agent has it."


class ImportedHistory:
    """Collects the entries of one replay, of an agent with *habits* that runs *program* in *workdir*."""

    def __init__(self, program: str, workdir: str, habits: frozenset[Quirk]) -> None:
        self._program = program
        self._speech, self._tools = StreamedMessage(), AcpToolCalls(workdir, habits)
        self._prompt: list[str] = []
        self._message = ""
        """The id of the message that the prompt is from."""
        self._entries: deque[TerminalEntry] = deque(maxlen=MOST)
        self._count = 0

    def add(self, update: object) -> None:
        if isinstance(update, schema.UserMessageChunk):
            message = update.message_id or ""
            if message != self._message:
                self._end_prompt()
            self._append(self._speech.finish(0.0))
            self._message = message
            self._prompt.append(text_of(update.content))
            return
        self._end_prompt()
        if isinstance(update, schema.AgentMessageChunk | schema.AgentThoughtChunk):
            is_thought = isinstance(update, schema.AgentThoughtChunk)
            text, message = text_of(update.content), update.message_id or ""
            self._append(self._speech.add(text, 0.0, thinking=is_thought, message=message))
        elif isinstance(update, schema.ToolCallStart | schema.ToolCallProgress):
            self._append([*self._speech.finish(0.0), *self._tools.apply(update, 0.0)])

    def end(self, at: float) -> list[EntryImported]:
        """Return the entries, imported at *at*, in seconds since the epoch; when they happened is unknown."""
        self._end_prompt()
        self._append([*self._speech.finish(0.0), *self._tools.end_all(0.0)])
        omitted = [NoticeRaised(at=0.0, text=OMITTED)] if self._count > MOST else []
        return [EntryImported(at=at, entry=entry, program=self._program) for entry in (*omitted, *self._entries)]

    def _end_prompt(self) -> None:
        if prompt := "".join(self._prompt).strip():
            self._append([TurnStarted(at=0.0, prompt=prompt)])
        self._prompt.clear()

    def _append(self, items: Iterable[object]) -> None:
        entries = [item for item in items if isinstance(item, ENTRIES)]
        self._entries += entries
        self._count += len(entries)
