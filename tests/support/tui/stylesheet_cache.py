"""Style sheets that were parsed once in a process, for all the apps that its tests start."""

from typing import Any

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

_parse_rules = Stylesheet._parse_rules
_parsed: dict[tuple[Any, ...], list[RuleSet]] = {}


def _parse_once(self: Stylesheet, css: str, *place: Any, **more: Any) -> list[RuleSet]:
    """What `Stylesheet._parse_rules` returns. Textual keeps that too, but for one app and one theme alone."""
    key = (css, *place, *more.items(), *self._variables.items())
    if key not in _parsed:
        _parsed[key] = _parse_rules(self, css, *place, **more)
    return _parsed[key]


def share_parsed_stylesheets() -> None:
    """Parse equal style sheets once: that takes an eighth of an app's start."""
    Stylesheet._parse_rules = _parse_once  # type: ignore[method-assign]
