"""The bash of a sandbox: a real interactive shell whose state lasts."""

from collections.abc import Iterator

import pytest

from kasmon.model.sandbox.policy import RunResult
from kasmon.sandbox.guest_client.channel import GuestChannel
from tests.support.sandbox.guest_agent import Agent, temporary
from tests.support.wait import until


@pytest.fixture(scope="module")
def channel(agent: Agent) -> Iterator[GuestChannel]:
    channel = agent.channel("dev-1")
    yield channel
    channel.close()


def bash(channel: GuestChannel, code: str, timeout_s: float = 20.0) -> RunResult:
    return channel.run("bash", code, timeout_s=timeout_s)


@pytest.mark.core
def test_variables_functions_aliases_options_and_the_folder_persist_between_runs(channel: GuestChannel) -> None:
    bash(
        channel,
        "x=5; list=(a 'b c'); shopt -s expand_aliases nullglob; alias greet='echo hello'\n"
        "f() { echo f $x; }; mkdir -p sub; cd sub",
    )
    ran = bash(channel, 'f; echo "${list[1]}"; greet; echo no*thing; basename "$PWD"')

    assert ("f 5\nb c\nhello\n\nsub\n", "", 0) == (ran.stdout, ran.stderr, ran.exit_code)
    assert ran.cwd.endswith("/workspace/sub")
    bash(channel, "cd ..; shopt -u nullglob")


@pytest.mark.parametrize(
    ("code", "exit_code"), [("true", 0), ("false", 1), ("(exit 7)", 7), ("no-such-program", 127), ("return 9", 9)]
)
def test_the_exit_code_is_that_of_the_last_command(channel: GuestChannel, code: str, exit_code: int) -> None:
    assert exit_code == bash(channel, code).exit_code
    assert f"{exit_code}\n" == bash(channel, "echo $?").stdout


def test_stdout_and_stderr_are_separate_and_in_whole_lines(channel: GuestChannel) -> None:
    ran = bash(channel, "x=5\nfor n in 1 2\ndo\n  echo out $n\n  echo err $n >&2\ndone\ncat <<END\n!here $x\nEND")

    assert "out 1\nout 2\n!here 5\n" == ran.stdout
    assert "err 1\nerr 2\n" == ran.stderr


def test_a_syntax_error_names_its_line_and_ends_nothing(channel: GuestChannel) -> None:
    ran = bash(channel, "kept=1\nif then")

    assert 2 == ran.exit_code
    assert "line 2: syntax error" in ran.stderr
    assert ran.session_preserved


def test_stdin_is_at_its_end_also_for_read_and_output_sent_elsewhere_is_back_later(channel: GuestChannel) -> None:
    assert "[] 1\n" == bash(channel, "read -r line; echo [$line] $?; cat").stdout
    assert "" == bash(channel, "exec >/dev/null 2>&1; echo hidden").stdout
    assert "seen\n" == bash(channel, "echo seen").stdout


def test_neither_a_prompt_command_nor_a_program_that_reads_the_terminal_hides_the_end(channel: GuestChannel) -> None:
    assert not bash(channel, "PROMPT_COMMAND='echo mine'; PS1='$ '", timeout_s=1).timed_out
    assert "after\n" == bash(channel, "echo after").stdout
    assert 0 == bash(channel, "read -r -t 1 taken </dev/tty; :").exit_code
    assert "next\n" == bash(channel, "echo next").stdout


@pytest.mark.core
def test_output_to_the_terminal_itself_blocks_nothing(channel: GuestChannel) -> None:
    assert (
        "done\n"
        == bash(channel, "head -c 100000 /dev/zero | tr '\\0' y >/dev/tty; stty raw </dev/tty; echo done").stdout
    )


@pytest.mark.core
def test_an_exit_ends_the_shell_and_the_next_one_has_its_state(channel: GuestChannel) -> None:
    bash(channel, "declare -A map=([k]=v); carried='a  b'; g() { echo g; }; export SHOWN=1; cd /usr; umask 027")
    ran = bash(channel, "echo before; exit 3")

    assert ("before\n", 3, True) == (ran.stdout, ran.exit_code, ran.session_preserved)
    assert "are carried over to the next run" in ran.hint

    ran = bash(channel, 'echo "${map[k]}" "$carried" $(g) $(printenv SHOWN) $PWD $(umask)')
    assert "v a  b g 1 /usr 0027\n" == ran.stdout
    assert (True, True) == (ran.restarted, ran.session_preserved)
    assert "carried over" in ran.hint
    bash(channel, "cd - >/dev/null || cd ~/workspace")


