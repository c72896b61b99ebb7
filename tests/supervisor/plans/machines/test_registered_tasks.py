"""A plan whose tasks work on other machines: commits go there and come back, and nothing is done twice."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from kasmon import system
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.peer import evidence
from kasmon.model.plan.events import PlacementEnded, TaskBegan, TaskDone
from kasmon.model.plan.progress import PlanRun
from kasmon.store.file_lock import lock
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.registration import drain
from kasmon.supervisor.plans.machines.registered_tasks import RegisteredTasks
from kasmon.supervisor.plans.view import approved_plan
from tests.support.git_repo import Repo
from tests.support.supervisor.machine_plan import CONFIG, MachinePlan
from tests.support.wait import until

pytestmark = pytest.mark.story

WRITE = "echo {0} > {0}.txt && git add {0}.txt && git -c user.name=t -c user.email=t@t commit -qm {0}"
TWO_WAVES = f"""
advance = "auto"
[[task]]
id = "lexer"
machine = "gpu-1"
run = "{WRITE.format("lexer")}"
check = "test -e lexer.txt"
[[task]]
id = "parser"
labels = ["gpu-2"]
run = "{WRITE.format("parser")} && mkdir -p .kasmon/task-2 && echo parsed > .kasmon/task-2/result.md"
[[task]]
id = "tests"
needs = ["lexer", "parser"]
machine = "gpu-2"
run = "ls > seen.txt; {WRITE.format("tests")}"
[[task]]
id = "docs"
needs = ["tests"]
worktree = "own"
run = "ls > seen.txt; {WRITE.format("docs")}"
"""
Make = Callable[..., MachinePlan]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[MachinePlan] = []

    def build(*arguments: object) -> MachinePlan:
        made.append(MachinePlan(*arguments))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for each in made:
        each.close()


def test_work_goes_from_machine_to_machine_and_comes_back_as_branches(make: Make) -> None:
    site = make(TWO_WAVES)
    before = site.repo.git("status", "--porcelain", "--branch")
    ended = site.run()
    assert ended.outcome == "claimed", {id_: at.why for id_, at in ended.tasks.items()}
    assert {id_: at.machine for id_, at in ended.tasks.items()} == {
        "lexer": "gpu-1",
        "parser": "gpu-2",
        "tests": "gpu-2",
        "docs": "",
    }
    assert site.branch("plan/tidy.1-lexer") == ["file0.txt", "lexer.txt"]
    assert site.branch("plan/tidy.3-tests") == ["file0.txt", "lexer.txt", "parser.txt", "tests.txt"]
    assert "tests.txt" in site.branch("plan/tidy.4-docs"), "a task here starts from what came back"
    assert (site.log.folder / "results" / "task-2.md").read_text() == "parsed\n"
    assert ended.of("lexer").is_checked
    assert ended.of("lexer").changed == 1
    assert site.repo.git("status", "--porcelain", "--branch") == before
    assert site.repo.git("worktree", "list").count("\n") == 1, "here only the task that works here has a worktree"
    assert [session.plan for session in site.sessions()] == ["tidy"] * 3
    until(lambda: not any(session.exists for session in site.sessions()), what="the end of the sessions")
    removed, retained = RegisteredTasks(site.here.paths, site.log).clean(approved_plan(site.log), ())
    assert sorted(removed) == sorted(ended.of(task).workdir for task in ("lexer", "parser"))
    assert ["1 file is not committed" in why for why in retained] == [True], "seen.txt of the third task"


def was_placed(task: str, now: PlanRun) -> bool:
    return bool(now.of(task).epoch)


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_a_cut_connection_and_killed_runners_start_nothing_twice(make: Make) -> None:
    """The line is cut at each step, a runner dies after each, and a host on the machine is killed."""
    site = make(TWO_WAVES.replace("git add lexer.txt", "sleep 2; git add lexer.txt"))
    site.start()
    for machine, task in (("gpu-1", "lexer"), ("gpu-2", "parser")):
        site.until(partial(was_placed, task))
        site.kill_bus(machine)
        site.kill_runner()
        site.start()
    site.until(lambda now: now.of("lexer").attempt and now.of("parser").attempt)
    site.kill_bus("gpu-1")
    site.kill_tmux_host("gpu-2")
    site.kill_runner()
    ended = site.run()
    assert ended.outcome == "claimed"
    assert [session.task for session in site.sessions("gpu-1")] == [1]
    assert sorted(session.task or 0 for session in site.sessions("gpu-2")) == [2, 3]
    assert [at.attempt for at in ended.tasks.values()] == [1, 1, 1, 1]
    assert site.repo.git("rev-list", "--count", "plan/tidy.4-docs") == "6", "one commit of each task, and a merge"


INHERITS = f"""
advance = "auto"
[[task]]
id = "a"
machine = "gpu-1"
run = "export WORD=one; {WRITE.format("first")}"
[[task]]
id = "b"
inherits = "a"
run = "echo $WORD > word.txt && git add word.txt && git -c user.name=t -c user.email=t@t commit -qm $WORD"
[[task]]
id = "c"
inherits = "b"
prompt = "say hi"
"""


def test_a_task_continues_in_the_terminal_and_the_folder_of_another_on_its_machine(make: Make) -> None:
    site = make(INHERITS)
    ended = site.run()
    assert ended.outcome == "claimed", site.facts()
    assert {at.machine for at in ended.tasks.values()} == {"gpu-1"}
    assert len({at.workdir for at in ended.tasks.values()}) == 1
    assert ended.of("a").session == ended.of("b").session != ended.of("c").session
    assert site.repo.git("show", "plan/tidy.1-a:word.txt") == "one"
    assert len(site.sessions("gpu-1")) == 2


HERE = f"""
advance = "auto"
per_machine = 2
[[task]]
id = "a"
labels = ["here"]
run = "export WORD=one; {WRITE.format("first")}"
[[task]]
id = "b"
inherits = "a"
run = "echo $WORD > word.txt && git add word.txt && git -c user.name=t -c user.email=t@t commit -qm $WORD"
check = "test -e word.txt"
[[task]]
id = "c"
machine = "{os.uname().nodename.partition(".")[0].lower()}"
prompt = "say hi"
[[task]]
id = "d"
machine = "any"
needs = ["b", "c"]
prompt = "say hi"
[[task]]
id = "e"
machine = "gpu-1"
needs = ["b"]
run = "{WRITE.format("last")}"
"""


def test_tasks_are_placed_on_this_machine_too_and_run_like_those_without_a_machine(make: Make) -> None:
    site = make(HERE, ["gpu-1"])
    (site.here.paths.config / "config.toml").write_text(f'{CONFIG}\n[machine]\nlabels = ["here"]\nslots = 1\n')
    site.start()
    held = site.until(lambda now: now.of("a").placement and now.of("c").placement)
    whys = [placement.why for id_ in "ac" if (placement := held.of(id_).placement) is not None]
    assert whys == ["gpu-1: it has no label 'here'; local: it is drained", "local: it is drained"]
    drain(site.here.paths, "local", drained=False)
    ended = site.until(lambda now: now.state == "ended")

    assert ended.outcome == "claimed", {id_: at.why for id_, at in ended.tasks.items()}
    assert {"a": "local", "b": "local", "c": "local", "e": "gpu-1"} == {id_: ended.of(id_).machine for id_ in "abce"}
    here = {session.id: session for session in read_fleet(site.here.paths).sessions if not session.via}
    assert {ended.of(id_).session for id_ in "abc"} <= set(here)
    assert ended.of("a").session == ended.of("b").session, "it continues in the terminal"
    assert ended.of("b").is_checked
    assert site.branch("plan/tidy.1-a") == ["file0.txt", "first.txt", "word.txt"]
    assert site.branch("plan/tidy.5-e") == ["file0.txt", "first.txt", "last.txt", "word.txt"]
    began = [fact for fact in site.facts() if isinstance(fact, TaskBegan) and fact.task in "ac"]
    ends = {fact.task: fact.at for fact in site.facts() if isinstance(fact, TaskDone)}
    assert ends[min(began, key=lambda fact: fact.at).task] <= max(fact.at for fact in began), "it has one slot"
    assert not any(fact.task in "abc" for fact in site.facts() if isinstance(fact, PlacementEnded))


WAITS = """
advance = "auto"
[[task]]
id = "a"
machine = "{0}"
run = "until [ -e .kasmon/go ]; do sleep 0.1; done"
"""


def folder_of(run: PlanRun) -> Path:
    return Path(run.of("a").workdir.partition(":")[2])


def test_work_of_an_attempt_that_lost_its_claim_is_reported_and_not_accepted(make: Make) -> None:
    """An attempt that was placed there before the cut was seen, and never began, is reported too."""
    site = make(WAITS.format("any"))
    site.start()
    first = site.until(lambda now: now.of("a").session)
    machine = first.of("a").machine
    site.cut(machine)
    site.repo.commit("late.txt", at=folder_of(first))
    site.log.record_decision("retry", "a")
    second = site.until(lambda now: now.of("a").attempt == 2)
    assert second.of("a").machine != machine
    site.reconnect(machine)
    site.until(lambda now: len(now.of("a").placements) == 1)
    report, *others = (fact for fact in site.facts() if isinstance(fact, PlacementEnded))
    assert all(("none", "") == (other.state, other.session) for other in others)
    assert (report.machine, report.attempt, report.session) == (machine, 1, first.of("a").session)
    assert (report.state, report.commits, report.branch) == ("stopped", 1, "plan/tidy.1-a.a1")
    until(
        lambda: [session.exists for session in site.sessions(machine)] == [False], what="the end of the first session"
    )
    (folder_of(second) / ".kasmon" / "go").touch()
    ended = site.until(lambda now: now.state == "ended")
    assert (ended.of("a").attempt, site.branch("plan/tidy.1-a")) == (2, ["file0.txt"])


def hostile_tree(repo: Repo, folder: Path) -> None:
    """Commit a folder `.git` with a hook, as git itself never would."""
    blob = repo.git("rev-parse", "HEAD:file0.txt", at=folder)
    inner = write_tree(folder, ("100755", "post-checkout", blob))
    top = write_tree(folder, ("40000", ".git", inner), ("100644", "file0.txt", blob))
    commit = repo.git("commit-tree", "-p", "HEAD", "-m", "hostile", top, at=folder)
    repo.git("update-ref", "HEAD", commit, at=folder)


def write_tree(folder: Path, *entries: tuple[str, str, str]) -> str:
    content = b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(id_) for mode, name, id_ in entries)
    words = ["git", "hash-object", "--literally", "-t", "tree", "-w", "--stdin"]
    return subprocess.run(words, cwd=folder, input=content, capture_output=True, check=True).stdout.decode().strip()


def test_commits_that_git_would_not_check_out_are_refused_and_a_retry_continues_in_the_folder(make: Make) -> None:
    site = make(WAITS.format("gpu-1"))
    site.start()
    begun = site.until(lambda now: now.of("a").session)
    folder, refs = folder_of(begun), site.repo.git("for-each-ref")
    (folder / "mine.txt").write_text("not committed\n")
    hostile_tree(site.repo, folder)
    (folder / ".kasmon" / "go").touch()
    assert "its work could not be fetched" in site.until(lambda now: now.of("a").failures).of("a").failures[0]
    assert site.repo.git("for-each-ref") == refs
    site.repo.git("reset", "--quiet", "HEAD~1", at=folder)
    site.log.record_decision("retry", "a")
    ended = site.until(lambda now: now.state == "ended")
    assert (folder_of(ended), ended.of("a").changed) == (folder, 1)
    assert [session.exists for session in site.sessions("gpu-1")] == [False, False]


def test_a_branch_that_is_checked_out_or_moved_here_stays_as_it_is(make: Make) -> None:
    site = make(WAITS.format("gpu-1"))
    site.start()
    begun = site.until(lambda now: now.of("a").session)
    site.repo.commit("far.txt", at=folder_of(begun))
    site.repo.git("switch", "--quiet", "plan/tidy.1-a")
    mine = site.repo.commit("mine.txt")
    (folder_of(begun) / ".kasmon" / "go").touch()
    failed = site.until(lambda now: now.of("a").failures)
    assert "has commits that are not of task 'a'" in failed.of("a").failures[0]
    assert site.repo.git("rev-parse", "plan/tidy.1-a") == mine


def test_aborting_ends_tasks_on_the_machine_and_stopping_starts_them_again_in_their_folder(make: Make) -> None:
    site = make(WAITS.format("gpu-1"))
    site.start()
    begun = site.until(lambda now: now.of("a").session)
    site.log.record_decision("stop")
    until(lambda: lock_holder(site.log.lock) is None, what="the end of the runner")
    assert [session.exists for session in site.sessions("gpu-1")] == [False]
    site.log.record_decision("resume")
    site.start()
    again = site.until(lambda now: now.of("a").attempt == 2)
    assert folder_of(again) == folder_of(begun)
    site.log.record_decision("abort")
    assert site.until(lambda now: now.state == "ended").outcome == "aborted"
    assert [session.exists for session in site.sessions("gpu-1")] == [False, False]


def test_a_possibly_started_attempt_starts_nowhere_else_while_its_machine_is_only_disconnected(make: Make) -> None:
    site = make(WAITS.format("any"))
    site.start()
    site.until(lambda now: now.of("a").epoch)
    (machine,) = {each.machine for each in site.log.run.of("a").placements}
    until(lambda: site.sessions(machine), what="its session there")
    site.cut(machine)
    site.kill_runner()
    site.start()
    other = ({"gpu-1", "gpu-2"} - {machine}).pop()
    site.reconnect(machine)
    begun = site.until(lambda now: now.of("a").session)
    assert (begun.of("a").machine, begun.of("a").epoch) == (machine, 1)
    assert (len(site.sessions(machine)), site.sessions(other)) == (1, [])


def test_a_runner_that_waits_for_a_hanging_command_there_ends_at_a_signal(make: Make) -> None:
    site = make(WAITS.format("gpu-1"))
    site.start()
    site.until(lambda now: now.of("a").session)
    (claim,) = site.machines["gpu-1"].paths.plan_tasks.glob("*/1-a/claim.json")
    with lock(claim):
        site.log.record_decision("abort")
        runner = lock_holder(site.log.lock)
        assert runner
        until(lambda: runs_command(site, "gpu-1"), what="a command there")
        os.kill(runner, signal.SIGTERM)

        until(lambda: lock_holder(site.log.lock) != runner, what="the end of the runner")


def test_commits_made_during_the_check_are_accepted_as_checked(make: Make) -> None:
    site = make(f'''
without_check = "advance"
[[task]]
id = "a"
machine = "gpu-1"
run = "{WRITE.format("first")}"
check = "{WRITE.format("late")}"
''')

    assert site.run().outcome == "done"

    assert {"first.txt", "late.txt"} <= set(site.branch("plan/tidy.1-a"))


def runs_command(site: MachinePlan, machine: str) -> bool:
    """Whether a command for a task runs on *machine*."""
    link = lock_holder(site.here.paths.machine_lock(machine)) or 0
    with contextlib.suppress(psutil.NoSuchProcess):
        return any("task" in each.cmdline() for each in psutil.Process(link).children(recursive=True))
    return False


CHECKED = """
worktree = "folder"
[[task]]
id = "a"
prompt = "say hi"
check = "echo $$ > ../check.pid; sleep 600"
"""


def test_a_runner_may_use_the_links_but_not_its_checks_nor_one_that_an_agent_started(make: Make) -> None:
    site = make(CHECKED, ())
    runner = start_runner(site)
    site.until(lambda now: now.of("a").checking is not None)
    file = site.here.folder / "check.pid"
    until(lambda: file.exists() and file.read_text(), what="the check")
    assert "" == evidence(runner)
    assert "carries KASMON_SESSION" in evidence(int(file.read_text()))
    site.kill_runner()
    assert "carries KASMON_HOST" in evidence(start_runner(site, KASMON_SESSION="abcdefgh"))


def start_runner(site: MachinePlan, **variables: str) -> int:
    """Start a runner from a process with *variables*; its pid."""
    imports = "from kasmon.paths import user_paths; from kasmon.host.rpc.spawn import spawn_runner"
    code = f"{imports}; spawn_runner(user_paths(), "
    environment = {**os.environ, **site.here.paths.environment_variables(), **variables}
    subprocess.run([sys.executable, "-P", "-c", f"{code}{site.log.plan!r})"], env=environment, check=True)

    def running() -> int:
        pid = lock_holder(site.log.lock) or 0
        return pid if system.HERE.read_variables(pid) else 0  # for a moment, while it becomes its program, it has none

    return until(running, what="the runner")
