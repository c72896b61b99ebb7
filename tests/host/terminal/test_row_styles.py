"""Captured rows stand alone, whatever stood before them, and hold nothing but text and SGR."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.host.terminal.row_styles import StyledRows, alone
from kasmon.terminal_text.styles import PLAIN
from kasmon.tmux.server import TmuxServer
from tests.support.wait import until

SGR = re.compile(r"\x1b\[[0-9;:]*m")


@pytest.mark.parametrize(
    ("captured", "made"),
    [
        ("plain", "plain"),
        ("\x1b[31mred", "\x1b[0;31mred"),
        ("a\x1b[31mb\x1b[1mc\x1b[0md", "a\x1b[0;31mb\x1b[0;1;31mc\x1b[md"),
        ("\x1b[1m\x1b[32m\x1b[44mx\x1b[39my", "\x1b[0;1;32;44mx\x1b[0;1;44my"),
        ("\x1b[38;5;208m\x1b[48;2;1;2;3mx\x1b[49my", "\x1b[0;38;5;208;48;2;1;2;3mx\x1b[0;38;5;208my"),
        ("\x1b[4:3m\x1b[58:2::1:2:3mx\x1b[59my", "\x1b[0;4:3;58:2::1:2:3mx\x1b[0;4:3my"),
        ("\x1b[4mx\x1b[4:3my", "\x1b[0;4mx\x1b[0;4:3my"),
        ("\x1b[95;103mx", "\x1b[0;95;103mx"),
        ("\x1b[mx", "x"),
        ("\x1b[31m", ""),
        ("\x0elqk\x0fq", "┌─┐q"),
        ("\x0e\x1b[31mx\x0fx", "\x1b[0;31m│x"),
        ("\x1b[31ma\x1b[31mb", "\x1b[0;31mab"),
        ("\x1b[38;5mx", "\x1b[0;38;5mx"),
    ],
)
def test_each_change_of_style_is_one_whole_sequence(captured: str, made: str) -> None:
    assert made == alone(captured)[0]


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b]8;;http://x/\x1b\\link\x1b]8;;\x1b\\",
        "\x1b]52;c;YQ==\x07",
        "\x9b31m",
        "\x1b[2J",
        "a\x07b",
        "right\u202eleft",
        "\x1b[" + "9" * 50 + "m",
        "\x1b[;;;m",
        "\x1b[:m",
    ],
)
def test_no_other_sequence_is_left(hostile: str) -> None:
    rest = SGR.sub("", alone(f"\x1b[32m{hostile} end")[0])

    assert rest.endswith("end")
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", rest)


def test_a_style_that_reaches_into_the_next_row_begins_it_and_rows_below_the_text_are_there() -> None:
    sheet = StyledRows()
    sheet.convert([b"\x1b[31mred", b"still red \x1b[1mbold", b"\x1b[0mplain", b""], 4)
    assert ["\x1b[0;31mred", "\x1b[0;31mstill red \x1b[0;1;31mbold", "plain", ""] == sheet.rows

    sheet = StyledRows()
    sheet.convert([b"a"], 3)
    assert ["a", "", ""] == sheet.rows


def test_a_single_row_equals_that_of_its_screen() -> None:
    sheet, other = StyledRows(), StyledRows()
    sheet.convert([b"\x1b[31mred", b"old"], 2)
    sheet.convert_row(1, b"\x1b[31mnew")
    other.convert([b"\x1b[31mred", b"new"], 2)

    assert other.rows == sheet.rows
    sheet.convert([b"\x1b[31mred", b"old"], 2)
    assert ["\x1b[0;31mred", "\x1b[0;31mold"] == sheet.rows


def test_a_row_that_is_gone_is_ignored_and_one_below_a_changed_colour_changes_too() -> None:
    sheet = StyledRows()
    sheet.convert([b"a"], 1)
    sheet.convert_row(5, b"b")
    assert ["a"] == sheet.rows

    sheet = StyledRows()
    sheet.convert([b"\x1b[31mred", b"below"], 2)
    sheet.convert([b"\x1b[32mgreen", b"below"], 2)
    assert "\x1b[0;32mbelow" == sheet.rows[1]


def test_more_styles_than_the_cache_holds_are_still_right() -> None:
    row = "".join(f"\x1b[38;2;{red};{green};7mx" for red in range(80) for green in range(80))
    text, style = alone(row)

    assert text == re.sub(r"\x1b\[38", "\x1b[0;38", row)
    assert ("plain", PLAIN.sgr) == (alone("\x1b[0mplain", style)[0], alone("\x1b[0m", style)[1].sgr)


@pytest.fixture
def server() -> Iterator[TmuxServer]:
    folder = Path(tempfile.mkdtemp(prefix="kmr", dir="/tmp"))
    server = TmuxServer(folder / "t.sock")
    server.start()
    yield server
    server.kill_server()
    shutil.rmtree(folder)


def test_tmux_itself_agrees_on_every_row(server: TmuxServer) -> None:
    """Each row of a real screen, captured with all others, is what it is when captured by itself."""
    script = r"""
printf '\033[31mred\nstill\033[1m bold\nboth\033[0m plain\n\033[38;5;99;48;2;9;8;7mdeep\n\n\033[4:3mcurl\033[24m\n'
printf '\033(0lqk\n\033(Bx\033[7mreverse\033[27m\033[32m e\314\201 \342\234\205\n\033[0mend'; exec cat
"""
    pane = server.create("abcdefgh", ["/bin/sh", "-c", script]).pane_id
    capture = ("capture-pane", "-p", "-e", "-N", "-t", pane)
    until(lambda: b"end" in server.run(*capture))
    together, rows = StyledRows(), server.run(*capture).split(b"\n")[:10]
    together.convert(rows, 10)

    assert "\x1b[0;1;31mboth\x1b[m plain" == together.rows[2]
    for y, row in enumerate(together.rows):
        assert row == alone(server.run(*capture, "-S", str(y), "-E", str(y)).removesuffix(b"\n").decode())[0]
