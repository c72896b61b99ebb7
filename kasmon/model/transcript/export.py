"""A session as Markdown: for people, to keep or to send. Pure.

Text of agents, tools and terminals is in fences that it cannot close, so it is only displayed: no heading, no link, no
remote image, no HTML.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from typing import Final

from kasmon.model.events import EntryImported, Event, PartialTextWritten, TurnStarted
from kasmon.model.formatting import clock
from kasmon.model.partial_text import PartialText
from kasmon.model.session import Session
from kasmon.model.transcript.search.text import What, texts
from kasmon.sanitize import clean_block, clean_line

HEADINGS: Final[dict[What, str]] = {
    "prompt": "Prompt",
    "said": "Answer",
    "thought": "Thought",
    "tool": "Tool",
    "output": "Output",
    "diff": "Change",
    "plan": "Plan",
    "asked": "Request",
    "answer": "Answered",
    "notice": "Notice",
    "note": "Note",
    "end": "End",
    "printed": "Terminal",
}
LANGUAGES: Final[dict[What, str]] = {"said": "markdown", "thought": "markdown", "diff": "diff"}
"""The language of a fence by the kind of its text; viewers only highlight these, and render nothing."""
_TICKS: Final = re.compile("`+")


def export_header(session: Session, zone: tzinfo | None = None) -> str:
    facts = {
        "session": session.id,
        "agent": f"{session.agent} ({session.mode})",
        "folder": session.workdir,
        "machine": session.machine,
        "began": clock(session.created_at, zone, day=True) if session.created_at else "",
    }
    fact_lines = "".join(f"- {name}: {inline(value)}\n" for name, value in facts.items() if value)
    return f"# {inline(session.name or session.id)}\n\n{fact_lines}"


def turn_events(events: Iterable[Event], turn: int) -> list[Event]:
    """Return the events of one turn, from its prompt to the next one.

    *turn* is counted from 1; from the end, -1 being the last one, if negative. Empty if there is no such turn.
    """
    turns: list[list[Event]] = []
    for event in events:
        entry = event.entry if isinstance(event, EntryImported) else event
        if isinstance(entry, TurnStarted):
            turns.append([])
        if turns:
            turns[-1].append(event)
    index = turn - 1 if turn > 0 else len(turns) + turn
    return turns[index] if 0 <= index < len(turns) else []


def export_events(events: Iterable[Event], in_terminal: bool, zone: tzinfo | None = None) -> Iterator[str]:
    """Yield the text of each of *events*, under a heading with its time."""
    parts = PartialText()
    for event in events:
        yield from _cut_off(parts.add(event), zone)
        at, mark = event.at, ""
        if isinstance(event, EntryImported):
            place = " in the terminal" if event.entry.at else ""
            at, mark = event.entry.at or at, f"{place} (from {clean_line(event.program)}'s own transcript)"
        for what, text in texts(event, in_terminal):
            yield _section(f"{HEADINGS[what]}{mark}", what, text, at, zone)
    yield from _cut_off(parts.rest(), zone)


def _cut_off(parts: Iterable[PartialTextWritten], zone: tzinfo | None) -> Iterator[str]:
    """Yield texts without a complete block."""
    for part in parts:
        what: What = "thought" if part.thinking else "said"
        yield _section(f"{HEADINGS[what]} (unfinished)", what, part.text, part.at, zone)


def _section(heading: str, what: What, text: str, at: float, zone: tzinfo | None) -> str:
    return f"\n## {heading}, {clock(at, zone, day=True)}\n\n{fenced(text, LANGUAGES.get(what, 'text'))}"


def export_output(lines: Iterable[str]) -> str:
    """Return the output of the session's terminal as a section; empty if there is none."""
    text = "\n".join(lines)
    return f"\n## Terminal output\n\n{fenced(text)}" if text.strip("\n") else ""


def fenced(text: str, language: str = "text") -> str:
    """Return *text* in a fence that is longer than any in it."""
    shown = clean_block(text)
    fence = "`" * max(3, 1 + max((len(run[0]) for run in _TICKS.finditer(shown)), default=0))
    return f"{fence}{language}\n{shown.removesuffix(chr(10))}\n{fence}\n"


def inline(text: str) -> str:
    """Return *text* as one code span on one line."""
    shown = clean_line(text)
    ticks = "`" * (1 + max((len(run[0]) for run in _TICKS.finditer(shown)), default=0))
    gap = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{gap}{shown}{gap}{ticks}"
