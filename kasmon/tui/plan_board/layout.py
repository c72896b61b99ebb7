"""Positions of the cards on the wave board: waves as columns, or below each other where it is narrow.

Pure. Positions are cells and rows from the board's first card; scrolling is up to the view.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from kasmon.model.plan.plan import Plan, Task

BESIDE_COLUMNS: Final = 100
"""From this width on the waves are columns."""
LEAST: Final = 36
MOST: Final = 64
CARD: Final = 5
"""A card's rows in a column, with the blank one below it."""
LOW_CARD: Final = 2
"""Its rows where the waves are below each other."""
HEADS: Final = 2
"""Rows of the columns' titles, which stay visible."""


class CardPosition(NamedTuple):
    """Position and size of a card: cells and rows."""

    x: int
    y: int
    width: int
    height: int


class LayoutPosition(NamedTuple):
    """The content of a row."""

    wave: int
    """Its index among the waves, from 0."""
    task: Task | None
    """None for a wave's title, or nothing."""
    line: int
    """The row within it."""


class BoardLayout:
    """The positions of one plan's cards in a given width."""

    def __init__(self, plan: Plan, width: int) -> None:
        self.width = width
        self.is_beside = width >= BESIDE_COLUMNS
        by_wave: dict[int, list[Task]] = {}
        for task in plan.tasks:
            by_wave.setdefault(task.wave, []).append(task)
        self.numbers = sorted(by_wave)
        self.waves = [tuple(by_wave[number]) for number in self.numbers]
        self._index = {task.id: (wave, n) for wave, tasks in enumerate(self.waves) for n, task in enumerate(tasks)}
        together = max(1, min(len(self.waves), width // LEAST)) if self.is_beside else 1
        self.column = min(MOST, width // together) if self.is_beside else width
        """The cells of a column, with the gap at its right."""
        self._starts: list[int] = []
        """The first row of each wave, where they are below each other."""
        row = 0
        for tasks in self.waves:
            self._starts.append(row)
            row += 2 + LOW_CARD * len(tasks)
        self._rows = max(0, row - 1)

    @property
    def size(self) -> tuple[int, int]:
        """Cells and rows of the whole board."""
        if not self.is_beside:
            return self.width, self._rows
        most = max((len(tasks) for tasks in self.waves), default=0)
        return self.column * len(self.waves), most * CARD

    def place(self, task: str) -> CardPosition | None:
        """Return the position of the card of *task*; None if there is no such task."""
        if (index := self._index.get(task)) is None:
            return None
        wave, number = index
        if self.is_beside:
            return CardPosition(self.column * wave, CARD * number, self.column, CARD)
        return CardPosition(0, self._starts[wave] + 1 + LOW_CARD * number, self.width, LOW_CARD)

    def order(self, task: str) -> str:
        """Return the position of *task* in its wave, as in the list of sessions: 3/4."""
        wave, number = self._index[task]
        return f"{number + 1}/{len(self.waves[wave])}"

    def wave(self, task: str) -> int:
        """Return the index of the wave of *task*, from 0; -1 if there is no such task."""
        return self._index.get(task, (-1, 0))[0]

    def task(self, id_: str) -> Task | None:
        wave, number = self._index.get(id_, (-1, 0))
        return self.waves[wave][number] if wave >= 0 else None

    def at(self, x: int, y: int) -> LayoutPosition:
        if self.is_beside:
            wave, (number, line) = x // self.column, divmod(y, CARD)
            tasks = self.waves[wave] if wave < len(self.waves) else ()
            return LayoutPosition(wave, tasks[number] if number < len(tasks) and line < CARD - 1 else None, line)
        wave = max(0, bisect_right(self._starts, y) - 1)
        if not self.waves or y == self._starts[wave]:
            return LayoutPosition(wave, None, 0)
        number, line = divmod(y - self._starts[wave] - 1, LOW_CARD)
        tasks = self.waves[wave]
        return LayoutPosition(wave, tasks[number], line) if number < len(tasks) else LayoutPosition(wave, None, 1)

    def stepped(self, task: str, across: int, along: int) -> str:
        """Return the task *across* waves right of *task*, and *along* cards below; the nearest one that exists."""
        if (index := self._index.get(task)) is None:
            return self.waves[0][0].id if self.waves else ""
        wave, number = index
        if across:
            wave = min(max(0, wave + across), len(self.waves) - 1)
            return self.waves[wave][min(number, len(self.waves[wave]) - 1)].id
        if self.is_beside:
            return self.waves[wave][min(max(0, number + along), len(self.waves[wave]) - 1)].id
        order = [each.id for tasks in self.waves for each in tasks]
        return order[min(max(0, order.index(task) + along), len(order) - 1)]
