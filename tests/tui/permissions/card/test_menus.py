"""The card of what stands on a terminal agent's screen: what its menu offers, and what became of an answer to it."""

from typing import cast

import msgspec
from textual.pilot import Pilot

from kasmon.errors import PromptChangedError
from kasmon.model.commands import Answer, Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import Decision, Request, RequestKind
from kasmon.tui.app import Kasmon
from kasmon.tui.permissions.card.card import PermissionCard
from tests.support.dashboard_scenes import armed, kasmon, run_app
from tests.support.sample_fleet import asking, fleet, idle, request, working
from tests.support.tui.fake_gateway import gateway_of, text_of
from tests.support.wait import auntil
from tests.tui.permissions.card.test_card import answers, show

RULE = "Yes, and don't ask again for: Bash(git push:*)"


def on_screen(number: int, command: str) -> Request:
    """What stands on the screen of `fix-auth`."""
    return request(
        "fix-auth",
        number,
        title="Bash command",
        shown=f"Bash command\n\n{command}\n\nDo you want to proceed?\n1. Yes\n2. {RULE}\n3. No",
        choices=(Decision.ALLOW, Decision.ALWAYS, Decision.DENY, Decision.CANCEL),
        rule=RULE,
    )


def asks(*requests: Request) -> Fleet:
    return fleet(asking("fix-auth", *requests, mode=Mode.TMUX, plan="search"), working("docs"))


async def opened(pilot: Pilot[None]) -> PermissionCard:
    """The card, open and armed; the session beside it shows its terminal, and has no transcript to wait for."""
    await pilot.pause()
    await auntil(lambda: cast(Kasmon, pilot.app).permissions.queue.waiting, what="a request")
    await pilot.press("i")
    return await armed(pilot)


async def test_always_is_offered_as_in_the_menu_with_the_same_scope() -> None:
    ask = on_screen(1, "git push")
    async with run_app(kasmon(asks(ask)), act=opened) as pilot:
        text = text_of(pilot.app)
        assert f"Always: {RULE}" in text
        assert "this session" not in text
        assert "plan search" not in text
        await pilot.press("A")
        await pilot.pause()

        assert [Answer(request=ask.id, digest=ask.digest, decision=Decision.ALWAYS)] == answers(pilot)


async def test_a_denial_is_sent_at_once_if_the_menu_accepts_no_reason() -> None:
    ask = on_screen(1, "git push")
    async with run_app(kasmon(asks(ask)), act=opened) as pilot:
        assert "with a reason" not in text_of(pilot.app)
        await pilot.press("d")
        await pilot.pause()

        assert [Answer(request=ask.id, digest=ask.digest, decision=Decision.DENY)] == answers(pilot)


async def test_if_the_menu_accepts_a_reason_its_field_opens() -> None:
    ask = msgspec.structs.replace(on_screen(1, "git push"), takes_reason=True)
    async with run_app(kasmon(asks(ask)), act=opened) as pilot:
        assert "Deny with a reason" in text_of(pilot.app)
        await pilot.press("d", *"not today", "enter")
        await pilot.pause()

        no = Answer(request=ask.id, digest=ask.digest, decision=Decision.DENY, reason="not today")
        assert [no] == answers(pilot)


async def test_a_multiple_choice_is_answered_with_the_marked_options() -> None:
    ask = request(
        "fix-auth",
        1,
        kind=RequestKind.QUESTION,
        title="Which parts?",
        shown="Which parts?\n1. core\n2. docs\n3. tools",
        choices=(Decision.CHOOSE, Decision.CANCEL),
        options=("core", "docs", "tools"),
        many=True,
    )
    async with run_app(kasmon(asks(ask)), act=opened) as pilot:
        await pilot.press("1", "3", "enter")
        await pilot.pause()

        picked = Answer(request=ask.id, digest=ask.digest, decision=Decision.CHOOSE, labels=("core", "tools"))
        assert [picked] == answers(pilot)


async def test_enter_opens_its_terminal_and_allows_nothing() -> None:
    async with run_app(kasmon(asks(on_screen(1, "git push"))), act=opened) as pilot:
        assert "Answer in terminal" in text_of(pilot.app)
        await pilot.press("enter")
        await auntil(lambda: cast(Kasmon, pilot.app).permissions.screen is None, what="the card is closed")

        assert [] == answers(pilot)


async def test_a_changed_prompt_is_reported_on_the_card_of_the_new_one() -> None:
    said = "The request changed and nothing was sent"
    first, second, third = on_screen(1, "git push"), on_screen(2, "rm -rf /"), on_screen(3, "git pull")
    async with kasmon(asks(first)).run_test(size=(120, 40), notifications=True) as pilot:
        gateway_of(pilot.app).refusing = PromptChangedError(first.id)
        await opened(pilot)
        await pilot.press("a")
        await auntil(lambda: "the prompt" in text_of(pilot.app), what="why it is back")
        await show(pilot, asks(second))
        await opened(pilot)
        text = text_of(pilot.app)
        assert "rm -rf /" in text
        assert said in text
        gateway_of(pilot.app).refusing = None
        await pilot.press("d")
        await pilot.pause()
        await show(pilot, fleet(idle("fix-auth"), working("docs")))
        await show(pilot, asks(third))
        card = await opened(pilot)

        assert card.request.id == third.id
        assert said not in text_of(pilot.app)
        assert cast(Kasmon, pilot.app).permissions.card is card
