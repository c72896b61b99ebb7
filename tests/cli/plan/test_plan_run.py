"""Plans from end to end: the real runner, real hosts, scripted agents, a real repository."""

import os
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import TurnStarted
from kasmon.model.permission import SessionId
from kasmon.model.plan.events import TaskBegan, decode
from kasmon.model.plan.progress import PlanRun
from kasmon.paths import write_private
from kasmon.process_identity import is_running
from kasmon.store.event_log import START, EventLog
from kasmon.store.plan_log import PlanLog
from tests.support.cli.cli_runner import LIMIT_S, Cli
from tests.support.cli.fork_server import KASMON
from tests.support.git_repo import Repo
from tests.support.wait import until

pytestmark = pytest.mark.story


@pytest.fixture
def line(kasmon: Cli) -> Cli:
    """A kasmon whose agents are scripted, and which may always begin another one."""
    kasmon.paths.config.mkdir(mode=0o700)
    config = 'default_agent = "scripted"\n[plans]\nmax_load = 0\n'
    write_private(kasmon.paths.config / "config.toml", config.encode())
    return kasmon


def runner(line: Cli, plan: str) -> int | None:
    return lock_holder(line.paths.plan(plan) / "host.lock")


def tasks(line: Cli, plan: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = line.json("plan", "show", plan)["plan"]["tasks"]
    return found


def run_of(line: Cli, plan: str) -> PlanRun:
    """How far *plan* is, by its log: what every process of ours reads."""
    book = PlanLog(line.paths, plan)
    book.more()
    return book.run


def states(line: Cli, plan: str, *ids: str) -> list[str]:
    now = run_of(line, plan)
    return [now.of(id_).state.value for id_ in ids]


def prompts(line: Cli, session: str) -> list[str]:
    """What the agent of *session* was told, turn by turn."""
    told = EventLog(line.paths.log(SessionId(session))).read(START)
    return [event.prompt for event, _ in told if isinstance(event, TurnStarted)]


def begun(line: Cli, plan: str) -> list[tuple[str, int]]:
    """Every attempt that was ever begun, with its number."""
    facts = map(decode, (line.paths.plan(plan) / "events.jsonl").read_bytes().splitlines())
    return [(fact.task, fact.attempt) for fact in facts if isinstance(fact, TaskBegan)]


MIXED = """
goal = "less"
without_check = "advance"
[[task]]
id = "lexer"
worktree = "own"
retries = 1
prompt = "say I lex"
check = "echo line >> count; echo the lexer is broken; test $(wc -l < count) -ge 2"
[[task]]
id = "screen"
mode = "tmux"
worktree = "own"
prompt = "say I draw"
[[task]]
id = "parser"
needs = ["lexer", "screen"]
prompt = "say I parse"
check = "test $KASMON_PLAN-$KASMON_WAVE-$KASMON_TASK = mixed-2-3"
"""


def test_a_mixed_plan_runs_to_its_end_in_worktrees_with_a_retry_and_a_report(line: Cli) -> None:
    repo = Repo(line.home / "repo")
    (repo.folder / "mixed.toml").write_text(MIXED)

    done = line("plan", "run", "repo/mixed.toml", "--ci", "--yes", "--report", "junit", "--output", "report.xml")

    assert 0 == done.code, done.out + done.err
    assert "but 1 file of" in done.err  # the plan itself is not committed
    lexer, screen, parser = tasks(line, "mixed")
    assert ["done", "done", "done"] == [task["state"] for task in (lexer, screen, parser)]
    assert [("lexer", 1), ("lexer", 2), ("parser", 1), ("screen", 1)] == sorted(begun(line, "mixed"))
    [again] = prompts(line, lexer["session"])
    assert "# ## What went wrong before" in again
    assert "the lexer is broken" in again
    assert [1, 0] == [lexer["changed"], screen["changed"]]
    assert [True, False, True] == [task["checked"] for task in (lexer, screen, parser)]
    assert [("scripted", "sdk"), ("scripted", "tmux"), ("scripted", "sdk")] == [
        (task["agent"], task["mode"]) for task in (lexer, screen, parser)
    ]
    modes = {session["name"]: session["mode"] for session in line.json("ls")["sessions"]}
    assert {"mixed-W1-T1": "sdk", "mixed-W1-T1-2": "sdk", "mixed-W1-T2": "tmux", "mixed-W2-T3": "sdk"} == modes
    branches = repo.git("branch", "--format=%(refname:short)").splitlines()
    assert ["main", "plan/mixed", "plan/mixed.1-lexer", "plan/mixed.2-screen"] == branches
    assert 3 == len(ET.parse(line.home / "report.xml").findall(".//testcase"))

    cleaned = line("plan", "clean", "mixed")
    assert 4 == cleaned.code
    assert "mixed.1-lexer' was not removed: 1 file is not committed" in cleaned.err
    assert 2 == cleaned.out.count("removed ")


LATER = """
worktree = "own"
[[task]]
id = "a"
wave = 1
run = "true"
[[task]]
id = "b"
wave = 2
inherits = "a"
run = "git rm -q file0.txt && git -c user.name=t -c user.email=t commit -qm gone"
"""


def test_a_plan_that_begins_with_a_later_wave_works_in_a_worktree_of_its_own(line: Cli) -> None:
    repo = Repo(line.home / "repo")
    (repo.folder / "later.toml").write_text(LATER)
    (repo.folder / "file0.txt").write_text("changed, and not committed\n")
    before = repo.head

    done = line("plan", "run", "repo/later.toml", "--wave", "2", "--ci", "--yes")

    assert 0 == done.code, done.out + done.err
    assert ["skipped", "done"] == states(line, "later", "a", "b")
    assert "plan/later.1-a" == run_of(line, "later").of("b").branch
    assert (before, "main") == (repo.head, repo.git("branch", "--show-current"))
    assert "M file0.txt\n?? later.toml" == repo.git("status", "--porcelain")
    assert "changed, and not committed\n" == (repo.folder / "file0.txt").read_text()


ASKING = """
[[task]]
wave = 1
prompt = "ask make\\nsay first"
[[task]]
wave = 1
prompt = "say second"
[[task]]
wave = 2
needs = [1]
prompt = "say third"
[[task]]
wave = 3
prompt = "hang"
"""


def test_a_plan_asks_survives_a_killed_runner_passes_results_on_and_is_aborted(line: Cli) -> None:
    (line.home / "asking.toml").write_text(ASKING)
    assert "asking\n" == line("plan", "run", "asking.toml", "--yes").out.splitlines(keepends=True)[-1]
    request = line.request()
    until(lambda: ["claimed"] == states(line, "asking", "2"), LIMIT_S)

    os.kill(until(lambda: runner(line, "asking")), signal.SIGKILL)
    until(lambda: runner(line, "asking") is None)
    assert "no runner" in line("plan", "ls").out
    (line.home / ".kasmon" / "task-1" / "result.md").write_text("The knob is under the lid.")
    assert 0 == line("answer", request["id"], "allow", "--digest", request["digest"]).code
    assert 0 == line("plan", "resume", "asking").code

    until(lambda: ["claimed", "claimed"] == states(line, "asking", "1", "2"), LIMIT_S)
    assert "tasks 1, 2 reported done without a check: accept or retry" in line("plan", "show", "asking").out
    for task in ("1", "2"):
        assert 0 == line("plan", "accept", "asking", task).code
    assert "wave 1 is done: start wave 2" == line.json("plan", "show", "asking")["plan"]["asks"]
    assert 0 == line("plan", "advance", "asking").code
    until(lambda: ["claimed"] == states(line, "asking", "3"), LIMIT_S)
    assert [("1", 1), ("2", 1), ("3", 1)] == sorted(begun(line, "asking"))
    assert "# The knob is under the lid." in prompts(line, run_of(line, "asking").of("3").session)[0].splitlines()

    for words in (("skip", "asking", "3"), ("advance", "asking")):
        assert 0 == line("plan", *words).code
    until(lambda: ["running"] == states(line, "asking", "4"), LIMIT_S)
    assert 0 == line("plan", "abort", "asking").code
    until(lambda: "aborted" == run_of(line, "asking").outcome, LIMIT_S)
    assert {"ended"} == {session["state"] for session in line.json("ls")["sessions"]}
    until(lambda: runner(line, "asking") is None)


SLOW_CHECK = '[[task]]\nprompt = "say x"\ncheck = "sleep 1000"\ncheck_time_limit = "0.3s"\n'


def test_a_time_limit_ends_what_hangs_and_ci_fails(line: Cli) -> None:
    (line.home / "slow.toml").write_text('[[task]]\nprompt = "hang"\ntime_limit = "0.5s"\n' + SLOW_CHECK)

    done = line("plan", "run", "slow.toml", "--ci", "--yes", "--json")

    assert 1 == done.code
    plan = done.json["plan"]
    assert ("failed", "failed", "its time limit of 0.5 s is over") == (
        plan["outcome"], plan["tasks"][0]["state"], plan["tasks"][0]["why"],
    )  # fmt: skip
    assert "its check failed: it took longer than 0.3 s" == plan["tasks"][1]["why"]
    assert {"ended"} == {session["state"] for session in line.json("ls")["sessions"]}


@pytest.mark.parametrize("name", ["plan.toml", "plan.md"])
def test_the_example_that_init_writes_runs_to_its_end(line: Cli, name: str) -> None:
    assert 0 == line("plan", "init", name).code

    done = line("plan", "run", name, "--ci", "--yes", "--json")

    assert (0, "claimed") == (done.code, done.json["plan"]["outcome"]), done.out + done.err
    assert ["done", "done", "done"] == [task["state"] for task in done.json["plan"]["tasks"]]


STOPPED = """
[[task]]
run = "sleep 1000"
[[task]]
prompt = "say done"
check = "echo begun >> checks; sleep 1000"
[[task]]
needs = [1]
run = "true"
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_ci_stops_the_plan_in_order_and_shows_how_to_resume_it(line: Cli, number: signal.Signals) -> None:
    (line.home / "stop.toml").write_text(STOPPED)
    with subprocess.Popen(
        [*KASMON, "plan", "run", "stop.toml", "--ci", "--yes", "--output", "report.txt"],
        env=line.environment,
        cwd=line.home,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        until(lambda: ["running", "claimed"] == states(line, "stop", "1", "2"), LIMIT_S)
        until(lambda: "working" in [one["state"] for one in line.json("ls")["sessions"]], LIMIT_S)
        until((line.home / "checks").exists, LIMIT_S)
        [check] = [at.checking for at in run_of(line, "stop").tasks.values() if at.checking is not None]
        command.send_signal(number)
        assert command.stderr is not None
        said = command.stderr.read()

    assert 130 == command.returncode, said
    assert f"plan 'stop' was stopped by {number.name}. Its agents and checks were ended" in said
    assert "`kasmon plan resume stop` starts the interrupted tasks again" in said
    assert ["stop (stop): stopped", "    1 sleep 1000: stopped while running", "    3 true: did not run"] == [
        each for each in (line.home / "report.txt").read_text().splitlines() if " 2 " not in each
    ]
    assert {"ended"} == {session["state"] for session in line.json("ls")["sessions"]}
    assert not is_running(check.pid, check.pid_started)
    assert runner(line, "stop") is None
    assert "paused, stopped (`kasmon plan resume stop`)" in line("plan", "ls").out
    assert "Nothing is lost.\n" == line("recover").out
    assert ["waiting", "claimed", "waiting"] == states(line, "stop", "1", "2", "3")

    assert 0 == line("plan", "resume", "stop").code
    until(lambda: "begun\nbegun\n" == (line.home / "checks").read_text(), LIMIT_S)
    until(lambda: [("1", 1), ("1", 2), ("2", 1)] == sorted(begun(line, "stop")), LIMIT_S)
    assert 0 == line("plan", "abort", "stop").code
    until(lambda: runner(line, "stop") is None, LIMIT_S)


def test_whenever_its_runner_is_killed_no_task_is_done_twice(line: Cli) -> None:
    (line.home / "kills.toml").write_text(
        'advance = "auto"\nwithout_check = "advance"\n'
        + "".join(f'[[task]]\nprompt = "say {n}"\nwave = {n}\n' for n in range(1, 4))
    )
    assert 0 == line("plan", "run", "kills.toml", "--yes").code
    log = line.paths.plan("kills") / "events.jsonl"
    for facts in range(2, 10, 2):
        until(lambda size=facts: len(log.read_bytes().splitlines()) >= size or not runner(line, "kills"), LIMIT_S)  # type: ignore[misc]
        until(lambda: runner(line, "kills") != 0)  # it holds the lock before its pid is in it
        if pid := runner(line, "kills"):
            os.kill(pid, signal.SIGKILL)
            until(lambda: runner(line, "kills") is None)
        if 0 != line("plan", "resume", "kills").code:
            break  # it was over already

    until(lambda: "claimed" == run_of(line, "kills").outcome, LIMIT_S)
    assert [("1", 1), ("2", 1), ("3", 1)] == begun(line, "kills")
    sessions = line.json("ls")["sessions"]
    assert [("kills-W1-T1", 1), ("kills-W2-T2", 1), ("kills-W3-T3", 1)] == sorted(
        (session["name"], session["generation"]) for session in sessions
    )
    assert [1, 1, 1] == [len(prompts(line, session["id"])) for session in sessions]


def test_a_later_wave_can_be_run_alone(line: Cli) -> None:
    (line.home / "p.md").write_text("## Wave 1\n### Task 1: a\nhang\n## Wave 2\n### Task 2: b\nsay b\n")

    assert 0 == line("plan", "run", "p.md", "--wave", "2", "--yes").code
    until(lambda: ["skipped", "claimed"] == states(line, "p", "1", "2"), LIMIT_S)
    assert 0 == line("plan", "abort", "p").code
    until(lambda: runner(line, "p") is None, LIMIT_S)


CLIVE = """
worktree = "folder"
without_check = "advance"
[[task]]
run = "cd src && export KNOB=lid"
[[task]]
run = "echo $PWD > two"
[[task]]
inherits = 1
run = 'echo "$KNOB $PWD" > ../three'
[[task]]
needs = [3]
run = 'echo "$KNOB $PWD" > four'
"""


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs bash")
def test_commands_continue_in_the_terminal_of_the_one_before(line: Cli) -> None:
    """clive's example: 1 and 2 at once in two terminals, 3 goes on in that of 1, 4 comes after 3 in its own."""
    with (line.paths.config / "config.toml").open("a") as config:
        config.write('[agents.shell]\nprogram = "/bin/bash"\n')
    (line.home / "src").mkdir()
    (line.home / "clive.toml").write_text(CLIVE)

    done = line("plan", "run", "clive.toml", "--ci", "--yes")

    assert 0 == done.code, done.out + done.err
    home = line.home
    assert [f"{home}\n", f"lid {home}/src\n", f" {home}\n"] == [
        (home / name).read_text() for name in ("two", "three", "four")
    ]
    one, two, three, four = (task["session"] for task in tasks(line, "clive"))
    assert one == three
    assert 3 == len({one, two, four})
    assert {"ended"} == {session["state"] for session in line.json("ls")["sessions"]}


def test_after_kill_9_of_all_processes_recover_continues_the_plan(line: Cli) -> None:
    tasks_ = '[[task]]\nprompt = "ask make\\nsay made"\n[[task]]\nneeds = [1]\nprompt = "say after"\n'
    (line.home / "crash.toml").write_text(f'without_check = "advance"\n{tasks_}')
    assert 0 == line("plan", "run", "crash.toml", "--yes").code
    line.request()
    session = SessionId(run_of(line, "crash").of("1").session)
    for lock in (line.paths.plan("crash") / "host.lock", line.paths.host_lock(session)):
        os.kill(until(partial(lock_holder, lock)), signal.SIGKILL)
        until(lambda lock=lock: lock_holder(lock) is None)  # type: ignore[misc]
    before = line.json("recover", "--dry-run")["recovered"]
    assert [("crash", "1"), ("crash", None)] == [(one["plan"], one["task"]) for one in before]
    assert ["running"] == states(line, "crash", "1")

    done = line("recover")

    assert 0 == done.code, done.err
    until(lambda: "claimed" == run_of(line, "crash").outcome, LIMIT_S)
    assert [("1", 1), ("2", 1)] == begun(line, "crash")
    assert [1, 2] == sorted(one["generation"] for one in line.json("ls")["sessions"])
    assert "Nothing is lost.\n" == line("recover").out
