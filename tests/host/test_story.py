"""Structured sessions as real processes: dashboards and hosts die, agents and facts do not."""

import asyncio
import resource
import signal
import subprocess
import sys

import pytest

from kasmon.errors import RequestClosedError
from kasmon.host.rpc.connect import HostLink
from kasmon.host.structured.host import main
from kasmon.model.commands import Answer, Mode, Stop
from kasmon.model.events import MessageWritten, RequestAnswered, RequestOpened, SessionEnded, SessionStarted, TurnEnded
from kasmon.model.permission import Decision, Request
from kasmon.model.session_state import SessionState
from tests.host.house import ME, House, do, prompt
from tests.waiting import auntil, until

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
    link.tell(Watch(session=SessionId(sys.argv[2])))
    print("watches", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def said(house: House) -> list[str]:
    return [fact.text for fact in house.only(MessageWritten)]


def answer(request: Request, decision: Decision = Decision.ALLOW) -> Answer:
    return Answer(request=request.id, digest=request.digest, decision=decision)


async def test_a_client_that_is_killed_leaves_the_agent_at_work(house: House) -> None:
    house.wants(speed=1.0)
    host = house.start()
    link = await house.linked()
    command = [sys.executable, "-P", "-c", CLIENT, str(house.places.socket(ME)), ME]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None
            assert b"watches\n" == await asyncio.to_thread(client.stdout.readline)
            await prompt(link, "say one two three four five\nask make test\nsay done")
            assert b"pushed\n" == await asyncio.to_thread(client.stdout.readline)
        finally:
            client.kill()  # also where it said nothing: whoever reads it waits for its end
    (request,) = await auntil(lambda: house.session().asks)
    await do(link, answer(request))
    await auntil(lambda: house.only(TurnEnded))
    await link.aclose()

    assert ["one two three four five", "done"] == said(house)
    assert host.poll() is None


async def test_a_host_that_is_killed_comes_back_with_the_next_generation_and_its_queue(house: House) -> None:
    house.wants(prompt="say one\nask make test\nsay never said")
    first = house.start()
    (request,) = await auntil(lambda: house.session().asks)
    link = await house.linked()
    for text in ("say two", "say three"):
        assert "queued" == await prompt(link, text, when="idle")
    first.kill()
    first.wait(10)
    await link.aclose()
    assert house.pid() is None
    assert [] == house.only(SessionEnded)

    house.start()
    await auntil(lambda: said(house) == ["one", "two", "three"])
    await auntil(lambda: house.session().state is SessionState.IDLE)
    assert [1, 2] == [start.generation for start in house.only(SessionStarted)]
    assert ["lost", "finished", "finished"] == [str(receipt.state) for receipt in house.session().receipts]
    link = await house.linked()
    with pytest.raises(RequestClosedError):
        await do(link, answer(request))
    await link.aclose()


async def test_two_people_answer_one_request_and_exactly_one_is_heard(house: House) -> None:
    """A hundred races between two connections to a real host."""
    house.wants(prompt="\n".join(f"ask make {n}" for n in range(100)))
    house.start()
    links = [await house.linked(), await house.linked()]
    for n in range(100):
        request = await auntil(lambda n=n: _open(house, n))  # type: ignore[misc]
        wishes = [answer(request, Decision.ALLOW), answer(request, Decision.DENY)]
        outcomes = await asyncio.gather(
            *(do(link, wish) for link, wish in zip(links, wishes, strict=True)), return_exceptions=True
        )
        assert [RequestClosedError] == [type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]
    await auntil(lambda: house.only(TurnEnded))
    for link in links:
        await link.aclose()

    answered = [fact.request for fact in house.only(RequestAnswered)]
    assert [fact.request.id for fact in house.only(RequestOpened)] == answered
    assert 100 == len(set(answered))


def _open(house: House, n: int) -> Request | None:
    asks = house.session().asks
    return asks[0] if asks and asks[0].title == f"make {n}" else None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_host_that_is_told_to_end_ends_its_agent_and_leaves_nothing(house: House, number: signal.Signals) -> None:
    house.wants(prompt="hang")
    host = house.start()
    until(lambda: house.session().state is SessionState.WORKING)
    host.send_signal(number)

    assert 0 == host.wait(20)
    assert f"its host got {number.name}" == house.session().end_why
    assert not house.places.socket(ME).exists()
    assert house.pid() is None


async def test_a_stopped_session_has_ended_without_a_crash_and_its_host_is_gone(house: House) -> None:
    house.wants(prompt="hang")
    host = house.start()
    link = await house.linked()
    await do(link, Stop())
    await link.aclose()

    assert 0 == await asyncio.to_thread(host.wait, 20)
    assert (SessionState.ENDED, True, False) == (
        house.session().state,
        house.session().stopped,
        house.session().crashed,
    )


def test_a_second_host_leaves_the_first_alone(house: House) -> None:
    house.wants()
    house.start()
    until(lambda: house.only(SessionStarted))
    second = house.start()

    assert 0 == second.wait(20)
    assert 1 == len(house.only(SessionStarted))


def test_a_backend_that_is_not_installed_ends_the_session_with_the_reason(house: House) -> None:
    house.wants(backend="no-such-backend")
    host = house.start()

    assert 1 == host.wait(20)
    assert "unknown backend 'no-such-backend'" in house.session().end_why
    assert SessionState.ENDED is house.session().state


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"session":"abcdefgh"}', b"\xff\xfe"], ids=["empty", "torn", "little", "garbage"]
)
def test_a_launch_that_cannot_be_read_ends_the_session_with_the_reason(house: House, content: bytes) -> None:
    house.places.folder(ME).mkdir()
    house.places.launch(ME).write_bytes(content)
    host = house.start()

    assert 1 == host.wait(20)
    (end,) = house.only(SessionEnded)
    assert "launch.json" in end.why


