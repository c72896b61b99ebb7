"""Evidence of one agent from files and processes: its registry, hook notes, terminal foreground. Blocks.

`read` runs in a thread, one at a time for each agent. It never writes to the agent's files.
"""

import contextlib
import json
import re
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from kasmon import system
from kasmon.backends.common.transcripts import TranscriptTail, claude_transcript
from kasmon.backends.tmux.agent_sandbox import AgentSandbox
from kasmon.backends.tmux.evidence import claude_registry, hooks
from kasmon.backends.tmux.evidence.claude_registry import RegistryStatus
from kasmon.backends.tmux.evidence.codex_rollout import CodexRollout, OpenRollouts, rollout
from kasmon.backends.tmux.evidence.hooks import HookNotes, HookStatus
from kasmon.backends.tmux.evidence.process_table import ProcessTable
from kasmon.model.agent_program import SHELLS
from kasmon.model.commands import prompt_digest
from kasmon.model.events import SignalSeen
from kasmon.model.evidence import SIGSTOP
from kasmon.model.limits.window import LimitWindow
from kasmon.paths import read_stamp
from kasmon.store.fleet_cache import connect

REGISTERED: Final = frozenset({"claude"})
"""Programs that keep a registry."""
TRANSCRIBED: Final = frozenset({"claude", "codex"})
"""Programs whose transcript names each prompt when its turn begins."""
PATCH: Final = "*** Begin Patch\n"
PATCHED: Final = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
"""A file that such a patch changes; its other rows begin otherwise."""

OPENCODE_PARTS: Final = 40
"""With more unfinished calls in its conversations, none is known."""
OPENCODE_PART_BYTES: Final = 256 * 1024
"""With an unfinished call that is longer, none is known."""
OPENCODE_QUERY: Final = (
    "SELECT CASE WHEN length(data) <= ? THEN data END FROM part"
    " WHERE session_id IN (SELECT id FROM session ORDER BY time_updated DESC LIMIT 8)"
    ' AND data LIKE \'{"type":"tool"%\' AND data LIKE \'%"status":"running"%\' LIMIT ?'
)


class ToolCallEvidence(NamedTuple):
    """One tool call, as the agent itself reports it."""

    text: str
    """What the agent displays of it: a command, else the whole tool input."""
    full: str
    """The whole tool input, to decide on."""
    values: tuple[str, ...] = ()
    """The values of its fields, one of which may be the file that it changes; none for a command."""


