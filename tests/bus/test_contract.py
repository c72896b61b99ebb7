"""What every bus promises, whatever carries it."""

import asyncio
import contextlib
import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kasmon import __version__
from kasmon.bus.base import BATCH_BYTES, PROTOCOL, Bus, BusWelcome, LogPart, LogPosition, SessionEntry, tail_of
from kasmon.bus.local import LocalBus
from kasmon.errors import HostUnreachableError, KasmonError, NotFoundError, RefusedError
from kasmon.model.commands import Mode
from kasmon.model.events import (
    Event,
    MessageWritten,
    SessionCreated,
    SessionForgotten,
    SessionRenamed,
    SessionViewed,
    TurnStarted,
    decode,
    encode,
)
from kasmon.model.permission import SessionId
from tests.support.bus.buses import Copy, Reader
from tests.support.supervisor.env import NOW, Env, ended, launch, started

ME, OTHER = SessionId("abcdefgh"), SessionId("bcdefghi")


def has_log(env: Env, session: str = ME) -> Path:
    return env.paths.log(session)


def is_complete(copy: Copy) -> bool:
    return copy.is_complete


def has_it_all(env: Env, session: SessionId = ME) -> Callable[[Copy], bool]:
    return lambda copy: copy.logs.get(session) == has_log(env, session).read_bytes()


async def test_the_first_update_has_the_version_of_kasmon(reading: Bus) -> None:
    copy = await Reader(reading).until(is_complete)

    assert isinstance(copy.order[0], BusWelcome)
    assert (copy.order[0].kasmon, copy.order[0].protocol) == (__version__, PROTOCOL)


async def test_a_machine_without_sessions_sends_a_complete_list(reading: Bus) -> None:
    copy = await Reader(reading).until(is_complete)

    assert (copy.entries, copy.logs) == ({}, {})


async def test_each_session_is_listed_with_its_name_and_how_it_was_created(reading: Bus, env: Env) -> None:
    env.has(ME, started(), name="fix-login")
    env.has(OTHER, name="docs")

    copy = await Reader(reading).until(is_complete)

    assert {each: entry.name for each, entry in copy.entries.items()} == {ME: "fix-login", OTHER: "docs"}
    assert copy.entries[ME].created.launch == launch(ME, name="fix-login")


async def test_a_log_arrives_byte_by_byte(reading: Bus, env: Env) -> None:
    env.has(ME, started(), MessageWritten(at=NOW, text="hä\n\x7f"), TurnStarted(at=NOW))

    copy = await Reader(reading).until(has_it_all(env))

    assert copy.logs[ME] == has_log(env).read_bytes()


async def test_a_session_is_listed_before_its_log(reading: Bus, env: Env) -> None:
    env.has(ME, started())

    copy = await Reader(reading).until(has_it_all(env))

    kinds = [type(update) for update in copy.order if isinstance(update, SessionEntry | LogPart)]
    assert [SessionEntry, LogPart] == kinds


async def test_a_reader_gets_only_the_missing_part_of_a_log(reading: Bus, env: Env) -> None:
    env.has(ME, started())
    first = Reader(reading)
    copy = await first.until(has_it_all(env))
    before = len(copy.order)
    env.tells(ME, TurnStarted(at=NOW + 1))

    copy = await first.until(has_it_all(env))

    parts = [update for update in copy.order[before:] if isinstance(update, LogPart)]
    assert [TurnStarted] == [type(event) for event in _events(b"".join(part.content for part in parts))]


async def test_a_reader_that_comes_back_gets_the_range_that_it_missed(env: Env, reading: Bus) -> None:
    env.has(ME, started())
    size = has_log(env).stat().st_size
    log = LocalBus(env.paths).read_log(ME, 0, 1).log
    env.tells(ME, TurnStarted(at=NOW + 1))

    copy = await Reader(reading, {ME: LogPosition(log, size)}).until(lambda copy: copy.is_complete and ME in copy.logs)

    assert copy.logs[ME] == has_log(env).read_bytes()[size:]


async def test_a_reader_of_another_file_begins_at_its_start(env: Env, reading: Bus) -> None:
    env.has(ME, started(), TurnStarted(at=NOW))

    copy = await Reader(reading, {ME: LogPosition("another", 7)}).until(has_it_all(env))

    parts = [update for update in copy.order if isinstance(update, LogPart)]
    assert 0 == parts[0].offset


