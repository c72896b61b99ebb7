"""Holds the dashboard's plans, shows the wave board, and alerts the user to plans that need a decision."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from kasmon.model.permission import SessionId
from kasmon.sanitize import clean_line
from kasmon.supervisor.notifications.alerts import plan_alert
from kasmon.tui.app_protocols import Dashboard
from kasmon.tui.notifications.controller import NotificationController
from kasmon.tui.status_bars import BannerContent

if TYPE_CHECKING:
    from kasmon.model.collisions import CollisionSummary
    from kasmon.supervisor.plans.boards import PlanBoard
    from kasmon.tui.plan_board.screen import PlanBoardScreen


class PlanDashboard(Dashboard, Protocol):
    @property
    def notifications(self) -> NotificationController: ...


class PlanBoardController:
    """The wave board of one dashboard, and its state while it is closed."""

    def __init__(self, app: PlanDashboard) -> None:
        self.app = app
        self.boards: tuple[PlanBoard, ...] = ()
        self.has_boards = False
        self.hits: Mapping[SessionId, CollisionSummary] = {}
        self._shown: PlanBoardScreen | None = None

    def show_boards(self, boards: "tuple[PlanBoard, ...]") -> None:
        if self.has_boards:
            self._alert(boards)
        self.boards, self.has_boards = boards, True
        if (screen := self.screen) is not None:
            screen.update_boards(boards)
        self.app.permissions.show_notice()

    def _alert(self, boards: "tuple[PlanBoard, ...]") -> None:
        """Alert the user to each plan that newly needs a decision, or has ended, unless the user looks at it."""
        before = {board.id: board for board in self.boards}
        for board in boards:
            news = plan_alert(before.get(board.id), board)
            if news is not None and not self._is_viewed(board):
                self.app.notifications.alert(news)

    def _is_viewed(self, board: "PlanBoard") -> bool:
        screen = self.screen
        return screen is not None and screen.plan == board.id and self.app.notifications.is_there

    def mark(self, hits: "Mapping[SessionId, CollisionSummary]") -> None:
        """Mark exactly the sessions in *hits*, which change the same as others."""
        self.hits = hits
        if (screen := self.screen) is not None:
            screen.view.mark(hits)

    @property
    def screen(self) -> "PlanBoardScreen | None":
        return self._shown if self._shown is not None and self._shown in self.app.screen_stack else None

    def open(self) -> None:
        """Open the board: at the task of the shown session if it has one, else where it was."""
        from kasmon.tui.plan_board.screen import PlanBoardScreen  # not before the first frame

        app = self.app
        if len(app.screen_stack) > 1 or app.main_view.filter_bar.box is not None:
            return
        plan, task = self._find_task()
        before = self._shown
        self._shown = PlanBoardScreen(app.look, app.clock, app.keys, self.boards, plan, task)
        if before is not None:
            self._shown.cursors = before.cursors | self._shown.cursors
            self._shown.plan = plan or before.plan
        self._shown.view.hits = self.hits
        app.push_screen(self._shown)
        app.permissions.show_notice()

    def close(self) -> None:
        if (screen := self.screen) is not None:
            screen.dismiss()
            self.app.hold_still()
            self.app.call_later(self.app.permissions.show_notice)

    @property
    def asking(self) -> "tuple[PlanBoard, ...]":
        """The plans that need a decision; none while the board is open."""
        if self.screen is not None:
            return ()
        return tuple(board for board in self.boards if board.ahead.question and board.run.state != "ended")

    def notice(self) -> BannerContent | None:
        """Return the question of the first such plan, how many more there are, and the key that opens the board."""
        if not self.asking:
            return None
        board, *others = self.asking
        more = f" (and {plans_ask(len(others), 'more ')})" if others else ""
        text = f"Plan {clean_line(board.plan.name)}{more}: {clean_line(board.ahead.question)}"
        return BannerContent(text, "state-asking", self.key, "decide", "board")

    @property
    def key(self) -> str:
        """The key that opens the board, at the current focus."""
        app = self.app
        return (app.keys.shown if app.list_has_keys else app.keys.shown_while_writing)("board", app.utf8)

    def _find_task(self) -> tuple[str, str]:
        """Plan and task of the session under the list's cursor; empty if it belongs to no plan."""
        session = self.app.main_view.table.selected_session
        for board in self.boards if session is not None and session.plan else ():
            if session is not None and board.id == session.plan:
                for task, at in board.run.tasks.items():
                    if session.id in (at.session, *at.earlier):
                        return board.id, task
        return "", ""


def plans_ask(number: int, more: str = "") -> str:
    """Return the text that *number* plans need a decision."""
    return f"1 {more}plan needs a decision" if number == 1 else f"{number} {more}plans need a decision"
