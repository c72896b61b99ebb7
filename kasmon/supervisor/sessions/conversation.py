"""The conversation of an agent in a terminal: its id, and its turns.

Measured with claude 2.1.330 and codex 0.169. Neither promises these formats, so each result is checked
against the agent's process, and nothing is guessed.

A terminal gives kasmon states and rows, not messages. Claude and codex keep a transcript file. When the session
returns to a protocol, the part since it last left one is written into the log, marked as imported.
"""

import contextlib
import heapq
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from kasmon import system
from kasmon.backends.common.environment import inherited, load_variables, own_prefixes, program_of
from kasmon.backends.common.transcripts import claude_folder, claude_transcript
from kasmon.backends.tmux.evidence.codex_rollout import UUID, rollout
from kasmon.errors import KasmonError
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.codex_permissions import CodexPermissions
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import EntryImported, Event, SessionStarted, SettingsChanged, TerminalEntry
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, read_json
from kasmon.store.event_log import EventLog
from kasmon.supervisor.recovery import claude, codex
from kasmon.supervisor.sessions.permission_mode import of_codex

log = logging.getLogger(__name__)


def import_turns(paths: Paths, session: SessionId, program: str, folder: Path, conversation: str) -> int:
    """Import what *program* wrote in its terminal into the log of *session*; return the number of entries. Blocks.

    It must have no running host. What cannot be read or written is left out: a move does not fail because of it.

    Args:
        program: `claude` or `codex`; others are not supported.
        folder: the folder of its conversations.
        conversation: its own id of its last conversation; the log names those before that.
    """
    lock = HostLock(paths.host_lock(session))
    try:
        if program not in READERS or not lock.acquire():
            return 0
        after, earlier = _terminal_time(EventLog(paths.log(session)).events())
        if after is None:  # so the log is not folded for nothing
            return 0
        read, ids = READERS[program], dict.fromkeys((*earlier, conversation))
        entries = heapq.merge(*(read(folder, each, after) for each in ids), key=lambda entry: entry.at)
        return _write(SessionLog(paths, session), entries, program)
    except (KasmonError, OSError) as error:
        log.warning("the transcript of %s could not be imported: %s", program, error)
        return 0
    finally:
        lock.let_go()


def _write(session_log: SessionLog, entries: Iterable[TerminalEntry], program: str) -> int:
    count = 0
    for entry in entries:
        if not session_log.append(EntryImported(at=time.time(), entry=entry, program=program)):
            break
        count += 1
    return count


class _TerminalTime(NamedTuple):
    after: float | None
    """From when on the agent's messages are not in the log: when it was moved to a terminal, or the time of the last
    imported entry; None if it does not run in a terminal."""
    conversations: tuple[str, ...]
    """The ids of its conversations since it was moved there: `/clear` and `/resume` change them."""


def _terminal_time(events: Iterable[Event]) -> _TerminalTime:
    since: float | None = None
    last = 0.0
    current = ""
    ids: dict[str, None] = {}
    for event in events:
        if isinstance(event, SessionStarted | SettingsChanged) and event.resume_id:
            current = event.resume_id
        if isinstance(event, SessionStarted) and event.mode is not Mode.TMUX:
            since, ids = None, {}
        elif isinstance(event, SessionStarted) and since is None:
            since = event.at
        elif isinstance(event, EntryImported):
            last = max(last, event.entry.at)
        if since is not None and current:
            ids[current] = None
    return _TerminalTime(None if since is None else max(since, last), tuple(ids))


def _of_claude(folder: Path, conversation: str, after: float) -> Iterator[TerminalEntry]:
    file = claude_transcript(folder, conversation)
    return iter(()) if file is None else claude.entries(file, after)


def _of_codex(folder: Path, conversation: str, after: float) -> Iterator[TerminalEntry]:
    for file in sorted(folder.glob(f"sessions/*/*/*/rollout-*-{conversation}.jsonl")):
        yield from codex.entries(file, after)


