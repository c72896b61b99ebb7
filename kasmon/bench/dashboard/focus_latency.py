"""Measures the delay from a key to its glyph in the dashboard's focus mode, against a raw `tmux attach` to the pane."""

import itertools
import random
import statistics
import time
from collections.abc import Iterator

from kasmon.bench.support.figure import Figure, percentile, timed
from kasmon.bench.support.terminal import KASMON, BenchTerminal, environment
from kasmon.bench.support.tmux_sessions import program, terminals
from kasmon.tmux.server import TmuxServer

GAP_S = (0.01, 0.05)
"""The range of the random pause between two keys, as of a person."""
LEAVE = b"\x1d"


def measure_key_to_glyph(rounds: int, keys: int = 120) -> list[Figure]:
    """Measure median and 95th percentile of *keys* key presses a round, dashboard and `tmux attach` interleaved."""
    with terminals([("echo", program("echo"))]) as (paths, (session,)):
        own = environment(paths.environment_variables())
        attach = TmuxServer(paths.tmux_socket).attach_argv(session)
        raw: list[float] = []
        ours: list[float] = []
        letters = itertools.cycle(b"abcdefghijklmnopqrstuvwxyz")
        for _ in range(rounds):
            raw += _measure_attached(attach, own, letters, keys)
            ours += type_in_focus(own, letters, keys)
    limit, note = statistics.median(raw), f"raw tmux attach in the same run: {percentile(raw, 0.95):.2f} ms"
    return [
        Figure(
            name="focus, key to glyph, p50",
            value=statistics.median(ours),
            unit="ms",
            target=6,
            limit=limit,
            limit_name="raw tmux attach",
            samples=len(ours),
        ),
        timed("focus, key to glyph, p95", ours, 5, note, share=0.95),
    ]


def _measure_attached(argv: list[str], own: dict[str, str], letters: Iterator[int], keys: int) -> list[float]:
    with BenchTerminal(argv, own) as terminal:
        terminal.until(b"echo-is-ready")
        return _type(terminal, letters, keys)


def type_in_focus(
    own: dict[str, str], letters: Iterator[int], keys: int, ready: bytes = b"echo-is-ready"
) -> list[float]:
    """Focus the first session of a new dashboard that shows *ready*; return the delay of each of *keys* keys, in ms."""
    with BenchTerminal(KASMON, own) as terminal:
        terminal.until(ready)
        terminal.press(b"\r")
        terminal.until(b"Ctrl+]")
        taken = _type(terminal, letters, keys)
        terminal.press(LEAVE)
        return taken


def _type(terminal: BenchTerminal, letters: Iterator[int], keys: int) -> list[float]:
    terminal.drain(0.3)
    times: list[float] = []
    for letter in itertools.islice(letters, keys):
        time.sleep(random.uniform(*GAP_S))
        times.append(terminal.press_until(bytes([letter]), bytes([letter - 32]) * 4, 2.0))
    return times
