"""The local copy of another machine's sessions: its logs byte by byte, its list, and which of its processes are alive.

All of kasmon reads logs and connects to hosts' sockets, so a session of another machine needs no second way: its log
is here, and `kasmon.bus.link` listens at its host's socket here. Nothing that a machine sends is trusted: ids are
checked, so that they are no path and no session of this kasmon or of another machine; control characters are replaced,
with the same number of bytes, so that offsets stay.
"""

import contextlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from kasmon import __version__
from kasmon.bus.base import (
    BusWelcome,
    Heartbeat,
    ListEnd,
    LogPart,
    LogPosition,
    MachineAway,
    SessionEntry,
    SessionRemoval,
    Update,
)
from kasmon.bus.clock_offset import STEP_S
from kasmon.bus.local import read_tail
from kasmon.config import load_or_default
from kasmon.config.agent_address import there
from kasmon.errors import KasmonError
from kasmon.model.commands import ActingAgent, Launch
from kasmon.model.events import SessionCreated, SessionForgotten, SessionRenamed, SessionTagged, SessionViewed
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, open_regular, private_folder, write_private
from kasmon.sanitize import clean_line, replace_controls
from kasmon.store.fleet_index import FleetIndex
from kasmon.store.machines import HostPresence, Presence, machine_of, read_presence, write_presence
from kasmon.supervisor.sessions.names import MOST_TAGS, check_name, check_tags, note

log = logging.getLogger(__name__)

SESSION_ID: Final = re.compile(r"[a-z][a-z2-7]{7}")
MOST_SESSIONS: Final = 5000
"""The most sessions of one machine; further ones are not shown."""
MOST_BYTES: Final = 8 * 1024**3
"""How many bytes of logs are copied from one machine."""
MOST_NOTES, NOTES_PER_S = 2 * MOST_SESSIONS, 10.0
"""How often a machine may change the list here: so often at once, and so often a second after that."""
MOST_DEPTH: Final = 1000
"""How many agents a machine can say are above a session."""
OVERLAP_BYTES: Final = 5
"""How many bytes of one part, followed by those of the next, may be one such sequence."""


