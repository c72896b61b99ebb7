"""Two sessions whose worktrees change one file: both rows say so."""

import re

from kasmon.model.collisions import CollisionSummary, FileCollision, summarize
from kasmon.model.permission import SessionId
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import asking, command, fleet, idle, working
from tests.support.tui.fake_gateway import gateway_of, text_of
from tests.support.wait import auntil

API = CollisionSummary("web changes src/app.py too", False)
WEB = CollisionSummary("api changes the same lines of src/app.py too", True)


def row_of(text: str, name: str) -> str:
    return next(row for row in text.splitlines() if re.match(rf"\W+\w+ +{name}\b", row))


async def test_both_rows_are_marked_with_the_other_session_and_the_file() -> None:
    async with run_app(app := kasmon(fleet(working("api"), working("web"), idle("docs")))):
        gateway_of(app).collided.put_nowait({SessionId("api"): API, SessionId("web"): WEB})
        await auntil(lambda: "⇄" in text_of(app))

        assert "api ⇄" in row_of(text_of(app), "api")
        assert "web changes src/app.py too" in row_of(text_of(app), "api")
        assert "api changes the same lines" in row_of(text_of(app), "web")
        assert "⇄" not in row_of(text_of(app), "docs")


async def test_the_mark_does_not_hide_a_request() -> None:
    ask = command("api", "git push")
    async with run_app(app := kasmon(fleet(asking("api", ask)))):
        gateway_of(app).collided.put_nowait({SessionId("api"): WEB})
        await auntil(lambda: "api ⇄" in text_of(app))

        assert "git push" in row_of(text_of(app), "api")


async def test_the_mark_ends_with_the_collision() -> None:
    async with run_app(app := kasmon(fleet(working("api")))):
        collided = gateway_of(app).collided
        collided.put_nowait({SessionId("api"): WEB})
        await auntil(lambda: "⇄" in text_of(app))
        collided.put_nowait({})

        await auntil(lambda: "⇄" not in text_of(app))


def test_the_worst_of_several_is_shown_with_the_number_of_others() -> None:
    named = [("web", FileCollision("w", "a.py", False)), ("docs", FileCollision("d", "b.py", True))]

    assert CollisionSummary("docs changes the same lines of b.py too (+1)", True) == summarize(named)
