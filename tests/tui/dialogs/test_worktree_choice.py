"""Where a new session works, in the dialog: its folder, a new worktree from a base, or one that exists."""

import asyncio
from pathlib import Path

import pytest
from textual import events

from kasmon.config.profile import ProfileOffer
from kasmon.model.commands import Mode, WorktreeChoices
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.sessions.create import NewSession
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.gateway.protocol import DashboardSettings
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.git_repo import Repo
from tests.support.sample_fleet import fleet, idle
from tests.support.tui.fake_gateway import created, gateway_of, text_of
from tests.support.wait import auntil

CHOICES = WorktreeChoices(base="main", begins="main, 1a2b3c4 Fix it", others={"feature/x": "/srv/x", "[b]y": "/srv/y"})


own = pytest.fixture(user_paths)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo", commits=0)


def dashboard(*, worktree: bool = False) -> Kasmon:
    app = kasmon(fleet(idle("readme")), settings=DashboardSettings(workdir="/home/you"))
    gateway_of(app).offered = tuple(
        ProfileOffer(name=name, modes=(Mode.TMUX,), worktree=worktree and name == "claude") for name in ("claude", "sh")
    )
    gateway_of(app).repositories = {
        ("/home/you", ""): CHOICES,
        ("/home/you", "v1"): WorktreeChoices(base="main", begins="v1, 4d5e6f7 Old"),
        ("/home/you", "nope"): WorktreeChoices(base="main", error="the base 'nope' names no commit. Name a branch."),
    }
    return app


async def test_a_new_worktree_starts_where_the_user_chooses_and_the_commit_is_shown() -> None:
    async with run_app(app := dashboard(), size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "new worktree" in text_of(app), what="the choice")
        assert "main, 1a2b3c4" not in text_of(app)
        await pilot.press(*"fix", *["tab"] * 5, "right")
        await auntil(lambda: "A new branch begins at main, 1a2b3c4 Fix it." in text_of(app), what="its usual base")
        await pilot.press("tab", *"nope", "tab")
        await auntil(lambda: "The base 'nope' names no commit. Name a branch." in text_of(app), what="the error")
        await pilot.press("shift+tab", "ctrl+u", *"v1", "tab")
        await auntil(lambda: "A new branch begins at v1, 4d5e6f7 Old." in text_of(app), what="the other base")
        await pilot.press("shift+tab", "enter")
        await auntil(lambda: gateway_of(app).calls != [], what="the session")

        expected = created("fix", "claude", mode=Mode.TMUX, workdir="/home/you", worktree=True, base="v1")
        assert [expected] == gateway_of(app).calls


async def test_a_base_typed_at_once_is_not_lost() -> None:
    async with run_app(app := dashboard(), size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "new worktree" in text_of(app), what="the choice")
        await pilot.press(*["tab"] * 5)
        for key, character in (("right", None), ("tab", "\t"), ("v", "v"), ("1", "1")):
            app.post_message(events.Key(key, character))
        await pilot.pause()
        await pilot.press("enter")
        await auntil(lambda: gateway_of(app).calls != [], what="the session")

        assert "v1" == gateway_of(app).calls[0][1]["new"].base


async def test_an_existing_worktree_is_named_by_its_branch_and_becomes_the_folder() -> None:
    async with run_app(app := dashboard(), size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "existing worktree" in text_of(app), what="the choice")
        await pilot.press(*"fix", *["tab"] * 5, "right", "right")
        await auntil(lambda: "branch: feature/x, [b]y" in text_of(app), what="the branches")
        await pilot.press("enter")
        await auntil(lambda: "No other worktree is on the branch ''." in text_of(app), what="the refusal")
        await pilot.press(*"feature/x", "enter")
        await auntil(lambda: gateway_of(app).calls != [], what="the session")

        expected = created("fix", "claude", mode=Mode.TMUX, workdir="/srv/x", worktree=False)
        assert [expected] == gateway_of(app).calls


