"""Escape sequences that report the agent's state (OSC 7501, Program Status Protocol) and title to the terminal."""

from base64 import b64encode
from typing import Final, Literal

from kasmon.model.permission import RequestKind
from kasmon.sanitize import clean_line

ProgramState = Literal["idle", "working", "done", "blocked", "error"]
KINDS: Final = {
    RequestKind.PERMISSION: "permission",
    RequestKind.QUESTION: "question",
    RequestKind.PLAN: "permission",
    RequestKind.AUTH: "auth",
}
MESSAGE: Final = 200
TITLE: Final = 60
"""The most characters of a message and of a title."""
CLEAR: Final = "\x1b]7501;state=clear:app=scripted\x07"


def state_report(state: ProgramState, asking: RequestKind | None = None, message: str = "") -> str:
    """Return the sequence that reports *state*, with a short *message*."""
    kind = f":kind={KINDS[asking]}" if asking is not None else ""
    text = clean_line(message)[:MESSAGE]
    encoded = f":msg={b64encode(text.encode('utf-8', 'replace')).decode()}" if text else ""
    return f"\x1b]7501;state={state}{kind}:app=scripted{encoded}\x07"


def title_report(prompt: str) -> str:
    """Return the sequence that sets the window's title to the agent's last prompt."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    title = clean_line(f"scripted · {first}" if first else "scripted")
    return f"\x1b]2;{title[:TITLE]}\x07"
