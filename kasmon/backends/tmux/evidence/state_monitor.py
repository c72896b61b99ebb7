"""Combines all evidence of one agent's state: reads its screen and title itself, and receives the rest.

A source's signal becomes an event when it changes, and the newest signals of all sources are judged. The verdict
decides how often the screen is read, and whether a menu on it is a request.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kasmon.backends.common.limit_windows import LimitReports
from kasmon.backends.tmux.evidence.process_evidence import ProcessEvidence, ToolCallEvidence
from kasmon.backends.tmux.evidence.process_scan import ProcessScanner
from kasmon.backends.tmux.evidence.screen_reader import PaneScreenReader, ScreenObservation, ScreenReader
from kasmon.backends.tmux.evidence.screen_requests import ScreenRequest
from kasmon.backends.tmux.evidence.screen_schedule import ScreenSchedule
from kasmon.backends.tmux.evidence.signal_ledger import OUTLASTED, SignalLedger
from kasmon.backends.tmux.input.full_view import FullView
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.detection.menus.choices import ScreenMenu, completed, shows
from kasmon.detection.reader import TitleReading, find_last_activity, has_messages, read_title
from kasmon.detection.rules.file import ScreenRules
from kasmon.detection.rules.schema import ComposerRule
from kasmon.detection.terminal_screen import LONGEST_TITLE
from kasmon.errors import KasmonError, SessionEndedError
from kasmon.model.events import Event, SettingsChanged, SignalSeen
from kasmon.model.evidence import HOOK_LAG_S, Signal, StateVerdict
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.sanitize import clean_line
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.requests import PaneScreen
from kasmon.tmux.formats import PaneText
from kasmon.tmux.output_scanner import TitleScanner

BETTER: Final = frozenset({"process", "program", "registry", "hook", "title"})
"""Sources whose signal makes reading the screen less urgent."""
AFTER_S: Final = 0.1
TITLES: Final = 64
"""For how many titles is kept what they show."""
LONGEST_MODE: Final = 40
UNCLEAR: Final = "unclear"
WORKING: Final = "working"


class StateMonitor:
    """Monitors the agent of *session*, the program *program*, in *pane*; reports events by *emit*."""

    def __init__(
        self,
        session: SessionId,
        program: str,
        line: ServerConnection,
        pane: str,
        evidence: ProcessEvidence,
        screen_reader: ScreenReader,
        process_scanner: ProcessScanner,
        logged: tuple[Signal, ...] = (),
    ) -> None:
        """*logged*: the signals in the log, for an agent that ran before this host."""
        self.emit: Callable[[Event], None] = lambda event: None
        """Called with each new event."""
        self.evidence = evidence
        self.stirred_at = -math.inf
        self._conversation = self._permission_mode = ""
        """Those reported last."""
        self._limit_reports = LimitReports()
        self.version = ""
        """The version that the agent's program reports; empty if unknown."""
        self.session = session
        self.asked = ScreenRequest(session)
        self.view: FullView | None = None
        """Reads what its menus cut in the agent's own full view; None in an adopted pane."""
        self._program, self._line, self._pane = program, line, pane
        self._screen_reader, self._process_scanner = screen_reader, process_scanner
        self._pane_reader = PaneScreenReader()
        self._schedule = ScreenSchedule()
        self._title_scanner = TitleScanner()
        self._title = ""
        self._wants_title = True
        self._title_rules: ScreenRules | None = None
        self._title_readings: dict[str, TitleReading | None] = {}
        """What the last titles show by `_title_rules`: a spinner shows the same few again and again."""
        self._read_last = ("", "")
        """State and rule of the last successful reading."""
        self._signals = SignalLedger(logged)
        last = self._signals.last("process")
        evidence.is_stopped = last is not None and last.value == "stopped"
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        """When to read a prompt without a known menu again."""
        self._is_reading = self._is_over = self._was_unclear = False
        self._is_still = False
        """Whether the reading in progress is of a screen that did not change for long."""
        self._waiters: list[asyncio.Future[ScreenObservation]] = []
        self._served: list[asyncio.Future[ScreenObservation]] = []
        """Those that wait for the reading in progress."""
        process_scanner.add(self)

    @property
    def verdict(self) -> StateVerdict:
        """The state that all sources together give now."""
        return self._signals.verdict

    @property
    def reports_agent_state(self) -> bool:
        """Whether a source reports the agent's state, and not only whether it prints."""
        return self._signals.reports_agent_state

    @property
    def box_rule(self) -> ComposerRule | None:
        """How the agent's input box is read; None if unknown."""
        rules = self._screen_reader.rules(self._program, self.version)
        return rules.file.composer if rules is not None else None

    # -- input

    def handle_output(self, data: bytes) -> None:
        """Process *data* that the pane printed; empty if output was missed."""
        now = self._loop.time()
        self.stirred_at = now
        self._process_scanner.stir()
        if not data:
            self._title_scanner, self._wants_title = TitleScanner(), True
        elif (title := self._title_scanner.feed(data)) is not None:
            self._set_title(title.decode("utf-8", "replace"))
        self._schedule.record_output(now)
        self._arm()

    def handle_flood(self, is_off: bool) -> None:
        """Record that its output is paused (*is_off*) because it floods, or resumed."""
        self._wants_title = True
        self.stirred_at = self._loop.time()
        self._schedule.handle_flood(is_off, self.stirred_at)
        self._arm()

    def process_signals(self, signals: Sequence[SignalSeen]) -> None:
        for signal in signals:
            self._report(signal)
        if self.evidence.version and self.version != self.evidence.version:
            self.version = self.evidence.version
        if self._conversation != self.evidence.conversation:
            self._conversation = self.evidence.conversation
            self.emit(SettingsChanged(at=time.time(), resume_id=self._conversation))
        self._report_permission_mode(self.evidence.permission_mode, time.time())
        for limits in self._limit_reports.update(self.evidence.limits, time.time()):
            self.emit(limits)

    def record_signal(self, signal: SignalSeen) -> None:
        """Record *signal*, which became an event, from any source."""
        self._signals.record(signal)
        verdict = self.verdict
        self._schedule.is_decided = verdict.source in BETTER and verdict.state is not SessionState.UNSURE
        if signal.source in BETTER:
            self._schedule.request_reading(self._loop.time())
            self._arm()
        if signal.source in OUTLASTED:
            self._schedule.schedule_again(self._loop.time() + HOOK_LAG_S + AFTER_S)
        for event in self.asked.apply_state(verdict, signal.at):
            self.emit(event)

    def close(self) -> None:
        """Stop monitoring. Idempotent."""
        self._is_over = True
        self._process_scanner.drop(self)
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.cancel()
        for waiting in (one for one in self._waiters if not one.done()):
            waiting.set_exception(SessionEndedError(self.session))

    # -- the screen

    async def see_now(self) -> ScreenObservation:
        """Read the screen now and return the observation.

        Raises:
            SessionEndedError: if the agent ends before the reading.
            TmuxError: if the screen cannot be captured.
        """
        if self._is_over:
            raise SessionEndedError(self.session)
        waiting: asyncio.Future[ScreenObservation] = self._loop.create_future()
        self._waiters.append(waiting)
        if not self._is_reading:
            self._read_screen()
        return await waiting

    def last_activity(self) -> str | None:
        """Return the agent's last message or tool call, as of the last reading; empty if that showed none.

        None for a shell, and where no detection file describes the program.
        """
        rules = self._rules()
        if rules is None or not has_messages(rules):
            return None
        seen = self._pane_reader.seen
        return find_last_activity(seen.shot, seen.reading.composer, rules) if seen is not None else ""

    def handle_answer(self) -> None:
        """Record that the request was answered and read the screen soon."""
        self.asked.forget(time.time())
        if self.view is not None:
            self.view.forget()
        self.begin()

    def stir(self) -> None:
        """Read its screen, files and processes soon."""
        self.stirred_at = self._loop.time()
        self._process_scanner.stir()
        self.begin()

    def begin(self) -> None:
        """Read the screen soon, whether it prints or not."""
        self._schedule.request_reading(self._loop.time())
        self._arm()

    def _rules(self) -> ScreenRules | None:
        rules = self._screen_reader.rules(self._program, self.version)
        self._schedule.is_wordless = rules is None
        return rules

    def _arm(self) -> None:
        """Set the timer for the next reading; a timer that is already set re-arms itself."""
        if self._is_reading or self._is_over:
            return
        next_at = self._schedule.next_at()
        if self._timer is not None and self._timer.when() > next_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and next_at < math.inf:
            self._timer = self._loop.call_at(next_at, self._read_when_due)

    def _read_when_due(self) -> None:
        self._timer = None
        if self._loop.time() + 0.001 < self._schedule.next_at():
            self._arm()
        elif not self._is_reading:
            self._rules()
            self._read_screen()

    def _read_screen(self) -> None:
        self._is_reading = True
        if self._wants_title:
            self._wants_title = False
            self._line.submit(ask.pane_text(self._pane), self._on_title)
        self._is_still = self._schedule.is_still or self._schedule.is_wordless
        self._served, self._waiters = self._waiters, []
        self._schedule.record_reading(self._loop.time())  # later output is not on it
        self._line.submit(ask.screen(self._pane), self._on_captured)

    def _on_title(self, text: PaneText | KasmonError) -> None:
        if not isinstance(text, KasmonError) and not self._wants_title:
            self._set_title(text.title)

    def _on_captured(self, screen: PaneScreen | KasmonError) -> None:
        if isinstance(screen, KasmonError):
            self._on_observed(screen)
            return
        rules, is_still = self._rules(), self._is_still
        self._pane_reader.read(screen, self._title, rules, is_still=is_still, done=self._find_call_record)

    def _find_call_record(self, seen: ScreenObservation | BaseException) -> None:
        """Look up the agent's own record of the call that a menu asks about, if the menu shows one."""
        menu = seen.reading.menu if isinstance(seen, ScreenObservation) else None
        if menu is None and self.view is not None:
            self.view.forget()
        if (
            not isinstance(seen, ScreenObservation)
            or menu is None
            or not (menu.call or menu.named or not menu.is_whole)
        ):
            self._on_observed(seen)
            return
        looked_at, found = seen, menu

        def handle_calls(reading: "asyncio.Future[list[ToolCallEvidence]]") -> None:
            if reading.cancelled():
                return
            calls = [] if reading.exception() is not None else reading.result()
            self._on_observed(self._with_full_text(looked_at, found, calls))

        self._loop.run_in_executor(None, self.evidence.calls).add_done_callback(handle_calls)

    def _with_full_text(
        self, seen: ScreenObservation, menu: ScreenMenu, calls: Sequence[ToolCallEvidence]
    ) -> ScreenObservation:
        """Return *seen* with the whole text of the one call that matches *menu*; unchanged if several match."""
        fitting = {call.full for call in calls if shows(menu, call.text, call.values)}
        full = fitting.pop() if len(fitting) == 1 else self.view.find_text(menu) if self.view is not None else ""
        if not full:
            return seen
        reading = msgspec.structs.replace(seen.reading, menu=completed(menu, full))
        return seen._replace(reading=reading)

    def _on_observed(self, seen: ScreenObservation | BaseException) -> None:
        self._is_reading = False
        for waiting in (one for one in self._served if not one.done()):
            if isinstance(seen, ScreenObservation):
                waiting.set_result(seen)
            else:
                waiting.set_exception(seen)
        if self._is_over:
            return
        at = time.time()
        menu: ScreenMenu | None = None
        text = ""
        if not isinstance(seen, ScreenObservation):
            why = seen.message if isinstance(seen, KasmonError) else repr(seen)
            self._report(SignalSeen(at=at, source="screen", value="unreadable", text=clean_line(why)[:200]))
        else:
            menu, text = seen.reading.menu, seen.reading.text or (seen.guess.text if seen.guess else "")
            if self.view is not None and self.view.is_open:
                self._read_if_awaited()
                return
            self._process_observation(seen, at)
        verdict = self.verdict
        if (
            isinstance(seen, ScreenObservation)
            and menu is not None
            and verdict.state is SessionState.ASKING
            and self._reads_full_view(seen, menu, at)
        ):
            self._read_if_awaited()
            return
        if verdict.state is SessionState.ASKING and not text:
            deciding = self._signals.last(verdict.source)
            text = deciding.text if deciding is not None else ""
        for event in self.asked.apply_screen(verdict, menu, text, at):
            self.emit(event)
        if self.asked.due_at is not None and (self._again is None or self._again.when() < self._loop.time()):
            self._again = self._loop.call_later(self.asked.due_at - at + AFTER_S, self.begin)
        self._read_if_awaited()

    def _reads_full_view(self, seen: ScreenObservation, menu: ScreenMenu, at: float) -> bool:
        """Whether the agent's full view of what *menu* cuts is being read now; the screen is processed after that."""
        rules = self._rules()
        rule = rules.menus.get(menu.name) if rules is not None else None
        if menu.is_whole or rule is None or rule.view is None or self.view is None or self.asked.is_held:
            return False
        return not self.asked.is_early(menu, at) and self.view.begin(seen, menu, rule)

    def _read_if_awaited(self) -> None:
        if self._waiters:
            self._read_screen()
        self._arm()

    def _report_permission_mode(self, mode: str, at: float) -> None:
        mode = clean_line(mode)[:LONGEST_MODE]
        if mode and mode != self._permission_mode:
            self._permission_mode = mode
            self.emit(SettingsChanged(at=at, permission_mode=mode))

    def _process_observation(self, seen: ScreenObservation, at: float) -> None:
        reading, guess = seen.reading, seen.guess
        self._report_permission_mode(reading.permission_mode, at)
        before, self._read_last = self._read_last, (reading.state, reading.rule)
        self._schedule.is_steady = reading.state == WORKING and before == self._read_last
        says_nothing = reading.state == UNCLEAR
        is_first, self._was_unclear = says_nothing and not self._was_unclear, says_nothing
        if says_nothing and not self._is_still:
            self._schedule.request_still_reading()
        if is_first and not self._is_still:
            return  # maybe half drawn: the previous state counts until the next reading
        if not self._schedule.is_wordless:
            self._report(
                SignalSeen(
                    at=at,
                    source="screen",
                    value=reading.state,
                    asking=reading.asking,
                    text=clean_line(reading.text or reading.notice)[:200],
                    until=reading.until,
                    rule=reading.rule,
                    failed=reading.failed,
                )
            )
        if guess is not None:
            rule = f"wordless: {guess.sign}"
            text = clean_line(guess.text.partition("\n")[0])[:200]
            self._report(SignalSeen(at=at, source="fallback", value="asking", text=text, rule=rule))
        elif self._signals.last("fallback") is not None:
            self._report(SignalSeen(at=at, source="fallback", value=UNCLEAR))

    def _set_title(self, title: str) -> None:
        if title == self._title:
            return
        self._title = title
        rules = self._screen_reader.rules(self._program, self.version)
        if rules is None or not rules.titles:
            return
        if rules is not self._title_rules or len(self._title_readings) >= TITLES:
            self._title_rules, self._title_readings = rules, {}
        if title not in self._title_readings:
            clean = clean_line(title[: LONGEST_TITLE * 4])[:LONGEST_TITLE].strip()
            self._title_readings[title] = read_title(clean, rules)
        match = self._title_readings[title]
        if match is not None:
            signal = SignalSeen(at=time.time(), source="title", value=match.state, asking=match.asking, rule=match.rule)
            self._report(signal)
        elif self._signals.last("title") is not None:
            self._report(SignalSeen(at=time.time(), source="title", value=UNCLEAR))

    def _report(self, signal: SignalSeen) -> None:
        """Report *signal* as an event if it differs from its source's last one."""
        if self._signals.is_news(signal):
            self.emit(signal)
