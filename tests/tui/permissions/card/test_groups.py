"""Several requests that are alike, answered by one key after all of them were read."""

import pytest
from textual.pilot import Pilot

from kasmon.model.fleet import Fleet
from kasmon.model.permission import Decision, Request
from kasmon.model.request_groups import find_group
from kasmon.tui.app import Kasmon
from kasmon.tui.permissions.card.card import PermissionCard
from tests.support.dashboard_scenes import HIDDEN, armed, kasmon, run_app
from tests.support.sample_fleet import asking, change, command, fleet, idle, question
from tests.support.tui.fake_gateway import gateway_of, text_of
from tests.support.wait import auntil
from tests.tui.permissions.card.test_card import answers, opened, show

RULE = "Bash(git push:*)"


def push(name: str, to: str = "main", number: int = 1, *, ago: float = 10.0) -> Request:
    return command(name, f"git push origin {to}", number, ago=ago, rule=RULE)


ONE, TWO, THREE = push("a", ago=30), push("b", "docs", ago=20), push("c", ago=10)
OTHER = command("d", "rm -rf build", ago=5)


def crowd(*requests: Request) -> Fleet:
    return fleet(*(asking(ask.session, ask) for ask in requests))


async def listed(pilot: Pilot[None]) -> PermissionCard:
    """The card with the list of those alike, armed."""
    await opened(pilot)
    await pilot.press("T")
    return await armed(pilot)


def test_equal_requests_have_the_same_text_or_match_the_same_rule() -> None:
    same = command("x", "make", rule=""), command("y", "make", rule="")
    waiting = (ONE, TWO, THREE, OTHER, *same)

    assert (ONE, TWO, THREE) == find_group(ONE, waiting)
    assert same == find_group(same[0], waiting)
    assert () == find_group(OTHER, waiting)


def test_a_request_to_be_decided_alone_is_never_in_a_group() -> None:
    hidden = command("x", HIDDEN, rule=""), command("y", HIDDEN, rule="")
    asks = question("x"), question("y")
    another_tool = command("z", "git push origin main", tool="Run", rule=RULE)

    assert () == find_group(hidden[0], hidden)
    assert () == find_group(asks[0], asks)
    assert () == find_group(ONE, (ONE, another_tool))


async def test_the_group_shows_each_request_whole_and_one_key_answers_each() -> None:
    async with run_app(kasmon(crowd(ONE, TWO, THREE, OTHER)), act=opened) as pilot:
        assert "T  answer 3 similar" in text_of(pilot.app)
        await pilot.press("T")
        card = await armed(pilot)
        read = "\n".join(line.text for line in card.view.body._drawn)
        for name in "abc":
            assert f"{name}  claude in /home/you/project" in read
        assert ("docs" in read, read.count("push")) == (True, 3)
        assert "rm" not in read
        assert "Allow these 3 once" in text_of(pilot.app)
        await pilot.press("a")
        await pilot.pause()

        expected = [(ask.id, ask.digest, Decision.ALLOW) for ask in (ONE, TWO, THREE)]
        assert expected == [(each.request, each.digest, each.decision) for each in answers(pilot)]
        assert OTHER == card.request


async def test_the_whole_group_is_denied_with_one_reason() -> None:
    async with kasmon(crowd(ONE, TWO)).run_test(size=(120, 40)) as pilot:
        await listed(pilot)
        await pilot.press("d", *"no", "enter")
        await pilot.pause()

        assert [(Decision.DENY, "no")] * 2 == [(each.decision, each.reason) for each in answers(pilot)]
        assert 1 == len(pilot.app.screen_stack)


async def test_a_group_accepts_only_once_and_deny() -> None:
    async with kasmon(crowd(ONE, TWO)).run_test(size=(120, 40)) as pilot:
        card = await listed(pilot)
        for key in ("enter", "A", "D", "c", "e", "z", "s", "T", "right", "1"):
            await pilot.press(key)
            await pilot.pause()

            assert [] == answers(pilot), key
            assert "TOGETHER" == card.view.state.doing.name, key


async def test_keys_of_the_group_do_not_count_at_first_and_it_is_allowed_only_after_its_end_was_shown() -> None:
    many = [push(name, to="x" * 40, ago=40 - at) for at, name in enumerate("abcdefgh")]
    async with run_app(kasmon(crowd(*many)), (80, 24), act=opened) as pilot:
        await pilot.press("T", "a")
        assert [] == answers(pilot)
        card = await armed(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert [] == answers(pilot)

        await pilot.press("end")
        await auntil(lambda: card.view.body.seen_end, what="the end")
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert 8 == len(answers(pilot))


async def test_esc_closes_the_group_without_an_answer() -> None:
    async with kasmon(crowd(ONE, TWO)).run_test(size=(120, 40)) as pilot:
        await listed(pilot)
        await pilot.press("d", "x", "escape", "escape")
        card = await armed(pilot)
        assert ("READING", []) == (card.view.state.doing.name, answers(pilot))
        await pilot.press("a")
        await pilot.pause()

        assert [ONE.id] == [each.request for each in answers(pilot)]


@pytest.mark.parametrize("first", [True, False], ids=["the first", "another"])
async def test_a_request_that_changed_meanwhile_is_left_out_and_reported(first: bool) -> None:
    """A changed request is another one; the list does not change under the person."""
    changed, kept = (ONE, TWO) if first else (TWO, ONE)
    anew = push(changed.session, "production", 2, ago=1)
    async with kasmon(crowd(ONE, TWO, THREE)).run_test(size=(120, 40)) as pilot:
        card = await listed(pilot)
        await show(pilot, crowd(anew, kept, THREE))
        text = text_of(pilot.app)
        assert f"1 of these was changed or withdrawn and will not be answered: {changed.session}" in text
        assert "production" not in "".join(line.text for line in card.view.body._drawn)
        await pilot.press("a")
        assert [] == answers(pilot)
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()

        assert {kept.id, THREE.id} == {each.request for each in answers(pilot)}


async def test_a_group_without_open_requests_closes() -> None:
    async with kasmon(crowd(ONE, TWO)).run_test(size=(120, 40)) as pilot:
        card = await listed(pilot)
        await show(pilot, fleet(idle("a"), idle("b")))
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()

        assert ("OVER", []) == (card.view.state.doing.name, answers(pilot))


async def test_a_session_with_unknown_secrets_is_not_in_the_group() -> None:
    app = kasmon(crowd(ONE))
    async with run_app(app, act=opened) as pilot:
        gateway = gateway_of(app)
        gateway.holding_cards = True
        gateway.fleets.put_nowait(crowd(ONE, TWO))
        await pilot.pause()
        assert "similar" not in text_of(pilot.app)

        gateway_of(app).let_cards_go()
        await auntil(lambda: "2 similar" in text_of(pilot.app), what="two")


async def test_edits_of_one_file_are_listed_with_their_diffs() -> None:
    async with kasmon(crowd(change("a"), change("b"))).run_test(size=(120, 40)) as pilot:
        card = await listed(pilot)

        assert 2 == "\n".join(line.text for line in card.view.body._drawn).count(
            '42 -    name = Column("name", widest)'
        )
        assert isinstance(pilot.app, Kasmon)
