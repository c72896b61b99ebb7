"""`explain`: which evidence made a state, which lost, and why; of a session, or of a screen in a file.

A screen can be exported as a golden folder: screen, title, and what is read there. In `tests/screens/golden` it is a
test; sent to somebody it shows what went wrong. What stood on the screen stands in it.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.clean import clean_line
from kasmon.commands.objects import answer
from kasmon.commands.output import note, say, tell
from kasmon.config.file import in_force
from kasmon.errors import NotFoundError, RefusedError, UsageError
from kasmon.model.evidence import Signal, Verdict, judge
from kasmon.model.state import SessionState
from kasmon.paths import Places, places, write_private
from kasmon.screens.catalogue import Catalogue
from kasmon.screens.reading import Reading, read, signals
from kasmon.screens.shot import ScreenShot, captured
from kasmon.screens.told import choice_line, told

LARGEST: Final = 1024 * 1024
"""A larger file is no screen, in bytes."""
SCREEN, TITLE, EXPECTED = "screen.txt", "title.txt", "expected.toml"
"""The files of a golden folder."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """All that can be said of how a state came about."""

    verdict: Verdict
    signals: tuple[Signal, ...] = ()
    reading: Reading | None = None
    """The screen, where a file knows it."""
    note: str = ""
    """Why the screen was read by these rules, where they are not made for exactly this version."""
    transitions: tuple[tuple[float, str, str], ...] = ()
    """The last changes: when, to which state, by which source."""


def explain_screen(
    screen: str,
    agent: str,
    *,
    title: str | None = None,
    version: str = "",
    export: str | None = None,
    wants_json: bool = False,
) -> None:
    """Print what the screen in the file *screen* says of an *agent*; `-` is stdin.

    A golden folder, or a `screen.txt` in one, brings its own title and cursor. Without a cursor it is taken to stand at
    the end of the last row.

    Raises:
        UsageError: if the file is none, or no rules are known for *agent*.
        RefusedError: if *export* holds a golden folder already.
    """
    where = places()
    text, shot = _shot(screen, title)
    now = time.time()
    chosen = catalogue(where).rules(program_of(where, agent), version)
    if chosen is None:
        known = ", ".join(catalogue(where).programs)
        raise UsageError(f"nobody knows the screens of {agent!r}.", hint=f"Known: {known}.")
    reading = read(shot, chosen.rules, now, wants_all=True)
    evidence = signals(reading, now)
    found = Explained(verdict=judge(evidence, now), signals=evidence, reading=reading, note=chosen.note)
    if export is not None:
        save(Path(export), text, shot, found)
    if wants_json:
        tell(answer(explanation=as_object(found)))
    else:
        say(*lines(found))


def catalogue(where: Places) -> Catalogue:
    """The shipped screens' files, and before those a person's own; what is wrong with those is told on stderr."""
    found = Catalogue([where.config / "screens"])
    for problem in found.problems:
        note(f"{problem.message} {problem.hint}".strip())
    return found


def program_of(where: Places, agent: str) -> str:
    """The program that the profile *agent* starts, as screens' files name it."""
    profile = in_force(where).agents.get(agent)
    return Path(profile.program).name if profile is not None and profile.program else agent


def lines(found: Explained) -> list[str]:
    """*found* for a person, a line each."""
    verdict, reading = found.verdict, found.reading
    asking = f" ({verdict.asking})" if verdict.asking else ""
    why = f": {verdict.why}" if verdict.why else ""
    told_lines = [f"{verdict.state}{asking}, says its {verdict.source}{why}"]
    if reading is not None:
        told_lines += _reading_lines(reading, found.note)
    lost = {lost.signal.source: lost.why for lost in verdict.lost}
    told_lines += [
        f"  {signal.source:<9} {_word(signal)}" + (f"; {lost[signal.source]}" if signal.source in lost else "")
        for signal in found.signals
    ]
    told_lines += [f"  {_clock(at)}  {state}, by {source}" for at, state, source in found.transitions]
    return told_lines


def as_object(found: Explained) -> dict[str, Any]:
    """*found* for a program."""
    verdict, reading = found.verdict, found.reading
    lost = {lost.signal.source: lost.why for lost in verdict.lost}
    return {
        "state": verdict.state.value,
        "source": verdict.source,
        "why": verdict.why or None,
        "asking": verdict.asking.value if verdict.asking else None,
        "until": verdict.until,
        "evidence": [{**msgspec.to_builtins(signal), "lost": lost.get(signal.source)} for signal in found.signals],
        "screen": None if reading is None else _screen_object(reading, found.note),
        "transitions": [{"at": at, "state": state, "source": source} for at, state, source in found.transitions],
    }


