"""Themes: strict files, readable colours, the last good one stays, and what is edited shows at once."""

import itertools
from pathlib import Path

import msgspec
import pytest
from rich.color import ColorSystem
from textual.css.stylesheet import Stylesheet

import kasmon
from kasmon.errors import ConfigError
from kasmon.model.formatting import GLYPHS
from kasmon.model.transcript.text import Token
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.gateway.theme_library import ThemeLibrary, shipped, shipped_names
from kasmon.tui.terminal.background import QUERY
from kasmon.tui.theme.few_colours import reduce_colours, shown
from kasmon.tui.theme.look import TOKENS, Background, ThemeStyles
from kasmon.tui.theme.theme import DEFAULT, LIGHT, PLAIN, SIXTEEN, ThemeFile, contrast, mix, parse, readable, variables
from tests.support.cli.fork_server import KASMON
from tests.support.dashboard_scenes import kasmon as dashboard
from tests.support.dashboard_scenes import run_app, settled
from tests.support.sample_fleet import crew
from tests.support.tui.fake_gateway import gateway_of, text_of
from tests.support.tui.pty_program import OnTerminal
from tests.support.wait import auntil, until

GROUNDS = ("background", "surface", "raised", "selected", "line")
MOON = (Path(kasmon.__file__).parent / "themes" / "rose-pine-moon.toml").read_text("utf-8")


def texts(theme: ThemeFile) -> dict[str, str]:
    """Every colour that letters have."""
    named = {name: colour for name, colour in msgspec.structs.asdict(theme.colors).items() if name not in GROUNDS}
    for part in ("states", "diff", "says"):
        named |= {f"{part}.{name}": value for name, value in msgspec.structs.asdict(getattr(theme, part)).items()}
    return named


def state_roles(theme: ThemeFile) -> list[str]:
    """The roles of all states that a row can show."""
    return [f"state-{state}" for state in (*msgspec.structs.asdict(theme.states), "finished")]


def test_there_are_dark_light_high_contrast_and_monochrome_themes() -> None:
    themes = {name: shipped(name) for name in shipped_names()}

    assert DEFAULT == shipped_names()[0] == "rose-pine-moon"
    assert 4 <= sum(theme.dark for theme in themes.values())
    assert any(not theme.dark for theme in themes.values())
    assert {"high-contrast", PLAIN} <= set(themes)


@pytest.mark.parametrize("name", shipped_names())
@pytest.mark.parametrize("ground", ["background", "surface", "raised"])
def test_every_text_is_readable_on_every_background(name: str, ground: str) -> None:
    theme = shipped(name)
    least = 7.0 if name == "high-contrast" else 4.5
    back = getattr(theme.colors, ground)

    assert {} == {text: colour for text, colour in texts(theme).items() if contrast(colour, back) < least}


@pytest.mark.parametrize("name", shipped_names())
def test_every_text_is_readable_on_the_selected_row(name: str) -> None:
    theme = shipped(name)
    look = ThemeStyles(theme)
    for role in ("text", "soft", "faint", "accent", "warn", "bad", *state_roles(theme)):
        style = look.style(role, "selected")
        assert style.color is not None
        assert style.bgcolor is not None
        assert contrast(style.color.name, style.bgcolor.name) >= theme.contrast


@pytest.mark.parametrize("name", shipped_names())
def test_filled_areas_are_readable_too(name: str) -> None:
    look = ThemeStyles(shipped(name))
    for role in ("state-asking.solid", "warn.solid", "bad.solid", "info.solid", "accent.solid"):
        style = look.style(role, "raised")
        assert style.color is not None
        assert style.bgcolor is not None
        assert contrast(style.color.name, style.bgcolor.name) >= 4.5


@pytest.mark.parametrize("name", shipped_names())
def test_a_selection_in_a_list_or_a_box_is_readable(name: str) -> None:
    theme = shipped(name)
    shown = variables(theme)

    assert contrast(shown["input-selection-foreground"], shown["input-selection-background"]) >= 4.5
    assert contrast(shown["block-cursor-foreground"], shown["block-cursor-background"]) >= 4.5
    assert contrast(theme.colors.soft, shown["block-cursor-blurred-background"]) >= 4.5
    assert contrast(theme.colors.text, shown["block-cursor-blurred-background"]) >= 4.5


def seen_as(colour: str | None, system: ColorSystem) -> str:
    """What a terminal with so few colours shows for it."""
    assert colour is not None
    return shown(colour, system)


