"""Format an explanation: lines for the user, an object for programs, a golden folder for tests. All of them contain
the screen's text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kasmon.detection.rules.catalog import short_name
from kasmon.detection.terminal_screen import TerminalScreen
from kasmon.errors import RefusedError
from kasmon.model.formatting import clock
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from kasmon.sanitize import clean_line
from kasmon.supervisor.sessions.explain import ExplainedState, Transition

if TYPE_CHECKING:  # as in `explain.py`
    from kasmon.detection.reader import ScreenReading

SCREEN, TITLE, EXPECTED, EVIDENCE = "screen.txt", "title.txt", "expected.toml", "evidence.json"
"""The files of a golden folder; the last only if there is more than a screen."""


def lines(explained: ExplainedState) -> list[str]:
    verdict, reading = explained.verdict, explained.reading
    asking = f" ({verdict.asking})" if verdict.asking else ""
    why = f": {clean_line(verdict.why)}" if verdict.why else ""
    output = [f"{verdict.state}{asking} (source: {verdict.source}){why}"]
    if reading is not None:
        output += _reading_lines(reading, explained.note)
    elif explained.note:
        output.append(f"  rules     {explained.note}")
    if explained.unseen:
        output.append(f"  unseen    {clean_line(explained.unseen)}")
    lost = {lost.signal.source: lost.why for lost in verdict.lost}
    for signal in explained.signals:
        asking = f" ({signal.asking})" if signal.asking else ""
        rule = f", {signal.rule}" if signal.rule else ""
        text = clean_line(f"says {signal.value}{asking}{rule}")
        end = f"; {lost[signal.source]}" if signal.source in lost else ""
        output.append(f"  {signal.source:<9} {text}, since {clock(signal.at, day=True)}{end}")
    output += [f"  {source:<9} silent: {clean_line(why)}" for source, why in explained.absent]
    return output + [f"  {_describe_change(change)}" for change in explained.transitions]


def as_object(explained: ExplainedState) -> dict[str, Any]:
    verdict, reading = explained.verdict, explained.reading
    lost = {lost.signal.source: lost.why for lost in verdict.lost}
    return {
        "state": verdict.state.value,
        "source": verdict.source,
        "why": verdict.why or None,
        "asking": verdict.asking.value if verdict.asking else None,
        "until": verdict.until,
        "evidence": [{**msgspec.to_builtins(signal), "lost": lost.get(signal.source)} for signal in explained.signals],
        "screen": None if reading is None else _screen_object(reading, explained.note),
        "absent": dict(explained.absent),
        "unseen": explained.unseen or None,
        "transitions": [msgspec.to_builtins(change) for change in explained.transitions],
    }


def save(
    folder: Path, text: str, shot: TerminalScreen, explained: ExplainedState, evidence: Mapping[str, Any] | None = None
) -> None:
    """Write a golden folder: *text*, a captured screen, with its reading, and *evidence* beyond the screen, if any.

    Raises `RefusedError` if *folder* already has one.
    """
    from kasmon.detection.reader import ScreenReading, build_reading_table
    from kasmon.detection.recorded_screen import write

    if (folder / EVIDENCE).exists():
        raise RefusedError(f"{str(folder / EVIDENCE)!r} already exists.", hint="Name another folder.")
    reading = explained.reading or ScreenReading()
    state = explained.verdict.state.value if explained.verdict.state is not SessionState.UNSURE else reading.state
    expected = {
        "state": state,
        **({"reads": reading.state} if reading.state != state else {}),
        **({"asking": reading.asking.value} if reading.asking else {}),
        **build_reading_table(reading),
    }
    write(folder, text, shot.title, shot, expected)
    if evidence is not None:
        write_private(folder / EVIDENCE, msgspec.json.format(msgspec.json.encode(evidence)))


def _reading_lines(reading: "ScreenReading", version_note: str) -> list[str]:
    from kasmon.detection.reader import format_choice

    rule = f"rule {reading.rule!r}" if reading.rule else "no rule matches"
    parts: dict[str, Sequence[str]] = {
        "screen": [f"{reading.state}, {rule} of {short_name(reading.file)}"],
        "rules": [version_note] if version_note else [],
        "text": reading.text.split("\n") if reading.text and not reading.menu else [],
        "notice": [reading.notice] if reading.notice else [],
        "until": [clock(reading.until, day=True)] if reading.until is not None else [],
        "title": [f"{reading.title.state}, {reading.title.rule}"] if reading.title else [],
        "menu": reading.menu.text.split("\n") if reading.menu else [],
        "choice": [format_choice(choice) for choice in reading.menu.choices] if reading.menu else [],
        "draft": reading.composer.draft.split("\n") if reading.composer and reading.composer.draft else [],
        "hint": reading.composer.ghost.split("\n") if reading.composer and reading.composer.ghost else [],
        "also": [f"{lower.rule!r} matches too, for {lower.state}" for lower in reading.lower],
    }
    return [f"  {name:<9} {clean_line(line)}" for name, some in parts.items() for line in some]


def _screen_object(reading: "ScreenReading", version_note: str) -> dict[str, Any]:
    seen: dict[str, Any] = msgspec.to_builtins(reading)
    menu = reading.menu
    if menu is not None:
        seen["menu"] = {**seen["menu"], "keys": {decision.value: key for decision, key in menu.keys.items()}}
    return {**seen, "file": short_name(reading.file), "note": version_note or None}


def _describe_change(change: Transition) -> str:
    asking = f" ({change.asking})" if change.asking else ""
    why = f": {clean_line(change.why)}" if change.why else ""
    agent = f", by the agent of {clean_line(change.agent)}" if change.agent else ""
    source = f"by {change.source}, on {clean_line(change.by)}"
    return f"{clock(change.at, day=True)}  {change.state}{asking}, {source}{why}{agent}"
