"""The finish screen: what is left, the questions before anything is done, and what was done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from textual.pilot import Pilot

from kasmon.errors import PushedCommitsError, RefusedError, StaleRequestError
from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.permission import SessionId
from kasmon.supervisor.finish.commit_message import PROMPT
from kasmon.supervisor.finish.finish_plan import FinishRequest, PlannedFinish
from kasmon.tui.app import Kasmon
from kasmon.tui.dialogs.common import ConfirmDialog
from kasmon.tui.finish.dialogs import ConflictDialog, DiscardDialog, OptionsDialog
from kasmon.tui.finish.screen import FinishScreen
from kasmon.tui.gateway.operations import Operations
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_branches import MERGES, TREE, planned
from tests.support.sample_fleet import StillClock, fleet, idle
from tests.support.tui.fake_gateway import FakeGateway, gateway_of, text_of
from tests.support.wait import auntil


@asynccontextmanager
async def shown(size: tuple[int, int] = (120, 30)) -> AsyncIterator[tuple[Pilot[None], FakeGateway]]:
    app = kasmon(fleet(idle("fix", worktree=TREE, mode=Mode.SDK)))
    gateway = gateway_of(app)
    gateway.finishes = planned
    async with run_app(app, size) as pilot:
        await pilot.press("F")
        await auntil(lambda: "Left to do" in text_of(app))
        yield pilot, gateway


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press *keys* once a question has been readable for a while."""
    cast(StillClock, cast(Kasmon, pilot.app).clock).ticked += 5.0
    await pilot.press(*keys)
    await pilot.pause()


async def opened(pilot: Pilot[None], kind: type[object]) -> None:
    await auntil(lambda: isinstance(pilot.app.screen, kind), what=str(kind))
    await pilot.pause()


def done(gateway: FakeGateway) -> list[PlannedFinish]:
    return gateway.passed(Operations.finish, "plan")


async def test_open_work_is_listed_with_the_key_for_each_action() -> None:
    async with shown() as (pilot, _):
        text = text_of(pilot.app)

        assert "fix  kasmon/fix from main  1 behind, 3 changes" in text
        assert "c commit     3 changes, not committed" in text
        assert "u update     1 commit behind main, with conflicts in 'a[b].txt'" in text


async def test_the_command_that_shows_a_conflict_with_another_worktree_is_named() -> None:
    app = kasmon(fleet(idle("fix", worktree=TREE)))
    gateway = gateway_of(app)
    gateway.finishes = planned
    async with run_app(app) as pilot:
        gateway.collided.put_nowait({SessionId("fix"): CollisionSummary("docs changes src/app.py too", False)})
        await auntil(lambda: app.main_view.table.collisions)
        await pilot.press("F")

        await auntil(lambda: "docs changes src/app.py too: `kasmon merge-plan`" in text_of(app))


@asynccontextmanager
async def overlapping() -> AsyncIterator[tuple[Pilot[None], FakeGateway]]:
    """The question whether the branches of `fix` and `docs` are merged."""
    async with shown() as (pilot, gateway):
        gateway.merges = MERGES
        overlap = CollisionSummary("docs changes src/app.py too", False, (SessionId("docs"),))
        gateway.collided.put_nowait({SessionId("fix"): overlap})
        await auntil(lambda: cast(Kasmon, pilot.app).main_view.table.collisions)
        await pilot.press("M")
        await opened(pilot, ConfirmDialog)
        yield pilot, gateway


async def test_overlapping_branches_are_merged_one_by_one_as_shown() -> None:
    async with overlapping() as (pilot, gateway):
        assert "fix and docs conflict in 'a[b].txt'" in text_of(pilot.app)
        assert [("fix", "docs")] == gateway.asked_merges
        gateway.word = "merged 1 of 2 branches.\ndocs: left out."
        await press(pilot, "y")
        await auntil(lambda: "merged 1 of 2 branches." in text_of(pilot.app))

        assert [MERGES] == gateway.passed(Operations.merge_one_by_one, "plan")
        assert "docs: left out." in text_of(pilot.app)


async def test_outdated_merges_are_shown_again() -> None:
    async with overlapping() as (pilot, gateway):
        gateway.refusing = StaleRequestError("")
        await press(pilot, "y")
        await auntil(lambda: "Something changed since this was shown." in text_of(pilot.app))


