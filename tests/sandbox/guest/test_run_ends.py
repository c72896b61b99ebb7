"""How runs end that do not end by themselves: interrupted, out of time, or with the interpreter's death.

What is said to be kept is kept, and what is lost is said to be lost.
"""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter, RunResult
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.guest_client.protocol import InterruptResult
from tests.support.sandbox.guest_agent import Agent, running
from tests.support.wait import until

SAYS = {"python": "print({})", "bash": "echo {}", "node": "console.log({})"}
HOLD: dict[Interpreter, str] = {"python": "held = 41", "bash": "held=41", "node": "let held = 41"}
SHOW: dict[Interpreter, str] = {"python": "print(held)", "bash": "echo $held", "node": "console.log(held)"}
SPINS: dict[Interpreter, str] = {"python": "while True: pass", "bash": "while :; do :; done", "node": "while (true) {}"}
WAITS: dict[Interpreter, str] = {
    "python": "import asyncio; await asyncio.sleep(60)",
    "bash": "sleep 60\necho never",
    "node": "await new Promise(() => {})",
}
FORKS: dict[Interpreter, str] = {
    "python": "import subprocess; subprocess.run(['sleep', '60'])",
    "bash": "sleep 60 | cat",
    "node": "require('child_process').execSync('sleep 60')",
}
DIES: dict[Interpreter, str] = {
    "python": "import os; os.kill(os.getpid(), 9)",
    "bash": "kill -9 $$",
    "node": "process.kill(process.pid, 'SIGKILL')",
}


@pytest.fixture(scope="module")
def channel(agent: Agent) -> Iterator[GuestChannel]:
    channel = agent.channel("analysis")
    channel.prewarm(INTERPRETERS)
    yield channel
    channel.close()


def run(channel: GuestChannel, interpreter: Interpreter, code: str, timeout_s: float = 20.0) -> RunResult:
    return channel.run(interpreter, code, timeout_s=timeout_s)


def hold(channel: GuestChannel, interpreter: Interpreter) -> None:
    """Have *interpreter* hold what `still_holds` asks for."""
    assert 0 == run(channel, interpreter, HOLD[interpreter]).exit_code


def still_holds(channel: GuestChannel, interpreter: Interpreter) -> None:
    ran = run(channel, interpreter, SHOW[interpreter])
    assert ("41\n", "", 0) == (ran.stdout, ran.stderr, ran.exit_code)


@pytest.mark.core
@pytest.mark.parametrize("interpreter", INTERPRETERS)
@pytest.mark.parametrize("code", [SPINS, WAITS, FORKS], ids=["spins", "waits", "forks"])
def test_a_run_that_exceeds_its_time_is_interrupted_and_keeps_the_state(
    channel: GuestChannel, interpreter: Interpreter, code: dict[Interpreter, str]
) -> None:
    hold(channel, interpreter)
    ran = run(channel, interpreter, code[interpreter], timeout_s=0.1)

    assert (124, True, True) == (ran.exit_code, ran.timed_out, ran.session_preserved)
    assert "Session 'analysis' timed out after 0.1s. The session state is preserved. Consider: 1) " in ran.stderr
    assert "never" not in ran.stdout
    still_holds(channel, interpreter)


BEFORE_THE_NEXT: Final = """
import sys
frame = sys._getframe()
while not hasattr(frame.f_locals.get("self"), "_code"):
    frame = frame.f_back
hooked = '''
import os
parts = code.parts
def interrupted(*given):
    code.parts = parts
    os.kill(os.getpid(), 2)
    return parts(*given)
code.parts = interrupted
'''
exec(compile(hooked, "elsewhere", "exec"), {"code": frame.f_locals["self"]._code})
"""
"""Has the next turn interrupted while its code is compiled."""


@pytest.mark.parametrize("code", [SPINS["python"], WAITS["python"]], ids=["spins", "waits"])
def test_an_interrupt_before_the_code_started_is_not_lost(channel: GuestChannel, code: str) -> None:
    run(channel, "python", HOLD["python"] + BEFORE_THE_NEXT)
    ran = run(channel, "python", code, timeout_s=2)

    assert (130, False, True) == (ran.exit_code, ran.timed_out, ran.session_preserved)
    still_holds(channel, "python")


