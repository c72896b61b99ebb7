"""The one table of keys, and what comes of it."""

from pathlib import Path

import pytest

from kasmon.errors import ConfigError
from kasmon.model.formatting import GLYPHS
from kasmon.tui.action import KeyContext
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.help import help_rows
from kasmon.tui.key_names import shown_key, textual_key
from kasmon.tui.keymap import ACTIONS, KeyMap, chosen
from kasmon.tui.terminal.key_encoding import LEAVING, leave_key
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.theme.theme import DEFAULT
from tests.support.dashboard_scenes import kasmon, run_app, settled
from tests.support.sample_fleet import crew
from tests.support.tui.fake_gateway import text_of

LOOK = ThemeStyles(shipped(DEFAULT))


def test_no_key_has_two_actions_in_one_place() -> None:
    for place in KeyContext:
        taken: dict[str, str] = {}
        for row in ACTIONS:
            if row.where in (place, KeyContext.EVERYWHERE):
                for key in KeyMap().of(row.id):
                    assert taken.setdefault(key, row.id) == row.id


def test_the_help_shows_every_key_and_every_shape() -> None:
    shown = "\n".join(line.text for line in help_rows(KeyMap(), LOOK, 90))

    for row in (row for row in ACTIONS if row.keys):
        assert row.help in shown
        assert shown_key(KeyMap().of(row.id)[0]) in shown
    for glyphs in GLYPHS.values():
        assert glyphs[0] in shown


def test_the_help_states_once_where_keys_apply_and_not_in_every_line() -> None:
    shown = [line.text for line in help_rows(KeyMap(), LOOK, 90)]

    assert 1 == sum("on the wave board" in line.casefold() or line == "Wave board" for line in shown)
    assert ["On the sandbox screen"] == [line for line in shown if "on the sandbox screen" in line.casefold()]
    assert shown[shown.index("On the sandbox screen") + 1].split() == ["j", "↓", "Next", "entry"]
    assert any("Help (everywhere)" in line for line in shown), "what counts there too is said where it stands"


def test_the_help_shows_the_keys_of_its_screen_first_and_no_key_twice() -> None:
    shown = [line.text for line in help_rows(KeyMap(), LOOK, 90, (KeyContext.BOARD,), (("F8", "do this"),))]

    assert ["In this dialog", "On the wave board"] == [line for line in shown if line and line[0] != " "][:2]
    assert 1 == sum("Switch focus between list and request" in line for line in shown)
    assert 1 == sum(line.endswith("Next task") for line in shown)
    assert any("Jump to next session that needs attention" in line for line in shown), "all other keys follow"


def test_the_help_is_searched_by_keys_and_text() -> None:
    def found(words: str) -> list[str]:
        return [line.text for line in help_rows(KeyMap(), LOOK, 90, query=words)]

    assert ["All sessions", "Broadcast a prompt to all agents in the list…"] == [
        line if line[0] != " " else line.split(maxsplit=1)[1].strip() for line in found("prompt broadcast")
    ]
    assert any("Attach to terminal" in line for line in found("ctrl+]"))
    assert ["", "No key matches 'xyzzy'."] == found("xyzzy")


@pytest.mark.parametrize("key", ["ctrl+q", "ctrl+s", "ctrl+i", "ctrl+m", "ctrl+h", "ctrl+left_square_bracket"])
def test_keys_that_terminals_keep_for_themselves_are_free(key: str) -> None:
    assert all(key not in KeyMap().of(row.id) for row in ACTIONS)


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("ctrl+]", "ctrl+right_square_bracket"),
        ("/", "slash"),
        ("?", "question_mark"),
        (",", "comma"),
        ("+", "plus"),
        ("A", "A"),
        ("f2", "f2"),
        ("ctrl+@", "ctrl+at"),
    ],
)
def test_keys_are_shown_in_their_usual_form(written: str, named: str) -> None:
    assert named == textual_key(written)


def test_a_config_remaps_keys() -> None:
    keys = chosen({"next": "tab", "stop": ["x", "ctrl+k"]})

    assert ("tab",) == keys.of("next")
    assert ("x", "ctrl+k") == keys.of("stop")
    assert ("n",) == keys.of("new")


@pytest.mark.parametrize(
    ("rows", "why", "key"),
    [
        ({"nxt": "tab"}, "no such action", "keys.nxt"),
        ({"next": "hyper+tab"}, "no such key: 'hyper+tab'", "keys.next"),
        ({"next": "tabb"}, "no such key: 'tabb'", "keys.next"),
        ({"next": "n"}, "the key 'n' is already bound to 'new' in the list", "keys.next"),
        ({"later": "a"}, "the key 'a' is already bound to 'allow_once' in a request", "keys.later"),
        ({"new": "ctrl+["}, "most terminals send 'escape' for the key 'ctrl+[', so choose another key", "keys.new"),
        ({"new": "ctrl+m"}, "most terminals send 'enter' for the key 'ctrl+m', so choose another key", "keys.new"),
        ({"new": "ctrl+i"}, "most terminals send 'tab' for the key 'ctrl+i', so choose another key", "keys.new"),
        ({"new": "ctrl+H"}, "most terminals send 'backspace' for the key 'ctrl+H', so choose another key", "keys.new"),
    ],
)
def test_an_invalid_key_is_reported_with_its_place(rows: dict[str, str], why: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(rows, "config.toml")

    assert (why, key) == (caught.value.why, caught.value.key)


def test_a_key_that_cannot_be_is_said_with_its_line_and_every_leave_key_can_be_chosen() -> None:
    text = '[ui]\nbell = true\n[keys]\nnext = "tab"\nlater = "a"\n'
    with pytest.raises(ConfigError, match=r"^config\.toml:5 at 'keys\.later'"):
        chosen({"next": "tab", "later": "a"}, "config.toml", text)

    for character in sorted(LEAVING):
        key = f"ctrl+{'space' if character == ' ' else character}"
        assert leave_key(chosen({"leave_focus": key}).chosen["leave_focus"][0]).legacy


async def test_a_remapped_key_works_and_the_old_one_does_not() -> None:
    async with run_app(app := kasmon(settings=DashboardSettings(keys={"next": "tab", "new": "N"}))) as pilot:
        await pilot.press("n")
        assert 1 == len(app.screen_stack)

        await pilot.press("N")
        await settled(pilot)
        assert "New session" in text_of(app)


async def test_the_key_bar_shows_the_keys_in_force() -> None:
    async with run_app(app := kasmon(settings=DashboardSettings(keys={"new": "N"}))):
        assert " N new " in text_of(app).splitlines()[-1]


async def test_a_click_on_the_key_bar_does_what_its_key_does() -> None:
    async with run_app(app := kasmon(crew())) as pilot:
        column = text_of(app).splitlines()[-1].index("help")
        await pilot.click(offset=(column, 39))
        await pilot.pause()

        assert "Jump to next session that needs attention" in text_of(app)


def test_the_handlers_contain_no_key() -> None:
    """A key is a row of the table; nothing else knows it."""
    import kasmon.tui.actions.general

    assert "ctrl+" not in Path(kasmon.tui.actions.general.__file__).read_text("utf-8")