FEW = [(name, ColorSystem.EIGHT_BIT) for name in shipped_names()] + [(SIXTEEN, ColorSystem.STANDARD)]


@pytest.mark.parametrize(("name", "system"), FEW)
@pytest.mark.parametrize("ground", ["background", "surface", "raised", "selected"])
def test_every_state_and_text_is_readable_in_256_and_in_16_colours(
    name: str, system: ColorSystem, ground: Background
) -> None:
    theme = shipped(name) if system is ColorSystem.STANDARD else reduce_colours(shipped(name))
    look = ThemeStyles(theme)
    for role in ("text", "soft", "faint", "accent", "info", "good", "warn", "bad", *state_roles(theme)):
        style = look.style(role, ground)
        assert style.color is not None
        assert style.bgcolor is not None
        front, back = seen_as(style.color.name, system), seen_as(style.bgcolor.name, system)
        assert contrast(front, back) >= 3.9, (role, front, back)


@pytest.mark.parametrize(("name", "system"), FEW)
def test_a_diff_is_readable_in_256_and_in_16_colours_and_its_sides_differ_in_256(
    name: str, system: ColorSystem
) -> None:
    theme = shipped(name) if system is ColorSystem.STANDARD else reduce_colours(shipped(name))
    look = ThemeStyles(theme)
    code = [TOKENS[token] for token in (Token.KEYWORD, Token.NAME, Token.LITERAL, Token.FIGURE, Token.COMMENT)]
    grounds: tuple[Background, ...] = ("added", "added-words", "removed", "removed-words")
    backs = []
    for ground in grounds:
        for role in ("text", "faint", "diff-added", "diff-removed", *code):
            style = look.style(role, ground)
            assert style.color is not None
            assert style.bgcolor is not None
            front, back = seen_as(style.color.name, system), seen_as(style.bgcolor.name, system)
            assert contrast(front, back) >= 3.6, (ground, role, front, back)
        backs.append(back)
    if system is ColorSystem.EIGHT_BIT:
        assert not set(backs[:2]) & set(backs[2:])
        assert not {theme.colors.background, theme.colors.selected} & set(backs)


@pytest.mark.parametrize(("name", "system"), FEW)
def test_sessions_that_need_the_user_have_a_colour_of_their_own_in_256_and_in_16_colours(
    name: str, system: ColorSystem
) -> None:
    if name == PLAIN:
        return  # its shapes and words say everything
    theme = shipped(name) if system is ColorSystem.STANDARD else reduce_colours(shipped(name))
    look = ThemeStyles(theme)
    told_apart = ("asking", "lost", "working", "ended")
    colours = {state: seen_as(look.colour(f"state-{state}"), system) for state in told_apart}
    assert len(colours) == len(set(colours.values())), colours
    grounds = {seen_as(getattr(theme.colors, name), system) for name in ("background", "selected")}
    assert 2 == len(grounds), "the selected row is seen"


@pytest.mark.parametrize("name", shipped_names())
def test_states_that_differ_in_colour_differ_in_256_colours_too(name: str) -> None:
    given, few = (msgspec.structs.asdict(theme.states) for theme in (shipped(name), reduce_colours(shipped(name))))
    for one, other in itertools.combinations(given, 2):
        assert (given[one] == given[other]) == (few[one] == few[other]), (one, other)


def test_every_state_has_a_shape_of_its_own() -> None:
    for shapes in zip(*(GLYPHS[state] for state in GLYPHS), strict=True):
        assert len(GLYPHS) == len(set(shapes))


@pytest.mark.parametrize(
    ("term", "asked", "theme", "background"),
    [
        ("xterm", "nord", SIXTEEN, "#000000"),
        ("xterm-256color", "nord", "nord", "#303030"),
        ("xterm-256color", "", DEFAULT, "#262626"),
    ],
)
async def test_a_terminal_with_few_colours_gets_the_nearest(
    monkeypatch: pytest.MonkeyPatch, term: str, asked: str, theme: str, background: str
) -> None:
    monkeypatch.delenv("COLORTERM")
    monkeypatch.setenv("TERM", term)
    async with run_app(app := dashboard(crew(), settings=DashboardSettings(theme=asked))):
        assert theme == app.theme
        assert background == app.look.theme.colors.background