@pytest.mark.core
@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_an_interrupt_ends_the_run_and_keeps_the_state(channel: GuestChannel, interpreter: Interpreter) -> None:
    hold(channel, interpreter)
    with ThreadPoolExecutor(1) as others:
        going = others.submit(run, channel, interpreter, SPINS[interpreter])
        until(lambda: channel.ping("n").workers[interpreter].busy)

        assert InterruptResult.INTERRUPTED is channel.interrupt(interpreter)
        ran = going.result()

    assert (130, False, True) == (ran.exit_code, ran.timed_out, ran.session_preserved)
    assert "Interrupted" in ran.hint
    still_holds(channel, interpreter)


def test_an_interrupt_without_a_run_has_no_effect(channel: GuestChannel) -> None:
    run(channel, "python", "held = 41")

    assert InterruptResult.NOTHING is channel.interrupt("python")
    assert "41\n" == run(channel, "python", "print(held)").stdout


def test_an_interrupt_applies_to_the_run_and_not_to_waiting_ones(channel: GuestChannel) -> None:
    with ThreadPoolExecutor(2) as others:
        going = others.submit(run, channel, "python", SPINS["python"])
        until(lambda: channel.ping("n").workers["python"].busy)
        next_ = others.submit(run, channel, "python", "print('next')")
        until(lambda: channel.ping("n").workers["python"].queued)
        channel.interrupt("python")

        assert 130 == going.result().exit_code
        assert "next\n" == next_.result().stdout


def test_an_interrupt_of_one_run_affects_no_other_and_a_waiting_one_never_starts(channel: GuestChannel) -> None:
    with ThreadPoolExecutor(2) as others:
        going = others.submit(channel.run, "python", SPINS["python"], timeout_s=20, run="first")
        until(lambda: channel.ping("n").workers["python"].busy)
        waits = others.submit(channel.run, "python", "print('never')", timeout_s=20, run="second")
        until(lambda: channel.ping("n").workers["python"].queued)

        assert InterruptResult.NOTHING is channel.interrupt("python", "another")
        assert InterruptResult.NOTHING is channel.interrupt("bash", "first")
        assert InterruptResult.INTERRUPTED is channel.interrupt("python", "second")
        assert (130, "", True) == (waits.result().exit_code, waits.result().stdout, waits.result().session_preserved)
        assert not going.done()
        assert InterruptResult.INTERRUPTED is channel.interrupt("python", "first")

        assert 130 == going.result().exit_code
    assert InterruptResult.NOTHING is channel.interrupt("python", "first")


@pytest.mark.core
def test_the_result_of_a_run_is_repeated_by_its_key_without_running_again(agent: Agent, channel: GuestChannel) -> None:
    heard: list[str] = []
    other = agent.channel("another line")
    with ThreadPoolExecutor(2) as others:
        code = "echo one; until [ -e go ]; do sleep 0.01; done; echo two; rm go"
        going = others.submit(channel.run, "bash", code, timeout_s=20, run="asked")
        until(lambda: channel.ping("n").workers["bash"].busy)
        recalled = others.submit(other.recall, "asked", timeout_s=20, on_output=lambda _, text: heard.append(text))
        run(channel, "python", "open('go', 'w').close()")

        first, again = going.result(), recalled.result()
    assert again is not None
    assert ("one\ntwo\n", first.turn) == (first.stdout, again.turn)
    assert first.stdout == again.stdout
    assert other.recall("asked", timeout_s=20) == first
    assert other.recall("never asked", timeout_s=20) is None
    other.close()


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_dead_interpreter_is_restarted_once_and_the_answers_report_the_loss(
    channel: GuestChannel, interpreter: Interpreter
) -> None:
    others = [other for other in INTERPRETERS if other != interpreter]
    for each in INTERPRETERS:
        run(channel, each, HOLD[each])
    ran = run(channel, interpreter, DIES[interpreter])

    assert (137, False, False) == (ran.exit_code, ran.session_preserved, ran.restarted)
    assert f"{interpreter} ended during this run (signal 9" in ran.stderr
    ran = run(channel, interpreter, SAYS[interpreter].format(1))
    assert ("1\n", True, False) == (ran.stdout, ran.restarted, ran.session_preserved)
    assert "was restarted: its variables are lost. Files and the other interpreters are preserved." in ran.hint
    ran = run(channel, interpreter, SAYS[interpreter].format(2))
    assert (False, True, "") == (ran.restarted, ran.session_preserved, ran.hint)
    assert ["41\n", "41\n"] == [run(channel, other, SHOW[other]).stdout for other in others]


