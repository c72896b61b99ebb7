"""One agent in a pane: its events, its input and its end."""

import asyncio
import contextlib
import math
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from kasmon.asyncio_tasks import TaskSet, wait_within
from kasmon.backends.base import Chunk
from kasmon.backends.common.child_process import signal_name
from kasmon.backends.tmux import termination
from kasmon.backends.tmux.evidence.output_monitor import OutputMonitor
from kasmon.backends.tmux.evidence.pane_output import PaneOutput
from kasmon.backends.tmux.evidence.process_evidence import TRANSCRIBED
from kasmon.backends.tmux.evidence.screen_reader import ScreenObservation
from kasmon.backends.tmux.evidence.state_monitor import StateMonitor
from kasmon.backends.tmux.input.answer_delivery import AnswerDelivery
from kasmon.backends.tmux.input.full_view import FullView
from kasmon.backends.tmux.input.pane_writer import PaneWriter, interrupt
from kasmon.backends.tmux.input.prompt_delivery import PromptDelivery, PromptTarget
from kasmon.backends.tmux.pane_events import PaneListener
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.detection.rules.schema import ComposerRule
from kasmon.errors import KasmonError, RefusedError, SessionEndedError, UnableError
from kasmon.model.commands import AgentCommand, Answer, Configure, Continue, Interrupt, Launch, Mode, Prompt, Stop
from kasmon.model.events import ConnectionLost, Event, SessionEnded, SessionStarted, SignalSeen
from kasmon.model.evidence import STOPPED_BY
from kasmon.model.session_state import SessionState
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.requests import AnswerLines
from kasmon.tmux.formats import CreatedPane, PaneFacts
from kasmon.tmux.output_scanner import BracketedPasteTracker
from kasmon.tmux.process_identity import ProcessIdentity, identify
from kasmon.tmux.process_identity import signal as send_signal

YOUNG_S: Final = 1.0
"""An agent that fails within this time after its start is reported as having ended at once."""
SLOW_START_S: Final = 60.0
"""So is one that rejects its command line within this time and was seen in no state before: a busy machine takes long
to start it."""
CLOSE_GRACE_S: Final = 2.0
TYPED_S: Final = 5.0
"""A user who typed into the agent within this time counts as still typing."""


