"""The tmux host is replaced under its agents by one of a newer version: no prompt is lost or doubled. Real copies."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from kasmon import __version__
from kasmon.errors import ProtocolVersionError, RefusedError
from kasmon.host.rpc import control
from kasmon.host.rpc.connect import HostLink, link
from kasmon.host.rpc.control import ControlKind
from kasmon.host.rpc.frames import VERSION, Hello
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode, ReceiptState
from kasmon.model.events import ReceiptMoved, SessionStarted
from kasmon.model.permission import SessionId
from tests.host.inn import Inn, prompted
from tests.host.test_delivery import box, records
from tests.other_version import NEWER, OLDER, OTHER_KASMON, OtherVersion
from tests.waiting import auntil

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
def _environment(inn: Inn, other: OtherVersion) -> Iterator[None]:
    own, inn.environment = inn.environment, inn.environment | other.variables()
    try:
        yield
    finally:
        inn.environment = own


def opened(inn: Inn, other: OtherVersion) -> int:
    """The pid of a tmux host of that version."""
    with _environment(inn, other):
        return inn.open().pid


async def client_of(inn: Inn, other: OtherVersion, monkeypatch: pytest.MonkeyPatch) -> HostLink:
    with monkeypatch.context() as patch:
        patch.setattr("kasmon.host.rpc.client.Hello", lambda n, as_agent: Hello(n=n, version=other.protocol))
        return await HostLink.open(inn.places.tmux_host_socket)


async def linked(inn: Inn) -> HostLink:
    return await link(inn.places, SHARED, Mode.TMUX)


def host_pid(inn: Inn) -> int | None:
    return lock_holder(inn.places.tmux_host_lock)


async def test_an_older_tmux_host_is_replaced_under_its_agents(
    inn: Inn, as_within_the_inn: None, older: OtherVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(inn, older)
    before = await client_of(inn, older, monkeypatch)
    await inn.run(before, ME, *inn.recorder("typed"))
    await inn.ready(ME)
    await prompted(before, ME, "first")
    await prompted(before, ME, "later", when="idle")
    agent = inn.facts(ME)
    assert agent
    now = await linked(inn)
    await prompted(now, ME, "second")
    await inn.run(now, "another2", "cat")
    found = inn.facts(ME)

    assert found
    assert (agent.pid, agent.pane_id) == (found.pid, found.pane_id)
    assert (VERSION, __version__) == (now.welcome.version, now.welcome.kasmon)
    assert old != now.welcome.pid == host_pid(inn)
    assert 1 == len(inn.only(SessionStarted, ME))
    assert b"first\rsecond\r" == inn.recorded("typed")
    states = {receipt.text: receipt.state for receipt in inn.session(ME).receipts}
    assert R.QUEUED is states["later"]
    assert {R.LOST, R.REFUSED}.isdisjoint(states.values())
    await before.aclose()
    await now.aclose()


async def test_what_is_being_typed_is_finished_before_the_host_leaves_and_nothing_is_typed_twice(
    inn: Inn, as_within_the_inn: None, older: OtherVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(inn, older)
    before = await client_of(inn, older, monkeypatch)
    argv = box(inn, "busy=2")  # what is typed stands there after 2 s only
    await inn.run(before, ME, *argv, prompt="half of this is typed")  # so that no request of a client waits for it
    await auntil(lambda: any(R.TYPED is moved.receipt.state for moved in inn.only(ReceiptMoved, ME)))
    now = await linked(inn)

    await auntil(lambda: records(inn))
    assert ["half of this is typed"] == records(inn)
    assert R.LOST not in {receipt.state for receipt in inn.session(ME).receipts}
    await before.aclose()
    await now.aclose()


async def test_a_host_that_hands_over_takes_nothing_new(
    inn: Inn, as_within_the_inn: None, older: OtherVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(inn, older)
    before = await client_of(inn, older, monkeypatch)
    await inn.run(before, ME, *box(inn, "busy=2"))
    await inn.ready(ME)
    typing = asyncio.create_task(prompted(before, ME, "one"))
    await auntil(lambda: any(R.TYPED is moved.receipt.state for moved in inn.only(ReceiptMoved, ME)))
    status = await asyncio.to_thread(control.request, inn.places.tmux_host_socket, ControlKind.HAND_OVER)
    with pytest.raises(RefusedError, match="nothing was done"):
        await prompted(before, ME, "two")

    assert status is not None
    assert (True, True) == (status.is_busy, status.is_leaving)
    await typing
    await auntil(lambda: host_pid(inn) is None, what="the old host's end")
    await auntil(lambda: records(inn))
    assert ["one"] == records(inn)
    assert ["one"] == [receipt.text for receipt in inn.session(ME).receipts]
    await before.aclose()


async def test_a_newer_host_is_not_replaced_by_an_older_client(
    inn: Inn, as_within_the_inn: None, newer: OtherVersion
) -> None:
    """Two versions in use would end each other's hosts for ever."""
    other = opened(inn, newer)
    with pytest.raises(ProtocolVersionError, match=f"{OTHER_KASMON} speaks protocol {NEWER}") as raised:
        await linked(inn)

    assert (other, NEWER, "tmux") == (raised.value.pid, raised.value.host_version, raised.value.host)
    assert "kasmon doctor --fix" in raised.value.hint
    assert other == host_pid(inn)


async def test_of_a_host_that_cannot_hand_over_it_is_said_how_to_end_it(
    inn: Inn, as_within_the_inn: None, silent: OtherVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(inn, silent)
    before = await client_of(inn, silent, monkeypatch)
    await inn.run(before, ME, "cat")
    await inn.ready(ME)
    with pytest.raises(ProtocolVersionError, match="cannot hand over") as raised:
        await linked(inn)
    assert f"`kill {old}` ends it; agents in terminals keep running" in raised.value.hint
    assert old == host_pid(inn)
    os.kill(old, signal.SIGTERM)  # what it says holds
    await auntil(lambda: host_pid(inn) is None, what="the old host's end")
    now = await linked(inn)

    assert inn.session(ME).exists
    assert 1 == len(inn.only(SessionStarted, ME))
    await before.aclose()
    await now.aclose()


async def test_many_that_come_at_once_replace_an_old_host_once(
    inn: Inn, as_within_the_inn: None, older: OtherVersion
) -> None:
    old = opened(inn, older)
    links = await asyncio.gather(*(linked(inn) for _ in range(5)))

    assert 1 == len({each.welcome.pid for each in links})
    assert old != links[0].welcome.pid
    for each in links:
        await each.aclose()
