"""What a transcript tells of a sandbox's life."""

import pytest

from kasmon.model.events import Checkpointed, ConfinementSeen, Event, SandboxMeasured, SandboxPhaseChanged
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.transcript.layout import Transcript


def told(*events: Event) -> list[str]:
    transcript = Transcript()
    for event in events:
        transcript.add(event)
    return [line.text.rstrip() for line in transcript.tail(80, 50) if line.text.strip()]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (SandboxPhaseChanged(at=1, phase=SandboxPhase.CREATING), ["▣ sandbox created"]),
        (SandboxPhaseChanged(at=1, phase=SandboxPhase.CREATING, step="intended"), []),
        (SandboxPhaseChanged(at=1, phase=SandboxPhase.RUNNING), []),
        (SandboxPhaseChanged(at=1, phase=SandboxPhase.RUNNING, why="found again"), ["▣ sandbox resumed: found again"]),
        (
            SandboxPhaseChanged(at=1, phase=SandboxPhase.PAUSED, held=True, why="asked for"),
            ["▣ sandbox paused: asked for"],
        ),
        (SandboxPhaseChanged(at=1, phase=SandboxPhase.PAUSED), ["▣ sandbox paused"]),
        (SandboxPhaseChanged(at=1, phase=SandboxPhase.PERSISTING), []),
        (SandboxPhaseChanged(at=1, phase=SandboxPhase.EXPIRED, why="stopped"), ["▣ sandbox expired: stopped"]),
        (SandboxMeasured(at=1, memory_bytes=5), []),
        (ConfinementSeen(at=1, ok=True), []),
        (
            ConfinementSeen(at=1, mismatches=("it has capabilities",)),
            ["✗ confinement not verified: it has capabilities"],
        ),
        (
            Checkpointed(at=1, checkpoint="c1", lost=("python: g (generator)",)),
            ["◇ checkpoint c1 · not saved: python: g (generator)"],
        ),
    ],
)
def test_completed_phases_are_shown_and_steps_in_between_are_not(event: Event, words: list[str]) -> None:
    assert words == told(event)


def test_a_loss_is_shown_where_it_happened() -> None:
    lost = SandboxPhaseChanged(
        at=1, phase=SandboxPhase.RUNNING, why="the sandbox had ended", lost="its variables are lost"
    )

    assert ["▣ sandbox resumed: the sandbox had ended", "! its variables are lost"] == told(lost)


def test_no_foreign_text_can_write_on_the_screen() -> None:
    names = tuple(f"x\x1b[31m{n}" for n in range(20))

    [first, *rest] = told(Checkpointed(at=1, checkpoint="c1\x07", lost=names))

    assert "\x1b" not in first + "".join(rest)
    assert "and 12 more" in " ".join([first, *rest])
