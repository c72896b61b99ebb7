"""`kasmon plan`: look at a plan, agree to it, decide on it. No agent runs here; see `test_plan_story`."""

import stat
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kasmon.commands.plan_report import report
from kasmon.model.plan.fact import PlanEnded, PlanFact, TaskDone, TaskFailed
from kasmon.model.plan.read import read
from kasmon.model.plan.run import TaskState
from kasmon.paths import private_folder, write_private
from kasmon.store.plan import plans
from kasmon.supervisor import worktree
from tests.cli.desk import PLAN, Desk, as_json, words
from tests.cli.line import Line
from tests.model.plan.plans import began, checked, claimed, done, failed, run, steered
from tests.supervisor.repo import Repo


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    desk = Desk(tmp_path, capsys)
    yield desk
    desk.close()


# check and show


def test_a_plan_that_holds_together_is_said_to(desk: Desk) -> None:
    file = desk.file()

    assert (0, f"{file}: 3 tasks in 2 waves, nothing is wrong\n") == ((done := desk("check", file)).code, done.out)


def test_everything_that_is_wrong_is_said_by_file_and_line_with_exit_code_2(desk: Desk) -> None:
    file = desk.file("## Wave 1\n### Task 1: a\n### Task 1: b\n## Wave 2\n")
    done = desk("check", file)

    assert 2 == done.code
    assert [f"{file}:3: there is a task '1' already, on line 2.", f"{file}:4: wave 2 has no task."] == words(done)
    assert "(and 1 more)" in done.err


def test_with_json_the_faults_are_one_object(desk: Desk) -> None:
    file = desk.file("## Wave 1\n### Task 1: a\n### Task 1: b\n")
    done = desk("check", file, "--json")

    assert 2 == done.code
    assert [{"file": file, "line": 3, "why": "there is a task '1' already, on line 2"}] == done.json["faults"]
    assert "plan" == done.json["error"]["code"]


def test_an_agent_that_is_in_no_config_is_a_fault(desk: Desk) -> None:
    done = desk("check", desk.file("**Agent:** gpt\n" + PLAN))

    assert 2 == done.code
    assert "tidy.md:1: the plan wants the agent 'gpt'" in done.out


@pytest.mark.parametrize("verb", ["check", "show", "run"])
def test_a_file_that_is_not_there_is_not_found(desk: Desk, verb: str) -> None:
    done = desk(verb, str(desk.folder / "none.md"))

    assert 3 == done.code
    assert "no plan is called" in done.err


def test_a_plan_is_drawn(desk: Desk) -> None:
    assert [
        "Tidy: 3 tasks in 2 waves",
        "goal: less",
        "  wave 1",
        "● 1 sweep",
        "● 2 dust",
        "  wave 2",
        "● 3 polish",
    ] == [line.rstrip() for line in words(desk("show", desk.file()))]
    assert "● 3 polish" == words(desk("show", desk.file(), "--wave", "2"))[-1].rstrip()
    assert 4 == len(words(desk("show", desk.file(), "--wave", "2")))


def test_a_wave_that_is_none_is_a_usage_error(desk: Desk) -> None:
    done = desk("show", desk.file(), "--wave", "3")

    assert (2, True) == (done.code, "there is no wave 3" in done.err)


def test_escapes_in_a_plan_reach_no_terminal(desk: Desk) -> None:
    file = desk.file("# \x1b[2J\x1b]0;owned\x07\n## Wave 1\n### Task 1: \x1b[31mred\u202e\n", "evil.md")

    for verb in ("show", "check"):
        done = desk(verb, file)
        assert 0 == done.code
        assert not {"\x1b", "\x07", "\u202e"} & set(done.out)


def test_a_plan_that_runs_is_drawn_with_the_state_of_its_tasks(desk: Desk) -> None:
    book = desk.agreed(*done("1"), *failed("2", why="it broke"))

    said = words(desk("show", book.plan))

    assert "● 1 sweep  [scripted] done" in said
    assert "● 2 dust  [scripted] failed: it broke" in said
    assert "● 3 polish  [scripted] waiting: waits for wave 1" in said
    assert ["tidy: running", "asks: task 2 failed: retry, replace, skip, or abort"] == list(said[-2:])


