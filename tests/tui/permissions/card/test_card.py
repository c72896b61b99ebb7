"""The card: one request, all of it, and keys that count only when they are meant."""

from typing import Any, cast

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from kasmon.errors import StaleRequestError
from kasmon.model.commands import Answer
from kasmon.model.fleet import Fleet
from kasmon.model.permission import ClosedRequest, Decision, Request, RequestId
from kasmon.model.transcript.request_text import sheet
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions.card.card import PermissionCard
from kasmon.tui.permissions.card.layout import lay_out
from kasmon.tui.permissions.card.text import CardState
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.theme.theme import DEFAULT
from tests.support.dashboard_scenes import HIDDEN, RISKY, armed, kasmon, run_app, settled
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
    request,
    working,
)
from tests.support.tui.fake_gateway import fleet_update, gateway_of, text_of
from tests.support.wait import auntil

FIRST = RequestId("fix-auth-1")
KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


def clock_of(pilot: Pilot[None]) -> StillClock:
    return cast(StillClock, cast(Kasmon, pilot.app).clock)


def answers(pilot: Pilot[None]) -> list[Answer]:
    """What was answered so far."""
    return gateway_of(pilot.app).passed(Operations.answer, "answer")


async def opened(pilot: Pilot[None]) -> PermissionCard:
    await settled(pilot)
    await pilot.press("i")
    return await armed(pilot)


async def show(pilot: Pilot[None], now: Fleet) -> None:
    cast(Kasmon, pilot.app)._show_update(fleet_update(now))
    await pilot.pause()


def asks(*requests: Request, **fields: Any) -> Fleet:
    return fleet(asking("fix-auth", *requests, **fields), working("docs"))


async def test_the_card_shows_the_whole_request() -> None:
    async with run_app(kasmon(asks()), act=opened) as pilot:
        text = text_of(pilot.app)

        for part in ("permission", "fix-auth", "claude · sdk", "asked 12s ago", "Bash", "-rf", "&& make", "release"):
            assert part in text
        assert "Always: Bash(rm -rf build && make release)" in text
        assert "● ready" in text


async def test_the_time_of_a_request_that_is_corrected_is_corrected_on_the_card() -> None:
    early = command("fix-auth", "make")
    late = msgspec.structs.replace(early, asked_at=early.asked_at + 10)
    async with run_app(kasmon(asks(late)), act=opened) as pilot:
        before = text_of(pilot.app)
        await show(pilot, asks(early))

        assert ("asked 2s ago" in before, "asked 12s ago" in text_of(pilot.app)) == (True, True)
        await pilot.press("a")
        await pilot.pause()
        assert [Decision.ALLOW] == [each.decision for each in answers(pilot)]


async def test_a_request_that_may_be_cut_is_marked_and_no_key_allows_it() -> None:
    cut = command("fix-auth", "echo 1", may_be_cut=True, choices=(Decision.DENY,), rule="")
    async with run_app(kasmon(asks(cut)), act=opened) as pilot:
        text = text_of(pilot.app)
        assert "this may be truncated: open the terminal" in text
        assert "Allow once" not in text
        await pilot.press("y", "a", "space")
        await pilot.pause()

        assert [] == answers(pilot)


async def test_a_folder_that_does_not_fit_is_shown_by_its_last_names() -> None:
    async with run_app(kasmon(asks(workdir="/home/you/work/of/this/year/website")), (80, 24), act=opened) as pilot:
        assert "claude · sdk · …/year/website" in text_of(pilot.app)


@pytest.mark.parametrize(("key", "decision"), [("a", Decision.ALLOW), ("A", Decision.ALWAYS), ("z", Decision.LATER)])
async def test_one_key_answers_with_id_and_digest(key: str, decision: Decision) -> None:
    ask = command("fix-auth", "rm -rf build")
    async with run_app(kasmon(asks(ask)), (80, 24), act=opened) as pilot:
        await pilot.press(key)
        await pilot.pause()

        assert [Answer(request=ask.id, digest=ask.digest, decision=decision)] == answers(pilot)


async def test_no_other_key_approves() -> None:
    """Enter never does."""
    async with run_app(kasmon(asks()), (80, 24), act=opened) as pilot:
        for key in ("enter", "space", "y", "tab", "shift+enter", "ctrl+j", "right"):
            await pilot.press(key, key)

            assert [] == answers(pilot), key


async def test_keys_do_not_count_when_the_card_appears_and_it_shows_that() -> None:
    async with run_app(kasmon(asks())) as pilot:
        await pilot.press("i")
        await pilot.pause()
        await pilot.press("a", "A", "z", "a")
        assert "◌ wait" in text_of(pilot.app)
        assert [] == answers(pilot)

        clock_of(pilot).ticked += 0.59
        await pilot.press("a")
        clock_of(pilot).ticked += 0.29
        await pilot.press("a")
        assert [] == answers(pilot)

        await armed(pilot)
        await pilot.press("a")
        assert 1 == len(answers(pilot))