class ProcessEvidence:
    """Evidence of the agent *program*, started as process *pid* in a pane, with its session's folder."""

    def __init__(
        self,
        program: str,
        pid: int,
        folder: Path,
        generation: int,
        nonce: str,
        sandbox: AgentSandbox | None = None,
        background: str = "",
    ) -> None:
        """*sandbox*: where its sandbox's files are on the host; None without a sandbox.

        *background*: the id of the background session that it shows, whose process is elsewhere; empty for none.
        """
        self._background = background
        self.version = ""
        """Its version, by its registry."""
        self.conversation = ""
        """The id to resume its conversation by, as it reports it; empty until known."""
        self.permission_mode = ""
        """Its permission mode, by codex's rollout; empty until known, and for other programs."""
        self.limits: tuple[LimitWindow, ...] = ()
        """The limits of its account, by codex's rollout; empty until known, and for other programs."""
        self.reads_prompts = False
        """Whether its transcript is read for the prompts that it takes."""
        self._transcript = TranscriptTail(time.time())
        self._rollout = CodexRollout()
        self._open_rollouts = OpenRollouts()
        self.program, self._pid = program, pid
        self._sandbox = sandbox
        self._notes = HookNotes(folder / hooks.FILE if sandbox is None else sandbox.notes, generation, nonce, pid)
        self._pids: list[int] = [pid]
        self._folder: Path | None = None
        self._file: Path | None = None
        self._stamp = (0, 0, 0)
        self.is_stopped = False
        """Whether it was stopped by a signal at the last look at its processes, or by the log before that."""
        self.agent = pid
        """Its own process: another one than the pane's if it is in a sandbox."""
        self._jobs: frozenset[int] = frozenset()
        """The processes below its shell when the shell was not in the foreground."""
        self._was_agent = False
        self._lock = Lock()
        self._reports: list[HookStatus] = []
        """Reports of notes that were not returned yet."""
        self._calls: dict[str, object] = {}
        """The pending tool calls' inputs, by the agent's own ids; None for an unknown one."""

    def calls(self) -> list[ToolCallEvidence]:
        """Return all pending tool calls, by the agent's own hooks or records, each once. Blocks.

        None is returned if one of them is unknown. Calls that were denied in the terminal may be among them until the
        turn ends.
        """
        with self._lock:
            self._read_notes()
            inputs = list(self._calls.values())
        if self.program == "opencode":
            variables = system.HERE.read_variables(self._pids[-1]) or system.HERE.read_variables(self._pid)
            inputs += read_opencode_calls(variables, None if self._sandbox is None else self._sandbox.home)
        if None in inputs:
            return []
        return list(dict.fromkeys(call for each in inputs if (call := call_of(each)) is not None))

    def _read_notes(self) -> None:
        self._reports += self._notes.new()
        for called in self._notes.calls:
            if not called.call and called.is_over:
                self._calls.clear()
            elif called.is_over:
                self._calls.pop(called.call, None)
            else:
                self._calls[called.call] = called.input
        self._notes.calls.clear()

    def read(self, at: float, table: ProcessTable | None) -> list[SignalSeen]:
        """Return possibly new signals of each source, seen *at*; *table* only when processes are due for a look."""
        signals = self._processes(table, at) if table is not None else []
        if (status := self._read_registry(is_due=table is not None)) is not None:
            self.version = status.version or self.version
            if not self._background:  # its conversation is in use there
                self.conversation = status.conversation or self.conversation
            signals.append(
                SignalSeen(at=at, source="registry", value=status.value, asking=status.asking, text=status.text)
            )
        prompts = self._read_prompts(afresh=table is not None) if self.reads_prompts else []
        signals += [SignalSeen(at=at, source="transcript", value="prompt", prompt=one) for one in prompts]
        with self._lock:
            self._read_notes()
            news, self._reports = self._reports, []
        for report in [*(one for one in news[:-1] if one.prompt or one.failed), *news[-1:]]:
            signals.append(
                SignalSeen(
                    at=at,
                    source="hook",
                    value=report.value,
                    asking=report.asking,
                    text=report.text,
                    rule=report.event,
                    prompt=report.prompt,
                    failed=report.failed,
                )
            )
        return signals

    def _read_prompts(self, *, afresh: bool) -> list[str]:
        if self.program == "codex":
            files = self._open_rollouts.read(self._pids, afresh=afresh)
        else:
            file = claude_transcript(self._folder.parent, self.conversation) if self._folder else None
            files = [(str(file), file)] if file is not None else []
        if len(files) != 1:
            return []
        with contextlib.suppress(OSError):
            return [prompt_digest(prompt) for prompt in self._transcript.read(*files[0])]
        return []

    def has_changed_silently(self, table: ProcessTable) -> bool:
        """Whether *table* shows it stopped although it was not at the last look, or without its background process.

        Without a known background process it may have a new one since the last look.
        """
        if self._background and (self._file is None or int(self._file.stem) not in table.entries):
            return True
        return not self.is_stopped and (table.is_stopped({self.agent}) or table.is_stopped_in_front(self._pid))

    def _processes(self, table: ProcessTable, at: float) -> list[SignalSeen]:
        self._pids = [self._pid, *table.below(self._pid)]
        if self.program == "codex":
            self.conversation = rollout(self._pids) or self.conversation
            self.permission_mode = self._rollout.permission_mode(self._pids) or self.permission_mode
            self.limits = self._rollout.limits
        is_back = table.is_back_at_shell(self._pid)
        was_stopped, is_in_front = self.is_stopped, table.is_stopped_in_front(self._pid)
        self.is_stopped = is_in_front or table.is_stopped({self._pid, self.agent})
        if is_back is False:
            self._jobs = frozenset(self._pids[1:])
        elif is_back and self.program not in SHELLS:
            self.is_stopped = self.is_stopped or table.is_stopped(self._jobs.intersection(self._pids))
        if self.is_stopped:
            return [SignalSeen(at=at, source="process", value="stopped", text=SIGSTOP if is_in_front else "")]
        if self.program in SHELLS and is_back is not None:
            return [SignalSeen(at=at, source="process", value="alone" if is_back else "command")]
        if is_back is None or (is_back and not self._was_agent):
            return [SignalSeen(at=at, source="process", value="agent")] if was_stopped else []
        self._was_agent = self._was_agent or not is_back
        return [SignalSeen(at=at, source="process", value="shell" if is_back else "agent")]

    def _read_registry(self, *, is_due: bool) -> RegistryStatus | None:
        """Return its registry's status; None if it has no registry, or nothing has changed.

        *is_due*: whether processes are due for a look. A background session's process does not end with its screen: if
        it was killed, its file stays, and Claude Code's service starts another one within some 15 s (2.1.330).
        """
        if self._background and is_due and self._file is not None and not claude_registry.is_current(self._file):
            self._file, self._stamp = self._find_entry(self._file.parent), (0, 0, 0)
            if self._file is None:
                return RegistryStatus()
        if self._file is None:
            if self.program not in REGISTERED and self.program not in SHELLS:
                return None
            self._folder = self._find_registry()  # again each time: a wrapper may set the variable later
            self._file = self._find_entry(self._folder) if self._folder else None
            if self._file is None:
                return None
        stamp = read_stamp(self._file)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        status = claude_registry.read(self._file, self._names().get(self._file.stem))
        if not any(stamp):
            self._file = None
        return status

    def _find_entry(self, folder: Path) -> Path | None:
        if self._background:
            return claude_registry.find_background(folder, self._background)
        return claude_registry.find_entry(folder, self._names())

    def _find_registry(self) -> Path | None:
        if self._sandbox is None:
            return claude_registry.folder_of(system.HERE.read_variables(self._pids[-1]))
        return claude_registry.folder_of({"HOME": str(self._sandbox.home)})

    def _names(self) -> dict[str, int]:
        """Return its processes by the pids it sees itself: a sandbox has its own pid numbering."""
        if self._sandbox is None:
            return {str(pid): pid for pid in self._pids}
        from kasmon.sandbox.shared.processes import name_inside  # only needed with a sandbox

        return {name: pid for pid in self._pids if (name := name_inside(pid))}


