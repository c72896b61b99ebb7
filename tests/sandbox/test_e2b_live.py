"""The tier `e2b` at the real service: only where a person asks for it, with a key of theirs, since sandboxes cost.

KASMON_E2B_LIVE=1 E2B_API_KEY=... pytest -m sandboxes tests/sandbox/test_e2b_live.py
"""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator

import pytest

from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Policy
from kasmon.sandbox.channel import Channel
from kasmon.sandbox.e2b.tier import E2b

pytestmark = [
    pytest.mark.sandboxes,
    pytest.mark.skipif(
        not (os.environ.get("KASMON_E2B_LIVE") and os.environ.get("E2B_API_KEY")),
        reason="KASMON_E2B_LIVE and E2B_API_KEY are not set: nobody asked for sandboxes that cost",
    ),
]


@pytest.fixture
def policy() -> Iterator[Policy]:
    wanted = Policy(session=SessionId(secrets.token_hex(4)), tier="e2b")
    yield wanted
    E2b().forget(wanted)


def test_what_the_service_pauses_goes_on_with_files_variables_and_processes(policy: Policy) -> None:
    """Twice: at the service files were lost by the second pause once (e2b-dev/E2B#884)."""
    tier = E2b()
    runtime = tier.create(policy)
    with contextlib.closing(Channel(runtime.socket)) as inside:
        inside.run("python", "x = 42; open('file', 'w').write('kept')", timeout_s=60)
        inside.run("bash", "y=43; sleep 1000 & echo $! > /workspace/pid", timeout_s=60)

    for _ in range(2):
        runtime = tier.resume(policy, runtime, tier.pause(policy, runtime, to_disk=True))
        with contextlib.closing(Channel(runtime.socket)) as inside:
            assert "42 kept\n" == inside.run("python", "print(x, open('file').read())", timeout_s=60).stdout
            assert "43 0\n" == inside.run("bash", "kill -0 $(cat pid); echo $y $?", timeout_s=60).stdout
            assert abs(inside.set_clock(time.time())) < 5