async def test_keys_do_not_count_again_after_the_number_of_requests_changed() -> None:
    first, second = command("fix-auth", "ls", ago=30), command("docs", "make", ago=10)
    async with kasmon(fleet(asking("fix-auth", first))).run_test() as pilot:
        card = await opened(pilot)
        await show(pilot, fleet(asking("fix-auth", first), asking("docs", second)))
        assert not card.is_armed
        await pilot.press("a")
        assert [] == answers(pilot)

        await armed(pilot)
        await pilot.press("a")
        assert ["fix-auth-1"] == [answer.request for answer in answers(pilot)]


async def test_keys_do_not_count_again_after_a_resize() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await pilot.resize_terminal(100, 40)
        await pilot.pause()

        assert not card.is_armed


async def test_the_shown_request_never_changes_by_itself() -> None:
    shown, newer, older = (command(name, name, ago=ago) for name, ago in (("b", 20), ("c", 5), ("a", 60)))
    async with kasmon(fleet(asking("b", shown))).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await show(pilot, fleet(asking("b", shown), asking("c", newer), asking("a", older)))

        assert shown == card.request
        assert "2 of 3" in text_of(pilot.app)


async def test_requests_are_shown_in_order_of_arrival() -> None:
    sessions = [asking(name, command(name, "ls", ago=ago)) for name, ago in (("b", 20), ("c", 5), ("a", 60))]
    async with kasmon(fleet(*sessions)).run_test() as pilot:
        for _ in range(3):
            await (opened(pilot) if not answers(pilot) else armed(pilot))
            await pilot.press("a")
            await pilot.pause()

        assert ["a-1", "b-1", "c-1"] == [answer.request for answer in answers(pilot)]
        assert 1 == len(pilot.app.screen_stack)


async def test_deny_opens_a_field_for_the_reason_and_sends_it() -> None:
    async with run_app(kasmon(asks()), act=opened) as pilot:
        await pilot.press("d", *"not on Friday", "enter")
        await pilot.pause()

        assert [(Decision.DENY, "not on Friday")] == [(each.decision, each.reason) for each in answers(pilot)]


async def test_an_agent_that_receives_no_reason_opens_no_field() -> None:
    async with run_app(kasmon(asks(abilities=("asks",))), act=opened) as pilot:
        assert "with a reason" not in text_of(pilot.app)
        await pilot.press("d")

        assert [(Decision.DENY, "")] == [(answer.decision, answer.reason) for answer in answers(pilot)]


async def test_a_click_sends_the_reason_too() -> None:
    async with run_app(kasmon(asks()), act=opened) as pilot:
        await pilot.press("d", *"no")
        await pilot.pause()
        rows = text_of(pilot.app).splitlines()
        x, y = next((row.index("⏎    deny"), y) for y, row in enumerate(rows) if "⏎    deny" in row)
        await pilot.click(offset=(x, y))
        await auntil(lambda: answers(pilot))

        assert [(Decision.DENY, "no")] == [(each.decision, each.reason) for each in answers(pilot)]


async def test_esc_in_the_reason_field_sends_no_answer() -> None:
    async with run_app(kasmon(asks()), act=opened) as pilot:
        await pilot.press("d", "a", "escape")
        await pilot.pause()
        assert not pilot.app.screen.query(Input)
        await pilot.press("a")

        assert [] == answers(pilot)


async def test_esc_closes_the_card_and_the_request_stays_open() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        app = cast(Kasmon, pilot.app)
        await opened(pilot)
        await pilot.press("escape")
        await pilot.pause()

        assert 1 == len(app.screen_stack)
        assert [] == answers(pilot)
        assert 1 == len(app.permissions.queue.waiting)
        assert "1 pending request" in text_of(app)


async def test_edit_shows_the_new_input_before_it_can_be_allowed() -> None:
    async with run_app(kasmon(asks(command("fix-auth", "rm -rf build"))), act=opened) as pilot:
        await pilot.press("e")
        pilot.app.screen.query_one(TextArea).text = "rm -r build/cache"
        await pilot.press("escape", "a")
        await pilot.pause()
        assert [] == answers(pilot)
        assert "will run instead" in text_of(pilot.app)
        assert "build/cache" in text_of(pilot.app)

        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert [(Decision.EDIT, {"command": "rm -r build/cache"})] == [
            (each.decision, each.input) for each in answers(pilot)
        ]


