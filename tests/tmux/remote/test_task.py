"""What a plan does on another machine: a place for a result, the result, a check that outlives the line."""

import os
import shutil
from pathlib import Path

import psutil
import pytest

from kasmon.errors import RemoteLaunchError
from kasmon.tmux.remote import task
from kasmon.tmux.remote.agent import RemoteOutcome
from tests.support.wait import until
from tests.tmux.remote.test_agent import There, there

__all__ = ["there"]


def laid(there: There, folder: str = "") -> Path:
    """Where task 3 may leave its result."""
    task.lay_out(there.machine, folder, 3, there.variables)
    return there.home / folder / ".kasmon/task-3"


def result(there: There, longest: int = 100, number: int = 3) -> str:
    return task.result(there.machine, "", number, longest, there.variables)


def begin(there: There, command: str, **own: str) -> None:
    task.begin_check(there.machine, "abcdefgh", command, "", own, there.variables)


def check(there: There) -> tuple[RemoteOutcome, str]:
    return task.check(there.machine, "abcdefgh", there.variables)


def ended(there: There) -> tuple[RemoteOutcome, str]:
    """The check's outcome, once it has one."""
    return until(lambda: found if (found := check(there))[0].state == "ended" else None)


def test_files_that_a_task_wrote_since_its_start_are_its_result_and_ignored_by_git(there: There) -> None:
    place = laid(there)
    assert "" == result(there)

    (place / "result.md").write_text("It is done: größe.\n")

    assert "It is done: größe.\n" == result(there)
    assert "It is" == result(there, 5)
    assert "*\n" == (there.home / ".kasmon/.gitignore").read_text()
    assert 0o700 == place.stat().st_mode & 0o777


def test_a_result_beside_its_work_counts_and_an_older_one_does_not(there: There) -> None:
    beside = there.home / "result.md"
    beside.write_text("of another day")
    os.utime(beside, (1, 1))
    laid(there)
    assert "" == result(there)

    beside.write_text("of today")
    os.utime(beside)
    assert "of today" == result(there)


def test_a_missing_file_or_a_link_elsewhere_is_no_result(there: There) -> None:
    (there.home / "result.md").write_text("whose?")
    assert "" == result(there)

    laid(there)
    (there.home / "result.md").unlink()
    (there.home / "secret").write_text("of nobody else")
    (there.home / "result.md").symlink_to("secret")
    assert "" == result(there)


def test_output_of_the_login_shell_is_no_part_of_a_result(there: There) -> None:
    program = Path(there.machine.ssh[0])
    program.write_text(program.read_text().replace("exec sh", "echo; echo 'kasmon-remote: welcome!'; exec sh"))
    (laid(there) / "result.md").write_text("mine")

    assert "mine" == result(there)


def test_a_folder_that_cannot_be_created_gives_the_reason(there: There) -> None:
    with pytest.raises(RemoteLaunchError, match="there is no folder 'not-there'"):
        laid(there, "not-there")
    (there.home / ".kasmon").symlink_to("/tmp")
    with pytest.raises(RemoteLaunchError, match="is a symbolic link"):
        laid(there)


@pytest.mark.parametrize(
    ("command", "code", "printed"),
    [
        ('echo "$KASMON_TASK $PWD"; exit 3', 3, "7 {home}\n"),
        ("printf 'no end of line'", 0, "no end of line\n"),
        ("read answer || echo nobody answers >&2", 0, "nobody answers\n"),
        ("sleep 600 & echo it leaves something behind", 0, "it leaves something behind\n"),
    ],
)
def test_a_check_has_its_exit_and_its_output_and_leaves_no_file(
    there: There, command: str, code: int, printed: str
) -> None:
    begin(there, command, KASMON_TASK="7")

    assert (RemoteOutcome("ended", code), printed.format(home=there.home)) == ended(there)
    assert (RemoteOutcome("gone"), "") == check(there)
    assert [] == list(there.files.parent.glob("*-check"))


def test_the_end_of_long_output_is_kept_with_whole_lines(there: There) -> None:
    begin(there, f"seq 20000; echo {'x' * 300}; echo the end")

    lines = ended(there)[1].splitlines()

    assert ["20000", "x" * 300, "the end"] == lines[-3:]
    assert len(lines) <= task.KEPT_LINES + 60


def test_a_running_check_is_not_started_twice(there: There) -> None:
    for _ in range(2):
        begin(there, "echo once >>count; while [ ! -e go ]; do sleep 0.05; done")
        until((there.home / "count").exists)
    assert "runs" == check(there)[0].state

    (there.home / "go").touch()
    assert 0 == ended(there)[0].exit_code
    assert "once\n" == (there.home / "count").read_text()


def test_a_check_without_a_waiting_caller_is_ended(there: There) -> None:
    begin(there, "echo $$ >pid; trap '' HUP TERM; while :; do sleep 0.05; done")
    until(lambda: (there.home / "pid").exists() and (there.home / "pid").read_text())
    pid = int((there.home / "pid").read_text())

    task.end_check(there.machine, "abcdefgh", there.variables)

    until(lambda: not psutil.pid_exists(pid) and check(there)[0].state != "runs")


def test_the_tmux_on_the_machine_reports_its_version(there: There) -> None:
    assert task.version(there.machine, there.variables).startswith("tmux ")
    (there.home / "bin").mkdir()
    for name in ("sh", "cat"):
        (there.home / "bin" / name).symlink_to(shutil.which(name) or "")
    assert "" == task.version(there.machine, there.variables | {"PATH": str(there.home / "bin")})
