"""Coroutines without an event loop, and the blocking link that they ask hosts by."""

import asyncio
import contextlib
import gc
import os
import socket
import types
from collections.abc import Iterator

import pytest

from kasmon import asyncio_tasks, errors
from kasmon.host.rpc import event_loop, frames
from kasmon.host.rpc.blocking_client import BlockingLink
from kasmon.host.rpc.connect import reach_running_tmux_host
from kasmon.host.rpc.server import ClientConnection, HostServer
from tests.support.host.env import ME, Env


def receive(connection: ClientConnection, frame: frames.FromClient) -> frames.Frame | None:
    match frame:
        case frames.Hello():
            return frames.Welcome(n=frame.n, pid=os.getpid(), answer_s=0.05)
        case frames.DescribePane():
            connection.push(frames.TextDelta(session=ME, text="a push before the answer"))
            return frames.CommandResult(n=frame.n)
        case frames.Watch():
            connection.push(frames.TextDelta(session=ME, text="not this"))
            connection.push(frames.SubscriptionEnd(session=ME, why="this"))
        case frames.ReportContext():
            raise errors.SessionNotFoundError("nobody")
        case _:
            pass
    return None


async def use(env: Env) -> list[object]:
    """What a client without a loop gets for one thing after another."""
    seen: list[object] = []
    async with contextlib.aclosing(await BlockingLink.open(env.paths.tmux_host_socket)) as link:
        seen.append(await link.ask(frames.DescribePane(n=0, session=ME)))
        is_end = lambda push: isinstance(push, frames.SubscriptionEnd)  # noqa: E731
        seen.append(await link.watch(frames.Watch(session=ME, rate_hz=1.0), is_end, 5.0))
        for frame in (frames.ReportContext(n=0, session=ME), frames.Quit(n=0)):
            with pytest.raises(errors.KasmonError) as raised:
                await link.ask(frame)
            seen.append(raised.value)
    return seen


async def test_a_blocking_connection_gets_the_answers_pushes_and_errors_of_its_requests(env: Env) -> None:
    server = HostServer(env.paths.tmux_host_socket, receive, lambda connection: None)
    await server.start()
    try:
        answer, push, refusal, late = await asyncio.to_thread(event_loop.run, use(env))
    finally:
        await server.aclose()

    assert isinstance(answer, frames.CommandResult)
    assert frames.SubscriptionEnd(session=ME, why="this") == push
    assert isinstance(refusal, errors.SessionNotFoundError)
    assert isinstance(late, errors.TimedOutError)
    assert "within 0.05 s" in late.message


def test_a_socket_without_a_listener_is_unreachable(env: Env) -> None:
    with pytest.raises(errors.HostUnreachableError):
        event_loop.run(BlockingLink.open(env.paths.tmux_host_socket))


def test_a_host_that_does_not_greet_is_not_waited_for(env: Env) -> None:
    path = env.paths.tmux_host_socket
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        with pytest.raises(errors.TimedOutError):
            event_loop.run(BlockingLink.open(path, limit_s=0.05))


def test_without_a_loop_a_blocking_call_runs_in_this_thread(env: Env) -> None:
    async def work() -> int:
        await event_loop.sleep(0)
        with contextlib.suppress(errors.HostUnreachableError):
            async with reach_running_tmux_host(env.paths):
                pass
        return await event_loop.run_in_thread(os.getpid)

    assert os.getpid() == event_loop.run(work())


def test_a_coroutine_that_needs_a_loop_is_refused() -> None:
    async def work() -> None:
        await asyncio.sleep(1)

    @types.coroutine
    def wait() -> Iterator[None]:
        yield

    with pytest.raises(RuntimeError):
        event_loop.run(work())
    with pytest.raises(RuntimeError, match="waits for an event loop"):
        event_loop.run(wait())


@pytest.mark.parametrize("fails", [False, True])
async def test_what_is_completed_runs_to_its_end_although_its_caller_is_cancelled(fails: bool) -> None:
    goes_on, reported = asyncio.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def work() -> str:
        await goes_on.wait()
        if fails:
            raise ValueError("x")
        return "done"

    works = [asyncio.create_task(work()) for _ in range(2)]
    cancelled, other = [asyncio.create_task(asyncio_tasks.complete(each)) for each in works]
    for _ in range(3):
        await asyncio.sleep(0)
        cancelled.cancel()
    await asyncio.sleep(0)
    assert not cancelled.done()
    goes_on.set()
    await asyncio.wait([cancelled, other])

    assert (True, True) == (cancelled.cancelled(), works[0].done())
    assert [ValueError if fails else "done"] == [type(other.exception()) if fails else other.result()]
    del works, cancelled, other
    gc.collect()
    assert [] == reported