async def test_esc_discards_the_edit_and_the_request_is_unchanged() -> None:
    async with run_app(kasmon(asks(command("fix-auth", "rm -rf build"))), act=opened) as pilot:
        await pilot.press("e")
        pilot.app.screen.query_one(TextArea).text = "ls"
        await pilot.press("escape", "escape")
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()

        assert [(Decision.ALLOW, None)] == [(each.decision, each.input) for each in answers(pilot)]


async def test_esc_in_the_reason_field_returns_to_the_edited_request() -> None:
    async with run_app(kasmon(asks(command("fix-auth", "rm -rf build"))), act=opened) as pilot:
        await pilot.press("e")
        pilot.app.screen.query_one(TextArea).text = "ls"
        await pilot.press("escape")
        await armed(pilot)
        await pilot.press("d", "x", "escape")
        await armed(pilot)

        assert "will run instead" in text_of(pilot.app)


async def test_an_invalid_edit_stays_in_the_box_with_the_reason() -> None:
    ask = request("fix-auth", tool="Fetch", input={"url": "https://example.com"})
    async with run_app(kasmon(asks(ask)), act=opened) as pilot:
        await pilot.press("e")
        pilot.app.screen.query_one(TextArea).text = '{"url": '
        await pilot.press("escape")
        await pilot.pause()

        assert "this is not valid JSON" in text_of(pilot.app)
        assert '{"url": ' == pilot.app.screen.query_one(TextArea).text


async def test_an_edit_is_shown_as_a_diff() -> None:
    async with run_app(kasmon(asks(change("fix-auth"))), act=opened) as pilot:
        assert '42 -    name = Column("name", widest)' in text_of(pilot.app)


async def test_a_long_request_is_allowed_only_after_its_end_was_shown() -> None:
    async with run_app(kasmon(asks(command("fix-auth", "; ".join([RISKY] * 2)))), (80, 24), act=opened) as pilot:
        assert "more lines)" in text_of(pilot.app)
        await pilot.press("a", "A", "e")
        await pilot.pause()
        assert [] == answers(pilot)
        assert not pilot.app.screen.query(TextArea)

        await pilot.press("end")
        await pilot.pause()
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert 1 == len(answers(pilot))


@pytest.mark.parametrize("ask", [command("a", "make"), question("a"), question("a", many=True), plan("a")])
def test_the_exact_number_of_hidden_rows_is_shown_only_if_rows_are_hidden(ask: Request) -> None:
    """Else the line that says it makes room for the rows that it tells of, and both come and go by turns."""
    look = ThemeStyles(shipped(DEFAULT))
    for rows, ahead in ((many, ahead) for many in (1, 2, 3, 4, 5, 7, 12, 19) for ahead in range(1, many + 1)):
        state = CardState(sheet=sheet(ask, ()), session=None, place=1, waiting=1, rows=rows, ahead=ahead)
        laid = [lay_out(state, look, KeyMap(), NOW, (53, height)) for height in range(8, 40)]
        for height, card in ((8 + number, card) for number, card in enumerate(laid) if card.fits):
            said = "".join(text for line in card.notes for text, _ in line.left)
            below = ahead - card.body_rows
            assert (f"({below} more line" in said) == (below > 0) == ("more line" in said)
            assert height == len(card.head) + len(card.notes) + len(card.choices) + card.body_rows


async def test_in_a_low_window_a_card_keeps_its_size_and_shows_all_that_fits() -> None:
    async with run_app(kasmon(asks(question("fix-auth"))), (60, 16), act=opened) as pilot:
        shown = text_of(pilot.app)

        for line in ("Which database", "needs no", "server.", "3 ○ A plain", "submit selection", "Snooze", "close"):
            assert line in shown


async def test_a_long_request_may_be_denied_without_reading() -> None:
    async with run_app(kasmon(asks(command("fix-auth", RISKY))), (80, 24), act=opened) as pilot:
        await pilot.press("d", "enter")
        await pilot.pause()

        assert [Decision.DENY] == [answer.decision for answer in answers(pilot)]


@pytest.mark.parametrize("key", ["a", "A"])
async def test_hidden_characters_are_shown_and_allowed_only_by_typing_the_tools_letters(key: str) -> None:
    async with run_app(kasmon(asks(command("fix-auth", HIDDEN))), act=opened) as pilot:
        assert "hidden characters" in text_of(pilot.app)
        assert "notes⟨U+202E⟩txt.sh⟨U+200B⟩" in text_of(pilot.app)
        await pilot.press(key, "a", key)
        await pilot.pause()
        assert [] == answers(pilot)

        await armed(pilot)
        await pilot.press("x", "b", "a")
        assert [] == answers(pilot)
        await pilot.press("s")
        await pilot.pause()
        assert [Decision.ALLOW if key == "a" else Decision.ALWAYS] == [each.decision for each in answers(pilot)]


