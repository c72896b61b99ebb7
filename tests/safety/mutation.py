"""A guard taken out for the length of a test: the source of one function with one piece of it replaced."""

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest


def without(patch: pytest.MonkeyPatch, owner: Any, name: str, guard: str, instead: str) -> None:
    """From now on *owner*'s function *name* has *instead* where its source has *guard*, exactly once.

    Fails if the guard is not there any more: then whoever moved it has to pin it anew.
    """
    known = inspect.getattr_static(owner, name)
    wrap: Callable[[Any], Any] = type(known) if isinstance(known, staticmethod | classmethod) else lambda made: made
    function = inspect.unwrap(getattr(known, "__func__", known))
    source = textwrap.dedent(inspect.getsource(function))
    assert 1 == source.count(guard), f"{guard!r} stands {source.count(guard)} times in {name}"
    module = sys.modules[function.__module__]
    scope: dict[str, Any] = {}
    exec(compile(source.replace(guard, instead), f"<{name} without its guard>", "exec"), vars(module), scope)
    patch.setattr(owner, name, wrap(scope[name]))
