"""One command after the clone: the Makefile, the script of the checks, and the lock file.

`make` and `.ci/run` are the real ones, in a folder of their own where the programs that they would start are small
scripts that note how they were called.
"""

import os
import pty
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent

TOOLS = (
    "bash",
    "cat",
    "cp",
    "dirname",
    "env",
    "find",
    "grep",
    "make",
    "mkdir",
    "mktemp",
    "rm",
    "sed",
    "sh",
    "sort",
    "touch",
)

SANDBOXES = "python -P -m pytest -o cache_dir=.cache/sandboxes-pytest -n 3 -m sandboxes"

NOTES = 'echo "$(basename "$0") $*" >>"$CALLS"'

PYTHON = """
case "$*" in
*"-c import sys, ensurepip"*) {has_ensurepip} ;;
*"-c import sys, venv"*) {is_new_enough} ;;
*"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
esac
"""


class Clone:
    """A fresh clone on a machine that has only the programs of `program`, and notes the calls of these."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.bin, self.calls_file = folder / "tree", folder / "bin", folder / "calls"
        self.bin.mkdir(parents=True)
        (self.tree / ".ci").mkdir(parents=True)
        (self.tree / "tests").mkdir()
        for name in ("Makefile", "pyproject.toml", "requirements.lock", ".ci/run"):
            shutil.copy(ROOT / name, self.tree / name)
        for tool in (*TOOLS, "basename"):
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)
        self.environ = {"PATH": str(self.bin), "HOME": str(folder), "CALLS": str(self.calls_file)}

    def program(self, name: str, body: str = "") -> None:
        """Put a program on PATH (a name with a slash: into the tree) that notes its calls and then does *body*."""
        file = self.tree / name if "/" in name else self.bin / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(f"#!/bin/sh\n{NOTES}\n{body}\n")
        file.chmod(0o755)

    def python(self, name: str, *, is_new_enough: bool = True, has_ensurepip: str = "true") -> None:
        """A Python; *has_ensurepip* is a shell command that tells."""
        new = "true" if is_new_enough else "false"
        self.program(name, PYTHON.format(is_new_enough=new, has_ensurepip=f"{new} && {has_ensurepip}"))

    def ready(self) -> None:
        """As after a first `make`: the environment is there."""
        self.program(".venv/bin/python")
        self.program(".venv/bin/kasmon")
        (self.tree / ".venv" / ".ready").touch()

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=self.tree, env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_make_run_without_a_terminal_runs_the_demo_for_five_seconds_and_succeeds(clone: Clone) -> None:
    clone.ready()
    clone.program("tmux")

    assert 0 == clone.run("make", "run").returncode
    assert ["kasmon demo --headless 5"] == clone.calls


def test_make_run_on_a_terminal_opens_the_demo(clone: Clone) -> None:
    clone.ready()
    clone.program("tmux")
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            ["make", "run"], cwd=clone.tree, env=clone.environ, stdin=theirs, stdout=theirs, stderr=theirs, check=True
        )
    finally:
        os.close(theirs)
        os.close(ours)

    assert ["kasmon demo"] == clone.calls


def test_root_gets_the_tmux_that_is_missing(clone: Clone) -> None:
    clone.ready()
    clone.program("id", "echo 0")
    clone.program("apt-get")

    assert 0 == clone.run("make", "run").returncode
    assert ["id -u", "apt-get update -qq", "apt-get install -y tmux", "kasmon demo --headless 5"] == clone.calls


def test_the_lists_of_packages_are_fetched_once_an_hour(clone: Clone) -> None:
    clone.ready()
    clone.program("id", "echo 0")
    clone.program("apt-get")
    clone.run("make", "shells")
    clone.run("make", "tmux")
    updated = clone.tree / ".cache" / "apt-updated"
    got = ["apt-get install -y zsh", "apt-get install -y fish", "apt-get install -y tmux"]
    assert ["apt-get update -qq", *got] == [call for call in clone.calls if call.startswith("apt-get")]

    os.utime(updated, (0, 0))
    clone.run("make", "tmux")
    assert 2 == clone.calls.count("apt-get update -qq")


@pytest.mark.parametrize(
    ("manager", "line"),
    [("apt-get", "apt-get install -y tmux"), ("dnf", "dnf install -y tmux"), ("pacman", "pacman -S --noconfirm tmux")],
)
def test_if_sudo_needs_a_password_one_line_shows_what_to_type_and_the_demo_continues(
    clone: Clone, manager: str, line: str
) -> None:
    clone.ready()
    clone.program("id", "echo 1000")
    clone.program("sudo", "exit 1")
    clone.program(manager)

    said = clone.run("make", "run")

    assert 0 == said.returncode
    assert [f"tmux is missing: live terminals need it (sudo {line}); structured sessions work without."] == (
        said.stdout.splitlines()
    )
    assert ["id -u", "sudo -n true", "kasmon demo --headless 5"] == clone.calls


def test_brew_gets_tmux_without_sudo(clone: Clone) -> None:
    clone.ready()
    clone.program("brew")

    assert 0 == clone.run("make", "run").returncode
    assert ["brew install tmux", "kasmon demo --headless 5"] == clone.calls


def test_root_gets_an_sshd_for_the_tests_only_on_request(clone: Clone) -> None:
    clone.ready()
    clone.program("id", "echo 0")
    clone.program("tmux")
    clone.program("apt-get")
    clone.environ["SBIN"] = ""
    clone.run("make", "test")
    assert not [call for call in clone.calls if "openssh" in call]

    assert 0 == clone.run("make", "sshd").returncode
    assert "apt-get install -y openssh-server" in clone.calls


def test_root_gets_the_packages_of_sandboxes_and_the_tests_also_run_without(clone: Clone) -> None:
    clone.ready()
    clone.program("id", "echo 0")
    clone.program("uname", "echo Linux")
    clone.program("tmux")
    clone.program("node")
    clone.program("apt-get", '[ "$*" != "install -y git" ]')

    said = clone.run("make", "test-sandboxes")

    assert 0 == said.returncode
    got = [call for call in clone.calls if call.startswith("apt-get install") and "python3" not in call]
    others = ["git", "qemu-system-x86", "qemu-utils", "e2fsprogs", "lz4"]
    named = {call.removeprefix("apt-get install -y ") for call in got}
    assert {"bubblewrap", *others} >= named >= {"bubblewrap", *others[:3]}
    assert "python -P -m tests.support.sandbox.machine_image" in clone.calls
    assert "git is missing: the tests of sandboxes need it (apt-get install -y git)." in said.stdout.splitlines()
    assert SANDBOXES == clone.calls[-1]


def test_a_system_without_jails_gets_nothing_for_them(clone: Clone) -> None:
    clone.ready()
    clone.program("uname", "echo Darwin")
    clone.program("tmux")
    clone.program("brew")

    assert 0 == clone.run("make", "test-sandboxes").returncode
    assert {"uname", SANDBOXES} == {call.strip() for call in clone.calls}


def test_where_the_checks_run_jails_must_be_made(clone: Clone) -> None:
    clone.program("make", 'echo "jails: $KASMON_REQUIRE_SANDBOXES" >>"$CALLS"')

    assert 0 == clone.run("bash", ".ci/run").returncode
    calls = clone.calls
    agents, sandboxes = calls.index("make test-agents-short"), calls.index("make test-sandboxes-short")
    assert ["jails: jail", "jails: jail"] == [calls[agents + 1], calls[sandboxes + 1]]


def test_if_the_checks_run_a_browser_must_be_able_to_open_the_web_view(clone: Clone) -> None:
    clone.program("make", 'echo "web: $KASMON_REQUIRE_WEB" >>"$CALLS"')

    assert 0 == clone.run("bash", ".ci/run").returncode
    assert ["make test-web", "web: 1"] == clone.calls[-2:]


def test_root_gets_a_missing_browser_and_other_users_no_second_one(clone: Clone) -> None:
    clone.ready()
    clone.program("id", "echo 0")
    clone.program("tmux")
    clone.program("apt-get")
    kind = "web"  # make searches the tests for it
    (clone.tree / "tests" / "test_page.py").write_text(f"pytestmark = pytest.mark.{kind}\n")

    assert 0 == clone.run("make", "test-web").returncode
    assert ["apt-get install -y chromium", "python -P -m pytest -m web tests/test_page.py"] == clone.calls[-2:]
    clone.program("google-chrome")
    clone.run("make", "browser")
    assert 1 == len([call for call in clone.calls if "chromium" in call])


def test_the_environment_is_made_from_the_lock_by_the_first_python_that_is_new_enough(clone: Clone) -> None:
    clone.python("python3.11", is_new_enough=False)
    clone.python("python3.12")

    assert 0 == clone.run("make", ".venv/.ready").returncode
    assert "python3.12 -m venv --clear .venv" in clone.calls
    assert [
        "python -P -m pip install --quiet --disable-pip-version-check --requirement requirements.lock",
        "python -P -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .",
        "python -P -m compileall -q kasmon",
    ] == clone.calls[-3:]


def test_the_second_time_nothing_is_made(clone: Clone) -> None:
    clone.python("python3")
    clone.run("make", ".venv/.ready")
    made = clone.calls

    assert 0 == clone.run("make", ".venv/.ready").returncode
    assert made == clone.calls


def test_an_environment_whose_python_is_gone_is_made_again(clone: Clone) -> None:
    clone.python("python3")
    clone.run("make", ".venv/.ready")
    (clone.tree / ".venv" / "bin" / "python").unlink()

    assert 0 == clone.run("make", ".venv/.ready").returncode
    assert 2 == clone.calls.count("python3 -m venv --clear .venv")


def test_root_gets_the_venv_that_debian_packs_apart(clone: Clone) -> None:
    clone.python("python3", has_ensurepip='[ -e "$CALLS-installed" ]')
    clone.program("id", "echo 0")
    clone.program("apt-get", 'if [ "$1" = install ]; then touch "$CALLS-installed"; fi')

    assert 0 == clone.run("make", ".venv/.ready").returncode
    assert "apt-get install -y python3-venv" in clone.calls
    assert "python3 -m venv --clear .venv" in clone.calls


def test_without_a_suitable_python_nothing_is_installed_and_a_sentence_names_the_required_one(clone: Clone) -> None:
    clone.python("python3")
    clone.python("old-python", is_new_enough=False)
    clone.environ["KASMON_PYTHON"] = "old-python"
    clone.program("id", "echo 0")
    clone.program("apt-get")

    said = clone.run("make", ".venv/.ready")

    assert 0 != said.returncode
    assert "kasmon needs Python 3.11 or newer with venv; set KASMON_PYTHON to one." in said.stderr.splitlines()
    assert [] == [call for call in clone.calls if call.startswith("apt-get")]


def test_the_checks_run_before_every_kind_of_test(clone: Clone) -> None:
    clone.program("make")

    assert 0 == clone.run("bash", ".ci/run").returncode
    calls = [call for call in clone.calls if call != "make agents"]
    assert [
        "make .venv/.ready", "make sshd", "make old-nats-server", "make jail", "make check", "make test-install-short",
        "make test", "make test-stories", "make chaos CHAOS_S=60", "make test-agents-short", "make test-states",
        "make test-sandboxes-short", "make test-web",
    ] == calls  # fmt: skip


def test_agents_that_cannot_be_installed_end_the_checks_before_the_tests(clone: Clone) -> None:
    clone.program("make", 'if [ "$1" = agents ]; then echo "no npm"; exit 1; fi')

    done = clone.run("bash", ".ci/run")

    assert (1, "no npm") == (done.returncode, done.stdout.strip())
    assert "make agents" in clone.calls[4:]
    assert "make test" not in clone.calls


def test_the_nightly_workflow_runs_targets_that_exist() -> None:
    workflow, makefile = ((ROOT / name).read_text() for name in (".github/workflows/nightly.yml", "Makefile"))
    [matrix] = re.findall(r"target: \[(.*)\]", workflow)
    targets = [each.strip(' "').split()[0] for each in matrix.split(",")]
    [nightly] = re.findall(r"^NIGHTLY = (.*)", makefile, re.MULTILINE)

    assert sorted([*nightly.split(), "test-states", "test-web"]) == sorted(targets)
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_workflow_of_changes_runs_targets_that_exist() -> None:
    workflow, makefile = ((ROOT / name).read_text() for name in (".github/workflows/checks.yml", "Makefile"))
    called = {target for line in re.findall(r"run: make ([a-z -]+)", workflow) for target in line.split()}

    assert {"sshd", "check", "test", "test-stories", "screenshots", "test-install"} == called
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in called)


def test_what_the_default_suite_leaves_out_and_the_stories_are_one_list() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [expression] = [each for each in project["tool"]["pytest"]["ini_options"]["addopts"] if each.startswith("not ")]
    [elsewhere] = re.findall(r"^ELSEWHERE = (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)

    left_out = [each.removeprefix("not ") for each in expression.split(" and ")]
    assert left_out == sorted([*elsewhere.split(" or "), "story"])


@pytest.mark.parametrize("name", ["checks", "nightly"])
def test_a_workflow_uses_pinned_actions_and_no_secrets(name: str) -> None:
    workflow = (ROOT / f".github/workflows/{name}.yml").read_text()
    actions = re.findall(r"uses: (.*)", workflow)

    assert actions
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[0-9.]+", action) for action in actions)
    assert "secrets" not in workflow


def test_the_first_failure_ends_the_checks(clone: Clone) -> None:
    clone.program("make", '[ "$1" != test ]')

    assert 0 != clone.run("bash", ".ci/run").returncode
    assert ["make .venv/.ready", "make test"] == [clone.calls[0], clone.calls[-1]]


FAILS = """
case "$*" in
*"-m pytest"*)
    mkdir -p .cache/{suite}/v/cache
    echo run >>runs
    case $(grep -c run runs) in {passes}) exit 0 ;; esac
    {lines} >.cache/{suite}/v/cache/lastfailed
    exit {status} ;;
