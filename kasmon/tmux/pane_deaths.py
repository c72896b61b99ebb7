"""Detects which panes ended and how, and reports each death once. Pure: it compares successive pane listings.

A program that closes its terminal right before it exits, as `cat` does, may be reported as ended by SIGHUP: tmux 3.3a
closes its end once no process holds the other, and that signal may arrive before the exit.
"""

from collections.abc import Sequence

import msgspec

from kasmon.tmux.formats import PaneFacts

CHECKS_AT_ONCE = 5
"""How often a dead pane without a reason is checked again without waiting for a tick."""

CHECKS = CHECKS_AT_ONCE + 2
"""After how many checks such a pane is reported without a reason."""


class PaneDeath(msgspec.Struct, frozen=True):
    """A pane's program ended."""

    pane: str
    status: int | None
    """The exit code; None if a signal ended it, or if tmux does not know."""
    signal: int | None


class PaneChanges(msgspec.Struct, frozen=True):
    """The differences to the previous listing."""

    deaths: list[PaneDeath]
    appeared: list[str]
    """New panes in new windows; their output so far was not received. All output of a pane that replaces another one in
    its window is received, because the window is already linked into the hub."""
    closed: list[str]
    unexplained: bool
    """Some pane is dead without a known reason: tmux has not waited for it. Send tmux SIGCHLD and list again."""
    at_once: bool
    """List again now; otherwise at the next tick."""


class PaneDeaths:
    """The deaths reported so far. A death reported without a reason is reported again once tmux knows the reason."""

    def __init__(self) -> None:
        self._reported: dict[str, PaneDeath | None] = {}
        """The last reported death, by pane; None if the pane lives, or its death is not reported yet."""
        self._pids: dict[str, int] = {}
        self._windows: set[str] = set()
        self._checks: dict[str, int] = {}

    def compare(self, panes: Sequence[PaneFacts]) -> PaneChanges:
        """Compare *panes*, the listing of all panes, with the previous one."""
        new = [facts for facts in panes if facts.pane_id not in self._reported]
        appeared = [facts.pane_id for facts in new if facts.window_id not in self._windows]
        self._windows = {facts.window_id for facts in panes}
        deaths = [death for facts in panes if (death := self._find_death(facts))]
        existing = {facts.pane_id for facts in panes}
        closed = [pane for pane in self._reported if pane not in existing]
        for pane in closed:
            del self._reported[pane], self._pids[pane]
            self._checks.pop(pane, None)
        at_once = any(looks < CHECKS_AT_ONCE for looks in self._checks.values())
        return PaneChanges(deaths, appeared, closed, bool(self._checks), at_once)

    def _find_death(self, facts: PaneFacts) -> PaneDeath | None:
        pane = facts.pane_id
        if not facts.is_dead or self._pids.get(pane) != facts.pid:
            self._reported[pane], self._pids[pane] = None, facts.pid
            self._checks.pop(pane, None)
        if not facts.is_dead:
            return None
        death = PaneDeath(pane, facts.status, facts.signal)
        if death == self._reported[pane]:
            return None
        if death.status is None and death.signal is None:
            self._checks[pane] = self._checks.get(pane, 0) + 1
            if self._checks[pane] < CHECKS:
                return None
        self._reported[pane] = death
        self._checks.pop(pane, None)
        return death