def test_a_claim_with_nothing_changed_is_drawn_as_one(desk: Desk) -> None:
    book = desk.agreed(*done("1"), began("2"), claimed("2", changed=0, text="all dusted"))

    said = desk("show", book.plan).out

    assert "claimed, nothing changed: all dusted" in said
    assert "(task 2 changed nothing)" in said


def test_for_programs_a_plan_is_one_object_with_every_task(desk: Desk) -> None:
    book = desk.agreed(began("1", name="tidy-W1-T1", workdir="/w", branch="plan/tidy"), steered("pause"))

    plan = desk.json("show", book.plan)["plan"]

    assert ("tidy", "Tidy", "less", 2, "paused", None) == tuple(
        plan[key] for key in ("id", "name", "goal", "waves", "state", "outcome")
    )
    first, second, third = plan["tasks"]
    assert ("1", 1, "sweep", 1, "running", 1, "s1", "/w", "plan/tidy") == tuple(
        first[key] for key in ("id", "number", "title", "wave", "state", "attempt", "session", "workdir", "branch")
    )
    assert ("the plan is paused", "waits for wave 1") == (second["blocked"], third["blocked"])
    assert None is desk.json("show", desk.file(name="other.md"))["plan"]["id"]


# Nothing runs unseen


def test_without_a_terminal_nothing_runs_that_nobody_agreed_to(desk: Desk) -> None:
    for more in ([], ["--ci"], ["--json"]):
        done = desk("run", desk.file(), *more)
        assert 4 == done.code
        assert "nobody agreed to what this plan runs" in done.err
    assert [] == plans(desk.places)


@pytest.mark.parametrize(
    ("typed", "said"),
    [("n\n", "nothing was run"), ("\n", "nothing was run"), ("yess\n", "nothing was run"), ("\x04", "nothing was run")],
)
def test_on_a_terminal_only_a_yes_is_one(kasmon: Line, typed: str, said: str) -> None:
    (kasmon.home / "p.toml").write_text('[[task]]\nrun = "make all"\ncheck = "make test"\n')

    code, out = kasmon.terminal("plan", "run", "p.toml", typed=[("Run this? [y/N]", typed)])

    assert 4 == code
    assert said in out
    assert "runs in the shell of task 1: make all" in out
    assert "checks task 1 by: make test" in out
    assert not kasmon.places.plans.exists()


def test_a_command_of_several_lines_is_shown_on_one_that_nothing_can_hide(desk: Desk) -> None:
    file = desk.file('[[task]]\nrun = "true\\r\\u001b[2K\\nrm -rf ~"\n', "p.toml")

    err = desk("run", file, "--json").err

    [line] = [line for line in err.splitlines() if "rm -rf ~" in line]
    assert "true" in line
    assert "\x1b" not in err


MISSING = {
    "microvm": ({}, "", ""),
    "gvisor": ({"KASMON_RUNSC": "no-runsc"}, "", ""),
    "jail": ({"PATH": "/none"}, "bubblewrap is not installed", "Install it"),
}


@pytest.mark.parametrize("verb", [["check"], ["run", "--yes"]], ids=["check", "run"])
@pytest.mark.parametrize("tier", MISSING)
def test_a_task_that_cannot_have_its_sandbox_here_is_refused_with_the_reason_and_nothing_runs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, verb: list[str], tier: str
) -> None:
    variables, why, fix = MISSING[tier]
    write_private(desk.places.config / "config.toml", b'[agents.shell]\nprogram = "/bin/sh"\n')
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    done = desk(*verb, desk.file(f'[[task]]\nrun = "x"\nsandbox = "{tier}"\n', "p.toml"))

    assert 69 == done.code
    assert f"task '1' cannot run in its sandbox: no sandbox '{tier}' can be made here: {why}" in done.err
    assert fix in done.err
    assert [] == plans(desk.places)


