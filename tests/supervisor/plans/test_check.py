"""The checks of tasks: real commands, bounded in time and output, with all that they start."""

import os
from pathlib import Path

import psutil
import pytest

from kasmon.model.plan.fact import TaskChecked
from kasmon.supervisor.plans.check import KEPT_BYTES, run_check
from kasmon.supervisor.plans.session import variables
from tests.model.plan.plans import task
from tests.waiting import auntil


async def check(command: str, folder: Path, limit_s: float = 30.0, **more: str) -> TaskChecked:
    return await run_check("a", 2, command, str(folder), os.environ | more, limit_s)


async def test_a_check_that_ends_with_0_passes(tmp_path: Path) -> None:
    found = await check("echo all green; pwd", tmp_path)

    assert (True, 0, "", "a", 2) == (found.ok, found.exit_code, found.why, found.task, found.attempt)
    assert f"all green\n{tmp_path}\n" == found.output


async def test_any_other_end_fails_with_what_it_printed_on_either_stream(tmp_path: Path) -> None:
    found = await check("echo out; echo err >&2; exit 3", tmp_path)

    assert (False, 3, "", "out\nerr\n") == (found.ok, found.exit_code, found.why, found.output)


async def test_a_program_that_is_missing_fails_by_the_shells_own_words(tmp_path: Path) -> None:
    found = await check("no-such-program --now", tmp_path)

    assert (False, 127) == (found.ok, found.exit_code)
    assert "no-such-program" in found.output


async def test_a_check_that_a_signal_ended_says_which(tmp_path: Path) -> None:
    found = await check("kill -9 $$", tmp_path)

    assert (False, None, "it was ended by SIGKILL") == (found.ok, found.exit_code, found.why)


async def test_a_check_that_hangs_is_ended_and_says_so(tmp_path: Path) -> None:
    found = await check("echo so far; trap '' TERM; while :; do sleep 1; done", tmp_path, 0.5)

    assert (False, None, "it took longer than 0.5 s") == (found.ok, found.exit_code, found.why)
    assert "so far\n" == found.output
    assert found.took_s >= 0.5


async def test_nobody_answers_a_check_that_asks(tmp_path: Path) -> None:
    assert (False, 1) == ((found := await check("read answer", tmp_path)).ok, found.exit_code)


async def test_of_a_flood_the_end_is_kept_cleaned(tmp_path: Path) -> None:
    found = await check("yes $(printf '\\033[31mred') | head -c 5000000; printf 'the end\\n'", tmp_path)

    assert found.ok
    assert len(found.output) <= KEPT_BYTES
    assert found.output.endswith("the end\n")
    assert "\x1b" not in found.output


async def test_a_flood_without_end_is_ended_too(tmp_path: Path) -> None:
    found = await check("yes", tmp_path, 0.5)

    assert ("it took longer than 0.5 s", KEPT_BYTES) == (found.why, len(found.output))


async def test_bytes_that_are_no_text_are_no_crash(tmp_path: Path) -> None:
    assert "\ufffd" in (await check("printf '\\377\\376ab'", tmp_path)).output


@pytest.mark.parametrize("child", ["sleep 600 &", "setsid sleep 600 &", "(setsid sleep 600 & ) ; sleep 600 &"])
async def test_what_it_leaves_behind_keeps_nobody_waiting_and_is_ended(tmp_path: Path, child: str) -> None:
    """The child has its output open, and may be in a session of its own."""
    found = await check(f"{child} echo started", tmp_path)

    assert (True, "started\n") == (found.ok, found.output)
    assert [] == [p for p in psutil.process_iter(["cwd", "cmdline"]) if p.info["cwd"] == str(tmp_path)]


async def test_what_a_check_that_hangs_started_is_ended_with_it(tmp_path: Path) -> None:
    await check("setsid sleep 600 & sleep 600", tmp_path, 0.3)

    await auntil(lambda: not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(tmp_path)])


async def test_a_folder_that_is_gone_is_a_failed_check(tmp_path: Path) -> None:
    found = await check("true", tmp_path / "gone")

    assert (False, "it could not be started: No such file or directory") == (found.ok, found.why)


async def test_a_command_that_no_shell_can_be_given_is_a_failed_check(tmp_path: Path) -> None:
    found = await check("tr\0ue", tmp_path)

    assert (False, "it could not be started: embedded null byte") == (found.ok, found.why)


async def test_it_knows_whose_check_it_is(tmp_path: Path) -> None:
    found = await run_check(
        "a",
        1,
        "echo $KASMON_PLAN $KASMON_TASK $KASMON_WAVE $KASMON_SESSION",
        str(tmp_path),
        variables("tidy", task("a", 7, wave=3), "s1"),
    )

    assert "tidy 7 3 s1\n" == found.output
