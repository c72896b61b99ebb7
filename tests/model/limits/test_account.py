"""Which sessions share an account, and what is known of it."""

from typing import Any

from kasmon.model.limits.account import AccountKey, account_limits
from kasmon.model.limits.window import LimitWindow
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

NOW = 1_795_000_000.0


def session(name: str, **more: Any) -> Session:
    defaults = {"name": name, "agent": "claude", "program": "claude", "state": SessionState.IDLE}
    return Session(id=SessionId(name), **{**defaults, **more})


def window(used: float, at: float) -> LimitWindow:
    return LimitWindow(name="five_hour", used=used, resets_at=NOW + 600, at=at)


def test_the_latest_report_of_any_of_its_sessions_counts() -> None:
    (account,) = account_limits(
        [
            session("a", limit_windows=(window(0.4, NOW - 5),)),
            session("b", limit_windows=(window(0.2, NOW - 60),), state=SessionState.ENDED),
            session("c"),
        ],
        NOW,
    )

    assert (AccountKey("claude"), ("a", "c")) == (account.key, account.sessions)
    assert [0.4] == [each.used for each in account.windows]


def test_logins_and_machines_are_separate_accounts_and_unknown_ones_are_none() -> None:
    known = (window(0.4, NOW),)
    accounts = account_limits(
        [
            session("a", limit_windows=known),
            session("b", limit_windows=known, account="work"),
            session("c", limit_windows=known, via="gpu"),
            session("d", program="codex"),
        ],
        NOW,
    )

    assert ["claude", "gpu:claude", "claude work"] == [account.key.label for account in accounts]


def test_waiting_sessions_are_parked_until_the_last_limit_ends() -> None:
    def waiting(name: str, since: float, until: float | None) -> Session:
        return session(name, state=SessionState.LIMITED, since=since, limited_until=until)

    (account,) = account_limits(
        [waiting("a", NOW - 10, NOW + 60), waiting("b", NOW - 20, NOW + 90), waiting("c", NOW - 5, None)], NOW
    )

    assert (("b", "a", "c"), NOW + 90) == (account.parked, account.until)
