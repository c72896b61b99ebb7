"""Reports of an agent's hooks: notes that `kasmon-emit` left in the session's `hooks.jsonl`. All of it is foreign.

A note counts only if it belongs to this session's agent. Either its generation and nonce are those of the start or,
if its environment was cleared, it descends from the agent's process. Only known kinds of content count.
"""

import contextlib
import fcntl
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kasmon.model.permission import RequestKind
from kasmon.sanitize import clean_line

FILE: Final = "hooks.jsonl"
"""In the session's folder."""
MOST: Final = 256 * 1024
"""The most bytes of notes read at once."""
LONGEST: Final = 160 * 1024
DIGEST: Final = 32
"""The length of a prompt's digest."""
FULL: Final = 256 * 1024
"""A file of this size is truncated once it was read completely."""
DROPPING: Final = 896 * 1024
"""To a file above this size `kasmon-emit` may not add a note."""
PLANS: Final = frozenset({"ExitPlanMode", "exit_plan_mode"})
QUESTIONS: Final = frozenset({"AskUserQuestion", "ask_user"})
WORKING: Final = frozenset(
    {"UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "BeforeAgent", "BeforeTool", "AfterTool"}
)
IDLE: Final = frozenset({"Stop", "AfterAgent", "agent-turn-complete"})
FAILED: Final = frozenset({"StopFailure"})
"""The turn ended in an error: possibly the usage limit, which only the screen shows."""
OVER: Final = frozenset({"PostToolUse", "PostToolUseFailure"})
TURNS: Final = frozenset({"UserPromptSubmit", "Stop", "StopFailure"})
"""No tool call is pending: a turn begins or has ended."""
ASKED: Final = {
    "permission_prompt": RequestKind.PERMISSION,
    "ToolPermission": RequestKind.PERMISSION,
    "worker_permission_prompt": RequestKind.PERMISSION,
    "elicitation_dialog": RequestKind.QUESTION,
    "elicitation_url_dialog": RequestKind.QUESTION,
    "agent_needs_input": RequestKind.QUESTION,
}
"""The kinds of notifications that an open dialog sends, and what it asks for."""
OF_ANOTHER: Final = re.compile(r"(?!Teammate setup ).* needs your input(?:: .*)?")
"""What claude's agent view says of a background session with `agent_needs_input`: that is no state of its own. The
same kind comes from its own dialogs, with other words. `agent_completed` comes from the agent view only (2.1.330)."""


class HookStatus(NamedTuple):
    """The agent state that a note reports."""

    value: str
    asking: RequestKind | None
    text: str
    event: str
    prompt: str = ""
    """The digest of the prompt that the agent accepted, if the note names one."""
    failed: bool = False
    """Whether its turn ended in an error; *text* is the error."""


class HookToolCalls(NamedTuple):
    """A change of the pending tool calls in a note: one more, one fewer, or none any more."""

    call: str
    """The agent's own id of the call; empty if the note is not about one call."""
    input: object = None
    """The tool's input, for a call that begins; None if unknown."""
    is_over: bool = False


UNKNOWN_CALL: Final = HookToolCalls("")
"""A call may have begun of which no note tells: all calls are unknown until the turn ends."""


class HookNote(msgspec.Struct):
    """One line of the file."""

    generation: str = ""
    nonce: str = ""
    pids: list[int] = []
    event: str = ""
    what: str = ""
    tool: str = ""
    text: str = ""
    prompt: str = ""
    call: str = ""
    input: Any = None


_decoder = msgspec.json.Decoder(HookNote)


class HookNotes:
    """The notes in the file at *path* that belong to *generation* and *nonce*, or come from below process *pid*."""

    def __init__(self, path: Path, generation: int, nonce: str, pid: int) -> None:
        self._path, self._generation, self._nonce, self._pid = path, str(generation), nonce, pid
        self._read_to = 0
        self._rest = b""
        self.calls: list[HookToolCalls] = []
        """The tool call changes, oldest first; the reader empties it."""

    def new(self) -> list[HookStatus]:
        """Return the status reports since the last call, oldest first. Blocks on file reads."""
        try:
            size = self._path.stat().st_size
            if size == self._read_to:
                return []
            with self._path.open("rb") as file:
                if size < self._read_to:  # it was truncated
                    self._read_to, self._rest = 0, b""
                file.seek(self._read_to)
                data = file.read(MOST)
                self._read_to += len(data)
            if self._read_to >= FULL or b'"input":' in data:  # tool input may hold secrets: do not leave it in the file
                data += self._truncate()
        except OSError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        notes = []
        for line in filter(None, lines):
            try:
                note = self._note(line)
            except ValueError:
                self.calls.append(UNKNOWN_CALL)
            else:
                notes += [note] if note is not None else []
                self.calls += [called] if note is not None and (called := called_by(note)) else []
        if len(self._rest) > LONGEST or size > DROPPING:
            self._rest = self._rest if len(self._rest) <= LONGEST else b""
            self.calls.append(UNKNOWN_CALL)
        return [signal for note in notes if (signal := meaning(note))]

    def _truncate(self) -> bytes:
        """Truncate the file and return its unread rest. The writer takes the same lock."""
        with self._path.open("r+b") as file, contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.seek(self._read_to)
            left = file.read()
            file.truncate(0)
            self._read_to = 0
            return left
        return b""

    def _note(self, line: bytes) -> HookNote | None:
        """Return the note in *line*; None if it is not about this session's agent. Raises `ValueError`."""
        if len(line) > LONGEST:
            raise ValueError("it is too long")
        try:
            note = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError("it is no note") from error
        if note.generation or note.nonce:
            return note if (note.generation, note.nonce) == (self._generation, self._nonce) else None
        return note if self._pid in note.pids else None


def called_by(note: HookNote) -> HookToolCalls | None:
    """Return the tool call change that *note* reports; None if it reports none."""
    if note.event == "PreToolUse":
        return HookToolCalls(note.call, note.input) if note.call else UNKNOWN_CALL
    if note.event in OVER and note.call:
        return HookToolCalls(note.call, is_over=True)
    return HookToolCalls("", is_over=True) if note.event in TURNS else None


def meaning(note: HookNote) -> HookStatus | None:
    """Return the state that *note* reports; None if it reports none."""
    event, text = clean_line(note.event)[:40], clean_line(note.text)[:200]
    if note.event in WORKING:
        return HookStatus("working", None, "", event, prompt=clean_line(note.prompt)[:DIGEST])
    if note.event in FAILED:
        return HookStatus("idle|limited", None, text, event, failed=True)
    if note.event in IDLE:
        return HookStatus("idle", None, "", event)
    if note.event == "Notification" and note.what in ASKED:
        if note.what == "agent_needs_input" and OF_ANOTHER.fullmatch(text):
            return None
        return HookStatus("asking", ASKED[note.what], text, event)
    if note.event == "PermissionRequest":
        kind = RequestKind.PLAN if note.tool in PLANS else RequestKind.QUESTION if note.tool in QUESTIONS else None
        return HookStatus("asking", kind or RequestKind.PERMISSION, text or clean_line(note.tool)[:40], event)
    if note.event == "Notification" and note.what == "idle_prompt":
        return HookStatus("idle", None, "", event)
    return None
