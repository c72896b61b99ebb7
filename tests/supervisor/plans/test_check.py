"""The checks of tasks: real commands, bounded in time and output, with all that they start."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from kasmon.errors import UnavailableError
from kasmon.model.plan.events import TaskChecked, TaskChecking
from kasmon.process_identity import started_at
from kasmon.supervisor.plans.check import KEPT_BYTES, end_orphaned_check, run_check
from kasmon.supervisor.plans.task_session import variables
from tests.support.sample_plans import task
from tests.support.wait import auntil

noted: list[TaskChecking] = []


async def note(checking: TaskChecking) -> None:
    noted.append(checking)


async def check(command: str, folder: Path, limit_s: float = 30.0, **more: str) -> TaskChecked:
    return await run_check("a", 2, command, str(folder), os.environ | more, note, limit_s)


def running(folder: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(folder)]


async def test_a_check_that_ends_with_0_passes(tmp_path: Path) -> None:
    found = await check("echo all green; pwd", tmp_path)

    assert (True, 0, "", "a", 2) == (found.ok, found.exit_code, found.why, found.task, found.attempt)
    assert f"all green\n{tmp_path}\n" == found.output


async def test_any_other_end_fails_with_the_output_of_either_stream(tmp_path: Path) -> None:
    found = await check("echo out; echo err >&2; exit 3", tmp_path)

    assert (False, 3, "", "out\nerr\n") == (found.ok, found.exit_code, found.why, found.output)


async def test_a_missing_program_fails_with_the_shells_message(tmp_path: Path) -> None:
    found = await check("no-such-program --now", tmp_path)

    assert (False, 127) == (found.ok, found.exit_code)
    assert "no-such-program" in found.output


async def test_a_check_that_a_signal_ended_names_it(tmp_path: Path) -> None:
    found = await check("kill -9 $$", tmp_path)

    assert (False, None, "it was ended by SIGKILL") == (found.ok, found.exit_code, found.why)


async def test_a_check_that_hangs_is_ended_and_reported(tmp_path: Path) -> None:
    found = await check("echo so far; trap '' TERM; while :; do sleep 1; done", tmp_path, 0.5)

    assert (False, None, "it took longer than 0.5 s") == (found.ok, found.exit_code, found.why)
    assert "so far\n" == found.output
    assert found.took_s >= 0.5


async def test_a_check_that_asks_gets_no_input(tmp_path: Path) -> None:
    assert (False, 1) == ((found := await check("read answer", tmp_path)).ok, found.exit_code)


async def test_the_end_of_long_output_is_kept_and_cleaned(tmp_path: Path) -> None:
    found = await check("yes $(printf '\\033[31mred') | head -c 5000000; printf 'the end\\n'", tmp_path)

    assert found.ok
    assert len(found.output) <= KEPT_BYTES
    assert found.output.endswith("the end\n")
    assert "\x1b" not in found.output


async def test_endless_output_is_ended_too(tmp_path: Path) -> None:
    found = await check("yes", tmp_path, 0.5)

    assert ("it took longer than 0.5 s", KEPT_BYTES) == (found.why, len(found.output))


async def test_bytes_that_are_not_text_cause_no_crash(tmp_path: Path) -> None:
    assert "\ufffd" in (await check("printf '\\377\\376ab'", tmp_path)).output


@pytest.mark.parametrize("child", ["sleep 600 &", "setsid sleep 600 &", "(setsid sleep 600 & ) ; sleep 600 &"])
async def test_processes_left_by_a_check_delay_nothing_and_are_ended(tmp_path: Path, child: str) -> None:
    """The child has its output open, and may be in a session of its own."""
    found = await check(f"{child} echo started", tmp_path)

    assert (True, "started\n") == (found.ok, found.output)
    assert [] == running(tmp_path)


async def test_children_of_a_check_that_hangs_are_ended_with_it(tmp_path: Path) -> None:
    await check("setsid sleep 600 & sleep 600", tmp_path, 0.3)

    await auntil(lambda: not running(tmp_path))


async def test_a_missing_folder_or_a_command_that_no_shell_can_be_given_is_a_failed_check(tmp_path: Path) -> None:
    found = await check("true", tmp_path / "gone")
    assert (False, "could not be started: No such file or directory") == (found.ok, found.why)

    found = await check("tr\0ue", tmp_path)
    assert (False, "could not be started: embedded null byte") == (found.ok, found.why)


async def test_a_check_has_the_identity_of_its_task(tmp_path: Path) -> None:
    found = await run_check(
        "a",
        1,
        "echo $KASMON_PLAN $KASMON_TASK $KASMON_WAVE $KASMON_SESSION",
        str(tmp_path),
        variables("tidy", task("a", 7, wave=3), "s1"),
        note,
    )

    assert "tidy 7 3 s1\n" == found.output


# What nobody waits for any more


async def test_a_check_is_logged_before_it_starts_and_does_not_start_otherwise(tmp_path: Path) -> None:
    async def full(checking: TaskChecking) -> None:
        noted.append(checking)
        assert checking.pid_started == await asyncio.to_thread(started_at, checking.pid)
        raise UnavailableError("the disk is full.")

    with pytest.raises(UnavailableError):
        await run_check("a", 1, "touch began", str(tmp_path), os.environ, full)

    assert not psutil.pid_exists(noted[-1].pid)
    assert not (tmp_path / "began").exists()


RUNNER = """
import asyncio, os, sys
from kasmon.supervisor.plans.check import run_check
import msgspec

