"""What a transcript tells of a sandbox's life."""

import pytest

from kasmon.model.event import Checkpointed, ConfinementSeen, Event, SandboxMeasured, SandboxMoved
from kasmon.model.sandbox import Phase
from kasmon.model.transcript import Transcript


def told(*events: Event) -> list[str]:
    transcript = Transcript()
    for event in events:
        transcript.add(event)
    return [line.text.rstrip() for line in transcript.tail(80, 50) if line.text.strip()]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (SandboxMoved(at=1, phase=Phase.CREATING), ["▣ sandbox made"]),
        (SandboxMoved(at=1, phase=Phase.CREATING, step="intended"), []),
        (SandboxMoved(at=1, phase=Phase.RUNNING), []),
        (SandboxMoved(at=1, phase=Phase.RUNNING, why="found again"), ["▣ sandbox runs: found again"]),
        (SandboxMoved(at=1, phase=Phase.PAUSED, held=True, why="asked for"), ["▣ sandbox asleep: asked for"]),
        (SandboxMoved(at=1, phase=Phase.PAUSED), ["▣ sandbox paused"]),
        (SandboxMoved(at=1, phase=Phase.PERSISTING), []),
        (SandboxMoved(at=1, phase=Phase.EXPIRED, why="stopped"), ["▣ sandbox gone: stopped"]),
        (SandboxMeasured(at=1, memory_bytes=5), []),
        (ConfinementSeen(at=1, ok=True), []),
        (
            ConfinementSeen(at=1, mismatches=("it has capabilities",)),
            ["✗ not confined as it should be: it has capabilities"],
        ),
        (
            Checkpointed(at=1, checkpoint="c1", lost=("python: g (generator)",)),
            ["◇ checkpoint c1 · could not keep python: g (generator)"],
        ),
    ],
)
def test_phases_that_were_reached_are_told_and_steps_on_the_way_are_not(event: Event, words: list[str]) -> None:
    assert words == told(event)


def test_what_was_lost_stands_where_it_was_lost() -> None:
    lost = SandboxMoved(at=1, phase=Phase.RUNNING, why="the sandbox was gone", lost="its variables are lost")

    assert ["▣ sandbox runs: the sandbox was gone", "! its variables are lost"] == told(lost)


def test_nothing_foreign_in_it_can_write_on_the_screen() -> None:
    names = tuple(f"x\x1b[31m{n}" for n in range(20))

    [first, *rest] = told(Checkpointed(at=1, checkpoint="c1\x07", lost=names))

    assert "\x1b" not in first + "".join(rest)
    assert "and 12 more" in " ".join([first, *rest])