async def test_a_tools_letters_may_be_keys_that_scroll() -> None:
    hidden = command("fix-auth", HIDDEN, tool="Skjold")
    async with run_app(kasmon(asks(hidden))) as pilot:
        await pilot.press("i")
        await armed(pilot)
        await pilot.press("a")
        await armed(pilot)
        await pilot.press(*"skj")
        await pilot.pause()

        assert [Decision.ALLOW] == [answer.decision for answer in answers(pilot)]


async def test_secrets_are_not_on_the_card_and_make_no_rule() -> None:
    app = kasmon(
        asks(command("fix-auth", f"curl -H 'Bearer {KEY}' --user hunter2hunter2 x")), secrets=["hunter2hunter2"]
    )
    async with run_app(app, act=opened) as pilot:
        text = text_of(app)
        assert KEY not in text
        assert "hunter2" not in text
        assert "2 secrets redacted" in text
        assert "Always" not in text

        await pilot.press("A")
        assert [] == answers(pilot)


async def test_an_edit_sends_the_secrets_that_it_hid() -> None:
    async with run_app(kasmon(asks(command("fix-auth", f"curl -H 'Bearer {KEY}' x"))), act=opened) as pilot:
        await pilot.press("e")
        box = pilot.app.screen.query_one(TextArea)
        assert KEY not in box.text
        box.text = box.text.removesuffix("x") + "y"
        await pilot.press("escape")
        await armed(pilot)
        assert KEY not in text_of(pilot.app)
        await pilot.press("a")
        await pilot.pause()

        assert [{"command": f"curl -H 'Bearer {KEY}' y"}] == [answer.input for answer in answers(pilot)]


async def test_a_question_is_answered_by_digit_and_enter() -> None:
    async with run_app(kasmon(asks(question("fix-auth"))), act=opened) as pilot:
        await pilot.press("enter")
        assert [] == answers(pilot)
        await pilot.press("2", "enter")
        await pilot.pause()

        assert [("DuckDB, one more dependency",)] == [answer.labels for answer in answers(pilot)]


async def test_a_question_is_answered_by_arrows() -> None:
    async with run_app(kasmon(asks(question("fix-auth"))), act=opened) as pilot:
        await pilot.press("up", "space", "enter")
        await pilot.pause()

        assert [("A plain JSON file",)] == [answer.labels for answer in answers(pilot)]


async def test_a_question_may_take_several_answers() -> None:
    async with run_app(kasmon(asks(question("fix-auth", many=True))), act=opened) as pilot:
        await pilot.press("3", "1", "2", "2", "enter")
        await pilot.pause()

        expected = ("SQLite in the state folder", "A plain JSON file")
        assert [expected] == [answer.labels for answer in answers(pilot)]


async def test_each_option_of_a_question_is_shown_with_its_description() -> None:
    notes = ("No server, one file.", "", "Slow from 10,000 sessions on.")
    async with run_app(kasmon(asks(question("fix-auth", option_notes=notes))), act=opened) as pilot:
        lines = text_of(pilot.app).splitlines()
        row = next(y for y, line in enumerate(lines) if "SQLite in the state folder" in line)

        assert notes[0] in lines[row + 1]
        assert "DuckDB" in lines[row + 2]
        assert notes[2] in text_of(pilot.app)


async def test_a_question_may_be_answered_with_free_text() -> None:
    async with run_app(kasmon(asks(question("fix-auth", free_text=True))), act=opened) as pilot:
        assert "4 ○ Custom answer" in text_of(pilot.app)
        await pilot.press("2", "o", *"none of them", "enter", "enter")
        assert [] == answers(pilot)
        assert "4 ◉ none of them" in text_of(pilot.app)
        await armed(pilot)
        await pilot.press("enter")
        await pilot.pause()

        assert [(Decision.CHOOSE, (), "none of them")] == [
            (each.decision, each.labels, each.text) for each in answers(pilot)
        ]


async def test_free_text_is_offered_beside_options_when_several_are_allowed() -> None:
    asked = question("fix-auth", free_text=True, many=True)
    async with run_app(kasmon(asks(asked)), act=opened) as pilot:
        await pilot.press("1", "4", *"and backups", "enter")
        await armed(pilot)
        await pilot.press("enter")
        await pilot.pause()

        sent = [(each.labels, each.text) for each in answers(pilot)]
        assert [(("SQLite in the state folder",), "and backups")] == sent


async def test_a_question_without_options_accepts_text_and_esc_cancels_it() -> None:
    async with run_app(kasmon(asks(question("fix-auth", options=()))), act=opened) as pilot:
        await pilot.press("o", "x", "escape")
        await armed(pilot)
        await pilot.press("enter")
        assert [] == answers(pilot)
        await pilot.press("o", *"Friday", "enter")
        await armed(pilot)
        await pilot.press("enter")
        await pilot.pause()

        assert [((), "Friday")] == [(each.labels, each.text) for each in answers(pilot)]