def test_a_terminal_session_is_not_hosted_here(house: House) -> None:
    house.wants(mode=Mode.TMUX, backend="tmux")
    host = house.start()

    assert 1 == host.wait(20)
    assert "tmux host" in house.session().end_why


@pytest.mark.parametrize("argv", ["", "a b", "../evil", "UPPER", "a --since x", "a --since", "a -h"])
def test_a_host_needs_one_session(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(argv.split())
    assert "one session" in capsys.readouterr().err


def test_a_host_of_a_session_that_is_not_there_says_so(house: House) -> None:
    command = [sys.executable, "-P", "-m", "kasmon", "host", "nobodyyy"]
    done = subprocess.run(command, env=house.environment, capture_output=True, text=True, timeout=30)

    assert 3 == done.returncode
    assert "'nobodyyy'" in done.stderr
    assert not house.places.folder("nobodyyy").exists()


def test_everything_a_host_makes_is_private(house: House) -> None:
    house.wants(prompt="say hello")
    house.start()
    until(lambda: said(house))
    made = [path for top in (house.places.state, house.places.runtime) for path in top.rglob("*")]

    assert house.places.socket(ME) in made
    assert {} == {path: oct(path.stat().st_mode) for path in made if path.stat().st_mode & 0o077}


FULL_DISK = """
import resource, sys
from kasmon.host.structured.host import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
sys.exit(main([sys.argv[1]]))
"""


async def test_over_a_full_disk_the_host_works_on_and_writes_all_of_it_later(house: House) -> None:
    """The disk is a real limit on the size of its files, lifted from outside."""
    lines = [f"say line {n} of many" for n in range(60)]
    house.wants(prompt="\n".join(lines))
    command = [sys.executable, "-P", "-c", FULL_DISK, ME, "6000"]
    host = subprocess.Popen(command, env=house.environment, stderr=subprocess.DEVNULL)
    house.processes.append(host)
    log = house.places.log(ME)
    await auntil(lambda: log.exists() and 6000 - 300 < log.stat().st_size <= 6000)  # no line of it is longer
    link = await house.linked()
    assert isinstance(link, HostLink)
    assert len(said(house)) < 60
    _lift_limit(host.pid)
    await auntil(lambda: house.only(TurnEnded), 20)
    await link.aclose()

    assert [line.removeprefix("say ") for line in lines] == said(house)


def _lift_limit(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
