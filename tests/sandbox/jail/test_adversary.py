"""What people, code and bad luck do to sandboxes: several wishes at once, odd names, code that ends everything."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kasmon.sandbox.jail.jail import Jail
from tests.support.cli.cli_runner import Cli, Done
from tests.support.cli.fork_server import ForkServer
from tests.support.sandbox.requirements import closed
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes


@pytest.fixture
def kasmon(can_jail: None, fork_server: ForkServer) -> Iterator[Cli]:
    line = Cli(fork_server)
    yield line
    closed(line)


def at_once(kasmon: Cli, *wishes: tuple[str, ...]) -> list[Done]:
    """What came of *wishes*, each the words behind `kasmon sandbox`, of which none waits for another."""
    line, together = Cli(), threading.Barrier(len(wishes))
    line.environment = kasmon.environment

    def wish(words: tuple[str, ...]) -> Done:
        together.wait()
        return line("sandbox", *words)

    try:
        with ThreadPoolExecutor(len(wishes)) as pool:
            return list(pool.map(wish, wishes))
    finally:
        line.close()


def test_of_two_simultaneous_creators_of_one_name_one_gets_an_error(kasmon: Cli) -> None:
    assert [0, 4] == sorted(done.code for done in at_once(kasmon, ("create", "lab"), ("create", "lab")))
    assert 1 == len(kasmon.json("sandbox", "ls")["sandboxes"])
    assert "on\n" == kasmon("sandbox", "run", "lab", "echo on").out


def test_simultaneous_commands_are_executed_one_after_the_other_and_each_code_once(kasmon: Cli) -> None:
    kasmon("sandbox", "create", "lab")
    kasmon("sandbox", "run", "lab", "--env", "python", "x = 40")

    counts = ("run", "lab", "--env", "python", "x += 1")
    done = at_once(kasmon, counts, ("pause", "lab"), counts, ("checkpoint", "lab"), ("resume", "lab"))

    assert [(0, "")] * 5 == [(each.code, each.err) for each in done]
    assert "42\n" == kasmon("sandbox", "run", "lab", "--env", "python", "print(x)").out


def test_a_simultaneous_removal_of_all_leaves_nothing_and_waiting_callers_get_an_error(kasmon: Cli) -> None:
    kasmon("sandbox", "create", "lab")
    [lab] = kasmon.json("sandbox", "ls")["sandboxes"]
    log = kasmon.paths.log(lab["id"])
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(at_once, kasmon, *(("run", "lab", "--env", env, "sleep 60") for env in ("bash", "bash")))
        until(lambda: b"tool.started" in log.read_bytes())

        removed = kasmon("sandbox", "rm", "--all")

        assert (0, "") == (removed.code, removed.err)
        assert all(done.code and done.err for done in running.result(30))
    assert not Jail(kasmon.paths).host_folders.base.exists()
    until(lambda: not any(path.is_socket() for path in kasmon.paths.runtime.iterdir()), what="the fork server's end")


@pytest.mark.parametrize("name", ["../../lab", "."])
def test_a_name_that_looks_like_a_path_is_a_name(kasmon: Cli, name: str) -> None:
    assert 0 == kasmon("sandbox", "create", name).code
    [found] = kasmon.json("sandbox", "ls")["sandboxes"]

    assert name == found["name"]
    assert "/workspace\n" == kasmon("sandbox", "run", name, "pwd; touch here").out
    assert {found["id"]} == {path.name for path in kasmon.paths.sessions.iterdir()}


@pytest.mark.parametrize(
    ("code", "said", "kept"),
    [
        ("kill -9 -1", "it was not run again", ""),
        ("kill -9 $PPID; sleep 20", "it was not run again", ""),
        ("kill -9 $$", "bash ended during this run", "42"),
        ("exec >&- 2>&-", "", "42"),
        ("setsid sleep 1000 & setsid sleep 1000 >&- 2>&- & true", "", "42"),
    ],
    ids=["kills all", "kills the agent", "kills its shell", "closes its output", "leaves daemons"],
)
def test_after_any_code_the_next_run_is_answered_with_the_kept_state(
    kasmon: Cli, code: str, said: str, kept: str
) -> None:
    kasmon("sandbox", "create", "lab")
    kasmon("sandbox", "run", "lab", "--env", "python", "x = 42; open('file', 'w').write('whole')")

    done = kasmon("sandbox", "run", "lab", code)
    then = kasmon("sandbox", "run", "lab", "--env", "python", "print(globals().get('x', ''), open('file').read())")

    assert said in done.err
    assert then.out in ("42 whole\n", f"{kept} whole\n")
    assert then.out == "42 whole\n" or "interpreter state lost" in done.err + then.err
    assert "whole" == kasmon("sandbox", "run", "lab", "cat file").out