async def note(checking):
    print(msgspec.json.encode(checking).decode(), flush=True)
    if sys.argv[3:]:
        os.kill(os.getpid(), 9)

asyncio.run(run_check("a", 1, sys.argv[1], sys.argv[2], dict(os.environ), note))
"""


async def killed(command: str, folder: Path, *, at_once: bool = False) -> TaskChecking:
    """A runner is killed during its check *command*, or *at_once* when it noted it; what it noted."""
    more = ("at once",) if at_once else ()
    runner = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", RUNNER, command, str(folder), *more, stdout=asyncio.subprocess.PIPE
    )
    assert runner.stdout is not None
    left = msgspec.json.decode(await runner.stdout.readline(), type=TaskChecking)
    if not at_once:
        await auntil(lambda: (folder / "began").exists())
        runner.kill()
    await runner.wait()
    return left


@pytest.mark.parametrize(
    "rest", ["sleep 600", "setsid sleep 600 & exec env -i sleep 600", "(setsid sleep 600 &); sleep 600"]
)
async def test_processes_of_a_killed_runners_check_are_ended(tmp_path: Path, rest: str) -> None:
    left = await killed(f"touch began; {rest}", tmp_path)
    await auntil(lambda: running(tmp_path))

    await asyncio.to_thread(end_orphaned_check, left)

    assert [] == running(tmp_path)


async def test_a_check_whose_runner_was_killed_before_the_start_does_not_start(tmp_path: Path) -> None:
    left = await killed("touch began", tmp_path, at_once=True)

    await auntil(lambda: not psutil.pid_exists(left.pid))

    assert not (tmp_path / "began").exists()


async def test_an_unrelated_process_with_the_id_of_a_check_is_not_killed(tmp_path: Path) -> None:
    """Another process got the id since, or the machine was started again."""
    stranger = await asyncio.create_subprocess_exec("sleep", "600", cwd=tmp_path, start_new_session=True)
    born = await asyncio.to_thread(started_at, stranger.pid)
    try:
        for pid_started, pid_boot in ((1.0, ""), (born, "another boot"), (None, "")):
            left = TaskChecking(
                at=0, task="a", attempt=1, pid=stranger.pid, pid_started=pid_started, pid_boot=pid_boot, mark="m"
            )
            await asyncio.to_thread(end_orphaned_check, left)
        assert stranger.returncode is None
        assert psutil.pid_exists(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()