class Mirror:
    """The copy of the sessions of *machine* in *paths*; the process that holds the link's lock writes it."""

    def __init__(self, paths: Paths, machine: str) -> None:
        self._paths, self._machine = paths, machine
        self._sessions: dict[SessionId, SessionEntry | None] = {}
        """The sessions copied here, with what the machine said last; None if that was in an earlier connection."""
        self._names: dict[SessionId, str] = {}
        self._tags: dict[SessionId, tuple[str, ...]] = {}
        self._viewed_at: dict[SessionId, float] = {}
        self._logs: dict[SessionId, LogPosition] = {}
        self._notes_left, self._noted_at = float(MOST_NOTES), time.monotonic()
        self._refused: set[SessionId] = set()
        self._unconfirmed: set[SessionId] = set()
        """The sessions that were not listed since this connection began."""
        self._presence = read_presence(paths, machine)
        self._written: Presence | None = None
        self._is_complete = False
        """Whether all sessions were listed since this connection began."""
        self.clock_offset_s = 0.0
        """How far the clock there is ahead of this one."""
        self.on_session: Callable[[SessionId, HostPresence | None], None] = lambda session, presence: None
        """Called when the processes of a session change; with None when it is removed."""
        self._load()

    def _load(self) -> None:
        fleet_index = FleetIndex(self._paths)
        fleet_index.read_fleet()
        for session, folded in fleet_index.sessions.items():
            if folded.session.via == self._machine:
                self._sessions[session] = None
                self._names[session] = folded.session.name
                self._tags[session] = folded.session.tags
                self._viewed_at[session] = folded.session.viewed_at

    def positions(self) -> dict[SessionId, LogPosition]:
        self._logs = {}
        for session in self._sessions:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                lines = self._paths.via(session).read_text("utf-8").splitlines()
                with self._paths.log(session).open("rb") as copy:
                    size = os.fstat(copy.fileno()).st_size
                    tail = read_tail(copy.fileno(), size)
                self._logs[session] = LogPosition(lines[1] if len(lines) > 1 else "", size, tail)
        return dict(self._logs)

    def apply(self, update: Update) -> None:
        """Apply *update* to the copy.

        Raises:
            OSError, KasmonError: if it cannot be written; the connection is of no use then.
        """
        match update:
            case BusWelcome():
                self._unconfirmed = set(self._sessions)
                self._sessions = dict.fromkeys(self._sessions)
                self._is_complete = False
                self._presence = Presence(
                    since=time.time(), kasmon=clean_line(update.kasmon)[:40], sessions=self._presence.sessions
                )
            case SessionEntry():
                self._list(update)
            case LogPart():
                self._append(update)
            case SessionRemoval():
                self._remove(update.session)
            case ListEnd():
                for session in self._unconfirmed:
                    self._remove(session)
                self._unconfirmed = set()
                self._is_complete = True
                self._publish()
            case Heartbeat():
                self._publish()
            case MachineAway():
                self.disconnect(update.why, update.since)

    def note_late(self, is_late: bool) -> None:
        """Record whether the machine's last sign of life is some seconds old; what it said last is still shown."""
        self._presence = msgspec.structs.replace(self._presence, is_late=is_late)
        self._publish()

    def disconnect(self, why: str, since: float = 0.0) -> None:
        """Record that the machine is unreachable since *since* (0: now), and *why*.

        If it was before, it stays so since then.
        """
        since = self._presence.since if self._presence.why and self._presence.since else since or time.time()
        self._presence = msgspec.structs.replace(self._presence, since=since, is_late=False, why=clean_line(why)[:300])
        self._publish()

    def _publish(self) -> None:
        self._presence = msgspec.structs.replace(
            self._presence, link=os.getpid(), link_kasmon=__version__, clock_offset_s=self.clock_offset_s
        )
        if self._presence != self._written:
            write_presence(self._paths, self._machine, self._presence)
            self._written = self._presence

    def _note(self, fact: SessionCreated | SessionRenamed | SessionTagged | SessionViewed | SessionForgotten) -> None:
        """Write *fact* to the fleet's log. Raises `ConnectionError` if the machine changes its list too often."""
        now = time.monotonic()
        self._notes_left = min(MOST_NOTES, self._notes_left + NOTES_PER_S * (now - self._noted_at))
        self._noted_at = now
        if self._notes_left < 1:
            raise ConnectionError(0, "it changes its list of sessions too often")
        self._notes_left -= 1
        note(self._paths, fact)

    def _list(self, listed: SessionEntry) -> None:
        session = listed.created.launch.session
        self._unconfirmed.discard(session)
        if session not in self._sessions and not self._begin(session, listed):
            return
        previous = self._sessions[session]
        self._sessions[session] = listed
        name = self._name(listed.name)
        if name != self._names[session]:
            self._names[session] = name
            self._note(SessionRenamed(at=time.time(), session=session, name=name))
        if (tags := _tags(listed.tags)) != (before := self._tags[session]):
            self._tags[session] = tags
            gone = tuple(each for each in before if each not in tags)
            self._note(SessionTagged(at=time.time(), session=session, added=tags, removed=gone))
        viewed_at = self._time_here(listed.viewed_at)
        inexact_s = 2 * STEP_S if self.clock_offset_s else 0.0
        if viewed_at > self._viewed_at[session] + inexact_s:
            self._viewed_at[session] = viewed_at
            self._note(SessionViewed(at=viewed_at, session=session))
        if previous is None or previous.presence != listed.presence:
            presence = msgspec.structs.replace(
                listed.presence,
                write_problem=clean_line(listed.presence.write_problem)[:200],
                unreadable=clean_line(listed.presence.unreadable)[:200],
            )
            self._presence = msgspec.structs.replace(
                self._presence, sessions={**self._presence.sessions, session: presence}
            )
            self.on_session(session, presence)
            with contextlib.suppress(OSError):  # a hint to those who follow the fleet
                os.close(open_regular(self._paths.host_lock(session), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW))

    def _begin(self, session: SessionId, listed: SessionEntry) -> bool:
        """Begin the copy of a new session, and return whether it may have one."""
        if session in self._refused:
            return False
        why = ""
        folder = self._paths.folder(session) if SESSION_ID.fullmatch(session) else None
        if folder is None:
            why = "its id is none of kasmon's"
        elif len(self._sessions) >= MOST_SESSIONS:
            why = f"only {MOST_SESSIONS} sessions of a machine are shown"
        elif folder.exists() and machine_of(self._paths, session) != self._machine:
            why = "a session with its id exists here"
        if folder is None or why:
            self._refused.add(session)
            log.warning("a session %r of %s is not shown: %s", session, self._machine, why)
            return False
        private_folder(self._paths.sessions)
        folder.mkdir(mode=0o700, exist_ok=True)
        self._write_via(session, "")
        self._paths.log(session).unlink(missing_ok=True)
        launch = msgspec.structs.replace(self._launch(listed.created.launch), tags=_tags(listed.tags))
        write_private(self._paths.launch(session), msgspec.json.encode(launch))
        created = SessionCreated(
            at=self._time_here(listed.created.at), launch=launch, machine=self._machine, via=self._machine
        )
        self._note(created)
        self._sessions[session], self._names[session], self._viewed_at[session] = None, launch.name, 0.0
        self._tags[session] = launch.tags
        return True

    def _launch(self, launch: Launch) -> Launch:
        """Return *launch* for the list here: nothing in it names a file, a process or a session of this machine."""
        clean: Launch = msgspec.convert(_clean(msgspec.to_builtins(launch)), Launch)
        return msgspec.structs.replace(
            clean,
            name=self._name(clean.name),
            workdir=there(self._machine, clean.workdir),
            worktree=None,
            prompt="",
            plan=None,
            actor=self._actor(clean.actor),
            limits=None,
            parent=clean.parent if clean.parent in self._sessions else None,
            adopted=None,
            created_at=self._time_here(clean.created_at),
        )

    def _actor(self, actor: ActingAgent | None) -> ActingAgent | None:
        """Return *actor* as it counts here: an agent of a session there, or one here that may start sessions there.

        Of every other agent its session is not shown.
        """
        if actor is None:
            return None
        session = actor.session if SESSION_ID.fullmatch(actor.session) else SessionId("")
        if session and not self._is_starter(session, is_of_other=bool(actor.machine)):
            session = SessionId("")
        return ActingAgent(session=session, depth=max(0, min(actor.depth, MOST_DEPTH)))

    def _is_starter(self, session: SessionId, *, is_of_other: bool) -> bool:
        """Whether the agent of *session*, which *is_of_other* than that machine, may have started one there."""
        is_known = self._paths.folder(session).exists()
        if not is_of_other:
            return not is_known or machine_of(self._paths, session) == self._machine
        may_start = self._machine in load_or_default(self._paths, log.warning).fleet.machines
        return is_known and may_start and not machine_of(self._paths, session)

    def _time_here(self, at: float) -> float:
        """Return the time *at* of the clock there as one of the clock here; not in the future."""
        return min(at - self.clock_offset_s, time.time())

    def _name(self, name: str) -> str:
        try:
            return check_name(name)
        except KasmonError:
            return "unnamed"

    def _write_via(self, session: SessionId, log: str) -> None:
        write_private(self._paths.via(session), f"{self._machine}\n{clean_line(log)[:64]}\n".encode())

    def _append(self, part: LogPart) -> None:
        session = part.session
        if session not in self._sessions:
            return
        if self._is_complete and self._presence.sessions.get(session, HostPresence()).host is not None:
            self._publish()  # its host is known before its events; one that is gone only after its last ones
        at = self._logs.get(session, LogPosition("", 0))
        path = self._paths.log(session)
        if part.offset == 0 and (at.offset or at.log != part.log):
            write_private(path, b"")  # another file, with another inode: who reads it begins again
            self._write_via(session, part.log)
            at = LogPosition(part.log, 0)
        if part.log != at.log or part.offset != at.offset:
            raise ConnectionError(0, f"a part of the log of {session} does not follow the one before")
        if sum(each.offset for each in self._logs.values()) + len(part.content) > MOST_BYTES:
            raise ConnectionError(0, f"its logs have more than {MOST_BYTES // 1024**3} GiB")
        handle = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            overlap = os.pread(handle, OVERLAP_BYTES, max(0, at.offset - OVERLAP_BYTES))
            content = replace_controls(overlap + part.content)
            os.pwrite(handle, content, at.offset - len(overlap))
        finally:
            os.close(handle)
        self._logs[session] = LogPosition(at.log, at.offset + len(part.content))

    def _remove(self, session: SessionId) -> None:
        if session not in self._sessions:
            return
        self._note(SessionForgotten(at=time.time(), session=session))
        for known in (self._sessions, self._names, self._tags, self._viewed_at, self._logs):
            known.pop(session, None)
        remaining = {other: presence for other, presence in self._presence.sessions.items() if other != session}
        self._presence = msgspec.structs.replace(self._presence, sessions=remaining)
        self.on_session(session, None)
        shutil.rmtree(self._paths.folder(session), ignore_errors=True)

    def remove_all(self) -> None:
        for session in list(self._sessions):
            self._remove(session)


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the valid ones of *tags*, as many as a session may have."""
    valid: list[str] = []
    for each in tags[:MOST_TAGS]:
        with contextlib.suppress(KasmonError):
            valid += check_tags([each])
    return check_tags(valid)


def _clean(value: Any) -> Any:
    """Return *value*, of JSON's types, with each text in it on one line and without control characters."""
    match value:
        case str():
            return clean_line(value)
        case list() | tuple():
            return [_clean(each) for each in value]
        case dict():
            return {clean_line(key): _clean(each) for key, each in value.items()}
        case _:
            return value
