"""A plan over many machines whose runner, broker and machines are killed at random: `make test-faults`."""

import asyncio
import os
import random
import time

import pytest

from kasmon.model.plan.progress import PlanRun, TaskState
from tests.support.supervisor.cluster_plan import ClusterPlan

TASKS, MACHINES, SLOTS, SEED, KILLS = (
    int(os.environ.get(f"KASMON_FAULT_{name}", usual))
    for name, usual in (("TASKS", 8), ("MACHINES", 2), ("SLOTS", 2), ("SEED", 1), ("KILLS", 4))
)
"""docs/cluster.md reports `KASMON_FAULT_TASKS=60 KASMON_FAULT_MACHINES=4 KASMON_FAULT_KILLS=15`."""
LIMIT_S = 300.0 + 10.0 * TASKS


@pytest.mark.faults
@pytest.mark.timeout(LIMIT_S + 60)
def test_each_task_takes_effect_once_or_the_log_names_other_attempts_that_did() -> None:
    chance = random.Random(SEED)
    names = [f"m{number}" for number in range(1, MACHINES + 1)]
    plan = ClusterPlan(TASKS, names, SLOTS)
    kills = (
        plan.kill_runner,
        plan.kill_broker,
        lambda: plan.kill_service(chance.choice(names)),
        lambda: plan.kill_machine(chance.choice(names)),
    )
    began = time.monotonic()
    try:
        asyncio.run(plan.start())
        for number in range(KILLS):
            due = (number + 1) * TASKS // (KILLS + 1)
            plan.until(lambda now, due=due: now.state == "ended" or count_done(now) >= due, LIMIT_S)  # type: ignore[misc]
            chance.choice(kills)()
        ended = plan.until(lambda now: now.state == "ended", LIMIT_S)
        effects, reported = plan.effects(), plan.reported()
    finally:
        took_s = time.monotonic() - began
        plan.close()

    more = effects.total() - TASKS
    print(f"{TASKS} tasks, {MACHINES} machines, {KILLS} kills, seed {SEED}: {took_s:.0f} s, {more} effects of others")
    assert {TaskState.DONE} == {at.state for at in ended.tasks.values()}, ended.why
    for task, at in ended.tasks.items():
        assert effects[task, at.attempt], f"{task} is done without its effect"
        allowed = {attempt: reported[task, attempt] + (attempt == at.attempt) for attempt in range(1, at.attempt + 1)}
        for attempt, most in allowed.items():
            assert effects[task, attempt] <= most, f"attempt {attempt} of {task} took effect and is not reported"
    assert len(ended.tasks) == TASKS


def count_done(now: PlanRun) -> int:
    return sum(at.state is TaskState.DONE for at in now.tasks.values())