def test_every_piece_of_a_transcript_has_a_colour() -> None:
    assert set(Token) == set(TOKENS)
    known = variables(shipped(DEFAULT))
    for role in TOKENS.values():
        name = role.partition(".")[0]
        assert name in known or f"k-{name}" in known


def test_contrast_is_the_wcags_and_a_colour_moves_only_as_far_as_it_must() -> None:
    assert 21.0 == pytest.approx(contrast("#000000", "#ffffff"))
    assert 1.0 == pytest.approx(contrast("#777777", "#777777"))
    assert 4.48 == pytest.approx(contrast("#777777", "#ffffff"), abs=0.01)

    assert "#ffffff" == readable("#ffffff", "#000000")
    assert contrast(readable("#333333", "#222222"), "#222222") >= 4.5
    assert "#808080" == mix("#000000", "#ffffff", 0.5)


@pytest.mark.parametrize(
    ("change", "line", "key", "why"),
    [
        (('text = "#e0def4"', 'text = "e0def4"'), 10, "colors.text", "not a colour; write it as #rrggbb"),
        (('text = "#e0def4"', "text = 5"), 10, "colors.text", "expected str, got int"),
        (('text = "#e0def4"', 'txt = "#e0def4"'), 10, "colors.txt", "no such key"),
        (('text = "#e0def4"\n', ""), 4, "colors.text", "this key is missing"),
        (('title = "Rosé', 'titel = "Rosé'), 2, "titel", "no such key"),
        (("[diff]", "[difference]"), 32, "difference", "no such key"),
    ],
)
def test_a_fault_in_a_theme_is_reported_with_its_place(change: tuple[str, str], line: int, key: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(MOON.replace(*change), "x.toml")

    assert (line, key, why) == (caught.value.line, caught.value.key, caught.value.why)
    assert str(caught.value).startswith(f"x.toml:{line}")


def test_an_unknown_key_names_those_that_are_allowed_and_broken_toml_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{MOON}\n[more]\nx = 1\n", "x.toml")
    assert "more" == caught.value.key
    assert {"title", "dark", "colors", "states", "diff", "says"} <= set(caught.value.allowed)

    with pytest.raises(ConfigError) as caught:
        parse('title = "x"\n[colors\n', "x.toml")
    assert 2 == caught.value.line


def test_a_number_of_any_size_causes_no_crash() -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        parse(f"{MOON}\nx = {'9' * 5000}\n", "x.toml")


def test_a_users_theme_replaces_a_shipped_one() -> None:
    shelf = ThemeLibrary()
    shelf.put((("/c/themes/nord.toml", MOON.replace("Rosé Pine Moon", "Mine")), ("/c/themes/own.toml", MOON)))

    themes = dict(shelf.all())
    assert "Mine" == themes["nord"].title
    assert "own" in themes
    assert shelf.get("nobody") is None
    assert shipped(DEFAULT) == shelf.get("")


def test_the_last_good_version_of_a_theme_stays() -> None:
    shelf = ThemeLibrary()
    shelf.put((("/c/themes/own.toml", MOON.replace("Rosé Pine Moon", "Mine")),))
    shelf.put((("/c/themes/own.toml", "title = 5"),))

    own = shelf.get("own")
    assert own is not None
    assert "Mine" == own.title
    assert 1 == len(shelf.problems)


async def test_an_edited_theme_applies_at_once() -> None:
    app = dashboard(crew(), settings=DashboardSettings(theme="own", theme_files=(("/c/own.toml", MOON),)))
    async with run_app(app) as pilot:
        edited = MOON.replace('background = "#232136"', 'background = "#101010"')
        gateway = gateway_of(app)
        gateway.kept.put_nowait(DashboardSettings(theme="own", theme_files=(("/c/own.toml", edited),)))
        await auntil(lambda: app.look.colour("background") == "#101010")
        await pilot.pause()

        ground = app.main_view.table.render_line(3)._segments[0].style
        assert ground is not None
        assert ground.bgcolor is not None
        assert "#101010" == ground.bgcolor.name


async def test_a_config_with_another_theme_applies_at_once() -> None:
    async with run_app(app := dashboard(crew())):
        gateway_of(app).kept.put_nowait(DashboardSettings(theme="nord"))
        await auntil(lambda: app.theme == "nord")

        assert shipped("nord").colors.text == app.look.colour("text")


async def test_the_style_sheet_is_read_once_for_the_first_frame_and_equal_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To read it anew and draw everything by it takes 25 ms, and would happen four times at each start."""
    read_anew: list[Stylesheet] = []
    reparse = Stylesheet.reparse

    def counted(sheet: Stylesheet) -> None:
        read_anew.append(sheet)
        reparse(sheet)

    monkeypatch.setattr(Stylesheet, "reparse", counted)
    async with run_app(app := dashboard(crew()), (80, 24)) as pilot:
        gateway = gateway_of(app)
        await auntil(gateway.kept.empty)
        await settled(pilot)
        assert DEFAULT == app.theme
        assert shipped(DEFAULT).colors.background == app.get_css_variables()["k-background"]
        assert app.screen.styles.background.hex.lower() == shipped(DEFAULT).colors.background
        assert [] == read_anew

        gateway.kept.put_nowait(DashboardSettings(theme="nord"))
        await auntil(lambda: app.theme == "nord")
        await settled(pilot)
        assert app.screen.styles.background.hex.lower() == shipped("nord").colors.background
        assert [] != read_anew


async def test_a_broken_theme_is_reported_and_the_screen_is_unchanged() -> None:
    app = dashboard(crew(), settings=DashboardSettings(theme="own", theme_files=(("/c/own.toml", MOON),)))
    async with run_app(app, notifications=True):
        before = app.look.colour("background")
        gateway_of(app).kept.put_nowait(DashboardSettings(theme="own", theme_files=(("/c/own.toml", "x = 1"),)))
        await auntil(lambda: "no such key" in " ".join(text_of(app).split()))

        assert before == app.look.colour("background")
        assert "own" == app.theme


async def test_a_missing_theme_is_reported_with_the_available_ones() -> None:
    app = dashboard(crew(), settings=DashboardSettings(theme="solarised"))
    async with run_app(app, notifications=True) as pilot:
        await pilot.pause()

        assert DEFAULT == app.theme
        told = text_of(app)
        assert all(word in told for word in ("'ui.theme'", "'solarised'", "Allowed", "rose-pine-dawn"))


@pytest.mark.parametrize(
    ("theme", "light_theme", "dark", "light"),
    [
        ("", "", DEFAULT, LIGHT),
        ("nord", "", "nord", "nord"),
        ("nord", "github-light", "nord", "github-light"),
        ("", "catppuccin-latte", DEFAULT, "catppuccin-latte"),
    ],
)
async def test_a_light_terminal_has_a_theme_of_its_own(theme: str, light_theme: str, dark: str, light: str) -> None:
    async with run_app(app := dashboard(crew(), settings=DashboardSettings(theme=theme, light_theme=light_theme))):
        assert dark == app.theme
        app.user_settings.use_background(is_light=True)
        assert light == app.theme
        app.user_settings.use_background(is_light=False)
        assert dark == app.theme


async def test_a_missing_light_theme_is_reported_on_a_light_terminal() -> None:
    app = dashboard(crew(), settings=DashboardSettings(light_theme="paper"))
    async with run_app(app, notifications=True) as pilot:
        assert DEFAULT == app.theme
        app.user_settings.use_background(is_light=True)
        await pilot.pause()

        assert LIGHT == app.theme
        assert all(word in text_of(app) for word in ("'ui.light_theme'", "'paper'"))


def test_the_terminal_is_queried_and_its_replies_are_applied(tmp_path: Path) -> None:
    with OnTerminal(KASMON, tmp_path, environment={"COLORTERM": "truecolor"}) as terminal:
        terminal.until(QUERY.encode())
        terminal.until(b"48;2;35;33;54")
        terminal.send(b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\")
        terminal.until(b"48;2;250;244;237")
        shown = len(terminal.seen)
        terminal.send(b"\x1b]11;rgb:0000/0000/0000\x07")
        until(lambda: b"48;2;35;33;54" in terminal.seen[shown:], what="the dark theme")
        assert b"No such key" not in terminal.seen
        terminal.send(b"q")


async def test_a_broken_config_is_reported_once() -> None:
    async with run_app(app := dashboard(crew()), notifications=True) as pilot:
        gateway = gateway_of(app)
        for _ in range(3):
            gateway.kept.put_nowait(DashboardSettings(problems=("config.toml:3 at 'ui.bel': no such key.",)))
        await auntil(lambda: gateway.kept.empty())
        await pilot.pause()

        assert 1 == text_of(app).count("config.toml:3")