async def test_a_log_that_was_replaced_is_sent_from_its_start(env: Env, reading: Bus) -> None:
    env.has(ME, started(), TurnStarted(at=NOW))
    reader = Reader(reading)
    await reader.until(has_it_all(env))
    new = has_log(env).with_name("new")
    new.write_bytes(has_log(env).read_bytes()[:-1].replace(b'"turn', b'"turn') + b"\n" + b'{"t":"x","at":1}\n')
    new.rename(has_log(env))

    copy = await reader.until(has_it_all(env))

    assert copy.logs[ME].endswith(b'{"t":"x","at":1}\n')


@pytest.mark.parametrize("is_running", [True, False])
async def test_another_log_with_the_same_inode_is_sent_from_its_start(env: Env, reading: Bus, is_running: bool) -> None:
    env.has(ME, started(), TurnStarted(at=NOW))
    before = has_log(env).stat()
    known = {ME: LogPosition(LocalBus(env.paths).read_log(ME, 0, 1).log, before.st_size)}
    reader = Reader(reading, known)
    if is_running:
        await reader.until(is_complete)
    has_log(env).write_bytes(b"")
    env.tells(ME, started(at=NOW + 5), *(TurnStarted(at=NOW + each) for each in range(6, 12)))
    after = has_log(env).stat()
    assert before.st_ino == after.st_ino
    assert before.st_size < after.st_size, "the size says nothing"

    copy = await reader.until(has_it_all(env))

    assert known[ME].log != copy.positions[ME].log


async def test_a_log_that_was_restored_is_sent_from_its_start(env: Env, reading: Bus) -> None:
    """Its inode and its first events are the same, and it is as long as before once it is looked at."""
    env.has(ME, started(), TurnStarted(at=NOW), MessageWritten(at=NOW + 1, text="lost"))
    reader = Reader(reading)
    copy = await reader.until(has_it_all(env))
    before, log = has_log(env).stat(), copy.positions[ME].log

    _restore(env)

    assert before.st_ino == has_log(env).stat().st_ino
    copy = await reader.until(has_it_all(env))
    assert log != copy.positions[ME].log
    env.tells(ME, TurnStarted(at=NOW + 3))
    again = len(copy.order)
    copy = await reader.until(has_it_all(env))
    assert 0 not in [each.offset for each in copy.order[again:] if isinstance(each, LogPart)]


@pytest.mark.parametrize("bus", ["local", "stream", "ssh"], indirect=True)
async def test_a_reader_that_comes_back_to_a_restored_log_begins_at_its_start(env: Env, bus: Bus) -> None:
    env.has(ME, started(), TurnStarted(at=NOW), MessageWritten(at=NOW + 1, text="lost"))
    content = has_log(env).read_bytes()
    known = LogPosition(LocalBus(env.paths).read_log(ME, 0, 1).log, len(content), tail_of(content))
    _restore(env)

    copy = await Reader(bus, {ME: known}).until(has_it_all(env))

    assert f"{known.log}.1" == copy.positions[ME].log
    assert copy.positions[ME].offset == has_log(env).stat().st_size


def _restore(env: Env) -> None:
    """Write an older state of the log into its file, and other events after that."""
    lines = has_log(env).read_bytes().splitlines(keepends=True)
    more = encode(MessageWritten(at=NOW + 2, text="done instead")) + b"\n" + encode(TurnStarted(at=NOW + 3)) + b"\n"
    has_log(env).write_bytes(b"".join(lines[:-1]) + more)


async def test_a_partial_line_is_sent_once_it_is_whole(env: Env, reading: Bus) -> None:
    env.has(ME, started())
    reader = Reader(reading)
    await reader.until(has_it_all(env))
    whole = has_log(env).read_bytes()
    with has_log(env).open("ab") as log:
        log.write(b'{"t":"half')
        log.flush()
        copy = await reader.until(lambda copy: copy.heartbeats > 1)
        assert copy.logs[ME] == whole
        log.write(b'"}\n')

    copy = await reader.until(has_it_all(env))

    assert copy.logs[ME] == whole + b'{"t":"half"}\n'


