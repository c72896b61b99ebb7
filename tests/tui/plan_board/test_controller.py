"""The wave board: waves as columns, tasks as cards, what the plan asks on top; keys decide on both."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import cast

import msgspec
import pytest
from textual.pilot import Pilot

from kasmon.errors import RefusedError
from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import ActingAgent, Mode
from kasmon.model.formatting import clock
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import TaskBegan
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import TaskState
from kasmon.model.plan.scheduler import NextSteps
from kasmon.model.session import Session
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.live import gateway as live_gateway
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.keymap import ROWS, KeyMap, Keys
from kasmon.tui.plan_board.card_text import TaskCardContext, agent_of, cost, draw_note, find_card_state, narrow, wide
from kasmon.tui.plan_board.decisions import PlanDecision, list_offered, resolve_action
from kasmon.tui.plan_board.dialogs import task_rows
from kasmon.tui.plan_board.header import notice_lines
from kasmon.tui.plan_board.layout import CARD, HEADS, BoardLayout
from kasmon.tui.plan_board.screen import PlanBoardScreen
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.theme.theme import DEFAULT
from tests.safety.test_markup import WORST, Stage
from tests.supervisor.plans.test_boards import Desk
from tests.support import sample_boards
from tests.support.dashboard_scenes import planned, run_app, settled, waves
from tests.support.sample_boards import DONE, PLAN, RUNNING, T, at, board, task
from tests.support.sample_fleet import NOW, StillClock, asking, fleet, idle, session, working
from tests.support.supervisor.env import Env
from tests.support.tui.fake_gateway import Call, called, gateway_of, text_of
from tests.support.wait import auntil

BOARD = {
    "board": ("B", "e review changes   ⏎ open"),
    "task": ("B space", "─ Task"),
    "edit": ("B e", "The plan cannot run:"),
    "no agent": ("B R", "command and has no agent."),
    "agent": ("B j R", "─ Retry task 2"),
    "yes": ("B X", "─ Abort ─"),
}
"""Screen -> the keys that lead there from the list, and words that stand nowhere else."""
LOOK = ThemeStyles(shipped(DEFAULT))


def screen_of(pilot: Pilot[None]) -> PlanBoardScreen:
    screen = pilot.app.screen
    assert isinstance(screen, PlanBoardScreen)
    return screen


def decisions(pilot: Pilot[None]) -> list[Call]:
    return [call for call in gateway_of(pilot.app).calls if call[0] in ("decide_on_plan", "apply_plan_edit")]


def cursor(pilot: Pilot[None]) -> str:
    card = screen_of(pilot).card
    return "" if card is None else card.id


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()
    await pilot.pause()


async def say_yes(pilot: Pilot[None]) -> None:
    """To the question that stands there, once it takes keys."""
    cast(StillClock, cast(Kasmon, pilot.app).clock).forward(1.0)
    await press(pilot, "y")


# What a card says.


@pytest.mark.parametrize(
    ("number", "name", "needs_person"),
    [
        ("1", "done", False),
        ("3", "working", False),
        ("4", "asking", True),
        ("5", "failed", True),
        ("6", "waits", False),
    ],
)
def test_a_card_has_the_state_of_its_task_and_of_its_running_session(
    number: str, name: str, needs_person: bool
) -> None:
    shown = board()

    assert (name, needs_person) == find_card_state(shown, shown.plan.task(number))


def test_a_claim_without_a_check_needs_the_user_and_one_with_a_check_does_not() -> None:
    assert ("claimed", True) == find_card_state(sample_boards.claimed(), PLAN.task("2"))
    assert ("checking", False) == find_card_state(board({"1": at(T.CLAIMED)}, gate=1), PLAN.task("1"))


def test_a_failed_task_with_attempts_left_tries_again_and_what_nothing_holds_up_is_ready() -> None:
    plan = Plan(name="p", tasks=(task(1, "Try", 1, retries=1),), limit=1)
    assert "again" == find_card_state(board({"1": at(T.FAILED, tries=1)}, plan), plan.tasks[0]).name
    assert "failed" == find_card_state(board({"1": at(T.FAILED, tries=2)}, plan), plan.tasks[0]).name

    assert "ready" == find_card_state(board({}, gate=1), PLAN.task("1")).name


def test_in_an_ended_plan_no_task_waits_or_runs() -> None:
    shown = board(state="ended", outcome="aborted")

    assert ["done", "stopped", "stopped", "failed", "not started"] == [
        find_card_state(shown, PLAN.task(number)).label for number in "13456"
    ]
    assert not any(find_card_state(shown, each).needs_person for each in PLAN.tasks)


HITS = {
    SessionId("parser-W2-T3"): CollisionSummary("web changes a.py too", False),
    SessionId("parser-W2-T4"): CollisionSummary("web changes the same lines of a.py too", True),
}


def rows(shown: PlanBoard, number: str, width: int = 44, hits: Mapping[SessionId, CollisionSummary] = {}) -> list[str]:
    drawn = narrow(shown, shown.plan.task(number), "2/3", width, TaskCardContext(LOOK, NOW, hits))
    return ["".join(text for text, _ in row).rstrip() for row in drawn]


def test_a_card_shows_state_time_agent_cost_peers_its_check_and_its_obstacle() -> None:
    shown = board()

    assert ["● 3 Write the parser", "  working · 21m · codex · $1.07"] == rows(shown, "3")[:2]
    assert ["  Edit  src/parse.py", "  attempt 2 · check: pytest -q           2/3"] == rows(shown, "3")[2:]
    assert ["  E  AssertionError: 3 != 4", "  check failed (exit 2)                  2/3"] == rows(shown, "5")[2:]
    waiting = ["  waiting · claude", "  blocked by 3", "  check: pytest -q                       2/3"]
    assert waiting == rows(shown, "6")[1:]
    assert "  check passed 3s                        2/3" == rows(shown, "1")[3]


def test_a_card_names_the_machine_of_its_task_once_that_is_known() -> None:
    placed = task(3, "Write the parser", 2, 1, agent="codex", machine="any", check="pytest -q")
    fixed = task(6, "Format what was read", 3, 3, machine="lab")
    plan = msgspec.structs.replace(PLAN, tasks=(*PLAN.tasks[:2], placed, *PLAN.tasks[3:5], fixed, PLAN.tasks[6]))
    shown = board(RUNNING | {"3": msgspec.structs.replace(RUNNING["3"], machine="gpu-1")}, plan)
    open_yet = board({}, plan)

    assert "  working · 21m · codex · gpu-1 · $1.07" == rows(shown, "3")[1]
    assert ["  waiting · claude · lab", "  waiting · codex"] == [rows(shown, "6")[1], rows(open_yet, "3")[1]]
    drawn = wide(shown, placed, 90, TaskCardContext(LOOK, NOW))[1]
    assert "on gpu-1  attempt 2 · check: pytest -q" in "".join(text for text, _ in drawn)
    facts = ["\n".join(row.text for row in task_rows(of, placed, 60)) for of in (shown, open_yet)]
    assert ["gpu-1" in facts[0], "any machine" in facts[1]] == [True, True]


def test_a_card_names_the_account_of_its_task_and_its_details_give_the_reason() -> None:
    work = TaskBegan(at=NOW, task="3", attempt=2, session="none", account="work", account_why="12% are used")
    shown = board(RUNNING | {"3": msgspec.structs.replace(RUNNING["3"], session="none", ran=work)})
    waits = msgspec.structs.replace(PLAN.tasks[5], accounts=("work", "home"))

    assert "work" in rows(shown, "3")[1]
    drawn = wide(shown, PLAN.tasks[2], 90, TaskCardContext(LOOK, NOW))[1]
    assert "account work  attempt 2" in "".join(text for text, _ in drawn)
    facts = ["\n".join(row.text for row in task_rows(shown, each, 60)) for each in (PLAN.tasks[2], waits)]
    assert ["work: 12% are used" in facts[0], "one of work, home" in facts[1]] == [True, True]


def test_that_a_claim_changed_nothing_or_what_another_one_changes_stands_on_its_card() -> None:
    assert rows(sample_boards.claimed(), "2")[3].endswith("nothing changed  2/3")

    assert ["● ⇄ 3 Write the parser", "  web changes a.py too · Edit  src/parse.py"] == rows(board(), "3", 60, HITS)[
        ::2
    ]
    assert ["◆ ⇄ 4 Explain a syntax error by its line", "  Bash  rm -rf build && make release"] == (
        rows(board(), "4", 60, HITS)[::2]
    )


def test_a_cards_rows_have_the_requested_width() -> None:
    for number in "1234567":
        for width in (12, 33, 90):
            for drawn in (
                narrow(board(), PLAN.task(number), "1/2", width, TaskCardContext(LOOK, NOW)),
                wide(board(), PLAN.task(number), width, TaskCardContext(LOOK, NOW)),
            ):
                assert {width} == {sum(len(text) for text, _ in row) for row in drawn}


def led_by(task_session: str, *children: Session) -> PlanBoard:
    """The board whose task's agent started *children*, each of which has its actor."""
    return board(children={task_session: children})


