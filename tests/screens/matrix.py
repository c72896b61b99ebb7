"""The confusion matrix over the golden screens: `python -m tests.screens.matrix` prints it as a Markdown table.

A row is what an agent really does, a column what the screen and the window's title add up to (`model/evidence.judge`).
Unsure is counted; sure and wrong is a failure.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tests.screens.expected import reading_of, verdict_of
from tests.screens.golden import Case, cases

STATES: Final = ("starting", "idle", "working", "asking", "limited", "ended")
READ: Final = (*STATES[:-1], "unsure")


def counted(some: Iterable[Case]) -> Counter[tuple[str, str]]:
    """How often each state was read as each."""
    return Counter((_real(case), _read(case)) for case in some)


def confused(some: Iterable[Case]) -> list[str]:
    """The cases that were read wrong and surely so."""
    return [
        f"{case.id}: {_real(case)} read as {_read(case)}" for case in some if _read(case) not in (_real(case), "unsure")
    ]


def table(some: Sequence[Case]) -> str:
    """The matrix, and one line for each agent."""
    counts = counted(some)
    real = [state for state in (*STATES, "unclear") if any(counts[state, read] for read in READ)]
    lines = [
        f"| really \\ read | {' | '.join(READ)} |",
        f"|---|{'---|' * len(READ)}",
        *(f"| {state} | {' | '.join(str(counts[state, read] or '') for read in READ)} |" for state in real),
        "",
        "| agent | screens | right | unsure | wrong and sure |",
        "|---|---|---|---|---|",
    ]
    names = sorted({case.agent for case in some})
    lines += [_row(name, [case for case in some if case.agent == name]) for name in names]
    return "\n".join((*lines, _row("all", some)))


def _row(name: str, some: Sequence[Case]) -> str:
    unsure = sum(_read(case) == "unsure" for case in some)
    wrong = len(confused(some))
    right = len(some) - unsure - wrong
    return f"| {name} | {len(some)} | {right} | {unsure} | {wrong} |"


def _real(case: Case) -> str:
    return str(case.expected["state"])


def _read(case: Case) -> str:
    return str(verdict_of(reading_of(case)).state)


if __name__ == "__main__":
    print(table(list(cases())))
    sys.exit(bool(confused(cases())))
