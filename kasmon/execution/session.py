"""The session interface, method by method; features of tmux sessions only are in `terminal`."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.config import Config, load_or_default, resolve
from kasmon.config.profile import parse_mode
from kasmon.detection.menus.choices import ScreenMenu
from kasmon.errors import (
    InteractiveOnlyError,
    KasmonError,
    LogMissingError,
    RequestNotFoundError,
    SessionEndedError,
    SessionNotFoundError,
    UnavailableError,
    UsageError,
)
from kasmon.execution.spec import LaunchSpec, Poll, check, check_scope, check_size, check_text, lines, window
from kasmon.execution.terminal import SessionTerminal
from kasmon.model.commands import Answer, Mode
from kasmon.model.events import Event
from kasmon.model.permission import Decision, Request, RequestId, SessionId, parse_decision
from kasmon.model.rule import Scope
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState, states_of
from kasmon.paths import Paths, user_paths
from kasmon.store.event_log import Cursor, EventLog
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import fleets, wait_for
from kasmon.supervisor.machines.delegation import start_there
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession, prepare
from kasmon.supervisor.sessions.embedded_terminal import EmbeddedTerminal
from kasmon.supervisor.sessions.folder_config import for_session
from kasmon.supervisor.sessions.read import read
from kasmon.supervisor.sessions.start import begin

INTERRUPT: Final = "\x03"
"""Keys that interrupt a structured session's turn instead of being text."""
WAITS: Final = frozenset({SessionState.IDLE, SessionState.ASKING})
"""States in which a session waits for a person."""