async def test_a_question_without_free_text_has_no_line_for_it() -> None:
    async with run_app(kasmon(asks(question("fix-auth"))), act=opened) as pilot:
        await pilot.press("o", "4", "enter")
        await pilot.pause()

        assert not pilot.app.screen.query(Input)
        assert [] == answers(pilot)


async def test_a_plan_is_approved_or_rejected() -> None:
    async with run_app(kasmon(asks(plan("fix-auth"))), act=opened) as pilot:
        assert "Approve the plan" in text_of(pilot.app)
        await pilot.press("A", "e")
        assert [] == answers(pilot)
        await pilot.press("d", *"smaller", "enter")
        await pilot.pause()

        assert [(Decision.DENY, "smaller")] == [(each.decision, each.reason) for each in answers(pilot)]


async def test_a_request_that_kasmon_cannot_answer_offers_its_terminal() -> None:
    async with run_app(kasmon(asks(login("fix-auth"))), act=opened) as pilot:
        assert "kasmon cannot answer this request" in text_of(pilot.app)
        await pilot.press("a", "A", "d", "e")
        assert [] == answers(pilot)
        await pilot.press("enter")
        await pilot.pause()

        assert 1 == len(pilot.app.screen_stack)
        assert cast(Kasmon, pilot.app).main_view.has_class("-inside")


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        (
            ClosedRequest(id=RequestId("fix-auth-1"), decision=Decision.ALLOW, by="user", at=NOW),
            "Allowed once by you, elsewhere.",
        ),
        (ClosedRequest(id=RequestId("fix-auth-1"), decision=Decision.DENY, by="policy", at=NOW), "Denied by a rule."),
        (
            ClosedRequest(
                id=RequestId("fix-auth-1"), decision=Decision.NEVER, by="user", at=NOW, who="/dev/pts/3 (pid 12)"
            ),
            "Always denied by user at /dev/pts/3 (pid 12).",
        ),
        (
            ClosedRequest(id=RequestId("fix-auth-1"), decision=Decision.CANCEL, by="user", at=NOW),
            "Denied and interrupted by you, elsewhere.",
        ),
        (
            ClosedRequest(id=RequestId("fix-auth-1"), decision=None, by="the turn ended", at=NOW),
            "Withdrawn: the turn ended.",
        ),
    ],
)
async def test_a_request_answered_elsewhere_reports_that_and_accepts_no_answer(
    closed: ClosedRequest, words: str
) -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await show(pilot, fleet(idle("fix-auth", closed=(closed,)), working("docs")))
        assert words in text_of(pilot.app)
        assert not card.is_armed
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()

        assert [] == answers(pilot)
        assert 1 == len(pilot.app.screen_stack)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_an_open_card_does_not_prevent_quitting(key: str) -> None:
    """Also right after the last request was answered elsewhere: no key is lost on what is over."""
    async with run_app(kasmon(asks()), act=opened) as pilot:
        await show(pilot, fleet(idle("fix-auth"), working("docs")))
        await pilot.press(key)
        await auntil(lambda: not pilot.app.is_running, what="its end")

        assert [] == answers(pilot)


async def test_in_a_text_field_q_is_a_letter() -> None:
    async with run_app(kasmon(asks(command("fix-auth", HIDDEN, tool="Qsort"))), act=opened) as pilot:
        await pilot.press("d", "q")
        assert "q" == pilot.app.screen.query_one(Input).value
        await pilot.press("escape")
        await armed(pilot)
        await pilot.press("a")
        await armed(pilot)
        await pilot.press(*"qso")
        await pilot.pause()

        assert [Decision.ALLOW] == [answer.decision for answer in answers(pilot)]


async def test_a_partly_typed_reason_is_discarded_when_the_request_closes() -> None:
    async with run_app(kasmon(asks()), act=opened) as pilot:
        await pilot.press("d", *"no")
        await show(pilot, fleet(idle("fix-auth"), working("docs")))
        await pilot.press("enter")
        await pilot.pause()

        assert [] == answers(pilot)


async def test_a_refused_answer_restores_the_request_with_the_reason() -> None:
    async with kasmon(asks()).run_test(size=(120, 40), notifications=True) as pilot:
        gateway_of(pilot.app).refusing = StaleRequestError("fix-auth-1")
        await opened(pilot)
        await pilot.press("a")
        await pilot.pause()
        await pilot.pause()

        app = cast(Kasmon, pilot.app)
        assert [RequestId("fix-auth-1")] == [ask.id for ask in app.permissions.queue.waiting]
        assert "Request 'fix-auth-1' has changed since it was" in text_of(app)


