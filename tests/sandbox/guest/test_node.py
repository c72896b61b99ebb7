"""The node of a sandbox: one realm whose top-level names last, and may be declared again."""

import shutil
from collections.abc import Iterator

import pytest

from kasmon.model.sandbox.policy import RunResult
from kasmon.sandbox.guest_client.channel import GuestChannel
from tests.support.sandbox.guest_agent import Agent

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture(scope="module")
def channel(agent: Agent) -> Iterator[GuestChannel]:
    channel = agent.channel()
    yield channel
    channel.close()


def node(channel: GuestChannel, code: str, timeout_s: float = 20.0) -> RunResult:
    return channel.run("node", code, timeout_s=timeout_s)


@pytest.mark.core
def test_names_persist_between_runs_and_may_be_declared_again(channel: GuestChannel) -> None:
    node(channel, "let x = 1; const y = 2; class A { z() { return 3 } }; function f() { return 4 }")

    assert "10\n" == node(channel, "x + y + new A().z() + f()").stdout
    assert "9\n" == node(channel, "const y = 9; y").stdout
    assert "5\n" == node(channel, "class A { z() { return 5 } }\nnew A().z()").stdout


@pytest.mark.core
def test_await_is_allowed_at_the_top_level(channel: GuestChannel) -> None:
    """It rests on node's own rewriting, which is not a public interface: this is where a new version would show."""
    assert "7\n" == node(channel, "const late = await new Promise(done => setTimeout(() => done(7), 5)); late").stdout
    assert "7\n" == node(channel, "late").stdout
    assert "'function'\n" == node(channel, "const { readFile } = await import('fs/promises'); typeof readFile").stdout


def test_the_value_of_a_last_expression_is_shown(channel: GuestChannel) -> None:
    assert "{ a: [ 1, 2 ] }\n" == node(channel, "{ a: [1, 2] }").stdout
    assert "" == node(channel, "undefined").stdout


def test_an_error_shows_its_line_and_no_internals(channel: GuestChannel) -> None:
    ran = node(channel, "let fine = 1\nthrow new RangeError('no')")

    assert (1, True) == (ran.exit_code, ran.session_preserved)
    assert f"[node #{ran.turn}]:2" in ran.stderr
    assert "RangeError: no" in ran.stderr
    assert "nodeworker" not in ran.stderr
    assert "1\n" == node(channel, "fine").stdout


def test_wrong_syntax_is_an_error_that_ends_nothing_and_stdout_and_stderr_are_whole(channel: GuestChannel) -> None:
    assert "SyntaxError" in node(channel, "let = = 1").stderr
    assert "SyntaxError" in node(channel, "a\0b").stderr

    ran = channel.run("node", "console.log('x'.repeat(3_000_000)); console.error('err')", timeout_s=20, cap=1000)
    assert ("err\n", 3_000_001 - 1000) == (ran.stderr, ran.omitted)


@pytest.mark.parametrize(
    "closing",
    [
        "require('fs').closeSync(1)",
        "process.stdout.end(); process.stderr.destroy()",
        "require('fs').closeSync(1); require('fs').openSync('/dev/null', 'r')",
    ],
    ids=["files", "streams", "another file"],
)
def test_code_that_closes_its_output_has_output_in_the_next_run(channel: GuestChannel, closing: str) -> None:
    node(channel, f"var mended = 1; {closing}")
    ran = node(channel, "console.log('seen'); console.error('heard'); mended")

    assert ("seen\n1\n", "heard\n", True) == (ran.stdout, ran.stderr, ran.session_preserved)


def test_exit_ends_it_and_the_next_run_reports_that(channel: GuestChannel) -> None:
    node(channel, "var dear = 1")
    ran = node(channel, "process.exit(4)")

    assert (4, False) == (ran.exit_code, ran.session_preserved)
    ran = node(channel, "typeof dear")
    assert ("'undefined'\n", True, False) == (ran.stdout, ran.restarted, ran.session_preserved)


def test_an_error_in_the_background_ends_nothing(channel: GuestChannel) -> None:
    first = node(channel, "var counted = 0; setTimeout(() => { counted++; throw new Error('later') }, 1)")
    ran = node(channel, "await new Promise(done => setTimeout(done, 20)); counted")

    assert "1\n" == ran.stdout
    assert "later" in first.stderr + ran.stderr + ran.background


@pytest.mark.core
def test_an_interrupt_by_its_time_limit_keeps_the_state(channel: GuestChannel) -> None:
    node(channel, "var kept = 1")
    for code in ("while (true) {}", "await new Promise(() => {})"):
        ran = node(channel, code, timeout_s=0.1)
        assert (124, True, True) == (ran.exit_code, ran.timed_out, ran.session_preserved)

    assert "1\n" == node(channel, "kept").stdout


def test_a_variable_of_one_run_is_gone_after_it(channel: GuestChannel) -> None:
    assert "'v'\n" == channel.run("node", "process.env.LENT", timeout_s=20, variables={"LENT": "v"}).stdout
    assert "" == node(channel, "process.env.LENT").stdout
