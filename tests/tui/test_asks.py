"""The card: one request, all of it, and keys that count only when they are meant."""

from typing import Any, cast

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from kasmon.errors import StaleRequestError
from kasmon.model.command import Answer
from kasmon.model.fleet import Fleet
from kasmon.model.permission import Closed, Decision, Request, RequestId, SessionId
from kasmon.tui.app import Kasmon
from kasmon.tui.asks import AskCard
from kasmon.tui.world import Tell
from tests.fleets import NOW, StillClock, asking, change, command, fleet, idle, login, plan, question, request, working
from tests.scenes import HIDDEN, RISKY, armed, kasmon, settled
from tests.tui.worlds import StillWorld, text_of

FIRST = RequestId("fix-auth-1")
KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


def world_of(pilot: Pilot[None]) -> StillWorld:
    return cast(StillWorld, cast(Kasmon, pilot.app).world)


def clock_of(pilot: Pilot[None]) -> StillClock:
    return cast(StillClock, cast(Kasmon, pilot.app).clock)


def answers(pilot: Pilot[None]) -> list[Answer]:
    """What was answered so far."""
    told = [wanted.wish for wanted in world_of(pilot).wished if isinstance(wanted, Tell)]
    return [wish for wish in told if isinstance(wish, Answer)]


async def opened(pilot: Pilot[None]) -> AskCard:
    """The card, open and armed."""
    await settled(pilot)
    await pilot.press("i")
    return await armed(pilot)


async def show(pilot: Pilot[None], now: Fleet) -> None:
    cast(Kasmon, pilot.app)._take(now)
    await pilot.pause()


def asks(*requests: Request, **fields: Any) -> Fleet:
    return fleet(asking("fix-auth", *requests, **fields), working("docs"))


async def test_the_whole_request_stands_on_the_card() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        text = text_of(pilot.app)

        for part in ("permission", "fix-auth", "claude · sdk", "asked 12s ago", "Bash", "-rf", "&& make", "release"):
            assert part in text
        assert "Always: Bash commands that begin with “rm”, in this session" in text
        assert "● ready" in text


@pytest.mark.parametrize(("key", "decision"), [("a", Decision.ALLOW), ("A", Decision.ALWAYS), ("z", Decision.LATER)])
async def test_one_key_answers_with_id_and_digest(key: str, decision: Decision) -> None:
    ask = command("fix-auth", "rm -rf build")
    async with kasmon(asks(ask)).run_test() as pilot:
        await opened(pilot)
        await pilot.press(key)
        await pilot.pause()

        assert [Answer(request=ask.id, digest=ask.digest, decision=decision)] == answers(pilot)


@pytest.mark.parametrize("key", ["enter", "space", "y", "tab", "shift+enter", "ctrl+j", "right"])
async def test_no_other_key_approves(key: str) -> None:
    """Enter never does."""
    async with kasmon(asks()).run_test() as pilot:
        await opened(pilot)
        await pilot.press(key, key)

        assert [] == answers(pilot)


async def test_the_card_is_deaf_when_it_appears_and_says_so() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
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


async def test_it_is_deaf_again_after_the_count_changed() -> None:
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


async def test_it_is_deaf_again_after_a_resize() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await pilot.resize_terminal(100, 40)
        await pilot.pause()

        assert not card.is_armed


async def test_the_shown_request_never_changes_under_the_person() -> None:
    shown, newer, older = (command(name, name, ago=ago) for name, ago in (("b", 20), ("c", 5), ("a", 60)))
    async with kasmon(fleet(asking("b", shown))).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await show(pilot, fleet(asking("b", shown), asking("c", newer), asking("a", older)))

        assert shown == card.request
        assert "2 of 3" in text_of(pilot.app)


async def test_requests_are_shown_first_come_first_served() -> None:
    sessions = [asking(name, command(name, "ls", ago=ago)) for name, ago in (("b", 20), ("c", 5), ("a", 60))]
    async with kasmon(fleet(*sessions)).run_test() as pilot:
        for _ in range(3):
            await (opened(pilot) if not answers(pilot) else armed(pilot))
            await pilot.press("a")
            await pilot.pause()

        assert ["a-1", "b-1", "c-1"] == [answer.request for answer in answers(pilot)]
        assert 1 == len(pilot.app.screen_stack)


