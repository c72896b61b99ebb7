"""The ten promises as an outsider can check them: pure functions of what was seen; what is broken, in words.

What it is given was seen from outside: processes, files, logs, bytes on a terminal, and what was done to them.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kasmon.model.commands import ReceiptId, ReceiptState
from kasmon.model.events import Event, ReceiptChanged, RequestAnswered, SessionStarted, TurnStarted
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState

TAKEN: Final = frozenset({ReceiptState.SUBMITTED, ReceiptState.STARTED, ReceiptState.FINISHED})
SURE: Final = frozenset({SessionState.IDLE, SessionState.WORKING, SessionState.ASKING, SessionState.LIMITED})
HOSTILE: Final = {"a clipboard": b"\x1b]52;c;Y2hhb3M=", "a title": b"\x1b]2;chaos", "a query": b"\x1b[5n\x1b[6n"}
"""What agents here print and must never reach the terminal of a dashboard."""
LEAVES_SCREEN: Final = b"\x1b[?1049l"
ENTERS_SCREEN: Final = b"\x1b[?1049h"
TRUTH_S: Final = 2.0


class Process(NamedTuple):
    """One process; its start tells it from a later one of its number."""

    pid: int
    started: float


class Answered(NamedTuple):
    """An answer that was given by somebody here, and was not refused."""

    request: str
    decision: str


class Leaving(NamedTuple):
    """A dashboard that ended: its terminal before and after, and the last that it or its guard wrote."""

    how: str
    before: Sequence[object]
    after: Sequence[object]
    wrote: bytes


class Kept(NamedTuple):
    """A file as it was last seen: so much of it, and the checksum of that."""

    size: int
    sum: int


def agents_outlive_dashboards(before: Mapping[Process, str], alive: Iterable[Process]) -> list[str]:
    """1. Of those that ran before a dashboard was ended, who does not run after."""
    running = set(alive)
    return [f"{name} ended with a dashboard" for process, name in before.items() if process not in running]


def nothing_is_approved_unseen(events: Iterable[Event], given: Iterable[Answered]) -> list[str]:
    """2. Each answer in a log is one that somebody gave."""
    known = Counter(given)
    answers = Counter(
        Answered(event.request, event.decision.value) for event in events if isinstance(event, RequestAnswered)
    )
    return [f"{each.request} was answered {each.decision!r} by nobody" for each in (answers - known).elements()]


def nothing_foreign_acts(seen: bytes) -> list[str]:
    """3. What a dashboard wrote to its terminal."""
    return [f"{what} of an agent reached the terminal" for what, bytes_ in HOSTILE.items() if bytes_ in seen]


def nobody_is_guessed(sessions: Iterable[Session], hosted: Mapping[str, bool]) -> list[str]:
    """4. Of a session without a host nobody says what it does. *hosted*: whether the lock of its host was held, before
    and after the look."""
    return [
        f"{session.name} is said to be {session.state} and has no host"
        for session in sessions
        if session.state in SURE and session.generation and not hosted.get(session.id, True)
    ]


def logs_only_grow(before: Mapping[str, Kept], now: Mapping[str, bytes]) -> list[str]:
    """5. Nothing that was written is rewritten or deleted. *now*: each log's bytes."""
    broken = []
    for path, kept in before.items():
        content = now.get(path)
        if content is None:
            broken.append(f"{path} is gone")
        elif len(content) < kept.size or zlib.crc32(content[: kept.size]) != kept.sum:
            broken.append(f"{path} was rewritten")
    return broken


def foreign_files_stay(left: Mapping[str, bytes], now: Mapping[str, bytes | None]) -> list[str]:
    """5. What a person left there is as it was."""
    return [f"{path} was changed or deleted" for path, content in left.items() if now.get(path) != content]


def terminals_are_usable(leaving: Leaving) -> list[str]:
    """6. A terminal after its dashboard has ended."""
    broken = []
    if list(leaving.before) != list(leaving.after):
        broken.append(f"the terminal's modes are not as before ({leaving.how})")
    entered, left = leaving.wrote.rfind(ENTERS_SCREEN), leaving.wrote.rfind(LEAVES_SCREEN)
    if entered > left:
        broken.append(f"the terminal stays on the other screen ({leaving.how})")
    return broken


def control_goes_on(full: Session | None, others_took: bool) -> list[str]:
    """7. While the log of *full* could not be written: it is shown, not as sure as before; others took a prompt."""
    broken = [] if others_took else ["while one disk was full, another session took no prompt"]
    if full is None:
        broken.append("a session whose log cannot be written is not shown any more")
    return broken


def restarts_are_ours(events: Mapping[str, Iterable[Event]], wanted: Mapping[str, int]) -> list[str]:
    """8. No session was started more often than somebody here wanted it."""
    starts = {session: sum(isinstance(event, SessionStarted) for event in facts) for session, facts in events.items()}
    return [
        f"{session} was started {count} times, and {wanted.get(session, 0)} were wanted"
        for session, count in starts.items()
        if count > wanted.get(session, 0)
    ]


def one_answer_each(events: Iterable[Event]) -> list[str]:
    """9. However many answer one request, one is heard."""
    answers = Counter(event.request for event in events if isinstance(event, RequestAnswered))
    return [f"{request} was answered {count} times" for request, count in answers.items() if count > 1]


def what_is_said_was_delivered(events: Sequence[Event], got: Sequence[str] | None = None) -> list[str]:
    """10. Each prompt was given at most once, and those that are said to be taken once.

    *got*: what the program itself wrote down; without, the turns that the log tells of.
    """
    texts: dict[ReceiptId, str] = {}
    states: dict[ReceiptId, ReceiptState] = {}
    steps: defaultdict[ReceiptId, list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event, ReceiptChanged):
            if event.prompt:
                texts[event.receipt.id] = event.prompt
            states[event.receipt.id] = event.receipt.state
            steps[event.receipt.id].append(f"{event.receipt.state} {event.receipt.reason}".strip())
    if got is None:
        given = Counter(event.prompt for event in events if isinstance(event, TurnStarted))
        proven = frozenset({ReceiptState.STARTED, ReceiptState.FINISHED})
    else:
        given, proven = Counter(text.strip("\n") for text in got), TAKEN
    wanted = Counter(texts.values())
    broken = [f"{text!r} was given {count} times" for text, count in given.items() if 0 < wanted[text] < count]
    for receipt, state in states.items():
        text = texts.get(receipt)
        if text is not None and state in proven and not given[text]:
            broken.append(f"{text!r} is said to be {state} and was not given ({receipt}: {', '.join(steps[receipt])})")
    return broken


def truth_in_time(took_s: float, limit_s: float = TRUTH_S) -> list[str]:
    """4. How long it took until the truth about a crash was shown."""
    return [f"the truth about a crash took {took_s:.1f} s"] if took_s > limit_s else []


def is_alive(session: Session) -> bool:
    """Whether its agent is believed to run."""
    return session.state in ALIVE
