"""Which panes ended, and how, told once each. Pure: it compares what tmux said now with what it said before.

A program that closes its terminal right before it exits, as `cat` does, may be told as ended by SIGHUP: tmux 3.3a
closes its own end once nobody holds the other, and that signal may come before the exit.
"""

from collections.abc import Sequence

import msgspec

from kasmon.tmux.formats import PaneFacts

LOOKS_AT_ONCE = 5
"""How often a dead pane without a reason is looked at again without waiting for a tick."""

LOOKS = LOOKS_AT_ONCE + 2
"""After how many looks such a pane is told as it is."""


class PaneDeath(msgspec.Struct, frozen=True):
    """A pane's program ended."""

    pane: str
    status: int | None
    """The exit code; None if a signal ended it, or if tmux does not know."""
    signal: int | None


class PaneChanges(msgspec.Struct, frozen=True):
    """What is new since the last look."""

    deaths: list[PaneDeath]
    appeared: list[str]
    """Panes that were not there before; what they printed so far was not heard."""
    closed: list[str]
    """Panes that are not there any more."""
    unexplained: bool
    """Some pane is dead for no reason that tmux knows: it did not wait for it. Wake it (SIGCHLD), look again."""
    at_once: bool
    """Look again now; otherwise at the next tick."""


class PaneDeaths:
    """What has been told of which pane. A death that was told without a reason is told again once there is one."""

    def __init__(self) -> None:
        self._told: dict[str, PaneDeath | None] = {}
        """The last death that was told, by pane; None for one that lives, or whose death is still a riddle."""
        self._pids: dict[str, int] = {}
        self._looks: dict[str, int] = {}

    def look(self, panes: Sequence[PaneFacts]) -> PaneChanges:
        """What *panes*, all there are, say that was not told before."""
        appeared = [facts.pane_id for facts in panes if facts.pane_id not in self._told]
        deaths = [death for facts in panes if (death := self._news(facts))]
        there = {facts.pane_id for facts in panes}
        closed = [pane for pane in self._told if pane not in there]
        for pane in closed:
            del self._told[pane], self._pids[pane]
            self._looks.pop(pane, None)
        at_once = any(looks < LOOKS_AT_ONCE for looks in self._looks.values())
        return PaneChanges(deaths, appeared, closed, bool(self._looks), at_once)

    def _news(self, facts: PaneFacts) -> PaneDeath | None:
        pane = facts.pane_id
        if not facts.is_dead or self._pids.get(pane) != facts.pid:
            self._told[pane], self._pids[pane] = None, facts.pid
            self._looks.pop(pane, None)
        if not facts.is_dead:
            return None
        death = PaneDeath(pane, facts.status, facts.signal)
        if death == self._told[pane]:
            return None
        if death.status is None and death.signal is None:
            self._looks[pane] = self._looks.get(pane, 0) + 1
            if self._looks[pane] < LOOKS:
                return None
        self._told[pane] = death
        self._looks.pop(pane, None)
        return death
