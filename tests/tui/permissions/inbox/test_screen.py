"""The inbox: every request that waits, one line each, and the chosen one on the card that answers it."""

from typing import cast

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import TextArea

from kasmon.errors import RequestClosedError
from kasmon.host.session.request_registry import CHANGED
from kasmon.model.fleet import Fleet
from kasmon.model.permission import ClosedRequest, Decision, Request, RequestId
from kasmon.model.request_groups import find_group, group_sizes
from kasmon.tui.app import Kasmon
from kasmon.tui.permissions.card.card import PermissionCard
from kasmon.tui.permissions.inbox.screen import InboxScreen
from kasmon.tui.permissions.inbox.state import ANSWERED_S
from tests.safety.test_markup import WORST, Stage
from tests.support.dashboard_scenes import HIDDEN, armed, desk_of_asks, kasmon, run_app, settled
from tests.support.sample_fleet import (
    NOW,
    StillClock,
    asking,
    change,
    command,
    fleet,
    idle,
    login,
    plan,
    question,
    working,
)
from tests.support.tui.fake_gateway import gateway_of, text_of
from tests.support.wait import auntil
from tests.tui.permissions.card.test_card import KEY, answers, clock_of, show

RULE = "Bash(git push:*)"


def push(name: str, number: int = 1, *, ago: float = 10.0, to: str = "main") -> Request:
    return command(name, f"git push origin {to}", number, ago=ago, rule=RULE)


ONE, TWO, THREE = push("a", ago=30), push("b", ago=20), push("c", ago=10)
OTHER = command("d", "rm -rf build", ago=5)


def crowd(*requests: Request) -> Fleet:
    return fleet(*(asking(ask.session, ask) for ask in requests))


def inbox_of(pilot: Pilot[None]) -> InboxScreen:
    screen = pilot.app.screen
    assert isinstance(screen, InboxScreen)
    return screen


async def opened(pilot: Pilot[None]) -> PermissionCard:
    await settled(pilot)
    await pilot.press("I")
    return await armed(pilot)