@pytest.mark.core
def test_an_interpreter_that_died_between_two_runs_is_detected_by_the_next(channel: GuestChannel) -> None:
    run(channel, "python", "held = 41")
    run(channel, "bash", f"kill -9 {channel.ping('n').workers['python'].pid}")
    until(lambda: channel.ping("n").workers["python"].pid == 0)
    ran = run(channel, "python", "'held' in globals()")

    assert ("False\n", True, False) == (ran.stdout, ran.restarted, ran.session_preserved)


@pytest.mark.core
def test_an_interpreter_that_was_reset_restarts_without_an_error(channel: GuestChannel) -> None:
    child = int(run(channel, "bash", "held=41; sleep 60 & echo $!").stdout)
    channel.reset("bash")
    ran = run(channel, "bash", "echo [$held]")

    assert ("[]\n", False, "") == (ran.stdout, ran.restarted, ran.hint)
    until(lambda: not lives(channel, child))


def test_a_reset_ends_the_run_which_reports_it(channel: GuestChannel) -> None:
    with ThreadPoolExecutor(1) as others:
        going = others.submit(
            run, channel, "python", "import signal; signal.signal(2, signal.SIG_IGN)\nwhile True: pass"
        )
        until(lambda: channel.ping("n").workers["python"].busy)
        channel.reset("python")
        ran = going.result()

    assert not ran.session_preserved
    assert "on request" in ran.hint
    assert not run(channel, "python", "1").restarted


def test_code_that_closes_the_answer_channel_ends_its_interpreter_and_the_answer_reports_it(
    channel: GuestChannel,
) -> None:
    ran = run(channel, "python", "import os; os.closerange(3, 1024)")

    assert not ran.session_preserved
    assert "closed its control channel" in ran.stderr
    assert "1\n" == run(channel, "python", "1").stdout


def test_output_of_a_program_that_replaced_the_interpreter_is_read_to_its_end(channel: GuestChannel) -> None:
    ran = run(channel, "python", "import os; os.execvp('bash', ['bash', '-c', 'echo instead; sleep 0.1; exit 6'])")

    assert ("instead\n", 6, False) == (ran.stdout, ran.exit_code, ran.session_preserved)


@pytest.mark.core
def test_a_variable_of_one_run_is_for_that_run_alone(channel: GuestChannel) -> None:
    code: dict[Interpreter, str] = {
        "python": "import os; print(os.environ.get('LENT'))",
        "bash": "echo ${LENT-None}; printenv LENT || :",
    }
    for interpreter, show in code.items():
        lent = channel.run(interpreter, show, timeout_s=20, variables={"LENT": "it's $x"})
        assert {"it's $x"} == set(lent.stdout.splitlines())
        assert "None\n" == run(channel, interpreter, show).stdout


def test_a_variable_of_one_run_is_restored_to_its_earlier_value(channel: GuestChannel) -> None:
    run(channel, "bash", "MINE=own; export SHOWN=own")
    run(channel, "python", "import os; os.environ['MINE'] = 'own'")
    for interpreter in ("python", "bash"):
        channel.run(interpreter, "1", timeout_s=20, variables={"MINE": "lent", "SHOWN": "lent"})

    assert "own own own\n" == run(channel, "bash", "echo $MINE $SHOWN $(printenv MINE SHOWN)").stdout
    assert "'own'\n" == run(channel, "python", "os.environ['MINE']").stdout


def test_a_variable_is_removed_also_after_an_interrupted_run(channel: GuestChannel) -> None:
    for interpreter in ("python", "bash"):
        channel.run(interpreter, SPINS[interpreter], timeout_s=0.1, variables={"LENT": "1"})

    assert "[]\n" == run(channel, "bash", "echo [$LENT]").stdout
    assert "False\n" == run(channel, "python", "import os; 'LENT' in os.environ").stdout


