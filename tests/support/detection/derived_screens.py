"""Golden screens that cannot be recorded here, made of those that were.

`python -m tests.support.detection.derived_screens` writes them.

Each says in its `expected.toml` of which it was `made`, and how. Most are screens of which a part is missing, as where
a dialog is higher than its terminal.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from tests.support.detection.golden import FOLDER, load, save

Rows = list[str]


class Made(NamedTuple):
    source: str
    name: str
    how: str
    edit: Callable[[Rows], Rows]
    expected: dict[str, Any]


def plain(row: str) -> str:
    """*row* without its styles."""
    return re.sub(r"\x1b\[[0-9;:]*m|[\x0e\x0f]", "", row)


def lowest(count: int) -> Callable[[Rows], Rows]:
    """Only the lowest rows down to the last that is not blank: all above has scrolled away."""

    def edit(rows: Rows) -> Rows:
        end = max(at for at, row in enumerate(rows) if plain(row).strip()) + 1
        return rows[end - count : end]

    return edit


def instead(old: str, *new: str) -> Callable[[Rows], Rows]:
    """*new* rows in place of the lowest in which *old* is found."""

    def edit(rows: Rows) -> Rows:
        at = max(at for at, row in enumerate(rows) if re.search(old, plain(row)))
        return [*rows[:at], *new, *rows[at + 1 :]]

    return edit


def uncoloured(rows: Rows) -> Rows:
    """As a capture without `-e` has them."""
    return [plain(row) for row in rows]


def below(old: str, *new: str) -> Callable[[Rows], Rows]:
    """*new* rows under the lowest in which *old* is found, in place of blank ones."""

    def edit(rows: Rows) -> Rows:
        at = max(at for at, row in enumerate(rows) if re.search(old, plain(row))) + 1
        return [*rows[:at], *new, *rows[at + len(new) :]]

    return edit


ASKS: Final = {"state": "asking"}
HELP: Final = ("  ↑/↓ to scroll        ctrl+o to toggle", "  v to open in vi      q to exit", "  ? to hide shortcuts")
PRINTED: Final = (
    "",
    "● It asks:",
    "  Do you want to proceed?",
    "  ❯ 1. Yes",
    "    2. No",
    *[""] * 6,
    "  Esc to cancel · Tab to amend",
)
MADE: Final[Sequence[Made]] = (
    Made("claude/2.1.197/permission-bash", "made-cut", "its upper half scrolled away", lowest(8), ASKS),
    Made("claude/2.1.332/permission-bash", "made-cut", "its upper half scrolled away", lowest(8), ASKS),
    Made("codex/0.171.0/permission-exec", "made-cut", "its upper half scrolled away", lowest(9), ASKS),
    Made("gemini/0.61.0/permission-bash", "made-cut", "its upper half scrolled away", lowest(6), ASKS),
    Made("opencode/1.18.33/permission-bash", "made-cut", "its upper half scrolled away", lowest(3), ASKS),
    Made(
        "opencode/1.18.33/permission-bash",
        "made-plain",
        "its colours were not recorded, and Reject was marked",
        uncoloured,
        {"state": "asking", "asking": "permission"},
    ),
    Made(
        "claude/2.1.332/error-login",
        "made-login-over",
        "a later prompt was interrupted",
        below("Please run /login", "", "❯ go on", "  ⎿  Interrupted · What should Claude do instead?"),
        {"state": "idle"},
    ),
    Made(
        "claude/2.1.332/transcript",
        "made-transcript-dialog",
        "what was printed looks like a dialog",
        below("Please run /login", *PRINTED, *[""] * 6, "  Esc to cancel · Tab to amend"),
        {"state": "unclear"},
    ),
    Made(
        "claude/2.1.332/transcript",
        "made-transcript-help",
        "what was printed looks like a dialog, and the help of `?` is in place of the footer",
        lambda rows: instead("Showing detailed transcript", *HELP)(
            below("Please run /login", *PRINTED, *[""] * 6, "  Esc to cancel · Tab to amend")(rows)
        )[len(HELP) - 1 :],
        {"state": "unclear"},
    ),
    Made(
        "claude/2.1.332/working-before-text",
        "made-waiting",
        "the row that turns became one that stands there for a moment before a dialog",
        instead("[·✢✳✶✻✽*] .*\\w…", "  Waiting for permission…"),
        {"state": "asking", "reads": "asking|working"},
    ),
    Made(
        "claude/2.1.197/error",
        "made-limit",
        "the error became a limit as 2.1.330 words it",
        instead("API Error: 400", "  ⎿  You've hit your limit · resets 8am (UTC)"),
        {"state": "limited"},
    ),
    Made(
        "claude/2.1.197/error",
        "made-login",
        "the error became another",
        instead("API Error: 400", "● Please run /login · API Error: 401 stub failure 401"),
        {"state": "asking", "asking": "auth"},
    ),
)


def main() -> None:
    for made in MADE:
        case = load(FOLDER / made.source)
        rows = made.edit(case.shot.text.removesuffix("\n").split("\n"))
        facts = {key: value for key, value in case.shot.facts.items() if key != "cursor"}
        shot = case.shot._replace(text="\n".join(rows) + "\n", facts={**facts, "rows": len(rows)})
        save(case.agent, case.version, made.name, shot, {**made.expected, "made": f"of {made.source}: {made.how}"})


if __name__ == "__main__":
    main()
