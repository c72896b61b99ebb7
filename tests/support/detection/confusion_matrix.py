"""Two confusion matrices, as Markdown; the program fails where one is sure and wrong.

    python -m tests.support.detection.confusion_matrix [golden] [live]

A row is what an agent really does, a column what kasmon takes it for. `golden`: recorded screens, of which only the
screen and the window's title are known. `live`: the real agents as `make test-states` found them last, with all that
tells what they do; from `.cache/evidence`. Unsure is counted.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.detection.expected import reading_of, verdict_of
from tests.support.detection.golden import Case, cases

STATES: Final = ("starting", "idle", "working", "asking", "limited", "ended")
FOUND: Final = Path(__file__).parents[3] / ".cache" / "evidence"
TITLES: Final = {
    "golden": "Recorded screens, by the screen and the window's title alone",
    "live": "Real agents in tmux, by all that tells what they do",
}


class Judged(NamedTuple):
    """One case: what an agent did, and what it was taken for."""

    agent: str
    case: str
    real: str
    read: str


def golden(some: Iterable[Case]) -> list[Judged]:
    """What the screens of *some* golden folders add up to."""
    return [
        Judged(case.agent, case.id, str(case.expected["state"]), str(verdict_of(reading_of(case)).state))
        for case in some
    ]


def live(folder: Path = FOUND) -> list[Judged]:
    """What the last runs of the real agents left in *folder*; nothing where there was none."""
    found: list[Judged] = []
    for path in sorted(folder.glob("*.json")):
        verdicts: dict[str, Any] = json.loads(path.read_text("utf-8"))
        name = f"{verdicts['agent']} {verdicts['version']}"
        found += [
            Judged(name, f"{name}: {case['case']}", case["expected"], case["judged"]) for case in verdicts["cases"]
        ]
    return found


def confused(some: Iterable[Judged]) -> list[str]:
    """The cases that were taken for something else, and surely so."""
    return [f"{one.case}: {one.real} read as {one.read}" for one in some if one.read not in (one.real, "unsure")]


def table(some: Sequence[Judged]) -> str:
    """The matrix, and one line for each agent."""
    counts = Counter((one.real, one.read) for one in some)
    read = [state for state in STATES if state != "ended" or any(one.read == "ended" for one in some)]
    columns = [*read, "unsure"]
    lines = [
        f"| really \\ read | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
        *(
            f"| {state} | {' | '.join(str(counts[state, column] or '') for column in columns)} |"
            for state in (*STATES, "unclear")
            if any(counts[state, column] for column in columns)
        ),
        "",
        "| agent | cases | right | unsure | wrong and sure |",
        "|---|---|---|---|---|",
    ]
    names = sorted({one.agent for one in some})
    lines += [_row(name, [one for one in some if one.agent == name]) for name in names]
    return "\n".join((*lines, _row("all", some)))


def _row(name: str, some: Sequence[Judged]) -> str:
    unsure = sum(one.read == "unsure" for one in some)
    wrong = len(confused(some))
    return f"| {name} | {len(some)} | {len(some) - unsure - wrong} | {unsure} | {wrong} |"


def main(arguments: Sequence[str]) -> int:
    """Print the matrices that *arguments* name, by default the golden one; 1 where anything is wrong and sure."""
    wrong: list[str] = []
    for argument in arguments or ("golden",):
        found = live() if argument == "live" else golden(cases())
        print(f"### {TITLES[argument]}\n\n{table(found)}\n")
        wrong += confused(found)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