async def test_deny_asks_for_a_reason_and_tells_it() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("d", *"not on Friday", "enter")
        await pilot.pause()

        assert [(Decision.DENY, "not on Friday")] == [(each.decision, each.reason) for each in answers(pilot)]


async def test_esc_in_the_reason_answers_nothing() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("d", "a", "escape")
        await pilot.pause()
        assert not pilot.app.screen.query(Input)
        await pilot.press("a")

        assert [] == answers(pilot)


async def test_esc_closes_and_the_request_waits_on() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        app = cast(Kasmon, pilot.app)
        await opened(pilot)
        await pilot.press("escape")
        await pilot.pause()

        assert 1 == len(app.screen_stack)
        assert [] == answers(pilot)
        assert 1 == len(app.inbox.queue.waiting)
        assert "1 request waits" in text_of(app)


async def test_edit_shows_what_would_run_before_it_may() -> None:
    async with kasmon(asks(command("fix-auth", "rm -rf build"))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("e")
        pilot.app.screen.query_one(TextArea).text = "rm -r build/cache"
        await pilot.press("escape", "a")
        await pilot.pause()
        assert [] == answers(pilot)
        assert "this is what would run instead" in text_of(pilot.app)
        assert "build/cache" in text_of(pilot.app)

        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert [(Decision.EDIT, {"command": "rm -r build/cache"})] == [
            (each.decision, each.input) for each in answers(pilot)
        ]


async def test_esc_drops_the_edit_and_the_request_is_as_it_was() -> None:
    async with kasmon(asks(command("fix-auth", "rm -rf build"))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("e")
        pilot.app.screen.query_one(TextArea).text = "ls"
        await pilot.press("escape", "escape")
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()

        assert [(Decision.ALLOW, None)] == [(each.decision, each.input) for each in answers(pilot)]


async def test_an_edit_that_cannot_be_stays_in_the_box_with_the_reason() -> None:
    ask = request("fix-auth", tool="Fetch", input={"url": "https://example.com"})
    async with kasmon(asks(ask)).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("e")
        pilot.app.screen.query_one(TextArea).text = '{"url": '
        await pilot.press("escape")
        await pilot.pause()

        assert "this is no JSON" in text_of(pilot.app)
        assert '{"url": ' == pilot.app.screen.query_one(TextArea).text


async def test_an_edit_stands_as_a_diff() -> None:
    async with kasmon(asks(change("fix-auth"))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)

        assert '42 -    name = Column("name", widest)' in text_of(pilot.app)


async def test_a_long_request_is_approved_only_after_its_end_was_seen() -> None:
    async with kasmon(asks(command("fix-auth", RISKY))).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
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


async def test_a_long_request_may_be_denied_unread() -> None:
    async with kasmon(asks(command("fix-auth", RISKY))).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("d", "enter")
        await pilot.pause()

        assert [Decision.DENY] == [answer.decision for answer in answers(pilot)]


@pytest.mark.parametrize("key", ["a", "A"])
async def test_hidden_characters_are_shown_and_approved_only_by_the_tools_letters(key: str) -> None:
    async with kasmon(asks(command("fix-auth", HIDDEN))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
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


async def test_secrets_are_not_on_the_card_and_no_rule_is_made_of_them() -> None:
    app = kasmon(
        asks(command("fix-auth", f"curl -H 'Bearer {KEY}' --user hunter2hunter2 x")), secrets=["hunter2hunter2"]
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        text = text_of(app)
        assert KEY not in text
        assert "hunter2" not in text
        assert "2 secrets are not shown" in text
        assert "Always" not in text

        await pilot.press("A")
        assert [] == answers(pilot)


async def test_an_edit_sends_the_secrets_that_it_did_not_show() -> None:
    async with kasmon(asks(command("fix-auth", f"curl -H 'Bearer {KEY}' x"))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
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
    async with kasmon(asks(question("fix-auth"))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        assert [] == answers(pilot)
        await pilot.press("2", "enter")
        await pilot.pause()

        assert [("DuckDB, one more dependency",)] == [answer.labels for answer in answers(pilot)]


async def test_a_question_is_answered_by_arrows() -> None:
    async with kasmon(asks(question("fix-auth"))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("up", "space", "enter")
        await pilot.pause()

        assert [("A plain JSON file",)] == [answer.labels for answer in answers(pilot)]


async def test_a_question_may_take_several_answers() -> None:
    async with kasmon(asks(question("fix-auth", many=True))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("3", "1", "2", "2", "enter")
        await pilot.pause()

        expected = ("SQLite in the state folder", "A plain JSON file")
        assert [expected] == [answer.labels for answer in answers(pilot)]


async def test_a_plan_is_approved_or_sent_back() -> None:
    async with kasmon(asks(plan("fix-auth"))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        assert "Approve the plan" in text_of(pilot.app)
        await pilot.press("A", "e")
        assert [] == answers(pilot)
        await pilot.press("d", *"smaller", "enter")
        await pilot.pause()

        assert [(Decision.DENY, "smaller")] == [(each.decision, each.reason) for each in answers(pilot)]


async def test_what_kasmon_cannot_answer_gets_an_offer_to_go_there() -> None:
    async with kasmon(asks(login("fix-auth"))).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        assert "kasmon cannot answer this one" in text_of(pilot.app)
        await pilot.press("a", "A", "d", "e")
        assert [] == answers(pilot)
        await pilot.press("enter")
        await pilot.pause()

        assert 1 == len(pilot.app.screen_stack)
        assert cast(Kasmon, pilot.app).desk.has_class("-inside")


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        (
            Closed(id=RequestId("fix-auth-1"), decision=Decision.ALLOW, by="user", at=NOW),
            "Allowed once by you, elsewhere.",
        ),
        (Closed(id=RequestId("fix-auth-1"), decision=Decision.DENY, by="policy", at=NOW), "Denied by a rule."),
        (Closed(id=RequestId("fix-auth-1"), decision=None, by="the turn ended", at=NOW), "Withdrawn: the turn ended."),
    ],
)
async def test_a_request_that_closed_elsewhere_says_so_and_takes_no_answer(closed: Closed, words: str) -> None:
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


async def test_a_reason_half_written_is_dropped_when_the_request_closes() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("d", *"no")
        await show(pilot, fleet(idle("fix-auth"), working("docs")))
        await pilot.press("enter")
        await pilot.pause()

        assert [] == answers(pilot)


async def test_an_answer_that_is_refused_brings_the_request_back_and_says_why() -> None:
    async with kasmon(asks()).run_test(size=(120, 40), notifications=True) as pilot:
        world_of(pilot).refusing = StaleRequestError("fix-auth-1")
        await opened(pilot)
        await pilot.press("a")
        await pilot.pause()
        await pilot.pause()

        app = cast(Kasmon, pilot.app)
        assert [RequestId("fix-auth-1")] == [ask.id for ask in app.inbox.queue.waiting]
        assert "is not what was shown" in text_of(app)


async def test_a_click_counts_like_its_key_and_only_when_armed() -> None:
    async with kasmon(asks()).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
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


async def test_typing_while_a_request_comes_answers_nothing() -> None:
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
                    app.inbox.open()
                    await pilot.pause()
                clock.ticked += 0.04
                await pilot.press("space" if character == " " else character)

            assert [] == answers(pilot)


async def test_changed_text_is_another_request_and_the_old_one_is_void() -> None:
    old, new = command("fix-auth", "ls"), command("fix-auth", "rm -rf /", 2)
    async with kasmon(asks(old)).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        await show(pilot, asks(new))
        assert old == card.request
        await pilot.press("a")
        await pilot.pause()

        assert [] == answers(pilot)


async def test_later_requests_come_after_the_others() -> None:
    aside = msgspec.structs.replace(command("a", "ls", ago=60), later=True)
    async with kasmon(fleet(asking("a", aside), asking("b", command("b", "ls", ago=5)))).run_test() as pilot:
        card = await opened(pilot)

        assert SessionId("b") == card.request.session
