"""A registered machine that lies to the runner of a plan: it harms its own task only."""

from collections.abc import Iterator

import pytest

from kasmon.errors import RefusedError, UnavailableError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.plan.events import TaskPlaced
from kasmon.model.plan.parser import read
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.progress import TaskState
from kasmon.store.machines import Machine, write_machine
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.machines.registration import start_link, status
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.machines import placement
from kasmon.supervisor.plans.machines.placement import ask_offer
from kasmon.supervisor.plans.machines.registered_tasks import RegisteredTasks
from kasmon.supervisor.plans.machines.task_requests import StartTask
from tests.support.bus.buses import command_of
from tests.support.bus.lying_machine import be_silent, build_command, lie
from tests.support.git_repo import Repo
from tests.support.supervisor.env import NOW, Env, end
from tests.support.wait import until

pytestmark = pytest.mark.story

TEXT = '[[task]]\nid = "a"\nmachine = "gpu-1"\nrun = "true"\n'


class Site:
    """A plan here whose task is placed on the machine gpu-1, which answers as `lies` says."""

    def __init__(self) -> None:
        self.here, self.there = Env(), Env()
        self.repo = Repo(self.here.folder / "shop")
        self.lies = self.there.folder / "lies.json"
        command = build_command(command_of(self.there.paths), self.lies)
        write_machine(self.here.paths, Machine(name="gpu-1", command=command))
        start_link(self.here.paths, "gpu-1")
        self.plan: Plan = read(TEXT, "tidy.toml")
        file = self.here.folder / "tidy.toml"
        self.log: PlanLog = start.store_approved_plan(
            self.here.paths, self.plan, TEXT, file, self.repo.folder, headless=False
        )
        placed = TaskPlaced(at=NOW, task="a", attempt=1, machine="gpu-1", why="")
        self.log.note(placed)
        self.tasks = RegisteredTasks(self.here.paths, self.log)

    @property
    def task(self) -> Task:
        return self.plan.tasks[0]

    def start(self) -> str:
        """Start the attempt there; its session."""
        machine, key = self.tasks.key(self.log.run, self.task, 1)
        return self.tasks.start(machine, StartTask(key=key, wave=1, peers=1)).session

    def close(self) -> None:
        for env in (self.here, self.there):
            env.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    site = Site()
    until(lambda: not status(site.here.paths, "gpu-1").is_unreachable, 60.0, what="the link")
    yield site
    site.close()


@pytest.fixture
def site(shared: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    shared.lies.unlink(missing_ok=True)
    for name in ("CONNECT_S", "ANSWER_S"):  # this machine may be busy
        monkeypatch.setattr(placement, name, 60.0)
    return shared


def test_a_session_of_this_machine_is_not_taken_for_that_of_the_task(site: Site) -> None:
    """Or the runner would stop it at the end of the task, and type the task's command into it."""
    site.here.has("abcdefgh")
    lie(site.lies, "start", {"reply": {"session": "abcdefgh", "name": "x", "agent": "x", "mode": "tmux"}})
    with pytest.raises(UnavailableError, match="'abcdefgh' is not a session of it"):
        site.start()


@pytest.mark.parametrize(
    ("code", "exit_code", "kind"),
    [
        ("other-version", 4, RefusedError),  # ends the runner, if it is of a host here
        ("not-found", 3, UnavailableError),  # a machine that is no longer registered
        ("remote-unreachable", 69, UnavailableError),  # asked again for ever
        ("conflict", 4, RefusedError),  # has the files that conflict
    ],
)
def test_an_error_on_the_machine_is_no_error_of_this_machine(site: Site, code: str, exit_code: int, kind: type) -> None:
    lie(site.lies, "start", {"error": {"code": code, "message": "no \x1b[2J\nway", "hint": "\x1b]0;x\x07"}}, exit_code)
    with pytest.raises(kind) as caught:
        site.start()
    assert type(caught.value) is kind
    assert str(caught.value).splitlines() == ["gpu-1: no ", "way"]


def test_an_impossible_offer_is_refused(site: Site) -> None:
    lie(site.lies, "offer", {"offer": {"slots": 8, "memory_mb": 10**400}})
    assert ask_offer(site.here.paths, "gpu-1").problem == "its offer cannot be read"


def test_a_machine_that_does_not_answer_delays_no_other_task(shared: Site) -> None:
    silent = "".join(f'[[task]]\nid = "s{number}"\nmachine = "gpu-1"\nrun = "true"\n' for number in range(16))
    text = f'per_machine = 16\n{silent}[[task]]\nid = "mine"\nrun = "sleep 8"\n'
    config = shared.there.paths.config
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text("[machine]\nslots = 16\n")
    be_silent(shared.lies, "prepare")
    paths, folder = shared.here.paths, shared.repo.folder
    log = start.store_approved_plan(paths, read(text, "s.toml"), text, folder / "s.toml", folder, headless=True)
    start.run(paths, log)

    def is_done() -> bool:
        log.more()
        return log.run.of("mine").state is TaskState.DONE

    try:
        until(is_done, 60.0, what="the end of the task here")
    finally:
        end(lock_holder(log.lock) or 0)