@pytest.mark.core
def test_output_streams_while_the_code_runs_and_no_character_is_cut(channel: GuestChannel) -> None:
    code = (
        "import os, time\nfor byte in 'aä€'.encode():\n    _ = os.write(1, bytes([byte])); time.sleep(0.005)\n"
        "while not os.path.exists('go'): time.sleep(0.01)"
    )
    heard: list[tuple[str, str]] = []

    def hear(stream: str, text: str) -> None:
        heard.append((stream, text))
        if "€" in text:
            run(channel, "bash", "touch go")

    ran = channel.run("python", code, timeout_s=20, on_output=hear)

    assert "aä€" == ran.stdout == "".join(text for _, text in heard)
    assert {"stdout"} == {stream for stream, _ in heard}


def test_two_hundred_megabytes_are_counted_and_not_kept(channel: GuestChannel) -> None:
    ran = run(channel, "bash", "head -c 200000000 /dev/zero")

    assert 200_000_000 - 256 * 1024 == ran.omitted
    assert len(ran.stdout) < 300_000


def test_endless_output_ends_with_its_time(channel: GuestChannel) -> None:
    heard = [0]

    def hear(_: str, text: str) -> None:
        heard[0] += len(text)

    ran = channel.run("bash", "held=41; yes", timeout_s=0.3, on_output=hear, cap=100)

    assert (124, True) == (ran.exit_code, ran.session_preserved)
    assert ran.omitted > 0
    assert heard[0] > 0
    assert "41\n" == run(channel, "bash", "echo $held").stdout


def test_an_interpreter_that_is_not_installed_is_an_error_answer_and_no_end() -> None:
    with running(PATH="/nowhere") as agent:
        channel = agent.channel()
        ran = run(channel, "node", "1")

        assert (125, True) == (ran.exit_code, ran.session_preserved)
        assert "node is not installed" in ran.stderr
        assert {
            "bash": "bash cannot do that: bash is not installed in this sandbox. Nothing was run."
        } == channel.prewarm(["bash"])
        assert "1\n" == run(channel, "python", "1").stdout
        channel.close()


def test_an_idle_guest_uses_no_processor() -> None:
    """No timer is left behind by a run, and no interpreter ticks."""
    with running() as agent:
        channel = agent.channel("analysis")
        for interpreter in INTERPRETERS:
            run(channel, interpreter, SAYS[interpreter].format(1))
        run(channel, "python", SPINS["python"], timeout_s=0.1)
        pids = [agent.process.pid, *(channel.ping("n").workers[name].pid for name in ("python", "bash"))]

        _REST.wait(0.2)
        before = switches(pids)
        _REST.wait(0.4)

        assert before == switches(pids)
        channel.close()


_REST = threading.Event()
"""Nobody sets it: here nothing is waited for, and that is what is looked at."""


