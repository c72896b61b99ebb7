"""Every method of the Python API on sessions of another machine, over a real sshd and over a real NATS server."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kasmon import ExecutionSession, InteractiveOnlyError, KasmonError, LaunchSpec
from kasmon.errors import NotFoundError, RefusedError, RemoteUnreachableError, UsageError
from kasmon.model.permission import Decision
from kasmon.store.machines import Machine, read_machine, write_machine
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.bus.joined import NAME, JoinedKasmons, joined_over
from tests.support.execution.actor_session import LIMIT_S, eventually
from tests.support.tui.dashboard import Home

pytestmark = pytest.mark.story

WAYS: Final = ("ssh", "nats")
ONLY_TERMINALS: Final = ("attach", "detach", "resize", "embedded_terminal")
STRUCTURED: Final = {
    *("of", "state", "exists", "pid", "sanitized_name", "send_keys", "tap_enter", "wait", "permissions", "respond"),
    *("capture", "capture_range", "poll", "has_updated", "on_screen", "interrupt", "events", "close", "restore"),
    *("start", *ONLY_TERMINALS),
}
"""The methods that the test of a structured session calls: all of them."""


@pytest.fixture
def joined(request: pytest.FixtureRequest) -> Iterator[JoinedKasmons]:
    """`near` shows the sessions of `far`, over ssh or over a cluster."""
    with joined_over(request.param) as joined:
        yield joined


async def started(joined: JoinedKasmons, mode: str) -> ExecutionSession:
    """A session of the scripted agent that *near* started on *far*."""
    spec = LaunchSpec(name="docs", machine=NAME, agent="scripted", mode=mode)
    session = ExecutionSession(spec, where=joined.near.paths)
    await session.start(joined.far.folder)
    return session


async def say(session: ExecutionSession, text: str) -> None:
    await session.send_keys(text)
    await session.tap_enter()


def test_all_methods_are_called_here() -> None:
    public = {name for name in vars(ExecutionSession) if not name.startswith("_")}

    assert STRUCTURED == public


@pytest.mark.parametrize("joined", WAYS, indirect=True)
async def test_each_method_works_on_a_structured_session_there(joined: JoinedKasmons) -> None:
    near, far = joined.near.paths, joined.far.paths
    await started(joined, "sdk")
    assert [] == [each for each in (await asyncio.to_thread(read_fleet, near)).sessions if not each.via]
    [there] = (await asyncio.to_thread(read_fleet, far)).sessions
    assert (str(joined.far.folder), "docs") == (there.workdir, there.name)

    session = await ExecutionSession.of(f"{NAME}:docs", where=near)

    assert (there.id, there.id) == (session.id, session.sanitized_name)
    assert (NAME, True, None) == ((await session.state()).via, await session.exists(), await session.pid())
    await session.wait("idle", timeout_s=LIMIT_S)
    await say(session, "ask git push\nsay It is done.")
    await session.wait("asking", timeout_s=LIMIT_S)
    assert (await session.poll()).waiting
    (request,) = await session.permissions()
    assert "git push" == request.input["command"]
    await session.respond(Decision.EDIT, request.id, input={**request.input, "command": "git pull"})
    await session.wait("idle", timeout_s=LIMIT_S)
    shown = await eventually(lambda: _shows(session, "It is done."), "the message")
    assert "git pull" in shown
    assert shown == await session.capture_range()
    assert (await session.has_updated())[0]
    assert await session.on_screen() is None

    await say(session, "hang")
    await session.wait("working", timeout_s=LIMIT_S)
    await session.interrupt()
    await session.wait("idle", timeout_s=LIMIT_S)
    for method in ("attach", "detach"):
        with pytest.raises(InteractiveOnlyError):
            await getattr(session, method)()
    for method in ("resize", "embedded_terminal"):
        with pytest.raises(InteractiveOnlyError):
            await getattr(session, method)(80, 24)

    await session.close()
    assert not await session.exists()
    names = [type(event).__name__ async for event, _ in session.events()]
    assert ("RequestAnswered" in names, "SessionEnded") == (True, names[-1])
    await session.restore()
    assert ("", True) == (session.why_not, await session.exists())
    await session.close()
    await session.close()


async def _shows(session: ExecutionSession, text: str) -> str:
    shown = await session.capture()
    return shown if text in shown else ""


@pytest.mark.parametrize("joined", WAYS, indirect=True)
async def test_each_method_works_on_a_terminal_there(joined: JoinedKasmons) -> None:
    session = await started(joined, "tmux")
    await session.wait("idle", timeout_s=LIMIT_S)

    await say(session, "ask git push\nsay It is done.")
    menu = await eventually(session.on_screen, "the menu")
    assert menu is not None
    await session.wait("asking", timeout_s=LIMIT_S)
    await session.respond(Decision.ALLOW, menu.digest)
    await session.wait("idle", timeout_s=LIMIT_S)
    await eventually(lambda: _shows(session, "It is done."), "the message")
    assert "It is done." in await session.capture_range()
    assert (await session.poll()).captured

    await session.resize(101, 33)
    terminal = await session.embedded_terminal(90, 30)
    try:
        terminal.write(b"typed by bytes")
        await eventually(lambda: _shows(session, "typed by bytes"), "the bytes")
    finally:
        await terminal.aclose()
    await session.interrupt()
    if await asyncio.to_thread(lambda: read_machine(joined.near.paths, NAME).cluster):
        with pytest.raises(RefusedError, match="which carries no terminal"):
            await session.attach()
    await session.detach()
    await session.close()
    assert not await session.exists()


@pytest.mark.parametrize(
    ("fields", "error", "why"),
    [
        ({"machine": "gpu-9"}, NotFoundError, "no machine 'gpu-9' is registered"),
        ({"machine": NAME}, RemoteUnreachableError, "it was never connected"),
        ({"machine": NAME, "mode": "x"}, UsageError, "unknown mode 'x'"),
        ({"machine": NAME, "plan": "p1"}, UsageError, f"cannot start 'docs' on '{NAME}': 'plan' is for sessions of"),
        ({"machine": NAME, "title": "a"}, UsageError, "'title' is for"),
        ({"machine": NAME, "seed": 3}, UsageError, "'seed' is for"),
        ({"machine": NAME, "speed": 0.0}, UsageError, "'speed' is for"),
    ],
)
def test_a_start_that_fails_on_the_machine_gives_the_reason(
    home: Home, fields: dict[str, Any], error: type[KasmonError], why: str
) -> None:
    write_machine(home.paths, Machine(name=NAME, command=("false",)))

    with pytest.raises(error, match=why):
        asyncio.run(ExecutionSession(LaunchSpec(name="docs", agent="scripted", **fields), where=home.paths).start())

    assert not read_fleet(home.paths).sessions