async def test_a_click_counts_like_its_key_and_only_when_keys_count() -> None:
    async with run_app(kasmon(asks())) as pilot:
        await pilot.press("i")
        await pilot.pause()
        row = next(y for y, line in enumerate(text_of(pilot.app).splitlines()) if "Allow once" in line)
        column = text_of(pilot.app).splitlines()[row].index("Allow once")
        await pilot.click(offset=(column, row))
        assert [] == answers(pilot)

        await armed(pilot)
        await pilot.click(offset=(column, row))
        await pilot.pause()
        assert 1 == len(answers(pilot))


@pytest.mark.parametrize(
    ("word", "then"),
    [("Deny with a reason", "REASONING"), ("Edit, then allow", "EDITING"), ("Snooze", ""), ("close", "")],
)
async def test_on_a_line_with_several_keys_a_click_means_the_one_under_it(word: str, then: str) -> None:
    async with run_app(kasmon(asks())) as pilot:
        await pilot.press("i")
        card = await armed(pilot)
        row = next(y for y, line in enumerate(text_of(pilot.app).splitlines()) if word in line)
        await pilot.click(offset=(text_of(pilot.app).splitlines()[row].index(word), row))
        await pilot.pause()

        if then:
            assert then == card.view.state.doing.name
        else:
            assert ([Decision.LATER] if word == "Snooze" else []) == [answer.decision for answer in answers(pilot)]
            assert 1 == len(pilot.app.screen_stack)


async def test_typing_while_a_card_opens_sends_no_answer() -> None:
    """Fifteen characters at 40 ms each, whenever the card comes up among them."""
    typed = "yes please aAdy"
    for at in range(0, len(typed), 3):
        async with kasmon(fleet(working("docs"))).run_test() as pilot:
            app = cast(Kasmon, pilot.app)
            await settled(pilot)
            clock = clock_of(pilot)
            for number, character in enumerate(typed):
                if number == at:
                    await show(pilot, fleet(working("docs"), asking("fix-auth")))
                    app.permissions.open()
                    await pilot.pause()
                clock.ticked += 0.04
                await pilot.press("space" if character == " " else character)

            assert [] == answers(pilot)


async def test_a_changed_text_is_another_request_and_the_old_one_is_void() -> None:
    old, new = command("fix-auth", "ls"), command("fix-auth", "rm -rf /", 2)
    async with kasmon(asks(old)).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await show(pilot, asks(new))
        assert old == card.request
        await pilot.press("a")
        await pilot.pause()

        assert [] == answers(pilot)


async def test_later_requests_are_shown_after_the_others() -> None:
    aside = msgspec.structs.replace(command("fix-auth", "ls", ago=60), later=True)
    other = command("fix-auth", "make", 2, ago=5)
    async with kasmon(asks(aside, other)).run_test() as pilot:
        card = await opened(pilot)

        assert other == card.request


async def test_after_an_answer_the_same_sessions_next_request_has_priority() -> None:
    mine = (command("fix-auth", "ls", ago=90), command("fix-auth", "make", 2, ago=5))
    async with kasmon(fleet(asking("fix-auth", *mine, ago=90), asking("web", ago=60))).run_test() as pilot:
        card = await opened(pilot)
        await pilot.press("a")
        await pilot.pause()

        assert mine[1] == card.request


async def test_a_card_that_moves_on_to_another_session_shows_that() -> None:
    async with run_app(kasmon(fleet(asking("fix-auth", ago=90), asking("web", ago=60))), act=opened) as pilot:
        assert "another session" not in text_of(pilot.app)
        await pilot.press("right")
        await armed(pilot)

        assert " another session   not fix-auth" in text_of(pilot.app)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("git push origin main", "only here: staging"),
        ("git push origin staging --force", "not here: --force"),
        ("git push origin staging", "same text"),
        ("git  push origin staging", "differs in whitespace, in a secret, or further down"),
    ],
)
async def test_a_card_marks_the_difference_to_a_nearly_equal_request(there: str, said: str) -> None:
    one, other = command("fix-auth", "git push origin staging", ago=90), command("web", there, ago=60)
    async with kasmon(fleet(asking("fix-auth", one, ago=90), asking("web", other, ago=60))).run_test(
        size=(120, 40)
    ) as pilot:
        await opened(pilot)

        assert f" looks like 2, web   {said}" in text_of(pilot.app)


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (
            "curl https://a1.example.com/api/v1/upload?x=1 --data @file-1.json",
            "curl https://a2.example.com/api/v1/upload?x=1 --data @file-2.json",
            "only here: a1, 1",
        ),
        (
            "rm -rf /srv/app-1/build && make -C /srv/app-1 release",
            "rm -rf /srv/app-2/build && make -C /srv/app-2 release",
            "only here: 1, 1",
        ),
        ("cd /home/you/a && git push origin main", "cd /home/you/b && git push origin prod", "only here: a, main"),
        (
            "psql -h staging shop -c 'drop table orders'",
            "psql -h prod shop -c 'drop table order' -q",
            "only here: staging, orders; not here: -q",
        ),
    ],
)
async def test_a_card_marks_all_differences_in_several_places(here: str, there: str, said: str) -> None:
    one, other = command("fix-auth", here, ago=90), command("web", there, ago=60)
    async with kasmon(fleet(asking("fix-auth", one, ago=90), asking("web", other, ago=60))).run_test(
        size=(120, 40)
    ) as pilot:
        await opened(pilot)

        assert f" looks like 2, web   {said}" in text_of(pilot.app)


