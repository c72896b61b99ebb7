"""Golden screens: `<agent>/<version>/<case>/{screen.txt,title.txt,expected.toml}`, real screens and what they mean.

`screen.txt` is what `tmux capture-pane -e` gave, `title.txt` the pane's title. `expected.toml` says what is to be read
there, and under `[shot]` what no capture holds: size, cursor, alternate screen.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import tomli_w

from kasmon.detection.rules.catalog import shipped
from kasmon.detection.rules.file import ScreenRules

FOLDER: Final = Path(__file__).parents[3] / "kasmon" / "agents"


def shipped_rules(program: str, version: str = "") -> ScreenRules | None:
    """The rules that kasmon ships for *program*; None if there are none."""
    chosen = shipped().rules(program, version)
    return None if chosen is None else chosen.rules


class Shot(NamedTuple):
    """What was seen of a terminal at one moment."""

    text: str
    """Rows with their styles, as `tmux capture-pane -e` gives them."""
    title: str
    facts: dict[str, Any]
    """`columns`, `rows`, `cursor` ([x, y]), `cursor_visible`, `alternate`; what is not known is not there."""


class Case(NamedTuple):
    agent: str
    version: str
    name: str
    shot: Shot
    expected: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.agent}/{self.version}/{self.name}"


def cases() -> Iterator[Case]:
    """All golden folders, in the order of their paths."""
    for path in sorted(FOLDER.glob("*/*/*/expected.toml")):
        yield load(path.parent)


def load(folder: Path) -> Case:
    expected = tomllib.loads((folder / "expected.toml").read_text("utf-8"))
    facts = expected.pop("shot", {})
    text = (folder / "screen.txt").read_bytes().decode("utf-8")
    title = (folder / "title.txt").read_text("utf-8").removesuffix("\n")
    agent, version, name = folder.parts[-3:]
    return Case(agent, version, name, Shot(text, title, facts), expected)


def save(agent: str, version: str, name: str, shot: Shot, expected: dict[str, Any]) -> Path:
    """Write one golden folder; one that is there with this name is written anew."""
    folder = FOLDER / agent / version / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "screen.txt").write_bytes(shot.text.encode())
    (folder / "title.txt").write_text(f"{shot.title}\n", "utf-8")
    (folder / "expected.toml").write_bytes(tomli_w.dumps({**expected, "shot": shot.facts}).encode())
    return folder
