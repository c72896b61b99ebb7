"""What programs, scripts, files and fingers rely on stays as it is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.support.interface_dump import STORED

BEFORE: Final = Path(__file__).parents[1] / "interface_before.json"
"""The interface at commit 0177a51, before modules moved and words changed. It is never written again."""
CHANGED: Final = {
    "actions: top": "`g` groups the list, so the first session is at Home only",
    "commands: send": "it takes several sessions; only the names of its words in the help differ",
    "config: session.idle_timeout_seconds": "a jailed agent that is idle is paused, not ended",
}
"""The values that differ since -> the reason."""


def test_the_interface_is_the_stored_one() -> None:
    """In its own process, without what other tests define. `make pages` stores it."""
    code = "from tests.support.interface_dump import as_text; print(as_text(), end='')"
    now = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert STORED.read_text(encoding="utf-8") == now


def test_the_earlier_interface_differs_only_in_the_listed_parts() -> None:
    """New commands, fields and values may have come."""
    before, now = (json.loads(file.read_text(encoding="utf-8")) for file in (BEFORE, STORED))

    assert sorted(CHANGED) == sorted(different(before, now))


def test_a_field_that_was_added_has_a_default_so_that_an_old_log_is_readable() -> None:
    before, now = (json.loads(file.read_text(encoding="utf-8"))["structs with a tag"] for file in (BEFORE, STORED))

    assert [] == [tag for tag, fields in before.items() if not extends(fields, now[tag])]


def extends(before: list[str], now: list[str]) -> bool:
    """Whether a reader of the fields *now* reads what has the fields *before*."""
    return set(before) <= set(now) and all("=" in field for field in set(now) - set(before))


def test_a_removed_field_or_one_without_a_default_is_found() -> None:
    assert extends(["a", "b=1"], ["a", "c=2", "b=1"])
    assert not extends(["a"], ["a", "b"])
    assert not extends(["a", "b=1"], ["a"])


def different(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The names in each part of *before* whose value *now* does not have."""
    pairs = {part: value.items() if isinstance(value, dict) else enumerate(value) for part, value in before.items()}
    return [
        f"{part}: {name}"
        for part, named in pairs.items()
        for name, value in named
        if not (
            has(now[part], [value])
            if isinstance(now[part], list)
            else name in now[part] and has(now[part][name], value)
        )
    ]


def has(now: Any, before: Any) -> bool:
    """Whether *now* is *before*, or has more keys and items."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(key in now and has(now[key], value) for key, value in before.items())
    if isinstance(before, list):
        return isinstance(now, list) and all(any(has(each, value) for each in now) for value in before)
    return bool(now == before)