def save(folder: Path, text: str, shot: ScreenShot, found: Explained) -> None:
    """Write *text*, a captured screen, and what is read there as a golden folder.

    Raises:
        RefusedError: if there is one in *folder* already.
    """
    import tomli_w

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if taken := next((name for name in (SCREEN, TITLE, EXPECTED) if (folder / name).exists()), None):
        raise RefusedError(f"{str(folder / taken)!r} is there already.", hint="Name another folder.")
    reading = found.reading or Reading()
    facts = {
        "columns": shot.columns,
        "rows": len(shot.rows),
        "cursor": list(shot.cursor) if shot.cursor else None,
        "cursor_visible": shot.cursor_visible,
        "alternate": shot.alternate,
    }
    state = found.verdict.state
    expected = {
        "state": state.value if state is not SessionState.UNSURE else reading.state,
        **({"asking": reading.asking.value} if reading.asking else {}),
        **told(reading),
        "shot": {key: value for key, value in facts.items() if value is not None},
    }
    write_private(folder / SCREEN, text.encode())
    write_private(folder / TITLE, f"{shot.title}\n".encode())
    write_private(folder / EXPECTED, tomli_w.dumps(expected).encode())
    note(f"{str(folder)!r} holds all that stood on the screen: look at it before you show it to anybody.")


def _reading_lines(reading: Reading, version_note: str) -> list[str]:
    rule = f"rule {reading.rule!r}" if reading.rule else "no rule holds"
    parts: dict[str, Sequence[str]] = {
        "screen": [f"{reading.state}, {rule} of {Path(reading.file).name}"],
        "rules": [version_note] if version_note else [],
        "text": reading.text.split("\n") if reading.text and not reading.menu else [],
        "notice": [reading.notice] if reading.notice else [],
        "until": [_clock(reading.until)] if reading.until is not None else [],
        "title": [f"{reading.title.state}, {reading.title.rule}"] if reading.title else [],
        "menu": reading.menu.text.split("\n") if reading.menu else [],
        "choice": [choice_line(choice) for choice in reading.menu.choices] if reading.menu else [],
        "draft": reading.composer.draft.split("\n") if reading.composer and reading.composer.draft else [],
        "hint": reading.composer.ghost.split("\n") if reading.composer and reading.composer.ghost else [],
        "also": [f"{lower.rule!r} holds, and would say {lower.state}" for lower in reading.lower],
    }
    return [f"  {name:<9} {clean_line(line)}" for name, some in parts.items() for line in some]


def _screen_object(reading: Reading, version_note: str) -> dict[str, Any]:
    seen: dict[str, Any] = msgspec.to_builtins(reading)
    menu = reading.menu
    if menu is not None:
        seen["menu"] = {**seen["menu"], "keys": {decision.value: key for decision, key in menu.keys.items()}}
    return {**seen, "file": Path(reading.file).name, "note": version_note or None}


def _shot(screen: str, title: str | None) -> tuple[str, ScreenShot]:
    """The text of a screen, and the screen."""
    path = Path(screen)
    folder = path if path.is_dir() else path.parent if path.name == SCREEN else None
    text = _read(screen if path != folder else str(path / SCREEN))
    facts: dict[str, Any] = {}
    if folder is not None:
        title = title if title is not None else _beside(folder / TITLE).strip()
        facts = _facts(folder / EXPECTED)
    return text, captured(text, title or "", **facts)


def _read(screen: str) -> str:
    try:
        if screen == "-":
            content = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(screen).open("rb") as file:
                content = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {screen!r}.", hint="`tmux capture-pane -e -p` writes one.") from error
    except OSError as error:
        raise UsageError(f"{screen!r} cannot be read: {error.strerror or error}.") from error
    if len(content) > LARGEST:
        raise UsageError(f"{screen!r} is larger than {LARGEST // 1024} KB, so it is no screen.")
    return content.decode("utf-8", "replace")


def _beside(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _facts(path: Path) -> dict[str, Any]:
    """What a golden folder knows of its terminal; nothing where that cannot be used."""
    import tomllib

    try:
        shot = tomllib.loads(_beside(path)).get("shot", {})
        known = msgspec.convert(shot, _Facts)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, AttributeError):
        return {}
    return {
        "cursor": known.cursor,
        "cursor_visible": known.cursor_visible,
        "alternate": known.alternate,
        "columns": known.columns,
    }


class _Facts(msgspec.Struct):
    cursor: tuple[int, int] | None = None
    cursor_visible: bool = True
    alternate: bool = False
    columns: int = 0


def _word(signal: Signal) -> str:
    asking = f" ({signal.asking})" if signal.asking else ""
    rule = f", {signal.rule}" if signal.rule and signal.source not in ("screen", "title") else ""
    return clean_line(f"says {signal.value}{asking}{rule}")


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
