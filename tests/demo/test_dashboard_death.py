"""The story of the whole: the dashboard is killed in the middle of it all, and nothing is lost."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from kasmon.demo.cast import CAST
from tests.support.cli.fork_server import KASMON
from tests.support.tui.demo_terminal import DemoTerminal
from tests.support.wait import until

pytestmark = pytest.mark.story

NAMES = [part.name for part in CAST]
LASTING = {part.name for part in CAST if part.fate != "host killed" and not part.script.endswith("crash 139\n")}


def requests(outside: DemoTerminal, inside: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = outside.ask("inbox", inside=inside)["requests"]
    return [request for request in found if request["kind"] == "permission"]


def agents(outside: DemoTerminal, inside: Path) -> dict[str, tuple[int, float]]:
    """Whoever is not meant to end by itself and runs: its process, and when that began."""
    sessions = [session for session in outside.ask("ls", inside=inside)["sessions"] if session["name"] in LASTING]
    found = {}
    for session in sessions:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(session["pid"]) if session["pid"] else None
            if process and process.status() != psutil.STATUS_ZOMBIE:
                found[session["id"]] = (process.pid, process.create_time())
    return found


def dashboard_of(demo: int) -> int:
    """The pid of the demo's only living child, once the one that started the agents has gone."""

    def only_child() -> int | None:
        children = [c for c in psutil.Process(demo).children() if c.status() != psutil.STATUS_ZOMBIE]
        return children[0].pid if len(children) == 1 else None

    return until(only_child, what="one child of the demo")


@pytest.mark.timeout(120)
def test_a_killed_dashboard_opens_again_on_the_same_rows_and_requests_and_an_answer_reaches_its_agent() -> None:
    with DemoTerminal() as outside:
        demo = outside.start(*KASMON, "demo")
        outside.shows(*NAMES)
        inside = Path(until(outside.records, what="the demo's record")[0].folder)
        waiting = until(lambda: r if len(r := requests(outside, inside)) == 5 else None, what="five requests")

        dashboard = dashboard_of(demo)
        before = agents(outside, inside)

        os.kill(dashboard, signal.SIGKILL)
        outside.shows("was killed (signal 9)", "Enter opens the dashboard again")
        outside.press("Enter")

        outside.shows(*NAMES)
        key = ("id", "digest", "shown")
        assert [[r[k] for k in key] for r in waiting] == [[r[k] for k in key] for r in requests(outside, inside)]
        assert before == {id_: process for id_, process in agents(outside, inside).items() if id_ in before}
        assert {request["session"] for request in waiting} <= before.keys()

        outside.shows("pending requests")
        outside.press("i")
        outside.shows("1 of 5", "● ready")
        outside.press("a")

        first, *others = waiting
        until(lambda: [r["id"] for r in requests(outside, inside)] == [r["id"] for r in others], what="one answered")
        until(
            lambda: outside.ask("show", first["session"], inside=inside)["session"]["state"] == "idle", what="its end"
        )

        outside.shows("1 of 4", "● ready")
        outside.press("Escape")
        until(lambda: "1 of 4" not in outside.screen(), what="the card's leaving")
        outside.press("q")
        outside.shows("Quit")
        outside.press("y")
        until(lambda: not outside.records() and not inside.exists(), what="nothing left behind")
