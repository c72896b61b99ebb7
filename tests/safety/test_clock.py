"""A clock that jumps: by hand, by a time server, or because the machine slept."""

import time

import pytest

from kasmon.model.fleet import Fleet
from kasmon.model.formatting import age
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.sandbox.managed import idle_policy
from kasmon.sandbox.managed.idle_policy import MonotonicAge
from kasmon.supervisor.fleet.liveness import Liveness, derive
from tests.support.sample_fleet import NOW, crew

HOUR = 3600.0
JUMPS = [HOUR, -HOUR, 8 * HOUR, -24 * HOUR, 400 * 24 * HOUR]
GONE = (SessionState.LOST, SessionState.ENDED)


def shown(fleet: Fleet, now: float) -> dict[SessionId, Session]:
    """All that live, as they are shown at *now* while their hosts are there."""
    alive = [each for each in fleet.sessions if each.state not in GONE and each.generation]
    return {each.id: derive(each, Liveness(host=7), now) for each in alive}


@pytest.mark.parametrize("jump", JUMPS)
def test_a_clock_that_jumps_loses_no_session_and_ends_none(jump: float) -> None:
    before, after = shown(crew(), NOW), shown(crew(), NOW + jump)

    assert before
    assert not [each.name for each in after.values() if each.state in GONE]
    assert {id_: each.requests for id_, each in before.items()} == {id_: each.requests for id_, each in after.items()}
    assert not [each.name for id_, each in after.items() if each.state is SessionState.IDLE is not before[id_].state]


@pytest.mark.parametrize("jump", JUMPS)
def test_the_age_of_stored_files_is_unchanged_by_the_clock(jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_policy, "_steady", lambda: 50.0)
    clock = MonotonicAge()
    used_at = time.time() - 60
    clock.at("used", used_at, used_at + 60)

    later = used_at + 60 + jump
    assert 60.0 == pytest.approx(later - clock.at("used", used_at, later))


def test_a_future_time_gives_no_negative_age() -> None:
    assert "0s" == age(-HOUR)
