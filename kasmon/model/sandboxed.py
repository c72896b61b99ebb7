"""What a sandbox's life looks like in a transcript: phases it reached, what was lost, what is not as it should be."""

from typing import Final

from kasmon.clean import clean_line
from kasmon.model.drawing import Look
from kasmon.model.event import Checkpointed, ConfinementSeen, SandboxMoved
from kasmon.model.sandbox import Phase
from kasmon.model.text import Line, Token, flowed

WORDS: Final = {
    Phase.CREATING: "sandbox made",
    Phase.RUNNING: "sandbox runs",
    Phase.PAUSED: "sandbox paused",
    Phase.HEALING: "sandbox healed",
    Phase.EXPIRED: "sandbox gone",
}
"""Phases that are told once they are reached; the others are on the way to one."""
NAMES: Final = 8
"""So many names are told of what could not be kept."""


def drawn(event: SandboxMoved | ConfinementSeen | Checkpointed, look: Look) -> list[Line]:
    """The rows of *event*; none for a step on the way."""
    match event:
        case ConfinementSeen(ok=True):
            return []
        case ConfinementSeen():
            told = ", ".join(map(clean_line, event.mismatches)) or "nobody knows how"
            return flowed([(f"not confined as it should be: {told}", Token.ERROR)], look.width, (("✗ ", Token.ERROR),))
        case Checkpointed():
            lost = _names(event.lost)
            text = f"checkpoint {clean_line(event.checkpoint)}" + (f" · could not keep {lost}" if lost else "")
            return flowed([(text, Token.FAINT)], look.width, (("◇ ", Token.FAINT),))
    if event.step == "intended" or (event.phase not in WORDS and not event.lost):
        return []
    word = "sandbox asleep" if event.phase is Phase.PAUSED and event.held else WORDS.get(event.phase, event.phase.value)
    if event.phase is Phase.RUNNING and not (event.why or event.lost):
        return []
    text = f"{word}: {clean_line(event.why)}" if event.why else word
    rows = flowed([(text, Token.SESSION)], look.width, (("▣ ", Token.SESSION),))
    if event.lost:
        rows += flowed([(clean_line(event.lost), Token.WARNING)], look.width, (("! ", Token.WARNING),))
    return rows


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(clean_line, names[:NAMES]))
    return f"{shown} and {len(names) - NAMES} more" if len(names) > NAMES else shown
