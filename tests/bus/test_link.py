"""The link to another machine, as real processes: what passes through it, and what a loss of it changes."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from kasmon import __version__
from kasmon.errors import HostUnreachableError, RemoteUnreachableError
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import ExecuteCommand
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Answer, ReceiptState
from kasmon.model.events import RequestAnswered
from kasmon.model.permission import Decision
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.process_identity import started_at
from kasmon.store.event_log import EventLog
from kasmon.store.machines import machine_names, write_presence
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines import link_client, registration
from kasmon.supervisor.sessions import session_operations
from tests.support.bus.joined import NAME, JoinedKasmons
from tests.support.supervisor.env import end
from tests.support.wait import until

pytestmark = pytest.mark.story

S = SessionState


@pytest.fixture
def joined() -> Iterator[JoinedKasmons]:
    joined = JoinedKasmons()
    yield joined
    joined.close()


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> None:
    """These tests look at files from their loop; the product's loops are in other processes."""


async def asks(joined: JoinedKasmons) -> Session:
    """A session of `far` that waits for an answer, as `near` shows it."""
    session = await joined.begin()
    joined.shown(session)
    await session_operations.send(joined.near.paths, joined.shown(session), "ask git push")
    return joined.shown(session, lambda seen: seen.requests)


def answer_to(session: Session) -> Answer:
    request = session.requests[0]
    return Answer(request=request.id, digest=request.digest, decision=Decision.ALLOW)


async def test_a_prompt_is_delivered_on_the_machine_and_its_receipt_is_shown_here(joined: JoinedKasmons) -> None:
    joined.join()
    session = await joined.begin()

    receipt = await session_operations.send(joined.near.paths, joined.shown(session), "look around")

    seen = joined.shown(session, lambda seen: seen.receipts and seen.receipts[0].state is ReceiptState.FINISHED)
    assert receipt.id == seen.receipts[0].id
    assert until(lambda: joined.has_whole_log(session))


async def test_a_request_on_the_machine_is_answered_here_once_and_by_its_digest(joined: JoinedKasmons) -> None:
    joined.join()
    session = await asks(joined)
    paths = joined.near.paths

    await session_operations.execute(paths, session, answer_to(session))

    joined.shown(session.id, lambda seen: not seen.requests)
    with pytest.raises(Exception, match="answered"):
        await session_operations.execute(paths, session, answer_to(session))
    answers = [
        event for event in EventLog(joined.far.paths.log(session.id)).events() if isinstance(event, RequestAnswered)
    ]
    assert 1 == len(answers)


async def test_a_session_is_stopped_there(joined: JoinedKasmons) -> None:
    joined.join()
    session = await joined.begin()

    await session_operations.stop(joined.near.paths, joined.shown(session, lambda seen: seen.host and seen.host.alive))

    assert joined.shown(session, lambda seen: seen.state is S.ENDED).stopped


async def test_the_link_reconnects_if_the_serving_process_is_killed(joined: JoinedKasmons) -> None:
    joined.join()
    session = await joined.begin()
    joined.shown(session, lambda seen: seen.state is S.IDLE)

    joined.bus_process().kill()
    until(lambda: joined.presence.why, what="the loss")
    await session_operations.send(joined.far.paths, joined.shown(session), "meanwhile")
    joined.until_connected()

    joined.shown(session, lambda seen: seen.receipts and seen.receipts[0].state is ReceiptState.FINISHED)
    assert until(lambda: joined.has_whole_log(session))


async def test_a_stopped_machine_is_late_then_unreachable_and_reconnects(joined: JoinedKasmons) -> None:
    joined.join()
    session = await joined.begin()
    joined.shown(session, lambda seen: seen.state is S.IDLE)
    serving = joined.bus_process()

    serving.suspend()
    until(lambda: joined.presence.is_late, what="a late machine")
    assert S.IDLE is joined.shown(session).state
    unsure = joined.shown(session, lambda seen: seen.state is S.UNSURE)

    assert "no sign of life" in (unsure.unsure_why or "")
    joined.shown(session, lambda seen: seen.state is S.IDLE)


async def test_a_machine_clock_that_is_off_by_a_day_is_measured_and_named(joined: JoinedKasmons) -> None:
    joined.join(ahead_s=86400.0)
    until(lambda: joined.presence.clock_offset_s, what="a measurement")

    status = registration.status(joined.near.paths, NAME)
    assert 86400.0 == pytest.approx(status.presence.clock_offset_s, abs=2)
    assert status.clock_problem.startswith(("its clock is 24 h 0 min ahead", "its clock is 23 h 59 min ahead"))


async def test_sessions_are_unsure_while_their_link_is_killed(joined: JoinedKasmons) -> None:
    joined.join()
    session = await joined.begin()
    joined.shown(session, lambda seen: seen.state is S.IDLE)
    pid = joined.link_pid
    serving = joined.bus_process()

    os.kill(pid, signal.SIGKILL)
    end(pid)

    unsure = joined.shown(session, lambda seen: seen.state is S.UNSURE)
    assert "link" in (unsure.unsure_why or "")
    until(lambda: not serving.is_running(), what="the end of the process that served it")
    with pytest.raises(HostUnreachableError):
        await session_operations.send(joined.near.paths, unsure, "hello")
    registration.start_links(joined.near.paths)
    joined.shown(session, lambda seen: seen.state is S.IDLE)
    await session_operations.send(joined.near.paths, joined.shown(session), "hello")
    joined.shown(session, lambda seen: seen.receipts and seen.receipts[0].state is ReceiptState.FINISHED)


