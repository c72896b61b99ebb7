"""The line between a host and its clients: real sockets, both ends in this process."""

import asyncio
import contextlib
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon import errors
from kasmon.host.rpc import frames, server
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.codec import FRAME_BYTES, Unpacker, decode_client_frame, from_host, pack
from kasmon.host.rpc.server import ClientConnection, HostServer
from kasmon.model import commands as command
from kasmon.model.permission import Decision, RequestId
from tests.support.host.env import ME, Env
from tests.support.wait import auntil

Answer = Callable[[ClientConnection, frames.FromClient], Awaitable[frames.Frame | None] | frames.Frame | None]


class Line:
    """A server whose answers the test decides."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heard: list[frames.FromClient] = []
        self.lost: list[ClientConnection] = []
        self.connections: list[ClientConnection] = []
        self.answer: Answer = lambda connection, frame: None
        self.server = HostServer(path, self._receive, self.lost.append)

    def _receive(
        self, connection: ClientConnection, frame: frames.FromClient
    ) -> Awaitable[frames.Frame | None] | frames.Frame | None:
        if isinstance(frame, frames.Hello):
            self.connections.append(connection)
            return None
        self.heard.append(frame)
        return self.answer(connection, frame)


@pytest.fixture
async def line(env: Env) -> AsyncIterator[Line]:
    made = Line(env.paths.runtime / "test.sock")
    await made.server.start()
    yield made
    await made.server.aclose()


def keys(data: bytes) -> frames.SendKeys:
    return frames.SendKeys(session=ME, data=data)


def deep(levels: int) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for _ in range(levels):
        nested = {"deeper": nested}
    return nested


def pushed(text: str) -> frames.TextDelta:
    return frames.TextDelta(session=ME, text=text)


# Letting in


async def test_a_client_is_greeted_with_the_hosts_pid(line: Line) -> None:
    link = await HostLink.open(line.path)

    assert (os.getpid(), frames.VERSION) == (link.welcome.pid, link.welcome.version)


async def test_a_host_may_send_its_own_greeting(env: Env) -> None:
    def receive(connection: ClientConnection, frame: frames.FromClient) -> frames.Frame | None:
        return frames.Welcome(n=frame.n, pid=7, tmux="3.3a") if isinstance(frame, frames.Hello) else None

    server = HostServer(env.paths.runtime / "test.sock", receive, lambda connection: None)
    await server.start()
    link = await HostLink.open(env.paths.runtime / "test.sock")
    await server.aclose()

    assert "3.3a" == link.welcome.tmux


async def test_the_time_limit_of_an_answer_is_that_of_the_host(env: Env) -> None:
    def receive(connection: ClientConnection, frame: frames.FromClient) -> frames.Frame | None:
        return frames.Welcome(n=frame.n, pid=7, answer_s=0.05) if isinstance(frame, frames.Hello) else None

    server = HostServer(env.paths.runtime / "test.sock", receive, lambda connection: None)
    await server.start()
    link = await HostLink.open(env.paths.runtime / "test.sock")
    with pytest.raises(errors.TimedOutError, match=r"within 0\.05 s"):
        await link.ask(frames.Quit(n=0))
    await server.aclose()


async def test_only_its_user_can_reach_the_socket(line: Line) -> None:
    assert 0o600 == stat.S_IMODE(line.path.stat().st_mode)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_bind_leaves_no_socket(env: Env, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    path, bind, bound, goes_on = env.paths.runtime / "test.sock", server.bind, list[socket.socket](), threading.Event()

    def bind_slowly(path: Path) -> socket.socket:
        bound.append(bind(path))
        goes_on.wait()
        return bound[0]

    monkeypatch.setattr(server, "bind", bind_slowly)
    starting = asyncio.create_task(Line(path).server.start())
    await auntil(lambda: bound)
    for _ in range(times):
        starting.cancel()
        await asyncio.sleep(0)
    goes_on.set()
    await asyncio.wait([starting])

    assert (True, -1, False) == (starting.cancelled(), bound[0].fileno(), path.exists())


async def test_binding_leaves_the_umask_as_it_was(env: Env) -> None:
    before = os.umask(0o027)
    try:
        made = Line(env.paths.runtime / "other.sock")
        await made.server.start()
        await made.server.aclose()

        assert 0o027 == os.umask(0o027)
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_users_process_is_refused(line: Line) -> None:
    """Even where it gets to the socket."""
    for folder in line.path.parents[:3]:
        if folder != Path("/tmp"):
            folder.chmod(0o755)
    line.path.chmod(0o666)
    said = await asyncio.to_thread(_as_nobody, line.path)

    assert "hung up" == said
    assert [] == line.connections


def _as_nobody(path: Path) -> str:
    program = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
line.settimeout(20)
try:
    line.sendall(bytes.fromhex(sys.argv[2]))
    print("heard" if line.recv(100) else "hung up")
except (BrokenPipeError, ConnectionResetError):
    print("hung up")
"""
    hello = pack(frames.Hello(n=1)).hex()
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    command = [python, "-I", "-c", program, str(path), hello]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


