"""Recorded screens of an agent, in `VERSION/CASE/` of its folder, and what its rules read there.

`screen.txt` is what `tmux capture-pane -e` printed, `title.txt` the window's title. `expected.toml` says what the
screen shows, and under `[shot]` what a capture does not have: its size and cursor.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kasmon.detection.reader import ScreenReading, build_reading_table, read
from kasmon.detection.rules.catalog import RuleCatalog
from kasmon.detection.terminal_screen import TerminalScreen, captured
from kasmon.errors import ConfigError, RefusedError, UnavailableError
from kasmon.paths import write_private
from kasmon.toml_struct import parse_table, read_text

SCREEN: Final = "screen.txt"
TITLE: Final = "title.txt"
EXPECTED: Final = "expected.toml"
LARGEST: Final = 1024 * 1024
"""The greatest size of a screen, in bytes."""
MOST_CASES: Final = 2000
STATED: Final = ("state", "reads", "asking", "made")
"""The keys of `expected.toml` that a person states; a rule decides all others."""
AT: Final = datetime(2026, 11, 22, 6, 0, tzinfo=UTC).timestamp()
"""The moment at which each recorded screen is read: a screen may tell when a limit ends."""


class _Shot(msgspec.Struct, frozen=True):
    """The part of a recorded screen that its text does not have."""

    columns: int = 0
    cursor: tuple[int, int] | None = None
    cursor_visible: bool = True
    alternate: bool = False


class RecordedScreen(NamedTuple):
    """One recorded screen."""

    version: str
    case: str
    """What a person called it."""
    screen: TerminalScreen
    expected: dict[str, Any]


class ReadingDifference(NamedTuple):
    """A recorded screen that is read otherwise than expected."""

    version: str
    case: str
    key: str
    """`state`, or the first key of `expected.toml` that differs."""
    expected: str
    actual: str
    rule: str
    """The rule that decided; empty if none did."""


def recorded_screens(folder: Path) -> Iterator[RecordedScreen]:
    """Yield the recorded screens in the *folder* of an agent, in the order of their paths.

    Raises:
        ConfigError: if a file of one is missing or unusable.
    """
    for path in sorted(folder.glob(f"*/*/{EXPECTED}"))[:MOST_CASES]:
        yield load(path.parent)


def load(folder: Path) -> RecordedScreen:
    """Return the recorded screen in *folder*. Raises `ConfigError` if a file of it is missing or unusable."""
    file = folder / EXPECTED
    text = read_text(file, LARGEST)
    expected = parse_table(text, str(file))
    try:
        shot = msgspec.convert(expected.pop("shot", {}), _Shot)
    except msgspec.ValidationError as error:
        raise ConfigError(str(file), f"{error}", key="shot") from error
    if not isinstance(expected.get("state"), str):
        raise ConfigError(str(file), "it does not say which state the screen shows", key="state")
    title = folder / TITLE
    screen = captured(
        read_text(folder / SCREEN, LARGEST),
        read_text(title, LARGEST).strip() if title.exists() else "",
        cursor=shot.cursor,
        cursor_visible=shot.cursor_visible,
        alternate=shot.alternate,
        columns=shot.columns,
    )
    return RecordedScreen(folder.parent.name, folder.name, screen, expected)


def write(folder: Path, text: str, title: str, shot: TerminalScreen, expected: Mapping[str, object]) -> None:
    """Write a recorded screen to the new *folder*: *text* and *title*, which show *shot*, and what that is.

    Raises:
        RefusedError: if *folder* has one.
        UnavailableError: if it cannot be written.
    """
    import tomli_w  # only here

    facts = {
        "columns": shot.columns,
        "rows": len(shot.rows),
        "cursor": list(shot.cursor) if shot.cursor else None,
        "cursor_visible": shot.cursor_visible,
        "alternate": shot.alternate,
    }
    table = {**expected, "shot": {key: value for key, value in facts.items() if value is not None}}
    if existing := next((name for name in (SCREEN, TITLE, EXPECTED) if (folder / name).exists()), None):
        raise RefusedError(f"{str(folder / existing)!r} already exists.", hint="Name another folder.")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(folder / SCREEN, text.encode())
        write_private(folder / TITLE, f"{title}\n".encode())
        write_private(folder / EXPECTED, tomli_w.dumps(table).encode())
    except OSError as error:
        raise UnavailableError(f"cannot write {str(folder)!r}: {error.strerror or error}.") from error


def compare(program: str, recorded: RecordedScreen, rules: RuleCatalog) -> ReadingDifference | None:
    """Return what of *recorded* the *rules* of *program* read otherwise than expected; None if nothing."""
    chosen = rules.rules(program, recorded.version)
    reading = read(recorded.screen, chosen.rules, AT, zone=UTC) if chosen is not None else ScreenReading()
    found = {"state": reading.state, **({"asking": str(reading.asking)} if reading.asking else {})}
    found |= build_reading_table(reading)
    wanted = {**recorded.expected, "state": recorded.expected.get("reads", recorded.expected["state"])}
    is_stated = not set(recorded.expected) - set(STATED)
    keys = [key for key in STATED if key in wanted] if is_stated else [*wanted, *found]
    passed = {"reads", "made", *(() if wanted["state"] == "asking" and "asking" in wanted else ("asking",))}
    for key in dict.fromkeys(keys):
        if key not in passed and wanted.get(key) != found.get(key):
            parts = (str(wanted.get(key, "nothing")), str(found.get(key, "nothing")))
            return ReadingDifference(recorded.version, recorded.case, key, *parts, reading.rule)
    return None


def propose_rule(recorded: RecordedScreen, others: Iterable[RecordedScreen]) -> str:
    """Return a rule as TOML that matches *recorded* and none of *others* that shows something else; empty if none does.

    It is a start: the lowest row that only this state has, with any numbers in place of its numbers.
    """
    state, asking = recorded.expected["state"], recorded.expected.get("asking")
    unlike = [each for each in others if (each.expected["state"], each.expected.get("asking")) != (state, asking)]
    for row in reversed(recorded.screen.rows):
        pattern = _pattern(row.text)
        if pattern and not any(re.search(pattern, other.text) for each in unlike for other in each.screen.rows):
            lines = ["[[rule]]", f"name = {_quote(recorded.case)}", "priority = 50", f"state = {_quote(state)}"]
            lines += [f"asking = {_quote(asking)}"] if asking else []
            return "\n".join([*lines, f"all = [{_quote(pattern)}]"])
    return ""


def _pattern(row: str) -> str:
    """Return a pattern for *row* with any number in place of each of its numbers; empty if it has no words."""
    text = row.strip()
    if sum(character.isalpha() for character in text) < 3:
        return ""
    return "^\\s*" + re.sub(r"\d+", r"\\d+", re.sub(r"([^\w\s])", r"\\\1", text[:200])) + "\\s*$"


def _quote(text: str) -> str:
    return f"'{text}'" if "'" not in text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def describe(difference: ReadingDifference) -> str:
    """Return *difference* as one line."""
    rule = f"rule {difference.rule!r}" if difference.rule else "no rule"
    return (
        f"{difference.version}/{difference.case}: {difference.key} {difference.expected!r} was expected, "
        f"{difference.actual!r} is read ({rule})"
    )


def cases_by_state(recorded: Sequence[RecordedScreen]) -> dict[str, int]:
    return Counter(str(each.expected["state"]) for each in recorded)