async def test_a_unique_request_has_no_marks() -> None:
    asks = fleet(asking("fix-auth", ago=90), asking("web", command("web", "ls", ago=60)))
    async with run_app(kasmon(asks), act=opened) as pilot:
        assert "looks like" not in text_of(pilot.app)


async def test_requests_with_unknown_text_are_not_reported_as_equal() -> None:
    one, other = (msgspec.structs.replace(login(name), shown="") for name in ("fix-auth", "web"))
    async with run_app(kasmon(fleet(asking("fix-auth", one), asking("web", other))), act=opened) as pilot:
        assert "kasmon cannot answer this request" in text_of(pilot.app)
        assert "looks like" not in text_of(pilot.app)


async def test_a_secret_difference_is_not_on_the_card() -> None:
    """Also where the two begin alike, and what is left of one has no secret's shape any more."""
    asks = [command(name, f"curl -u key {key}") for name, key in (("one", KEY), ("two", KEY[:3] + "9" * len(KEY[3:])))]
    app = kasmon(fleet(*(asking(str(ask.session), ask) for ask in asks)))
    async with run_app(app, act=opened):
        assert "looks like 2, two   differs in whitespace, in a secret" in text_of(app)
        assert not [part for part in (KEY[3:], "9999999") if part in text_of(app)]


async def test_a_card_that_continues_below_shows_the_key_to_scroll() -> None:
    """One that chooses nothing, and that is in force."""
    long = "\n".join(f"echo {number}" for number in range(60))
    app = kasmon(asks(command("fix-auth", long)), settings=DashboardSettings(keys={"read_on": "tab"}))
    async with run_app(app, (80, 24)) as pilot:
        await pilot.press("i")
        await armed(pilot)
        assert "tab scrolls; approve at the end" in text_of(pilot.app)
        card = cast(Kasmon, pilot.app).permissions.card
        assert card is not None
        while not card.view.body.seen_end:
            await pilot.press("tab")
        await armed(pilot)

        assert "reads on" not in text_of(pilot.app)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (44, 20)])
async def test_in_any_window_the_session_and_all_answers_are_visible(size: tuple[int, int]) -> None:
    """The rule to its last word, too."""
    rule = "Bash(git push --force-with-lease origin main && curl -fsS https://a.example)"
    async with run_app(kasmon(asks(command("fix-auth", "make", rule=rule))), size) as pilot:
        await pilot.press("i")
        await armed(pilot)
        text = " ".join(text_of(pilot.app).replace("│", " ").split())

        for words in ("permission", "fix-auth", "make", "Allow once", "Deny", "Edit, then allow", "Snooze", "close"):
            assert words in text
        assert f"Always: {rule}" in text


@pytest.mark.parametrize("size", [(120, 40), (60, 20)])
async def test_an_answer_to_choose_is_shown_whole(size: tuple[int, int]) -> None:
    options = ("Keep it", f"Drop the old index {'and build a new one ' * 6}tonight")
    shown = question("fix-auth", options=options, shown="Which?", title="Which?")
    async with run_app(kasmon(asks(shown)), size) as pilot:
        await pilot.press("i")
        card = await armed(pilot)
        while not card.view.body.seen_end:
            await pilot.press("pagedown")
        await armed(pilot)
        lines = text_of(pilot.app).splitlines()
        assert any("tonight" in line for line in lines)
        row = max(y for y, line in enumerate(lines) if "tonight" in line)
        await pilot.click(offset=(lines[row].index("tonight"), row))
        await pilot.press("enter")
        await pilot.pause()

        assert [(options[1],)] == [answer.labels for answer in answers(pilot)]


async def test_in_a_window_too_small_for_a_request_no_key_answers_it() -> None:
    """Until it is larger; Esc closes it as ever."""
    async with kasmon(asks()).run_test(size=(40, 10)) as pilot:
        app = cast(Kasmon, pilot.app)
        await auntil(lambda: app.has_fleet)
        await pilot.press("i")
        card = await auntil(lambda: app.permissions.card)
        await pilot.pause()
        clock_of(pilot).ticked += 5.0
        for _ in range(3):
            card.view.update_armed()
        await pilot.pause()
        assert "Make it larger to answer. esc close" in " ".join(text_of(pilot.app).replace("│", " ").split())
        await pilot.press("a", "z")
        assert [] == answers(pilot)

        await pilot.resize_terminal(80, 24)
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert 1 == len(answers(pilot))


