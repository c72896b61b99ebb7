"""What an agent's hooks say: notes that `kasmon-emit` left in the session's `hooks.jsonl`. All of it is foreign.

A note counts only where it belongs to this session's agent: generation and nonce are those it was started with, or,
where its environment was swept, it descends from the agent's process. Of what it says only the known kinds count.
"""

import contextlib
import fcntl
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kasmon.model.permission import RequestKind
from kasmon.sanitize import clean_line

FILE: Final = "hooks.jsonl"
"""In the session's folder."""
MOST: Final = 256 * 1024
"""So many bytes of notes are read at once."""
LONGEST: Final = 160 * 1024
DIGEST: Final = 32
"""How long the digest of a prompt is."""
FULL: Final = 256 * 1024
"""A file of this size, all of which was read, begins anew."""
PLANS: Final = frozenset({"ExitPlanMode", "exit_plan_mode"})
QUESTIONS: Final = frozenset({"AskUserQuestion", "ask_user"})
WORKING: Final = frozenset(
    {"UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "BeforeAgent", "BeforeTool", "AfterTool"}
)
IDLE: Final = frozenset({"Stop", "AfterAgent", "agent-turn-complete"})
FAILED: Final = frozenset({"StopFailure"})
"""The turn ended by an error: that may have been the usage limit, which only the screen tells."""
OVER: Final = frozenset({"PostToolUse", "PostToolUseFailure"})
"""A tool call is over."""
TURNS: Final = frozenset({"UserPromptSubmit", "Stop", "StopFailure"})
"""No tool call waits: a turn begins, or is over."""
ASKED: Final = frozenset({"permission_prompt", "ToolPermission"})


class HookStatus(NamedTuple):
    """What a note says of the agent."""

    value: str
    asking: RequestKind | None
    text: str
    event: str
    prompt: str = ""
    """The digest of the prompt that the agent took, where it names one."""
    failed: bool = False
    """Its turn ended in an error: *text* says which."""


class HookToolCalls(NamedTuple):
    """What a note says of the tool calls that wait: one more, one less, or none any more."""

    call: str
    """The agent's own id of the call; empty where it is none of a call."""
    input: object = None
    """What the tool is to get, for a call that begins."""
    is_over: bool = False


class HookNote(msgspec.Struct):
    """One line."""

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
        """What was said of tool calls, oldest first; whoever reads it empties it."""

    def new(self) -> list[HookStatus]:
        """What was said since the last call, oldest first. Blocks, for a file's time."""
        try:
            size = self._path.stat().st_size
            if size == self._read_to:
                return []
            with self._path.open("rb") as file:
                if size < self._read_to:  # it began anew
                    self._read_to, self._rest = 0, b""
                file.seek(self._read_to)
                data = file.read(MOST)
                self._read_to += len(data)
            if self._read_to >= FULL or b'"input":' in data:  # what tools get may hold secrets: it is not kept there
                data += self._emptied()
        except OSError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = b"" if len(self._rest) > LONGEST else self._rest
        notes = [note for line in lines if (note := self._note(line))]
        self.calls += [called for note in notes if (called := called_by(note))]
        return [said for note in notes if (said := meaning(note))]

    def _emptied(self) -> bytes:
        """Begin the file anew; what was left in it that nobody had read. Who writes holds the same lock."""
        with self._path.open("r+b") as file, contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.seek(self._read_to)
            left = file.read()
            file.truncate(0)
            self._read_to = 0
            return left
        return b""

    def _note(self, line: bytes) -> HookNote | None:
        if not line or len(line) > LONGEST:
            return None
        try:
            note = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if note.generation or note.nonce:
            return note if (note.generation, note.nonce) == (self._generation, self._nonce) else None
        return note if self._pid in note.pids else None


def called_by(note: HookNote) -> HookToolCalls | None:
    """What *note* says of the tool calls that wait; None where it says nothing of them."""
    if note.event == "PreToolUse" and note.call:
        return HookToolCalls(note.call, note.input)
    if note.event in OVER and note.call:
        return HookToolCalls(note.call, is_over=True)
    return HookToolCalls("", is_over=True) if note.event in TURNS else None


def meaning(note: HookNote) -> HookStatus | None:
    """What *note* says of the agent's state; None where it says nothing of it."""
    event, text = clean_line(note.event)[:40], clean_line(note.text)[:200]
    if note.event in WORKING:
        return HookStatus("working", None, "", event, prompt=clean_line(note.prompt)[:DIGEST])
    if note.event in FAILED:
        return HookStatus("idle|limited", None, text, event, failed=True)
    if note.event in IDLE:
        return HookStatus("idle", None, "", event)
    if note.event == "PermissionRequest" or (note.event == "Notification" and note.what in ASKED):
        kind = RequestKind.PLAN if note.tool in PLANS else RequestKind.QUESTION if note.tool in QUESTIONS else None
        return HookStatus("asking", kind or RequestKind.PERMISSION, text or clean_line(note.tool)[:40], event)
    if note.event == "Notification" and note.what == "idle_prompt":
        return HookStatus("idle", None, "", event)
    return None
