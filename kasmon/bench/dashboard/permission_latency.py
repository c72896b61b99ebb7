"""Measures the delay from a request in a session's log to the card, which the config lets open by itself."""

import itertools
import random
import time
from pathlib import Path

from kasmon.bench.dashboard.bare_textual import READY, following
from kasmon.bench.support.figure import Figure, percentile, timed
from kasmon.bench.support.fleet import build_request, create_sessions, scratch
from kasmon.bench.support.terminal import BenchTerminal, environment, open_dashboard, read_for
from kasmon.model.events import RequestOpened, RequestWithdrawn
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, private_folder, write_private
from kasmon.store.event_log import EventLog
from kasmon.tui.permissions.queue import QUIET_S

SESSIONS = 20
WORD = "show-me-"
TITLE = "A command"
"""The command itself appears only on the card."""


def measure_event_to_dialog(requests: int, sessions: int = SESSIONS) -> Figure:
    """Measure *requests* of all sessions except the selected one, each after a while without key presses."""
    with scratch() as paths, create_sessions(paths, sessions) as ids:
        let_cards_open(paths)
        own = environment(paths.environment_variables())
        with open_dashboard(own) as terminal:
            terminal.until(b"session-0000")
            read_for(terminal, 2.0)
            turns = itertools.islice(itertools.cycle(ids[1:]), requests)
            delays = [open_card(terminal, paths.log(session), session, number) for number, session in enumerate(turns)]
        limits = _bare(paths.log(ids[0]), ids[0], own, requests)
    note = (
        f"p50 {percentile(delays, 0.5):.1f} ms; a bare Textual app that does nothing but follow one log, in the "
        f"same run: p50 {percentile(limits, 0.5):.1f} ms, p95 {percentile(limits, 0.95):.1f} ms"
    )
    return timed("permission event to dialog, p95", delays, 60, note, share=0.95)


def let_cards_open(paths: Paths) -> None:
    """Let the dashboard of *paths* open the card of a request by itself."""
    private_folder(paths.config)
    write_private(paths.config_file, b"[attention]\npopup = true\n")


def open_card(terminal: BenchTerminal, path: Path, session: SessionId, number: int) -> float:
    """Return the time from event to card, in ms; then close the card, withdraw the request, and pause."""
    log, request = EventLog(path), build_request(session, f"{WORD}{number:05d}", number, TITLE)
    began = time.perf_counter()
    log.append(RequestOpened(at=time.time(), request=request))
    taken_ms = 1000 * (terminal.until(request.shown.encode()) - began)
    read_for(terminal, 0.2)
    terminal.press(b"\x1b")
    log.append(RequestWithdrawn(at=time.time(), request=request.id))
    read_for(terminal, QUIET_S + random.uniform(0.5, 0.8))
    return taken_ms


def _bare(path: Path, session: SessionId, own: dict[str, str], requests: int) -> list[float]:
    """Return the delays of the same events in an app that does nothing else, in ms."""
    log, taken = EventLog(path), list[float]()
    with BenchTerminal(following(path, WORD), own) as terminal:
        terminal.until(READY)
        for number in range(requests):
            read_for(terminal, random.uniform(0.1, 0.2))
            request = build_request(session, f"{WORD}{number:05d}", number, TITLE)
            began = time.perf_counter()
            log.append(RequestOpened(at=time.time(), request=request))
            taken.append(1000 * (terminal.until(request.shown.encode()) - began))
    return taken
