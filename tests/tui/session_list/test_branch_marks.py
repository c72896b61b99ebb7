"""The branch of a session's worktree: marks in its row where there is room, and words above its preview."""

import pytest

from kasmon.model.permission import SessionId
from kasmon.repository.branch import BranchSummary
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.session_list.branch_marks import branch_marks
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.theme.theme import DEFAULT
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_branches import BUSY, branch, pull_request
from tests.support.sample_fleet import fleet, idle, working
from tests.support.tui.fake_gateway import gateway_of, text_of
from tests.support.wait import auntil


@pytest.mark.parametrize(
    ("shown", "utf8", "ascii_"),
    [
        (branch(), "", ""),
        (BUSY, "↑2 ↓1 ±3 ≠ #7✗R", "+2 -1 *3 ! #7xR"),
        (branch(pull_request=pull_request(is_draft=True, checks="running")), "#7d…", "#7d~"),
        (branch(pull_request=pull_request(checks="passed", review="approved")), "#7✓A", "#7yA"),
        (branch(pull_request=pull_request(state="merged", checks="failed")), "#7m", "#7m"),
        (branch(operation="a merge", unmerged=1), "±1 ≠", "*1 !"),
    ],
)
def test_the_marks_show_the_open_work(shown: BranchSummary, utf8: str, ascii_: str) -> None:
    drawn = [
        "".join(text for text, _ in branch_marks(shown, ThemeStyles(shipped(DEFAULT), utf8=is_utf8)))
        for is_utf8 in (True, False)
    ]

    assert [utf8, ascii_] == drawn


@pytest.mark.parametrize(("width", "is_marked"), [(130, True), (80, False)])
async def test_a_row_is_marked_if_it_has_space(width: int, is_marked: bool) -> None:
    async with run_app(app := kasmon(fleet(working("fix"), idle("docs"))), (width, 30)) as pilot:
        gateway_of(app).branched.put_nowait({SessionId("fix"): BUSY})
        await auntil(lambda: app.main_view.table.branches)
        await pilot.pause()
        rows = {name: row for row in text_of(app).splitlines() for name in ("fix", "docs") if f"  {name}  " in row[:24]}

        assert {"fix": is_marked, "docs": False} == {name: "↑2 ↓1 ±3 ≠ #7✗R" in row for name, row in rows.items()}


async def test_the_head_of_its_preview_describes_it() -> None:
    async with run_app(app := kasmon(fleet(working("fix"))), (160, 30)):
        app.main_view.enter(SessionId("fix"))
        gateway_of(app).branched.put_nowait({SessionId("fix"): branch(ahead=2, pull_request=None)})

        await auntil(lambda: "kasmon/fix from main: 2 ahead" in text_of(app))
        gateway_of(app).branched.put_nowait({})
        await auntil(lambda: "2 ahead" not in text_of(app))
