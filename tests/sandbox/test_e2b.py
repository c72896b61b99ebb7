"""The tier `e2b`, against a service on loopback that is built of the official SDK's own server classes."""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import RefusedError, SandboxError, SandboxUnreachableError, UnableError
from kasmon.model.event import Event, NoticeRaised
from kasmon.model.housing import Housing, housed
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Credential, Mount, Phase, Policy, Runtime, Volatile
from kasmon.paths import places
from kasmon.sandbox.base import Sandbox, Slept
from kasmon.sandbox.box import Box
from kasmon.sandbox.channel import Channel
from kasmon.sandbox.e2b import service as calls
from kasmon.sandbox.e2b.tier import E2b
from kasmon.sandbox.far import relay
from kasmon.sandbox.jail.process import gone
from kasmon.sandbox.journal import Journal
from kasmon.sandbox.lifecycle import Terms
from tests.sandbox.e2b_stage import Served, served
from tests.sandbox.interpreter_contract import InterpreterContract
from tests.sandbox.required import need_jail
from tests.sandbox.sandbox_contract import SandboxContract

pytestmark = pytest.mark.sandboxes
ME = SessionId("abcdefgh")
CANARY = "canary-8f2e61d07b"


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    need_jail()
    with served() as running:
        yield running


class TestE2b(SandboxContract):
    @pytest.fixture
    def tier(self, service: Served) -> Sandbox:
        return E2b(access=service.access)


class TestInE2b(InterpreterContract):
    @pytest.fixture
    def tier(self, service: Served) -> Sandbox:
        return E2b(access=service.access)


class Host:
    """Processes that keep one sandbox at the service, each knowing nothing but the facts."""

    def __init__(self, served: Served, policy: Policy) -> None:
        self.served, self.policy = served, policy
        self.facts: list[Event] = []
        self.boxes: list[Box] = []
        self.tier = E2b(access=served.access, prolong_s=0.1)

    def next(self) -> Box:
        known: Housing | None = None
        for fact in self.facts:
            known = housed(known, fact)
        journal = Journal(known, self.facts.append, tier="e2b", keeps_memory=True, terms=Terms())
        self.boxes.append(Box(self.tier, self.policy, journal, lambda runtime: Channel(runtime.socket)))
        return self.boxes[-1]

    @property
    def runtime(self) -> Runtime:
        runtime = self.boxes[-1].journal.housing.runtime
        assert runtime is not None
        return runtime

    def told(self) -> str:
        return "\n".join(fact.text for fact in self.facts if isinstance(fact, NoticeRaised))

    def asked(self, what: str) -> int:
        return len(self.served.asked(what))

    def close(self) -> None:
        for box in self.boxes:
            if box.within is not None:
                box.within.close()
        self.tier.forget(self.policy)


@pytest.fixture
def keep(service: Served) -> Iterator[Callable[..., Host]]:
    with contextlib.ExitStack() as stack:

        def made(**more: object) -> Host:
            host = Host(service, msgspec.structs.replace(Policy(session=ME, tier="e2b"), **more))
            stack.callback(host.close)
            return host

        yield made


def test_it_is_made_so_that_the_service_pauses_it_and_use_wakes_it(keep: Callable[..., Host]) -> None:
    host = keep()
    host.next().arrive()

    body = host.served.asked("create")[-1]
    assert (True, {"enabled": True}, False) == (
        body["autoPause"], body["autoResume"], body["allow_internet_access"],
    )  # fmt: skip
    assert [host.runtime.remote] == list(calls.named(host.served.access, body["metadata"]["kasmon"]))


def test_a_turn_of_several_runs_is_paused_once_and_not_between_them(keep: Callable[..., Host]) -> None:
    """Pausing after each run loses files at the service (e2b-dev/E2B#884)."""
    host = keep()
    box = host.next()
    box.arrive()
    before = host.asked("pause")
    for _ in range(3):
        box.run("bash", "echo more >> file")
    assert before == host.asked("pause")

    box.sleep()
    box.sleep(to_disk=True)

    assert before + 1 == host.asked("pause")
    assert (Phase.PAUSED, False, host.runtime.remote) == (
        box.phase, box.journal.housing.held, box.journal.housing.snapshot,
    )  # fmt: skip


