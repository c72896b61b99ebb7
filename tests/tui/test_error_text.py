"""What failed stands on the screen as sentences; what to do next on a line of its own."""

import pytest

from kasmon.errors import NotFoundError, SessionEndedError
from kasmon.tui.error_text import sentence, what_failed
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import fleet, working
from tests.support.tui.fake_gateway import FakeGateway, text_of
from tests.support.wait import auntil


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("the session 'api' has ended.", "The session 'api' has ended."),
        ("cannot reach it: no answer.", "Cannot reach it: no answer."),
        ("nothing.", "Nothing."),
        ("'api' is no name.", "'api' is no name."),
        ("config.toml line 3: no such key", "config.toml line 3: no such key"),
        ("tmux 2.9 is too old.", "tmux 2.9 is too old."),
        ("build: the session 'api' has ended.", "build: the session 'api' has ended."),
        ("--agent needs a name.", "--agent needs a name."),
        ("a\x1b[31mb", "Ab"),
        ("", ""),
    ],
)
def test_a_sentence_starts_with_a_capital_unless_it_starts_with_a_name(said: str, shown: str) -> None:
    assert shown == sentence(said)


def test_the_next_step_is_a_line_of_its_own() -> None:
    error = NotFoundError("no pane is called '%9'.", hint="List them with `tmux list-panes -a`.")

    assert "No pane is called '%9'.\nList them with `tmux list-panes -a`." == what_failed(error)
    assert "Gone." == what_failed(NotFoundError("gone."))


async def test_a_refused_command_is_reported_as_refused() -> None:
    app = kasmon(fleet(working("api", abilities=("interrupts",))))
    assert isinstance(app.gateway, FakeGateway)
    app.gateway.refusing = SessionEndedError("api")
    async with run_app(app, notifications=True) as pilot:
        await pilot.press("c")
        await auntil(lambda: "Session 'api' has ended." in text_of(app))

        assert "ended" not in next(row for row in text_of(app).splitlines() if "kasmon restart api" in row)
