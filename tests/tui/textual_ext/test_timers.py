"""A timer calls its function also where the process does not run for a while."""

import ast
import asyncio
import itertools

import pytest
from textual import _time
from textual.app import App
from textual.timer import Timer

from kasmon.tui.textual_ext.timers import start_timer
from tests.support.syntax_trees import modules, nodes


def slow_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second go by whenever Textual looks at its clock."""
    seconds = itertools.count()
    monkeypatch.setattr(_time, "get_time", lambda: float(next(seconds)))


async def test_a_timer_that_begins_late_calls_its_function() -> None:
    called = asyncio.Event()
    async with App[None]().run_test() as pilot:
        with pytest.MonkeyPatch.context() as monkeypatch:
            slow_down(monkeypatch)
            start_timer(pilot.app, 0.001, called.set)
            await called.wait()


async def test_textuals_own_does_not_call_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this fails, `start_timer` is not needed any more."""
    called: list[str] = []
    timer = Timer(App[None](), 0.001, callback=lambda: called.append("called"), repeat=0)
    slow_down(monkeypatch)

    await timer._run()

    assert [] == called


def test_the_dashboard_has_no_other_one_shot_timers() -> None:
    calls = {
        (path, node.attr)
        for path, tree in modules().items()
        if path.startswith("kasmon/")
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and node.attr == "set_timer"
    }

    assert {("kasmon/tui/textual_ext/timers.py", "set_timer")} == calls
