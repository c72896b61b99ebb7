"""The tier `e2b`, against a service on loopback that is built of the official SDK's own server classes."""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil
import pytest

from kasmon.errors import AgentLostError, RefusedError, SandboxError, SandboxUnreachableError, SnapshotRefusedError
from kasmon.model.events import Event, NoticeRaised
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Credential, Mount, SandboxPhase, SandboxPolicy, SandboxRuntime, VolatileFile
from kasmon.model.sandbox.state import SandboxState, apply_sandbox_event
from kasmon.paths import user_paths
from kasmon.sandbox.base import PauseResult, SandboxTier
from kasmon.sandbox.e2b import service as calls
from kasmon.sandbox.e2b.tier import E2b
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.managed.idle_policy import LifetimeTerms
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from kasmon.sandbox.remote_guest import relay
from kasmon.sandbox.shared.processes import gone
from tests.support.e2b.local_service import Served, served
from tests.support.sandbox.full_disk import full_disk
from tests.support.sandbox.interpreter_contract import InterpreterContract
from tests.support.sandbox.requirements import need_jail
from tests.support.sandbox.sandbox_contract import SandboxContract
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes
ME = SessionId("abcdefgh")
CANARY = "canary-8f2e61d07b"


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    need_jail()
    with served() as running:
        yield running


class OfE2b:
    @pytest.fixture
    def tier(self, service: Served) -> SandboxTier:
        return E2b(access=service.access)


class TestE2b(OfE2b, SandboxContract):
    pass


class TestInE2b(OfE2b, InterpreterContract):
    pass


class Host:
    """Processes that keep one sandbox at the service, each knowing nothing but the facts."""

    def __init__(self, served: Served, policy: SandboxPolicy) -> None:
        self.served, self.policy = served, policy
        self.facts: list[Event] = []
        self.boxes: list[ManagedSandbox] = []
        self.tier = E2b(access=served.access, prolong_s=0.1)

    def next(self) -> ManagedSandbox:
        known: SandboxState | None = None
        for fact in self.facts:
            known = apply_sandbox_event(known, fact)
        journal = SandboxJournal(known, self.facts.append, tier="e2b", keeps_memory=True, terms=LifetimeTerms())
        self.boxes.append(ManagedSandbox(self.tier, self.policy, journal, lambda runtime: GuestChannel(runtime.socket)))
        return self.boxes[-1]

    @property
    def runtime(self) -> SandboxRuntime:
        runtime = self.boxes[-1].journal.sandbox_state.runtime
        assert runtime is not None
        return runtime

    def told(self) -> str:
        return "\n".join(fact.text for fact in self.facts if isinstance(fact, NoticeRaised))

    def asked(self, what: str) -> int:
        return len(self.served.asked(what))

    def close(self) -> None:
        for box in self.boxes:
            if box.guest is not None:
                box.guest.close()
        self.tier.forget(self.policy)


@pytest.fixture
def keep(service: Served) -> Iterator[Callable[..., Host]]:
    with contextlib.ExitStack() as stack:

        def made(**more: object) -> Host:
            host = Host(service, msgspec.structs.replace(SandboxPolicy(session=ME, tier="e2b"), **more))
            stack.callback(host.close)
            return host

        yield made


def test_it_is_created_so_that_the_service_pauses_it_and_use_resumes_it(keep: Callable[..., Host]) -> None:
    host = keep()
    host.next().arrive()

    body = host.served.asked("create")[-1]
    assert (True, {"enabled": True}, False) == (
        body["autoPause"], body["autoResume"], body["allow_internet_access"],
    )  # fmt: skip
    assert [host.runtime.remote] == list(calls.find_named(host.served.access, body["metadata"]["kasmon"]))


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
    assert (SandboxPhase.PAUSED, False, host.runtime.remote) == (
        box.phase, box.journal.sandbox_state.held, box.journal.sandbox_state.snapshot,
    )  # fmt: skip


def test_another_process_resumes_a_paused_sandbox_by_its_id_alone(keep: Callable[..., Host]) -> None:
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


