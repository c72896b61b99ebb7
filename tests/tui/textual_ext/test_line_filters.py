"""Nothing foreign acts on the terminal or on the dashboard: text is text, whatever is in it."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.pilot import Pilot
from textual.widget import Widget
from textual.worker import WorkerFailed

import kasmon.tui
from kasmon.host.rpc.frames import SubscriptionEnd
from kasmon.model.commands import Mode
from kasmon.model.events import MessageWritten, ToolStarted
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.key_names import textual_key
from kasmon.tui.textual_ext.line_filters import ControlCharacterFilter, MonochromeFilter, trace_of
from tests.support.dashboard_scenes import SCENES, armed, run_app
from tests.support.dashboard_scenes import kasmon as dashboard
from tests.support.sample_fleet import (
    NOW,
    StillClock,
    asking,
    command,
    crew,
    ended,
    fleet,
    idle,
    question,
    session,
    working,
)
from tests.support.syntax_trees import nodes, parsed
from tests.support.tui.fake_gateway import fleet_update, gateway_of, text_of

ACTS = "\x1b]52;c;AAAA\x07\x1b[6n\x9b2J\x05\u202e\x1b]0;title\x07"
"""Sets a clipboard, asks the terminal to type, clears it, turns the text round, renames the window."""
MARKUP = (
    "[@click=app.quit]a[/]",
    "[/foo] x [b",
    "[link=file:///etc/passwd]x[/link]",
    "[[[",
    "\\[",
    "[red]red",
    "$(touch x)",
    "{0} %s",
    "a" * 10_000,
    "日本語" * 300,
    "\u202egnp.exe",
    "e\u0301\u0301\u0301" * 200,
    "\U000e0041\U000e007f",
    "\ud800",
    "",
    "\n\r\t\x00",
    ACTS,
)
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff]")
MODULES = sorted(Path(kasmon.tui.__file__).parent.rglob("*.py"))


def hostile(text: str) -> tuple[Session, ...]:
    """Sessions with *text* in every place that takes some."""
    ask = command("a", text or "x", title=text, tool=text, rule=text, shown=text)
    choice = question("b", title=text, shown=text, options=(text, f"{text}2"))
    return (
        asking("a", ask),
        asking("b", choice),
        msgspec.structs.replace(
            working("c", text), name=text, agent=text, workdir=text, fallback=text, plan=text, wave=1
        ),
        session("d", SessionState.UNSURE, unsure_why=text, last_line=text, source=text),
        ended("e", None, signal=text, last_line=text, end_why=text),
        idle("f", text, sandbox=text),
    )


PATHS = ("W", "jj", "m", "r", "M", ",", "n", "x", "D", "/a", "?")
"""Keys that lead to a place, each left again by Esc."""


async def walk(app: Kasmon, pilot: Pilot[None]) -> list[str]:
    """What the screen shows, place after place."""
    screens = [text_of(app)]
    for keys in PATHS:
        await pilot.press(*(textual_key(key) for key in keys))
        await pilot.pause()
        screens.append(text_of(app))
        await pilot.press("escape")
    return screens


def clickable(app: Kasmon) -> list[str]:
    """The actions that some cell would run when clicked."""
    segments = (segment for strip in app.screen._compositor.render_strips() for segment in strip)
    metas = (segment.style.meta for segment in segments if segment.style is not None)
    return [str(meta["@click"]) for meta in metas if "@click" in meta]


async def test_hostile_text_is_shown_as_text_wherever_it_is_shown() -> None:
    sessions = [
        msgspec.structs.replace(each, id=SessionId(f"{each.id}{number}"))
        for number, text in enumerate(MARKUP)
        for each in hostile(text)
        if each.state is not SessionState.ASKING
    ]
    settings = DashboardSettings(config_path=ACTS, problems=MARKUP, workdir=ACTS)
    async with run_app(app := dashboard(fleet(*sessions), settings=settings), notifications=True) as pilot:
        screens = await walk(app, pilot)
        await pilot.press("slash", *"state:ended", "enter", "R")
        screens.append(text_of(app))

        assert not [screen for screen in screens if FORBIDDEN.search(screen.replace("\n", ""))]
        assert not clickable(app)


@pytest.mark.parametrize("text", MARKUP, ids=lambda text: repr(text[:16]))
async def test_hostile_text_is_shown_as_text_on_a_card_in_a_note_and_in_a_transcript(text: str) -> None:
    events = (MessageWritten(at=NOW, text=text), ToolStarted(at=NOW, call="1", tool=text, title=text, input=text))
    app = dashboard(fleet(*hostile(text)[:3]), transcripts=dict.fromkeys("abc", events))
    async with run_app(app, notifications=True) as pilot:
        app.say(text)
        last = msgspec.structs.replace(ended("c", None, signal=text, last_line=text), name=text)
        app._show_update(fleet_update(fleet(*hostile(text)[:2], last)))
        app.main_view.table.select(SessionId("c"))
        await pilot.press("enter")
        await pilot.pause()
        screens = [text_of(app)]
        await pilot.press("f2")
        for _ in range(2):
            await armed(pilot)
            screens.append(text_of(app))
            await pilot.press("right")

        assert not [screen for screen in screens if FORBIDDEN.search(screen.replace("\n", ""))]
        assert not clickable(app)
        assert not [name for name, _ in gateway_of(app).calls if name != "send_alert"]


async def test_markup_is_shown_literally_in_the_list() -> None:
    async with run_app(dashboard(fleet(idle("x", "[@click=app.quit]a[/]")))) as pilot:
        assert "[@click=app.quit]a[/]" in text_of(pilot.app)


MADE_BY_TEXTUAL = frozenset(
    [
        "_merged_bindings",
        "_css_type_name",
        "_css_type_names",
        "_decorated_handlers",
        "_reactives",
        "_computes",
        "_inherit_bindings",
        "_inherit_css",
        "_inherit_component_classes",
        "_message_handlers",
    ]
)
"""What it puts into every class of a widget."""


def our_widgets() -> list[type[Any]]:
    """Every widget class of the dashboard, also one that is written tomorrow."""
    found: set[type[Any]] = set()
    for module in pkgutil.walk_packages(kasmon.tui.__path__, "kasmon.tui."):
        loaded = importlib.import_module(module.name)
        found |= {
            each for each in vars(loaded).values()
            if isinstance(each, type) and issubclass(each, Widget) and each.__module__.startswith("kasmon.")
        }  # fmt: skip
    return sorted(found, key=lambda each: each.__qualname__)


@pytest.mark.parametrize("widget", our_widgets(), ids=lambda widget: widget.__qualname__)
def test_no_widget_overrides_textuals_own_by_accident(widget: type[Any]) -> None:
    """A name with one underscore that Textual has too is a clash, but in `textual_ext`."""
    textuals = {
        name
        for base in widget.__mro__
        if base.__module__.startswith("textual.")
        for name in vars(base)
        if name.startswith("_") and not name.startswith("__")
    }
    ours = {
        name
        for base in widget.__mro__
        if base.__module__.startswith("kasmon.") and not base.__module__.startswith("kasmon.tui.textual_ext.")
        for name in vars(base)
    }
    assert set() == (ours & textuals) - MADE_BY_TEXTUAL


@pytest.mark.parametrize("scene", ["list-120x40", "card-hidden", "help-80x24", "new-80x24", "inside-structured-80x24"])
async def test_no_line_of_the_dashboard_holds_a_control_character(scene: str) -> None:
    wanted = SCENES[scene]
    async with (app := wanted.app()).run_test(size=wanted.size) as pilot:
        await wanted.act(pilot)

        assert not FORBIDDEN.search(text_of(app).replace("\n", ""))


def test_the_filter_drops_control_characters_and_keeps_text() -> None:
    link = Style(link="javascript:alert(1)", bold=True)
    segments = [Segment(f"a{ACTS}b", Style(bold=True)), Segment("plain", link), Segment("é✓日本", None)]

    drawn = ControlCharacterFilter().apply(segments, Color(0, 0, 0))

    assert not FORBIDDEN.search("".join(segment.text for segment in drawn))
    assert "é✓日本" == drawn[2].text
    assert all(segment.style is None or segment.style.link is None for segment in drawn)
    assert drawn[1].style is not None
    assert drawn[1].style.bold


def test_the_filter_costs_nothing_without_special_characters() -> None:
    segments = [Segment("plain", Style(bold=True))]

    assert ControlCharacterFilter().apply(segments, Color(0, 0, 0)) is segments


async def test_the_filter_is_under_every_widget_of_textual_too() -> None:
    from textual.widgets import Static

    async with (app := Kasmon(crew(), clock=StillClock())).run_test(size=(120, 40)) as pilot:
        await app.mount(Static(f"evil{ACTS}", markup=False))
        await pilot.pause()

        assert "evil" in text_of(app)
        assert not FORBIDDEN.search(text_of(app).replace("\n", ""))


async def test_without_colours_only_shapes_bold_and_reverse_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    scene = SCENES["list-120x40"]
    async with (app := scene.app()).run_test(size=scene.size) as pilot:
        await scene.act(pilot)
        styles = [segment.style for strip in app.screen._compositor.render_strips() for segment in strip]

        assert all(style is None or (style.color is None and style.bgcolor is None) for style in styles)
        assert any(style is not None and style.reverse for style in styles)
        assert any(style is not None and style.bold for style in styles)
        assert "monochrome" == app.theme


def test_a_light_background_is_reversed_without_colours() -> None:
    light, dark = Style(color="#000000", bgcolor="#ffffff"), Style(color="#ffffff", bgcolor="#000000")

    drawn = MonochromeFilter().apply([Segment("a", light), Segment("b", dark)], Color(0, 0, 0))

    assert [True, None] == [segment.style.reverse for segment in drawn if segment.style is not None]


SECRET = "canary-7f3a"


async def test_a_crash_shows_no_values_and_leaves_a_trace_in_the_log(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    app = Kasmon(crew(), clock=StillClock())

    async def crash() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            api_key = SECRET
            app._handle_exception(ValueError(f"cannot use {api_key}"))
            await pilot.pause()

    with pytest.raises(ValueError, match=SECRET):
        await crash()
    told = capsys.readouterr()
    assert SECRET not in told.err + told.out + caplog.text + app.crash
    assert "the dashboard crashed (ValueError); the agents keep running. Run `kasmon` again." == app.crash
    assert "ValueError" in caplog.text
    assert 1 == app.return_code


def test_a_trace_names_places_without_values() -> None:
    api_key = SECRET
    try:
        raise RuntimeError(api_key)
    except RuntimeError as error:
        traces = [trace_of(error), trace_of(WorkerFailed(error))]

    for trace in traces:
        assert SECRET not in trace
        assert re.search(r"RuntimeError < test_line_filters\.py:\d+ in test_a_trace", trace)


PARSES_MARKUP = frozenset(
    [
        "Static",
        "Label",
        "Button",
        "OptionList",
        "Option",
        "Tree",
        "Checkbox",
        "RadioButton",
        "Collapsible",
        "TabPane",
        "Select",
        "SelectionList",
        "ListItem",
        "DataTable",
        "RichLog",
        "Markdown",
    ]
)


def test_no_module_passes_text_to_a_function_that_reads_markup() -> None:
    """Textual parses markup in plain strings, and runs what is in it."""
    found = []
    for module in MODULES:
        for node in nodes(parsed(module)):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            words = {keyword.arg: keyword.value for keyword in node.keywords}
            plain = isinstance(words.get("markup"), ast.Constant) and cast(ast.Constant, words["markup"]).value is False
            reads_markup = name in PARSES_MARKUP and node.args and not plain
            if name == "from_markup" or reads_markup or (name == "notify" and not plain):
                found.append(f"{module.name}:{node.lineno}")
    assert [] == found


def test_titles_in_frames_are_content_and_not_markup() -> None:
    found = []
    for module in MODULES:
        for node in nodes(parsed(module)):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and target.attr in (
                        "border_title",
                        "border_subtitle",
                        "tooltip",
                    ):
                        made = node.value
                        if not isinstance(made, ast.Call) or getattr(made.func, "id", "") != "Content":
                            found.append(f"{module.name}:{node.lineno}")
    assert [] == found


LATE = frozenset(
    [
        "textual.widgets._text_area",
        "textual.widgets._markdown",
        "tree_sitter",
        "libtmux",
        "kasmon.tui.dialogs.common",
        "kasmon.tui.dialogs.new_session",
        "kasmon.tui.permissions.card.card",
        "kasmon.tui.transcript.view",
        "kasmon.model.transcript.layout",
        "pyte",
        "kasmon.tui.palette",
        "kasmon.tui.transcript.prompt_box",
        "watchfiles",
        "sqlite3",
        "psutil",
        "tomlkit",
        "claude_agent_sdk",
        "hashlib",
        "hmac",
        "json",
        "shlex",
        "kasmon.tui.dialogs.base",
        "kasmon.tui.terminal.view",
        "kasmon.tui.terminal.stdin_tap",
        "kasmon.tui.gateway.operations",
        "kasmon.model.review.file_changes",
        "kasmon.supervisor.sessions.session_operations",
        "kasmon.supervisor.sessions.create",
        "kasmon.host.rpc.connect",
    ]
)
"""What no first frame needs."""


@pytest.mark.parametrize("module", ["kasmon.tui.app", "kasmon.tui.process.run"])
def test_the_dashboard_starts_without_modules_for_later_frames(module: str) -> None:
    """`run` has the world of real sessions with it, which reads the index."""
    code = f"import sys; import {module}; print(*sys.modules)"
    python = [sys.executable, "-P", "-c", code]
    told = subprocess.run(python, capture_output=True, text=True, check=True).stdout.split()

    assert set() == (LATE - {"sqlite3"} if module == "kasmon.tui.process.run" else LATE) & set(told)


async def test_a_push_for_an_unknown_session_is_no_error() -> None:
    async with run_app(app := dashboard(fleet(working("docs", mode=Mode.TMUX))), (80, 24)) as pilot:
        gateway_of(app).push(SubscriptionEnd(session=SessionId("nobody"), why=ACTS))
        await pilot.pause()

        assert app.is_running