async def test_a_line_longer_than_a_batch_arrives_whole(env: Env, reading: Bus) -> None:
    env.has(ME, started())
    with has_log(env).open("ab") as log:
        log.write(b'{"t":"long","x":"' + b"y" * (2 * BATCH_BYTES + 5) + b'"}\n{"t":"next"}\n')

    copy = await Reader(reading).until(has_it_all(env))

    assert all(len(part.content) <= BATCH_BYTES for part in copy.order if isinstance(part, LogPart))


async def test_logs_of_running_sessions_come_before_those_of_ended_ones(env: Env, reading: Bus) -> None:
    env.has(OTHER, started(), ended())
    env.has(ME, started())
    env.hosts(ME)

    copy = await Reader(reading).until(lambda copy: copy.is_complete and len(copy.logs) == 2)

    assert [ME, OTHER] == [update.session for update in copy.order if isinstance(update, LogPart)]


async def test_a_session_that_was_removed_is_reported(env: Env, reading: Bus) -> None:
    env.has(ME, started(), ended())
    reader = Reader(reading)
    await reader.until(is_complete)
    env.says(SessionForgotten(at=NOW, session=ME))

    copy = await reader.until(lambda copy: copy.removed)

    assert [ME] == copy.removed


async def test_a_new_session_and_its_first_events_are_reported(env: Env, reading: Bus) -> None:
    reader = Reader(reading)
    await reader.until(is_complete)
    env.has(ME, started())

    copy = await reader.until(has_it_all(env))

    assert ME in copy.entries


async def test_another_name_and_a_view_by_a_person_are_reported(env: Env, reading: Bus) -> None:
    env.has(ME, started(), name="old")
    reader = Reader(reading)
    await reader.until(is_complete)
    env.says(SessionRenamed(at=NOW, session=ME, name="new"), SessionViewed(at=NOW + 9, session=ME))

    copy = await reader.until(lambda copy: copy.entries[ME].viewed_at)

    assert ("new", NOW + 9) == (copy.entries[ME].name, copy.entries[ME].viewed_at)


async def test_whether_a_host_runs_is_reported_after_its_last_events(env: Env, reading: Bus) -> None:
    env.has(ME, started())
    env.hosts(ME)
    reader = Reader(reading)
    copy = await reader.until(is_complete)
    assert os.getpid() == copy.entries[ME].presence.host
    env.tells(ME, TurnStarted(at=NOW + 1))
    env.host_dies(ME)

    copy = await reader.until(lambda copy: copy.entries[ME].presence.host is None)
    copy = await reader.until(lambda copy, at=copy.heartbeats: copy.heartbeats > at)  # type: ignore[misc]

    assert copy.logs[ME] == has_log(env).read_bytes()
    assert copy.entries[ME].presence.agent_runs


async def test_an_idle_machine_sends_heartbeats(reading: Bus) -> None:
    copy = await Reader(reading).until(lambda copy: copy.heartbeats >= 2)

    assert copy.is_complete


async def test_copies_of_other_machines_sessions_are_not_offered(env: Env, bus: Bus) -> None:
    env.has(ME, started())
    env.says(SessionCreated(at=NOW, launch=launch(OTHER), machine="far", via="far"))
    env.paths.folder(OTHER).mkdir(mode=0o700)
    env.tells(OTHER, started())

    copy = await Reader(bus).until(lambda copy: copy.is_complete and copy.heartbeats)

    assert [ME] == list(copy.entries)
    with pytest.raises(KasmonError):
        await bus.connect(OTHER)


