"""The greeting that hosts and clients of all versions share. Its bytes are pinned here: they never change."""

import asyncio
import json
import os
import struct
from collections.abc import AsyncIterator

import pytest

from kasmon import __version__
from kasmon.errors import HostUnreachableError, RefusedError
from kasmon.host.rpc import control
from kasmon.host.rpc.codec import FRAME_BYTES
from kasmon.host.rpc.control import ControlKind, HostStatus
from kasmon.host.rpc.frames import VERSION
from kasmon.host.rpc.server import HostServer
from tests.support.host.env import Env

STATUS = HostStatus(protocol=7, kasmon="1.2.3", pid=12, session="abcdefgh", is_busy=True)


class Controlled:
    """A host's socket, and what it was asked."""

    def __init__(self, env: Env) -> None:
        self.path = env.paths.runtime / "test.sock"
        self.asked: list[ControlKind] = []
        self.refuses = ""
        self.server = HostServer(self.path, lambda connection, frame: None, lambda connection: None, self._control)

    def _control(self, kind: ControlKind) -> HostStatus:
        self.asked.append(kind)
        if self.refuses:
            raise RefusedError(self.refuses)
        return STATUS

    async def sends(self, data: bytes) -> bytes:
        """What the host answers to *data* until it hangs up."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        for at in range(len(data)):  # as slowly as a socket may bring it
            writer.write(data[at : at + 1])
            await writer.drain()
        answer = await reader.read()
        writer.close()
        return answer


@pytest.fixture
async def host(env: Env) -> AsyncIterator[Controlled]:
    made = Controlled(env)
    await made.server.start()
    yield made
    await made.server.aclose()


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"KSMN\x01\x00\x00\x00", ControlKind.STATUS),
        (b"KSMN\x02\x00\x00\x00", ControlKind.HAND_OVER),
        (b"KSMN\x03\x00\x00\x00", ControlKind.STOP),
        (b"KSMN\x01\x00\x00\x02{}", ControlKind.STATUS),  # what a later version may add
    ],
)
async def test_the_bytes_of_a_request_keep_their_meaning(host: Controlled, sent: bytes, kind: ControlKind) -> None:
    answer = await host.sends(sent)

    assert [kind] == host.asked
    assert b"KSMN\x80\x00" == answer[:6]
    assert len(answer) - 8 == struct.unpack(">H", answer[6:8])[0]
    assert {
        "protocol": 7,
        "kasmon": "1.2.3",
        "pid": 12,
        "session": "abcdefgh",
        "is_busy": True,
        "is_asking": False,
        "is_leaving": False,
    } == json.loads(answer[8:])


async def test_the_client_sends_these_bytes_and_takes_fields_that_it_does_not_know(host: Controlled) -> None:
    assert b"KSMN\x01\x00\x00\x00" == control.build_frame(ControlKind.STATUS)
    assert b"KSMN\x02\x00\x00\x00" == control.build_frame(ControlKind.HAND_OVER)
    assert b"KSMN\x03\x00\x00\x00" == control.build_frame(ControlKind.STOP)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"KSMN\x01\x00\x00\x00" == await reader.readexactly(8)
        writer.write(b'KSMN\x80\x00\x00\x38{"protocol":9,"kasmon":"9.0","pid":5,"mood":"excellent"}')
        writer.close()

    path = host.path.with_name("later.sock")
    server = await asyncio.start_unix_server(answer, path)
    status = await asyncio.to_thread(control.request, path, ControlKind.STATUS)
    server.close()

    assert HostStatus(protocol=9, kasmon="9.0", pid=5) == status


async def test_the_reason_of_a_refusal_reaches_the_client(host: Controlled) -> None:
    host.refuses = "not today."
    with pytest.raises(RefusedError, match=r"not today\."):
        await asyncio.to_thread(control.request, host.path, ControlKind.STOP)


async def test_a_request_unknown_to_this_version_is_refused_by_its_number(host: Controlled) -> None:
    answer = await host.sends(b"KSMN\x63\x00\x00\x00")

    assert b"KSMN\x81\x00" == answer[:6]
    assert {"error": f"kasmon {__version__} has no request of kind 99."} == json.loads(answer[8:])
    assert not host.asked


async def test_no_frame_of_any_protocol_starts_like_a_control_frame(host: Controlled) -> None:
    """Its first bytes are the length of a frame that no version takes: a host without the greeting hangs up."""
    assert struct.unpack(">I", control.MAGIC)[0] > FRAME_BYTES


async def test_a_host_that_disconnects_is_identified_as_one_without_a_greeting(env: Env) -> None:
    path = env.paths.runtime / "old.sock"
    server = await asyncio.start_unix_server(lambda reader, writer: writer.close(), path)

    assert await asyncio.to_thread(control.request, path, ControlKind.STATUS) is None
    server.close()
    path.unlink()
    with pytest.raises(HostUnreachableError):
        await asyncio.to_thread(control.request, path, ControlKind.STATUS)


async def test_a_structured_host_identifies_itself(env: Env) -> None:
    launch = env.wants()
    process = await asyncio.to_thread(env.start)
    status = await asyncio.to_thread(control.request, env.paths.socket(launch.session), ControlKind.STATUS)

    assert status is not None
    assert (VERSION, __version__, process.pid, launch.session) == (
        status.protocol,
        status.kasmon,
        process.pid,
        status.session,
    )
    assert os.getpid() != status.pid
