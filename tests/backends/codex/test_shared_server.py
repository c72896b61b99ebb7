"""A codex that listens on a socket: kasmon and its own screen are two clients of one conversation."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from kasmon.backends.codex import backend, shared_server
from kasmon.backends.codex.web_socket import WebSocketChannel, WebSocketError
from kasmon.errors import SessionEndedError
from kasmon.model.commands import Launch, Prompt, Stop
from kasmon.model.events import MessageWritten, SessionEnded, SessionStarted, TurnEnded, TurnStarted
from kasmon.paths import user_paths
from kasmon.process_identity import started_at
from tests.support.agents.backend_contract import LIMIT_S, Listener
from tests.support.codex.listening_codex import HANGS, accept_key, frame
from tests.support.codex.odd_codex import FAKE, ROOT
from tests.support.codex.replay import launch
from tests.support.wait import auntil, until

MUTE = """
if "--listen" in sys.argv:
    import socket, time
    server = socket.socket(socket.AF_UNIX)
    server.bind(sys.argv[sys.argv.index("--listen") + 1].removeprefix("unix://"))
    server.listen()
    time.sleep(1000)
"""
"""A codex that accepts a client and never answers it; over its stdin it works."""
LISTENING = "from tests.support.codex.listening_codex import main; main()"


def listening(folder: Path, code: str = LISTENING) -> Launch:
    """How a codex is started that listens on a socket and repeats each prompt, to all its clients; or runs *code*."""
    path = folder / "codex"
    path.write_text(f"#!{sys.executable} -P\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}\n")
    path.chmod(0o700)
    return launch(argv=(str(path),), workdir=str(folder))


def left(path: Path) -> list[str]:
    """What is left of the socket that codex made for *path*."""
    return [each.name for each in path.parent.rglob("*") if path.name in str(each) and not each.is_dir()]


@asynccontextmanager
async def opened(wanted: Launch) -> AsyncIterator[Listener]:
    async with Listener(await backend.open(wanted), wanted).listening() as heard:
        await heard.until_said(SessionStarted)
        yield heard


def socket_of(wanted: Launch) -> Path:
    return user_paths().shared_server(wanted.session)


def prompts(heard: Listener) -> list[tuple[str, str]]:
    return [(fact.prompt, fact.by) for fact in heard.facts if isinstance(fact, TurnStarted)]


async def turns(heard: Listener, count: int) -> None:
    await auntil(lambda: sum(isinstance(fact, TurnEnded) for fact in heard.facts) >= count, LIMIT_S, "the turns")


async def test_a_turn_is_sent_over_the_socket(tmp_path: Path) -> None:
    async with opened(listening(tmp_path)) as heard:
        await heard.agent.send(Prompt(text="hello"))
        await turns(heard, 1)

        assert [("hello", "user")] == prompts(heard)
        assert ["hello"] == [fact.text for fact in heard.facts if isinstance(fact, MessageWritten)]


@pytest.mark.parametrize(("flags", "abilities"), [((), ("attaches",)), (("-a", "untrusted"), ())])
async def test_its_own_screen_is_offered_unless_it_would_lack_permission_flags(
    tmp_path: Path, flags: tuple[str, ...], abilities: tuple[str, ...]
) -> None:
    wanted = listening(tmp_path)
    wanted = msgspec.structs.replace(wanted, argv=(*wanted.argv, *flags))
    async with opened(wanted) as heard:
        assert [abilities] == [fact.abilities for fact in heard.facts if isinstance(fact, SessionStarted)]


async def test_a_prompt_of_another_client_is_a_turn_of_the_session(tmp_path: Path) -> None:
    wanted = listening(tmp_path)
    async with opened(wanted) as heard:
        other = await WebSocketChannel.connect(await asyncio.to_thread(socket_of, wanted))
        await other.write(b'{"id":1,"method":"turn/start","params":{"input":[{"type":"text","text":"typed there"}]}}')
        await turns(heard, 1)
        await heard.agent.send(Prompt(text="sent here"))
        await turns(heard, 2)
        await other.aclose()

        assert [("typed there", "user"), ("sent here", "user")] == prompts(heard)


async def test_its_end_leaves_no_process_and_no_socket(tmp_path: Path) -> None:
    wanted = listening(tmp_path)
    async with opened(wanted) as heard:
        pid = next(fact.pid for fact in heard.facts if isinstance(fact, SessionStarted)) or 0
        path = await asyncio.to_thread(socket_of, wanted)
        assert await asyncio.to_thread(path.is_socket)
        await heard.agent.send(Stop(grace_s=LIMIT_S))
        await heard.until_said(SessionEnded)

    assert not psutil.pid_exists(pid)
    assert [] == await asyncio.to_thread(left, path)


async def test_an_agent_that_does_not_answer_at_the_socket_is_used_over_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_server, "LISTEN_S", 0.5)
    wanted = listening(tmp_path, MUTE + FAKE)
    async with asyncio.timeout(LIMIT_S), opened(wanted) as heard:
        assert [()] == [fact.abilities for fact in heard.facts if isinstance(fact, SessionStarted)]


async def test_it_ends_though_its_turn_cannot_be_interrupted(tmp_path: Path) -> None:
    async with opened(listening(tmp_path)) as heard:
        await heard.agent.send(Prompt(text=HANGS))
        await heard.until_said(TurnStarted)
        await heard.agent.send(Stop(grace_s=1000.0))
        await heard.until_said(SessionEnded)


async def test_a_killed_agent_ends_the_session(tmp_path: Path) -> None:
    async with opened(listening(tmp_path)) as heard:
        pid = next(fact.pid for fact in heard.facts if isinstance(fact, SessionStarted)) or 0
        os.kill(pid, signal.SIGKILL)
        await heard.until_said(SessionEnded)

        assert "SIGKILL" == next(fact.signal for fact in heard.facts if isinstance(fact, SessionEnded))


def test_it_ends_with_a_host_that_is_killed(tmp_path: Path) -> None:
    """It is asked to at first."""
    note = repr(str(tmp_path / "terminated"))
    notes = f"import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: (open({note}, 'w'), os._exit(0)))\n"
    wanted = listening(tmp_path, notes + LISTENING)
    code = (
        "import asyncio, sys, msgspec\n"
        "from kasmon.backends.codex import backend\n"
        "from kasmon.model.commands import Launch\n"
        "async def main():\n"
        "    agent = await backend.open(msgspec.json.decode(sys.argv[1].encode(), type=Launch))\n"
        "    async for event in agent.events():\n"
        "        print(event.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    host = subprocess.Popen(
        [sys.executable, "-P", "-c", code, msgspec.json.encode(wanted).decode()], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert host.stdout is not None
    with host.stdout:
        pid = int(host.stdout.readline())
        host.kill()
        host.wait()

    until(lambda: started_at(pid) is None, what="its end")
    assert (tmp_path / "terminated").exists()


class TestWebSocket:
    """The client against a server that says what the test says."""

    @asynccontextmanager
    async def served(self, folder: Path, *pieces: bytes, accepts: bool = True) -> AsyncIterator[tuple[Path, bytearray]]:
        heard, path, done = bytearray(), folder / "s", asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            key = accept_key(head) if accepts else b"x"
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: " + key + b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            while block := await reader.read(1 << 16):
                heard.extend(block)
            writer.close()
            await writer.wait_closed()
            done.set()

        server = await asyncio.start_unix_server(serve, str(path))
        async with server:
            yield path, heard
            await done.wait()

    async def test_messages_arrive_whole_in_any_framing(self, tmp_path: Path) -> None:
        long = b"y" * 70_000
        pieces = (frame(b"one"), frame(b"tw", final=False), frame(b"o", kind=0), frame(long)[:50], frame(long)[50:])
        async with self.served(tmp_path, *pieces, frame(b"", kind=8)) as (path, _):
            channel = await WebSocketChannel.connect(path)

            assert [b"one", b"two", long] == [line async for line in channel.lines()]
            with pytest.raises(SessionEndedError):
                await channel.write(b"late")
            await channel.aclose()

    async def test_a_ping_is_answered(self, tmp_path: Path) -> None:
        async with self.served(tmp_path, frame(b"are you there", kind=9)) as (path, heard):
            channel = await WebSocketChannel.connect(path)
            await auntil(lambda: b"are you there" in heard, LIMIT_S, "the answer")
            await channel.aclose()

    @pytest.mark.parametrize("size", [5, 200, 70_000])
    async def test_written_messages_arrive(self, tmp_path: Path, size: int) -> None:
        async with self.served(tmp_path) as (path, heard):
            channel = await WebSocketChannel.connect(path)
            await channel.write(b"z" * size)
            await auntil(lambda: heard.count(b"z") == size, LIMIT_S, "the message")
            await channel.aclose()

    async def test_a_server_of_another_protocol_is_not_used(self, tmp_path: Path) -> None:
        async with self.served(tmp_path, accepts=False) as (path, _):
            with pytest.raises(WebSocketError):
                await WebSocketChannel.connect(path)
