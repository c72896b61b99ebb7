"""Each of chaos's checks finds what breaks its promise, and nothing where it is kept."""

import zlib
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import pytest

from kasmon.model.commands import Receipt, ReceiptId, ReceiptState
from kasmon.model.events import Event, ReceiptChanged, RequestAnswered, SessionStarted, TurnStarted
from kasmon.model.permission import Decision, RequestId, SessionId
from kasmon.model.session_state import SessionState
from tests.support.chaos import promises
from tests.support.chaos.faults import DEEDS
from tests.support.chaos.promises import HOSTILE, Answered, Kept, Leaving, Process
from tests.support.sample_fleet import idle, session

A, B = Process(7, 1.0), Process(8, 1.0)
ALLOWED = RequestAnswered(at=1.0, request=RequestId("a-1"), decision=Decision.ALLOW)


def moved(state: ReceiptState, prompt: str = "") -> Event:
    receipt = Receipt(id=ReceiptId("a-r1"), session=SessionId("a"), state=state)
    return ReceiptChanged(at=1.0, receipt=receipt, prompt=prompt)


GIVEN = [moved(ReceiptState.QUEUED, "say one"), TurnStarted(at=1.0, prompt="say one"), moved(ReceiptState.FINISHED)]
KEPT = {"/log": Kept(3, zlib.crc32(b"one"))}
LEFT_WELL = Leaving("SIGKILL", [1], [1], b"\x1b[?1049h...\x1b[?1049l")
ALONE = idle("alone", generation=1)

Check: TypeAlias = Callable[[], list[str]]
CASES: dict[str, tuple[Check, Check]] = {
    "1": (
        lambda: promises.agents_outlive_dashboards({A: "a", B: "b"}, [A, B]),
        lambda: promises.agents_outlive_dashboards({A: "a", B: "b"}, [A, Process(8, 2.0)]),
    ),
    "2": (
        lambda: promises.nothing_is_approved_unseen([ALLOWED], [Answered("a-1", "allow"), Answered("a-1", "deny")]),
        lambda: promises.nothing_is_approved_unseen([ALLOWED], [Answered("a-1", "deny")]),
    ),
    "3": (lambda: promises.nothing_foreign_acts(b"] 52;c;"), lambda: promises.nothing_foreign_acts(HOSTILE["a title"])),
    "4, who": (
        lambda: promises.nobody_is_guessed([session("a", SessionState.LOST), ALONE], {ALONE.id: True}),
        lambda: promises.nobody_is_guessed([ALONE], {ALONE.id: False}),
    ),
    "4, when": (lambda: promises.truth_in_time(1.9), lambda: promises.truth_in_time(2.1)),
    "5, a log that is gone": (
        lambda: promises.logs_only_grow(KEPT, {"/log": b"one and more"}),
        lambda: promises.logs_only_grow(KEPT, {}),
    ),
    "5, a log that was rewritten": (
        lambda: promises.logs_only_grow(KEPT, {"/log": b"one"}),
        lambda: promises.logs_only_grow(KEPT, {"/log": b"two and more"}),
    ),
    "5, a file": (
        lambda: promises.foreign_files_stay({"/f": b"x"}, {"/f": b"x"}),
        lambda: promises.foreign_files_stay({"/f": b"x"}, {"/f": None}),
    ),
    "6, modes": (
        lambda: promises.terminals_are_usable(LEFT_WELL),
        lambda: promises.terminals_are_usable(LEFT_WELL._replace(after=[2])),
    ),
    "6, the screen": (
        lambda: promises.terminals_are_usable(LEFT_WELL._replace(wrote=b"")),
        lambda: promises.terminals_are_usable(LEFT_WELL._replace(wrote=b"\x1b[?1049l\x1b[?1049h")),
    ),
    "7": (lambda: promises.control_goes_on(ALONE, True), lambda: promises.control_goes_on(ALONE, False)),
    "8": (
        lambda: promises.restarts_are_ours({"a": [SessionStarted(at=1.0)]}, Counter({"a": 1})),
        lambda: promises.restarts_are_ours({"a": [SessionStarted(at=1.0)] * 2}, Counter({"a": 1})),
    ),
    "9": (lambda: promises.one_answer_each([ALLOWED]), lambda: promises.one_answer_each([ALLOWED, ALLOWED])),
    "10, in a log": (
        lambda: promises.what_is_said_was_delivered(GIVEN),
        lambda: promises.what_is_said_was_delivered([*GIVEN, TurnStarted(at=2.0, prompt="say one")]),
    ),
    "10, by the program's own word": (
        lambda: promises.what_is_said_was_delivered(GIVEN, ["say one\n"]),
        lambda: promises.what_is_said_was_delivered(GIVEN, []),
    ),
}


@pytest.mark.parametrize("promise", CASES)
def test_kept_promises_pass_the_check_and_broken_ones_fail_it(promise: str) -> None:
    kept, broken = CASES[promise]

    assert [] == kept()
    assert 1 == len(broken())


def test_a_lost_prompt_may_not_have_been_delivered() -> None:
    events = [moved(ReceiptState.QUEUED, "say one"), moved(ReceiptState.LOST)]

    assert [] == promises.what_is_said_was_delivered(events, [])
    assert [] == promises.what_is_said_was_delivered(events, ["say one"])


def test_every_fault_has_a_name_and_can_be_drawn() -> None:
    assert all(deed.weight > 0 and name for name, deed in DEEDS.items())
