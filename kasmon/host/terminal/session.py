"""One session in the shared host: its agent while that runs, its pane as long as there is one, and its viewers."""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kasmon.backends.tmux.adopted_backend import AdoptedBackend
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.config import Config
from kasmon.errors import (
    RefusedError,
    SessionBusyError,
    SessionEndedError,
    TmuxCommandError,
    UnableError,
    UnavailableError,
)
from kasmon.host.journal.known_secrets import hidden
from kasmon.host.rpc import frames
from kasmon.host.rpc.server import ClientConnection
from kasmon.host.terminal.agent_runner import TerminalAgentRunner
from kasmon.host.terminal.reconnect import ReconnectSearch
from kasmon.host.terminal.recorder import Recorder
from kasmon.host.terminal.row_styles import lines, wanted
from kasmon.host.terminal.screen_capture import ScreenCapture
from kasmon.host.terminal.screen_stream import NO_PANE, ScreenStreams
from kasmon.model.commands import Launch, Pause, Resume, SandboxCommand
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.sanitize import clean_line
from kasmon.store.terminal_record import TerminalRecord
from kasmon.store.terminal_record import forget as forget_record
from kasmon.tmux.control import requests as ask
from kasmon.tmux.formats import PaneFacts

if TYPE_CHECKING:
    from kasmon.host.sandboxed.lifecycle import SandboxLifecycle

GAP_S: Final = 0.1
"""The shortest interval between resizes of a window that is being dragged; its last size counts."""
LARGEST: Final = 1000


class WindowSize:
    """The size of the tmux window *window*; *on_resized* is called after each change."""

    def __init__(self, line: ServerConnection, window: str, on_resized: Callable[[], None]) -> None:
        self.id = window
        self._line = line
        self._on_resized = on_resized
        self._loop = asyncio.get_running_loop()
        self._resized_at = -math.inf
        self._wanted = (0, 0)
        self._timer: asyncio.TimerHandle | None = None

    def resize(self, columns: int, rows: int) -> None:
        """Resize it, now or soon. A size of zero (of a hidden client) is ignored."""
        if columns <= 0 or rows <= 0:
            return
        self._wanted = min(columns, LARGEST), min(rows, LARGEST)
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._resized_at + GAP_S, self._loop.time()), self._resize)

    def focus(self, is_focused: bool) -> None:
        """Record that a user focused it or left it. Idempotent."""
        self._line.focus(self.id, is_focused=is_focused)

    def close(self) -> None:
        """Stop resizing it, and end the focus. Idempotent."""
        self.focus(False)
        if self._timer is not None:
            self._timer.cancel()

    def _resize(self) -> None:
        self._timer, self._resized_at = None, self._loop.time()
        self._line.submit(ask.resize(self.id, *self._wanted), lambda _: self._on_resized())


