"""A command of the person runs in the session's folder, by the person's shell, and ends with its output's reader."""

import asyncio
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from kasmon.errors import UnableError
from kasmon.host.session.shell_command import OUTPUT_BYTES, run_in_folder
from tests.support.wait import auntil


@pytest.fixture(autouse=True)
def _shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")


async def test_a_command_runs_in_the_folder_and_reports_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "here.txt").touch()
    said: list[str] = []

    code = await run_in_folder(str(tmp_path), "ls; cat; echo bad >&2; exit 3", said.append)

    assert (3, ["here.txt", "bad"]) == (code, "".join(said).split())


async def test_a_background_program_does_not_delay_the_result(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        assert 0 == await run_in_folder(str(tmp_path), "sleep 600 & true", lambda _: None)


async def test_ended_by_the_user_a_command_ends_with_its_children(tmp_path: Path) -> None:
    said: list[str] = []
    command = "sh -c 'echo $$; exec sleep 600'"
    running = asyncio.create_task(run_in_folder(str(tmp_path), command, said.append))
    await auntil(lambda: "".join(said).endswith("\n"))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    stat = Path(f"/proc/{int(''.join(said))}/stat")
    await auntil(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")


async def test_a_command_ends_with_its_children_when_its_runner_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from kasmon.host.session.shell_command import run_in_folder\n"
        "command = \"sh -c 'echo $$; exec sleep 600'; true\"\n"
        "def report(text):\n    print(text, end='', flush=True)\n"
        "asyncio.run(run_in_folder(sys.argv[1], command, report))\n"
    )
    runner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", program, str(tmp_path)), stdout=asyncio.subprocess.PIPE
    )
    assert runner.stdout is not None
    child = int(await runner.stdout.readline())
    runner.kill()
    await runner.wait()

    stat = Path(f"/proc/{child}/stat")
    await auntil(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")


async def test_a_command_that_waits_for_all_its_children_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bash becomes a command that stands alone, so that the shell's children are the command's."""
    bash = shutil.which("bash")
    assert bash is not None
    monkeypatch.setenv("SHELL", bash)
    waits = "import contextlib, os\nwith contextlib.suppress(ChildProcessError):\n    while True: os.wait()\n"

    async with asyncio.timeout(60):
        assert 0 == await run_in_folder(str(tmp_path), shlex.join([sys.executable, "-c", waits]), print)


async def test_a_missing_shell_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/nowhere/shell")

    with pytest.raises(UnableError, match="'/nowhere/shell' cannot run 'true'"):
        await run_in_folder(str(tmp_path), "true", lambda _: None)


async def test_a_command_with_endless_output_is_ended(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(UnableError, match="printed more than 256 KB"):
        await run_in_folder(str(tmp_path), "yes", said.append)

    assert len("".join(said)) < 2 * OUTPUT_BYTES
