"""The wave board: the waves of a plan as columns, its tasks as cards, its question on top; keys decide on both."""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import Task
from kasmon.sanitize import clean_line
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.tui.action import Action, KeyContext
from kasmon.tui.actions.dialogs import confirm_operation, show_text
from kasmon.tui.app_protocols import dashboard_of
from kasmon.tui.clock import Clock
from kasmon.tui.keymap import KeyMap, Keys
from kasmon.tui.messages import (
    ActionRequested,
    DiffRequested,
    PlanBoardClosed,
    SessionOpened,
)
from kasmon.tui.plan_board.board_view import PlanBoardView
from kasmon.tui.plan_board.card_text import find_card_state
from kasmon.tui.plan_board.decisions import DECISIONS, resolve_action
from kasmon.tui.plan_board.dialogs import OtherAgentDialog, PlanEditDialog, task_rows
from kasmon.tui.plan_board.header import NOTHING, bar, head_line, notice_lines
from kasmon.tui.status_bars import Banner, BannerContent, KeyBar
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.text_lines import TextLines

if TYPE_CHECKING:
    from kasmon.tui.gateway.operations import Operations

TICK_S: Final = 1.0
HERE: Final = frozenset({Keys.HELP, Keys.PALETTE, Keys.INBOX, Keys.ALL_REQUESTS, Keys.QUIT, Keys.BOARD})
"""Actions of other contexts that also work here."""
WORDS: Final = {Keys.PLAN_ABORT: ("Abort", "abort"), Keys.TASK_SKIP: ("Skip", "skip")}
"""Action -> the title of its question, and the label of `y`."""