def test_errexit_ends_the_shell_with_its_state_and_does_not_end_it_again(channel: GuestChannel) -> None:
    assert 1 == bash(channel, "set -eu; strict=1; false; echo never").exit_code
    assert "1 fine\n" == bash(channel, "false; echo $strict fine").stdout


@pytest.mark.core
def test_a_killed_shell_is_reported_to_have_lost_its_state(channel: GuestChannel) -> None:
    bash(channel, "dear=1")
    ran = bash(channel, "kill -9 $$")

    assert (137, False) == (ran.exit_code, ran.session_preserved)
    assert "lost" in ran.stderr
    ran = bash(channel, "echo [$dear]")
    assert ("[]\n", True, False) == (ran.stdout, ran.restarted, ran.session_preserved)
    assert "was restarted: its variables are lost" in ran.hint
    assert bash(channel, ":").session_preserved


def test_restored_state_is_lost_with_the_shell_that_had_it(channel: GuestChannel) -> None:
    bash(channel, "dear=1; exit 0")
    assert not bash(channel, "kill -9 $$").session_preserved

    assert "[]\n" == bash(channel, "echo [$dear]").stdout


def test_a_killed_shell_leaves_no_passed_file(channel: GuestChannel) -> None:
    channel.run("bash", "kill -9 $$", timeout_s=20, variables={"TOKEN": "canary"})

    assert {} == temporary(channel)
    assert bash(channel, ":").restarted


def test_output_of_a_program_that_replaced_the_shell_is_read_to_its_end(channel: GuestChannel) -> None:
    ran = bash(channel, "exec bash -c 'echo instead; exit 6'")

    assert ("instead\n", 6, False) == (ran.stdout, ran.exit_code, ran.session_preserved)
    assert bash(channel, ":").restarted


def test_code_that_closes_every_file_loses_at_most_the_shell_and_never_the_answer(channel: GuestChannel) -> None:
    ran = bash(channel, 'held=1\nfor n in /proc/$$/fd/*; do n=${n##*/}; (( n > 2 )) && eval "exec $n>&-"; done; :')

    assert ran.session_preserved
    assert "1\n" == bash(channel, "echo $held").stdout


@pytest.mark.core
def test_a_background_job_continues_and_its_later_output_is_not_in_the_next_run(channel: GuestChannel) -> None:
    ran = bash(channel, "(sleep 0.1; echo late; touch job; exec sleep 60) & echo now")

    assert ("now\n", "") == (ran.stdout, ran.stderr)
    until(lambda: channel.run("python", "import os; os.path.exists('job')", timeout_s=20).stdout == "True\n")
    ran = bash(channel, "echo next; kill %%; wait %% 2>/dev/null")
    assert ("next\n", "late\n") == (ran.stdout, ran.background)


@pytest.mark.core
def test_the_answer_channel_is_closed_while_code_runs_and_for_its_children(channel: GuestChannel) -> None:
    looks = "import os; print(*(number for number in range(64) if is_open(number)))"
    code = f"def is_open(n):\n  try: return bool(os.fstat(n))\n  except OSError: return False\n{looks}"
    assert "0 1 2\n" == bash(channel, f"python3 -c '{code}'").stdout


def test_a_nul_in_the_code_is_refused_with_a_next_step(channel: GuestChannel) -> None:
    ran = bash(channel, "echo a\0b")

    assert (1, True) == (ran.exit_code, ran.session_preserved)
    assert "NUL" in ran.stderr


def test_code_that_removes_all_temporary_files_does_no_harm(channel: GuestChannel) -> None:
    bash(channel, 'rm -rf "$TMPDIR"/*; left=1')

    assert "1\n" == bash(channel, "echo $left").stdout


def test_the_shells_own_variables_are_not_those_of_the_code(channel: GuestChannel) -> None:
    """What is ours in the shell is not in what its children see, and no history is written.

    Node alone needs a module of ours for the proxy, which a sandbox of any policy has.
    """
    node = "NODE_OPTIONS=--require /opt/kasmon/nodeproxy.js"
    ours = f"printenv | grep -i kasmon | grep -v ^KASMON_CONTEXT= | grep -vxF -e '{node}'; history"
    assert "" == bash(channel, ours).stdout
