"""The story of many machines: the broker and a machine are killed in the middle, and nothing is lost."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from kasmon.demo.fleet import MACHINES
from kasmon.demo.scratch import FAR
from tests.support.bus.server_programs import need_server
from tests.support.cli.fork_server import KASMON
from tests.support.git_repo import Repo
from tests.support.sandbox.requirements import need_jail
from tests.support.tui.dashboard import press_on_card
from tests.support.tui.demo_terminal import DemoTerminal
from tests.support.wait import until

pytestmark = pytest.mark.story

FAR_MACHINES = MACHINES[1:]


def process(is_wanted: Callable[[list[str]], bool], folder: Path) -> psutil.Process:
    """The process in *folder* whose command is wanted."""

    def find() -> psutil.Process | None:
        for each in psutil.process_iter(["cmdline", "environ"]):
            state = (each.info["environ"] or {}).get("XDG_STATE_HOME", "")
            if state == str(folder / "s") and is_wanted(each.info["cmdline"] or []):
                return each
        return None

    return until(find, what="a process")


def kill_broker_and_machine(inside: Path) -> Callable[[], int]:
    """Kill the broker, and what serves the sessions of `gpu`; the result starts that again, as its unit does."""
    broker = process(lambda words: "nats-server" in words[0] if words else False, inside)
    served = process(lambda words: "bus" in words, inside / FAR / "gpu")
    command, environment = served.cmdline(), served.environ()
    for each in (broker, served):
        each.send_signal(signal.SIGKILL)
    return lambda: os.posix_spawn(command[0], command, environment)


def sessions(outside: DemoTerminal, inside: Path) -> dict[str, dict[str, Any]]:
    """Each session by its machine and name."""
    return {f"{each['machine']}:{each['name']}": each for each in outside.ask("ls", inside=inside)["sessions"]}


def requests(outside: DemoTerminal, inside: Path) -> dict[str, dict[str, Any]]:
    """Each request by its session."""
    return {each["session"]: each for each in outside.ask("inbox", inside=inside)["requests"]}


def is_answered(outside: DemoTerminal, inside: Path, before: int) -> bool:
    """Whether there is one request less than *before*."""
    return len(requests(outside, inside)) == before - 1


@pytest.mark.timeout(180)
def test_a_request_from_each_machine_is_answered_on_one_screen_after_the_broker_and_a_machine_were_killed() -> None:
    need_server()
    with DemoTerminal() as outside:
        outside.start(*KASMON, "demo", "--fleet", "--agents", "3")
        inside = Path(until(outside.records, what="the demo's record")[0].folder)
        waiting = until(lambda: found if len(found := requests(outside, inside)) == 3 else None, 60.0, "three requests")
        before = sessions(outside, inside)
        outside.shows("2 machines", "3 asking", *FAR_MACHINES)

        start_again = kill_broker_and_machine(inside)
        outside.shows("1 unreachable")
        pid = start_again()

        outside.shows("2 machines ", "3 asking")
        until(lambda: requests(outside, inside) == waiting, 60.0, "the same requests")
        assert before.keys() == sessions(outside, inside).keys()
        for left in (3, 2, 1):
            outside.press("i")
            outside.shows(f" of {left}" if left > 1 else "request", "● ready")
            answered = partial(is_answered, outside, inside, left)
            press_on_card(partial(outside.press, "a"), outside.screen, answered)
        until(lambda: {"idle"} == {each["state"] for each in sessions(outside, inside).values()}, 40.0, "their ends")
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


COMMIT = "git -c user.name=t -c user.email=t@t commit -qm"
PLAN = """
name = "release"
machine = "build"
worktree = "own"
advance = "auto"

[[task]]
id = "parser"
wave = 1
run = "echo parser >parser.txt; git add . && {commit} parser"
check = "grep parser parser.txt"

[[task]]
id = "docs"
wave = 1
machine = "gpu"
run = "until [ -e {gate} ]; do sleep 0.1; done; echo docs >docs.txt; git add . && {commit} docs"
check = "grep docs docs.txt"

