"""Measures a search through many long sessions: `kasmon grep`, from its start to its end."""

import itertools
import statistics
import time
from collections.abc import Iterator
from random import Random
from typing import Final

from kasmon.bench.dashboard.startup import BARE_PYTHON
from kasmon.bench.support.figure import Figure, timed, took_ms
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.process_cost import run_ms
from kasmon.bench.support.terminal import KASMON, environment
from kasmon.model.events import Event, MessageWritten, ToolFinished, ToolStarted, TurnEnded, TurnStarted, encode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, write_private
from kasmon.store.terminal_record import TerminalRecord
from kasmon.supervisor.search.index_writer import update_all

SESSIONS, MEGABYTES = 50, 10
RARE: Final = "the needle_in_17 of session 0017"
GREP: Final = (*KASMON, "grep", "--json")
LIMIT_MS: Final = 1000
NOUNS: Final = (
    "parser",
    "token",
    "buffer",
    "session",
    "socket",
    "worker",
    "cache",
    "index",
    "query",
    "record",
    "module",
)
VERBS: Final = ("reads", "writes", "checks", "drops", "keeps", "opens", "closes", "merges", "splits", "locks", "frees")


def measure_search(rounds: int) -> list[Figure]:
    """Measure 50 sessions of 10 MB, half of them terminals: words in one, in all, in none; and without an index."""
    with scratch() as paths, create_sessions(paths, SESSIONS, alive=0) as sessions:
        for number, session in enumerate(sessions):
            fill(paths, session, number, MEGABYTES * 1_000_000)
        own = environment(paths.environment_variables())
        without = _times([*GREP, RARE], own, max(3, rounds // 3))
        took = took_ms(lambda: update_all(paths)) / 1000
        size_mb = paths.search_index.stat().st_size / 1e6
        bare = _times([*BARE_PYTHON], own, rounds)
        times = {query: _times([*GREP, query], own, rounds) for query in (RARE, "needle_in_17", "no such words at all")}
        capped = _times([*GREP, "--max", "5", "session"], own, rounds)
    whole = f"{SESSIONS} sessions x {MEGABYTES} MB"
    note = (
        f"the command from start to end; of that Python's own start {statistics.median(bare):.0f} ms. The index has "
        f"{size_mb:.0f} MB and took {took:.0f} s, which a dashboard spends in the background"
    )
    worst = max(times.values(), key=statistics.median)
    return [
        timed(f"search in {whole}", worst, LIMIT_MS, note),
        timed(f"search in {whole}, words that are everywhere, the newest 5 of each", capped, LIMIT_MS),
        timed(f"search in {whole}, without any index", without, None),
    ]


def fill(paths: Paths, session: SessionId, number: int, size: int) -> None:
    """Fill the log of *session*, or for even numbers its terminal record, with *size* bytes."""
    chance = Random(number)
    if number % 2:
        story, lines_written, written = _story(chance, number), [paths.log(session).read_bytes()], 0
        while written < size:
            lines_written.append(encode(next(story)) + b"\n")
            written += len(lines_written[-1])
        write_private(paths.log(session), b"".join(lines_written))
        return
    record = TerminalRecord(paths.record(session), 2 * size)
    record.open(0)
    lines = _lines(chance, number)
    written, now = 0, time.time()
    while written < size:
        some = [*itertools.islice(lines, 200)]
        record.append(some, now)
        written += sum(map(len, some)) + 2 * len(some)


def _story(chance: Random, number: int) -> Iterator[Event]:
    now, lines = time.time() - 86_400, _lines(chance, number)
    for turn in itertools.count():
        yield TurnStarted(at=now + turn, prompt=f"Look at part {turn}: {next(lines)}")
        for step in range(4):
            call = f"call-{turn}-{step}"
            yield ToolStarted(
                at=now + turn, call=call, tool="Bash", title=next(lines)[:60], input='{"command":"make check"}'
            )
            yield ToolFinished(at=now + turn, call=call, output="\n".join(itertools.islice(lines, 30)))
            yield MessageWritten(at=now + turn, text=" ".join(itertools.islice(lines, 5)))
        yield TurnEnded(at=now + turn)


def _lines(chance: Random, number: int) -> Iterator[str]:
    for line in itertools.count():
        if line == 3000:
            yield f"here is the needle_in_{number} of session {number:04d}"
        noun, other = chance.choice(NOUNS), chance.choice(NOUNS)
        yield (
            f"src/{noun}/{other}_{chance.randrange(5000)}.py:{chance.randrange(900)}: {noun} {chance.choice(VERBS)} "
            f"the {other} of session {number:04d} at 0x{chance.randrange(1 << 32):08x} in {chance.random():.3f} s"
        )


def _times(argv: list[str], own: dict[str, str], rounds: int) -> list[float]:
    return [run_ms(argv, own) for _ in range(rounds)]
