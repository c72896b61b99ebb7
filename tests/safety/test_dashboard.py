"""Nothing foreign acts on the terminal, on the dashboard or on its person: what is hostile is shown, and no more."""

import sys
from collections.abc import Iterator

import pytest

from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from tests.support.safety.hostile_text import ACTING, FORBIDDEN, MARKUP, PAYLOADS, hostile_fleet
from tests.support.tui.dashboard import Dashboard, Home

pytestmark = pytest.mark.story

CLICKS = [name for name, payload in MARKUP.items() if "@click" in payload]


@pytest.fixture
def numbers(home: Home) -> Iterator[dict[str, int]]:
    """Each payload's session, by its number."""
    with hostile_fleet(home.paths) as numbers:
        yield numbers


def harm(dashboard: Dashboard) -> list[bytes]:
    """What reached the terminal that must not, with what stands around it."""
    seen = dashboard.seen
    return [seen[max(0, at - 40) : at + 60] for each in FORBIDDEN if (at := seen.find(each)) >= 0]


def put_off(dashboard: Dashboard) -> None:
    """The list of all 66 is there, and no request rises over it any more."""
    dashboard.shows("66 sessions")
    dashboard.send(b"i")
    dashboard.shows("1 of 66")
    dashboard.send(b"\x1b")
    dashboard.hides("1 of 66")


def only(dashboard: Dashboard, number: int) -> None:
    """Narrow the list to the session of this number."""
    put_off(dashboard)
    dashboard.send(b"/")
    dashboard.shows("text, state:asking")
    dashboard.send(f"e{number:02}\r".encode())
    dashboard.shows(f"▌ ◆ asking ×2   e{number:02}")


def test_names_outputs_and_errors_are_shown_without_effect(home: Home, numbers: dict[str, int]) -> None:
    """In the list, in every preview, and on cards."""
    with Dashboard(home, columns=150, rows=45) as dashboard:
        dashboard.shows("66 sessions", "66 pending requests")
        dashboard.send(b"i")
        dashboard.shows("1 of 66", "ready")
        dashboard.send(b"\x1b[C")
        dashboard.shows("2 of 66", "ready")
        dashboard.send(b"\x1b")
        dashboard.hides("of 66")
        for number in numbers.values():
            dashboard.send(b"j")
            dashboard.shows(f" e{number + 1:02} " if number + 1 < len(numbers) else "crashed")

        assert [] == harm(dashboard)
        assert 0 == dashboard.quit()


@pytest.mark.parametrize("name", CLICKS)
def test_a_click_on_what_looks_like_a_link_is_a_click_on_text(home: Home, numbers: dict[str, int], name: str) -> None:
    number = numbers[name]
    with Dashboard(home, columns=160, rows=50) as dashboard:
        only(dashboard, number)
        dashboard.shows("click-me[/]")
        for row, line in enumerate(dashboard.screen.split("\n"), 1):
            if "click-me" in line:
                for column in range(line.index("click-me"), line.rindex("click-me") + 8, 3):
                    dashboard.click_at(column + 1, row)
        dashboard.send(b"?")
        dashboard.shows("Keys")

        assert dashboard.is_up


@pytest.mark.parametrize("name", ["closing", "clipboard"])
def test_a_hostile_name_is_only_a_name_in_every_dialog(home: Home, numbers: dict[str, int], name: str) -> None:
    """A message to it, a new name for it, its stop, its prompt box."""
    number = numbers[name]
    with Dashboard(home, columns=160, rows=50) as dashboard:
        only(dashboard, number)
        for key, words in (("m", "─ Prompt e"), ("r", "─ Rename"), ("x", "─ Stop")):
            dashboard.send(key.encode())
            dashboard.shows(words)
            dashboard.send(b"\x1b")
            dashboard.hides(words)
        dashboard.send(b"X")
        dashboard.shows("is running. Stop it first.")
        dashboard.send(b"o")
        dashboard.shows("no terminal")
        dashboard.send(b"\r")
        dashboard.shows("Write to e")
        dashboard.send(b"\x1b")
        dashboard.hides("Write to e")

        assert [] == harm(dashboard)
        assert dashboard.is_up


@pytest.mark.parametrize(("name", "literal"), [("click", "click-me[/]"), ("closing", "[/foo]")])
def test_a_palette_full_of_hostile_lines_is_only_a_list(
    home: Home, numbers: dict[str, int], name: str, literal: str
) -> None:
    """It shows what a session said last below its name."""
    number = numbers[name]
    with Dashboard(home, columns=160, rows=50) as dashboard:
        put_off(dashboard)
        dashboard.send(b"\x10")
        dashboard.shows("Search commands and sessions")
        dashboard.send(f"e{number:02}".encode())
        dashboard.shows(f"asking  {PAYLOADS[name]}  {PAYLOADS[name]}", literal)

        assert [] == harm(dashboard)


def test_output_of_a_real_agent_has_no_effect_either(home: Home) -> None:
    """Through the script, the host, its socket and its log."""
    lines = [payload.replace("\n", " ") for payload in PAYLOADS.values() if "\n" not in payload.strip()]
    script = "\n".join(f"say {line}" for line in lines) + f"\nask {''.join(ACTING.values()).replace(chr(13), '')}"
    home.start("talker", script)
    with Dashboard(home, columns=160, rows=50) as dashboard:
        dashboard.shows("1 pending request")
        dashboard.send(b"i")
        dashboard.shows("hidden characters", "ready")
        dashboard.send(b"\x1b")
        dashboard.hides("hidden characters")
        dashboard.send(b"\r")
        dashboard.shows("Write to talker")
        for _ in range(30):
            dashboard.send(b"\x1b[5~")
        dashboard.shows("session started")

        assert [] == harm(dashboard)


@pytest.fixture
def printer(home: Home) -> SessionId:
    """A program in tmux that prints everything hostile, as its output and as its title."""
    words = "".join([*ACTING.values(), *MARKUP.values()]).encode().replace(ACTING["wipe"].encode(), b"")
    last = b"\x1b\\\x07\x1b]2;#(touch x)[/x]\x07 all-said"
    program = f"import os\nos.write(1, {words + last!r})\ninput()\n"
    return home.start("printer", agent="", mode=Mode.TMUX, argv=(sys.executable, "-c", program))


def test_output_of_a_terminal_program_has_no_effect_in_preview_and_focus(home: Home, printer: SessionId) -> None:
    with Dashboard(home, columns=160, rows=50) as dashboard:
        dashboard.shows("all-said")
        dashboard.send(b"\r")
        dashboard.shows("Ctrl+] or F12 list", "all-said")
        dashboard.send(b"\x1d")
        dashboard.hides("Ctrl+] or F12 list")

        assert [] == harm(dashboard)
        assert 0 == dashboard.quit()


def test_the_size_is_that_of_the_terminal_and_not_of_exported_variables(home: Home) -> None:
    with Dashboard(home, columns=130, rows=36, environment={"COLUMNS": "80", "LINES": "24"}) as dashboard:
        dashboard.shows("n new", "q quit")
        assert "q quit" in dashboard.screen.split("\n")[35]