class TmuxAgent(PaneListener):
    """The agent that *launch* describes, in *pane*; it receives the pane's output from its construction on."""

    def __init__(
        self,
        launch: Launch,
        line: ServerConnection,
        pane: CreatedPane | PaneFacts,
        process: ProcessIdentity | None,
        output_monitor: OutputMonitor,
        state_monitor: StateMonitor,
    ) -> None:
        self.pane = pane.pane_id
        self.window = pane.window_id
        self.pid = pane.pid
        self.pane_writer = PaneWriter(line, pane.pane_id, launch.session)
        self._launch = launch
        self._line = line
        self._process = process
        """The agent's process, which leads a process group; None if it had ended before it was identified."""
        self._sandboxed_agent: ProcessIdentity | None = None
        """The agent's process inside a sandbox, which ends with it; None without a sandbox, and until it is known."""
        self._loop = asyncio.get_running_loop()
        self._began_at = -math.inf
        """When its program began, by the loop's clock; infinity before that, minus infinity under an earlier host."""
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._is_ending = False
        self._why = ""
        self._tasks = TaskSet()
        self.state_monitor = state_monitor
        state_monitor.emit = self.say
        self.brackets = BracketedPasteTracker()
        """Whether it accepts bracketed paste, according to the output received."""
        self.names_prompts = False
        """Whether its hooks or its transcript report each prompt that it accepts."""
        target = PromptTarget(launch, pane.pane_id, line, self.pane_writer, self.brackets)
        self.delivery = PromptDelivery(target, self, self._loop.time)
        self.is_watched: Callable[[], bool] = lambda: False
        """Whether a user is focused on it now."""
        if launch.adopted is None:
            self.state_monitor.view = FullView(self.state_monitor, self.pane_writer, self._is_focused)
        self._answering = AnswerDelivery(self.state_monitor, self.pane_writer)
        line.listeners.listen(self.pane, self)
        self._pane_output = PaneOutput(output_monitor, line, self.pane, self.say, self._last_line)
        self.pane_writer.on_typed = self._pane_output.record_typing

    # -- interface of every backend's agent

    async def events(self) -> AsyncIterator[Event | Chunk]:
        """Yield its events in order. Ends after `SessionEnded` or `ConnectionLost`, or after `let_go`."""
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)

    async def send(self, command: AgentCommand, /) -> None:
        """Send *command* to the agent: a prompt as its `delivery`, an interrupt as a key, a stop as signals.

        Raises:
            SessionEndedError: if it has ended.
            KasmonError: for a prompt, as `PromptDelivery.deliver`.
            PaneDeadError, PasteRefusedError: if the pane accepts no key now.
            TimedOutError: if an answer was sent and not accepted.
            PromptChangedError, UnableError: for an answer, as `AnswerDelivery.deliver`.
            RefusedError: for a continue, if it is not stopped.
        """
        if self.has_ended:
            raise SessionEndedError(self._launch.session)
        match command:
            case Prompt():
                await self.delivery.deliver(command, _SilentObserver(command.text))
            case Interrupt():
                await interrupt(self._launch, self.pane_writer)
            case Continue():
                await self._continue()
            case Stop() if self._launch.adopted is not None:
                raise not_ended(self._launch)
            case Stop():
                self._stop("stopped", command.grace_s)
            case Answer():
                await self._answering.deliver(command)
            case Configure():
                raise UnableError(
                    f"the model and permission mode of {self._launch.name!r} cannot be changed from here.",
                    hint="Open its terminal and change them there.",
                )

    async def _is_focused(self) -> bool:
        """Whether a user is focused on it, views it in tmux, or typed into it a moment ago."""
        if self.is_watched() or self._loop.time() - self.pane_writer.keyed_at < TYPED_S:
            return True
        facts = (await self._line.panes()).get(self._launch.session)
        return facts is None or facts.attached > 0

    async def aclose(self) -> None:
        """End the agent if it runs; idempotent, 10 s at most. An adopted agent is only released."""
        if not self.has_ended and self._launch.adopted is None:
            self._stop("closed", CLOSE_GRACE_S)
            await wait_within(CLOSE_GRACE_S + termination.DIE_S + 1, self._ended)
            self._end(SessionEnded(at=time.time(), why="closed"))
        self.let_go()

    # -- specific to terminal agents

    @property
    def has_ended(self) -> bool:
        """Whether its end was reported, or it is no longer monitored; commands cannot reach it then."""
        return self._ended.is_set()

    @property
    def reports_state(self) -> bool:
        """Whether any source reports its state: the program itself, or one that monitors it."""
        return self._pane_output.output_monitor.reports_state or self.state_monitor.reports_agent_state

    @property
    def is_starting(self) -> bool:
        """Whether a source reports that it starts: what is typed now may be lost."""
        return self.reports_state and self.state_monitor.verdict.state is SessionState.STARTING

    @property
    def printed_at(self) -> float:
        """When it last printed, by the loop's clock; minus infinity before that."""
        return self._pane_output.output_monitor.printed_at

    @property
    def keyed_at(self) -> float:
        """When a user last typed, by the loop's clock; minus infinity before that."""
        return self.pane_writer.keyed_at

    async def read_last_key_at(self) -> float:
        """Return when a user last typed in an attached terminal that shows it, in whole seconds since the epoch.

        Raises:
            TmuxError: if tmux fails.
        """
        return await self._line.ask(ask.last_key_at(self.pane))

    @property
    def is_asking(self) -> bool:
        """Whether it waits for an answer, which Enter would submit."""
        return self._pane_output.output_monitor.is_asking or self.state_monitor.verdict.state is SessionState.ASKING

    def _last_line(self, rows: AnswerLines) -> str:
        """Return the session list's text: the agent's last message or tool call, else the last non-empty row."""
        activity = self.state_monitor.last_activity()
        return termination.last_line(rows) if activity is None else activity

    @property
    def box_rule(self) -> ComposerRule | None:
        return self.state_monitor.box_rule

    async def see_now(self) -> ScreenObservation:
        """Capture its screen now and return the observation. Raises as `StateMonitor.see_now`."""
        return await self.state_monitor.see_now()

    async def is_attached(self) -> bool:
        """Whether a terminal is attached to its pane; true if unknown."""
        try:
            facts = (await self._line.panes()).get(self._launch.session)
        except KasmonError:
            return True
        return facts is not None and facts.attached > 0

    def name_prompts_by(self, *, has_hooks: bool) -> None:
        """Learn the prompts that it accepts from its hooks, else from its transcript on this machine."""
        evidence = self.state_monitor.evidence
        evidence.reads_prompts = not has_hooks and not self._launch.machine and evidence.program in TRANSCRIBED
        self.names_prompts = has_hooks or evidence.reads_prompts

    def set_agent_process(self, pid: int) -> None:
        """Record *pid* as the agent's process inside a sandbox, behind the pane's process."""
        self.pid = self.state_monitor.evidence.agent = pid
        self._sandboxed_agent = identify(pid)

    def end(self, why: str, grace_s: float) -> None:
        """Begin to end it, for the reason *why*; it has ended after *grace_s* seconds. No effect if it has ended."""
        if not self.has_ended:
            self._stop(why, grace_s)

    def let_go(self) -> None:
        """Stop monitoring it and leave it running. Idempotent."""
        self._line.listeners.unlisten(self.pane, self)
        self.state_monitor.close()
        self._pane_output.close()
        self._tasks.cancel()
        self._events.put_nowait(None)

    def give_up(self) -> None:
        """End its session but not its process: the agent is the user's own, and kasmon no longer monitors it."""
        self._end(SessionEnded(at=time.time(), why="stopped"))

    def handle_server_loss(self, why: str) -> None:
        self._end(ConnectionLost(at=time.time(), what="tmux server", why=why))

    def record_start(self, generation: int) -> SessionStarted:
        launch = self._launch
        self._began_at = math.inf
        return SessionStarted(
            at=time.time(),
            generation=generation,
            backend=launch.backend,
            mode=Mode.TMUX,
            workdir=launch.workdir,
            pid=self.pid,
            model=launch.model,
        )

    def begin_monitoring(self) -> None:
        """Report that its launcher announced the start of the program, and begin monitoring."""
        self._began_at = self._loop.time()
        self.say(SignalSeen(at=time.time(), source="launch", value="command" if self._launch.is_command else "ready"))
        self.state_monitor.begin()

    def handle_pane_facts(self, facts: PaneFacts) -> None:
        """Report its death from *facts* that another part looked up, if they include an exit status or signal."""
        if facts.has_exit_status:
            self.handle_exit(facts.status, facts.signal)

    def say(self, event: Event) -> None:
        if not self.has_ended:
            self._events.put_nowait(event)
            if isinstance(event, SignalSeen):
                self.state_monitor.record_signal(event)

    # -- pane events

    def handle_output(self, data: bytes) -> None:
        if data:
            self.brackets.feed(data)
        else:
            self.brackets.handle_missed_output()
        self.state_monitor.handle_output(data)
        if self.delivery.completion is not None:
            self.delivery.completion.feed(data)
        self._pane_output.handle_output(data)

    def handle_flood(self, is_off: bool) -> None:
        self.brackets.handle_missed_output()
        self.state_monitor.handle_flood(is_off)
        self._pane_output.handle_flood(is_off)

    def handle_exit(self, status: int | None, number: int | None) -> None:
        if not self.has_ended and not self._is_ending:
            self._is_ending = True
            self._tasks.start(self._report_death(status, number))

    def handle_close(self) -> None:
        self._end(SessionEnded(at=time.time(), why=self._why or "its pane no longer exists"))

    async def _report_death(self, status: int | None, number: int | None) -> None:
        age_s = self._loop.time() - self._began_at
        has_rules = self.box_rule is not None  # a program without them never shows a state
        is_starting = age_s < SLOW_START_S and has_rules and not self._launch.is_command and not self.reports_state
        rows: AnswerLines = []
        with contextlib.suppress(KasmonError):
            rows = await self._line.ask(ask.capture(self.pane, start=-termination.WRAPPED_ROWS, ansi=False, join=True))
        why = self._why or await termination.cause(
            self._launch, rows, status, number, is_young=age_s < YOUNG_S, is_starting=is_starting
        )
        self._pane_output.handle_screen(rows)
        self._end(SessionEnded(at=time.time(), exit_code=status, signal=signal_name(number), why=why))

    def _end(self, event: Event) -> None:
        if self.has_ended:
            return
        self.say(event)
        self._ended.set()
        self._events.put_nowait(None)
        self.state_monitor.close()
        self._pane_output.close()
        self._line.listeners.unlisten(self.pane, self)

    # -- control

    async def _continue(self) -> None:
        """Continue it after a stop signal.

        tmux continues a pane's own program that stops. Claude then waits for SIGCONT all the same, so its screen counts
        as much as its process.

        Raises:
            RefusedError: if it is not stopped.
            UnableError: if it runs in the user's own tmux, where a shell has to continue it.
        """
        name = self._launch.name or self._launch.session
        if self.state_monitor.verdict.why not in STOPPED_BY.values():
            raise RefusedError(f"{name!r} is not suspended.", hint="`kasmon show` shows its state.")
        if self._launch.adopted is not None:
            raise UnableError(f"{name!r} was suspended in your own tmux.", hint="Type `fg` in its terminal.")
        if not await asyncio.to_thread(termination.continue_group, self._process):
            raise SessionEndedError(self._launch.session)
        if self._sandboxed_agent is not None:
            await asyncio.to_thread(send_signal, self._sandboxed_agent, signal.SIGCONT)
        self.state_monitor.stir()

    def _stop(self, why: str, grace_s: float) -> None:
        self._why = self._why or why
        self._tasks.start(termination.end_group(self._process, grace_s, self._ended, self._sandboxed_agent))


class _SilentObserver:
    def __init__(self, text: str) -> None:
        self._text = text

    async def begin(self) -> str:
        return self._text

    def mark_visible(self) -> None: ...


def not_ended(launch: Launch) -> UnableError:
    return UnableError(
        f"{launch.name!r} runs in your own tmux, where kasmon ends nothing.",
        hint=f"End it there, or release it with `kasmon rm {launch.session}`.",
    )