async def test_the_agents_default_is_preselected_until_the_user_chooses() -> None:
    async with run_app(app := dashboard(worktree=True), size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "A new branch begins" in text_of(app), what="claude's default")
        await pilot.press("tab", "right")
        await auntil(lambda: "A new branch begins" not in text_of(app), what="the other agent's default")
        await pilot.press(*["tab"] * 4, "right", *["shift+tab"] * 4, "left", "right")
        await pilot.pause()

        assert "A new branch begins" in text_of(app)


async def test_a_folder_typed_last_is_read_before_the_session_starts_there() -> None:
    app = dashboard()
    gateway_of(app).repositories["/srv/app", ""] = WorktreeChoices(base="dev", begins="dev, 7f6e5d4 App")
    async with run_app(app, size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "existing worktree" in text_of(app), what="the choice")
        await pilot.press(*"fix", *["tab"] * 5, "right", "right", *["shift+tab"] * 2, "ctrl+u", *"/srv/app", "enter")
        await auntil(lambda: gateway_of(app).calls != [], what="the session")

        expected = created("fix", "claude", mode=Mode.TMUX, workdir="/srv/app", worktree=False)
        assert [expected] == gateway_of(app).calls


async def test_outside_of_git_and_on_another_machine_there_is_no_choice() -> None:
    async with run_app(app := dashboard(), size=(120, 40)) as pilot:
        await pilot.press("n")
        await auntil(lambda: "Work in" in text_of(app), what="the choice")
        await pilot.press(*"fix", *["tab"] * 6, "enter", *"box")
        await auntil(lambda: "Work in" not in text_of(app), what="its end")
        await pilot.press("enter")
        await auntil(lambda: gateway_of(app).calls != [], what="the session")
        assert gateway_of(app).calls[0][1]["new"].worktree is None

        await pilot.press("n")
        await auntil(lambda: "Work in" in text_of(app), what="the choice")
        await pilot.press(*["tab"] * 3, "ctrl+u", *"/elsewhere", "tab")
        await auntil(lambda: "Work in" not in text_of(app), what="its end")


async def test_a_repository_offers_its_branch_and_its_other_worktrees(repo: Repo, own: Paths, tmp_path: Path) -> None:
    repo.commit("sub/a")
    repo.git("tag", "v1")
    repo.git("worktree", "add", "-q", "-b", "feature/x", str(tmp_path / "x\ny"))
    repo.git("worktree", "add", "-q", "--detach", str(tmp_path / "detached"))
    gateway = LiveGateway(own)
    begins = repo.git("log", "-1", "--format=%h %s")

    offered = await gateway.worktrees(str(repo.folder / "sub"))
    assert offered is not None
    assert ("main", f"main, {begins}", "") == (offered.base, offered.begins, offered.error)
    assert {"feature/x": str(tmp_path / "x\ny" / "sub")} == offered.others
    tagged = await gateway.worktrees(str(repo.folder), "v1")
    assert tagged is not None
    assert f"v1, {begins}" == tagged.begins
    refused = await gateway.worktrees(str(repo.folder), "nope")
    assert refused is not None
    assert "'nope' names no commit" in refused.error

    (tmp_path / "plain").mkdir()
    assert await gateway.worktrees(str(tmp_path / "plain")) is None
    assert await gateway.worktrees(str(tmp_path / "missing")) is None
    await asyncio.to_thread(gateway.close)


async def test_the_session_starts_in_the_requested_worktree(repo: Repo, own: Paths, tmp_path: Path) -> None:
    first = repo.commit("first")
    repo.git("tag", "v1")
    repo.commit("later")
    gateway = LiveGateway(own)
    operations = await gateway.operations()
    await operations.create_session(
        NewSession(name="fix", agent="scripted", mode=Mode.SDK, workdir=str(repo.folder), worktree=True, base="v1")
    )

    made = tmp_path / "repo-worktrees" / "fix"
    assert first == repo.git("rev-parse", "HEAD", at=made)
    session = next(iter((await asyncio.to_thread(gateway.first)).sessions))
    assert str(made) == session.workdir
    await operations.stop(session.id)
    await asyncio.to_thread(gateway.close)
