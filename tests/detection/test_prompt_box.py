"""Where a person types: nobody's words are taken for a hint, and no hint for somebody's words."""

import msgspec
import pytest

from kasmon.detection.prompt_box import Composer, contains_text
from kasmon.detection.reader import read
from kasmon.detection.rules.catalog import shipped
from kasmon.detection.rules.schema import ComposerRule
from kasmon.detection.terminal_screen import captured

RULE = "─" * 40
FOOT = "  ⏵⏵ auto mode on (shift+tab to cycle)"


def claude(*box: str, cursor: tuple[int, int] | None = None) -> Composer | None:
    """What is found where Claude Code draws *box*."""
    chosen = shipped().rules("claude", "2.1.332")
    assert chosen is not None
    return read(captured("\n".join((RULE, *box, RULE, FOOT)), cursor=cursor), chosen.rules).composer


@pytest.mark.parametrize(
    ("box", "draft", "ghost"),
    [
        (["❯\u00a0"], "", ""),
        (["❯\u00a0\x1b[7m \x1b[0m"], "", ""),
        (["❯\u00a0fix it"], "fix it", ""),
        (["❯\u00a0fix it\x1b[7m \x1b[0m"], "fix it", ""),
        (["❯\u00a0\x1b[7mf\x1b[0mix it"], "fix it", ""),
        (["❯\u00a0\x1b[7mT\x1b[0;2mry this\x1b[0m"], "", "Try this"),
        (["❯\u00a0\x1b[2mTry this\x1b[0m"], "", "Try this"),
        (["❯\u00a0\x1b[90mTry this\x1b[0m"], "", "Try this"),
        (["❯\u00a0/mo\x1b[2mdel\x1b[0m"], "/mo", "del"),
        (["❯\u00a0\x1b[2m[Pasted]\x1b[0m and"], "[Pasted] and", ""),
        (["❯\u00a0one", "  two", "  ", "  four"], "one\ntwo\nfour", ""),
        (["❯\u00a0\x1b[7mx\x1b[0m"], "x", ""),
        (["❯\u00a01. Yes"], "1. Yes", ""),
        (["!\u00a0ls"], "ls", ""),
    ],
)
def test_a_draft_is_distinguished_from_text_of_the_agent(box: list[str], draft: str, ghost: str) -> None:
    found = claude(*box)

    assert found is not None
    assert (draft, ghost) == (found.draft, found.ghost)


@pytest.mark.parametrize("box", [[], [" Bash command"], ["  ❯ 1. Yes"], ["❯ x", "y"], [" ☐ Stub", "", "❯ 1. red"]])
def test_a_row_that_is_no_input_box_has_no_draft(box: list[str]) -> None:
    assert claude(*box) is None


def test_the_input_box_must_have_the_cursor() -> None:
    """A list that lies over the screen has the cursor, and what is typed."""
    assert claude("❯ x", cursor=(3, 1)) is not None
    assert claude("❯ x", cursor=(3, 0)) is None


@pytest.mark.parametrize("width", [20, 400, 600])
def test_a_draft_of_any_width_is_a_draft(width: int) -> None:
    found = claude(f"❯ {'x' * width}")

    assert found is not None
    assert found.draft.startswith("x" * 18)


# What was typed stands there


def at(agent: str) -> ComposerRule:
    chosen = shipped().rules(agent)
    assert chosen is not None
    assert chosen.rules.file.composer is not None
    return chosen.rules.file.composer


@pytest.mark.parametrize(
    ("text", "rows", "does"),
    [
        ("fix it", ["fix it"], True),
        ("fix it", ["fix"], False),
        ("fix it", [""], False),
        ("fix it", ["fix it now"], False),
        ("fix it", ["do fix it"], False),
        ("one\n\n  two;", ["one", "", "  two;"], True),
        ("a long line that was wrapped", ["a long line that", "was wrapped"], True),
        ("漢字漢字", ["漢字", "漢字"], True),
        ("tabs\tand  blanks ", ["tabs    and blanks"], True),
        ("naïve 👩\u200d🔬 می\u200cخواهم", ["naïve 👩🔬 میخواهم"], True),
        ("first second third fourth", ["second", "third", "fourth"], True),
        ("first second third fourth", ["third", "fourth"], False),
        ("first second third fourth", ["first", "second", "third"], False),
        ("!ls", ["ls"], True),
        ("ls", ["!ls"], False),
        ("-t foo", ["t foo"], False),
        ("many\nlines", ["[Pasted text #1 +1 lines]"], True),
        ("many\nlines", ["[Pasted text #1 +1 lines] and"], False),
        ("[Pasted text #1]", ["[Pasted text #1]"], True),
    ],
)
def test_a_text_is_in_the_box_if_all_of_it_is_shown_and_nothing_else(text: str, rows: list[str], does: bool) -> None:
    box = Composer(first_row=0, last_row=len(rows) - 1, draft="\n".join(rows).strip())

    assert does is contains_text(text, box, at("claude"))


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude", "[Pasted text #1]"),
        ("claude", "[Pasted text #12 +85 lines]"),
        ("codex", "[Pasted Content 70900 chars]"),
        ("gemini", "[Pasted Text: 86 lines]"),
        ("gemini", "[Pasted Text: 3100 chars]"),
        ("opencode", "[Pasted ~4 lines]"),
    ],
)
def test_a_long_paste_is_in_the_box_by_the_agents_placeholder(agent: str, name: str) -> None:
    box = Composer(first_row=0, last_row=0, draft=name)

    assert contains_text("word " * 1000, box, at(agent))
    assert not contains_text("word " * 1000, msgspec.structs.replace(box, draft=f"{name} {name}"), at(agent))
    assert not contains_text("word " * 1000, box, at("scripted"))