async def test_at_a_conflict_a_question_names_the_completed_merges_and_closing_it_stops() -> None:
    async with overlapping() as (pilot, gateway):
        await press(pilot, "y")
        await auntil(lambda: gateway.passed(Operations.merge_one_by_one, "decide"))
        [decide] = gateway.passed(Operations.merge_one_by_one, "decide")
        answers = list[str]()
        for keys in (("enter",), ("right", "enter"), ("right", "right", "enter"), ("escape",)):
            asked = asyncio.ensure_future(decide(MERGES.steps[1], ("a[b].txt",)))
            await opened(pilot, ConflictDialog)
            assert "kasmon/docs conflicts in 'a[b].txt'." in text_of(pilot.app)
            await pilot.press(*keys)
            answers.append(await asked)
            await opened(pilot, FinishScreen)

        assert ["stop", "skip", "send", "stop"] == answers


async def test_a_commit_is_made_only_as_shown_and_confirmed() -> None:
    async with shown() as (pilot, gateway):
        await pilot.press("c")
        await opened(pilot, OptionsDialog)
        await pilot.press("!", "enter")
        await opened(pilot, ConfirmDialog)
        text = text_of(pilot.app)
        assert ("Do fix!." in text, "Your hooks run: pre-commit." in text, []) == (True, True, done(gateway))
        await press(pilot, "y")
        await auntil(lambda: done(gateway))

        assert [planned(FinishRequest(commits=True, message="fix!"))] == done(gateway)
        assert isinstance(pilot.app.screen, FinishScreen)


async def test_completed_and_failed_steps_are_listed() -> None:
    async with shown() as (pilot, gateway):
        gateway.refusing_for = {"fix": RefusedError("the remote has other commits.", hint="Fetch them.")}
        await pilot.press("p")
        await opened(pilot, ConfirmDialog)
        await press(pilot, "y")
        await auntil(lambda: "The remote has other commits." in text_of(pilot.app))
        assert "Fetch them." in text_of(pilot.app)


async def test_an_outdated_plan_is_shown_again_before_anything_is_done() -> None:
    async with shown() as (pilot, gateway):
        gateway.refusing_for = {"fix": StaleRequestError("fix")}
        await pilot.press("p")
        await opened(pilot, ConfirmDialog)
        await press(pilot, "y")
        await auntil(lambda: "Something changed since this was shown." in text_of(pilot.app))
        gateway.refusing_for = {}
        gateway.finishes = lambda request: planned(request, "d2")
        await press(pilot, "escape")
        await pilot.press("p")
        await opened(pilot, ConfirmDialog)
        await press(pilot, "y")
        await auntil(lambda: len(done(gateway)) == 2)

        assert ["d1", "d2"] == [plan.digest for plan in done(gateway)]


async def test_a_refused_action_is_not_confirmed() -> None:
    async with shown() as (pilot, gateway):
        gateway.refusing = RefusedError("a turn runs.")
        await pilot.press("m")
        await opened(pilot, OptionsDialog)
        await pilot.press("enter")
        await auntil(lambda: "A turn runs." in text_of(pilot.app))

        assert isinstance(pilot.app.screen, OptionsDialog)
        assert [] == done(gateway)


async def test_pushed_commits_are_replaced_only_after_a_separate_confirmation() -> None:
    def refuse(request: FinishRequest) -> PlannedFinish:
        if request.update and not request.rewrites:
            raise PushedCommitsError("a rebase would replace those commits.", hint="--rewrite")
        return planned(request)

    async with shown() as (pilot, gateway):
        gateway.finishes = refuse
        await pilot.press("u")
        await opened(pilot, OptionsDialog)
        await pilot.press("enter")
        await opened(pilot, ConfirmDialog)
        text = text_of(pilot.app)
        assert ("A rebase would replace those commits." in text, "Do this only if you alone" in text) == (True, True)
        await press(pilot, "y")
        await auntil(lambda: "Do it rebase." in text_of(pilot.app))
        assert [] == done(gateway)
        await press(pilot, "y")
        await auntil(lambda: done(gateway))

        assert FinishRequest(update="rebase", rewrites=True) == done(gateway)[0].request


async def test_a_discard_needs_the_typed_name() -> None:
    async with shown() as (pilot, gateway):
        await pilot.press("X")
        await opened(pilot, DiscardDialog)
        await pilot.press("y", "enter")
        await auntil(lambda: "is not the name" in text_of(pilot.app))
        assert [] == done(gateway)
        await pilot.press("backspace", *"fix", "enter")
        await auntil(lambda: done(gateway))

        await auntil(lambda: cast(Kasmon, pilot.app).list_has_keys)