def by(starter: str, child: Session) -> Session:
    return msgspec.structs.replace(child, actor=ActingAgent(session=SessionId(starter)))


def test_sessions_started_by_the_agent_of_a_task_are_folded_on_its_card_and_a_tree_in_its_details() -> None:
    first, below = by("parser-W2-T3", working("lexer")), by("lexer", idle("words", cost_usd=0.25))
    shown = led_by("parser-W2-T3", first, below, by("parser-W2-T3", working("docs")))
    details = [row.text.rstrip() for row in task_rows(shown, PLAN.tasks[2], 70)]
    started = next(n for n, row in enumerate(details) if row.startswith("started"))

    assert "● 3 Write the parser                  ▸3 ○●●" == rows(shown, "3")[0]
    assert "▸3" in "".join(text for text, _ in wide(shown, PLAN.tasks[2], 90, TaskCardContext(LOOK, NOW))[0])
    assert [
        "started      lexer: working, claude",
        "             └ words: idle, claude, $0.25",
        "             docs: working, claude",
    ] == details[started : started + 3]
    assert "▸" not in "".join(rows(board(), "3"))


def test_a_request_of_a_child_needs_the_user_at_the_task() -> None:
    shown = led_by("parser-W2-T3", by("parser-W2-T3", asking("lexer")))

    assert ("working", True) == find_card_state(shown, PLAN.task("3"))
    assert ("working", False) == find_card_state(led_by("parser-W2-T3", working("lexer")), PLAN.task("3"))


