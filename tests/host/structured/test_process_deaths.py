"""Structured sessions as real processes: dashboards and hosts die, agents and facts do not."""

import asyncio
import resource
import signal
import subprocess
import sys

import pytest

from kasmon.errors import RequestClosedError
from kasmon.host.rpc.client import HostLink
from kasmon.host.structured.host import main
from kasmon.model.commands import Answer, Mode, Stop
from kasmon.model.events import MessageWritten, RequestAnswered, RequestOpened, SessionEnded, SessionStarted, TurnEnded
from kasmon.model.permission import Decision, Request
from kasmon.model.session_state import SessionState
from tests.support.host.env import ME, Env, do, prompt
from tests.support.wait import auntil, until

pytestmark = pytest.mark.story

CLIENT = """
import asyncio, sys
from pathlib import Path
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import Watch
from kasmon.model.permission import SessionId

async def main() -> None:
    link = await HostLink.open(Path(sys.argv[1]))
    link.on_push = lambda frame: print("pushed", flush=True)
    link.send(Watch(session=SessionId(sys.argv[2])))
    print("watches", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def said(env: Env) -> list[str]:
    return [fact.text for fact in env.only(MessageWritten)]


def answer(request: Request, decision: Decision = Decision.ALLOW) -> Answer:
    return Answer(request=request.id, digest=request.digest, decision=decision)


async def test_a_client_that_is_killed_leaves_the_agent_at_work(env: Env) -> None:
    env.wants(speed=1.0)
    host = env.start()
    link = await env.linked()
    command = [sys.executable, "-P", "-c", CLIENT, str(env.paths.socket(ME)), ME]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None
            assert b"watches\n" == await asyncio.to_thread(client.stdout.readline)
            await prompt(link, "say one two three four five\nask make test\nsay done")
            assert b"pushed\n" == await asyncio.to_thread(client.stdout.readline)
        finally:
            client.kill()  # also where it said nothing: whoever reads it waits for its end
    (request,) = await auntil(lambda: env.session().requests)
    await do(link, answer(request))
    await auntil(lambda: env.only(TurnEnded))
    await link.aclose()

    assert ["one two three four five", "done"] == said(env)
    assert host.poll() is None


async def test_a_killed_host_is_replaced_with_the_next_generation_and_its_queue(env: Env) -> None:
    env.wants(prompt="say one\nask make test\nsay never said")
    first = env.start()
    (request,) = await auntil(lambda: env.session().requests)
    link = await env.linked()
    for text in ("say two", "say three"):
        assert "queued" == await prompt(link, text, when="idle")
    first.kill()
    first.wait(60)
    await link.aclose()
    assert env.pid() is None
    assert [] == env.only(SessionEnded)

    env.start()
    await auntil(lambda: said(env) == ["one", "two", "three"])
    await auntil(lambda: env.session().state is SessionState.IDLE)
    assert [1, 2] == [start.generation for start in env.only(SessionStarted)]
    assert ["lost", "finished", "finished"] == [str(receipt.state) for receipt in env.session().receipts]
    link = await env.linked()
    with pytest.raises(RequestClosedError):
        await do(link, answer(request))
    await link.aclose()


async def test_two_users_answer_one_request_and_exactly_one_answer_is_accepted(env: Env) -> None:
    """A hundred races between two connections to a real host."""
    env.wants(prompt="\n".join(f"ask make {n}" for n in range(100)))
    env.start()
    links = [await env.linked(), await env.linked()]
    for n in range(100):
        request = await auntil(lambda n=n: _open(env, n))  # type: ignore[misc]
        wishes = [answer(request, Decision.ALLOW), answer(request, Decision.DENY)]
        outcomes = await asyncio.gather(
            *(do(link, wish) for link, wish in zip(links, wishes, strict=True)), return_exceptions=True
        )
        assert [RequestClosedError] == [type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]
    await auntil(lambda: env.only(TurnEnded))
    for link in links:
        await link.aclose()

    answered = [fact.request for fact in env.only(RequestAnswered)]
    assert [fact.request.id for fact in env.only(RequestOpened)] == answered
    assert 100 == len(set(answered))


def _open(env: Env, n: int) -> Request | None:
    asks = env.session().requests
    return asks[0] if asks and asks[0].title == f"make {n}" else None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_host_that_is_ended_ends_its_agent_and_leaves_no_process(env: Env, number: signal.Signals) -> None:
    env.wants(prompt="hang")
    host = env.start()
    until(lambda: env.session().state is SessionState.WORKING)
    host.send_signal(number)

    assert 0 == host.wait(20)
    assert f"its host got {number.name}" == env.session().end_why
    assert not env.paths.socket(ME).exists()
    assert env.pid() is None


async def test_a_stopped_session_has_ended_without_a_crash_and_its_host_is_gone(env: Env) -> None:
    env.wants(prompt="hang")
    host = env.start()
    link = await env.linked()
    await do(link, Stop())
    await link.aclose()

    assert 0 == await asyncio.to_thread(host.wait, 20)
    assert (SessionState.ENDED, True, False) == (env.session().state, env.session().stopped, env.session().crashed)


def test_a_second_host_leaves_the_first_alone(env: Env) -> None:
    env.wants()
    env.start()
    until(lambda: env.only(SessionStarted))
    second = env.start()

    assert 0 == second.wait(20)
    assert 1 == len(env.only(SessionStarted))


def test_a_missing_backend_ends_the_session_with_the_reason(env: Env) -> None:
    env.wants(backend="no-such-backend")
    host = env.start()

    assert 1 == host.wait(20)
    assert "unknown backend 'no-such-backend'" in env.session().end_why
    assert SessionState.ENDED is env.session().state


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"session":"abcdefgh"}', b"\xff\xfe"], ids=["empty", "torn", "little", "garbage"]
)
def test_an_unreadable_launch_ends_the_session_with_the_reason(env: Env, content: bytes) -> None:
    env.paths.folder(ME).mkdir()
    env.paths.launch(ME).write_bytes(content)
    host = env.start()

    assert 1 == host.wait(20)
    (end,) = env.only(SessionEnded)
    assert "launch.json" in end.why


def test_a_terminal_session_is_not_hosted_here(env: Env) -> None:
    env.wants(mode=Mode.TMUX, backend="tmux")
    host = env.start()

    assert 1 == host.wait(20)
    assert "tmux host" in env.session().end_why


@pytest.mark.parametrize("argv", ["", "a b", "../evil", "UPPER", "a --since x", "a --since", "a -h"])
def test_a_host_needs_one_session(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(argv.split())
    assert "one session" in capsys.readouterr().err


def test_a_host_of_a_missing_session_reports_that(env: Env) -> None:
    command = [sys.executable, "-P", "-m", "kasmon", "host", "nobodyyy"]
    done = subprocess.run(command, env=env.environment, capture_output=True, text=True, timeout=30)

    assert 3 == done.returncode
    assert "'nobodyyy'" in done.stderr
    assert not env.paths.folder("nobodyyy").exists()


def test_every_file_of_a_host_is_private(env: Env) -> None:
    env.wants(prompt="say hello")
    env.start()
    until(lambda: said(env))
    made = [path for top in (env.paths.state, env.paths.runtime) for path in top.rglob("*")]

    assert env.paths.socket(ME) in made
    assert {} == {path: oct(path.stat().st_mode) for path in made if path.stat().st_mode & 0o077}


FULL_DISK = """
import resource, sys
from kasmon.host.structured.host import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
sys.exit(main([sys.argv[1]]))
"""


async def test_on_a_full_disk_the_host_continues_and_writes_its_events_later(env: Env) -> None:
    """The disk is a real limit on the size of its files, lifted from outside."""
    lines = [f"say line {n} of many" for n in range(60)]
    env.wants(prompt="\n".join(lines))
    command = [sys.executable, "-P", "-c", FULL_DISK, ME, "6000"]
    host = subprocess.Popen(command, env=env.environment, stderr=subprocess.DEVNULL)
    env.processes.append(host)
    log = env.paths.log(ME)
    await auntil(lambda: log.exists() and 6000 - 300 < log.stat().st_size <= 6000)  # no line of it is longer
    link = await env.linked()
    assert isinstance(link, HostLink)
    assert len(said(env)) < 60
    _lift_limit(host.pid)
    await auntil(lambda: env.only(TurnEnded))
    await link.aclose()

    assert [line.removeprefix("say ") for line in lines] == said(env)


def _lift_limit(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
