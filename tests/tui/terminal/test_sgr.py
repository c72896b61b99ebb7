"""A captured row becomes cells: its colours are kept, and nothing in it acts."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from kasmon.tui.terminal import sgr
from kasmon.tui.terminal.sgr import strip_of
from tests.support.wait import until

FORBIDDEN = re.compile("[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]")


def styled(row: str) -> list[tuple[str, str]]:
    """The pieces of *row*, each with its style in words."""
    return [(segment.text, str(segment.style) if segment.style else "") for segment in strip_of(row)]


STYLES = {
    "1": "bold",
    "2": "dim",
    "3": "italic",
    "4": "underline",
    "4:1": "underline",
    "4:2": "underline2",
    "4:3": "underline",
    "21": "underline2",
    "5": "blink",
    "7": "reverse",
    "8": "conceal",
    "9": "strike",
    "53": "overline",
    "31": "color(1)",
    "97": "color(15)",
    "44": "on color(4)",
    "103": "on color(11)",
    "38;5;208": "color(208)",
    "38:5:208": "color(208)",
    "48;5;17": "on color(17)",
    "38;2;1;2;3": "#010203",
    "38:2:1:2:3": "#010203",
    "38:2::1:2:3": "#010203",
    "48:2::1:2:3": "on #010203",
    "1;31;44": "bold color(1) on color(4)",
    "58;2;255;0;4;1": "bold",
    "58:2::255:0:4": "",
    "58:5:1;3": "italic",
    "38;5;300": "",
    "38;2;1": "",
    "38;9": "",
    "99999999999": "",
    "777": "",
}


@pytest.mark.parametrize(("numbers", "words"), STYLES.items())
def test_styles_are_read(numbers: str, words: str) -> None:
    expected = words and str(Style.parse(words))

    assert [("x", expected)] == styled(f"\x1b[{numbers}mx")


OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "4:2": "4:0", "21": "24", "5": "25", "7": "27", "8": "28", "9": "29"}
OFF |= {"53": "55", "31": "39", "44": "49", "1;3;31": "0", "4;32": ""}


@pytest.mark.parametrize(("on", "off"), OFF.items())
def test_styles_end(on: str, off: str) -> None:
    assert [("x", ""), ("y", styled(f"\x1b[{on}my")[0][1]), ("z", "")] == styled(f"x\x1b[{on}my\x1b[{off}mz")


def test_line_drawing_is_drawn() -> None:
    assert "┌──┐ x" == strip_of("\x0elqqk\x0f x").text
    assert [("┌", ""), ("─┐", "color(1)"), (" x", "color(1)")] == [
        (text, style) for text, style in styled("\x0el\x1b[31mqk\x0f\x1b[31m x")
    ]
    assert "├│" == strip_of("\x0etx").text


DROPPED = {
    "hyperlink": ("\x1b]8;;https://x.test\x1b\\link\x1b]8;;\x1b\\!", "link!"),
    "title": ("\x1b]2;owned\x07x", "x"),
    "clipboard": ("\x1b]52;c;aGk=\x1b\\x", "x"),
    "unfinished": ("x\x1b]52;c;aGk", "x"),
    "device control": ("\x1bPq#0;2;0;0;0\x1b\\x", "x"),
    "graphics": ("\x1b_Gf=100;AAAA\x1b\\x", "x"),
    "question": ("\x1b[6nx\x1b[cx", "xx"),
    "movement": ("\x1b[2Jx\x1b[10;10Hy", "xy"),
    "unfinished movement": ("x\x1b[12;", "x"),
    "single escapes": ("\x1bcx\x1b7\x1b(0y", "xy"),
    "controls": ("a\x07\x08\x05b\x7f\x9bc", "abc"),
    "tab": ("a\tb", "a b"),
    "endless style": ("\x1b[" + "1;" * 2000 + "mx", "x"),
}


@pytest.mark.parametrize(("row", "text"), DROPPED.values(), ids=DROPPED.keys())
def test_other_sequences_are_dropped(row: str, text: str) -> None:
    assert text == strip_of(row).text


def test_what_would_turn_the_reading_direction_is_shown_and_widths_are_counted_in_cells() -> None:
    assert "a\ufffdb\ufffd\ufffd" == strip_of("a\u202eb\u2066\u061c").text
    assert "שלום!\u200f" == strip_of("שלום!\u200f").text

    assert (9, 9) == (
        strip_of("\x1b[31mplain\x1b[0m row").cell_length,
        strip_of("漢字 \x1b[1me\u0301\x1b[0m 👩").cell_length,
    )


@given(st.text(alphabet=st.sampled_from("\x1b[]PX_^0123456789;:?mHJ\x07\\\x0e\x0flqx\u202e\x9bé漢 \t"), max_size=60))
def test_no_control_character_is_in_a_row(row: str) -> None:
    strip = strip_of(row)

    assert not FORBIDDEN.search(strip.text)
    assert cell_len(strip.text) == strip.cell_length


def test_a_thousand_colours_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sgr, "STEPS", 100)
    for number in range(1000):
        assert f"#{number % 256:02x}0000" in str(strip_of(f"\x1b[1m\x1b[38;2;{number % 256};0;0mx")._segments[0].style)

    assert len(sgr._pens) <= 101


def test_real_tmux_rows_come_out_as_they_look(tmp_path: Path) -> None:
    """tmux captures with a style that goes on from row to row; one row by itself starts plain."""
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("there is no tmux")
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    server = [tmux, "-S", str(folder / "s"), "-f", "/dev/null", "-u"]
    show = (
        r"printf '\033[1;31mred\033[0m \033(0lqqk\033(B \033[4:3mcurl\033[0m \033[38;2;1;2;3mZ\033[0m 漢字'; sleep 60"
    )
    try:
        subprocess.run([*server, "new-session", "-d", "-x", "40", "-y", "3", show], check=True)

        def captured() -> str:
            capture = [*server, "capture-pane", "-p", "-e"]
            return subprocess.run(capture, check=True, capture_output=True, text=True).stdout.split("\n")[0]

        until(lambda: "漢字" in captured())
        strip = strip_of(captured())
    finally:
        subprocess.run([*server, "kill-server"], check=False)
        shutil.rmtree(folder)

    assert "red ┌──┐ curl Z 漢字" == strip.text
    by_text = {segment.text: str(segment.style) for segment in strip}
    assert ("bold color(1)", "underline", "#010203") == (by_text["red"], by_text["curl"], by_text["Z"])
