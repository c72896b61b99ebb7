"""The cards of one plan, drawn and scrolled; where waves are columns, their titles stay visible."""

from collections.abc import Mapping
from typing import Final

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kasmon.model.collisions import CollisionSummary
from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.progress import SETTLED
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.tui.clock import Clock
from kasmon.tui.plan_board.card_text import TaskCardContext, find_card_state, narrow, wide
from kasmon.tui.plan_board.layout import CARD, HEADS, BoardLayout
from kasmon.tui.theme.look import Background, StyledSpan, ThemeStyles, width_of

EDGE: Final = 2
"""Cells at the left of a card: the cursor's bar and a blank."""
GAP: Final = 2
"""And at its right in a column."""
SHAPES: Final = 16
"""A wave's title shows the symbols of this many of its tasks."""


class PlanBoardView(ScrollView, can_focus=False):
    """Gets a board and the cursor's task by `show`; posts `Picked` for a click."""

    ALLOW_SELECT = False

    class Picked(Message):
        """A click on a card; *opens* is whether it was a double click."""

        def __init__(self, task: str, opens: bool) -> None:
            super().__init__()
            self.task, self.opens = task, opens

    def __init__(self, look: ThemeStyles, clock: Clock) -> None:
        super().__init__(id="waves")
        self.look, self.clock = look, clock
        self.board: PlanBoard | None = None
        self.cursor = ""
        self.hits: Mapping[SessionId, CollisionSummary] = {}
        self.room = BoardLayout(Plan(name=""), 1)
        self._laid_out_for: tuple[Plan | None, int] = (None, 0)
        self._titles: list[list[StyledSpan]] = []
        self._cards: dict[str, list[list[StyledSpan]]] = {}

    def show(self, board: PlanBoard | None, cursor: str) -> None:
        is_other = board is not self.board
        self.board, self.cursor = board, cursor
        self._lay_out()
        if is_other:
            self._titles = [self._title(wave) for wave in range(len(self.room.waves))]
        self._cards = {}
        self.scroll_to_cursor()
        self.refresh()

    def mark(self, hits: Mapping[SessionId, CollisionSummary]) -> None:
        """Mark the sessions in *hits*, which change the same as others."""
        self.hits = hits
        self.tick()

    def tick(self) -> None:
        """Redraw ages; called every second."""
        self._cards = {}
        self.refresh()

    @property
    def page(self) -> int:
        """The number of cards visible below each other."""
        place = self.room.place(self.cursor)
        return max(1, self._rows // place.height) if place is not None else 1

    def scroll_to_cursor(self) -> None:
        """Scroll until all of the cursor's card is visible; for the first of a wave, its title too."""
        place = self.room.place(self.cursor)
        if place is None or not self.size.height:
            return
        top = place.y - (0 if self.room.is_beside or self.room.at(0, place.y - 1).task is not None else 1)
        x, y = self.scroll_offset
        y = min(max(y, place.y + place.height - self._rows), top)
        x = min(max(x, place.x + place.width - self.size.width), place.x)
        self.scroll_to(x, y, animate=False, immediate=True, force=True)

    def on_resize(self) -> None:
        self._lay_out()
        self.scroll_to_cursor()

    @property
    def _title_rows(self) -> int:
        return HEADS if self.room.is_beside else 0

    @property
    def _rows(self) -> int:
        return max(1, self.size.height - self._title_rows)

    def _lay_out(self) -> None:
        plan = None if self.board is None else self.board.plan
        width = max(1, self.container_size.width - 1)
        if plan is not self._laid_out_for[0] or width != self._laid_out_for[1]:
            self._laid_out_for = (plan, width)
            self.room = BoardLayout(plan or Plan(name=""), width)
            self._cards = {}
            columns, rows = self.room.size
            self.virtual_size = Size(columns, rows + self._title_rows)

    # Drawing.

    def render_line(self, y: int) -> Strip:
        width, layout = self.size.width, self.room
        if self.board is None or not layout.waves:
            return self.look.strip((), width)
        x, down = self.scroll_offset
        if not layout.is_beside:
            return self._stacked_row(y + down, width)
        first, last = x // layout.column, min(len(layout.waves) - 1, (x + width - 1) // layout.column)
        strips = [
            self._title_row(wave, y) if y < HEADS else self._cell(wave, y - HEADS + down)
            for wave in range(first, last + 1)
        ]
        start = x - first * layout.column
        return Strip.join(strips).adjust_cell_length(start + width, self.look.style("text")).crop(start, start + width)

    def _stacked_row(self, y: int, width: int) -> Strip:
        """A row of the layout with the waves below each other."""
        at = self.room.at(0, y)
        if at.task is not None:
            return self._card(at.task, at.line, width, width - EDGE - 1)
        if at.line or y >= self.room.size[1]:
            return self.look.strip((), width)
        title = self._titles[at.wave]
        rule = self.look.mark("rule") * max(0, width - width_of(title) - 3)
        return self.look.strip([(" ", "text"), *title, (" ", "text"), (rule, "line")], width)

    def _title_row(self, wave: int, line: int) -> Strip:
        inner = self.room.column - GAP
        if line:
            is_selected = self.room.wave(self.cursor) == wave
            rule = self.look.mark("rule") * (inner - 1)
            return self.look.strip([(" ", "text"), (rule, "accent" if is_selected else "line")], self.room.column)
        spans: list[StyledSpan] = [(" ", "text")]
        left = inner - 1
        for text, role in self._titles[wave]:
            cut = self.look.cut(text, left)
            spans.append((cut, role))
            left -= width_of([(cut, role)])
        return self.look.strip(spans, self.room.column)

    def _cell(self, wave: int, y: int) -> Strip:
        number, line = divmod(y, CARD)
        tasks = self.room.waves[wave]
        if number >= len(tasks) or line == CARD - 1:
            return self.look.strip((), self.room.column)
        return self._card(tasks[number], line, self.room.column, self.room.column - EDGE - GAP - 1)

    def _card(self, task: Task, line: int, width: int, inner: int) -> Strip:
        """A row of a card that has *width* cells, *inner* of them for text."""
        is_selected = task.id == self.cursor
        background: Background = "selected" if is_selected else "background"
        assert self.board is not None
        if (rows := self._cards.get(task.id)) is None:
            rows = self._cards[task.id] = self._draw_card(self.board, task, inner)
        bar = self.look.mark("cursor") if is_selected else self.look.mark("bar") if self.room.is_beside else " "
        role = "accent" if is_selected else self._bar_role(task)
        edge: list[StyledSpan] = [(bar, role), (" ", "text")]
        if not self.room.is_beside:
            return self.look.strip([*edge, *rows[line]], width, background)
        card = self.look.strip([*edge, *rows[line]], width - GAP, background)
        return Strip.join([card, self.look.strip((), GAP)])

    def _bar_role(self, task: Task) -> str:
        assert self.board is not None
        how = find_card_state(self.board, task)
        return how.role if how.role not in ("faint", "soft") else "line"

    def _draw_card(self, board: PlanBoard, task: Task, inner: int) -> list[list[StyledSpan]]:
        moment = TaskCardContext(self.look, self.clock.now(), self.hits)
        if self.room.is_beside:
            return narrow(board, task, self.room.order(task.id), inner, moment)
        return wide(board, task, inner, moment)

    def _title(self, wave: int) -> list[StyledSpan]:
        board, tasks = self.board, self.room.waves[wave]
        assert board is not None
        hows = [find_card_state(board, task) for task in tasks]
        done = sum(board.run.of(task.id).state in SETTLED for task in tasks)
        begun = any(how.name not in ("waits", "never") for how in hows)
        spans: list[StyledSpan] = [
            (f"wave {self.room.numbers[wave]}", "accent.bold" if begun else "soft.bold"),
            ("  ", "text"),
        ]
        spans += [(how.glyph(self.look), how.role) for how in hows[:SHAPES]]
        spans += [(self.look.mark("more"), "faint")] if len(hows) > SHAPES else []
        return [*spans, (f"  {done}/{len(tasks)}", "text.bold"), (" done", "faint")]

    def on_click(self, event: events.Click) -> None:
        x, down = self.scroll_offset
        if event.y < self._title_rows:
            return
        at = self.room.at(event.x + x, event.y - self._title_rows + down)
        if at.task is not None:
            event.stop()
            self.post_message(self.Picked(at.task.id, event.chain == 2))