def test_another_process_goes_on_with_what_is_paused_by_its_id_alone(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    box.run("python", "x = 42")
    box.run("bash", "y=43; cd /tmp")
    box.sleep()

    heir = host.next()
    assert "" == heir.arrive() == heir.wake()

    assert "42\n" == heir.run("python", "print(x)").stdout
    assert "43 /tmp\n" == heir.run("bash", "echo $y $PWD").stdout


def test_its_time_is_prolonged_while_a_run_goes_on_and_not_after(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    before = host.asked("timeout")

    box.run("bash", "sleep 0.5")
    during = host.asked("timeout")
    box.run("bash", "true")

    assert before + 2 <= during
    assert {1200} == {told["timeout"] for told in host.served.asked("timeout")}


def test_one_that_the_service_has_no_more_is_made_anew_and_that_is_told(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    box.run("python", "x = 42; open('file', 'w').write('kept')")
    box.sleep()
    calls.killed(host.served.access, host.runtime.remote)

    lost = box.wake()

    assert "the service has it no more" in lost
    assert "is lost" in lost
    assert "False kept\n" == box.run("python", "print('x' in globals(), open('file').read())").stdout


def test_variables_are_those_of_each_run_and_the_service_is_never_told_them(keep: Callable[..., Host]) -> None:
    """Connecting gives no variables back, so none is left to it."""
    host = keep()
    box = host.next()
    box.arrive()
    box.sleep()
    box.wake()

    assert f"{CANARY}\n" == box.run("bash", "echo $TOKEN", variables={"TOKEN": CANARY}).stdout
    assert "\n" == box.run("bash", "echo $TOKEN").stdout
    assert CANARY not in str(host.served.asked("create")) + str(host.served.asked("start"))


def test_credentials_are_out_of_it_before_the_service_keeps_its_memory(
    keep: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_TOKEN", CANARY)
    host = keep(
        credentials=(Credential(name="TOKEN", variable="OUR_TOKEN"),),
        volatile=(Volatile(path="/run/token", source="TOKEN"),),
    )
    box = host.next()
    box.arrive()
    box.run("python", "import os; held = os.environ['TOKEN']", variables=box.credentials().values)
    box.sleep()

    again = host.tier.resume(host.policy, host.runtime, Slept(held=False))
    with contextlib.closing(Channel(again.socket)) as inside:
        assert "False\n" == inside.run("python", "print('held' in globals())", timeout_s=20).stdout
        assert "" == inside.run("bash", "cat /run/token", timeout_s=20).stdout


def test_a_relay_that_dies_is_replaced_and_the_sandbox_is_the_same(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    box.run("python", "x = 42")
    old = host.runtime
    os.kill(old.pid, signal.SIGKILL)
    assert gone(old.pid, old.started, 5)

    heir = host.next()

    assert "" == heir.arrive()
    assert (old.remote, False) == (host.runtime.remote, host.runtime.pid == old.pid)
    assert "42\n" == heir.run("python", "print(x)").stdout


def test_one_whose_maker_died_before_it_could_note_it_is_ended_by_its_name(
    keep: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = keep()
    with monkeypatch.context() as patch:
        patch.setattr(relay, "started", _dies)
        patch.setattr(E2b, "_left", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            host.tier.create(host.policy)
    name = host.served.asked("create")[-1]["metadata"]["kasmon"]
    assert 1 == len(calls.named(host.served.access, name))

    host.tier.destroy(host.policy, None)

    assert () == calls.named(host.served.access, name)


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_the_service_cannot_be_asked_about_is_not_said_to_be_gone(keep: Callable[..., Host]) -> None:
    host = keep()
    host.next().arrive()
    cut = E2b(access=msgspec.structs.replace(host.served.access, api="http://127.0.0.1:9"))

    with pytest.raises(SandboxError):
        cut.find(host.policy, host.runtime)
    with pytest.raises(SandboxError, match="the service are not known"):
        cut.destroy(host.policy, host.runtime)

    assert [host.runtime.remote] == [each for each in _all(host) if each == host.runtime.remote]


def test_while_the_service_cannot_be_reached_it_sleeps_on_with_its_memory(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    box.run("python", "x = 42")
    box.sleep()
    box.tier = E2b(access=msgspec.structs.replace(host.served.access, api="http://127.0.0.1:9"))

    with pytest.raises(SandboxUnreachableError):
        box.wake()
    assert (Phase.PAUSED, False) == (box.phase, box.journal.housing.is_intended)
    box.tier = host.tier

    assert "" == box.wake()
    assert "42\n" == box.run("python", "print(x)").stdout


def _all(host: Host) -> tuple[str, ...]:
    return calls.named(host.served.access, host.served.asked("create")[-1]["metadata"]["kasmon"])


def test_files_that_go_and_change_inside_go_and_change_here(keep: Callable[..., Host]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    try:
        (folder / "deep").mkdir()
        (folder / "deep" / "old").write_text("old")
        (folder / "run").write_text("#!/bin/sh\n")
        (folder / "run").chmod(0o755)
        box = keep(workspace=str(folder)).next()
        box.arrive()

        assert "old run\n" == box.run("bash", "echo $(cat deep/old) $(find -type f -executable -printf %f)").stdout
        box.run("bash", "rm -r deep; mkdir new; echo 1 > new/file; ln -s /etc/passwd link; chmod 600 run")

        assert {"new", "new/file", "link", "run"} == {str(path.relative_to(folder)) for path in folder.rglob("*")}
        assert ("1\n", "/etc/passwd") == ((folder / "new/file").read_text(), str((folder / "link").readlink()))
        assert 0o600 == (folder / "run").stat().st_mode & 0o777
    finally:
        shutil.rmtree(folder)


def test_what_cannot_be_at_a_service_is_refused(service: Served) -> None:
    tier = E2b(access=service.access)
    for policy in (
        Policy(session=ME, project="/usr"),
        Policy(session=ME, mounts=(Mount(source="/usr"),)),
        Policy(session=ME, hosts=("example.org:8443",)),
    ):
        with pytest.raises(RefusedError):
            tier.create(policy)
    with pytest.raises(UnableError):
        tier.wrap(Policy(session=ME), ["claude"], "/", {})
    assert not (places().state / "e2b" / ME / "record.json").exists()


def test_trying_the_tier_asks_the_service_and_makes_nothing(service: Served) -> None:
    before = len(service.asked("create"))
    tried = E2b(access=service.access).probe()

    assert tried.ok
    assert tried.measured_ms is not None
    assert before == len(service.asked("create"))


def test_without_a_key_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    tried = E2b().probe()

    assert (False, True) == (tried.ok, "E2B_API_KEY" in tried.hint)