async def test_a_client_of_another_version_gets_an_error(line: Line) -> None:
    answer = await _raw(line.path, pack(frames.Hello(n=1, version=frames.VERSION + 1)))

    assert isinstance(answer, frames.FailureReply)
    assert f"version {frames.VERSION}" in answer.message
    assert str(frames.VERSION + 1) in answer.message
    assert [] == line.connections


async def test_a_client_without_a_greeting_is_disconnected(line: Line) -> None:
    assert await _raw(line.path, pack(keys(b"x"))) is None
    assert [] == line.heard


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", struct.pack(">I", 3) + b"\xc1\xc1\xc1"], ids=repr
)
async def test_a_client_with_another_protocol_is_disconnected(line: Line, garbage: bytes) -> None:
    assert await _raw(line.path, pack(frames.Hello(n=1)) + garbage) == frames.Welcome(
        n=1, pid=os.getpid(), kasmon="0.1.0"
    )
    await auntil(lambda: line.lost)
    assert (await HostLink.open(line.path)).is_open


async def test_a_numbered_frame_of_a_later_version_gets_a_refusal(line: Line) -> None:
    later = msgspec.msgpack.encode({"t": "teleport", "n": 5})
    answers = await _raw_all(
        line.path, pack(frames.Hello(n=1)) + struct.pack(">I", len(later)) + later + pack(frames.Quit(n=6)), 2
    )

    assert isinstance(answers[1], frames.FailureReply)
    assert (5, 4) == (answers[1].n, answers[1].exit_code)


async def test_a_stale_socket_is_replaced(env: Env) -> None:
    """Its host was killed; whoever starts a server holds the lock."""
    path = env.paths.runtime / "test.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    made = Line(path)
    await made.server.start()

    assert (await HostLink.open(path)).is_open
    await made.server.aclose()
    assert not path.exists()


# Questions and answers


async def test_a_frame_that_arrives_byte_by_byte_is_read_whole(line: Line) -> None:
    reader, writer = await asyncio.open_unix_connection(line.path)
    for byte in pack(frames.Hello(n=1)) + pack(keys(b"hello")):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    await auntil(lambda: line.heard)
    writer.close()

    assert [keys(b"hello")] == line.heard
    assert await reader.read(1)


async def test_each_request_gets_its_own_answer_in_any_order(line: Line) -> None:
    gates = [asyncio.Event() for _ in range(20)]

    async def late(n: int) -> frames.CommandResult:
        await gates[n - 2].wait()
        return frames.CommandResult(n=n)

    line.answer = lambda connection, frame: late(frame.n) if isinstance(frame, frames.Quit) else None
    link = await HostLink.open(line.path)
    asking = [asyncio.create_task(link.ask(frames.Quit(n=0))) for _ in gates]
    await auntil(lambda: len(line.heard) == len(gates))
    for gate in reversed(gates):
        gate.set()
    answers = await asyncio.gather(*asking)

    assert list(range(2, 22)) == [answer.n for answer in answers if isinstance(answer, frames.CommandResult)]


