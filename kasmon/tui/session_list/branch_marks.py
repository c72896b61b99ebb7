"""The state of a session's branch in a few cells: ahead, behind, changes, conflicts, pull request. Pure."""

from typing import Final

from kasmon.repository.branch import BranchSummary, PullRequest
from kasmon.sanitize import clean_line
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, width_of

MOST: Final = 20
"""The marks take at most this many cells of a row."""
SHAPES: Final = {
    "ahead": ("↑", "+"),
    "behind": ("↓", "-"),
    "changes": ("±", "*"),
    "conflicts": ("≠", "!"),
    "passed": ("✓", "y"),
    "failed": ("✗", "x"),
    "running": ("…", "~"),
}
"""Each in UTF-8 and in ASCII."""
REVIEWS: Final = {"approved": ("A", "good"), "changes requested": ("R", "warn")}
STATES: Final = {"merged": "m", "closed": "c"}
CHECKS: Final = {"passed": "good", "failed": "bad.bold", "running": "info"}


def branch_marks(branch: BranchSummary, look: ThemeStyles) -> list[StyledSpan]:
    """Return the marks of *branch*; nothing if there is nothing to do."""
    state, number = branch.state, 0 if look.utf8 else 1
    has_conflicts = bool(state.conflicts or state.operation or state.unmerged)
    marks: list[StyledSpan] = []
    for name, count, role in (
        ("ahead", state.ahead, "info"),
        ("behind", state.behind, "warn"),
        ("changes", state.uncommitted, "warn"),
    ):
        if count:
            marks.append((f"{SHAPES[name][number]}{count}", role))
    if has_conflicts:
        marks.append((SHAPES["conflicts"][number], "bad.bold"))
    pieces = [[mark] for mark in marks]
    if branch.pull_request is not None:
        pieces.append(_pull_request_marks(branch.pull_request, number))
    spaced: list[StyledSpan] = []
    for piece in pieces:
        spaced += [*([(" ", "text")] if spaced else []), *piece]
    return spaced


def _pull_request_marks(request: PullRequest, number: int) -> list[StyledSpan]:
    """Return its number, with a letter for its state and its review, and the shape of its checks."""
    state = STATES.get(request.state, "d" if request.is_draft else "")
    marks: list[StyledSpan] = [(f"#{request.number}{state}", "faint" if request.state in STATES else "soft")]
    if request.state == "open" and request.checks in CHECKS:
        marks.append((SHAPES[request.checks][number], CHECKS[request.checks]))
    if request.state == "open" and request.review in REVIEWS:
        marks.append(REVIEWS[request.review])
    return marks


def branch_legend(look: ThemeStyles) -> list[tuple[str, str]]:
    """Return examples of the marks, each with its meaning."""
    shape = {name: shapes[0 if look.utf8 else 1] for name, shapes in SHAPES.items()}
    return [
        (f"{shape['ahead']}2 {shape['behind']}1", "commits ahead of and behind the base of its branch"),
        (f"{shape['changes']}3", "changes that are not committed"),
        (shape["conflicts"], "conflicts with the base, or an unfinished merge"),
        (f"#7{shape['passed']}", f"pull request, checks passed; {shape['failed']} failed, {shape['running']} running"),
        ("#7A #7R", "a reviewer approved it, requested changes"),
        ("#7d", "a draft; m merged, c closed"),
    ]


def branch_cells(branch: BranchSummary, look: ThemeStyles) -> int:
    """Return how many cells its marks take in a row."""
    return min(width_of(branch_marks(branch, look)), MOST)


def branch_fact(branch: BranchSummary | None, look: ThemeStyles, space: int) -> str:
    """Return what the head of the preview says of *branch*: in words, or by its marks where they do not fit."""
    if branch is None:
        return ""
    state_text = clean_line(branch.words)
    marks = "".join(text for text, _ in branch_marks(branch, look))
    return state_text if width_of([(state_text, "")]) <= space or not marks else marks
