"""The python interpreter of a sandbox: one namespace that lasts, real output, real exit codes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.model.sandbox.policy import RunResult
from kasmon.sandbox.guest_client.channel import GuestChannel
from tests.support.sandbox.guest_agent import Agent
from tests.support.wait import until


@pytest.fixture(scope="module")
def channel(agent: Agent) -> Iterator[GuestChannel]:
    channel = agent.channel("analysis")
    yield channel
    channel.close()


def python(channel: GuestChannel, code: str, timeout_s: float = 20.0) -> RunResult:
    return channel.run("python", code, timeout_s=timeout_s)


@pytest.mark.core
def test_variables_imports_functions_and_the_folder_persist_between_runs(channel: GuestChannel) -> None:
    python(
        channel,
        "import os, math\nx = [1, 2, 3]\ndef double(n):\n    return n * len(x)\nos.mkdir('sub'); os.chdir('sub')",
    )
    ran = python(channel, "print(double(math.floor(2.5)), os.path.basename(os.getcwd()))")

    assert ("6 sub\n", "", 0, True) == (ran.stdout, ran.stderr, ran.exit_code, ran.session_preserved)
    assert ran.cwd.endswith("/workspace/sub")
    python(channel, "os.chdir('..')")


def test_the_value_of_a_last_expression_is_shown_and_kept_as_underscore(channel: GuestChannel) -> None:
    assert "'ab'\n" == python(channel, "x = 'a'\nx + 'b'").stdout
    assert "2\n" == python(channel, "len(_)").stdout
    assert "" == python(channel, "None").stdout


@pytest.mark.core
def test_await_is_allowed_at_the_top_level(channel: GuestChannel) -> None:
    assert (
        "7\n"
        == python(
            channel, "import asyncio\nasync def late(n):\n    await asyncio.sleep(0)\n    return n\nawait late(7)"
        ).stdout
    )
    assert "8\n" == python(channel, "y = await late(8)\nprint(y)").stdout
    assert "9\n" == python(channel, "asyncio.run(late(9))").stdout


def test_background_tasks_continue_between_runs(channel: GuestChannel) -> None:
    python(
        channel,
        "import asyncio, pathlib\n"
        "async def write():\n    await asyncio.sleep(0.05)\n    pathlib.Path('written').touch()\n"
        "task = asyncio.create_task(write())\nawait asyncio.sleep(0)",
    )
    until(lambda: python(channel, "import time\npathlib.Path('written').exists()").stdout == "True\n")


@pytest.mark.core
def test_an_error_shows_its_line_also_of_an_earlier_run(channel: GuestChannel) -> None:
    first = python(channel, "def divide(n):\n    return 1 / n  # here\n")
    ran = python(channel, "divide(0)")

    assert 1 == ran.exit_code
    assert f'File "<python #{first.turn}>", line 2, in divide\n    return 1 / n  # here' in ran.stderr
    assert ran.stderr.startswith(f'Traceback (most recent call last):\n  File "<python #{ran.turn}>", line 1')
    assert ran.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "python_worker" not in ran.stderr


def test_a_syntax_error_runs_nothing_of_the_code(channel: GuestChannel) -> None:
    ran = python(channel, "syntax = 'ran'\nif")

    assert (1, "") == (ran.exit_code, ran.stdout)
    assert "SyntaxError" in ran.stderr
    assert "NameError" in python(channel, "syntax").stderr


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("exit(256 + 4)", 4, ""),
    ],
)
def test_exit_is_an_exit_code_and_the_interpreter_stays(
    channel: GuestChannel, code: str, exit_code: int, stderr: str
) -> None:
    python(channel, "stays = 1")
    ran = python(channel, code)

    assert (exit_code, stderr, True) == (ran.exit_code, ran.stderr, ran.session_preserved)
    assert "1\n" == python(channel, "stays").stdout


def test_stdout_and_stderr_are_separate_and_those_of_children_count(channel: GuestChannel) -> None:
    ran = python(
        channel,
        "import sys, subprocess, os\nprint('a'); print('b', file=sys.stderr); os.write(1, b'c\\n')\n"
        "_ = subprocess.run('echo d; echo e >&2', shell=True)",
    )

    assert ("a\nc\nd\n", "b\ne\n") == (ran.stdout, ran.stderr)


def test_stdin_is_at_its_end_and_bytes_that_are_no_text_are_shown_as_such(channel: GuestChannel) -> None:
    assert "EOFError" in python(channel, "input()").stderr

    assert (
        "\N{REPLACEMENT CHARACTER}ok" == python(channel, r"import sys; _ = sys.stdout.buffer.write(b'\xffok')").stdout
    )
    assert "\\udcff\n" == python(channel, r"print('\udcff')").stdout


@pytest.mark.parametrize(
    "closing",
    [
        "sys.stdout.close()",
        "os.close(1); os.close(2)",
        "sys.stdout = sys.stderr = None",
        "os.dup2(os.open('/dev/null', 1), 1)",
    ],
)
def test_code_that_closes_its_output_has_output_in_the_next_run(channel: GuestChannel, closing: str) -> None:
    python(channel, f"import os, sys\nmended = 1\n{closing}")
    ran = python(channel, "print('seen', mended); print('heard', file=sys.stderr)")

    assert ("seen 1\n", "heard\n", False) == (ran.stdout, ran.stderr, ran.restarted)


@pytest.mark.core
def test_later_output_of_a_left_process_is_not_in_the_next_run(channel: GuestChannel) -> None:
    ran = python(
        channel,
        "import subprocess\n_ = subprocess.Popen(['bash', '-c', 'sleep 0.1; echo late; touch told; sleep 60'],"
        " start_new_session=True)\nprint('now')",
    )

    assert "now\n" == ran.stdout
    until(lambda: channel.run("bash", "[ -e told ]", timeout_s=20).exit_code == 0)
    ran = python(channel, "print('next')")
    assert ("next\n", "late\n") == (ran.stdout, ran.background)


def test_a_fork_that_returns_is_no_second_interpreter(channel: GuestChannel) -> None:
    ran = python(
        channel,
        "import os, sys\nchild = os.fork()\nif child: _ = os.waitpid(child, 0)\nprint('one' if child else 'two')",
    )

    assert {"one", "two"} == set(ran.stdout.split())
    assert "1\n" == python(channel, "1").stdout


def test_code_that_changes_shared_modules_changes_its_own_copy_only(channel: GuestChannel) -> None:
    python(
        channel,
        "import builtins, json, os\nos.write = os._exit = os.getpid = os.fstat = json.loads = json.dumps = None\n"
        "builtins.compile = None",
    )

    assert "still\n" == python(channel, "print('still')").stdout
    channel.reset("python")


def test_ten_megabytes_of_code_run_even_if_longer_on_their_way(channel: GuestChannel) -> None:
    assert "10000000\n" == python(channel, f"x = '{'a' * 10_000_000}'\nlen(x)").stdout
    assert "4000000\n" == python(channel, f"x = '{'€' * 4_000_000}'\nlen(x)").stdout


def test_a_nul_in_the_code_is_pythons_own_error(channel: GuestChannel) -> None:
    ran = python(channel, "x = 1\0")

    assert (1, True) == (ran.exit_code, ran.session_preserved)
    assert "null bytes" in ran.stderr


def test_its_main_module_is_the_codes_own(channel: GuestChannel) -> None:
    assert (
        "__main__ []\n"
        == python(
            channel,
            "import sys\nclass A: pass\nprint(A.__module__, [each for each in sys.modules if 'kasmon' in each])",
        ).stdout
    )
    assert "True\n" == python(channel, "import pickle; isinstance(pickle.loads(pickle.dumps(A())), A)").stdout


def test_the_ends_of_long_output_are_kept_with_the_exact_number_of_what_is_not(channel: GuestChannel) -> None:
    ran = channel.run(
        "python", "print('a' * 1_000_000)\nprint('end', file=__import__('sys').stderr)", timeout_s=20, cap=1000
    )

    assert 1_000_001 - 1000 == ran.omitted
    assert f"\n[... {ran.omitted} bytes omitted here ...]\n" in ran.stdout
    assert "end\n" == ran.stderr
    assert str(ran.omitted) in ran.hint


@pytest.mark.core
def test_the_channel_is_not_inherited_by_children(channel: GuestChannel) -> None:
    looks = "import os, sys\nfor number in range(99):\n  try: os.fstat(number); print(number)\n  except OSError: 0"
    code = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {looks!r}], close_fds=False))"

    assert "b'0\\n1\\n2\\n'\n" == python(channel, code).stdout


def test_text_written_to_guessed_channels_is_no_answer(channel: GuestChannel) -> None:
    """The number is another one each time; and whoever finds it still lacks the turn's word."""
    code = r"""
import json, os, socket, stat
forged = json.dumps({'rc': 0, 'cwd': '/forged', 'nonce': ''}).encode()
for number in range(3, 1024):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            os.write(number, len(forged).to_bytes(4, 'big') + forged)
    except OSError:
        pass
raise ValueError('true')
"""
    ran = python(channel, code)

    assert 1 == ran.exit_code
    assert "ValueError: true" in ran.stderr
    assert "/forged" != ran.cwd


def test_a_run_in_a_removed_folder_still_answers(channel: GuestChannel, agent: Agent) -> None:
    ran = python(channel, "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); print('here')")

    assert ("here\n", "") == (ran.stdout, ran.cwd)
    python(channel, f"os.chdir({str(Path(agent.workspace))!r})")
