"""Where the tasks of a plan are placed: real machines, each a kasmon of its own behind a link."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from kasmon.config import Config, Plans
from kasmon.errors import RefusedError
from kasmon.host.rpc.frames import VERSION
from kasmon.model.plan.events import TaskPlaced, decode
from kasmon.model.plan.parser import read
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.scheduler import ChooseMachines, NextSteps, StartNextAttempt, next_steps
from kasmon.store.machines import Machine, write_machine
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.machines.registration import drain, start_link
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.machines import placement
from kasmon.supervisor.plans.machines.placement import TaskPlacement, ask_offer
from kasmon.supervisor.plans.view import apply_config
from tests.support.bus.buses import command_of
from tests.support.git_repo import Repo
from tests.support.other_version import OTHER_KASMON, OtherVersion
from tests.support.supervisor.env import Env

pytestmark = pytest.mark.story

TEXT = """
[[task]]
id = "a"
prompt = "x"
labels = ["gpu"]
[[task]]
id = "b"
prompt = "x"
labels = ["gpu"]
[[task]]
id = "c"
prompt = "x"
machine = "slow"
[[task]]
id = "d"
prompt = "x"
machine = "gone"
[[task]]
id = "e"
prompt = "x"
agent = "claude"
machine = "slow"
"""
CONFIG = Config(default_agent="scripted", plans=Plans(limit=2))


class Placing:
    """A plan that is placed on the machines `gpu`, with one slot, and `slow`."""

    def __init__(self) -> None:
        self.here, self.machines = Env(), {"gpu": Env(), "slow": Env()}
        repo = Repo(self.here.folder / "work")
        settings = {
            "gpu": f'[machine]\nlabels = ["gpu", "linux"]\nslots = 1\nrepositories = ["{repo.folder}"]\n',
            "slow": "",
        }
        for name, env in self.machines.items():
            env.paths.config.mkdir(parents=True, exist_ok=True)
            (env.paths.config / "config.toml").write_text(settings[name])
            write_machine(self.here.paths, Machine(name=name, command=command_of(env.paths)))
            start_link(self.here.paths, name)
        self.plan: Plan = apply_config(read(TEXT, "tidy.toml"), CONFIG)
        file = self.here.folder / "tidy.toml"
        self.log: PlanLog = start.store_approved_plan(
            self.here.paths, self.plan, TEXT, file, repo.folder, headless=False
        )
        self.placement = TaskPlacement(self.here.paths, self.log, CONFIG)

    def ahead(self) -> NextSteps:
        return next_steps(self.plan, self.log.run, {}, self.plan.limit, 0.0)

    async def place(self) -> None:
        """Place what is to be placed now, as the runner does."""
        ahead = await asyncio.to_thread(self.ahead)
        steps = [step for step in ahead.steps if isinstance(step, ChooseMachines)]
        await asyncio.gather(*(self.placement.place(self.plan, step, self.plan.limit) for step in steps))

    def placed(self) -> list[TaskPlaced]:
        lines = (self.log.folder / "events.jsonl").read_bytes().splitlines()
        return [fact for fact in map(decode, lines) if isinstance(fact, TaskPlaced)]

    def close(self) -> None:
        for env in (self.here, *self.machines.values()):
            env.close()


@pytest.fixture
def placing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Placing]:
    for name, seconds in (("AGAIN_S", 0.0), ("CONNECT_S", 60.0), ("ANSWER_S", 60.0)):  # this machine may be busy
        monkeypatch.setattr(placement, name, seconds)
    placing = Placing()
    yield placing
    placing.close()


async def test_each_task_gets_a_suitable_machine_or_waits_with_the_reason(placing: Placing) -> None:
    await placing.place()
    ahead = placing.ahead()

    assert ["a", "c"] == [step.task.id for step in ahead.steps if isinstance(step, StartNextAttempt)]
    assert {"a": "gpu", "c": "slow"} == {id_: at.machine for id_, at in placing.log.run.tasks.items() if at.machine}
    whys = [fact.why for fact in await asyncio.to_thread(placing.placed) if fact.machine == "gpu"]
    assert [True] == [why.startswith("1 of 1 slot free, has the repository, load") for why in whys]
    assert "gpu: its 1 slot is taken; local: it has no label 'gpu'; slow: it has no label 'gpu'" == ahead.blocked["b"]
    assert "no machine 'gone' is registered (`kasmon machines`)" == ahead.blocked["d"]
    assert "slow: cannot start 'claude': 'claude' is not on PATH" == ahead.blocked["e"]
    before = await asyncio.to_thread(placing.placed)
    await placing.place()
    assert before == await asyncio.to_thread(placing.placed), "the same choice is logged once"


async def test_tasks_not_started_on_a_drained_machine_are_placed_again(placing: Placing) -> None:
    await placing.place()
    task, other = placing.plan.task("c"), placing.plan.task("b")
    assert await placing.placement.confirm(task, 1)

    await asyncio.to_thread(drain, placing.here.paths, "slow", drained=True)

    assert not await placing.placement.confirm(task, 1)
    assert not await placing.placement.confirm(other, 1), "it has no machine yet"
    assert "slow: it is drained" == placing.ahead().blocked["c"]
    await placing.place()
    assert "slow: it is drained" == placing.ahead().blocked["c"], "its older offer counts no more"
    await asyncio.to_thread(drain, placing.here.paths, "slow", drained=False)
    placing.placement = TaskPlacement(
        placing.here.paths, placing.log, CONFIG
    )  # without the offer of the drained machine
    await placing.place()
    assert "slow" == placing.log.run.of("c").machine
    assert ["a", "c"] == [step.task.id for step in placing.ahead().steps if isinstance(step, StartNextAttempt)]


async def test_a_machine_with_an_older_kasmon_gets_no_task_and_its_version_is_reported_before_the_start(
    placing: Placing, tmp_path: Path
) -> None:
    old = await asyncio.to_thread(OtherVersion, tmp_path, VERSION)
    await asyncio.to_thread(old.remove_commands, "task")
    variables = [f"{name}={value}" for name, value in old.variables().items()]
    command = ("env", *variables, *command_of(placing.machines["slow"].paths))
    paths, folder = placing.here.paths, Path(placing.log.run.folder)
    await asyncio.to_thread(write_machine, paths, Machine(name="gone", command=command))

    offers = await asyncio.to_thread(placement.find_offers, paths, CONFIG, placing.plan, folder)
    with pytest.raises(RefusedError) as refused:
        await asyncio.to_thread(placement.check_versions, paths, placing.plan, offers)
    shown = await asyncio.to_thread(placement.propose, paths, placing.plan, offers)
    await placing.place()

    why = f"its kasmon ({OTHER_KASMON}) does not run tasks of other machines' plans; update it"
    assert f"gone: {why}" == shown["d"].why == placing.ahead().blocked["d"]
    assert f"task 'd' cannot run on machine 'gone': {why}." == refused.value.message
    others = msgspec.structs.replace(placing.plan, tasks=placing.plan.tasks[:3])
    assert [f"machine 'gone' gets no task: {why}"] == await asyncio.to_thread(
        placement.check_versions, paths, others, offers
    )
    assert "c" in [step.task.id for step in placing.ahead().steps if isinstance(step, StartNextAttempt)]
    assert (await asyncio.to_thread(ask_offer, paths, "slow")).problem == ""


async def test_a_machine_is_lost_once_it_was_unreachable_for_long_enough(placing: Placing) -> None:
    await placing.place()
    await asyncio.to_thread(write_machine, placing.here.paths, Machine(name="broken", command=("false",)))

    def find_lost(limit_s: float) -> Mapping[str, str]:
        return placing.placement.find_lost({"gpu", "broken", "nowhere"}, limit_s)

    assert {} == await asyncio.to_thread(find_lost, 60.0)
    assert {
        "broken": "its machine 'broken' was unreachable for 0 s",
        "nowhere": "its machine 'nowhere' was not registered for 0 s",
    } == await asyncio.to_thread(find_lost, 0.0)


def test_an_unusable_machine_offers_nothing_and_gives_the_reason(placing: Placing) -> None:
    paths, command = placing.here.paths, command_of(placing.machines["gpu"].paths)
    machines = [
        Machine(name="viewed", command=("sh", "-c", f'exec {" ".join(command)} "$@" --allow see', "kasmon")),
        Machine(name="drained", command=command, drained=True),
        Machine(name="broken", command=("false",)),
    ]

    problems = []
    for machine in machines:
        write_machine(paths, machine)
        problems.append(ask_offer(paths, machine.name).problem)

    assert "the owner of that machine does not let you start and end its sessions, or run commands" == problems[0]
    assert ("it is drained", True) == (problems[1], bool(problems[2]))