class PlanBoardScreen(Overlay):
    """Gets the plans by `update_boards`; runs decisions, and posts which session or diff to show."""

    contexts = (KeyContext.BOARD,)
    AUTO_FOCUS = ""
    carries_notice = True

    def __init__(
        self, look: ThemeStyles, clock: Clock, keys: KeyMap, boards: Sequence[PlanBoard], plan: str = "", task: str = ""
    ) -> None:
        super().__init__()
        self.look, self.clock, self.keys = look, clock, keys
        self.boards = tuple(boards)
        self.plan = plan
        self.cursors: dict[str, str] = {plan: task} if plan else {}
        """Plan -> the task that the cursor is on, or was when it was shown last."""
        self.head = TextLines(look, "surface", id="waves-head")
        self.asked = TextLines(look, "surface", id="waves-asked")
        self.view = PlanBoardView(look, clock)
        self.nothing = Sentences(look, id="waves-nothing")
        self.nothing.ground = "background"
        self.middle = Container(self.view, id="waves-middle")
        self.banner = Banner(look, id="waves-banner")
        self.bar = KeyBar(look, id="waves-keys")
        self.handlers = {
            Keys.TASK_DOWN: lambda: self._step(0, 1),
            Keys.TASK_UP: lambda: self._step(0, -1),
            Keys.WAVE_BACK: lambda: self._step(-1, 0),
            Keys.WAVE_ON: lambda: self._step(1, 0),
            Keys.TASK_TOP: lambda: self._go_to_end(first=True),
            Keys.TASK_BOTTOM: lambda: self._go_to_end(first=False),
            Keys.BOARD_DOWN: lambda: self._step(0, self.view.page),
            Keys.BOARD_UP: lambda: self._step(0, -self.view.page),
            Keys.TASK_NEXT: self._go_to_next,
            Keys.TASK_OPEN: lambda: self._open_session(SessionOpened),
            Keys.TASK_READ: self._read,
            Keys.TASK_DIFF: lambda: self._open_session(DiffRequested),
            Keys.PLAN_EDIT: self._show_edit,
            **{action: partial(self._decide, action) for action in (*DECISIONS, Keys.PLAN_PAUSE)},
            Keys.PLAN_ON: lambda: self._turn(1),
            Keys.PLAN_BACK: lambda: self._turn(-1),
            Keys.LEAVE_BOARD: self._close,
        }

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.asked
        yield self.middle
        yield self.banner
        yield self.bar

    def on_mount(self) -> None:
        self.middle.mount(self.nothing)
        self.nothing.say(*NOTHING)
        self.set_interval(TICK_S, self._tick)
        self.update_boards(self.boards)

    def update_boards(self, boards: Sequence[PlanBoard]) -> None:
        self.boards = tuple(boards)
        self._draw()

    @property
    def board(self) -> PlanBoard | None:
        """The shown plan; the first one if that is gone."""
        shown = (board for board in self.boards if board.id == self.plan)
        return next(shown, self.boards[0] if self.boards else None)

    @property
    def card(self) -> Task | None:
        return None if (board := self.board) is None else self.view.room.task(self.cursors.get(board.id, ""))

    @property
    def session_here(self) -> SessionId:
        board, task = self.board, self.card
        return SessionId("" if board is None or task is None else board.run.of(task.id).session)

    def notice(self, notice: BannerContent | None) -> None:
        self.banner.notice = notice

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        board = self.board
        if board is not None:
            self.plan = board.id
            self._place_cursor(board)
        width = self.app.size.width
        which = (self.boards.index(board) + 1 if board is not None else 0, len(self.boards))
        self.head.say(head_line(board, which, self.keys, self.look, self.clock.now(), width))
        self.asked.say(*notice_lines(board, self.keys, self.look, width))
        self.nothing.display = board is None
        self.view.display = board is not None
        self.view.show(board, self.cursors.get(self.plan, ""))
        self.bar.offered = bar(board, self.card, self.keys, self.look)

    def _place_cursor(self, board: PlanBoard) -> None:
        """If the cursor is on no task of *board*, move it to the first that needs the user, else that is open."""
        known = {task.id for task in board.plan.tasks}
        if self.cursors.get(board.id) not in known and known:
            states = {task.id: find_card_state(board, task) for task in board.plan.tasks}
            needing = [id_ for id_, state in states.items() if state.needs_person]
            open_ = [id_ for id_, state in states.items() if state.name not in ("done", "skipped")]
            self.cursors[board.id] = next(iter([*needing, *open_, board.plan.tasks[0].id]))

    def _tick(self) -> None:
        self.view.tick()
        if (board := self.board) is not None:
            which = (self.boards.index(board) + 1, len(self.boards))
            self.head.say(head_line(board, which, self.keys, self.look, self.clock.now(), self.app.size.width))

    # Keys and clicks.

    def on_key(self, event: events.Key) -> None:
        if (action := self._find_action(event.key)) is not None:
            event.stop()
            event.prevent_default()
            if action is Keys.BOARD:
                self._close()
            elif not self.do(action):
                self.post_message(ActionRequested(action.id))

    def _find_action(self, key: str) -> Action | None:
        own = self.keys.action(key, KeyContext.BOARD)
        if own is not None:
            return own
        anywhere = self.keys.action(key, KeyContext.EVERYWHERE, KeyContext.LIST)
        return anywhere if anywhere is not None and anywhere in HERE else None

    def on_plan_board_view_picked(self, message: PlanBoardView.Picked) -> None:
        message.stop()
        self._go(message.task)
        if message.opens:
            self._open_session(SessionOpened)

    def _close(self) -> None:
        self.post_message(PlanBoardClosed())

    # Moving.

    def _go(self, task: str) -> None:
        if (board := self.board) is not None:
            self.cursors[board.id] = task
            self._draw()

    def _step(self, across: int, along: int) -> None:
        if (board := self.board) is not None:
            self._go(self.view.room.stepped(self.cursors.get(board.id, ""), across, along))

    def _go_to_end(self, *, first: bool) -> None:
        if waves := self.view.room.waves:
            self._go(waves[0][0].id if first else waves[-1][-1].id)

    def _go_to_next(self) -> None:
        board = self.board
        if board is None:
            return
        tasks = [task for wave in self.view.room.waves for task in wave]
        index = next((n for n, task in enumerate(tasks) if task.id == self.cursors.get(board.id)), -1)
        for task in (*tasks[index + 1 :], *tasks[: index + 1]):
            if find_card_state(board, task).needs_person:
                self._go(task.id)
                return
        dashboard_of(self).say("No task needs attention.")

    def _turn(self, by: int) -> None:
        if (board := self.board) is not None:
            self.plan = self.boards[(self.boards.index(board) + by) % len(self.boards)].id
            self._draw()

    # Actions.

    def _open_session(self, how: type[SessionOpened | DiffRequested]) -> None:
        board, task = self.board, self.card
        if board is None or task is None:
            return
        wanted = board.run.of(task.id).session
        if (session := board.sessions.get(wanted)) is not None:
            self.post_message(how(session.id))
        else:
            dashboard_of(self).say(f"Task {task.id} {'no longer has a session' if wanted else 'has no session yet'}.")

    def _read(self) -> None:
        board, task = self.board, self.card
        if board is not None and task is not None:
            show_text(dashboard_of(self), f"Task {clean_line(task.id)}", lambda width: task_rows(board, task, width))

    def _show_edit(self) -> None:
        board = self.board
        if board is None or board.edit is None:
            dashboard_of(self).say("The plan file has no changes to apply.")
        else:
            self.app.push_screen(PlanEditDialog(self.look, self.keys, self.clock, board.id, board.edit))

    def _decide(self, action: Action) -> None:
        board, task = self.board, self.card
        if board is None:
            return
        what = resolve_action(board, task, action)
        decision = what.action
        if decision is None:
            dashboard_of(self).say(what.refusal)
            return

        def decide(operations: "Operations") -> Awaitable[None]:
            return operations.decide_on_plan(board.id, decision, what.task)

        if action is Keys.TASK_REPLACE:
            self.app.push_screen(OtherAgentDialog(self.look, self.keys, board.id, what.task))
        elif what.questions:
            title, yes = WORDS.get(action, (action.label.capitalize(), action.label))
            confirm_operation(dashboard_of(self), title, what.questions, yes, decide)
        else:
            dashboard_of(self).run_operation(decide)
