"""The tmux host is replaced under its agents by one of a newer version: no prompt is lost or doubled. Real copies."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from kasmon import __version__
from kasmon.errors import HostUnreachableError, ProtocolVersionError, RefusedError
from kasmon.host.rpc import connect, control
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.control import ControlKind
from kasmon.host.rpc.frames import VERSION, Hello
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode, ReceiptState
from kasmon.model.events import ReceiptChanged, SessionStarted
from kasmon.model.permission import SessionId
from tests.host.test_delivery import box, records
from tests.support.host.tmux_env import TmuxEnv, prompted
from tests.support.other_version import NEWER, OLDER, OTHER_KASMON, OtherVersion
from tests.support.wait import auntil

pytestmark = pytest.mark.story
ME, SHARED = SessionId("abcdefgh"), SessionId("tmux")
R = ReceiptState


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> OtherVersion:
    return OtherVersion(tmp_path_factory.mktemp("older"), OLDER)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> OtherVersion:
    return OtherVersion(tmp_path_factory.mktemp("newer"), NEWER)


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> OtherVersion:
    return OtherVersion(tmp_path_factory.mktemp("silent"), OLDER, greets=False)


@contextlib.contextmanager
def _environment(tmux: TmuxEnv, other: OtherVersion) -> Iterator[None]:
    own, tmux.environment = tmux.environment, tmux.environment | other.variables()
    try:
        yield
    finally:
        tmux.environment = own


def opened(tmux: TmuxEnv, other: OtherVersion) -> int:
    """The pid of a tmux host of that version."""
    with _environment(tmux, other):
        return tmux.open().pid


async def client_of(tmux: TmuxEnv, other: OtherVersion, monkeypatch: pytest.MonkeyPatch) -> HostLink:
    with monkeypatch.context() as patch:
        patch.setattr("kasmon.host.rpc.client.Hello", lambda n, as_agent: Hello(n=n, version=other.protocol))
        return await HostLink.open(tmux.paths.tmux_host_socket)


async def linked(tmux: TmuxEnv) -> HostLink:
    return await open_link(tmux.paths, SHARED, Mode.TMUX)


def host_pid(tmux: TmuxEnv) -> int | None:
    return lock_holder(tmux.paths.tmux_host_lock)


async def test_an_older_tmux_host_is_replaced_under_its_agents(
    tmux: TmuxEnv, in_tmux_env: None, older: OtherVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(tmux, older)
    before = await client_of(tmux, older, monkeypatch)
    await tmux.run(before, ME, *tmux.recorder("typed"))
    await tmux.ready(ME)
    await prompted(before, ME, "first")
    await prompted(before, ME, "later", when="idle")
    agent = tmux.facts(ME)
    assert agent
    now = await linked(tmux)
    await prompted(now, ME, "second")
    await tmux.run(now, "another2", "cat")
    found = tmux.facts(ME)

    assert found
    assert (agent.pid, agent.pane_id) == (found.pid, found.pane_id)
    assert (VERSION, __version__) == (now.welcome.version, now.welcome.kasmon)
    assert old != now.welcome.pid == host_pid(tmux)
    assert 1 == len(tmux.only(SessionStarted, ME))
    assert b"first\rsecond\r" == tmux.recorded("typed")
    states = {receipt.text: receipt.state for receipt in tmux.session(ME).receipts}
    assert R.QUEUED is states["later"]
    assert {R.LOST, R.REFUSED}.isdisjoint(states.values())
    await before.aclose()
    await now.aclose()


async def test_a_prompt_being_typed_is_finished_before_the_handover_and_nothing_is_typed_twice(
    tmux: TmuxEnv, in_tmux_env: None, older: OtherVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmux, older)
    before = await client_of(tmux, older, monkeypatch)
    argv = box(tmux, "busy=2")  # what is typed stands there after 2 s only
    await tmux.run(before, ME, *argv, prompt="half of this is typed")  # so that no request of a client waits for it
    await auntil(lambda: any(R.TYPED is moved.receipt.state for moved in tmux.only(ReceiptChanged, ME)))
    now = await linked(tmux)

    await auntil(lambda: records(tmux))
    assert ["half of this is typed"] == records(tmux)
    assert R.LOST not in {receipt.state for receipt in tmux.session(ME).receipts}
    await before.aclose()
    await now.aclose()


async def test_a_host_that_hands_over_accepts_nothing_new(
    tmux: TmuxEnv, in_tmux_env: None, older: OtherVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmux, older)
    before = await client_of(tmux, older, monkeypatch)
    await tmux.run(before, ME, *box(tmux, "busy=2"))
    await tmux.ready(ME)
    typing = asyncio.create_task(prompted(before, ME, "one"))
    await auntil(lambda: any(R.TYPED is moved.receipt.state for moved in tmux.only(ReceiptChanged, ME)))
    status = await asyncio.to_thread(control.request, tmux.paths.tmux_host_socket, ControlKind.HAND_OVER)
    with pytest.raises(RefusedError, match="nothing was done"):
        await prompted(before, ME, "two")

    assert status is not None
    assert (True, True) == (status.is_busy, status.is_leaving)
    await typing
    await auntil(lambda: host_pid(tmux) is None, what="the old host's end")
    await auntil(lambda: records(tmux))
    assert ["one"] == records(tmux)
    assert ["one"] == [receipt.text for receipt in tmux.session(ME).receipts]
    await before.aclose()


async def test_a_newer_host_is_not_replaced_by_an_older_client(
    tmux: TmuxEnv, in_tmux_env: None, newer: OtherVersion
) -> None:
    """Two versions in use would end each other's hosts for ever."""
    other = opened(tmux, newer)
    with pytest.raises(ProtocolVersionError, match=f"{OTHER_KASMON} speaks protocol {NEWER}") as raised:
        await linked(tmux)

    assert (other, NEWER, "tmux") == (raised.value.pid, raised.value.host_version, raised.value.host)
    assert "kasmon doctor --fix" in raised.value.hint
    assert other == host_pid(tmux)


