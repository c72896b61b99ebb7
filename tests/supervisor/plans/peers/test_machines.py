"""Peers of one wave on two machines, in a plan that runs."""

import sys
from collections.abc import Iterator

import pytest

from kasmon.model.permission import SessionId
from kasmon.model.plan.events import PeerMessageDelivered
from kasmon.model.plan.progress import TaskState
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.supervisor.machine_plan import MachinePlan
from tests.support.wait import until

pytestmark = pytest.mark.story

KASMON = f"{sys.executable} -P -m kasmon"
PLAN = f"""
advance = "auto"
[[task]]
id = "store"
prompt = "hang"
worktree = "own"
[[task]]
id = "tokens"
machine = "gpu-1"
run = "until {KASMON} ctx --json | grep -q the-store; do sleep 0.2; done; {KASMON} tell 1 'the tokens are done'"
"""


@pytest.fixture
def site() -> Iterator[MachinePlan]:
    site = MachinePlan(PLAN.replace('id = "store"', 'id = "store"\ntitle = "the-store"'), ("gpu-1",))
    yield site
    site.close()


def test_a_task_there_knows_its_peer_here_and_writes_to_it(site: MachinePlan) -> None:
    site.start()
    site.until(lambda now: now.of("tokens").state is TaskState.DONE)

    site.until(lambda now: now.delivered)
    [delivered] = [fact for fact in site.facts() if isinstance(fact, PeerMessageDelivered)]
    store = SessionId(site.log.run.of("store").session)
    assert (delivered.session, delivered.to, delivered.why) == (site.log.run.of("tokens").session, store, "")
    until(
        lambda: any(receipt.by == "peer" for receipt in read_fleet(site.here.paths).require(store).receipts),
        what="the message here",
    )
