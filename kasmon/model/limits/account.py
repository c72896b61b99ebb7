"""The accounts of a fleet, and what is known of the limits of each."""

from collections.abc import Iterable

import msgspec

from kasmon.model.limits.window import LimitWindow, merge_windows
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState


class AccountKey(msgspec.Struct, frozen=True, order=True):
    """Which log-in it is: the sessions of one program, with one config directory, on one machine share it."""

    program: str
    """The agent's program: `claude`, `codex`."""
    account: str = ""
    """Its name in the config, or its config directory; empty for the program's own log-in."""
    machine: str = ""
    """The registered machine that it is on; empty for this one."""

    @property
    def label(self) -> str:
        """Its name for people, not cleaned: `claude`, `claude work`, `gpu:claude`."""
        place = f"{self.machine}:" if self.machine else ""
        return f"{place}{self.program} {self.account}".rstrip()


class AccountLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the limits of one account."""

    key: AccountKey
    windows: tuple[LimitWindow, ...] = ()
    """The latest report of each limit, by name; of a window that has reset since then only the name is known."""
    sessions: tuple[SessionId, ...] = ()
    parked: tuple[SessionId, ...] = ()
    """Those of them that wait for a limit, longest first."""
    until: float | None = None
    """When the last limit ends that they wait for, in seconds since the epoch; None if unknown, or none waits."""


def account_of(session: Session) -> AccountKey:
    program = session.program or session.agent.partition("@")[0]
    return AccountKey(program, session.account, session.via or session.agent.partition("@")[2])


def account_limits(sessions: Iterable[Session], now: float) -> tuple[AccountLimits, ...]:
    """Return the accounts of which a limit is known, or for whose limit a session waits; by their keys."""
    accounts: dict[AccountKey, list[Session]] = {}
    for session in sessions:
        if session.limit_windows or (session.state in ALIVE and session.program):
            accounts.setdefault(account_of(session), []).append(session)
    known = (_account(key, accounts[key], now) for key in sorted(accounts))
    return tuple(account for account in known if account.windows or account.parked)


def _account(key: AccountKey, sessions: list[Session], now: float) -> AccountLimits:
    windows: tuple[LimitWindow, ...] = ()
    for session in sessions:
        windows = merge_windows(windows, session.limit_windows)
    parked = sorted((s for s in sessions if s.state is SessionState.LIMITED), key=lambda s: (s.since, s.id))
    return AccountLimits(
        key=key,
        windows=tuple(sorted((window.current(now) for window in windows), key=lambda window: window.name)),
        sessions=tuple(s.id for s in sessions if s.state in ALIVE),
        parked=tuple(s.id for s in parked),
        until=max((s.limited_until for s in parked if s.limited_until is not None), default=None),
    )
