"""After a prompt `send --wait` waits for what comes of it, and is not content with what was before."""

import msgspec
import pytest

from kasmon.commands.talking import has_moved
from kasmon.model.command import Receipt, ReceiptId, ReceiptState
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import SessionState

BEFORE = Session(id=SessionId("aaaaaaaa"), state=SessionState.IDLE, since=10.0, turns=3, generation=1)
SENT = Receipt(id=ReceiptId("aaaaaaaa-r1"), session=BEFORE.id, state=ReceiptState.SUBMITTED)


def test_still_idle_is_not_idle_again() -> None:
    assert not has_moved(BEFORE, BEFORE, SENT)
    assert not has_moved(BEFORE, msgspec.structs.replace(BEFORE, last_line="typed"), SENT)


@pytest.mark.parametrize(
    "after",
    [{"state": SessionState.WORKING}, {"turns": 4}, {"since": 11.0}, {"generation": 2}],
    ids=["another state", "a turn later", "idle anew", "restarted"],
)
def test_whatever_came_after_the_prompt_counts(after: dict[str, object]) -> None:
    assert has_moved(BEFORE, msgspec.structs.replace(BEFORE, **after), SENT)


def test_a_finished_prompt_counts_however_short_its_turn_was() -> None:
    assert has_moved(BEFORE, BEFORE, msgspec.structs.replace(SENT, state=ReceiptState.FINISHED))
