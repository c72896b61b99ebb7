"""Which sources do not report on an agent in a terminal, and why."""

from collections.abc import Container, Mapping, Sequence
from typing import Final

from kasmon.backends.tmux.evidence.hook_setup import why_not

STATUS: Final = {
    "claude": "it reports its status (OSC 7501) only to a terminal that answers its question at the start; "
    "tmux does not, and gives no other program the time to",
    "gemini": "it does not report its status (OSC 7501)",
    "opencode": "it does not report its status (OSC 7501)",
    "amp": "it does not report its status (OSC 7501)",
}


def absent(program: str, argv: Sequence[str], heard: Container[str]) -> Mapping[str, str]:
    """Return why a source is not among those *heard* of the agent *program*, by source; only known reasons."""
    why = {"program": STATUS.get(program, ""), "hook": why_not(program, argv) if program in STATUS else ""}
    return {source: said for source, said in why.items() if said and source not in heard}
