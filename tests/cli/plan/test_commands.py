"""`kasmon plan`: look at a plan, agree to it, decide on it. No agent runs here; see `test_plan_run`."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kasmon.cli.plan.report import PlanStoppedError, report
from kasmon.model.plan.events import PlanEnded, PlanFact, TaskDone, TaskFailed
from kasmon.model.plan.parser import read
from kasmon.model.plan.progress import TaskState
from kasmon.paths import private_folder, write_private
from kasmon.store.machines import Machine, write_machine
from kasmon.store.plan_log import plans
from kasmon.supervisor.worktrees import worktree
from tests.support.cli.cli_runner import Cli
from tests.support.cli.plan_cli import PLAN, PlanCli, as_json, words
from tests.support.git_repo import Repo
from tests.support.sample_plans import began, checked, claimed, done, failed, placed, run, steered


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[PlanCli]:
    cli = PlanCli(tmp_path, capsys)
    yield cli
    cli.close()


# check and show


def test_a_valid_plan_is_reported_as_valid(cli: PlanCli) -> None:
    file = cli.file()

    assert (0, f"{file}: 3 tasks in 2 waves, no faults\n") == ((done := cli("check", file)).code, done.out)


def test_everything_that_is_wrong_is_said_by_file_and_line_or_with_json_as_one_object(cli: PlanCli) -> None:
    file = cli.file("## Wave 1\n### Task 1: a\n### Task 1: b\n## Wave 2\n")
    done = cli("check", file)
    assert 2 == done.code
    assert [f"{file}:3: task '1' is already defined on line 2.", f"{file}:4: wave 2 has no task."] == words(done)
    assert "(and 1 more)" in done.err

    file = cli.file("## Wave 1\n### Task 1: a\n### Task 1: b\n")
    done = cli("check", file, "--json")
    assert 2 == done.code
    assert [{"file": file, "line": 3, "why": "task '1' is already defined on line 2"}] == done.json["faults"]
    assert "plan" == done.json["error"]["code"]


def test_an_agent_that_is_in_no_config_is_a_fault(cli: PlanCli) -> None:
    done = cli("check", cli.file("**Agent:** gpt\n" + PLAN))

    assert 2 == done.code
    assert "tidy.md:1: the plan uses the unknown agent 'gpt'" in done.out


@pytest.mark.parametrize("verb", ["check", "show", "run"])
def test_a_missing_file_is_not_found(cli: PlanCli, verb: str) -> None:
    done = cli(verb, str(cli.folder / "none.md"))

    assert 3 == done.code
    assert "there is no plan" in done.err


def test_a_plan_is_drawn(cli: PlanCli) -> None:
    assert [
        "Tidy: 3 tasks in 2 waves",
        "goal: less",
        "  wave 1",
        "● 1 sweep",
        "● 2 dust",
        "  wave 2",
        "● 3 polish",
    ] == [line.rstrip() for line in words(cli("show", cli.file()))]
    assert "● 3 polish" == words(cli("show", cli.file(), "--wave", "2"))[-1].rstrip()
    assert 4 == len(words(cli("show", cli.file(), "--wave", "2")))


def test_an_unknown_wave_is_a_usage_error(cli: PlanCli) -> None:
    done = cli("show", cli.file(), "--wave", "3")

    assert (2, True) == (done.code, "there is no wave 3" in done.err)


def test_escapes_in_a_plan_reach_no_terminal(cli: PlanCli) -> None:
    file = cli.file("# \x1b[2J\x1b]0;owned\x07\n## Wave 1\n### Task 1: \x1b[31mred\u202e\n", "evil.md")

    for verb in ("show", "check"):
        done = cli(verb, file)
        assert 0 == done.code
        assert not {"\x1b", "\x07", "\u202e"} & set(done.out)


def test_a_plan_that_runs_is_drawn_with_the_state_of_its_tasks(cli: PlanCli) -> None:
    book = cli.agreed(*done("1"), *failed("2", why="it broke"))

    said = words(cli("show", book.plan))

    assert "● 1 sweep  [scripted] done" in said
    assert "● 2 dust  [scripted] failed: it broke" in said
    assert "● 3 polish  [scripted] waiting: blocked by wave 1" in said
    assert ["tidy: running", "asks: task 2 failed: retry, replace, skip, or abort"] == list(said[-2:])


def test_a_claim_without_changes_is_drawn_as_one(cli: PlanCli) -> None:
    book = cli.agreed(*done("1"), began("2"), claimed("2", changed=0, text="all dusted"))

    said = cli("show", book.plan).out

    assert "done?, no files changed: all dusted" in said
    assert "(task 2 changed no files)" in said


def test_for_programs_a_plan_is_one_object_with_every_task(cli: PlanCli) -> None:
    book = cli.agreed(began("1", name="tidy-W1-T1", workdir="/w", branch="plan/tidy"), steered("pause"))

    plan = cli.json("show", book.plan)["plan"]

    assert ("tidy", "Tidy", "less", 2, "paused", None) == tuple(
        plan[key] for key in ("id", "name", "goal", "waves", "state", "outcome")
    )
    first, second, third = plan["tasks"]
    assert ("1", 1, "sweep", 1, "running", 1, "s1", "/w", "plan/tidy") == tuple(
        first[key] for key in ("id", "number", "title", "wave", "state", "attempt", "session", "workdir", "branch")
    )
    assert ("the plan is paused", "blocked by wave 1") == (second["blocked"], third["blocked"])
    assert None is cli.json("show", cli.file(name="other.md"))["plan"]["id"]


def test_a_plan_shows_the_command_that_ran_and_not_that_of_its_current_config(cli: PlanCli) -> None:
    ran = began("1", agent="claude", mode="tmux", sandbox="jail", argv=("claude", "-x"), name="tidy-W1-T1")
    book = cli.agreed(
        ran,
        claimed("1"),
        checked("1", False, output="no\n"),
        began("2", agent="claude"),
        steered("replace", "2", "codex"),
    )

    first, second, third = cli.json("show", book.plan)["plan"]["tasks"]

    assert ("claude", "tmux", "jail", ["claude", "-x"], "tidy-W1-T1") == tuple(
        first[key] for key in ("agent", "mode", "sandbox", "argv", "session_name")
    )
    assert (False, 1, "no\n") == tuple(first["check_result"][key] for key in ("ok", "exit_code", "output"))
    assert ("codex", "scripted") == (second["agent"], third["agent"])
    assert "● 1 sweep  [claude] done?: did it" in words(cli("show", book.plan))


@pytest.mark.parametrize("name", ["plan.toml", "plan.md"])
def test_init_writes_an_example_that_check_accepts_and_overwrites_nothing(cli: PlanCli, name: str) -> None:
    file = str(cli.folder / name)

    assert 0 == cli("init", file).code
    assert (0, "3 tasks in 2 waves, no faults") == ((done := cli("check", file)).code, done.out.strip()[-29:])
    text = Path(file).read_text()
    again = cli("init", file)
    assert (4, True, text) == (again.code, "already exists" in again.err, Path(file).read_text())
    assert 2 == cli("init", str(cli.folder / "plan.txt")).code


def test_warnings_are_shown_by_check_and_before_the_consent(cli: PlanCli) -> None:
    file = cli.file(PLAN.replace("say swept", "**Note:** say swept"))
    why = (
        "'**Note:**' is not a field of a task and is read as its text; the fields are Check, Agent, "
        "Machine, Labels, Accounts, Needs, Worktree, Base"
    )

    done = cli("check", file)
    assert (0, f"warning: {file}:7: {why}.") == (done.code, words(done)[0])
    assert [{"file": file, "line": 7, "why": why}] == cli.json("check", file)["warnings"]
    assert f"  warning: {file}:7: {why}." in words(cli("run", file))


def test_the_machine_of_each_task_is_shown_before_the_plan_runs(cli: PlanCli) -> None:
    write_machine(cli.paths, Machine(name="gpu-1", drained=True))
    file = cli.file(PLAN.replace("say swept", "**Machine:** local\nsay swept"))
    folder = str(Repo(cli.folder / "repo").folder)

    checked = cli.json("check", file, "--on", "gpu-1", "--dir", folder)
    shown = words(cli("run", file, "--on", "label:gpu", "--dir", folder))

    assert [None, "gpu-1", "gpu-1"] == [each["machine"] for each in checked["plan"]["tasks"]]
    drained = {"machine": None, "why": "gpu-1: it is drained"}
    assert {"2": drained, "3": drained} == checked["machines"]
    assert "task 2: no machine now (gpu-1: it is drained)" in words(
        cli("check", file, "--on", "gpu-1", "--dir", folder)
    )
    assert "  starts 'scripted', as the config of its machine has it, for tasks 2, 3" in shown
    assert (
        "  runs tasks 2, 3 on any machine with gpu: on none now (gpu-1: it is drained; local: it has no label 'gpu')"
        in shown
    )
    assert "names no label" in cli("run", file, "--on", "label:").err
    assert {} == cli.json("check", file)["machines"]


def test_the_machine_of_each_task_is_shown_while_it_runs(cli: PlanCli) -> None:
    facts = (placed("1", machine="gpu-1"), *done("1"), placed("2", machine="", why="gpu-1: it is drained"))
    book = cli.agreed(*facts, text=PLAN, on="any")

    said, tasks = words(cli("show", book.plan)), cli.json("show", book.plan)["plan"]["tasks"]

    assert "● 1 sweep  [scripted] on gpu-1 done" in said
    assert "● 2 dust  [scripted] on any machine waiting: gpu-1: it is drained" in said
    assert ["gpu-1", None, None] == [each["machine"] for each in tasks]
    report(read(PLAN, "p.md"), book.run, "text", out := str(cli.folder / "report"))
    assert "sweep: done, on gpu-1, not checked" in Path(out).read_text()


# Nothing runs unseen


def test_without_a_terminal_nothing_runs_without_consent(cli: PlanCli) -> None:
    for more in ([], ["--ci"], ["--json"]):
        done = cli("run", cli.file(), *more)
        assert 4 == done.code
        assert "the plan was not confirmed: there is no terminal to ask on" in done.err
    assert [] == plans(cli.paths)


@pytest.mark.parametrize(
    ("typed", "said"),
    [("n\n", "nothing was run"), ("\n", "nothing was run"), ("yess\n", "nothing was run"), ("\x04", "nothing was run")],
)
def test_on_a_terminal_only_a_yes_is_one(kasmon: Cli, typed: str, said: str) -> None:
    (kasmon.home / "p.toml").write_text('[[task]]\nrun = "make all"\ncheck = "make test"\n')

    code, out = kasmon.terminal("plan", "run", "p.toml", typed=[("Run this? [y/N]", typed)])

    assert 4 == code
    assert said in out
    assert "runs in the shell of task 1: make all" in out
    assert "checks task 1 by: make test" in out
    assert not kasmon.paths.plans.exists()


def test_a_command_of_several_lines_is_shown_on_one_line_without_hidden_parts(cli: PlanCli) -> None:
    file = cli.file('[[task]]\nrun = "true\\r\\u001b[2K\\nrm -rf ~"\n', "p.toml")

    err = cli("run", file, "--json").err

    [line] = [line for line in err.splitlines() if "rm -rf ~" in line]
    assert "true" in line
    assert "\x1b" not in err


MISSING = {"microvm": ({}, "", ""), "jail": ({"PATH": "/none"}, "bubblewrap is not installed", "Install it")}


@pytest.mark.parametrize("verb", [["check"], ["run", "--yes"]], ids=["check", "run"])
@pytest.mark.parametrize("tier", MISSING)
def test_a_task_that_cannot_have_its_sandbox_here_is_refused_with_the_reason_and_nothing_runs(
    cli: PlanCli, monkeypatch: pytest.MonkeyPatch, verb: list[str], tier: str
) -> None:
    variables, why, fix = MISSING[tier]
    write_private(cli.paths.config / "config.toml", b'[agents.shell]\nprogram = "/bin/sh"\n')
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    done = cli(*verb, cli.file(f'[[task]]\nrun = "x"\nsandbox = "{tier}"\n', "p.toml"))

    assert 69 == done.code
    assert f"task '1' cannot run in its sandbox: sandbox '{tier}' is unavailable here: {why}" in done.err
    assert fix in done.err
    assert [] == plans(cli.paths)


def test_a_profile_whose_sandbox_is_unavailable_is_refused_too(cli: PlanCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    write_private(cli.paths.config / "config.toml", b'[agents.shell]\nprogram = "/bin/sh"\nsandbox = "jail"\n')

    assert 69 == cli("check", cli.file('[[task]]\nrun = "x"\n', "p.toml")).code


def test_a_command_does_not_continue_in_a_terminal_with_another_sandbox(cli: PlanCli) -> None:
    file = cli.file(
        '[[task]]\nid = "a"\nrun = "x"\n[[task]]\nid = "b"\nrun = "y"\ninherits = "a"\nsandbox = "jail"\n', "p.toml"
    )
    done = cli("check", file)

    assert 4 == done.code
    assert "task 'b' cannot run in its sandbox: it inherits the terminal of 'a', whose sandbox is none" in done.err


def test_a_credential_without_consent_is_not_passed_to_a_task(cli: PlanCli) -> None:
    write_private(
        cli.paths.config / "config.toml",
        b'[agents.shell]\nprogram = "/bin/sh"\nconfined.credentials = [{ name = "T", variable = "T" }]\n',
    )
    done = cli("run", cli.file('[[task]]\nrun = "x"\nsandbox = "jail"\n', "p.toml"), "--yes")

    assert 4 == done.code
    assert "has not been confirmed yet" in done.err


def test_what_confines_its_tasks_is_shown_before_anybody_agrees_and_a_faulty_plan_does_not_run(cli: PlanCli) -> None:
    done = cli("run", cli.file('[[task]]\nrun = "x"\nsandbox = "jail"\n', "p.toml"))
    assert "  confines task 1 by a sandbox 'jail'" in words(done)

    done = cli("run", cli.file("## Wave 2\n### Task 1: a\n"), "--yes")
    assert (2, []) == (done.code, plans(cli.paths))


@pytest.mark.parametrize(
    ("more", "why"), [(["--dir", "/no/such"], "does not exist"), (["--wave", "9"], "there is no wave 9")]
)
def test_an_invalid_run_is_refused(cli: PlanCli, more: list[str], why: str) -> None:
    done = cli("run", cli.file(), "--yes", *more)

    assert (2, True, []) == (done.code, why in done.err, plans(cli.paths))


def test_a_worktree_without_a_repository_is_refused_before_the_start(cli: PlanCli) -> None:
    done = cli("run", cli.file("**Worktree:** own\n" + PLAN), "--yes")

    assert (2, []) == (done.code, plans(cli.paths))
    assert "is not in a git repository. Run `git init` and commit" in done.err


@pytest.mark.parametrize(
    ("repository", "code", "why"),
    [
        (lambda folder: None, 2, "is not in a git repository"),
        (lambda folder: Repo(folder, commits=0), 69, "has no commit yet"),
        (lambda folder: Repo(folder).git("branch", "plan/tidy.1"), 4, "the branch 'plan/tidy.1' already exists"),
        (lambda folder: Repo(folder).git("branch", "plan/tidy"), 0, ""),
    ],
    ids=["no repository", "no commit", "a branch", "none"],
)
def test_check_refuses_what_run_refuses(
    cli: PlanCli, repository: Callable[[Path], object], code: int, why: str
) -> None:
    repository(cli.folder)
    file = cli.file("**Worktree:** own\n" + PLAN)
    check, run_ = cli("check", file), cli("run", file)

    assert (code, True) == (check.code, why in check.err), check
    assert (code or 4, True) == (run_.code, (why or "was not confirmed") in run_.err), run_
    if code:
        assert check.err == run_.err


def test_check_names_the_files_that_the_worktrees_will_not_have(cli: PlanCli) -> None:
    Repo(cli.folder)
    file = cli.file("**Worktree:** own\n" + PLAN)

    assert "is not committed and will be missing from the worktrees" in cli("check", file).out
    [remark] = cli.json("check", file)["remarks"]
    assert "is not committed and will be missing from the worktrees" in remark


def test_check_looks_at_the_folder_in_which_the_plan_would_run(cli: PlanCli) -> None:
    file = cli.file("**Worktree:** own\n" + PLAN)
    Repo(cli.folder / "there")

    assert [2, 0, 2] == [
        cli("check", file, *more).code for more in ((), ("--dir", str(cli.folder / "there")), ("--dir", "/no"))
    ]


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
def test_a_decision_on_a_task_is_logged(
    cli: PlanCli, words_: tuple[str, ...], facts: tuple[PlanFact, ...], state: TaskState
) -> None:
    text = PLAN if words_[1] == "1" else '[[task]]\nid = "sweep"\nprompt = "say x"\n'
    book = cli.agreed(*facts, text=text, name="tidy.md" if words_[1] == "1" else "tidy.toml")
    verb, task, *more = words_

    result = cli(verb, book.plan, task, *more)
    book.more()

    assert (0, f"{book.plan}: {verb} {task}\n") == (result.code, result.out)
    assert state is book.run.of(task).state
    assert ("codex" if verb == "replace" else "") == book.run.of(task).agent


def test_a_plan_is_paused_resumed_advanced_and_aborted(cli: PlanCli) -> None:
    book = cli.agreed(*done("1"), *done("2"))

    for verb in ("pause", "resume", "advance", "abort"):
        assert f"tidy: {verb}\n" == cli(verb, book.run.file).out
    book.more()

    assert ("running", 2, True) == (book.run.state, book.run.gate, book.run.is_aborted)


@pytest.mark.parametrize(
    ("words_", "code", "why"),
    [
        (("pause", "nope"), 3, "there is no plan 'nope'"),
        (("accept", "tidy", "1"), 4, "task '1' is waiting, not reported as done"),
        (("retry", "tidy", "1"), 4, "task '1' has not started"),
        (("advance", "tidy"), 4, "wave 1 is not done"),
        (("skip", "tidy", "9"), 2, "the plan has no task '9'. Its tasks: 1, 2, 3"),
        (("replace", "tidy", "1", "--agent", "gpt"), 2, "there is no agent 'gpt'"),
    ],
)
def test_an_invalid_decision_is_refused(cli: PlanCli, words_: tuple[str, ...], code: int, why: str) -> None:
    book = cli.agreed()
    size = book.size()
    result = cli(*words_)

    assert (code, True) == (result.code, why in result.err), result.err
    assert size == book.size()


def test_an_ended_plan_accepts_no_decision(cli: PlanCli) -> None:
    cli.agreed(PlanEnded(at=9, outcome="failed"))

    for words_ in (("pause", "tidy"), ("skip", "tidy", "1"), ("apply", "tidy", "--yes")):
        assert 4 == (result := cli(*words_)).code
        assert "has ended: failed" in result.err


# Edits


def test_an_unedited_file_is_reported(cli: PlanCli) -> None:
    cli.agreed()

    assert "tidy: its file does not differ from the running plan\n" == cli("diff", "tidy").out
    assert {"changes": [], "refused": []}.items() <= cli.json("diff", "tidy").items()
    assert {"changes": [], "refused": []}.items() <= cli.json("apply", "tidy", "--yes").items()


def test_a_toml_plan_without_a_name_is_not_reported_as_edited(cli: PlanCli) -> None:
    cli.agreed(text='[[task]]\nprompt = "say x"\n', name="sweep.toml")

    assert "sweep: its file does not differ from the running plan\n" == cli("diff", "sweep").out


def test_an_edit_is_shown_and_changes_nothing_before_the_consent(cli: PlanCli) -> None:
    book = cli.agreed(began("1"))
    cli.file(PLAN.replace("say swept", "say other"))
    refused = cli("apply", "tidy", "--yes")
    assert (4, True) == (refused.code, "task '1' has started, so its body cannot be changed" in refused.err)
    cli.file(PLAN.replace("say shines", "say gleams") + "### Task 4: rest\nsay zzz\n")

    for verb, code in (("diff", 0), ("apply", 4)):
        result = cli(verb, "tidy")
        assert code == result.code
        assert ["~ task 3: body: 'say shines' -> 'say gleams'", "+ task 4: rest"] == list(words(result)[:2])
    assert PLAN == book.agreed.read_text()

    assert 0 == cli("apply", "tidy", "--yes").code
    assert "say gleams" in book.agreed.read_text()
    assert ["sweep", "dust", "polish", "rest"] == [task["title"] for task in cli.json("show", "tidy")["plan"]["tasks"]]


def test_an_edit_that_removes_a_started_task_is_refused(cli: PlanCli) -> None:
    book = cli.agreed(began("2"))
    cli.file("## Wave 1\n### Task 1: sweep\nsay swept\n")

    result = cli("apply", "tidy", "--yes")

    assert 4 == result.code
    assert "task '2' has started, but the file no longer contains it" in result.err
    assert PLAN == book.agreed.read_text()


@pytest.mark.parametrize(("text", "code"), [("## Wave 1\n", 2), (None, 3)])
def test_a_faulty_or_missing_file_is_not_applied(cli: PlanCli, text: str | None, code: int) -> None:
    book = cli.agreed()
    if text is None:
        Path(book.run.file).unlink()
    else:
        cli.file(text)

    assert code == cli("apply", "tidy", "--yes").code
    assert 0 == cli("show", "tidy").code


# All of them


def test_plans_are_listed_by_their_start(cli: PlanCli) -> None:
    assert "No plan has been run yet.\n" == cli("ls").out
    cli.agreed(*done("1"))
    cli.agreed(PlanEnded(at=1, outcome="done"), name="b.md", text=PLAN.replace("# Tidy", "# Aa"))

    assert ["tidy", "aa"] == [plan["id"] for plan in cli.json("ls")["plans"]]
    assert [f"tidy  running  1/3 done  {cli.folder}/tidy.md", f"aa  done  0/3 done  {cli.folder}/b.md"] == (
        cli("ls").out.splitlines()
    )


# Worktrees


def test_worktrees_without_unsaved_work_are_removed_and_the_others_named(
    cli: PlanCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(cli.folder))
    repo = Repo(cli.folder)
    book = cli.agreed()
    trees = book.folder / "trees"
    private_folder(trees)
    worktrees = [Path(worktree.create(repo.folder, trees / name, f"plan/{name}").path) for name in ("a", "b", "c")]
    (worktrees[1] / "new.txt").touch()
    repo.commit("x.txt", at=worktrees[2])
    (trees / "foreign").mkdir()
    (trees / "foreign" / "thesis").touch()

    assert "has not ended. `kasmon plan abort tidy` aborts it" in cli("clean", "tidy").err
    assert all(path.exists() for path in worktrees)

    book.add(PlanEnded(at=9, outcome="done"))
    result = cli("clean", "tidy")

    assert (4, f"removed {worktrees[0]}\n") == (result.code, result.out)
    for why in ("1 file is not committed", "1 of its commits is nowhere else", "is not a worktree"):
        assert why in result.err
    assert [False, True, True] == [path.exists() for path in worktrees]
    assert (trees / "foreign" / "thesis").exists()


def test_ignored_files_are_listed_before_a_worktree_is_removed_and_keep_it_unless_a_pattern_matches(
    cli: PlanCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(cli.folder))
    repo = Repo(cli.folder)
    repo.commit(".gitignore", ".env\nbuild/\n")
    book = cli.agreed(PlanEnded(at=9, outcome="done"))
    tree = Path(worktree.create(repo.folder, book.folder / "trees" / "shared", "plan/tidy").path)
    (tree / "build").mkdir()
    built = [f"build/{number:02}.o" for number in range(30)]
    for name in (".env", *built):
        (tree / name).touch()
    listed = f"{tree}: git ignores 31 files: '.env', 'build/' (30 files)\n"
    matches = "".join(f"{tree}: `--ignored` matches {name!r}\n" for name in built)

    kept = cli("clean", "tidy", "--ignored", "build/")
    assert (4, listed + matches) == (kept.code, kept.out)
    assert "was not removed: git ignores 1 file: '.env'" in kept.err
    assert "`--ignored PATTERN`" in kept.err
    assert (tree / built[0]).exists()

    as_object = as_json(cli("clean", "tidy", "--json").out.splitlines()[0])
    assert {str(tree): [".env", *built]} == as_object["ignored"]
    assert [] == as_object["removed"]

    gone = cli("clean", "tidy", "--ignored", "build/", "--ignored", ".env")
    matches = f"{tree}: `--ignored` matches '.env'\n{matches}"
    assert (0, f"{listed}{matches}removed {tree}\n") == (gone.code, gone.out)
    assert not tree.exists()


# Reports

OF = read(PLAN.replace("dust\n", "dust & <co> 🧹\n"), "p.md")
RUN = run(
    *(began("1"), claimed("1"), checked("1", True), TaskDone(at=12.5, task="1", attempt=1, why="its check passed")),
    *(began("2"), claimed("2"), checked("2", False, output="line <1>\nno & never\n")),
    TaskFailed(at=20, task="2", attempt=1, why="check failed (exit 1"),
    *(began("2", 2), TaskFailed(at=21, task="2", attempt=2, why="it\x00 broke ]]>")),
    PlanEnded(at=30, outcome="failed", why="task 2 failed"),
    headless=True,
)


def test_a_text_report_has_a_line_for_each_task(cli: PlanCli, capsys: pytest.CaptureFixture[str]) -> None:
    report(OF, RUN, "text", "")

    assert [
        "Tidy (tidy): failed, task 2 failed",
        "    1 sweep: done, checked, 2.5 s, its check passed",
        "    2 dust & <co> 🧹: failed, 11.0 s, 2 attempts, it broke ]]>",
        "    3 polish: waiting",
    ] == capsys.readouterr().out.splitlines()


def test_a_json_report_is_the_plans_object(cli: PlanCli, capsys: pytest.CaptureFixture[str]) -> None:
    report(OF, RUN, "json", "")
    plan = as_json(capsys.readouterr().out)["plan"]

    assert ("failed", ["done", "failed", "waiting"]) == (plan["outcome"], [task["state"] for task in plan["tasks"]])


def test_a_report_for_ci_is_junit_xml(cli: PlanCli) -> None:
    file = cli.folder / "report.xml"
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


def test_a_plan_shows_the_branch_the_base_and_the_check_of_each_task(cli: PlanCli) -> None:
    tree: dict[str, Any] = {"workdir": "/w", "branch": "plan/tidy.1-a", "base": "0123456789abcdef"}
    cli.agreed(began("1", **tree), claimed("1"), checked("1", True), TaskDone(at=30, task="1", attempt=1, why="ok"))

    assert "done, on plan/tidy.1-a from 0123456789ab, check passed" in cli("show", "tidy").out
    first = cli("show", "tidy", "--json").json["plan"]["tasks"][0]
    assert (tree["branch"], tree["base"]) == (first["branch"], first["base"])


STOPPED = run(*done("1"), began("2"), steered("stop"), headless=True)


def test_the_report_of_a_stopped_plan_names_the_tasks_that_did_not_run(
    cli: PlanCli, capsys: pytest.CaptureFixture[str]
) -> None:
    error = PlanStoppedError("plan 'tidy' was stopped by SIGINT.", hint="Resume it.")
    for form in ("text", "json", "junit"):
        report(OF, STOPPED, form, f"{cli.folder}/report.{form}", error)
    text, json, junit = ((cli.folder / f"report.{form}").read_text() for form in ("text", "json", "junit"))

    assert "Tidy (tidy): stopped" == text.splitlines()[0]
    assert ["stopped while running", "did not run"] == [line.partition(": ")[2] for line in text.splitlines()[2:]]
    assert (True, "interrupted") == (as_json(json)["plan"]["stopped"], as_json(json)["error"]["code"])
    skipped = [each.attrib["message"] for each in ET.fromstring(junit).iter("skipped")]
    assert ["stopped while running", "did not run"] == skipped


def test_a_claimed_task_is_marked_in_junit_too(cli: PlanCli) -> None:
    file = cli.folder / "report.xml"
    report(OF, run(*done("1"), PlanEnded(at=9, outcome="claimed")), "junit", str(file))

    said = ET.fromstring(file.read_bytes()).find("testsuite/testcase/system-out")
    assert said is not None
    assert "reported as done by its agent, not checked: did it" == said.text
