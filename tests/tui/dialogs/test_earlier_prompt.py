"""Editing an earlier prompt: by Esc Esc or by its key, and the session is forked there."""

import pytest

from kasmon.model.events import MessageWritten, SessionStarted, TurnEnded, TurnStarted
from kasmon.tui.gateway.operations import Operations
from tests.support.dashboard_scenes import settled
from tests.support.sample_fleet import NOW, idle
from tests.support.tui.fake_gateway import called
from tests.tui.actions.test_transcript import README, main_view

STORY = (
    SessionStarted(at=NOW),
    *(
        event
        for prompt in ("first [b]one[/b]", "again", "again")
        for event in (
            TurnStarted(at=NOW, prompt=prompt),
            MessageWritten(at=NOW, text="done"),
            TurnEnded(at=NOW),
        )
    ),
)


async def test_a_second_esc_edits_an_earlier_prompt_and_forks_the_session_there() -> None:
    async with main_view(*STORY) as it:
        await it.press("enter", "escape", "escape")
        assert "Edit an earlier prompt: readme" in it.text
        assert "first [b]one[/b]" in it.text
        assert "Files are not rewound" in it.text
        await it.press("up", "enter", *" better", "enter")

        assert [called(Operations.fork_session, README, "again", 1, "again better")] == it.gateway.calls


@pytest.mark.parametrize(
    ("session", "how"),
    [
        (idle("readme", backend="claude", resume_id="c1"), "gets a copy of the conversation"),
        (idle("readme", backend="acp", resume_id="c1"), "gets the transcript, as text in its first prompt"),
        (idle("readme", backend="claude", resume_id="c1", sandbox="jail"), "gets the transcript"),
    ],
    ids=["claude", "acp", "claude in a sandbox"],
)
async def test_the_dialog_shows_how_much_of_the_conversation_the_new_session_gets(session, how: str) -> None:  # type: ignore[no-untyped-def]
    async with main_view(*STORY, session=session) as it:
        await it.press("enter", "alt+e")
        assert how in " ".join(it.text.split())


async def test_the_last_row_continues_the_whole_conversation() -> None:
    session = idle("readme", backend="acp", resume_id="c1", abilities=("forks",))
    async with main_view(*STORY, session=session) as it:
        await it.press("enter", "alt+e")
        assert "gets the transcript, as text in its first prompt" in " ".join(it.text.split())
        await it.press("down")
        assert "A new session gets a copy of the conversation; this one stays" in " ".join(it.text.split())
        await it.press("enter", "enter", *"go on", "enter")

        assert [called(Operations.fork_session, README, "", 0, "go on")] == it.gateway.calls


async def test_a_late_second_esc_or_one_that_clears_a_filter_does_no_more() -> None:
    async with main_view(*STORY) as it:
        await it.press("enter", "escape")
        now = it.app.clock.ticking()
        it.app.clock.ticking = lambda: now + 5.0  # type: ignore[method-assign]
        await it.press("escape")
        assert "Edit an earlier prompt" not in it.text

        await it.press("slash", *"read", "enter")
        await it.press("enter", "escape", "escape")
        await settled(it.pilot)
        assert "Edit an earlier prompt" not in it.text
        assert "" == it.app.main_view.table.view.filter


async def test_leaving_it_forks_nothing() -> None:
    async with main_view(*STORY) as it:
        await it.press("enter", "alt+e", "enter", "escape")

        assert [] == it.gateway.calls


async def test_a_session_without_a_prompt_has_none_to_edit() -> None:
    async with main_view(SessionStarted(at=NOW)) as it:
        await it.press("enter", "alt+e")

        assert "There is no earlier prompt." in it.text