@pytest.mark.parametrize("beside", [False, True], ids=["at once", "beside"])
async def test_an_error_of_ours_arrives_as_the_error_it_was(line: Line, beside: bool) -> None:
    def refuse() -> frames.Frame:
        raise errors.RequestClosedError("x-1", "user answered deny")

    async def refuse_late() -> frames.Frame:
        return refuse()

    line.answer = lambda connection, frame: refuse_late() if beside else refuse()
    with pytest.raises(errors.RequestClosedError) as error:
        await (await HostLink.open(line.path)).ask(frames.DescribePane(n=0, session=ME))

    assert ("x-1", "user answered deny", "Nothing was sent.") == (
        error.value.request,
        error.value.how,
        error.value.hint,
    )


@pytest.mark.parametrize("beside", [False, True], ids=["at once", "beside"])
async def test_a_bug_in_the_host_is_an_error_for_one_client_and_no_end_for_others(
    line: Line, beside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> frames.Frame:
        raise ZeroDivisionError("oh")

    async def fail_late() -> frames.Frame:
        return fail()

    line.answer = lambda connection, frame: fail_late() if beside else fail()
    link = await HostLink.open(line.path)
    with pytest.raises(errors.KasmonError, match="ZeroDivisionError"):
        await link.ask(frames.DescribePane(n=0, session=ME))
    link.send(keys(b"x"))
    await auntil(lambda: len(line.heard) == 2)

    assert link.is_open
    assert "ZeroDivisionError" in caplog.text


async def test_a_request_without_an_answer_in_time_is_reported_as_unknown(line: Line) -> None:
    link = await HostLink.open(line.path)
    with pytest.raises(errors.TimedOutError, match="unknown"):
        await link.ask(frames.Quit(n=0), limit_s=0.05)
    line.answer = lambda connection, frame: frames.CommandResult(n=frame.n) if isinstance(frame, frames.Quit) else None

    assert isinstance(await link.ask(frames.Quit(n=0)), frames.CommandResult)


async def test_a_host_that_exits_answers_no_client(line: Line) -> None:
    link = await HostLink.open(line.path)
    closed: list[bool] = []
    link.on_close = lambda: closed.append(True)
    asking = asyncio.create_task(link.ask(frames.Quit(n=0)))
    await auntil(lambda: line.heard)
    line.connections[0].abort()
    with pytest.raises(errors.HostUnreachableError, match="unknown"):
        await asking
    with pytest.raises(errors.HostUnreachableError):
        await link.ask(frames.Quit(n=0))
    link.send(keys(b"nobody hears this"))
    await link.aclose()

    assert [True] == closed


async def test_a_callback_added_after_the_disconnect_is_called_too(line: Line) -> None:
    link = await HostLink.open(line.path)
    line.connections[0].abort()
    await auntil(lambda: not link.is_open)
    closed: list[bool] = []
    link.on_close = lambda: closed.append(True)
    assert [] == closed
    await auntil(lambda: closed)
    await link.aclose()

    assert [True] == closed


async def test_a_socket_without_a_listener_is_unreachable(env: Env) -> None:
    with pytest.raises(errors.HostUnreachableError):
        await HostLink.open(env.paths.runtime / "nobody.sock")


async def test_a_host_that_does_not_greet_is_not_waited_for(env: Env) -> None:
    path = env.paths.runtime / "mute.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        with pytest.raises(errors.TimedOutError):
            await HostLink.open(path, limit_s=0.05)


UNSENDABLE = {
    "half of a character": (command.Prompt(text="caf\udce9"), r"'\\udce9' in 'do' cannot be sent: it is not UTF-8"),
    "too much": (command.Prompt(text="x" * FRAME_BYTES), f"maximum {FRAME_BYTES}"),
    "too deep": (
        command.Answer(request=RequestId("x"), digest="", decision=Decision.EDIT, input=deep(100_000)),
        "'do' cannot be sent",
    ),
    "too many digits": (
        command.Answer(request=RequestId("x"), digest="", decision=Decision.EDIT, input={"n": 10**5000}),
        "'do' cannot be sent",
    ),
}


@pytest.mark.parametrize(("wish", "why"), UNSENDABLE.values(), ids=UNSENDABLE)
async def test_a_message_that_cannot_be_sent_is_refused_before_anything_is_sent(
    line: Line, wish: command.AgentCommand, why: str
) -> None:
    link = await HostLink.open(line.path)
    with pytest.raises(errors.UsageError, match=why):
        await link.ask(frames.ExecuteCommand(n=0, session=ME, command=wish))

    link.send(keys(b"x"))
    await auntil(lambda: line.heard)
    assert [keys(b"x")] == line.heard


async def test_a_notification_that_cannot_be_sent_is_dropped(line: Line) -> None:
    link = await HostLink.open(line.path)
    link.send(frames.Paste(session=ME, text="x" * FRAME_BYTES))
    link.send(keys(b"x"))

    await auntil(lambda: line.heard)
    assert [keys(b"x")] == line.heard


async def test_an_oversized_answer_is_a_refusal(line: Line) -> None:
    line.answer = lambda connection, frame: frames.TerminalText(n=2, lines=("x" * FRAME_BYTES,))
    link = await HostLink.open(line.path)

    with pytest.raises(errors.RefusedError, match=f"maximum {FRAME_BYTES}"):
        await link.ask(frames.Quit(n=0))
    assert link.is_open


async def test_an_edited_input_that_is_no_json_is_refused(line: Line) -> None:
    wish = command.Answer(request=RequestId("x"), digest="", decision=Decision.EDIT)
    broken = frames.ExecuteCommand(n=5, session=ME, command=wish, edited=b"{")
    answers = await _raw_all(line.path, pack(frames.Hello(n=1)) + pack(broken), 2)

    assert isinstance(answers[1], frames.FailureReply)
    assert "changed input cannot be read" in answers[1].message
    assert [] == line.heard


# Keys and pushes


async def test_keys_arrive_in_order_from_any_thread(line: Line) -> None:
    link = await HostLink.open(line.path)
    typed = [bytes([number % 256, number // 256]) for number in range(2000)]

    def type_all() -> None:
        for data in typed:
            link.send(keys(data))

    typing = threading.Thread(target=type_all)
    typing.start()
    await auntil(lambda: len(line.heard) == len(typed))
    typing.join()

    assert typed == [frame.data for frame in line.heard if isinstance(frame, frames.SendKeys)]


@contextlib.asynccontextmanager
async def direct(env: Env) -> AsyncIterator[tuple[HostLink, socket.socket]]:
    """A link and the host's bare end of it."""
    path = str(env.paths.runtime / "bare.sock")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as ours:
        listening.bind(path)
        listening.listen()
        ours.connect(path)
        ours.setblocking(False)
        host, _ = listening.accept()
        host.setblocking(False)
        link = HostLink(ours, "bare")
        with host:
            yield link, host
            host.close()
            await link.aclose()


async def test_keys_leave_without_waiting_for_the_clients_loop(env: Env) -> None:
    """The loop draws while the person types."""
    async with direct(env) as (link, host):
        typing = threading.Thread(target=link.send, args=(keys(b"x"),))
        typing.start()
        typing.join()  # the loop does not run meanwhile

        assert pack(keys(b"x")) == host.recv(100)


async def test_a_key_never_overtakes_a_paste_that_is_still_leaving(env: Env) -> None:
    async with direct(env) as (link, host):
        link.send(keys(b"paste" * 500_000))
        unpacker, heard = Unpacker(), list[bytes]()
        heard += unpacker.feed(host.recv(100_000))  # now there is room, and the loop has not run yet
        link.send(keys(b"x"))
        while len(heard) < 2:
            with contextlib.suppress(BlockingIOError):
                heard += unpacker.feed(host.recv(1 << 20))
            await asyncio.sleep(0)

    assert [keys(b"paste" * 500_000), keys(b"x")] == [decode_client_frame(body) for body in heard]


async def test_more_than_the_socket_takes_goes_out_in_pieces_and_in_order(line: Line) -> None:
    link = await HostLink.open(line.path)
    pastes = [bytes([65 + n]) * 700_000 for n in range(8)]
    for data in pastes:
        link.send(keys(data))
    await auntil(lambda: len(line.heard) == len(pastes))

    assert pastes == [frame.data for frame in line.heard if isinstance(frame, frames.SendKeys)]


async def test_messages_before_the_close_are_still_sent(line: Line) -> None:
    link = await HostLink.open(line.path)
    link.send(keys(b"x" * 2_000_000))
    await link.aclose()
    await auntil(lambda: line.heard)

    assert [2_000_000] == [len(frame.data) for frame in line.heard if isinstance(frame, frames.SendKeys)]


async def test_pushes_arrive_in_order(line: Line) -> None:
    link = await HostLink.open(line.path)
    shown: list[frames.FromHost] = []
    link.on_push = shown.append
    for n in range(100):
        line.connections[0].push(pushed(str(n)))
    await auntil(lambda: len(shown) == 100)

    assert [pushed(str(n)) for n in range(100)] == shown


async def test_a_listener_that_fails_does_not_close_the_connection(line: Line) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    link = await HostLink.open(line.path)
    shown: list[frames.FromHost] = []

    def fails_once(frame: frames.FromHost) -> None:
        shown.append(frame)
        if len(shown) == 1:
            raise ValueError("no such widget")

    link.on_push = fails_once
    line.connections[0].push(pushed("one"))
    line.connections[0].push(pushed("two"))
    await auntil(lambda: len(shown) == 2)

    assert [ValueError] == [type(error) for error in reported]


async def test_a_slow_reader_gets_the_newest_push_and_delays_no_other(line: Line) -> None:
    reader, writer = await asyncio.open_unix_connection(line.path, limit=1 << 10)
    writer.write(pack(frames.Hello(n=1)))
    await auntil(lambda: line.connections)
    fast = await HostLink.open(line.path)
    shown: list[frames.FromHost] = []
    fast.on_push = shown.append
    slow = line.connections[0]
    for n in range(500):
        for connection in line.connections:
            connection.push(pushed(f"{n} " + "x" * 20_000), key="rows")
        await asyncio.sleep(0)
    slow.push(pushed("after"), key="other")
    await auntil(lambda: shown and isinstance(shown[-1], frames.TextDelta) and shown[-1].text.startswith("499 "))
    texts = await _texts(reader, "after")
    writer.close()

    assert "499" == texts[-2].split()[0]
    assert len(texts) < 100


async def test_a_push_is_made_when_it_is_sent(line: Line) -> None:
    """Rows that changed since the last push can only be known then."""
    reader, writer = await asyncio.open_unix_connection(line.path, limit=1 << 10)
    writer.write(pack(frames.Hello(n=1)))
    await auntil(lambda: line.connections)
    connection = line.connections[0]
    version = 0
    made: list[int] = []

    def make() -> frames.TextDelta:
        made.append(version)
        return pushed(f"{version} " + "x" * 50_000)

    for _ in range(200):
        version += 1
        connection.push(make, key="rows")
    connection.push(pushed("after"))
    texts = await _texts(reader, "after")
    writer.close()

    assert [f"{n}" for n in made] == [text.split()[0] for text in texts[:-1]]
    assert 200 == made[-1]
    assert len(made) < 50


async def test_an_empty_push_sends_nothing(line: Line) -> None:
    link = await HostLink.open(line.path)
    shown: list[frames.FromHost] = []
    link.on_push = shown.append
    line.connections[0].push(lambda: None)
    line.connections[0].push(pushed("one"))
    await auntil(lambda: shown)

    assert [pushed("one")] == shown


# Goodbye


async def test_a_lost_client_is_reported_once(line: Line) -> None:
    link = await HostLink.open(line.path)
    await link.aclose()
    await link.aclose()
    await auntil(lambda: line.lost)

    assert line.connections == line.lost
    assert not line.server.connections


async def test_open_requests_are_answered_before_the_host_disconnects(line: Line) -> None:
    closing = asyncio.Event()

    async def late(n: int) -> frames.CommandResult:
        await closing.wait()
        return frames.CommandResult(n=n)

    line.answer = lambda connection, frame: late(frame.n) if isinstance(frame, frames.Quit) else None
    link = await HostLink.open(line.path)
    asking = asyncio.create_task(link.ask(frames.Quit(n=0)))
    await auntil(lambda: line.heard)
    asyncio.get_running_loop().call_later(0.2, closing.set)
    await line.server.aclose()

    assert isinstance(await asking, frames.CommandResult)
    await line.server.aclose()


@pytest.mark.parametrize(("steps", "result"), [(0, "done"), (1, "done"), (2, "the host ended before this was done.")])
async def test_a_command_that_ends_at_the_limit_of_a_closing_server_is_replied_to(
    line: Line, monkeypatch: pytest.MonkeyPatch, steps: int, result: str
) -> None:
    """*steps*: how many iterations of the loop the command runs on after the server has begun to wait for it."""
    monkeypatch.setattr(server, "GOODBYE_S", 0)
    waiting, wait = asyncio.Event(), asyncio.wait

    def wait_for_commands(*tasks: Any, **limit: Any) -> Awaitable[Any]:
        waiting.set()
        return wait(*tasks, **limit)

    async def end_late(n: int) -> frames.CommandResult:
        await waiting.wait()
        for _ in range(steps):
            await asyncio.sleep(0)
        return frames.CommandResult(n=n)

    line.answer = lambda connection, frame: end_late(frame.n) if isinstance(frame, frames.Quit) else None
    link = await HostLink.open(line.path)
    asking = asyncio.create_task(link.ask(frames.Quit(n=0)))
    await auntil(lambda: line.heard)
    monkeypatch.setattr(asyncio, "wait", wait_for_commands)
    await line.server.aclose()
    try:
        await asking
        reply = "done"
    except errors.RefusedError as refusal:
        reply = refusal.message

    assert result == reply


async def test_a_host_that_ends_notifies_waiting_clients(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GOODBYE_S", 0.05)

    async def never() -> None:
        await asyncio.Event().wait()

    line.answer = lambda connection, frame: never()
    link = await HostLink.open(line.path)
    asking = asyncio.create_task(link.ask(frames.Quit(n=0)))
    await auntil(lambda: line.heard)
    await line.server.aclose()

    with pytest.raises((errors.RefusedError, errors.HostUnreachableError)):
        await asking


async def _raw(path: Path, data: bytes) -> frames.FromHost | None:
    """The first answer to raw bytes; None if the host hung up without."""
    answers = await _raw_all(path, data, 1)
    return answers[0] if answers else None


async def _raw_all(path: Path, data: bytes, count: int) -> list[frames.FromHost]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    unpacker, answers = Unpacker(), list[frames.FromHost]()
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            while len(answers) < count and (received := await reader.read(1000)):
                answers += [from_host.decode(body) for body in unpacker.feed(received)]
    writer.close()
    return answers


async def _texts(reader: asyncio.StreamReader, last: str) -> list[str]:
    """The texts pushed to a client that reads only now, up to *last*."""
    unpacker, texts = Unpacker(), list[str]()
    async with asyncio.timeout(20):
        while texts[-1:] != [last]:
            for body in unpacker.feed(await reader.read(1 << 16)):
                frame = from_host.decode(body)
                if isinstance(frame, frames.TextDelta):
                    texts.append(frame.text)
    return texts