class ExecutionSession:
    """One session. `start` creates it, `of` finds an existing one; `close` ends its agent."""

    def __init__(self, spec: LaunchSpec | None = None, *, where: Paths | None = None, config: Config | None = None):
        self.id = SessionId("")
        """Empty before the start."""
        self.why_not = ""
        """Why `restore` failed."""
        self._spec = spec
        self._paths = where or user_paths()
        self._config = config
        self._typed = ""
        self._hash = ""
        self._content = ""
        self._terminal = SessionTerminal(self._paths)

    @classmethod
    async def of(cls, wanted: str, *, where: Paths | None = None) -> "ExecutionSession":
        """Return the session *wanted*: an id, an exact name, `MACHINE:NAME`, or an id prefix.

        Raises:
            NotFoundError: if there is none, or more than one.
        """
        session = cls(where=where)
        fleet = await asyncio.to_thread(read_fleet, session._paths)
        session.id = find(fleet, wanted).id
        return session

    # -- lifecycle

    async def start(self, workdir: Path | str = "") -> None:
        """Start its agent in *workdir* (default: the caller's own); it runs when this returns.

        If this fails or is cancelled after the session was created, `close` ends it and `restore` tries again. On
        another machine, *workdir* is a folder there (default: the home folder), and a cancelled start may take effect.

        Raises:
            UsageError: if it was started before, or its spec is invalid.
            KasmonError: why it cannot be started.
        """
        if self._spec is None or self.id:
            raise UsageError("a session can be started only once.", hint="Use `restore` to get it back.")
        spec = self._spec
        check(spec)
        wanted = NewSession(
            name=spec.name,
            agent=spec.agent,
            argv=spec.argv,
            workdir=str(workdir),
            prompt=spec.prompt,
            environment=tuple(f"{name}={value}" for name, value in spec.environment.items()),
            task=spec.task,
            wave=spec.wave,
            peers=spec.peers,
            plan=spec.plan,
            seed=spec.seed,
            speed=spec.speed,
        )
        if spec.machine:
            wanted = msgspec.structs.replace(wanted, mode=parse_mode(spec.mode))
            self.id = await start_there(self._paths, spec.machine, wanted)
            return
        config = self._config if self._config is not None else await asyncio.to_thread(load_or_default, self._paths)
        settings = await asyncio.to_thread(for_session, self._paths, config, str(workdir), spec.agent)
        config = settings.config
        mode = (await asyncio.to_thread(resolve, config, spec.agent, spec.mode, spec.argv)).mode
        wanted = msgspec.structs.replace(
            wanted, mode=mode if spec.mode else None, window=window(spec) if mode is Mode.TMUX else ""
        )
        launch = await asyncio.to_thread(prepare, self._paths, config, wanted, time.time())
        self.id = launch.session  # from here on it can be closed, whatever fails after it
        await begin(self._paths, launch)

    async def restore(self) -> None:
        """Resume its agent if it is not running; never raises.

        tmux: a running agent is only found again. sdk: the agent's own means resume the conversation; in kasmos
        this does nothing. If it cannot be resumed, `exists` stays false, and `why_not` has the reason.
        """
        self.why_not = ""
        try:
            session = await self._now()
            if session.exists:
                return
            await session_operations.restart(self._paths, session)
        except (KasmonError, OSError) as error:
            self.why_not = str(error)

    async def close(self) -> None:
        """End its agent. Idempotent; its log stays. Raises `KasmonError` if it could not be ended."""
        session = await self._load()
        if session is not None and session.state in ALIVE:
            try:
                await session_operations.stop(self._paths, session)
            except KasmonError as error:
                now = None if isinstance(error, SessionEndedError) else await self._load()
                if now is not None and now.state in ALIVE:  # else it ended by itself, or another client ended it
                    raise

    async def exists(self) -> bool:
        """Whether its agent runs; in tmux, a pane that only keeps a dead program's last screen does not count."""
        session = await self._load()
        return session is not None and session.exists

    async def pid(self) -> int | None:
        """Return the process id of its agent; None before the start, after the end, and on another machine."""
        session = await self._load()
        return session.pid if session is not None and session.exists else None

    @property
    def sanitized_name(self) -> str:
        """The name of its tmux session and of its folder: its id, not its name."""
        return self.id

    async def state(self) -> Session:
        return await self._now()

    # -- content

    async def capture(self) -> str:
        """Return the visible screen (tmux), or all events as text (sdk). Raises `KasmonError` if there is none."""
        session = await self._now()
        if session.mode is Mode.TMUX:
            return "\n".join(await self._terminal.rows(session))
        return "\n".join(await read(self._paths, session, 0, None))

    async def capture_range(self, start: str | int = "", end: str | int = "") -> str:
        """The lines from *start* to *end*, both included, counted in the whole buffer in both modes.

        `""` and `"-"` are the buffer's beginning (start) or end (end), `n` the n-th line from 0, `-n` the n-th from the
        end, so that `-1` is the last. tmux itself counts from the visible screen's first row (its 0) and history
        upwards from there (-1); that is the same only as long as nothing has scrolled away.

        Raises:
            UsageError: if one of them is no such number.
        """
        first, last = lines(start, end)
        return "\n".join(await read(self._paths, await self._now(), first, last))

    async def has_updated(self) -> tuple[bool, bool]:
        """Return `updated` and `waiting` of `poll`."""
        polled = await self.poll()
        return polled.updated, polled.waiting

    async def poll(self) -> Poll:
        """Return what is new since the last poll, by the content's hash. Never raises if the content is unavailable."""
        session = await self._now()
        captured = True
        try:
            self._content = await self.capture()
        except KasmonError:
            captured = session.mode is not Mode.TMUX
        digest = hashlib.sha256(self._content.encode("utf-8", "surrogatepass")).hexdigest()
        updated, self._hash = digest != self._hash, digest
        return Poll(updated, await self._waits(session), self._content, captured)

    # -- input

    async def send_keys(self, keys: str) -> None:
        """tmux: type *keys*. sdk: collect them for `tap_enter`; `"\\x03"` alone interrupts the turn.

        Raises:
            UsageError: if they are not valid text; none was typed or collected.
            KasmonError: if the session does not accept them.
        """
        check_text(keys)
        session = await self._now()
        if session.mode is Mode.TMUX:
            await self._terminal.type(session, keys)
        elif keys == INTERRUPT:
            await session_operations.interrupt(self._paths, session)
        else:
            self._typed += keys

    async def tap_enter(self) -> None:
        """tmux: type Enter, late enough after the keys that no program takes it for a part of a paste.

        sdk: send the collected keys as one prompt. They stay collected if the agent is not running or not reachable,
        but not if it refused or may have taken them.

        Raises:
            KasmonError: if the agent does not take it.
        """
        session = await self._now()
        if session.mode is Mode.TMUX:
            await self._terminal.enter(session)
            return
        text, self._typed = self._typed, ""
        if not text.strip():
            return
        try:
            await session_operations.send(self._paths, session, text)
        except (SessionEndedError, UnavailableError):
            self._typed = text + self._typed
            raise

    async def respond(
        self,
        choice: Decision | str,
        request: str | None = None,
        *,
        reason: str = "",
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the name in the request and on the command line
        labels: Sequence[str] = (),
        text: str = "",
        scope: Scope = "session",
    ) -> None:
        """Answer one request of the session.

        In tmux this needs a screen file that describes the program's menu. The screen is read again right before the
        key is pressed, and the menu is gone when this returns.

        Args:
            choice: `allow`, `always`, `deny`, `never`, `edit`, `choose`, `cancel` or `later`.
            request: the request's id; in tmux also the digest of `on_screen`. None: the oldest request.
            reason: sent to the agent, with `deny`, `never` and `cancel`.
            input: the whole edited tool input, with `edit`.
            labels: the chosen options of a question, with `choose`.
            text: a free-text answer, with `choose`.
            scope: how far `always` and `never` reach: `session`, `plan` or `project`.

        Raises:
            UsageError: if *choice* or *scope* is unknown, or *choice* lacks or would ignore something.
            RequestNotFoundError: if it asks nothing.
            StaleRequestError: if it asks something else by now.
            UnableError: if it does not take this answer, or no screen file describes its menu.
        """
        decision = parse_decision(choice)
        check_scope(scope)
        session = await self._now()
        if session.mode is Mode.TMUX:
            asked = await self._terminal.wait_for_request(self._now, request)
        else:
            known = session.open_request(RequestId(request)) if request else next(iter(session.requests), None)
            if known is None:
                raise RequestNotFoundError(request or "", session.name)
            asked = known
        answer = Answer(
            request=asked.id,
            digest=asked.digest,
            decision=decision,
            reason=reason,
            input=None if input is None else dict(input),
            labels=tuple(labels),
            text=text,
            scope=scope,
        )
        await session_operations.execute(self._paths, session, answer)

    async def wait(self, *states: SessionState | str, timeout_s: float | None = None) -> Session:
        """Return the session as soon as it is in one of *states*.

        Raises:
            UsageError: if one of them is no state, or there is none.
            SessionEndedError, RefusedError: if its agent ended, so that none of them can come.
            TimedOutError: if none came within *timeout_s* seconds; None waits for ever.
        """
        wanted = states_of(states)
        session = await self._now()
        (reached,) = await wait_for(self._paths, [session.id], wanted, timeout_s=timeout_s)
        return reached

    async def events(self, since: int = 0) -> AsyncIterator[tuple[Event, int]]:
        """Yield its events after *since*, oldest first, each with the byte offset behind it, as they are written.

        It ends once the agent has ended and everything in the log was yielded. Pass the last offset to continue later.

        Raises:
            SessionNotFoundError: if the session was not started, or was removed.
        """
        read = Cursor(since)
        async with fleets(self._paths) as changes:
            async for fleet in changes:
                session = fleet.get(self.id)
                if session is None:
                    raise SessionNotFoundError(self.id or (self._spec.name if self._spec is not None else ""))
                for event, read in await asyncio.to_thread(_events, self._paths, self.id, read):  # noqa: B020 - a list
                    yield event, read
                if not session.exists and session.state not in ALIVE:
                    return

    async def permissions(self) -> tuple[Request, ...]:
        """Return its open requests, oldest first; for a terminal, see `on_screen`."""
        return (await self._now()).requests

    async def on_screen(self) -> ScreenMenu | None:
        """Return the menu on its tmux screen, if a screen file describes it."""
        session = await self._now()
        return await self._terminal.menu(session) if session.mode is Mode.TMUX else None

    async def interrupt(self) -> None:
        """End the running turn. Raises `KasmonError` if it cannot be interrupted."""
        await session_operations.interrupt(self._paths, await self._now())

    # -- terminal: each of these raises `InteractiveOnlyError` for a structured session

    async def attach(self) -> None:
        """Attach to its terminal in the caller's own; returns when the user detaches, or `detach` is called.

        Raises:
            UnavailableError: if tmux is missing.
            RefusedError: if its machine is reached over a cluster, which carries no terminal.
        """
        await self._terminal.attach(await self._interactive("attach to"))

    async def detach(self) -> None:
        """End `attach`; the session keeps running. Does nothing if nothing is attached."""
        await self._interactive("detach from")
        await self._terminal.detach()

    async def resize(self, columns: int, rows: int) -> None:
        """Resize its terminal.

        Raises:
            UsageError: if the size is invalid.
        """
        session = await self._interactive("resize")
        check_size(columns, rows)
        await self._terminal.resize(session, columns, rows)

    async def embedded_terminal(self, columns: int, rows: int) -> EmbeddedTerminal:
        """Return its live terminal, to be drawn elsewhere, with rows out and bytes in. The caller closes it.

        Raises:
            UsageError: if the size is invalid.
            UnavailableError: if its host or tmux is missing.
        """
        session = await self._interactive("embed the terminal of")
        check_size(columns, rows)
        return await EmbeddedTerminal.open(self._paths, session.id, columns, rows)

    # -- internal

    async def _load(self) -> Session | None:
        """Return its current state; None before the start, and once it is removed."""
        return (await asyncio.to_thread(read_fleet, self._paths)).get(self.id) if self.id else None

    async def _now(self) -> Session:
        session = await self._load()
        if session is None:
            raise SessionNotFoundError(self.id or (self._spec.name if self._spec is not None else ""))
        return session

    async def _interactive(self, operation: str) -> Session:
        session = await self._now()
        if session.mode is not Mode.TMUX:
            raise InteractiveOnlyError(session.name, operation)
        return session

    async def _waits(self, session: Session) -> bool:
        if session.state in WAITS:
            return True
        with contextlib.suppress(KasmonError):
            return session.mode is Mode.TMUX and await self.on_screen() is not None
        return False


def _events(where: Paths, session: SessionId, since: Cursor) -> list[tuple[Event, Cursor]]:
    """Return the events of *session* after *since*; none while it has no log."""
    try:
        return list(EventLog(where.log(session)).read(since))
    except LogMissingError:
        return []