def test_its_timeout_is_extended_during_a_run_and_not_after(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    before = host.asked("timeout")

    box.run("bash", "sleep 0.5")
    during = host.asked("timeout")
    box.run("bash", "true")

    assert before + 2 <= during
    assert {1200} == {told["timeout"] for told in host.served.asked("timeout")}


def test_a_sandbox_that_the_service_lost_is_replaced_and_that_is_reported(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    box.run("python", "x = 42; open('file', 'w').write('kept')")
    box.sleep()
    calls.kill(host.served.access, host.runtime.remote)

    lost = box.wake()

    assert "the service no longer has it" in lost
    assert "interpreter state lost; files kept" in lost
    assert "False kept\n" == box.run("python", "print('x' in globals(), open('file').read())").stdout


def test_variables_are_those_of_each_run_and_never_sent_to_the_service(keep: Callable[..., Host]) -> None:
    """Connecting gives no variables back, so none is left to it."""
    host = keep()
    box = host.next()
    box.arrive()
    box.sleep()
    box.wake()

    assert f"{CANARY}\n" == box.run("bash", "echo $TOKEN", variables={"TOKEN": CANARY}).stdout
    assert "\n" == box.run("bash", "echo $TOKEN").stdout
    assert CANARY not in str(host.served.asked("create")) + str(host.served.asked("start"))


def test_credentials_are_removed_before_the_service_stores_its_memory(
    keep: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_TOKEN", CANARY)
    host = keep(
        credentials=(Credential(name="TOKEN", variable="OUR_TOKEN"),),
        volatile=(VolatileFile(path="/run/token", source="TOKEN"),),
    )
    box = host.next()
    box.arrive()
    box.run("python", "import os; held = os.environ['TOKEN']", variables=box.credentials().values)
    box.sleep()

    again = host.tier.resume(host.policy, host.runtime, PauseResult(held=False))
    with contextlib.closing(GuestChannel(again.socket)) as inside:
        assert "False\n" == inside.run("python", "print('held' in globals())", timeout_s=20).stdout
        assert "" == inside.run("bash", "cat /run/token", timeout_s=20).stdout


def test_a_relay_that_dies_is_replaced_and_the_sandbox_stays(keep: Callable[..., Host]) -> None:
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


def test_a_sandbox_whose_creator_died_before_logging_it_is_ended_by_its_name(
    keep: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = keep()
    with monkeypatch.context() as patch:
        patch.setattr(relay, "start", _dies)
        patch.setattr(E2b, "destroy", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            host.tier.create(host.policy)
    name = host.served.asked("create")[-1]["metadata"]["kasmon"]
    assert 1 == len(calls.find_named(host.served.access, name))

    host.tier.destroy(host.policy, None)

    assert () == calls.find_named(host.served.access, name)


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_without_an_answer_of_the_service_a_sandbox_is_not_reported_as_gone(keep: Callable[..., Host]) -> None:
    host = keep()
    host.next().arrive()
    cut = E2b(access=msgspec.structs.replace(host.served.access, api="http://127.0.0.1:9"))

    with pytest.raises(SandboxError):
        cut.find(host.policy, host.runtime)
    with pytest.raises(SandboxError, match="cannot list the sandboxes at the service"):
        cut.destroy(host.policy, host.runtime)

    assert [host.runtime.remote] == [each for each in _all(host) if each == host.runtime.remote]


def test_while_the_service_is_unreachable_it_stays_paused_with_its_memory(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    box.run("python", "x = 42")
    box.sleep()
    box.tier = E2b(access=msgspec.structs.replace(host.served.access, api="http://127.0.0.1:9"))

    with pytest.raises(SandboxUnreachableError):
        box.wake()
    assert (SandboxPhase.PAUSED, False) == (box.phase, box.journal.sandbox_state.is_intended)
    box.tier = host.tier

    assert "" == box.wake()
    assert "42\n" == box.run("python", "print(x)").stdout


def test_a_copy_has_the_files_and_both_are_paused_and_nothing_else_is_left_at_the_service(
    keep: Callable[..., Host],
) -> None:
    """That it has the memory too, `test_e2b_live.py` asks the real service."""
    host, other = keep(), SandboxPolicy(session=SessionId("zyxwvuts"), tier="e2b")
    box = host.next()
    box.arrive()
    box.run("bash", "echo mine > file")
    with pytest.raises(SnapshotRefusedError, match="it is not paused at the service"):
        host.tier.fork(host.policy, PauseResult(held=False), other)
    box.sleep()
    before = len(host.served.asked())

    try:
        slept = host.tier.fork(host.policy, PauseResult(held=False, snapshot=host.runtime.remote), other)
        asked = [kind for kind, _ in host.served.asked()[before:] if kind not in ("log", "timeout")]
        assert ["connect", "snapshot", "pause", "create", "pause", "drop"] == asked
        assert slept.snapshot not in ("", host.runtime.remote)

        theirs = Host(host.served, other)
        copy = theirs.next()
        assert "" == copy.arrive()
        assert slept.snapshot == theirs.runtime.remote
        assert "" == box.wake()
        box.run("bash", "echo mine again > file")
        assert "mine\n" == copy.run("bash", "cat file; echo theirs > file").stdout
        assert copy.guest is not None
        copy.guest.close()
        assert "theirs\n" == (Path(host.tier.workspace(other)) / "file").read_text()
        assert "mine again\n" == box.run("bash", "cat file").stdout
    finally:
        host.tier.forget(other)


def test_a_failed_copy_leaves_nothing_and_the_original_stays_paused(keep: Callable[..., Host]) -> None:
    host, other = keep(), SandboxPolicy(session=SessionId("zyxwvuts"), tier="e2b")
    box = host.next()
    box.arrive()
    box.run("python", "x = 42")
    box.sleep()
    host.served.fails("/snapshots", status=500, times=9)

    with pytest.raises(SandboxError):
        host.tier.fork(host.policy, PauseResult(held=False, snapshot=host.runtime.remote), other)
    host.served.goes_on()

    assert "paused" == calls.state(host.served.access, host.runtime.remote)
    assert not (user_paths().state / "e2b" / "zyxwvuts" / "record.json").exists()
    assert "" == box.wake()
    assert "42\n" == box.run("python", "print(x)").stdout


def test_its_allowed_hosts_change_while_it_runs_and_when_it_resumes(keep: Callable[..., Host]) -> None:
    host = keep(hosts=("example.org",))
    box = host.next()
    box.arrive()
    body = host.served.asked("create")[-1]
    assert {"allowOut": ["example.org"], "denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False} == body["network"]

    assert "" == box.allow(["example.com"])
    assert ["example.com", "example.org"] == host.served.asked("network")[-1]["allowOut"]
    box.sleep()
    before = host.asked("network")
    assert "" == box.allow(["example.net"])
    assert before == host.asked("network")
    box.wake()

    assert ["example.com", "example.net", "example.org"] == host.served.asked("network")[-1]["allowOut"]


def test_files_made_between_runs_are_here_after_a_sync(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    code = (
        "import socket, threading\nlistening = socket.create_server(('127.0.0.1', 8125))\ndef serve():\n"
        "    link = listening.accept()[0]; open('late', 'w').write('late'); link.sendall(b'made'); link.close()\n"
        "threading.Thread(target=serve).start()"
    )
    box.run("python", code)
    with host.tier.ports(host.policy, host.runtime).connect(8125) as link:
        link.settimeout(10)
        assert b"made" == link.recv(99)
    late = Path(host.tier.workspace(host.policy)) / "late"
    assert not late.exists()

    with contextlib.closing(GuestChannel(host.runtime.socket)) as inside:
        inside.level()
    assert "late" == late.read_text()


def test_a_port_in_the_guest_is_reached_and_one_without_a_listener_is_reported(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    code = (
        "import socket, threading\nlistening = socket.create_server(('127.0.0.1', 8123))\ndef serve():\n"
        "    link = listening.accept()[0]; link.sendall(link.recv(99).upper()); link.close()\n"
        "threading.Thread(target=serve).start()"
    )
    box.run("python", code)
    ports = host.tier.ports(host.policy, host.runtime)

    with ports.connect(8123) as link:
        link.sendall(b"hello")
        link.settimeout(10)
        assert b"HELLO" == link.recv(99)
        assert b"" == link.recv(99)
    with pytest.raises(SandboxError, match="Connection refused"):
        ports.connect(8124)


def test_a_change_here_is_read_by_the_next_run_also_through_another_relay(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    folder = Path(host.tier.workspace(host.policy))
    box.run("bash", "echo old > file; mkdir deep; echo 1 > deep/gone")
    (folder / "file").write_text("of here")
    (folder / "deep/gone").unlink()
    (folder / "deep").rmdir()
    (folder / "new").write_text("new")

    assert "of here new\nfile\nnew\n" == box.run("bash", "echo $(cat file) $(cat new); ls").stdout
    box.sleep()
    (folder / "new").write_text("while it slept")
    box.wake()

    assert "while it slept\n" == box.run("bash", "echo $(cat new)").stdout


def test_a_file_too_large_to_be_fetched_is_reported_once_to_the_caller_of_the_run(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()

    ran = box.run("bash", "truncate -s 65M big; echo 1 > small")

    assert "'big' was not fetched: more than 64 MiB at once." in ran.hint
    assert ["small"] == [path.name for path in Path(host.tier.workspace(host.policy)).iterdir()]
    assert "" == box.run("bash", ":").hint


WRONG = [{"status": 500, "times": 9}, {"status": 429, "times": 9}, {"status": 200, "half": True, "times": 9}]


def test_a_wrong_answer_of_the_service_is_no_end(keep: Callable[..., Host]) -> None:
    """It neither wakes nor is it lost; it sleeps on, and wakes once the service does what it should."""
    host = keep()
    box = host.next()
    box.arrive()
    box.run("python", "x = 42")
    box.sleep()
    for wrong in WRONG:
        host.served.fails("/connect", **wrong)
        with pytest.raises(SandboxUnreachableError):
            box.wake()
        host.served.goes_on()
        assert (SandboxPhase.PAUSED, False) == (box.phase, box.journal.sandbox_state.is_intended)
    assert "" == box.wake()

    host.served.fails("/pause", status=500, times=9)
    box.sleep()
    host.served.goes_on()
    assert (SandboxPhase.RUNNING, True) == (box.phase, "was not paused: the sandbox was not paused" in host.told())
    assert "42\n" == box.run("python", "print(x)").stdout
    host.served.fails("/pause", status=409)
    box.sleep()
    assert SandboxPhase.PAUSED == box.phase
    host.served.fails("/connect", late_s=0.5)

    assert "" == box.wake()
    assert "42\n" == box.run("python", "print(x)").stdout
    assert "lost" not in host.told()


def test_a_failure_around_a_run_is_retried_and_the_run_is_not(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    folder = Path(host.tier.workspace(host.policy))
    (folder / "edited").write_text("here")
    host.served.fails("/files", status=500, times=1)
    assert "here" == box.run("bash", "n=$((n+1)); cat edited").stdout

    host.served.fails("/process.Process/Start", status=500, times=1)
    assert "2\n" == box.run("bash", "n=$((n+1)); echo $n | tee count").stdout
    assert "2\n" == (folder / "count").read_text()


def test_a_sandbox_that_the_service_refuses_leaves_nothing_and_gives_a_next_step(service: Served) -> None:
    tier = E2b(access=service.access)
    for status, said in ((429, "too many"), (401, "E2B_API_KEY"), (500, "")):
        service.fails("/sandboxes", status=status, times=9)
        with pytest.raises(SandboxUnreachableError) as refused:
            tier.create(SandboxPolicy(session=ME))
        service.goes_on()
        assert said in refused.value.hint
        tier.forget(SandboxPolicy(session=ME))
    assert not (user_paths().state / "e2b" / ME).exists()


def test_on_a_full_disk_none_is_created_and_that_is_reported() -> None:
    tier = E2b(access=calls.ServiceAccess(key="key", api="http://127.0.0.1:9"))
    with full_disk(), pytest.raises(SandboxError, match="cannot record the service's sandbox of"):
        tier.create(SandboxPolicy(session=ME))

    assert not (user_paths().state / "e2b" / ME / "record.json").exists()


def test_on_a_full_disk_no_data_in_the_sandbox_is_lost(keep: Callable[..., Host]) -> None:
    host = keep()
    box = host.next()
    box.arrive()
    box.run("python", "x = 42")
    with full_disk(), pytest.raises(SandboxUnreachableError, match="cannot record the service's sandbox of"):
        box.sleep()

    assert "" == box.wake()
    assert "42\n" == box.run("python", "print(x)").stdout


def test_a_service_that_fails_during_a_run_leaves_it_unknown_and_nothing_is_reported_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_jail()
    monkeypatch.setenv("E2B_CONNECTION_RETRIES", "0")
    with served() as dying, ThreadPoolExecutor(1) as others:
        host = Host(dying, SandboxPolicy(session=ME, tier="e2b"))
        box = host.next()
        box.arrive()
        going = others.submit(box.run, "bash", "touch begun; sleep 60")
        until(lambda: b"sleep 60" in _commands(dying))
        dying.end()

        with pytest.raises(AgentLostError) as lost:
            going.result(60)
        assert lost.value.may_have_run
        with pytest.raises(SandboxUnreachableError):
            host.tier.find(host.policy, host.runtime)
        assert host.tier.kept(host.policy) is None
        relay.end_relay(host.runtime)
        if box.guest is not None:
            box.guest.close()


def test_an_unused_sandbox_is_paused_without_credentials_before_the_service_pauses_it(
    keep: Callable[..., Host],
) -> None:
    """Its host is gone, so nobody else takes them out."""
    host = keep(
        credentials=(Credential(name="TOKEN", variable="OUR_TOKEN"),),
        volatile=(VolatileFile(path="/run/token", source="TOKEN"),),
    )
    host.tier = E2b(access=host.served.access, timeout_s=2)
    runtime = host.tier.create(host.policy)
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        inside.run("bash", "export TOKEN", timeout_s=20, variables={"TOKEN": CANARY})
        inside.write_volatile("/run/token", CANARY.encode(), 0o600)
    before = host.asked("pause")

    until(lambda: host.asked("pause") > before)

    assert "paused" == calls.state(host.served.access, runtime.remote)
    again = host.tier.resume(host.policy, runtime, PauseResult(held=False))
    with contextlib.closing(GuestChannel(again.socket)) as inside:
        assert "[]\n" == inside.run("bash", "echo [$TOKEN$(cat /run/token)]", timeout_s=20).stdout


def _commands(served: Served) -> bytes:
    found = b""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(served.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found += " ".join(process.cmdline()).encode() + b"\n"
    return found


def _all(host: Host) -> tuple[str, ...]:
    return calls.find_named(host.served.access, host.served.asked("create")[-1]["metadata"]["kasmon"])


def test_files_removed_and_changed_in_the_guest_are_removed_and_changed_here(keep: Callable[..., Host]) -> None:
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


def test_settings_that_a_service_does_not_support_are_refused(service: Served) -> None:
    tier = E2b(access=service.access)
    for policy in (
        SandboxPolicy(session=ME, project="/usr"),
        SandboxPolicy(session=ME, mounts=(Mount(source="/usr"),)),
        SandboxPolicy(session=ME, hosts=("example.org:8443",)),
    ):
        with pytest.raises(RefusedError):
            tier.create(policy)
        with pytest.raises(RefusedError):
            tier.wrap(policy, ["claude"], "/", {})
    assert not (user_paths().state / "e2b" / ME / "record.json").exists()


def test_a_check_of_the_tier_asks_the_service_and_creates_nothing(service: Served) -> None:
    before = len(service.asked("create"))
    tried = E2b(access=service.access).probe()

    assert tried.ok
    assert tried.measured_ms is not None
    assert before == len(service.asked("create"))


def test_without_a_key_the_error_shows_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    tried = E2b().probe()

    assert (False, True) == (tried.ok, "E2B_API_KEY" in tried.hint)