[[task]]
id = "join"
wave = 2
machine = "gpu"
needs = ["parser", "docs"]
run = "cat parser.txt docs.txt >both.txt && git add . && {commit} both"
check = "grep parser both.txt && grep docs both.txt"
"""


@pytest.mark.faults
@pytest.mark.sandboxes
@pytest.mark.timeout(400)
def test_requests_a_paused_sandbox_and_a_plan_on_three_machines_outlive_the_broker_and_a_machine(
    tmp_path: Path,
) -> None:
    """All of it at once, on one screen: nothing is lost, and nothing is done twice. It takes about 80 s."""
    need_jail()
    need_server()
    repo, gate = Repo(tmp_path / "shop"), tmp_path / "gate"
    (repo.folder / "plan.toml").write_text(PLAN.format(gate=gate, commit=COMMIT))
    before = repo.git("rev-parse", "HEAD"), repo.git("status", "--porcelain")
    with DemoTerminal() as outside:
        outside.start(*KASMON, "demo", "--fleet", "--agents", "3")
        inside = Path(until(outside.records, what="the demo's record")[0].folder)
        ask = partial(outside.ask, inside=inside)
        waiting = until(lambda: found if len(found := requests(outside, inside)) == 3 else None, 60.0, "three requests")
        known = sessions(outside, inside)
        outside.shows("2 machines", "3 asking", *FAR_MACHINES)

        lab = ask("machines", "run", "gpu", "--", "sandbox", "create", "lab")["session"]["id"]
        until(lambda: "gpu:lab" in sessions(outside, inside), 60.0, "the sandbox in the list")

        def state_of_lab() -> str:
            return str(sessions(outside, inside)["gpu:lab"]["state"])

        assert "set\n" == ask("sandbox", "run", "--lang", "python", lab, "x = 41; print('set')")["ran"]["stdout"]
        ask("sandbox", "pause", lab)
        until(lambda: state_of_lab() in ("standby", "paused"), 60.0, "the pause")
        plan = ask("plan", "run", str(repo.folder / "plan.toml"), "--yes")["plan"]["id"]

        def tasks() -> dict[str, Any]:
            return {each["id"]: each for each in ask("plan", "show", plan)["plan"]["tasks"]}

        until(lambda: tasks()["docs"]["state"] == "running", 60.0, "the task on gpu")
        start_again = kill_broker_and_machine(inside)
        outside.shows("1 unreachable")
        gate.touch()
        until(lambda: ask("cluster", "status")["cluster"]["up"], 60.0, "the broker")
        pid = start_again()

        outside.shows("2 machines ", "3 asking")
        until(lambda: requests(outside, inside) == waiting, 60.0, "the same requests")
        for left in (3, 2, 1):
            outside.press("i")
            outside.shows(f" of {left}" if left > 1 else "request", "● ready")
            answered = partial(is_answered, outside, inside, left)
            press_on_card(partial(outside.press, "a"), outside.screen, answered)
        until(lambda: state_of_lab() in ("standby", "paused"), 60.0, "the sandbox as it was")
        ask("sandbox", "resume", lab)
        assert "42\n" == ask("sandbox", "run", "--lang", "python", lab, "print(x + 1)")["ran"]["stdout"]
        until(lambda: {each["state"] for each in tasks().values()} == {"done"}, 120.0, "the end of the plan")

        assert {1} == {each["attempt"] for each in tasks().values()}
        orders = ask("machines", "orders", "gpu", "--all")["orders"]
        assert {"2-docs", "3-join"} == {each["task"] for each in orders if each["state"] == "done"}
        assert "parser\ndocs" == repo.git("show", f"{tasks()['join']['branch']}:both.txt")
        assert before == (repo.git("rev-parse", "HEAD"), repo.git("status", "--porcelain"))
        ended = sessions(outside, inside)
        assert {"idle"} == {ended[name]["state"] for name in known}
        ask("stop", lab)
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
