"""Output budgets of panes: which panes print more than is worth reading. Pure: it counts, its caller acts."""

from dataclasses import dataclass

BUDGET_BYTES = 256 * 1024
"""How much an unwatched pane may print in one second."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 30.0


@dataclass(slots=True)
class PaneFlow:
    """The output count and pause state of one pane."""

    since: float = 0.0
    """When the current one-second window began (monotonic)."""
    bytes: int = 0
    is_off: bool = False
    until: float = 0.0
    """When the pause ends (monotonic)."""
    pause_s: float = FIRST_PAUSE_S


class FloodControl:
    """Output budgets of all panes. A pane over budget is paused, for twice as long each time in a row."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget = budget_bytes
        self._flows: dict[str, PaneFlow] = {}

    def overflows(self, pane: str, size: int, now: float) -> bool:
        """Count *size* bytes of *pane*; return whether the caller should pause it now."""
        flow = self._flows.setdefault(pane, PaneFlow(since=now))
        if now - flow.since >= 1.0:
            if now - flow.since >= 2.0 or flow.bytes < self._budget // 2:
                flow.pause_s = FIRST_PAUSE_S
            flow.since, flow.bytes = now, 0
        flow.bytes += size
        if flow.is_off or flow.bytes <= self._budget:
            return False
        flow.is_off, flow.until = True, now + flow.pause_s
        flow.pause_s = min(flow.pause_s * 2, LONGEST_PAUSE_S)
        return True

    def due(self, now: float) -> list[str]:
        """Return the panes whose pause has ended, and mark them as on."""
        panes = [pane for pane, flow in self._flows.items() if flow.is_off and now >= flow.until]
        for pane in panes:
            self.listen(pane, now)
        return panes

    def listen(self, pane: str, now: float) -> bool:
        """Mark *pane* as on; return whether it was paused."""
        flow = self._flows.get(pane)
        if flow is None or not flow.is_off:
            return False
        flow.is_off, flow.since, flow.bytes = False, now, 0
        return True

    def forget(self, pane: str) -> None:
        """Drop the state of *pane*, which no longer exists."""
        self._flows.pop(pane, None)

    @property
    def off(self) -> frozenset[str]:
        return frozenset(pane for pane, flow in self._flows.items() if flow.is_off)