def call_of(given: object) -> ToolCallEvidence | None:
    """Return the tool call with the input *given*; None if the input is empty or of another type."""
    if not isinstance(given, dict):
        return ToolCallEvidence(given, given) if isinstance(given, str) and given else None
    fields = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in given.items()
    }
    command = fields.pop("command", "")
    values = tuple(one for value in (*fields.values(), command) for one in (value, *PATCHED.findall(value)))
    if not isinstance(given.get("command"), str):
        text = "\n".join(
            f"{key}: {value}" for key, value in {**fields, **({"command": command} if command else {})}.items()
        )
        return ToolCallEvidence(text, text, values) if text else None
    fields.pop("description", None)  # the agent's description, which has no effect
    full = "\n".join((command, *(f"{key}: {value}" for key, value in fields.items())))
    return ToolCallEvidence(command, full, values if command.startswith(PATCH) else ())


def read_opencode_calls(variables: Mapping[str, str], home: Path | None = None) -> list[object]:
    """Return the inputs of all unfinished tool calls; none if one of them is not known. Blocks.

    None is known if the database is missing or has another schema. Several opencodes may share it: their calls are
    included.

    Args:
        variables: the agent's environment.
        home: its home as seen from here, where it has one of its own.
    """
    data = str(home / ".local/share") if home else variables.get("XDG_DATA_HOME", "")
    file = Path(data or Path(variables.get("HOME", "")) / ".local/share") / "opencode" / "opencode.db"
    try:
        if not file.is_absolute() or not file.is_file() or file.is_symlink():
            return []
        with contextlib.closing(connect(file)) as database:
            texts = [text for (text,) in database.execute(OPENCODE_QUERY, (OPENCODE_PART_BYTES, OPENCODE_PARTS + 1))]
        states = [json.loads(text)["state"] for text in texts]
        inputs = [state["input"] for state in states if state["status"] == "running"]
    except (OSError, sqlite3.Error, ValueError, RecursionError, LookupError, TypeError):
        return []
    return inputs if len(texts) <= OPENCODE_PARTS else []
