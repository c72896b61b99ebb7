"""What a session changed: its files, and the chosen one in one column or in two."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
from textual.pilot import Pilot

from kasmon.errors import UnableError
from kasmon.model.events import ReviewComment
from kasmon.model.permission import SessionId
from kasmon.model.review.comments import LoggedComment
from kasmon.model.review.hunks import ShownHunk
from kasmon.tui.app import Kasmon
from kasmon.tui.dialogs.common import ConfirmDialog, RenameDialog
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.review.dialogs import CommentDialog, CommentsDialog
from kasmon.tui.review.screen import ReviewScreen
from tests.model.review.test_file_changes import DIFF, of
from tests.safety.test_markup import WORST
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import StillClock, fleet, working
from tests.support.tui.fake_gateway import called, gateway_of, text_of
from tests.support.wait import auntil


@asynccontextmanager
async def shown(diff: str = DIFF, size: tuple[int, int] = (120, 30)) -> AsyncIterator[Pilot[None]]:
    app = kasmon(fleet(working("api")))
    gateway_of(app).diffs = {"api": diff}
    async with run_app(app, size) as pilot:
        await pilot.press("D")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        await pilot.pause()
        yield pilot


async def test_the_files_are_listed_and_the_first_is_shown() -> None:
    async with shown() as pilot:
        text = text_of(pilot.app)

        assert "api  5 files  +3  -3" in text
        assert "▌ src/x.py" in text
        assert [line.chosen for line in cast(ReviewScreen, pilot.app.screen).list.drawn] == [True, *[False] * 4]
        assert "-old line" in text
        assert "1 of 5" in text


async def test_a_key_moves_to_the_next_file_and_stops_at_the_last() -> None:
    async with shown() as pilot:
        await pilot.press("]", "]", "]", "]", "]", "]")
        await pilot.pause()
        assert "▌ p.png" in text_of(pilot.app)
        await pilot.press("[")
        await pilot.pause()

        assert "+hello" in text_of(pilot.app)


async def test_s_shows_old_and_new_side_by_side_if_it_fits() -> None:
    async with shown(size=(160, 30)) as pilot:
        await pilot.press("s")
        await pilot.pause()

        assert any("-old line" in row and "+new line" in row for row in text_of(pilot.app).splitlines())


async def test_on_a_narrow_screen_it_stays_one_column() -> None:
    async with shown(size=(80, 24)) as pilot:
        await pilot.press("s")
        await pilot.pause()

        assert not any("-old line" in row and "+new line" in row for row in text_of(pilot.app).splitlines())


async def test_escape_returns_to_the_list() -> None:
    async with shown() as pilot:
        await pilot.press("escape")
        await pilot.pause()

        assert cast(Kasmon, pilot.app).list_has_keys


async def test_a_session_outside_of_a_repository_reports_that() -> None:
    app = kasmon(fleet(working("api")))
    gateway_of(app).refusing = UnableError("'/x' is not in a git repository, so its changes are unknown.")
    async with run_app(app, (120, 30), notifications=True) as pilot:
        await pilot.press("D")
        await auntil(lambda: "'/x' is not in a git" in text_of(app))


async def test_names_and_lines_of_a_diff_are_shown_without_interpretation() -> None:
    lines = [worst.replace("\n", " ") for worst in WORST[::25]]
    diff = "".join(f"diff --git a/{x} b/{x}\n--- a/{x}\n+++ b/{x}\n@@ -1 +1 @@\n-{x}\n+{x}\n" for x in lines)
    async with shown(diff) as pilot:
        await pilot.press("s", "z", "z", *("]" for _ in lines), "escape")
        await pilot.pause()

        assert cast(Kasmon, pilot.app).list_has_keys


async def test_a_late_diff_does_not_cover_another_screen() -> None:
    """The keys for that would be its keys."""
    app = kasmon(fleet(working("api")))
    gateway = gateway_of(app)
    gateway.diffs = {"api": DIFF}
    async with run_app(app, (120, 30)) as pilot:
        gateway.knows.clear()
        await pilot.press("D", "r")
        await auntil(lambda: isinstance(app.screen, RenameDialog), what="the dialog")
        gateway.knows.set()
        await auntil(lambda: not any(each.group == "dialog" and each.is_running for each in app.workers))
        await pilot.pause()

        assert isinstance(app.screen, RenameDialog)


def line_at(pilot: Pilot[None]) -> str:
    """The text of the line under the cursor."""
    view = cast(ReviewScreen, pilot.app.screen).view
    return view.file.lines[view.line].text


async def test_a_key_moves_to_the_next_change_also_in_the_next_file() -> None:
    async with shown() as pilot:
        assert "-old line" == line_at(pilot)
        await pilot.press("J")
        assert "-gone" == line_at(pilot)
        await pilot.press("J", "J", "J")
        assert "+hello" == line_at(pilot)
        await pilot.press("K", "K", "K")
        assert "-gone" == line_at(pilot)


async def test_a_search_finds_lines_of_all_files_and_escape_ends_it() -> None:
    async with shown() as pilot:
        await pilot.press("slash", *"bye", "enter")
        await pilot.pause()
        assert "1 match" in text_of(pilot.app)
        assert "-bye" == line_at(pilot)
        await pilot.press("slash", *"line", "enter", "n")
        await pilot.pause()
        assert "+new line" == line_at(pilot)
        await pilot.press("N", "escape")
        await pilot.pause()

        assert "-old line" == line_at(pilot)
        assert isinstance(pilot.app.screen, ReviewScreen)


async def test_a_hunk_folds_and_a_long_one_is_folded_at_first_and_marked() -> None:
    many = "".join(f"+line {number}\n" for number in range(1500))
    whole = f"diff --git a/big.py b/big.py\n--- /dev/null\n+++ b/big.py\n@@ -0,0 +1,1500 @@\n{many}"
    async with shown(whole) as pilot:
        assert "1,500 lines folded · ⏎ unfolds" in text_of(pilot.app)
        await pilot.press("enter")
        await pilot.pause()
        assert "+line 0" in text_of(pilot.app)
        await pilot.press("G")
        await pilot.pause()

        assert "+line 1499" == line_at(pilot)


async def test_turns_are_chosen_by_keys() -> None:
    async with shown() as pilot:
        gateway = gateway_of(pilot.app)
        gateway.turn_diffs = {"api": {1: DIFF, 4: "", 5: DIFF.replace("+hello", "+later")}}
        screen = cast(ReviewScreen, pilot.app.screen)
        for key, turn in (("t", 5), ("less_than_sign", 4), ("less_than_sign", 1), ("greater_than_sign", 4)):
            await pilot.press(key)
            await auntil(lambda turn=turn: screen.review.turn == turn)  # type: ignore[misc]
            await pilot.pause()
            assert f"turn {turn} of 5" in text_of(pilot.app)
        assert "Turn 4 changed no files." in text_of(pilot.app)
        await pilot.press("b")
        await auntil(lambda: screen.review.turn is None)


async def test_the_editor_gets_the_file_and_the_line_of_the_new_file() -> None:
    async with shown() as pilot:
        await pilot.press("e")
        gateway = gateway_of(pilot.app)
        await auntil(lambda: gateway.edited)

        assert [("api", "src/x.py", 2)] == gateway.edited


async def test_renamed_and_mode_changed_files_are_marked() -> None:
    whole = "diff --git a/old b/new\nold mode 100644\nnew mode 100755\nrename from old\nrename to new\n"
    async with shown(whole) as pilot:
        assert "renamed from old · mode 100644 → 100755" in text_of(pilot.app)
        assert "new renamed" in text_of(pilot.app)


async def test_a_long_name_cuts_neither_the_kind_of_its_change_nor_what_is_reviewed() -> None:
    name = "a-folder/" + "long" * 12 + ".py"
    new = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
    renamed = f"diff --git a/{name} b/z\nrename from {name}\nrename to z\n"
    async with shown(new + renamed) as pilot:
        assert "long.py new   +1 " in text_of(pilot.app)
    async with shown(renamed, (70, 20)) as pilot:
        head = text_of(pilot.app).split("\n")[0]

        assert ("api  1 file  branch" in head, head.rstrip().endswith(".py")) == (True, True)


async def test_a_comment_is_written_on_the_selected_lines_and_shown_below_them() -> None:
    async with shown() as pilot:
        app = cast(Kasmon, pilot.app)
        gateway = gateway_of(app)
        await pilot.press("j", "v", "j", "c")
        await auntil(lambda: isinstance(app.screen, CommentDialog))
        await pilot.pause()
        assert "Comment on src/x.py:2-3" in text_of(app)
        comment = ReviewComment(
            id="",
            file="src/x.py",
            line=2,
            last_line=3,
            lines=("new line", "another"),
            hunk="@@ -1,3 +1,4 @@ def f():",
            text="why?",
        )
        written = msgspec.structs.replace(comment, id="c1")
        gateway.commented["api"] = (LoggedComment(comment=written, at=1.0, line_now=2),)
        await pilot.press(*"why", "question_mark", "enter")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        await auntil(lambda: "┃ why?" in text_of(app))

        assert called(Operations.write_comment, SessionId("api"), comment) in gateway.calls
        assert "1 open comment" in text_of(app)


async def test_comments_are_edited_deleted_listed_and_sent() -> None:
    app = kasmon(fleet(working("api")))
    gateway = gateway_of(app)
    comment = ReviewComment(id="c1", file="src/x.py", line=2, last_line=2, lines=("new line",), text="why?")
    gateway.diffs, gateway.commented = {"api": DIFF}, {"api": (LoggedComment(comment=comment, at=1.0, line_now=2),)}
    async with run_app(app, (120, 30)) as pilot:
        await pilot.press("D")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        await pilot.pause()
        await pilot.press("j", "j", "c")
        await auntil(lambda: isinstance(app.screen, CommentDialog))
        await pilot.press("escape")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        await pilot.press("l")
        await auntil(lambda: "src/x.py:2  open" in text_of(app))
        await pilot.press("escape")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        for key, call in (
            ("S", called(Operations.send_comments, SessionId("api"))),
            ("d", called(Operations.remove_comment, SessionId("api"), "c1")),
        ):
            await pilot.press(key)
            await auntil(lambda: isinstance(app.screen, ConfirmDialog))
            await pilot.pause()
            cast(StillClock, app.clock).ticked += 1.0
            await pilot.press("y")
            await auntil(lambda call=call: call in gateway.calls)  # type: ignore[misc]
            await auntil(lambda: isinstance(app.screen, ReviewScreen))


async def test_the_list_of_comments_opens_one_and_has_the_keys_to_change_it() -> None:
    """The first is on the shown file, the second on another one, and the third on a file that is not shown."""
    app = kasmon(fleet(working("api")))
    gateway = gateway_of(app)
    paths = (("src/x.py", "new line"), ("n", "hello"), ("elsewhere", "x"))
    comments = [
        LoggedComment(
            comment=ReviewComment(id=f"c{at}", file=file, line=1, last_line=1, lines=(line,), text="why?"), at=1.0
        )
        for at, (file, line) in enumerate(paths)
    ]
    gateway.diffs, gateway.commented = {"api": DIFF}, {"api": tuple(comments)}
    async with run_app(app, (120, 30), notifications=True) as pilot:
        await pilot.press("D")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        await pilot.pause()
        await pilot.press("l", "down", "enter")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        view = cast(ReviewScreen, app.screen).view
        assert ("+hello", "c1") == (line_at(pilot), view.entry and view.entry.comment)
        await pilot.press("l", "up", "enter")
        await auntil(lambda: "elsewhere:1 is not in the shown changes." in text_of(app))

        await pilot.press("l")
        gateway.commented = {"api": (msgspec.structs.replace(comments[0], mark="resolved"), *comments[1:])}
        await pilot.press("x")
        await auntil(lambda: called(Operations.mark_comment, SessionId("api"), "c0", is_resolved=True) in gateway.calls)
        await auntil(lambda: "src/x.py:1  resolved" in text_of(app))
        assert "x reopen" in text_of(app)
        await pilot.press("c")
        await auntil(lambda: isinstance(app.screen, CommentDialog))
        gateway.commented = {"api": ()}
        await pilot.press(*"Yes", "enter")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))


async def test_a_key_of_the_user_that_is_enter_has_only_that_meaning_in_the_list_of_comments() -> None:
    keys: dict[str, str | tuple[str, ...]] = {"review_comment_resolve": "enter", "review_fold": "x"}
    app = kasmon(fleet(working("api")), settings=DashboardSettings(keys=keys))
    gateway = gateway_of(app)
    comment = ReviewComment(id="c0", file="src/x.py", line=1, last_line=1, lines=("new line",), text="why?")
    gateway.diffs, gateway.commented = {"api": DIFF}, {"api": (LoggedComment(comment=comment, at=1.0),)}
    async with run_app(app, (120, 30)) as pilot:
        await pilot.press("D")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        await pilot.pause()
        await pilot.press("l", "enter")
        await auntil(lambda: called(Operations.mark_comment, SessionId("api"), "c0", is_resolved=True) in gateway.calls)
        await pilot.pause()

        assert isinstance(app.screen, CommentsDialog)


async def test_a_hunk_is_reverted_or_staged_after_a_confirmation_and_undone_at_once() -> None:
    async with shown() as pilot:
        app = cast(Kasmon, pilot.app)
        gateway = gateway_of(app)
        change = of("src/x.py")
        hunk = ShownHunk(name="src/x.py", head="diff --git a/src/x.py b/src/x.py", lines=change.lines[:6])
        await pilot.press("slash", "x", "escape")
        for key, operation in (("r", Operations.revert_hunk), ("a", Operations.stage_hunk)):
            await pilot.press(key)
            await auntil(lambda: isinstance(app.screen, ConfirmDialog))
            await pilot.pause()
            assert "-old line" in text_of(app)
            cast(StillClock, app.clock).ticked += 1.0
            await pilot.press("y")
            call = called(operation, SessionId("api"), hunk)
            await auntil(lambda call=call: call in gateway.calls)  # type: ignore[misc]
            await auntil(lambda: isinstance(app.screen, ReviewScreen))
        await pilot.press("u")
        await auntil(lambda: called(Operations.undo_hunk, SessionId("api")) in gateway.calls)


async def test_the_review_of_a_removed_session_stays_open_and_reports_that_in_a_window_of_12_rows() -> None:
    """The list of files leaves rows for the diff."""
    app = kasmon(fleet(working("api")))
    gateway = gateway_of(app)
    gateway.diffs = {"api": DIFF}
    async with run_app(app, (100, 30), notifications=True) as pilot:
        await pilot.press("D")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        await pilot.resize_terminal(40, 12)
        await auntil(lambda: len(cast(ReviewScreen, app.screen).list.drawn) == 3)
        gateway.fleets.put_nowait(fleet(working("other")))
        await auntil(lambda: app.main_view.table.session(SessionId("api")) is None)
        await pilot.press("t")
        await auntil(lambda: "api was removed." in text_of(app))
        assert "-old line" in text_of(app)
