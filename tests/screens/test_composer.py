"""Where a person types: nobody's words are taken for a hint, and no hint for somebody's words."""

import pytest

from kasmon.screens.catalogue import shipped
from kasmon.screens.composer import Composer
from kasmon.screens.reading import read
from kasmon.screens.shot import captured

RULE = "─" * 40
FOOT = "  ⏵⏵ auto mode on (shift+tab to cycle)"


def claude(*box: str, cursor: tuple[int, int] | None = None) -> Composer | None:
    """What is found where Claude Code draws *box*."""
    chosen = shipped().rules("claude", "2.1.330")
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
def test_what_somebody_typed_is_told_from_what_the_agent_wrote(box: list[str], draft: str, ghost: str) -> None:
    found = claude(*box)

    assert found is not None
    assert (draft, ghost) == (found.draft, found.ghost)


@pytest.mark.parametrize("box", [[], [" Bash command"], ["  ❯ 1. Yes"], ["❯ x", "y"], [" ☐ Stub", "", "❯ 1. red"]])
def test_what_is_no_place_to_type_is_none(box: list[str]) -> None:
    assert claude(*box) is None


def test_the_cursor_stands_in_it_or_it_is_none() -> None:
    """A list that lies over the screen has the cursor, and what is typed."""
    assert claude("❯ x", cursor=(3, 1)) is not None
    assert claude("❯ x", cursor=(3, 0)) is None


@pytest.mark.parametrize("width", [20, 400, 600])
def test_a_draft_of_any_width_is_a_draft(width: int) -> None:
    found = claude(f"❯ {'x' * width}")

    assert found is not None
    assert found.draft.startswith("x" * 18)