@contextlib.contextmanager
def echo(path: Path) -> Iterator[None]:
    """A host that sends back what it gets."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        loop = asyncio.get_running_loop()
        listening.setblocking(False)

        async def serve() -> None:
            while True:
                client, _ = await loop.sock_accept(listening)
                tasks.append(loop.create_task(answer(client)))

        async def answer(client: socket.socket) -> None:
            with client:
                while data := await loop.sock_recv(client, 65536):
                    await loop.sock_sendall(client, data)

        tasks = [loop.create_task(serve())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def exchange(host: socket.socket, data: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    sending = loop.create_task(loop.sock_sendall(host, data))
    answer = b""
    while len(answer) < len(data):
        piece = await loop.sock_recv(host, 65536)
        assert piece, answer
        answer += piece
    await sending
    return answer


@pytest.mark.parametrize("mode", [Mode.SDK, Mode.TMUX])
async def test_a_connection_leads_to_the_host_of_the_session(env: Env, bus: Bus, mode: Mode) -> None:
    env.has(ME, started(mode=mode), mode=mode)
    path = env.paths.socket(ME) if mode is Mode.SDK else env.paths.tmux_host_socket
    with echo(path), await bus.connect(ME) as host:
        assert b"ping" == await exchange(host, b"ping")


async def test_connections_carry_more_than_a_window_and_do_not_wait_for_each_other(env: Env, bus: Bus) -> None:
    env.has(ME, started())
    with echo(env.paths.socket(ME)), await bus.connect(ME) as slow, await bus.connect(ME) as quick:
        loop = asyncio.get_running_loop()
        filling = loop.create_task(loop.sock_sendall(slow, b"x" * 3_000_000))  # whose answer nobody reads yet
        data = os.urandom(1_000_000)
        assert data == await exchange(quick, data)
        answer = 0
        while answer < 3_000_000:
            answer += len(await loop.sock_recv(slow, 1 << 20))
        await filling


async def test_the_end_of_a_host_ends_the_connection(env: Env, bus: Bus) -> None:
    env.has(ME, started())
    with echo(env.paths.socket(ME)), await bus.connect(ME) as host:
        host.shutdown(socket.SHUT_WR)
        assert b"" == await asyncio.get_running_loop().sock_recv(host, 1)


@pytest.mark.parametrize("session", [ME, "../../x", "", "nosuch"])
async def test_a_session_that_has_no_host_cannot_be_connected_to(env: Env, bus: Bus, session: str) -> None:
    env.has(ME, started())

    with pytest.raises((HostUnreachableError, NotFoundError)):
        await bus.connect(SessionId(session))


async def test_a_command_runs_there_and_its_output_comes_back(bus: Bus) -> None:
    done = await bus.run(["--version"])

    assert (0, f"kasmon {__version__}\n".encode(), b"") == (done.exit_code, done.stdout, done.stderr)


async def test_a_command_that_fails_on_the_machine_returns_its_exit_code(bus: Bus) -> None:
    done = await bus.run(["show", "nosuch", "--json"])

    assert 3 == done.exit_code
    assert b'"not-found"' in done.stdout


async def test_a_command_on_the_machine_reads_the_passed_stdin(bus: Bus) -> None:
    done = await bus.run(["stop", "-", "--json"], b"nosuch-name\n")

    assert 3 == done.exit_code
    assert b"nosuch-name" in done.stdout + done.stderr


async def test_a_file_of_a_session_is_read_in_parts(env: Env, bus: Bus) -> None:
    env.has(ME, started())
    content = os.urandom(BATCH_BYTES + 10)
    name = f"blobs/{hashlib.sha256(content).hexdigest()}"
    env.paths.blobs(ME).mkdir(mode=0o700)
    (env.paths.folder(ME) / name).write_bytes(content)

    parts = [await bus.read_file(ME, name, offset) for offset in (0, BATCH_BYTES, len(content))]

    assert content == b"".join(parts)
    assert b"" == parts[2]


async def test_a_file_that_is_missing_is_named(env: Env, bus: Bus) -> None:
    env.has(ME, started())

    with pytest.raises(NotFoundError, match="terminal/1"):
        await bus.read_file(ME, "terminal/1")


@pytest.mark.parametrize(
    "name", ["env", "launch.json", "../abcdefgh/env", "blobs/../env", "/etc/passwd", "blobs/" + "a" * 64]
)
async def test_private_files_are_not_read(env: Env, bus: Bus, name: str) -> None:
    env.has(ME, started())
    env.paths.environment(ME).write_bytes(b"SECRET=1")
    env.paths.blobs(ME).mkdir(mode=0o700)
    (env.paths.blobs(ME) / ("a" * 64)).symlink_to(env.paths.environment(ME))

    with pytest.raises((RefusedError, KasmonError)) as refused:
        await bus.read_file(ME, name)

    assert "SECRET" not in str(refused.value)


async def test_closing_it_twice_does_no_harm(bus: Bus) -> None:
    await Reader(bus).until(is_complete)

    await bus.aclose()
    await bus.aclose()


def _events(content: bytes) -> list[Event]:
    return [decode(line) for line in content.splitlines()]