READERS: Final[dict[str, Callable[[Path, str, float], Iterator[TerminalEntry]]]] = {
    "claude": _of_claude,
    "codex": _of_codex,
}


TELLING: Final = frozenset({"claude", "codex"})
"""Programs whose processes reveal their conversation."""
BUSY: Final = frozenset({"busy", "waiting"})
"""The statuses in claude's registry for a turn that runs, or waits for the user."""


def folder_of(paths: Paths, launch: Launch, home: Path | None) -> Path | None:
    """Return the folder where the agent of *launch* stores its conversations; None for an unsupported program.

    *home* as in `conversation_of`.
    """
    named = {"claude": ("CLAUDE_CONFIG_DIR", ".claude"), "codex": ("CODEX_HOME", ".codex")}.get(program_of(launch.argv))
    if named is None:
        return None
    variable, name = named
    if home is not None:
        return home / name
    variables = inherited(own_prefixes(launch.argv), os.environ) | load_variables(paths, launch.session)
    return Path(variables.get(variable) or Path(variables.get("HOME") or Path.home()) / name)


def home_of(paths: Paths, launch: Launch) -> Path | None:
    """Return the local folder that is the home of the agent of *launch* in its sandbox; None without a sandbox."""
    if launch.sandbox is None:
        return None
    from kasmon.sandbox.agent import launch as agent_launch  # only imported if there is a sandbox

    return agent_launch.home_of(paths, launch.session)


def codex_permissions(paths: Paths, launch: Launch, home: Path | None, conversation: str) -> CodexPermissions:
    """Return what codex's rollout has of the permissions of its *conversation*; for other programs nothing."""
    folder = folder_of(paths, launch, home) if program_of(launch.argv) == "codex" else None
    return of_codex(folder, conversation) if folder else CodexPermissions()


class TerminalConversation(NamedTuple):
    """The conversation in a terminal, as far as known."""

    id: str
    is_busy: bool | None
    """Whether a turn runs; None if its agent does not report it."""


def conversation_of(program: str, pid: int, home: Path | None = None) -> TerminalConversation | None:
    """Return the conversation of the agent *program* in process *pid*; None if unknown. Blocks.

    Child processes that have left its session may serve other agents too, and are ignored. *home*: for a sandboxed
    agent, the folder of this machine that is its home there.
    """
    with contextlib.suppress(psutil.Error, OSError):
        agent, its_session = psutil.Process(pid), os.getsid(pid)
        below = agent.children(recursive=True)
        family = [agent, *(process for process in below if os.getsid(process.pid) == its_session)]
        if program == "claude":
            found = [_read_registry(*_registry_location(process, home)) for process in family]
        elif program == "codex":
            found = [_read_rollout(process.pid) for process in family]
        else:
            return None
        return next((conversation for conversation in found if conversation is not None), None)
    return None


def _registry_location(process: psutil.Process, home: Path | None) -> tuple[int, Path]:
    """Return the pid of *process* in its own namespace, and the config folder with its registry entry."""
    if home is not None:
        from kasmon.sandbox.shared.processes import name_inside  # only imported if there is a sandbox

        return int(name_inside(process.pid) or 0), home / ".claude"
    return process.pid, claude_folder(system.HERE.read_variables(process.pid))


def _read_registry(pid: int, folder: Path) -> TerminalConversation | None:
    """Read the claude registry entry of process *pid*, which writes it and removes it when it ends cleanly."""
    entry = read_json(folder / "sessions" / f"{pid}.json", dict[str, Any], {})
    conversation, status = entry.get("sessionId"), entry.get("status")
    if entry.get("pid") != pid or not isinstance(conversation, str) or not re.fullmatch(UUID, conversation):
        return None
    return TerminalConversation(conversation, None if status is None else status in BUSY)


def _read_rollout(pid: int) -> TerminalConversation | None:
    found = rollout([pid])
    return TerminalConversation(found, None) if found else None