def test_a_proposal_to_finish_is_marked_on_the_card_and_its_details_name_the_agent_and_the_time() -> None:
    proposed = by(
        "parser-W2-T3",
        idle("lexer", finish_proposed="all tokens", finish_proposed_by="parser", finish_proposed_at=NOW),
    )
    shown = led_by("parser-W2-T3", proposed)
    details = "\n".join(row.text for row in task_rows(shown, PLAN.tasks[2], 90))

    assert rows(shown, "3")[0].startswith("● » 3 Write the parser")
    assert f"parser proposes to finish lexer, {clock(NOW)}: all tokens" in details


def test_a_task_costs_what_all_its_attempts_cost() -> None:
    tasks = RUNNING | {"3": at(T.RUNNING, session="parser-W2-T3", earlier=("parser-W1-T1", "forgotten"))}

    assert 1.49 == pytest.approx(cost(board(tasks), tasks["3"]))
    assert cost(board(), at(T.WAITING)) is None


def test_a_card_has_the_plans_agent_the_tasks_or_its_replacement_and_what_failed_before() -> None:
    shown = board({"6": at(T.WAITING, agent="opencode")})
    assert ["claude", "gemini", "opencode"] == [agent_of(shown, PLAN.task(number)) for number in "156"[:1] + "56"]

    shown = board({"1": at(T.WAITING, failures=("it ended",))}, gate=1)
    assert "retrying after: it ended" == "".join(text for text, _ in draw_note(shown, PLAN.task("1"), NOW))


# Where the cards stand.


def test_waves_are_columns_if_they_fit_and_below_each_other_otherwise() -> None:
    wide, low = BoardLayout(PLAN, 120), BoardLayout(PLAN, 79)

    assert [(0, 0), (0, CARD), (40, 0)] == [wide.place(number)[:2] for number in "123"]  # type: ignore[index]
    assert [1, 3, 7] == [low.place(number).y for number in "123"]  # type: ignore[union-attr]


def test_the_card_at_a_row_is_found() -> None:
    for room in (BoardLayout(PLAN, 120), BoardLayout(PLAN, 79)):
        for each in PLAN.tasks:
            place = room.place(each.id)
            assert place is not None
            assert (each, 1) == room.at(place.x, place.y + 1)[1:]
    assert BoardLayout(PLAN, 79).at(0, 0).task is None
    assert BoardLayout(PLAN, 120).at(0, CARD - 1).task is None


def test_waves_that_do_not_fit_are_scrolled_by_whole_columns() -> None:
    plan = Plan(name="p", tasks=tuple(task(n, "t", n) for n in range(1, 21)))
    room = BoardLayout(plan, 119)

    assert (39, 20 * 39) == (room.column, room.size[0])


@pytest.mark.parametrize(
    ("start", "across", "along", "end"),
    [("1", 0, 1, "2"), ("2", 0, 1, "2"), ("5", 1, 0, "7"), ("7", 1, 0, "7"), ("6", -1, 0, "3"), ("3", 0, -9, "3")],
)
def test_a_move_ends_at_the_nearest_card(start: str, across: int, along: int, end: str) -> None:
    assert end == BoardLayout(PLAN, 120).stepped(start, across, along)