async def test_an_answer_into_a_cut_connection_is_never_reported_as_delivered(joined: JoinedKasmons) -> None:
    joined.join()
    session = await asks(joined)
    serving = joined.bus_process()
    serving.suspend()

    answering = asyncio.create_task(session_operations.execute(joined.near.paths, session, answer_to(session)))
    await asyncio.wait([answering], timeout=0.5)
    serving.kill()

    with pytest.raises(RemoteUnreachableError, match="cannot reach 'far'"):
        await answering
    assert joined.shown(session.id, lambda seen: seen.state is S.ASKING).requests


async def test_a_command_sent_before_a_cut_has_an_unknown_result(joined: JoinedKasmons) -> None:
    joined.join()
    session = await asks(joined)
    async with contextlib.aclosing(await open_link(joined.near.paths, session.id, session.mode)) as host:
        serving = joined.bus_process()
        serving.suspend()

        answering = asyncio.create_task(
            host.ask(ExecuteCommand(n=0, session=session.id, command=answer_to(session)), limit_s=40)
        )
        await asyncio.wait([answering], timeout=0.1)
        serving.kill()

        with pytest.raises(HostUnreachableError, match="it is unknown whether this was done"):
            await answering


async def test_a_host_that_has_exited_on_the_machine_is_shown_as_exited(joined: JoinedKasmons) -> None:
    joined.join()
    session = await joined.begin()
    joined.shown(session, lambda seen: seen.state is S.IDLE)
    socket = joined.near.paths.socket(session)
    assert socket.exists()

    joined.far.kill_host(session)

    joined.shown(session, lambda seen: seen.state in (S.LOST, S.UNSURE))
    until(lambda: not socket.exists(), what="the end of its socket")
    assert lock_holder(joined.near.paths.host_lock(session)) is None


async def test_an_agent_of_this_machine_reaches_no_session_of_another_machine(joined: JoinedKasmons) -> None:
    joined.join()
    session = await joined.begin()
    joined.shown(session, lambda seen: seen.host and seen.host.alive)
    variables = {**os.environ, **joined.near.paths.environment_variables(), "KASMON_SESSION": "abcdefgh"}
    command = [sys.executable, "-P", "-m", "kasmon", "send", session, "do my work"]

    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, env=variables, check=False)

    assert "an agent cannot reach sessions of other machines" in done.stderr
    assert 0 != done.returncode
    assert not joined.shown(session).receipts


async def test_a_command_runs_on_the_machine_through_the_link(joined: JoinedKasmons) -> None:
    joined.join()
    session = await joined.begin()

    done = await asyncio.to_thread(link_client.run, joined.near.paths, NAME, ["ls", "--json"])

    assert session in done.stdout.decode()
    joined.bus_process().suspend()
    pid = joined.link_pid
    os.kill(pid, signal.SIGTERM)
    until(lambda: not joined.link_pid, what="the end of the link")
    with pytest.raises(RemoteUnreachableError):
        await asyncio.to_thread(link_client.run, joined.near.paths, NAME, ["ls"])


async def test_only_one_link_serves_a_machine(joined: JoinedKasmons) -> None:
    joined.join()
    pid = joined.link_pid
    variables = {**os.environ, **joined.near.paths.environment_variables()}
    command = [sys.executable, "-P", "-m", "kasmon", "host", "--machine", NAME]

    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, env=variables, check=False)

    assert (0, pid) == (done.returncode, joined.link_pid)


@pytest.mark.parametrize(("version", "is_replaced"), [("0.0.9", True), (__version__, False), ("9.0.0", False)])
def test_a_link_of_an_older_kasmon_is_replaced(joined: JoinedKasmons, version: str, is_replaced: bool) -> None:
    joined.join()
    pid, paths = joined.link_pid, joined.near.paths
    write_presence(paths, NAME, msgspec.structs.replace(joined.presence, link_kasmon=version))

    registration.start_link(paths, NAME)

    joined.until_connected()
    assert is_replaced == (pid != joined.link_pid)


async def test_a_removed_machine_is_deleted_here_and_unchanged_there(joined: JoinedKasmons) -> None:
    joined.join()
    session = await joined.begin()
    joined.shown(session, lambda seen: seen.state is S.IDLE)
    pid, paths = joined.link_pid, joined.near.paths

    await asyncio.to_thread(registration.remove, paths, NAME)

    assert [] == machine_names(paths)
    assert not read_fleet(paths).sessions
    assert not paths.folder(session).exists()
    assert [] == [path.name for path in paths.runtime.glob("*.sock")]
    until(lambda: started_at(pid) is None)
    assert S.IDLE is (read_fleet(joined.far.paths).get(session) or Session(id=session)).state