async def test_an_error_for_a_host_that_cannot_hand_over_names_how_to_end_it(
    tmux: TmuxEnv, in_tmux_env: None, silent: OtherVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(tmux, silent)
    before = await client_of(tmux, silent, monkeypatch)
    await tmux.run(before, ME, "cat")
    await tmux.ready(ME)
    with pytest.raises(ProtocolVersionError, match="cannot hand over") as raised:
        await linked(tmux)
    assert f"`kill {old}` ends it; agents in terminals keep running" in raised.value.hint
    assert old == host_pid(tmux)
    os.kill(old, signal.SIGTERM)  # what it says holds
    await auntil(lambda: host_pid(tmux) is None, what="the old host's end")
    now = await linked(tmux)

    assert tmux.session(ME).exists
    assert 1 == len(tmux.only(SessionStarted, ME))
    await before.aclose()
    await now.aclose()


async def test_many_simultaneous_clients_replace_an_old_host_once(
    tmux: TmuxEnv, in_tmux_env: None, older: OtherVersion
) -> None:
    old = opened(tmux, older)
    links = await asyncio.gather(*(linked(tmux) for _ in range(5)))

    assert 1 == len({each.welcome.pid for each in links})
    assert old != links[0].welcome.pid
    for each in links:
        await each.aclose()


async def test_the_replacement_of_a_host_is_not_asked_to_hand_over_again(tmux: TmuxEnv, in_tmux_env: None) -> None:
    """Those that come at once find it by a path, where the next host may listen already."""
    host = tmux.open()
    search = connect._Search(tmux.paths, "tmux")
    gone = ProtocolVersionError("tmux", host.pid + 1, OLDER, OTHER_KASMON, VERSION, __version__)

    assert await search._request_hand_over(gone)
    link = await linked(tmux)

    assert (host.pid, None) == (link.welcome.pid, host.poll())
    await link.aclose()


def test_a_refusal_by_a_replaced_host_is_no_error_of_the_next_one(tmux: TmuxEnv, in_tmux_env: None) -> None:
    host, said = tmux.open(), RefusedError("this host speaks protocol version 0.")

    error = control.explain_error(tmux.paths.tmux_host_socket, host.pid + 1, said)

    assert isinstance(error, HostUnreachableError)
    assert said is control.explain_error(tmux.paths.tmux_host_socket, host.pid, said)