def test_in_one_column_a_move_down_goes_through_all_waves() -> None:
    assert "3" == BoardLayout(PLAN, 80).stepped("2", 0, 1)


# What keys mean.


def test_the_shown_keys_are_those_of_the_card() -> None:
    shown = board()

    end = ("task_read", "plan_pause")
    into = ("task_open", "task_diff")
    assert (*into, "task_retry", "task_replace", "task_skip", *end) == list_offered(shown, PLAN.task("5"))
    assert (*into, *end) == list_offered(shown, PLAN.task("3"))
    assert ("plan_advance", *into, *end) == list_offered(sample_boards.asked(), PLAN.task("1"))
    assert "task_accept" in list_offered(sample_boards.claimed(), PLAN.task("2"))
    assert () == list_offered(sample_boards.over(), PLAN.task("1"))


@pytest.mark.parametrize(
    ("shown", "number", "action", "refusal"),
    [
        (board(), "6", "task_retry", "Task '6' has not started."),
        (board(), "3", "task_accept", "Task '3' is running, not reported as done."),
        (board(), "1", "task_skip", "Task '1' is already done."),
        (board(gate=3), "1", "plan_advance", "Wave 3 is the last one."),
        (board(), "1", "plan_advance", "Wave 2 is not done."),
        (sample_boards.over(), "1", "task_retry", "This plan has ended: done."),
    ],
)
def test_an_invalid_action_is_refused_with_the_reason(shown: PlanBoard, number: str, action: str, refusal: str) -> None:
    assert PlanDecision(refusal=refusal) == resolve_action(shown, PLAN.task(number), ROWS[action])


def test_an_action_that_ends_something_is_confirmed_and_a_requested_one_is_not() -> None:
    assert resolve_action(board(), PLAN.task("3"), Keys.TASK_RETRY).questions
    assert resolve_action(board(), PLAN.task("6"), Keys.TASK_SKIP).questions
    assert resolve_action(board(), PLAN.task("6"), Keys.PLAN_ABORT).questions
    assert () == resolve_action(sample_boards.asked(), PLAN.task("6"), Keys.PLAN_ADVANCE).questions
    assert () == resolve_action(board(), PLAN.task("5"), Keys.TASK_RETRY).questions


def test_pause_means_resume_while_the_plan_is_paused() -> None:
    for shown, deed in ((board(), "pause"), (board(state="paused"), "resume"), (board(is_run=False), "resume")):
        assert deed == resolve_action(shown, None, Keys.PLAN_PAUSE).action


def test_questions_and_faults_of_the_plan_are_on_top() -> None:
    shown = msgspec.structs.replace(sample_boards.edited(), is_run=False, problem="cannot read it")
    lines = ["".join(text for text, _ in line.left).strip() for line in notice_lines(shown, KeyMap(), LOOK, 100)]

    assert lines == [
        "cannot read it",
        "◆ Task 5 failed: retry, replace, skip, or abort",
        "The process of this plan has ended. p resumes the plan.",
        "The plan file changed: e reviews the changes.",
    ]


def test_a_budget_that_holds_the_plan_is_shown_on_top_until_it_asks() -> None:
    def top(shown: PlanBoard) -> str:
        return "".join(text for text, _ in notice_lines(shown, KeyMap(), LOOK, 100)[0].left).strip()

    held = NextSteps((), {}, held="the budget of the day: $5.00 of $5.00 is used")
    shown = msgspec.structs.replace(board(), ahead=held)
    assert "Held: the budget of the day: $5.00 of $5.00 is used. No further task starts." == top(shown)
    asks = msgspec.structs.replace(board(), ahead=held._replace(question=f"{held.held}: raise it"))
    assert "◆ The budget of the day: $5.00 of $5.00 is used: raise it" == top(asks)


# The screen.


