"""Markdown as rows: every form, nothing of it lost, and nothing in it an instruction to the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.transcript.markdown.links import is_link, link_addresses
from kasmon.model.transcript.markdown.renderer import code_blocks, draw_markdown
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_block

WIDTH = 60


def rows(text: str, width: int = WIDTH) -> list[str]:
    return [row.text for row in draw_markdown(clean_block(text), width, ())]


def styles(text: str) -> dict[str, Token]:
    return {piece: token for row in draw_markdown(clean_block(text), WIDTH, ()) for piece, token in row.spans}


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


@pytest.mark.parametrize(
    ("text", "piece", "token"),
    [
        ("a *soft* word", "soft", Token.EMPHASIS),
        ("a _soft_ word", "soft", Token.EMPHASIS),
        ("a **loud *and soft* word**", "loud ", Token.STRONG),
        ("~~gone~~", "gone", Token.STRIKE),
        ("`a * b`", "a * b", Token.CODE),
        ("# A *head*", "A ", Token.HEADING),
        ("> said", "said", Token.FAINT),
        ("see https://x.example/a.", "https://x.example/a", Token.LINK),
        ("see <https://x.example/a>", "https://x.example/a", Token.LINK),
        ("[there](https://x.example)", "there", Token.LINK),
        (r"so \(a_1 * b_2\) holds", r"\(a_1 * b_2\)", Token.CODE),
        ("so $x_i^2 * y_i$ holds", "$x_i^2 * y_i$", Token.CODE),
        ("$$\na_1 = b_2 *c*\n$$", "a_1 = b_2 *c*", Token.CODE),
        ("```mermaid\ngraph TD; A-->B\n```", "graph TD; A-->B", Token.CODE_BLOCK),
    ],
)
def test_each_form_has_its_style_and_not_its_marks(text: str, piece: str, token: Token) -> None:
    assert token is styles(text).get(piece)


@pytest.mark.parametrize(
    "text",
    ["it costs $5 or $10", "snake_case_name, 2 * 3 * 4", "a ~ b", "C:\\folder", "&lt; &#x1b;[31m", "<b>"],
)
def test_text_that_is_not_markdown_is_unchanged(text: str) -> None:
    assert [text] == rows(text)


def test_lists_are_nested_and_keep_their_own_numbers() -> None:
    text = "1. one\n   - two *a*\n     with more\n     1) three\n\n        more of three\n7. [x] no task"
    text += "\n- [ ] open\n- [x] done"

    assert [
        "1. one",
        "   • two a",
        "     with more",
        "     1) three",
        "",
        "        more of three",
        "7. [x] no task",
        "☐ open",
        "☒ done",
    ] == rows(text)


def test_a_quote_holds_lists_code_and_blank_lines() -> None:
    text = "> say\n>\n> - a\n>   - b\n>\n> ```\n> x = 1\n> ```\n\nafter"

    assert ["│ say", "│ ", "│ • a", "│   • b", "│ ", "│ │ x = 1", "", "after"] == rows(text)


def test_a_link_has_its_address_beside_it_and_each_code_block_a_button_that_names_it() -> None:
    text = '[safe.example](http://evil.example/a "why") and ![a cat](http://x.example/cat.png)'
    assert ['safe.example (http://evil.example/a "why") and ▣ a cat', "(http://x.example/cat.png)"] == rows(text)
    assert ["http://evil.example/a", "http://x.example/cat.png"] == link_addresses(draw_markdown(text, WIDTH, ()))

    drawn = draw_markdown("a\n\n```py\nx = 1\n```\n\n- b\n  ~~~\n  y\n  ~~~\n\n    z = 3", WIDTH, (), buttons=True)
    assert [(1, "│ py · copy"), (2, "  │ copy")] == [(row.code, row.text) for row in drawn if row.button]
    assert ["x = 1", "y", "z = 3"] == code_blocks("a\n\n```py\nx = 1\n```\n\n- b\n  ~~~\n  y\n  ~~~\n\nc\n\n    z = 3")


HOSTILE = (
    "[x](javascript:alert(1))",
    "[x](file:///etc/passwd)",
    "[x](kasmon://do)",
    "[x](http://a.example/\u202egpj.exe)",
    "[x](http://a.example/&#x202e;gpj.exe)",
    "[x](http://a.example/&#10;b)",
    "![x](file:///etc/passwd)",
    "<javascript:alert(1)>",
    "[click][ref]\n\n[ref]: http://evil.example 'hidden'",
    "<!-- hidden --><script>alert(1)</script>",
    "\x1b]8;;http://evil.example\x1b\\text\x1b]8;;\x1b\\",
    "\x1b[31m**red**\x1b[2J",
    "```\x1b[31m\ncode\x07\n```",
    "[bold red]markup[/]",
    "| a | b |\n|--|--|\n| \x1b[2J | c | d |",
    "> " * 40 + "deep",
    "- " * 40 + "deep",
    "&#27;[31m &#x9b;2J",
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", [12, 60])
def test_no_hostile_text_is_hidden_or_has_an_effect(text: str, width: int) -> None:
    shown = clean_block(text)
    drawn = draw_markdown(shown, width, ())

    whole = "\n".join(row.text for row in drawn)
    assert letters(shown) == letters(whole)
    assert whole == clean_block(whole)
    assert not [address for address in link_addresses(drawn) if is_link(address) and address not in shown]


@given(st.text(st.one_of(st.characters(), st.sampled_from("ab1 \n\t-+*_~`#>|[]()<>!$\\&;:.^\"'/")), max_size=80))
def test_no_word_is_left_out(text: str) -> None:
    shown = clean_block(text)

    assert letters(shown.replace("[x]", "").replace("[X]", "")) == letters(
        "".join(rows(text, 200)).replace("[x]", "").replace("[X]", "")
    )


@pytest.mark.parametrize(
    "text",
    ["[" * 3900, "*_" * 1900, "`a``" * 950, "[a](" * 900, "**a" * 1300, "![[" * 1300, "\\[" * 1900, "$a" * 1900,
     "<http://" * 480, "> " * 9000, "- " * 9000, "|a" * 900 + "\n" + "|-" * 900, "> a\n" * 4000, "x" * 3_000_000,
     "*x* " * 750_000],
    ids=lambda text: f"{text[:8]!r} {len(text)}",
)  # fmt: skip
def test_a_text_made_to_take_long_is_drawn_whole(text: str) -> None:
    assert len(letters(text)) == len(letters("".join(rows(text))))


def test_a_growing_text_is_not_rendered_again_from_its_start() -> None:
    from kasmon.model.transcript.markdown.renderer import _draw_part

    part = "\n\n".join(f"*part* {number}" for number in range(20))
    draw_markdown(part, 31, ())
    before = _draw_part.cache_info().misses
    draw_markdown(f"{part} and more", 31, ())

    assert before + 1 == _draw_part.cache_info().misses