async def test_a_rule_too_long_for_the_window_is_not_made_and_other_answers_work() -> None:
    shown = command("fix-auth", "make", rule="Bash commands " + "and more " * 400)
    async with run_app(kasmon(asks(shown)), (80, 24)) as pilot:
        await pilot.press("i")
        await armed(pilot)
        assert "the rule is too long for this window" in text_of(pilot.app)
        await pilot.press("A")
        assert [] == answers(pilot)

        await pilot.press("a")
        await pilot.pause()
        assert [Decision.ALLOW] == [answer.decision for answer in answers(pilot)]


async def test_answers_too_long_for_the_foot_are_in_the_text() -> None:
    options = tuple(f"{'a way that is told at length ' * 20}and ends in {end}" for end in ("joy", "tears"))
    async with run_app(kasmon(asks(question("fix-auth", options=options))), (80, 24)) as pilot:
        await pilot.press("i")
        card = await armed(pilot)
        read = " ".join(line.text for line in card.view.body._drawn)

        assert "ends in joy" in read
        assert "ends in tears" in read
        assert "submit selection" in text_of(pilot.app)


@pytest.mark.parametrize("columns", [80, 120])
async def test_the_actions_of_the_keys_are_one_per_line(columns: int) -> None:
    async with kasmon(asks()).run_test(size=(columns, 40)) as pilot:
        await opened(pilot)
        rows = text_of(pilot.app).splitlines()
        begins = [row.index(word) for word in ("Allow once", "Deny with", "close") for row in rows if word in row]

        assert 3 == len(begins)
        assert 1 == len(set(begins))


PLAIN = command("fix-auth", "make", choices=(Decision.ALLOW, Decision.DENY), rule="")
LONG = command("fix-auth", "; ".join([RISKY] * 3))


@pytest.mark.parametrize(
    ("asked", "reasons"),
    [
        (
            command("fix-auth", "ls"),
            {
                "enter": "Enter never approves: a allows once, d denies.",
                "y": "y does nothing here: a allows once, d denies.",
                "T": "No similar pending requests.",
            },
        ),
        (
            PLAIN,
            {
                "A": "Not accepted here. The agent accepts: allow, deny.",
                "e": "The agent accepts no edited input for this request.",
                "D": "Not accepted here. The agent accepts: allow, deny.",
                "s": "No rule can be created from this request.",
            },
        ),
        (command("fix-auth", f"curl -H {KEY}"), {"A": "No rule can be created from a request with a secret."}),
        (LONG, dict.fromkeys("ae", "Scroll to the end first: there is more below.")),
        (
            question("fix-auth"),
            {"a": "This is a question: choose an answer, then press Enter.", "enter": "Mark an answer first."},
        ),
        (
            login("fix-auth"),
            {
                "a": "Answer this request in the agent's terminal: Enter opens it.",
                "y": "y does nothing here: Enter opens the agent's terminal.",
            },
        ),
        (command("fix-auth", "ls", choices=(Decision.DENY,)), {"y": "y does nothing here: d denies."}),
    ],
    ids=["plain", "no rule", "secret", "unread", "question", "login", "deny only"],
)
async def test_a_key_that_does_not_count_gives_the_reason_and_the_next_one_clears_it(
    asked: Request, reasons: dict[str, str]
) -> None:
    async with run_app(kasmon(asks(asked)), (100, 30), act=opened) as pilot:
        before = text_of(pilot.app).splitlines()
        for key, why in reasons.items():
            await pilot.press(key)
            await pilot.pause()
            after = text_of(pilot.app).splitlines()
            assert why in "\n".join(after), key
            assert not any(other in "\n".join(after) for other in reasons.values() if other != why), key
            assert [] == answers(pilot)
            assert 1 == sum(one != other for one, other in zip(before, after, strict=True)), "nothing moves"

        await pilot.press("z")
        await pilot.pause()
        assert why not in text_of(pilot.app)


async def test_a_key_pressed_too_early_is_reported() -> None:
    async with run_app(kasmon(asks())) as pilot:
        await pilot.press("i")
        await pilot.pause()
        await pilot.press("a")
        await pilot.pause()
        assert "Wait: the card just changed. Keys work once it shows ready." in text_of(pilot.app)
        assert [] == answers(pilot)


async def test_in_the_smallest_window_the_reason_takes_the_last_row() -> None:
    async with run_app(kasmon(asks()), (50, 16), act=opened) as pilot:
        await pilot.press("y")
        await pilot.pause()

        assert "y does nothing here" in text_of(pilot.app)
        assert "Allow once" in text_of(pilot.app)
