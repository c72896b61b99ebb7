"""What changes of style make of a row is the same for all who read it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.terminal_text import styles
from kasmon.terminal_text.styles import CHANGE, PLAIN, colour_numbers, read_row


@pytest.mark.parametrize(
    ("changes", "sgr"),
    [
        ("01;31", "0;1;31"),
        ("1;2;3;22", "0;3"),
        ("4:3;24", ""),
        ("21;4:0", ""),
        ("38;05;208;1", "0;1;38;05;208"),
        ("38:2::1:2:3;9", "0;9;38:2::1:2:3"),
        ("38;9;1", "0;1;38;9"),
        ("58;5;1;7;59", "0;7"),
        ("1;999999", ""),
        ("1;777", "0;1"),
        ("1;;3", "0;3"),
    ],
)
def test_parameters_change_what_they_name_and_nothing_else(changes: str, sgr: str) -> None:
    assert f"\x1b[{sgr}m" == PLAIN.after(f"\x1b[{changes}m").sgr


@pytest.mark.parametrize(
    ("colour", "numbers"),
    [
        ("", ()),
        ("31", (31,)),
        ("38;5;208", (5, 208)),
        ("48:2:1:2:3", (2, 1, 2, 3)),
        ("38:2::1:2:3", (2, 1, 2, 3)),
        ("38;2;300;1", (2, 300, 1)),
        ("38", ()),
    ],
)
def test_a_colour_is_its_numbers(colour: str, numbers: tuple[int, ...]) -> None:
    assert numbers == colour_numbers(colour)


CHANGES = st.sampled_from(
    ["\x1b[1m", "\x1b[31;44m", "\x1b[38;5;9m", "\x1b[4:3m", "\x1b[22;39m", "\x1b[m", "\x0e", "\x0f"]
)
TEXTS = st.text("abq漢", min_size=1, max_size=3)


@given(st.lists(CHANGES | TEXTS, max_size=12), st.integers(0, 12))
def test_a_row_read_in_two_parts_is_the_same_row(pieces: list[str], cut: int) -> None:
    whole, behind = read_row("".join(pieces))
    head, style = read_row("".join(pieces[:cut]))
    tail, end = read_row("".join(pieces[cut:]), style)

    def cells(texts: list[tuple[str, styles.TextStyle]]) -> list[tuple[str, styles.TextStyle]]:
        return [(character, style) for text, style in texts for character in text]

    assert (cells(whole), behind) == (cells([*head, *tail]), end)


@given(st.text(alphabet=st.sampled_from("\x1b[]0123456789;:mHqx\x07\x0e\x0fé"), max_size=60))
def test_no_row_breaks_the_reader(row: str) -> None:
    texts, style = read_row(row)

    assert re.fullmatch(r"\x1b\[[0-9;:]*m", style.sgr)
    assert len(CHANGE.sub("", row)) == sum(len(text) for text, _ in texts)


def test_styles_are_right_beyond_the_size_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(styles, "_MOST_STYLES", 10)
    row = "".join(f"\x1b[38;5;{number}mx" for number in range(100))

    assert [f"\x1b[0;38;5;{number}m" for number in range(100)] == [style.sgr for _, style in read_row(row)[0]]
    assert len(styles._styles) <= 11