def test_a_profile_whose_sandbox_cannot_be_made_is_refused_likewise(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/none")
    write_private(desk.places.config / "config.toml", b'[agents.shell]\nprogram = "/bin/sh"\nsandbox = "jail"\n')

    assert 69 == desk("check", desk.file('[[task]]\nrun = "x"\n', "p.toml")).code


def test_a_command_does_not_go_on_in_a_terminal_that_is_confined_otherwise(desk: Desk) -> None:
    file = desk.file(
        '[[task]]\nid = "a"\nrun = "x"\n[[task]]\nid = "b"\nrun = "y"\ninherits = "a"\nsandbox = "jail"\n', "p.toml"
    )
    done = desk("check", file)

    assert 4 == done.code
    assert (
        "task 'b' cannot run in its sandbox: it goes on in the terminal of 'a', which is confined by nothing"
        in done.err
    )


def test_what_nobody_agreed_to_is_not_handed_to_a_task_by_itself(desk: Desk) -> None:
    write_private(
        desk.places.config / "config.toml",
        b'[agents.shell]\nprogram = "/bin/sh"\nconfined.credentials = [{ name = "T", variable = "T" }]\n',
    )
    done = desk("run", desk.file('[[task]]\nrun = "x"\nsandbox = "jail"\n', "p.toml"), "--yes")

    assert 4 == done.code
    assert "nobody has agreed to that yet" in done.err


def test_what_confines_its_tasks_is_shown_before_anybody_agrees(desk: Desk) -> None:
    done = desk("run", desk.file('[[task]]\nrun = "x"\nsandbox = "jail"\n', "p.toml"))

    assert "  confines task 1 by a sandbox 'jail'" in words(done)


def test_a_faulty_plan_does_not_run(desk: Desk) -> None:
    done = desk("run", desk.file("## Wave 2\n### Task 1: a\n"), "--yes")

    assert (2, []) == (done.code, plans(desk.places))


@pytest.mark.parametrize(
    ("more", "why"), [(["--dir", "/no/such"], "does not exist"), (["--wave", "9"], "there is no wave 9")]
)
def test_a_run_that_makes_no_sense_is_refused(desk: Desk, more: list[str], why: str) -> None:
    done = desk("run", desk.file(), "--yes", *more)

    assert (2, True, []) == (done.code, why in done.err, plans(desk.places))


def test_a_worktree_without_a_repository_is_refused_before_anything_is_begun(desk: Desk) -> None:
    done = desk("run", desk.file("**Worktree:** own\n" + PLAN), "--yes")

    assert (2, []) == (done.code, plans(desk.places))
    assert "is in no git repository. Say `git init` and commit" in done.err


# Decisions


@pytest.mark.parametrize(
    ("words_", "facts", "state"),
    [
        (("accept", "1"), (began("1"), claimed("1")), TaskState.DONE),
        (("retry", "1"), failed("1"), TaskState.WAITING),
        (("skip", "sweep"), (), TaskState.SKIPPED),
        (("skip", "1"), failed("1"), TaskState.SKIPPED),
        (("replace", "1", "--agent", "codex"), failed("1"), TaskState.WAITING),
    ],
    ids=["accept", "retry", "skip", "skip failed", "replace"],
)
def test_a_decision_on_a_task_is_noted(
    desk: Desk, words_: tuple[str, ...], facts: tuple[PlanFact, ...], state: TaskState
) -> None:
    text = PLAN if words_[1] == "1" else '[[task]]\nid = "sweep"\nprompt = "say x"\n'
    book = desk.agreed(*facts, text=text, name="tidy.md" if words_[1] == "1" else "tidy.toml")
    verb, task, *more = words_

    result = desk(verb, book.plan, task, *more)
    book.more()

    assert (0, f"{book.plan}: {verb} {task}\n") == (result.code, result.out)
    assert state is book.run.of(task).state
    assert ("codex" if verb == "replace" else "") == book.run.of(task).agent


def test_a_plan_is_paused_resumed_advanced_and_given_up(desk: Desk) -> None:
    book = desk.agreed(*done("1"), *done("2"))

    for verb in ("pause", "resume", "advance", "abort"):
        assert f"tidy: {verb}\n" == desk(verb, book.run.file).out
    book.more()

    assert ("running", 2, True) == (book.run.state, book.run.gate, book.run.is_aborted)


@pytest.mark.parametrize(
    ("words_", "code", "why"),
    [
        (("pause", "nope"), 3, "no plan is called 'nope'"),
        (("accept", "tidy", "1"), 4, "task '1' is waiting, not claimed"),
        (("retry", "tidy", "1"), 4, "task '1' has not begun"),
        (("advance", "tidy"), 4, "wave 1 is not done"),
        (("skip", "tidy", "9"), 2, "the plan has no task '9'. It has 1, 2, 3"),
        (("replace", "tidy", "1", "--agent", "gpt"), 2, "there is no agent 'gpt'"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(desk: Desk, words_: tuple[str, ...], code: int, why: str) -> None:
    book = desk.agreed()
    size = book.size()
    result = desk(*words_)

    assert (code, True) == (result.code, why in result.err), result.err
    assert size == book.size()


def test_a_plan_that_is_over_takes_no_decision(desk: Desk) -> None:
    desk.agreed(PlanEnded(at=9, outcome="failed"))

    for words_ in (("pause", "tidy"), ("skip", "tidy", "1"), ("apply", "tidy", "--yes")):
        assert 4 == (result := desk(*words_)).code
        assert "is over: failed" in result.err


# Edits


def test_a_file_that_was_not_edited_says_so(desk: Desk) -> None:
    desk.agreed()

    assert "tidy: its file says what runs\n" == desk("diff", "tidy").out
    assert {"changes": [], "refused": []}.items() <= desk.json("diff", "tidy").items()
    assert {"changes": [], "refused": []}.items() <= desk.json("apply", "tidy", "--yes").items()


def test_a_toml_plan_without_a_name_is_not_called_edited(desk: Desk) -> None:
    desk.agreed(text='[[task]]\nprompt = "say x"\n', name="sweep.toml")

    assert "sweep: its file says what runs\n" == desk("diff", "sweep").out


def test_an_edit_is_shown_and_changes_nothing_until_it_is_agreed_to(desk: Desk) -> None:
    book = desk.agreed(began("1"))
    desk.file(PLAN.replace("say shines", "say gleams") + "### Task 4: rest\nsay zzz\n")

    for verb, code in (("diff", 0), ("apply", 4)):
        result = desk(verb, "tidy")
        assert code == result.code
        assert ["~ task 3: body: 'say shines' -> 'say gleams'", "+ task 4: rest"] == list(words(result)[:2])
    assert PLAN == book.agreed.read_text()

    assert 0 == desk("apply", "tidy", "--yes").code
    assert "say gleams" in book.agreed.read_text()
    assert ["sweep", "dust", "polish", "rest"] == [task["title"] for task in desk.json("show", "tidy")["plan"]["tasks"]]


def test_an_edit_that_takes_away_what_has_begun_is_refused(desk: Desk) -> None:
    book = desk.agreed(began("2"))
    desk.file("## Wave 1\n### Task 1: sweep\nsay swept\n")

    result = desk("apply", "tidy", "--yes")

    assert 4 == result.code
    assert "task '2' has begun and is not in it any more" in result.err
    assert PLAN == book.agreed.read_text()


@pytest.mark.parametrize(("text", "code"), [("## Wave 1\n", 2), (None, 3)])
def test_a_file_that_is_faulty_or_gone_is_not_taken_over(desk: Desk, text: str | None, code: int) -> None:
    book = desk.agreed()
    if text is None:
        Path(book.run.file).unlink()
    else:
        desk.file(text)

    assert code == desk("apply", "tidy", "--yes").code
    assert 0 == desk("show", "tidy").code


# All of them


def test_plans_are_listed_by_when_they_began(desk: Desk) -> None:
    assert "No plan was run yet.\n" == desk("ls").out
    desk.agreed(*done("1"))
    desk.agreed(PlanEnded(at=1, outcome="done"), name="b.md", text=PLAN.replace("# Tidy", "# Aa"))

    assert ["tidy", "aa"] == [plan["id"] for plan in desk.json("ls")["plans"]]
    assert [f"tidy  running  1 done  {desk.folder}/tidy.md", f"aa  done  0 done  {desk.folder}/b.md"] == (
        desk("ls").out.splitlines()
    )


# Worktrees


def test_worktrees_are_removed_where_nothing_could_be_lost_and_the_others_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(desk.folder))
    repo = Repo(desk.folder)
    book = desk.agreed()
    trees = book.folder / "trees"
    private_folder(trees)
    paths = [Path(worktree.make(repo.folder, trees / name, f"plan/{name}").path) for name in ("a", "b", "c")]
    (paths[1] / "new.txt").touch()
    repo.commit("x.txt", at=paths[2])
    (trees / "foreign").mkdir()
    (trees / "foreign" / "thesis").touch()

    assert "is not over. `kasmon plan abort tidy` gives it up" in desk("clean", "tidy").err
    assert all(path.exists() for path in paths)

    book.add(PlanEnded(at=9, outcome="done"))
    result = desk("clean", "tidy")

    assert (4, f"removed {paths[0]}\n") == (result.code, result.out)
    for why in ("1 file is not committed", "1 of its commits is nowhere else", "is no worktree"):
        assert why in result.err
    assert [False, True, True] == [path.exists() for path in paths]
    assert (trees / "foreign" / "thesis").exists()


# Reports

OF = read(PLAN.replace("dust\n", "dust & <co> 🧹\n"), "p.md")
RUN = run(
    *(began("1"), claimed("1"), checked("1", True), TaskDone(at=12.5, task="1", attempt=1, why="its check passed")),
    *(began("2"), claimed("2"), checked("2", False, output="line <1>\nno & never\n")),
    TaskFailed(at=20, task="2", attempt=1, why="its check ended with 1"),
    *(began("2", 2), TaskFailed(at=21, task="2", attempt=2, why="it\x00 broke ]]>")),
    PlanEnded(at=30, outcome="failed", why="task 2 failed"),
    headless=True,
)


def test_a_report_in_words_has_a_line_for_each_task(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    report(OF, RUN, "text", "")

    assert [
        "Tidy (tidy): failed, task 2 failed",
        "    1 sweep: done, checked, 2.5 s, its check passed",
        "    2 dust & <co> 🧹: failed, 11.0 s, 2 attempts, it broke ]]>",
        "    3 polish: waiting",
    ] == capsys.readouterr().out.splitlines()


def test_a_report_for_programs_is_the_plans_object(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    report(OF, RUN, "json", "")
    plan = as_json(capsys.readouterr().out)["plan"]

    assert ("failed", ["done", "failed", "waiting"]) == (plan["outcome"], [task["state"] for task in plan["tasks"]])


def test_a_report_for_ci_is_junit_xml(desk: Desk) -> None:
    file = desk.folder / "report.xml"
    report(OF, RUN, "junit", str(file))
    top = ET.fromstring(file.read_bytes())

    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    first, second = top.findall("testsuite")
    assert ("wave 1", "2", "1", "0") == tuple(first.attrib[key] for key in ("name", "tests", "failures", "skipped"))
    assert ("wave 2", "1", "0", "1") == tuple(second.attrib[key] for key in ("name", "tests", "failures", "skipped"))
    passed, broken = first.findall("testcase")
    assert ("1 sweep", "2.500", []) == (passed.attrib["name"], passed.attrib["time"], list(passed))
    assert "2 dust & <co> 🧹" == broken.attrib["name"]
    failure = broken.find("failure")
    assert failure is not None
    assert "it broke ]]>" == failure.attrib["message"]
    assert second.find("testcase/skipped") is not None


def test_what_was_only_claimed_is_said_in_junit_too(desk: Desk) -> None:
    file = desk.folder / "report.xml"
    report(OF, run(*done("1"), PlanEnded(at=9, outcome="claimed")), "junit", str(file))

    said = ET.fromstring(file.read_bytes()).find("testsuite/testcase/system-out")
    assert said is not None
    assert "claimed by its agent, not checked: did it" == said.text