async def pressed(pilot: Pilot[None], *keys: str) -> PermissionCard:
    """Press *keys*; the card, once it takes keys again."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()
    return await armed(pilot)


def rows(pilot: Pilot[None]) -> list[str]:
    return [str(row.request.id) for row in inbox_of(pilot).rows.shown]


def said(pilot: Pilot[None]) -> list[tuple[str, Decision]]:
    return [(str(each.request), each.decision) for each in answers(pilot)]


async def test_every_request_has_its_line_in_order_of_time_with_dismissed_ones_last() -> None:
    async with run_app(kasmon(desk_of_asks()), act=opened) as pilot:
        text = text_of(pilot.app)

        first = ["choose-store-1", "choose-store-2", "rows-to-strips-1", "release-notes-1"]
        assert [*first, "docs-1", "fix-auth-1", "parser-1", "perf-1"] == rows(pilot)
        assert "8 pending   1 snoozed" in text
        for line in (
            "? question    choose-store    codex      Which database should the index use?",
            "≡ plan        choose-store    codex      Move the parser out of the server",
            "◆ permission  rows-to-strips  codex      Edit  kasmon/tui/row.py",
            "→ login       release-notes   gemini     Sign in to continue",
            "snoozed  Bash  make bench",
        ):
            assert line in text
        assert 3 == text.count("3 similar")


async def test_a_request_that_changes_before_the_list_is_rendered_is_in_it() -> None:
    """On a busy machine the list is not mounted yet when the next change of the fleet arrives."""
    app = kasmon(desk_of_asks())
    async with run_app(app) as pilot:
        app.permissions.open_list()
        screen = app.permissions.screen
        assert isinstance(screen, InboxScreen)
        assert not screen.is_mounted
        screen.update_requests(screen.asked)
        await armed(pilot)

        assert 8 == len(rows(pilot))


def test_the_number_of_equal_requests_is_that_of_their_group() -> None:
    aside = msgspec.structs.replace(push("e", ago=99), later=True)
    turned = push("f"), msgspec.structs.replace(push("g"), input={"command": "git push origin main"}, rule="")
    waiting = (ONE, TWO, OTHER, question("q"), command("h", HIDDEN), command("i", HIDDEN), aside, *turned)

    assert {ask.id: len(find_group(ask, waiting)) for ask in waiting if find_group(ask, waiting)} == group_sizes(
        waiting
    )


async def test_keys_move_through_the_list_and_the_card_shows_the_selected_one() -> None:
    async with kasmon(crowd(ONE, TWO, THREE, OTHER)).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        seen = [card.request.id]
        for key in ("j", "down", "G", "k", "up", "g"):
            await pilot.press(key)
            seen.append(card.request.id)

        assert [ONE.id, TWO.id, THREE.id, OTHER.id, THREE.id, TWO.id, ONE.id] == seen
        assert [] == answers(pilot)


async def test_a_key_pressed_right_after_a_move_sends_no_answer() -> None:
    """What it was meant for is not what stands there now."""
    async with run_app(kasmon(crowd(ONE, OTHER)), act=opened) as pilot:
        await pilot.press("j", "a")
        await pilot.pause()
        assert [] == answers(pilot)

        await pressed(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert [(OTHER.id, Decision.ALLOW)] == said(pilot)


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (("a",), (Decision.ALLOW, "", "session")),
        (("A",), (Decision.ALWAYS, "", "session")),
        (("s", "A"), (Decision.ALWAYS, "", "project")),
        (("d", *"no", "enter"), (Decision.DENY, "no", "session")),
        (("D", *"no", "enter"), (Decision.NEVER, "no", "session")),
        (("c",), (Decision.CANCEL, "", "session")),
        (("z",), (Decision.LATER, "", "session")),
    ],
)
async def test_the_answers_and_their_keys_are_those_of_the_card(
    keys: tuple[str, ...], answer: tuple[Decision, str, str]
) -> None:
    async with run_app(kasmon(crowd(OTHER)), act=opened) as pilot:
        assert f"Always: Bash({OTHER.title})" in text_of(pilot.app)
        first, *others = keys
        await pilot.press(first)
        if first == "s":
            await armed(pilot)
        await pilot.press(*others)
        await pilot.pause()

        assert [(OTHER.id, OTHER.digest, *answer)] == [
            (each.request, each.digest, each.decision, each.reason, each.scope) for each in answers(pilot)
        ]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (160, 50)])
async def test_an_edit_is_typed_and_shown_before_it_is_allowed(size: tuple[int, int]) -> None:
    async with run_app(kasmon(crowd(ONE, OTHER)), size, act=opened) as pilot:
        await pressed(pilot, "j")
        await pilot.press("e")
        pilot.app.screen.query_one(TextArea).text = "ls build"
        await pressed(pilot, "escape", "j", "space", "G")  # its own keys now, not the list's
        assert "will run instead" in text_of(pilot.app)
        await pilot.press("a")
        await pilot.pause()

        assert [(OTHER.id, Decision.EDIT, {"command": "ls build"})] == [
            (each.request, each.decision, each.input) for each in answers(pilot)
        ]


async def test_a_question_is_answered_by_digits_in_the_list_and_by_arrows_on_the_request() -> None:
    async with run_app(kasmon(crowd(question("a", many=True, free_text=True), question("b"))), act=opened) as pilot:
        await pilot.press("1", "3", "o", *"and a backup", "enter")
        await pressed(pilot)
        await pilot.press("enter")
        await pilot.pause()
        await pressed(pilot, "tab")
        await pilot.press("down", "space", "enter")
        await pilot.pause()

        first = (("SQLite in the state folder", "A plain JSON file"), "and a backup")
        second = (("DuckDB, one more dependency",), "")
        assert [first, second] == [(each.labels, each.text) for each in answers(pilot)]


async def test_a_plan_is_approved_and_a_diff_and_hidden_characters_are_shown_as_on_the_card() -> None:
    hidden = command("c", HIDDEN, ago=1)
    async with run_app(kasmon(crowd(plan("a", ago=90), change("b", ago=50), hidden)), act=opened) as pilot:
        assert "Approve the plan" in text_of(pilot.app)
        await pilot.press("a")
        await pilot.pause()
        card = await armed(pilot)
        assert '42 -    name = Column("name", widest)' in "\n".join(line.text for line in card.view.body._drawn)
        await pressed(pilot, "j")
        assert "notes⟨U+202E⟩txt.sh⟨U+200B⟩" in text_of(pilot.app)
        await pressed(pilot, "a")
        await pilot.press(*"bas")
        await pilot.pause()

        assert [("a-1", Decision.ALLOW), ("c-1", Decision.ALLOW)] == said(pilot)


async def test_a_long_request_is_read_by_its_keys_and_allowed_only_after_its_end() -> None:
    long = "\n".join(f"echo {number}" for number in range(20))
    async with kasmon(crowd(command("a", long))).run_test(size=(80, 24)) as pilot:
        card = await opened(pilot)
        assert "pgdn scrolls; approve at the end" in text_of(pilot.app)
        await pilot.press("a")
        assert [] == answers(pilot)
        while not card.view.body.seen_end:
            await pilot.press("pagedown")
        await pressed(pilot)
        await pilot.press("a")
        await pilot.pause()

        assert [("a-1", Decision.ALLOW)] == said(pilot)


async def test_marked_requests_are_on_the_card_together_and_one_key_answers_each() -> None:
    async with kasmon(crowd(ONE, TWO, THREE, OTHER)).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await pressed(pilot, "space")
        assert ("1 marked", ()) == ("1 marked" if "1 marked" in text_of(pilot.app) else "", card.group)
        await pressed(pilot, "j", "j", "space")
        text = text_of(pilot.app)
        assert "2 marked" in text
        assert "Allow these 2 once" in text
        assert (ONE.id, THREE.id) == card.group
        await pilot.press("a")
        await pilot.pause()

        assert [(ONE.id, Decision.ALLOW), (THREE.id, Decision.ALLOW)] == said(pilot)
        assert frozenset() == inbox_of(pilot).marks


async def test_equal_requests_are_marked_by_one_key_and_esc_clears_the_marks() -> None:
    async with kasmon(crowd(ONE, TWO, OTHER)).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await pressed(pilot, "T")
        assert {ONE.id, TWO.id} == inbox_of(pilot).marks
        await pressed(pilot, "escape")
        assert ((), frozenset(), ONE.id) == (card.group, inbox_of(pilot).marks, card.request.id)
        await pressed(pilot, "T")
        await pilot.press("d", *"no", "enter")
        await pilot.pause()

        assert [(Decision.DENY, "no")] * 2 == [(each.decision, each.reason) for each in answers(pilot)]


async def test_a_different_request_is_not_marked_and_that_is_reported() -> None:
    async with run_app(kasmon(crowd(ONE, TWO, OTHER)), act=opened) as pilot:
        await pressed(pilot, "G", "space")
        assert "No similar pending requests." in text_of(pilot.app)
        await pressed(pilot, "g", "space", "G", "space")

        assert "Only similar requests can be answered together." in text_of(pilot.app)
        assert frozenset({ONE.id}) == inbox_of(pilot).marks


async def test_a_marked_request_that_was_answered_elsewhere_gets_no_answer() -> None:
    async with run_app(kasmon(crowd(ONE, TWO, THREE)), act=opened) as pilot:
        await pressed(pilot, "T")
        await show(pilot, fleet(idle("b", closed=(elsewhere(TWO),)), *crowd(ONE, THREE).sessions))
        await pilot.press("a")
        assert [] == answers(pilot)
        await pressed(pilot)
        assert "1 of these was changed or withdrawn and will not be answered: b" in text_of(pilot.app)
        await pilot.press("a")
        await pilot.pause()

        assert [ONE.id, THREE.id] == [each.request for each in answers(pilot)]


def elsewhere(ask: Request, decision: Decision | None = Decision.DENY, by: str = "user") -> ClosedRequest:
    return ClosedRequest(id=ask.id, decision=decision, by=by, at=NOW, who="/dev/pts/7 (pid 70)")


async def test_the_actor_of_an_answer_is_shown_for_a_few_moments() -> None:
    async with run_app(kasmon(crowd(ONE, OTHER)), act=opened) as pilot:
        await show(pilot, fleet(asking("a", ONE), idle("d", closed=(elsewhere(OTHER),))))
        clock_of(pilot).forward(ANSWERED_S - 1)
        inbox_of(pilot)._tick()
        assert "Denied by user at /dev/pts/7 (pid 70)." in text_of(pilot.app)
        assert [ONE.id, OTHER.id] == rows(pilot)
        assert "1 pending" in text_of(pilot.app)

        clock_of(pilot).forward(ANSWERED_S + 1)
        inbox_of(pilot)._tick()
        assert [ONE.id] == rows(pilot)


async def test_a_shown_request_that_another_user_answers_names_them_and_accepts_no_answer() -> None:
    async with kasmon(crowd(ONE, OTHER)).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await show(pilot, fleet(idle("a", closed=(elsewhere(ONE),)), asking("d", OTHER)))
        assert 2 == text_of(pilot.app).count("Denied by user at /dev/pts/7 (pid 70).")
        clock_of(pilot).forward(60)
        inbox_of(pilot)._tick()
        assert ONE.id == card.request.id  # it does not change under the person
        await pressed(pilot)
        await pressed(pilot, "a")
        assert ([], OTHER.id) == (answers(pilot), card.request.id)
        inbox_of(pilot)._tick()

        assert [OTHER.id] == rows(pilot)


async def test_an_own_answer_is_pending_until_the_log_shows_which_one_counts() -> None:
    async with run_app(kasmon(crowd(ONE, OTHER)), act=opened) as pilot:
        await pilot.press("a")
        await pilot.pause()
        assert "Sending your answer." in text_of(pilot.app)
        won = msgspec.structs.replace(elsewhere(ONE, Decision.ALLOW), who="/dev/pts/1 (pid 1)")
        await show(pilot, fleet(idle("a", closed=(won,)), asking("d", OTHER)))

        assert "Allowed once by user at /dev/pts/1 (pid 1)." in text_of(pilot.app)


async def test_a_late_answer_is_reported_and_the_row_names_the_winner() -> None:
    async with run_app(kasmon(crowd(ONE, OTHER)), act=opened, notifications=True) as pilot:
        gateway_of(pilot.app).refusing = RequestClosedError(ONE.id, "user at /dev/pts/7 answered deny")
        await pilot.press("a")
        await pilot.pause()
        await pilot.pause()
        await show(pilot, fleet(idle("a", closed=(elsewhere(ONE),)), asking("d", OTHER)))

        await auntil(lambda: "user at /dev/pts/7" in " ".join(text_of(pilot.app).split()), what="who was first")
        assert "Denied by user at /dev/pts/7 (pid 70)." in text_of(pilot.app)


async def test_a_request_whose_text_changed_is_another_one_and_marked() -> None:
    anew = push("a", 2, to="production", ago=1)
    async with kasmon(crowd(ONE, OTHER)).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        taken_back = ClosedRequest(id=ONE.id, decision=None, by=CHANGED, at=NOW)
        await show(pilot, fleet(asking("a", anew, closed=(taken_back,)), asking("d", OTHER)))
        assert ONE.id == card.request.id
        assert "changed  Bash  git push origin production" in text_of(pilot.app)
        await pressed(pilot)
        await pilot.press("a")
        await pilot.pause()

        assert [] == answers(pilot)


async def test_a_dismissed_request_is_at_the_end_and_can_be_answered() -> None:
    async with run_app(kasmon(crowd(ONE, OTHER)), act=opened) as pilot:
        await pilot.press("z")
        await pilot.pause()
        await show(pilot, crowd(msgspec.structs.replace(ONE, later=True), OTHER))
        assert [OTHER.id, ONE.id] == rows(pilot)
        assert "snoozed  Bash" in text_of(pilot.app)
        await pressed(pilot, "G")
        await pilot.press("a")
        await pilot.pause()

        assert [(ONE.id, Decision.LATER), (ONE.id, Decision.ALLOW)] == said(pilot)


async def test_an_empty_inbox_reports_that_and_fills_with_the_first_request() -> None:
    async with run_app(kasmon(fleet(working("a"))), (80, 24)) as pilot:
        await pilot.press("I")
        await pilot.pause()
        assert "No pending requests." in text_of(pilot.app)
        await show(pilot, crowd(ONE))
        await armed(pilot)
        assert "Nothing waits" not in text_of(pilot.app)
        await pilot.press("a")
        await pilot.pause()
        await pilot.pause()
        await show(pilot, fleet(working("a", closed=(elsewhere(ONE, Decision.ALLOW),))))
        assert "No pending requests." in text_of(pilot.app)
        assert "Allowed once by user" in text_of(pilot.app)
        await pilot.press("escape")
        await pilot.pause()

        assert 1 == len(pilot.app.screen_stack)


async def test_esc_quits_and_open_requests_do_not_open_a_card_over_the_list() -> None:
    async with kasmon(crowd(ONE, OTHER)).run_test(size=(120, 40)) as pilot:
        app = cast(Kasmon, pilot.app)
        await opened(pilot)
        await pilot.press("escape")
        await pilot.pause()
        cast(StillClock, app.clock).forward(30)
        app.permissions.consider()
        await pilot.pause()

        assert (1, []) == (len(app.screen_stack), answers(pilot))
        assert "2 pending requests" in text_of(app)


async def test_on_the_card_a_key_moves_to_the_list_at_the_same_request() -> None:
    async with run_app(kasmon(crowd(ONE, OTHER))) as pilot:
        await pilot.press("i")
        await armed(pilot)
        assert "I  inbox" in text_of(pilot.app)
        await pilot.press("right")
        await armed(pilot)
        await pilot.press("I")
        card = await armed(pilot)

        assert (OTHER.id, 2) == (card.request.id, len(pilot.app.screen_stack))
        assert OTHER.id == inbox_of(pilot).cursor


async def test_while_the_card_has_the_focus_its_keys_count_and_tab_returns() -> None:
    async with kasmon(crowd(ONE, TWO)).run_test(size=(80, 24)) as pilot:
        card = await opened(pilot)
        await pressed(pilot, "tab", "j", "space")
        assert (ONE.id, frozenset()) == (card.request.id, inbox_of(pilot).marks)
        await pressed(pilot, "right")
        assert TWO.id == card.request.id
        await pressed(pilot, "tab", "k")
        assert ONE.id == card.request.id
        await pressed(pilot, "tab", "escape")

        assert isinstance(pilot.app.screen, InboxScreen)
        assert not inbox_of(pilot).in_request


@pytest.mark.parametrize("size", [(120, 40), (160, 50)])
async def test_a_click_selects_marks_and_answers(size: tuple[int, int]) -> None:
    async with kasmon(crowd(ONE, TWO, OTHER)).run_test(size=size) as pilot:
        card = await opened(pilot)
        await pilot.click("#requests", offset=(20, 2))
        await pressed(pilot)
        assert OTHER.id == card.request.id
        await pilot.click("#requests", offset=(1, 0))
        await pilot.click("#requests", offset=(1, 1))
        await pressed(pilot)
        assert {ONE.id, TWO.id} == inbox_of(pilot).marks
        lines = text_of(pilot.app).splitlines()
        y = next(y for y, line in enumerate(lines) if "Allow these 2" in line)
        await pilot.click(offset=(lines[y].index("Allow these 2"), y))
        await pilot.pause()

        assert [(ONE.id, Decision.ALLOW), (TWO.id, Decision.ALLOW)] == said(pilot)


async def test_a_click_on_the_key_bar_does_what_its_key_does() -> None:
    async with run_app(kasmon(crowd(ONE, TWO)), act=opened) as pilot:
        column = text_of(pilot.app).splitlines()[-1].index("space mark")
        await pilot.click(offset=(column, 39))
        await pilot.pause()

        assert frozenset({ONE.id}) == inbox_of(pilot).marks


async def test_secrets_are_in_no_row_and_nothing_is_shown_before_they_are_known() -> None:
    app = kasmon(crowd(command("a", f"curl -H 'Bearer {KEY}' --user hunter2hunter2")), secrets=["hunter2hunter2"])
    gateway_of(app).holding_cards = True
    async with run_app(app, (160, 50)) as pilot:
        await pilot.press("I")
        await pilot.pause()
        assert "curl" not in text_of(app)
        gateway_of(app).let_cards_go()
        await armed(pilot)
        text = text_of(app)

        assert ["Bash  curl -H 'Bearer ⟨hidden: 35 characters⟩' --user ⟨hidden: 14 characters⟩"] == [
            row.says for row in inbox_of(pilot).rows.shown
        ]
        assert "curl" in text
        assert KEY not in text
        assert "hunter2" not in text


async def test_enter_opens_the_terminal_of_a_request_that_only_it_can_answer() -> None:
    async with run_app(kasmon(crowd(login("gem"))), act=opened) as pilot:
        await pilot.press("enter")
        await pilot.pause()

        assert 1 == len(pilot.app.screen_stack)
        assert cast(Kasmon, pilot.app).main_view.has_class("-inside")


async def test_help_opens_over_the_inbox_and_returns_to_it() -> None:
    async with run_app(kasmon(crowd(ONE)), act=opened) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        assert 3 == len(pilot.app.screen_stack)
        await pilot.press("escape")
        await auntil(lambda: isinstance(pilot.app.screen, InboxScreen), what="the inbox")

        assert [] == answers(pilot)


@pytest.mark.parametrize("size", [(60, 20), (44, 16), (200, 60)])
async def test_in_any_window_an_answer_is_visible_or_the_lack_of_space_is_reported(
    size: tuple[int, int],
) -> None:
    async with run_app(kasmon(crowd(ONE, TWO, OTHER)), size) as pilot:
        await pilot.press("I")
        await pilot.pause()
        text = " ".join(text_of(pilot.app).replace("│", " ").split())

        assert "Allow once" in text or "too small" in text


async def test_a_hundred_requests_scroll_with_the_cursor() -> None:
    many = [command(f"s{number:03}", f"make part-{number}", ago=900 - number) for number in range(100)]
    async with kasmon(crowd(*many)).run_test(size=(80, 24)) as pilot:
        card = await opened(pilot)
        await pressed(pilot, "G")
        assert many[-1].id == card.request.id
        assert "s099" in text_of(pilot.app).splitlines()[4]
        await pressed(pilot, "g")

        assert "s000" in text_of(pilot.app).splitlines()[1]
        assert RequestId("s000-1") == card.request.id


HOSTILE = {
    "list": ("", "inbox  4 pending"),
    "question": ("j", "▌  ? question"),
    "none alike": ("space", "No similar pending requests."),
    "the keys of the request": ("tab", "tab focus list"),
    "deny": ("tab d n o", "esc  cancel"),
    "spell": ("tab end a", "to allow it: ___"),
}
"""Screen -> the keys that lead there from the inbox, and words that stand nowhere else."""


async def test_no_hostile_text_is_markup_in_the_inbox() -> None:
    stage = Stage(WORST, asks=True)
    async with run_app(stage.app, notifications=True) as pilot:
        stage.app.permissions.open_list()
        await stage.visit(pilot, HOSTILE, stage.to_inbox)