async def test_a_plan_that_a_signal_stopped_shows_the_key_that_starts_it_again() -> None:
    stopped = board(state="paused", is_stopped=True, is_run=False)
    async with planned(stopped, shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        await waves()(pilot)

        text = text_of(pilot.app)
        assert "Stopped, with its sessions." in text
        assert "No process runs this plan" not in text


async def test_the_board_shows_the_waves_and_closes() -> None:
    app = planned(board(), sample_boards.other(), shown=sample_boards.crew())
    async with app.run_test(size=(120, 40)) as pilot:
        await waves(plans=2)(pilot)
        text = text_of(app)
        assert "parser  running   2/7 done   3 waves   40m   $1.88" in text
        assert "plan 1 of 2" in text
        assert all(f"wave {number}" in text for number in (1, 2, 3))

        await press(pilot, "escape")
        assert 1 == len(app.screen_stack)


async def test_the_cursor_starts_where_the_user_is_needed_and_w_moves_to_the_next() -> None:
    async with planned(board(), shown=sample_boards.crew()).run_test(size=(120, 40)) as pilot:
        await waves()(pilot)
        assert "4" == cursor(pilot)

        await press(pilot, "w")
        assert "5" == cursor(pilot)
        await press(pilot, "w")
        assert "4" == cursor(pilot)


async def test_arrows_move_between_cards_and_waves() -> None:
    async with planned(board(), shown=sample_boards.crew()).run_test(size=(120, 40)) as pilot:
        await waves("g")(pilot)
        seen = []
        for key in ("down", "right", "down", "l", "k", "G", "h"):
            await press(pilot, key)
            seen.append(cursor(pilot))
        assert ["2", "4", "5", "7", "6", "7", "4"] == seen


async def test_a_board_that_is_larger_than_the_window_scrolls_both_ways_with_the_cursor() -> None:
    tasks = tuple(task(n, f"task number {n}", 1 + n % 12) for n in range(1, 241))
    plan = Plan(name="big", tasks=tasks, limit=8, agent="claude", advance="ask")
    async with planned(board({}, plan, gate=1), shown=fleet()).run_test(size=(120, 40)) as pilot:
        await waves("g", *["right"] * 11, "pagedown", "pagedown", "pagedown")(pilot)
        here = screen_of(pilot).card
        assert here is not None
        assert here.title in text_of(pilot.app)
        assert "wave 12" in text_of(pilot.app)
        assert "wave 1 " not in text_of(pilot.app)


async def test_every_plan_keeps_its_own_cursor() -> None:
    async with planned(board(), sample_boards.other(), shown=sample_boards.crew()).run_test(size=(120, 40)) as pilot:
        await waves("g", "right", "tab", plans=2)(pilot)
        assert "docs" in text_of(pilot.app)
        assert "1" == cursor(pilot)

        await press(pilot, "[")
        assert "3" == cursor(pilot)


async def test_enter_opens_the_tasks_session_and_f5_returns_to_the_same_place() -> None:
    async with planned(board(), sample_boards.other(), shown=sample_boards.crew()).run_test(size=(120, 40)) as pilot:
        app = cast(Kasmon, pilot.app)
        await waves("g", "right", "enter", plans=2)(pilot)
        assert app.main_view.focused_inside
        assert app.main_view.preview.session is not None
        assert "parser-W2-T3" == app.main_view.preview.session.id

        await press(pilot, "f5")
        assert "3" == cursor(pilot)


async def test_a_reopened_board_has_its_last_position() -> None:
    async with planned(board(), sample_boards.other(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        await waves("G", "tab", "escape", "B", plans=2)(pilot)
        assert "docs" == screen_of(pilot).plan

        await press(pilot, "tab")
        assert "7" == cursor(pilot)


async def test_the_board_opens_at_the_task_of_the_session_under_the_cursor() -> None:
    async with run_app(planned(sample_boards.other(), board(), shown=sample_boards.crew())) as pilot:
        app = cast(Kasmon, pilot.app)
        app.main_view.table.select(sample_boards.SESSIONS[2].id)
        await waves(plans=2)(pilot)

        assert ("parser", "3") == (screen_of(pilot).plan, cursor(pilot))


async def test_a_task_without_a_session_cannot_be_opened() -> None:
    async with planned(board(), shown=sample_boards.crew()).run_test(size=(120, 40), notifications=True) as pilot:
        await waves("G", "enter")(pilot)

        await auntil(lambda: "Task 7 has no session yet." in text_of(pilot.app), what="the word")


DECIDED = (
    (board(), ("w", "r"), called(Operations.decide_on_plan, "parser", "retry", "5")),
    (sample_boards.claimed(), ("w", "a"), called(Operations.decide_on_plan, "parser", "accept", "2")),
    (sample_boards.asked(), ("A",), called(Operations.decide_on_plan, "parser", "advance")),
    (board(), ("p",), called(Operations.decide_on_plan, "parser", "pause")),
    (board(state="paused"), ("p",), called(Operations.decide_on_plan, "parser", "resume")),
)
"""A board, the keys that are pressed there, and what is decided by them."""


async def test_a_key_sends_a_decision() -> None:
    async with planned(board(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        app = cast(Kasmon, pilot.app)
        await waves()(pilot)
        for shown, keys, _ in DECIDED:
            app.plan_board.show_boards((shown,))
            await press(pilot, *keys)

        assert [wanted for _, _, wanted in DECIDED] == decisions(pilot)


async def test_a_decision_that_cannot_be_undone_is_confirmed() -> None:
    async with planned(board(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        await waves("G", "s")(pilot)
        await press(pilot, "enter", "n", "X", "enter", "escape")
        assert [] == decisions(pilot)

        await press(pilot, "s")
        await say_yes(pilot)
        await press(pilot, "X")
        await say_yes(pilot)
        skip, abort = (
            called(Operations.decide_on_plan, "parser", "skip", "7"),
            called(Operations.decide_on_plan, "parser", "abort"),
        )
        assert [skip, abort] == decisions(pilot)


async def test_a_replacement_is_chosen_from_the_usable_agents() -> None:
    async with planned(board(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        await waves("w", "R")(pilot)
        assert "Retry task 5" in text_of(pilot.app)
        await press(pilot, "right", "enter")

        assert [called(Operations.decide_on_plan, "parser", "replace", "5", "shell")] == decisions(pilot)


async def test_a_replacement_before_the_agents_are_loaded_is_done_once_they_are() -> None:
    async with planned(board(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        gateway_of(pilot.app).knows.clear()
        await waves("w", "R", "enter")(pilot)
        assert "Starts as soon as the installed agents" in text_of(pilot.app)
        assert [] == decisions(pilot)

        gateway_of(pilot.app).knows.set()
        await auntil(lambda: decisions(pilot), what="the wish")
        assert [called(Operations.decide_on_plan, "parser", "replace", "5", "claude")] == decisions(pilot)


async def test_if_no_agents_can_be_loaded_the_dialog_gives_the_reason() -> None:
    async with planned(board(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        gateway_of(pilot.app).offering = RefusedError("a system call failed '/etc/kasmon'.")
        await waves("w", "R")(pilot)
        await auntil(lambda: "A system call failed '/etc/kasmon'" in text_of(pilot.app), what="the reason")
        await press(pilot, "enter")

        assert [] == decisions(pilot)


async def test_a_refusal_is_reported_and_the_board_stays_open() -> None:
    async with planned(board(), shown=fleet(idle("docs"))).run_test(size=(120, 40), notifications=True) as pilot:
        gateway_of(pilot.app).refusing = RefusedError("plan 'parser' is over: done.")
        await waves("w", "r")(pilot)

        await auntil(lambda: "Plan 'parser' is over" in text_of(pilot.app), what="the word")
        assert "Task 5 failed" in text_of(pilot.app)


async def test_an_edited_plan_is_applied_as_shown_by_a_key_after_the_confirmation() -> None:
    async with planned(sample_boards.edited(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        await waves("e")(pilot)
        text = text_of(pilot.app)
        assert "+ task 8: Measure it" in text
        assert "starts 'claude' (claude) for tasks 1, 2, 4, 6, 7, 8" in text

        await press(pilot, "enter", "y")
        assert [] == decisions(pilot)
        await auntil(lambda: "This key came before the question could be read." in text_of(pilot.app))
        await say_yes(pilot)
        assert [called(Operations.apply_plan_edit, "parser", "d" * 64)] == decisions(pilot)


async def test_an_edit_longer_than_the_window_is_read_to_its_end_before_it_is_applied() -> None:
    shown = sample_boards.edited()
    assert shown.edit is not None
    edit = msgspec.structs.replace(shown.edit, lines=tuple(f"+ task {n}: t" for n in range(90)))
    shown = msgspec.structs.replace(shown, edit=edit)
    async with planned(shown, shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        await waves("e")(pilot)
        await say_yes(pilot)
        assert [] == decisions(pilot)
        assert "Scroll to the end to continue." in text_of(pilot.app)

        await press(pilot, *["space"] * 6)
        await say_yes(pilot)
        assert 1 == len(decisions(pilot))


async def test_an_edit_that_removes_a_started_task_is_shown_and_not_applied() -> None:
    shown = sample_boards.edited("task '3' has started, but the file no longer contains it")
    async with planned(shown, shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        await waves("e")(pilot)
        assert "has started, but the file no longer contains it" in text_of(pilot.app)
        await say_yes(pilot)

        assert [] == decisions(pilot)


async def test_space_shows_the_prompt_of_the_task_and_the_output_of_its_check() -> None:
    async with planned(board(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        await waves("w", "space")(pilot)

        text = text_of(pilot.app)
        assert "Mind the tests." in text
        assert "E  AssertionError: 3 != 4" in text


@pytest.mark.parametrize(("agent", "reads"), [("scripted", False), ("claude", True)])
def test_only_for_a_scripted_agent_the_script_is_not_shown_to_the_user(agent: str, reads: bool) -> None:
    acts = task(1, "Write the lexer", 1, agent=agent, body="prompt Write it.\nusage 18400 2210")
    plan = msgspec.structs.replace(PLAN, tasks=(acts,))
    read = "\n".join(row.text for row in task_rows(board({}, plan), acts, 60))

    assert "Write it." in read
    assert reads is ("usage 18400" in read)


async def test_a_board_that_changes_while_it_is_open_is_updated_and_keeps_the_cursor() -> None:
    async with planned(board(), shown=sample_boards.crew()).run_test(size=(120, 40)) as pilot:
        await waves("G")(pilot)
        gateway_of(pilot.app).planned.put_nowait((board(RUNNING | {"5": at(T.SKIPPED, why="skipped by user")}),))
        await auntil(lambda: "3/7 done" in text_of(pilot.app), what="the change")

        assert "7" == cursor(pilot)


async def test_a_collision_detected_while_the_board_is_open_is_marked() -> None:
    async with planned(board(), shown=sample_boards.crew()).run_test(size=(160, 40)) as pilot:
        await waves("g", "right")(pilot)
        cast(Kasmon, pilot.app).plan_board.mark(HITS)
        await pilot.pause()

        assert "web changes a.py too" in text_of(pilot.app)


async def test_a_plan_with_a_question_is_reported_in_the_list_and_its_key_shows_it() -> None:
    async with planned(sample_boards.asked(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        app = cast(Kasmon, pilot.app)
        await settled(pilot)
        await auntil(lambda: app.main_view.banner.notice, what="the line")
        await pilot.pause()
        assert "Plan parser: wave 1 is done: start wave 2  B decide" in text_of(app)

        await press(pilot, "B")
        assert "A start next wave" in text_of(app)


async def test_plans_with_questions_and_requests_are_counted_together() -> None:
    async with planned(sample_boards.asked(), shown=sample_boards.crew()).run_test(size=(120, 40)) as pilot:
        app = cast(Kasmon, pilot.app)
        await settled(pilot)
        app.permissions.close(ask.id for ask in app.permissions.queue.waiting)
        await press(pilot, "m")
        await auntil(lambda: app.plan_board.boards, what="the plan")
        app.permissions.show_notice()
        await pilot.pause()
        assert "1 pending request · 1 plan needs a decision" in text_of(app)


async def test_the_first_of_several_plans_with_questions_is_named_and_the_others_counted() -> None:
    other = msgspec.structs.replace(sample_boards.asked(), id="other")
    async with planned(sample_boards.asked(), other, shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        app = cast(Kasmon, pilot.app)
        await settled(pilot)
        await auntil(lambda: app.main_view.banner.notice, what="the line")
        await pilot.pause()
        assert "Plan parser (and 1 more plan needs a decision): wave 1 is done: start wave 2  B decide" in text_of(app)


def calls(pilot: Pilot[None]) -> list[str]:
    return [alert.text for alert in gateway_of(pilot.app).passed(Operations.send_alert, "alert")]


async def test_a_plan_that_starts_to_ask_or_ends_alerts_once_and_not_for_the_state_at_the_start() -> None:
    async with planned(sample_boards.claimed(), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        app = cast(Kasmon, pilot.app)
        await settled(pilot)
        await auntil(lambda: app.plan_board.boards, what="the plan")
        for shown in (
            board(DONE, gate=2),
            sample_boards.asked(),
            sample_boards.asked(),
            board(DONE, gate=2),
            sample_boards.over(),
        ):
            app.plan_board.show_boards((shown,))
        await pilot.pause()

        assert ["Needs a decision: wave 1 is done: start wave 2", "The plan has ended: done."] == calls(pilot)


async def test_a_viewed_plan_does_not_alert() -> None:
    async with planned(board(DONE, gate=2), shown=fleet(idle("docs"))).run_test(size=(120, 40)) as pilot:
        await waves()(pilot)
        cast(Kasmon, pilot.app).plan_board.show_boards((sample_boards.asked(),))
        await pilot.pause()

        assert [] == calls(pilot)


async def test_an_open_request_is_reported_on_the_board_and_i_answers_it_there() -> None:
    async with planned(board(), shown=sample_boards.crew()).run_test(size=(120, 40)) as pilot:
        await waves()(pilot)
        assert "1 pending request" in text_of(pilot.app)

        await press(pilot, "i")
        assert cast(Kasmon, pilot.app).permissions.card is not None


async def test_a_click_selects_a_card_and_a_second_one_opens_it() -> None:
    async with planned(board(), shown=sample_boards.crew()).run_test(size=(120, 40)) as pilot:
        await waves("G")(pilot)
        view = screen_of(pilot).view
        place = view.room.place("3")
        assert place is not None
        there = (place.x - view.scroll_offset.x + 5, HEADS + place.y - view.scroll_offset.y + 1)
        await pilot.click("#waves", offset=there)
        await pilot.pause()
        assert "3" == cursor(pilot)

        await pilot.click("#waves", offset=there, times=2)
        await pilot.pause()
        assert cast(Kasmon, pilot.app).main_view.focused_inside


async def test_in_a_narrow_window_the_waves_are_below_each_other_and_scroll() -> None:
    async with planned(board(), shown=sample_boards.crew()).run_test(size=(60, 16)) as pilot:
        await waves("g")(pilot)
        assert "wave 1" in text_of(pilot.app)

        await press(pilot, "G")
        assert "Document the grammar" in text_of(pilot.app)
        assert "wave 1" not in text_of(pilot.app)


async def test_a_resized_window_keeps_the_cursors_card_visible() -> None:
    async with planned(board(), shown=sample_boards.crew()).run_test(size=(160, 50)) as pilot:
        await waves("G")(pilot)
        await pilot.resize_terminal(60, 16)
        await pilot.pause()
        await pilot.pause()

        assert "Document the grammar" in text_of(pilot.app)


async def test_no_text_of_a_plan_is_markup_or_a_link() -> None:
    hostile = task(1, WORST, 1, id=WORST, body=WORST, check=WORST, agent=WORST, run=WORST, inherits="", files=(WORST,))
    other = msgspec.structs.replace(hostile, id=f"2 {WORST}", number=2, run="")
    plan = Plan(name=WORST, goal=WORST, agent=WORST, tasks=(hostile, other), limit=1)
    run = at(TaskState.FAILED, why=WORST, failures=(WORST,), session="a", name=WORST, branch=WORST, tries=1)
    evil = board({WORST: run, other.id: run}, plan, gate=1, problem=WORST)
    edit = msgspec.structs.replace(sample_boards.edited(WORST), run=evil.run, plan=plan)
    sessions = {"a": session("a", agent=WORST, mode=Mode.SDK, last_line=WORST)}
    stage = Stage(WORST, asks=False)
    stage.gateway.planned.put_nowait((msgspec.structs.replace(evil, edit=edit.edit, sessions=sessions),))
    async with run_app(stage.app, notifications=True) as pilot:
        await auntil(lambda: stage.app.plan_board.boards, what="the plan")
        await stage.visit(pilot, BOARD, stage.to_list)
    async with stage.app.__class__(gateway=stage.gateway, clock=stage.clock).run_test(size=(60, 20)) as pilot:
        assert pilot.app.is_running


async def test_a_real_kasmon_shows_its_plans_and_logs_decisions(env: Env) -> None:
    """Its runner's lock is held by this process, so that none is started."""
    main_view = Desk(env)
    book = await asyncio.to_thread(main_view.begin)
    gateway = LiveGateway(env.paths)
    feed = cast("AsyncGenerator[tuple[PlanBoard, ...]]", gateway.boards())
    async with asyncio.timeout(60):
        (first,) = await anext(feed)
        operations = await gateway.operations()
        await operations.decide_on_plan(book.plan, "skip", "1")
        (second,) = await anext(feed)
        with pytest.raises(RefusedError, match="is already skipped"):
            await operations.decide_on_plan(book.plan, "skip", "1")
    await feed.aclose()
    main_view.locks.pop().let_go()

    assert [T.WAITING, T.SKIPPED] == [each.run.of("1").state for each in (first, second)]


async def test_a_plan_started_later_is_shown_too(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until there is one, what reads plans is not even loaded."""
    monkeypatch.setattr(live_gateway, "RECONCILE_S", 0.01)
    feed = cast("AsyncGenerator[tuple[PlanBoard, ...]]", LiveGateway(env.paths).boards())
    main_view = Desk(env)
    async with asyncio.timeout(60):
        assert () == await anext(feed)
        waits = asyncio.ensure_future(anext(feed))
        book = await asyncio.to_thread(main_view.begin)
        told = await waits
        while not told:  # a plan's folder is there before its facts are
            told = await anext(feed)
    await feed.aclose()
    main_view.locks.pop().let_go()

    assert [book.plan] == [each.id for each in told]
