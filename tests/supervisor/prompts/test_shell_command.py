"""A command of the person on another machine, whose host is not trusted to keep the limits."""

import asyncio

import msgspec
import pytest

from kasmon.errors import UnableError
from kasmon.host.rpc import codec
from kasmon.host.rpc.frames import Hello, RunOutputChunk, Welcome
from kasmon.host.session.shell_command import OUTPUT_BYTES
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.store.machines import Machine, write_machine
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.prompts.shell_command import run_command
from tests.support.supervisor.env import Env, started

ME = SessionId("abcdefgh")


async def _flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a greeting, then print without end, until the client has gone."""
    unpacker = codec.Unpacker()
    for body in unpacker.feed(await reader.read(1000)):
        frame = codec.decode_client_frame(body)
        assert isinstance(frame, Hello)
        writer.write(codec.pack(Welcome(n=frame.n, pid=1)))
    await reader.read(1000)
    printed = 0
    while printed < 8 * OUTPUT_BYTES and not reader.at_eof():
        writer.write(codec.pack(RunOutputChunk(run="shell", stdout="y" * 1024)))
        printed += 1024
        try:
            await writer.drain()
        except ConnectionError:
            return


@pytest.fixture
def session(env: Env) -> Session:
    """One of the machine gpu-1."""
    env.has(ME, started())
    write_machine(env.paths, Machine(name="gpu-1", command=("false",)))
    env.paths.via(ME).write_text("gpu-1\n77\n")
    return msgspec.structs.replace(read_fleet(env.paths).require(ME), via="gpu-1")


async def test_more_output_than_a_host_may_send_is_not_accepted(env: Env, session: Session) -> None:
    said: list[str] = []

    async with await asyncio.start_unix_server(_flood, env.paths.socket(ME)), asyncio.timeout(30):
        with pytest.raises(UnableError, match="'yes' printed more than 256 KB and was ended"):
            await run_command(env.paths, session, "yes", said.append)

    assert len("".join(said)) < 2 * OUTPUT_BYTES
