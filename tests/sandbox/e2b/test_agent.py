"""An agent in a sandbox at the service: its folders follow, its time is prolonged, and what may be kept of it."""

import contextlib
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kasmon.errors import SandboxError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Credential, SandboxPolicy, SandboxRuntime
from kasmon.sandbox.base import PauseResult
from kasmon.sandbox.e2b import service as calls
from kasmon.sandbox.e2b.tier import E2b
from kasmon.sandbox.guest_client.connection import AgentConnection, pack_request
from kasmon.sandbox.remote_guest import launch_spec
from kasmon.sandbox.remote_guest.attach import ProcessStream
from tests.support.e2b.local_service import Served, served
from tests.support.sandbox.requirements import need_jail
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes
ME = SessionId("abcdefgh")
LIMIT_S = 100.0
FOLLOWS = (
    "truncate -s 65M big; while read line; do cat new; echo $line > said; echo $line > ~/note; done; echo last > end;"
    " exit 3"
)


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    need_jail()
    with served() as running:
        yield running


class Lodged:
    """A program in a sandbox at the service, and who works with it."""

    def __init__(self, served: Served, policy: SandboxPolicy, timeout_s: int = 1200) -> None:
        self.tier = E2b(access=served.access, timeout_s=timeout_s, prolong_s=0.1)
        self.served, self.policy = served, policy
        argv = ("bash", "-c", FOLLOWS)
        self.program_launch = self.tier.prepare_program(
            policy, argv, policy.workspace, {"OWN": "mine", "E2B_API_KEY": "hidden"}
        )
        self.tier.host_folders.make(policy.session)
        self.home = self.tier.host_folders.home(policy.session)
        self.said = ""
        self.tether = ProcessStream("one", self._heard)

    def _heard(self, stream: str, data: bytes) -> None:
        self.said += data.decode()

    def begin(self) -> SandboxRuntime:
        runtime = self.tier.create_for_agent(self.policy, self.program_launch)
        with contextlib.closing(AgentConnection(runtime.socket, LIMIT_S)) as line:
            words: dict[str, Any] = {"argv": self.program_launch.argv, "variables": self.program_launch.variables}
            line.send(
                pack_request({"type": "process_start", "run": "one", "workdir": self.program_launch.workdir, **words}),
                LIMIT_S,
            )
            assert line.receive(dict, time.monotonic() + LIMIT_S)["started"]
        assert self.tether.connect(runtime.socket)
        return runtime

    def until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < deadline, self.said
            if self.tether.fileno() >= 0 and select.select([self.tether.fileno()], [], [], 0.05)[0]:
                self.tether.read()

    def close(self) -> None:
        self.tether.disconnect()
        self.tier.forget(self.policy)


@pytest.fixture
def lodge(service: Served, shared: Path) -> Iterator[Callable[..., Lodged]]:
    with contextlib.ExitStack() as stack:

        def made(timeout_s: int = 1200, **more: Any) -> Lodged:
            (shared / "work").mkdir(exist_ok=True)
            found = Lodged(
                service, SandboxPolicy(session=ME, tier="e2b", workspace=str(shared / "work"), **more), timeout_s
            )
            stack.callback(found.close)
            return found

        yield made


def test_its_folders_are_uploaded_before_a_connection_and_fetched_at_rest_before_its_end_is_reported(
    lodge: Callable[..., Lodged],
) -> None:
    one = lodge()
    folder = Path(one.policy.workspace)
    (one.home / "of here").write_text("home")
    one.begin()
    (folder / "new").write_text("made after it began\n")

    one.tether.write(b"first\n")
    one.until(lambda: "made after it began" in one.said)
    one.until(lambda: (folder / "said").exists() and (one.home / "note").exists())
    assert ("first\n", "first\n") == ((folder / "said").read_text(), (one.home / "note").read_text())
    one.tether.close()
    one.until(lambda: one.tether.code is not None)

    assert (3, "last\n") == (one.tether.code, (folder / "end").read_text())
    assert "home" == (one.home / "of here").read_text()
    assert ("'big' was not fetched: more than 64 MiB at once.",) == launch_spec.pop_differences(one.home.parent)
    assert () == launch_spec.pop_differences(one.home.parent)


def test_its_timeout_is_extended_while_a_client_is_connected_and_the_key_is_not_in_the_guest(
    lodge: Callable[..., Lodged], service: Served
) -> None:
    one = lodge()
    before = len(service.asked("timeout"))
    one.begin()

    until(lambda: len(service.asked("timeout")) >= before + 3, LIMIT_S)
    assert ("mine", None) == (one.program_launch.variables["OWN"], one.program_launch.variables.get("E2B_API_KEY"))
    assert service.access.key == one.program_launch.front["E2B_API_KEY"]


def test_a_paused_one_is_resumed_by_its_id_in_the_same_process_and_its_last_work_is_here(
    lodge: Callable[..., Lodged],
) -> None:
    one = lodge()
    (Path(one.policy.workspace) / "new").write_text("new\n")
    runtime = one.begin()
    one.tether.write(b"first\n")
    one.until(lambda: "new" in one.said)

    slept = one.tier.pause(one.policy, runtime, to_disk=True)
    assert "first\n" == (one.home / "note").read_text()
    again = one.tier.resume(one.policy, runtime, PauseResult(held=False, snapshot=slept.snapshot))
    assert one.tether.connect(again.socket)
    one.tether.write(b"second\n")

    one.until(lambda: one.said.count("new") == 2)


def test_an_agent_with_credentials_is_not_paused_and_ends_unused_with_its_files_here(
    lodge: Callable[..., Lodged], service: Served
) -> None:
    one = lodge(timeout_s=2, credentials=(Credential(name="TOKEN", variable="OUR_TOKEN"),))
    runtime, paused = one.begin(), len(service.asked("pause"))
    assert (False, None) == (service.asked("create")[-1]["autoPause"], service.asked("create")[-1].get("autoResume"))
    one.tether.write(b"first\n")
    one.until(lambda: "No such file" in one.said)
    with pytest.raises(UnableError, match="where kasmon stores no secret"):
        one.tier.pause(one.policy, runtime)

    one.tether.disconnect()
    until(lambda: not calls.state(service.access, runtime.remote), LIMIT_S)

    assert paused == len(service.asked("pause"))
    assert "first\n" == (one.home / "note").read_text()
    with pytest.raises(SandboxError, match="the service no longer has it"):
        one.tier.resume(one.policy, runtime, PauseResult(held=False))


def test_a_template_with_a_file_at_an_agents_folder_is_refused(lodge: Callable[..., Lodged]) -> None:
    one = lodge()
    with pytest.raises(SandboxError, match="its template has something at '/usr/share'"):
        one.tier.create_for_agent(SandboxPolicy(session=ME, tier="e2b", workspace="/usr/share"), one.program_launch)