class TerminalSession:
    """The session *session* of the shared host."""

    def __init__(self, paths: Paths, backend: TmuxBackend, session: SessionId, config: Config) -> None:
        self.session = session
        self._paths = paths
        self.backend = backend
        self._config = config
        self._runner: TerminalAgentRunner | None = None
        self._screen_capture: ScreenCapture | None = None
        self._recorder: Recorder | None = None
        self._window: WindowSize | None = None
        self._viewers = ScreenStreams(session)
        self._is_starting = self._has_lost_pane = False
        self._settled = asyncio.Event()
        self._search = ReconnectSearch(backend.is_alive, self._attach)
        """The search for its agent, while that is lost and may run on another machine."""

    @property
    def foreign_place(self) -> tuple[str, str] | None:
        """Socket and pane in the user's own tmux, while its agent runs there."""
        if self.backend.owns or self._screen_capture is None or not self.is_alive:
            return None
        return str(self.backend.line.server.socket), self._screen_capture.pane

    @property
    def is_alive(self) -> bool:
        """Whether its agent runs, or is being started."""
        return self._is_starting or (self._runner is not None and not self._runner.agent.has_ended)

    @property
    def is_needed(self) -> bool:
        """Whether its host has work for it."""
        return self.is_alive or self._search.is_on

    # -- agent

    async def start(self, variables: Mapping[str, str]) -> None:
        """Start its agent by its `launch.json`; *variables* are the requesting process's, see `TmuxBackend.open`.

        Raises:
            RefusedError: if it runs already.
            LaunchError, TmuxError: if it cannot be started.
        """
        if self.is_alive:
            raise RefusedError(f"session {self.session!r} is already running.", hint="Stop it first.")
        lost = self._search.stop()
        try:
            await self._start(variables, again=True)
        except UnavailableError:
            if lost is not None:
                self.reach(lost)
            raise

    async def _start(self, variables: Mapping[str, str], *, again: bool) -> None:
        self._is_starting, self._has_lost_pane = True, False
        self._settled.clear()
        try:
            if self._runner is not None:
                await self._runner.wait_for_end()
            paths, backend, session = self._paths, self.backend, self.session
            runner = await TerminalAgentRunner.start(paths, backend, session, variables, again=again, on_cut=self.reach)
            self._set_runner(runner, is_new=True)
        except BaseException:
            if self._has_lost_pane:
                self.vacate(NO_PANE)
            raise
        finally:
            self._is_starting = False
            self._settled.set()

    def reach(self, launch: Launch) -> None:
        """Start the search for its lost agent on another machine."""
        self._search.begin(launch)

    async def _attach(self) -> None:
        if not self.is_alive:
            await self._start({}, again=False)

    async def recover(self, launch: Launch, facts: PaneFacts) -> None:
        """Take over its agent, which runs or died in the pane of *facts* under an earlier host.

        Returns once an end that tmux knows is written: until then the log shows the agent as working.

        Raises:
            RefusedError: if another host has it.
        """
        runner = await TerminalAgentRunner.recover(self._paths, self.backend, launch, facts, self.reach)
        self._set_runner(runner)
        if facts.has_exit_status:
            await runner.wait_for_end()

    def handle_server_loss(self, why: str) -> None:
        if self._runner is not None:
            self._runner.agent.handle_server_loss(why)
        self.vacate(why)

    async def rest(self) -> None:
        """Stop typing to its agent, and return when nothing is being typed; at once without an agent."""
        if self._runner is not None and not self._runner.agent.has_ended:
            await self._runner.prompts.rest()

    @property
    def is_resting(self) -> bool:
        """Whether nothing is being typed to its agent, and the agent is not being started."""
        return not self._is_starting and (self._runner is None or self._runner.prompts.is_at_rest)

    async def let_go(self) -> None:
        """Leave the agent running. Idempotent."""
        self._search.stop()
        self._viewers.close()
        if self._recorder is not None:
            self._recorder.close()
        if self._runner is not None:
            await self._runner.let_go()

    @property
    def running(self) -> TerminalAgentRunner:
        """The runner of its agent. Raises `SessionEndedError` if that has ended."""
        if self._runner is None or self._runner.agent.has_ended:
            raise SessionEndedError(self.session)
        return self._runner

    async def move(self, command: SandboxCommand) -> None:
        """Pause or resume the sandbox of its agent.

        Raises:
            UnableError: if it has none, or *command* is another command.
            KasmonError: as `SandboxLifecycle.move`.
        """
        if self._sandbox is None:
            raise UnableError(f"session {self.session!r} has no sandbox.")
        if not isinstance(command, Pause | Resume):
            raise UnableError(f"session {self.session!r} is not an interpreter sandbox.")
        await self._sandbox.move(command)

    @property
    def _sandbox(self) -> "SandboxLifecycle | None":
        sandboxed_agent = None if self._runner is None else self._runner.services.sandboxed_agent
        return None if sandboxed_agent is None else sandboxed_agent.lifecycle

    def _set_runner(self, runner: TerminalAgentRunner, *, is_new: bool = False) -> None:
        self._runner = runner
        runner.agent.is_watched = lambda: self._viewers.has_focus
        watched, owns = runner.agent.is_watched, self.backend.owns
        runner.services.watch_over(self._config, is_watched=watched, hibernates=owns)
        is_blank = is_new and runner.agent.printed_at == -math.inf
        self.use_pane(runner.agent.pane, runner.agent.window, is_blank=is_blank)

    # -- pane

    def use_pane(self, pane: str, window: str, *, is_blank: bool = False) -> None:
        """Use *pane* from now on; *is_blank*: nothing was printed there yet."""
        if self._screen_capture is not None and self._screen_capture.pane == pane:
            self._screen_capture.renew()
            return
        before, self._screen_capture = self._screen_capture, ScreenCapture(self.backend.line, pane)
        self._screen_capture.on_closed = self._handle_pane_close
        self._viewers.view(self._screen_capture)  # before the old one is closed, so that viewers get no end
        self._vacate(before, NO_PANE)
        if self._config.search.record:
            limit_bytes = int(self._config.search.record_mb * 1_000_000)
            record = TerminalRecord(self._paths.record(self.session), limit_bytes)
            self._recorder = Recorder(self.backend.line, pane, record, is_blank=is_blank)
        if self.backend.owns:
            self._window = WindowSize(self.backend.line, window, self._screen_capture.renew)
            self._window.focus(self._viewers.has_focus)

    def _handle_pane_close(self) -> None:
        """Handle the end of its pane; while the agent is being started, another one replaces it."""
        self._has_lost_pane = True
        if not self._is_starting:
            self.vacate(NO_PANE)

    def vacate(self, why: str) -> None:
        """Record that it has no pane any more. Idempotent."""
        screen_capture, self._screen_capture = self._screen_capture, None
        self._viewers.screen_capture = None
        self._vacate(screen_capture, why)

    def _vacate(self, screen_capture: ScreenCapture | None, why: str) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None
        if screen_capture is not None:
            screen_capture.close(why)

    async def read(self, read: frames.ReadTerminal) -> frames.TerminalText:
        """Return the text of its pane. Raises `UnavailableError` if it has none."""
        try:
            captured = await self.backend.line.ask(wanted(self._pane(), read))
        except TmuxCommandError:
            if not self._is_starting:
                raise
            await self._settled.wait()  # its pane is being replaced
            captured = await self.backend.line.ask(wanted(self._pane(), read))
        return frames.TerminalText(n=read.n, lines=await asyncio.to_thread(lines, captured, read))

    async def describe_pane(self, frame: frames.DescribePane) -> frames.PaneDescription:
        """Return tmux's facts of its pane. Raises `UnavailableError` if it has none."""
        if frame.attaching and self._sandbox is not None:
            await self._sandbox.ensure_running()
        pane, line = self._pane(), self.backend.line
        everywhere = await line.panes()
        screen, text = await line.ask(ask.screen_facts(pane)), await line.ask(ask.pane_text(pane))
        facts = everywhere.get(self.session)
        if facts is None:
            raise UnavailableError(f"session {self.session!r}: {NO_PANE}.")
        attach = line.server.attach_argv(facts.session_id, facts.window_id)
        return frames.PaneDescription(
            n=frame.n,
            width=screen.width,
            height=screen.height,
            cursor=(screen.cursor_x, screen.cursor_y),
            title=clean_line(hidden(text.title)),
            cwd=clean_line(text.workdir),
            window=facts.window_id,
            clients=facts.attached,
            attach=("env", "-u", "TMUX", *attach),
            agent_version="" if self._runner is None else self._runner.agent.state_monitor.version,
        )

    async def rename(self, name: str) -> None:
        """Set *name* on its window, if it has one."""
        if self._window is not None:
            await self.backend.line.ask(ask.rename(self._window.id, clean_line(name) or self.session))

    async def forget(self) -> None:
        """Remove the pane of its agent, which has ended; an adopted agent is released, and runs on.

        Raises:
            SessionBusyError: if it runs.
            RefusedError: if it was lost, and runs on another machine.
        """
        if self.is_alive and self.backend.owns:
            raise SessionBusyError(self.session, "running", hint="Stop it first.")
        if (sought := self._search.stop()) is not None and await self._search.finds(sought):
            self.reach(sought)
            raise RefusedError(
                f"the agent of session {self.session!r} runs on {sought.machine!r}.",
                hint=f"Reconnect with `kasmon restart {self.session}`, then stop it.",
            )
        if self.is_alive and self._runner is not None:
            self._runner.agent.give_up()
            await self._runner.wait_for_end()
        window = self._window
        if isinstance(self.backend, AdoptedBackend) and self._screen_capture is not None:
            self.backend.line.release(self._screen_capture.pane)
        self.vacate("the session was removed")
        await asyncio.to_thread(forget_record, self._paths.record(self.session))
        if window is not None:
            await self.backend.line.ask(ask.kill_window(window.id))

    def _pane(self) -> str:
        if self._screen_capture is None:
            raise UnavailableError(
                f"session {self.session!r}: {NO_PANE}.", hint=f"`kasmon restart {self.session}` creates a new one."
            )
        return self._screen_capture.pane

    # -- viewers

    def show(self, connection: ClientConnection, frame: frames.ViewChange) -> None:
        if isinstance(frame, frames.Focus) and self._sandbox is not None:
            self._sandbox.resume_soon()
        if isinstance(frame, frames.Focus) and self._window is not None:
            self._window.resize(frame.columns, frame.rows)
        self._viewers.show(connection, frame)
        self._update_focus()
        if isinstance(frame, frames.Blur) and self._runner is not None:
            self._runner.agent.state_monitor.begin()

    def type(self, connection: ClientConnection, frame: frames.SendKeys | frames.Paste) -> None:
        """Type the user's input; dropped once the agent has ended."""
        self._viewers.scroll_down(connection)
        if self._runner is None or self._runner.agent.has_ended:
            return
        if self._sandbox is not None:
            self._sandbox.resume_soon()
        if isinstance(frame, frames.SendKeys):
            self._runner.agent.pane_writer.type_keys(frame.data)
        else:
            self._runner.agent.pane_writer.paste(frame.text)

    def leave(self, connection: ClientConnection) -> None:
        """Remove the view of *connection*. Idempotent."""
        self._viewers.leave(connection)
        self._update_focus()

    def _update_focus(self) -> None:
        if self._window is not None:
            self._window.focus(self._viewers.has_focus)
