"""Standing rules on the card: what they say, how far they reach, and that both stand there before a key counts."""

import pytest
from textual.widgets import TextArea

from kasmon.model.commands import Answer
from kasmon.model.permission import Decision
from kasmon.tui.permissions.card.text import find_next_scope, reaches
from tests.support.dashboard_scenes import armed, kasmon, run_app
from tests.support.sample_fleet import command, idle
from tests.support.tui.fake_gateway import text_of
from tests.tui.permissions.card.test_card import KEY, answers, asks, opened

PUSH = command("fix-auth", "git push origin main", rule="Bash(git push:*)")


def test_a_rule_applies_to_its_session_its_plan_or_its_project() -> None:
    alone, planned = idle("docs"), idle("docs", plan="p1")

    assert ["this session", "project /shop"] == [reach.words for reach in reaches(alone, "/shop")]
    assert ["this session", "plan p1", "project /shop"] == [reach.words for reach in reaches(planned, "/shop")]
    assert "plan" == find_next_scope("session", reaches(planned, "/shop"))
    assert "session" == find_next_scope("project", reaches(planned, "/shop"))


async def test_never_denies_this_one_and_later_ones_with_the_reason() -> None:
    async with run_app(kasmon(asks(PUSH)), act=opened) as pilot:
        assert "Never: Bash(git push:*)" in text_of(pilot.app)
        await pilot.press("D")
        await pilot.pause()
        assert "deny, and always deny in this session: Bash(git push:*)" in text_of(pilot.app)
        assert [] == answers(pilot)
        await pilot.press(*"no", "enter")
        await pilot.pause()

        assert [(PUSH.id, PUSH.digest, Decision.NEVER, "no", "session")] == [
            (each.request, each.digest, each.decision, each.reason, each.scope) for each in answers(pilot)
        ]


async def test_cancel_denies_and_ends_the_turn() -> None:
    async with run_app(kasmon(asks(PUSH)), act=opened) as pilot:
        assert "Deny and interrupt" in text_of(pilot.app)
        await pilot.press("c")
        await pilot.pause()

        assert [Answer(request=PUSH.id, digest=PUSH.digest, decision=Decision.CANCEL)] == answers(pilot)


async def test_an_unsupported_answer_is_not_offered_and_its_key_does_nothing() -> None:
    plain = command("fix-auth", "ls", choices=(Decision.ALLOW, Decision.DENY), rule="")
    async with run_app(kasmon(asks(plain)), act=opened) as pilot:
        text = text_of(pilot.app)
        assert not any(word in text for word in ("Always", "Never", "interrupt", "this session"))
        await pilot.press("D", "c", "A", "s", "T")
        await pilot.pause()

        assert [] == answers(pilot)
        assert (await armed(pilot)).is_armed


@pytest.mark.parametrize(
    ("plan", "presses", "scope", "key", "decision"),
    [
        (None, 1, "project", "A", Decision.ALWAYS),
        (None, 2, "session", "D", Decision.NEVER),
        ("p1", 1, "plan", "D", Decision.NEVER),
        ("p1", 2, "project", "A", Decision.ALWAYS),
    ],
)
async def test_the_scope_is_chosen_on_the_card(
    plan: str | None, presses: int, scope: str, key: str, decision: Decision
) -> None:
    """And the card is deaf after each change of it."""
    async with kasmon(asks(PUSH, plan=plan)).run_test(size=(120, 40)) as pilot:
        card = await opened(pilot)
        assert "◉ this session" in text_of(pilot.app)
        for _ in range(presses):
            await pilot.press("s")
            assert not card.is_armed
            await pilot.press("A")
            assert [] == answers(pilot)
            await armed(pilot)
        words = {"session": "this session", "plan": "plan p1", "project": "project /home/you/project"}
        assert f"◉ {words[scope]}" in text_of(pilot.app)
        await pilot.press(key, "enter")
        await pilot.pause()

        assert [(decision, scope)] == [(each.decision, each.scope) for each in answers(pilot)]


async def test_the_next_request_starts_with_the_narrowest_scope() -> None:
    first, second = PUSH, command("fix-auth", "make", 2, ago=5)
    async with run_app(kasmon(asks(first, second)), act=opened) as pilot:
        await pilot.press("s")
        await armed(pilot)
        await pilot.press("A")
        await armed(pilot)
        await pilot.press("A")
        await pilot.pause()

        assert ["project", "session"] == [each.scope for each in answers(pilot)]


async def test_a_click_chooses_the_scope_under_it() -> None:
    async with run_app(kasmon(asks(PUSH)), act=opened) as pilot:
        lines = text_of(pilot.app).splitlines()
        row = next(y for y, line in enumerate(lines) if "○ project" in line)
        await pilot.click(offset=(lines[row].index("○ project") + 4, row))
        await armed(pilot)
        await pilot.press("A")
        await pilot.pause()

        assert ["project"] == [each.scope for each in answers(pilot)]


async def test_no_rule_is_made_of_secrets_or_of_an_edited_command() -> None:
    async with run_app(kasmon(asks(command("fix-auth", f"curl -H 'Bearer {KEY}'"))), act=opened) as pilot:
        assert "Never" not in text_of(pilot.app)
        await pilot.press("D", "s", "e")
        pilot.app.screen.query_one(TextArea).text = "ls"
        await pilot.press("escape")
        await armed(pilot)
        assert "Never" not in text_of(pilot.app)
        await pilot.press("D", "A", "s")
        await pilot.pause()

        assert [] == answers(pilot)


async def test_a_denying_rule_too_long_for_the_window_is_not_made_either() -> None:
    shown = command("fix-auth", "make", rule=f"Bash({'and more ' * 400})")
    async with run_app(kasmon(asks(shown)), (80, 24), act=opened) as pilot:
        await pilot.press("D", "s")
        await pilot.pause()

        assert [] == answers(pilot)
        assert "READING" == (await armed(pilot)).view.state.doing.name


async def test_the_agents_own_reason_is_below_its_request() -> None:
    reason = f"The build is stale. {KEY}\u202e"
    async with run_app(kasmon(asks(command("fix-auth", "make", why=reason))), act=opened) as pilot:
        text = text_of(pilot.app)

        assert "reason" in text
        assert "The build is stale. ⟨hidden: 35 characters⟩⟨U+202E⟩" in text
        assert "hidden characters" in text