async def test_the_options_of_an_update_and_a_merge_are_chosen_by_arrows() -> None:
    async with shown() as (pilot, gateway):
        await pilot.press("u")
        await opened(pilot, OptionsDialog)
        await pilot.press("right", "tab", "left", "tab", "right", "enter")
        await opened(pilot, ConfirmDialog)
        await pilot.press("escape", "m")
        await opened(pilot, OptionsDialog)
        await pilot.press("tab", "right", "enter")
        await opened(pilot, ConfirmDialog)
        assert "Warning: the agent 'docs' (working) works in" in text_of(pilot.app)

        wanted = [request for request in gateway.asked_finishes if not request.is_empty]
        assert FinishRequest(update="merge", conflicts="send", fetches=True) == wanted[0]
        assert FinishRequest(merge="squash", message="fix") == wanted[1]


async def test_the_agent_is_asked_for_a_message_which_is_then_suggested() -> None:
    async with shown() as (pilot, gateway):
        await pilot.press("a")
        await auntil(lambda: gateway.passed(Operations.send_prompt, "prompt"))
        [prompt] = gateway.passed(Operations.send_prompt, "prompt")
        assert (PROMPT, "idle") == (prompt.text, prompt.when)
        gateway.proposed = "Fix the login\n\nIt failed."
        await pilot.press("r")
        await auntil(lambda: "The agent proposes: Fix the login" in text_of(pilot.app))
        await pilot.press("c")
        await opened(pilot, OptionsDialog)
        await pilot.press("enter")
        await opened(pilot, ConfirmDialog)

        assert "Fix the login\n\nIt failed." == gateway.asked_finishes[-1].message


async def test_the_last_prompt_that_the_user_wrote_is_suggested_and_none_of_kasmon() -> None:
    texts = ("Fix the login", "Review comments on your changes. Please address each one.", PROMPT)
    receipts = tuple(
        Receipt(
            id=ReceiptId(f"fix-r{number}"), session=SessionId("fix"), text=text, state=ReceiptState.FINISHED, by="user"
        )
        for number, text in enumerate(texts)
    )
    app = kasmon(fleet(idle("fix", worktree=TREE, receipts=receipts)))
    gateway = gateway_of(app)
    gateway.finishes = planned
    async with run_app(app) as pilot:
        await pilot.press("F", "c")
        await opened(pilot, OptionsDialog)
        await pilot.press("enter")
        await opened(pilot, ConfirmDialog)

        assert "Fix the login" == gateway.asked_finishes[-1].message


async def test_a_session_without_a_worktree_reports_that() -> None:
    async with run_app(app := kasmon(fleet(idle("plain"))), notifications=True) as pilot:
        await pilot.press("F")
        await auntil(lambda: "works in no git worktree" in text_of(app))

        assert app.list_has_keys


async def test_a_removed_session_closes_the_screen() -> None:
    async with shown() as (pilot, gateway):
        gateway.fleets.put_nowait(fleet(idle("other")))

        await auntil(lambda: cast(Kasmon, pilot.app).list_has_keys)
        assert cast(Kasmon, pilot.app).main_view.table.session(SessionId("fix")) is None


async def test_a_dialog_of_a_removed_session_reports_that_and_keeps_the_text() -> None:
    async with shown() as (pilot, gateway):
        await pilot.press("c")
        await opened(pilot, OptionsDialog)
        gateway.fleets.put_nowait(fleet(idle("other")))
        await auntil(lambda: cast(Kasmon, pilot.app).main_view.table.session(SessionId("fix")) is None)
        gateway.refusing = RefusedError("there is no session 'fix'.")
        await pilot.press(*"msg", "enter")

        await auntil(lambda: "There is no session 'fix'." in text_of(pilot.app))
        assert "msg" in text_of(pilot.app)


async def test_a_late_plan_does_not_open_a_question_on_the_screen_of_another_session() -> None:
    app = kasmon(fleet(idle("fix", worktree=TREE), idle("other", worktree=TREE)))
    gateway = gateway_of(app)
    gateway.finishes = planned
    async with run_app(app, (120, 30)) as pilot:
        await pilot.press("F")
        await auntil(lambda: "Left to do" in text_of(app))
        gateway.knows.clear()
        await pilot.press("p")
        await auntil(lambda: any(each.pushes for each in gateway.asked_finishes))
        await pilot.press("escape", "down", "F")
        await auntil(lambda: " other " in text_of(app) and len(gateway.asked_finishes) == 3)
        gateway.knows.set()
        await auntil(lambda: "Left to do" in text_of(app))
        await pilot.pause()

        assert isinstance(app.screen, FinishScreen)
