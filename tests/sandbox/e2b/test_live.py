"""The tier `e2b` at the real service: only where a person asks for it, with a key of theirs, since sandboxes cost.

KASMON_E2B_LIVE=1 E2B_API_KEY=... pytest -m sandboxes tests/sandbox/e2b/test_live.py

It makes six sandboxes, of a few minutes in all, and leaves none. What the stand-in on loopback cannot show is asked
here: that memory is kept, that a copy has it, and that the service's firewall and times do what they are told.
"""

import contextlib
import os
import secrets
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kasmon.errors import SandboxError
from kasmon.model.events import Event, NoticeRaised
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Interpreter, RunResult, SandboxPolicy, SandboxRuntime
from kasmon.model.sandbox.state import SandboxState, apply_sandbox_event
from kasmon.sandbox.e2b import service as calls
from kasmon.sandbox.e2b.tier import E2b
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.managed.idle_policy import LifetimeTerms
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from tests.support.wait import until

pytestmark = [
    pytest.mark.sandboxes,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (os.environ.get("KASMON_E2B_LIVE") and os.environ.get("E2B_API_KEY")),
        reason="KASMON_E2B_LIVE and E2B_API_KEY are not set: nobody asked for sandboxes that cost",
    ),
]


@pytest.fixture
def tier() -> E2b:
    return E2b(prolong_s=5)


@pytest.fixture
def policy(tier: E2b) -> Iterator[Callable[..., SandboxPolicy]]:
    """Policies of sessions of which nothing is left at the end, here and at the service."""
    made: list[SandboxPolicy] = []

    def make(**more: object) -> SandboxPolicy:
        made.append(SandboxPolicy(session=SessionId(secrets.token_hex(4)), tier="e2b", **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        tier.forget(each)
    access = tier.access()
    assert not any(calls.find_named(access, tier._name(each.session)) for each in made)


def ran(runtime: SandboxRuntime, interpreter: Interpreter, code: str, **more: str) -> RunResult:
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        return inside.run(interpreter, code, timeout_s=60, variables=more)


def test_a_sandbox_that_the_service_paused_continues_with_files_variables_and_processes(
    tier: E2b, policy: Callable[..., SandboxPolicy]
) -> None:
    """Twice: at the service files were lost by the second pause once (e2b-dev/E2B#884). A copy has all of it too."""
    mine, other = policy(), policy()
    runtime = tier.create(mine)
    assert [runtime.remote] == list(calls.find_named(tier.access(), tier._name(mine.session)))
    ran(runtime, "python", "x = 42; open('file', 'w').write('kept')")
    ran(runtime, "bash", "y=43; sleep 1000 & echo $! > /workspace/pid")

    for _ in range(2):
        slept = tier.pause(mine, runtime, to_disk=True)
        assert "paused" == calls.state(tier.access(), runtime.remote)
        runtime = tier.resume(mine, runtime, slept)
        assert "42 kept\n" == ran(runtime, "python", "print(x, open('file').read())").stdout
        assert "43 0\n" == ran(runtime, "bash", "kill -0 $(cat pid); echo $y $?").stdout
        with contextlib.closing(GuestChannel(runtime.socket)) as inside:
            assert abs(inside.set_clock(time.time())) < 5

    slept = tier.pause(mine, runtime, to_disk=True)
    copy = tier.resume(other, runtime, tier.fork(mine, slept, other))
    runtime = tier.resume(mine, runtime, slept)
    ran(copy, "python", "x += 1; open('file', 'w').write('of the copy')")
    assert "43 of the copy\n" == ran(copy, "python", "print(x, open('file').read())").stdout
    assert "42 kept\n" == ran(runtime, "python", "print(x, open('file').read())").stdout


def test_a_run_streams_has_its_own_variables_and_reads_changes_made_here(
    tier: E2b, policy: Callable[..., SandboxPolicy]
) -> None:
    mine = policy()
    runtime = tier.create(mine)
    heard: list[str] = []
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        code = "for n in 1 2 3; do echo $n; sleep 1; done"
        inside.run("bash", code, timeout_s=60, on_output=lambda _, text: heard.append(text))
    assert len(heard) > 1
    assert "lent\n" == ran(runtime, "bash", "echo $LENT", LENT="lent").stdout
    runtime = tier.resume(mine, runtime, tier.pause(mine, runtime))
    assert "\n" == ran(runtime, "bash", "echo $LENT").stdout
    (Path(tier.workspace(mine)) / "edited").write_text("here")
    assert "here" == ran(runtime, "bash", "cat edited").stdout


def test_it_reaches_its_allowed_hosts_and_its_ports_are_reached_only_from_here(
    tier: E2b, policy: Callable[..., SandboxPolicy]
) -> None:
    mine = policy(hosts=("example.com",))
    runtime = tier.create(mine)
    asks = "curl -sS -m 10 -o /dev/null -w '%{{http_code}}' https://{}"
    assert "200" == ran(runtime, "bash", asks.format("example.com")).stdout
    assert "200" != ran(runtime, "bash", asks.format("example.org")).stdout
    ran(runtime, "bash", "cd /tmp; python3 -m http.server 8123 >/dev/null 2>&1 &")
    ports = tier.ports(mine, runtime)

    def connected() -> socket.socket | None:
        with contextlib.suppress(SandboxError):
            return ports.connect(8123)
        return None

    with until(connected) as link:
        link.sendall(b"GET / HTTP/1.0\r\n\r\n")
        link.settimeout(20)
        assert link.recv(99).startswith(b"HTTP/1.0 200")
    sandbox = calls.connect(tier.access(), runtime.remote, 60)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"https://{sandbox.get_host(8123)}", timeout=20)


def test_its_timeout_is_extended_during_a_run_and_a_lost_one_is_replaced(
    policy: Callable[..., SandboxPolicy],
) -> None:
    mine, facts = policy(), list[Event]()
    brief = E2b(timeout_s=20, prolong_s=5)

    def box() -> ManagedSandbox:
        known: SandboxState | None = None
        for fact in facts:
            known = apply_sandbox_event(known, fact)
        journal = SandboxJournal(known, facts.append, tier="e2b", keeps_memory=True, terms=LifetimeTerms())
        return ManagedSandbox(brief, mine, journal, lambda runtime: GuestChannel(runtime.socket))

    one = box()
    one.arrive()
    assert "done\n" == one.run("bash", "x=42; sleep 40; echo done").stdout
    one.sleep()
    runtime = one.journal.sandbox_state.runtime
    assert runtime is not None
    calls.kill(brief.access(), runtime.remote)

    assert "the service no longer has it" in one.wake()
    assert any("lost" in fact.text for fact in facts if isinstance(fact, NoticeRaised))
    assert "[]\n" == one.run("bash", "echo [$x]").stdout
    if one.guest is not None:
        one.guest.close()