esac
"""
"""A pytest that fails in each run but those of the numbers *passes*."""
ALONE = f"{SANDBOXES} -n 0 --workers 0 --snapshot-warn-unused --last-failed --last-failed-no-failures=none"


def of_pytest(clone: Clone) -> list[str]:
    return [call.strip() for call in clone.calls if "pytest" in call]


def test_a_test_that_fails_beside_others_and_passes_three_times_alone_is_named_and_no_failure(clone: Clone) -> None:
    clone.ready()
    clone.program("uname", "echo Darwin")
    clone.program("tmux")
    clone.program(
        ".venv/bin/python",
        FAILS.format(suite="sandboxes-pytest", passes="2|3|4", lines="echo '\"tests/a.py::test_it\": true'", status=1),
    )

    ran = clone.run("make", "test-sandboxes")

    assert 0 == ran.returncode
    assert [SANDBOXES, ALONE, ALONE, ALONE] == of_pytest(clone)
    assert "tests/a.py::test_it" in ran.stdout


@pytest.mark.parametrize(("passes", "code"), [("2|3|4", 0), ("3|4", 2), ("2|3", 2)])
def test_the_default_suite_repeats_failed_tests_alone(clone: Clone, passes: str, code: int) -> None:
    clone.ready()
    clone.program("tmux")
    lines = "echo '\"tests/a.py::test_it\": true'"
    clone.program(".venv/bin/python", FAILS.format(suite="pytest", passes=passes, lines=lines, status=1))

    assert code == clone.run("make", "test").returncode


@pytest.mark.parametrize(("passes", "alone"), [("3|4", 1), ("2|4", 2), ("2|3", 3)])
def test_a_test_that_fails_alone_once_is_a_failure(clone: Clone, passes: str, alone: int) -> None:
    clone.ready()
    clone.program("uname", "echo Darwin")
    clone.program("tmux")
    clone.program(
        ".venv/bin/python",
        FAILS.format(suite="sandboxes-pytest", passes=passes, lines="echo '\"tests/a.py::test_it\": true'", status=1),
    )

    assert 0 != clone.run("make", "test-sandboxes").returncode
    assert [SANDBOXES, *[ALONE] * alone] == of_pytest(clone)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("for each in 1 2 3 4 5 6 7 8 9 10 11; do echo a.py::$each; done", 1),
        ("echo a.py::test_it", 2),
        ("echo a.py::test_it", 3),
    ],
    ids=["eleven failures", "interrupted", "an internal error"],
)
def test_many_failures_and_a_run_that_did_not_end_are_failures_at_once(clone: Clone, lines: str, status: int) -> None:
    clone.ready()
    clone.program("uname", "echo Darwin")
    clone.program("tmux")
    clone.program(
        ".venv/bin/python", FAILS.format(suite="sandboxes-pytest", passes="2|3|4", lines=lines, status=status)
    )

    assert 0 != clone.run("make", "test-sandboxes").returncode
    assert [SANDBOXES] == of_pytest(clone)


def locked() -> dict[str, Version]:
    """The lock file: each package by its canonical name."""
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith(("#", "--"))]
    pins = [re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines]
    assert None not in pins
    return {canonicalize_name(pin[1]): Version(pin[2]) for pin in pins if pin}


def needs(asked: Requirement) -> list[Requirement]:
    """What *asked*, as installed here, asks for in turn."""
    every = [Requirement(line) for line in distribution(asked.name).requires or ()]
    return [
        need
        for need in every
        if not need.marker or any(need.marker.evaluate({"extra": e}) for e in ("", *asked.extras))
    ]


def test_the_lock_pins_only_the_requirements_of_the_project_and_its_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    wanted = [Requirement(line) for line in (*project["dependencies"], *extras) if not line.startswith("kasmon[")]
    pins = locked()
    met: dict[str, str] = {}

    while wanted:
        asked = wanted.pop()
        if str(asked) not in met:
            met[str(asked)] = canonicalize_name(asked.name)
            assert met[str(asked)] in pins, asked
            assert pins[met[str(asked)]] in asked.specifier, asked
            wanted += needs(asked)

    assert pins.keys() == set(met.values())


def test_the_tests_run_on_the_locked_versions() -> None:
    assert locked() == {name: Version(distribution(name).version) for name in locked()}