def switches(pids: list[int]) -> list[int]:
    """How often each of *pids* was woken."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()]
    return [int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:")]


def test_its_end_also_ends_all_its_children() -> None:
    with running() as agent:
        channel = agent.channel()
        ran = run(channel, "bash", "sleep 60 & echo $! $$")
        pids = [*map(int, ran.stdout.split()), agent.process.pid]
        channel.shutdown()

        assert 0 == agent.process.wait(60)
        until(lambda: not any(map(alive, pids)))
        assert [] == [*(agent.folder / "tmp").iterdir()]


def test_sigterm_is_a_shutdown() -> None:
    with running() as agent:
        channel = agent.channel()
        pids = [*map(int, run(channel, "bash", "sleep 60 & echo $! $$").stdout.split())]
        agent.process.send_signal(signal.SIGTERM)

        assert 0 == agent.process.wait(60)
        until(lambda: not any(map(alive, pids)))
        channel.close()


def lives(channel: GuestChannel, pid: int) -> bool:
    """Whether there is a process *pid*, of the numbering inside."""
    ran = run(channel, "python", f"print(open('/proc/{pid}/stat', 'rb').read().rpartition(b')')[2].split()[0])")
    return "FileNotFoundError" not in ran.stderr and "Z" not in ran.stdout


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != b"Z"


# These take the two seconds that an interpreter has to react.


@pytest.mark.sandboxes
def test_a_slowly_starting_node_is_interrupted_once_the_code_starts_and_not_ended(tmp_path: Path) -> None:
    """Before that it hears no interrupt, and while a script begins an interrupt would end it."""
    (tmp_path / "slow.js").write_text("const until = Date.now() + 2500; while (Date.now() < until) {}")
    with running(NODE_OPTIONS=f"--require={tmp_path / 'slow.js'}") as agent:
        channel = agent.channel("analysis")
        ran = run(channel, "node", "var held = 41; while (true) {}", timeout_s=0.1)

        assert (124, True, True) == (ran.exit_code, ran.timed_out, ran.session_preserved)
        assert "41\n" == run(channel, "node", SHOW["node"]).stdout
        channel.close()


@pytest.mark.patient
@pytest.mark.parametrize(
    ("interpreter", "code"),
    [
        ("python", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"),
        ("python", "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [2])\nwhile True: pass"),
        ("python", "sum(range(10 ** 12))"),
        ("python", "while True:\n    try: while_true = [0 for _ in range(10 ** 9)]\n    except BaseException: pass"),
    ],
    ids=["ignores", "blocks", "in C", "catches"],
)
def test_code_that_ignores_an_interrupt_is_ended_and_reported_as_lost(
    channel: GuestChannel, interpreter: Interpreter, code: str
) -> None:
    hold(channel, interpreter)
    run(channel, "bash", HOLD["bash"])
    ran = run(channel, interpreter, code, timeout_s=0.2)

    assert (124, True, False) == (ran.exit_code, ran.timed_out, ran.session_preserved)
    assert f"It did not react to an interrupt, so {interpreter} was ended: its variables are lost." in ran.stderr
    ran = run(channel, interpreter, SAYS[interpreter].format(1))
    assert ("1\n", True) == (ran.stdout, ran.restarted)
    assert "its time limit expired" in ran.hint
    assert "41\n" == run(channel, "bash", SHOW["bash"]).stdout


@pytest.mark.patient
def test_a_shell_that_ignores_an_interrupt_is_ended_and_its_state_continues_in_the_next(channel: GuestChannel) -> None:
    run(channel, "bash", HOLD["bash"])
    ran = run(channel, "bash", "trap '' INT; sleep 60; echo never", timeout_s=0.2)

    assert (124, True, True) == (ran.exit_code, ran.timed_out, ran.session_preserved)
    assert "never" not in ran.stdout
    ran = run(channel, "bash", SHOW["bash"])
    assert ("41\n", True, True) == (ran.stdout, ran.restarted, ran.session_preserved)


@pytest.mark.patient
def test_a_shell_that_ignores_every_signal_is_killed_and_reported_as_lost(channel: GuestChannel) -> None:
    run(channel, "bash", HOLD["bash"])
    ran = run(channel, "bash", "trap '' INT HUP; while :; do :; done", timeout_s=0.2)

    assert (124, True, False) == (ran.exit_code, ran.timed_out, ran.session_preserved)
    assert "\n" == run(channel, "bash", SHOW["bash"]).stdout


@pytest.mark.patient
def test_an_interrupt_without_a_reaction_is_reported_and_loses_nothing(channel: GuestChannel) -> None:
    run(channel, "python", HOLD["python"])
    with ThreadPoolExecutor(1) as others:
        code = "import signal, time; signal.signal(2, signal.SIG_IGN); print('deaf'); time.sleep(3)"
        said: list[str] = []
        going = others.submit(channel.run, "python", code, timeout_s=20.0, on_output=lambda _, text: said.append(text))
        until(lambda: "deaf" in "".join(said))

        assert InterruptResult.NONE is channel.interrupt("python")
        assert (0, True) == (going.result().exit_code, going.result().session_preserved)
    still_holds(channel, "python")


@pytest.mark.patient
def test_the_time_of_a_pause_does_not_count(agent: Agent, channel: GuestChannel) -> None:
    with ThreadPoolExecutor(1) as others:
        going = others.submit(run, channel, "bash", "sleep 1; echo done", 2.0)
        until(lambda: channel.ping("n").workers["bash"].busy)
        agent.freeze()
        channel.is_asleep = True
        _REST.wait(4)
        agent.thaw()
        channel.is_asleep = False

        assert ("done\n", False) == (going.result().stdout, going.result().timed_out)
