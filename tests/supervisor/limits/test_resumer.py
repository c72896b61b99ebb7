"""Sessions go on after a usage limit: real hosts, real logs, and a clock of the test's own."""

import asyncio
import time

import pytest

from kasmon.config import Config
from kasmon.config.schema import Limits
from kasmon.errors import RefusedError
from kasmon.model.commands import ReceiptState
from kasmon.model.limits.resume import CONTINUE, GRACE_S
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.store.resume_log import read_resumptions
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.permission import allow, cancel, cut_prompt, is_resumer_needed
from kasmon.supervisor.limits.resumer import Resumer
from tests.support.tui.dashboard import Home
from tests.support.wait import until

HOUR_S = 3600.0
AFTER_S = HOUR_S + GRACE_S + 300
"""Later than the end of a limit that began while the test did."""
LIMITED = "window five_hour 100 3600\nlimit"

LONGER = f"window five_hour 100 {24 * HOUR_S}\nlimit"


class Waiting:
    """Sessions that wait for a limit, and the time of day that the resumer is told."""

    def __init__(self, home: Home, *names: str) -> None:
        self.home = home
        self.now = time.time()
        self.ticks = 0.0
        self.ids = [home.start(name, LIMITED) for name in names]
        for session in self.ids:
            until(lambda session=session: self.is_waiting(session), what="the limit")  # type: ignore[misc]
        self.resumer = Resumer(home.paths, lambda: self.now, lambda: self.ticks)

    def is_waiting(self, session: SessionId) -> bool:
        seen = self.home.session(session)
        return seen.state is SessionState.LIMITED and not seen.in_turn

    def has_met_it_again(self, session: SessionId) -> bool:
        """Whether the turn of its second prompt began, and ended at a limit."""
        return self.home.session(session).turns == 2 and self.is_waiting(session)

    def step(self, passed_s: float) -> float | None:
        """One look of the resumer, *passed_s* seconds later."""
        self.now += passed_s
        self.ticks += max(passed_s, 0.0)
        return asyncio.run(self.resumer.step(read_fleet(self.home.paths)))

    def prompts(self, session: SessionId) -> list[str]:
        return [receipt.text for receipt in self.home.session(session).receipts]


def test_allowed_sessions_resume_one_after_the_other_with_the_shown_prompt(home: Home) -> None:
    waiting = Waiting(home, "first", "second", "left")
    first, second, left = waiting.ids
    for session in (second, first):
        allow(home.paths, home.session(session), "say back")
    assert is_resumer_needed(home.paths, Config(), read_fleet(home.paths).sessions)

    assert waiting.step(0) is not None
    waiting.step(AFTER_S)
    assert ([LIMITED.split("\n")[0], "say back"], 1) == (waiting.prompts(second), len(waiting.prompts(first)))
    waiting.step(1)
    assert 1 == len(waiting.prompts(first)), "they are spaced"
    waiting.step(10)
    assert "say back" == waiting.prompts(first)[-1]
    for session in (first, second):
        until(lambda session=session: home.session(session).state is SessionState.IDLE)  # type: ignore[misc]
        assert ReceiptState.FINISHED is home.session(session).receipts[-1].state

    assert waiting.step(120) is None, "nothing is left to resume"
    assert (SessionState.LIMITED, 1) == (home.session(left).state, len(waiting.prompts(left)))
    assert {first, second} == {id_ for id_, each in read_resumptions(home.paths).items() if each.ended_at}


def test_a_limit_reached_again_is_waited_for_and_a_cancelled_session_stays(home: Home) -> None:
    waiting = Waiting(home, "again", "behind")
    again, behind = waiting.ids
    allow(home.paths, home.session(again), LONGER)
    allow(home.paths, home.session(behind), "say back")

    waiting.step(AFTER_S)
    until(lambda: waiting.has_met_it_again(again))
    waiting.step(60)
    assert 1 == len(waiting.prompts(behind)), "its account's limit was met again"
    cancel(home.paths, home.session(again))
    waiting.step(10)
    assert (2, "say back") == (len(waiting.prompts(again)), waiting.prompts(behind)[-1])


def test_a_prompt_that_the_agent_worked_on_is_not_sent_again_when_the_limit_is_reached_again(home: Home) -> None:
    waiting = Waiting(home, "worked")
    (worked,) = waiting.ids
    allow(home.paths, home.session(worked), f"say some work\n{LONGER}")
    waiting.step(AFTER_S)
    until(lambda: waiting.has_met_it_again(worked))
    waiting.step(25 * HOUR_S)

    assert ["say some work", CONTINUE] == waiting.prompts(worked)[1:]


def test_a_changed_clock_sends_no_prompt_twice_for_one_try(home: Home) -> None:
    waiting = Waiting(home, "jumps")
    (jumps,) = waiting.ids
    allow(home.paths, home.session(jumps), LONGER)
    waiting.step(AFTER_S)
    until(lambda: waiting.has_met_it_again(jumps))

    for jump_s in (-48 * HOUR_S, HOUR_S, -HOUR_S):
        waiting.step(jump_s)
        assert 2 == len(waiting.prompts(jumps))
    waiting.step(24 * 30 * HOUR_S)
    until(lambda: len(waiting.prompts(jumps)) == 3, what="the second try")
    assert 2 == read_resumptions(home.paths)[jumps].tries


def test_a_prompt_cut_before_any_work_is_repeated_else_continue_is_sent(home: Home) -> None:
    cut, begun = home.start("cut", LIMITED), home.start("begun", f"say a word\n{LIMITED}")
    for session in (cut, begun):
        until(lambda session=session: home.session(session).state is SessionState.LIMITED)  # type: ignore[misc]

    assert (LIMITED, CONTINUE) == (
        cut_prompt(home.paths, home.session(cut)),
        cut_prompt(home.paths, home.session(begun)),
    )


def test_only_a_session_at_a_limit_can_be_allowed_and_never_means_never(home: Home) -> None:
    idle = home.start("idle")
    with pytest.raises(RefusedError, match="does not wait for a usage limit"):
        allow(home.paths, home.session(idle), CONTINUE)

    waiting = Waiting(home, "waits")
    allow(home.paths, home.session(waiting.ids[0]), CONTINUE)
    never = Config(limits=Limits(resume="never"))
    assert not is_resumer_needed(home.paths, never, read_fleet(home.paths).sessions)


def test_a_session_resumes_without_any_dashboard_if_the_config_resumes_all(home: Home) -> None:
    (home.path / "c" / "kasmon").mkdir(mode=0o700)
    (home.path / "c" / "kasmon" / "config.toml").write_text('[limits]\nresume = "auto"\n')
    home.start("alone", "window five_hour 100 0\nlimit")

    until(lambda: home.paths.resumer_lock.exists(), 60, "the process that resumes")


def test_while_its_log_cannot_be_written_nothing_is_sent_and_then_once(home: Home) -> None:
    waiting = Waiting(home, "only")
    (only,) = waiting.ids
    allow(home.paths, home.session(only), "say back")
    [file] = home.paths.limits.glob("*.jsonl")
    aside = file.rename(file.with_suffix(".aside"))
    file.mkdir()

    assert waiting.step(AFTER_S) is not None, "it tries again"
    assert [LIMITED.split("\n")[0]] == waiting.prompts(only)
    file.rmdir()
    aside.rename(file)
    waiting.step(60)
    waiting.step(60)
    assert ["say back"] == waiting.prompts(only)[1:]
