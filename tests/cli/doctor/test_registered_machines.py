"""`kasmon doctor` reports the link to each registered machine, and the kasmon there."""

import os
from collections.abc import Iterator

import pytest

from kasmon import __version__
from kasmon.cli.doctor.checks import registered_machines
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.host.rpc.host_lock import HostLock
from kasmon.store.machines import Machine, Presence, write_machine, write_presence
from tests.support.supervisor.env import NOW, Env


@pytest.fixture
def env() -> Iterator[Env]:
    """A kasmon with the registered machine gpu-1, which its link reported as connected; the link is gone."""
    env = Env()
    write_machine(env.paths, Machine(name="gpu-1", command=("false",)))
    report(env, Presence(since=NOW, kasmon=__version__))
    yield env
    env.close()


def report(env: Env, presence: Presence) -> None:
    write_presence(env.paths, "gpu-1", presence)


def link(env: Env) -> None:
    """From now on the link to it runs, as far as its lock shows."""
    env.locks["link"] = lock = HostLock(env.paths.machine_lock("gpu-1"))
    assert lock.acquire()


def check(env: Env) -> DoctorCheck:
    (only,) = registered_machines(env.paths)
    assert "registered-machine-gpu-1" == only.id
    return only


def test_a_machine_without_its_link_is_reported_and_the_link_can_be_started(env: Env) -> None:
    shown = check(env)

    assert ("warn", "the link to 'gpu-1' does not run: its sessions are unsure") == (shown.level, shown.text)
    assert shown.mend is not None


def test_a_connected_machine_is_ok_with_its_version(env: Env) -> None:
    link(env)
    report(env, Presence(since=NOW, kasmon=__version__, link=os.getpid()))

    shown = check(env)

    assert ("ok", f"'gpu-1' is connected, with kasmon {__version__}", "") == (shown.level, shown.text, shown.fix)


def test_an_unreachable_machine_is_named_with_the_reason(env: Env) -> None:
    link(env)
    report(env, Presence(since=NOW, kasmon=__version__, link=os.getpid(), why="Connection refused"))

    shown = check(env)

    assert ("warn", "'gpu-1' is unreachable: Connection refused") == (shown.level, shown.text)
    assert "kasmon machines show gpu-1" in shown.fix


def test_another_version_there_is_named(env: Env) -> None:
    link(env)
    report(env, Presence(since=NOW, kasmon="9.9.9", link=os.getpid()))

    shown = check(env)

    assert ("warn", f"'gpu-1' is connected, with kasmon 9.9.9; this is kasmon {__version__}") == (
        shown.level,
        shown.text,
    )


def test_a_registration_that_cannot_be_read_fails(env: Env) -> None:
    (env.paths.machine("gpu-1") / "machine.json").write_text("{")

    assert "fail" == check(env).level


@pytest.mark.parametrize(
    ("ahead_s", "text"),
    [
        (-4.0, ""),
        (5.5, "; its clock is 5.5 s ahead of this one"),
        (-90000.0, "; its clock is 25 h 0 min behind this one"),
    ],
)
def test_a_clock_that_is_off_by_seconds_is_named(env: Env, ahead_s: float, text: str) -> None:
    link(env)
    report(env, Presence(since=NOW, kasmon=__version__, link=os.getpid(), clock_offset_s=ahead_s))

    shown = check(env)

    assert f"'gpu-1' is connected, with kasmon {__version__}{text}" == shown.text
    assert ("warn" if text else "ok") == shown.level
    assert bool(text) is ("Set the clock of 'gpu-1'" in shown.fix)
