"""Agents in sandboxes that keep memory, by kasmon's own command line, for tests: made, put to disk, robbed of all."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import ConfinementSeen, SandboxPhaseChanged
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy, SandboxRuntime, Tier
from kasmon.model.session_state import SessionState
from kasmon.process_identity import is_running, started_at
from kasmon.sandbox.e2b import service
from kasmon.sandbox.remote_guest.launch_spec import AgentTier, load_agent_tier
from kasmon.sandbox.shared.safe_tree import remove_tree
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.sandbox.machine_image import CACHE
from tests.support.sandbox.sandboxed_agents import facts, session_of, until_state
from tests.support.wait import until

LIMIT_S = 60.0


def lodged(fork_server: ForkServer, tier: Tier, variables: Mapping[str, str] = {}) -> Iterator[Cli]:
    """A kasmon, with *variables*, whose sandboxes of *tier* are its own, and gone at the end."""
    line = Cli(fork_server)
    line.environment.update(variables)
    line.environment["SHELL"] = "/bin/bash"
    line.paths.make()
    if tier == "microvm":
        for name in ("image", "machines"):
            (line.paths.state / name).symlink_to(CACHE / name)
    service.add_access(variables)
    host_folders = load_agent_tier(line.paths, SandboxPolicy(session=SessionId("nobody00"), tier=tier)).host_folders
    host_folders.base  # noqa: B018 (it is remembered, as it is while the folders stand)
    try:
        yield line
    finally:
        for folder in sorted(line.paths.sessions.glob("*")):
            line("stop", folder.name)
            lodger, policy = tier_of(line, SessionId(folder.name))
            lodger.destroy(policy, None)
        line.close()
        remove_tree(host_folders.base)


def begun(kasmon: Cli, tier: Tier, workdir: Path, *more: str, agent: str = "scripted") -> SessionId:
    done = kasmon("new", "mine", "--agent", agent, "--sandbox", tier, "--dir", str(workdir), *more)
    assert 0 == done.code, done.err
    return SessionId(done.out.strip())


def there(kasmon: Cli, session: SessionId, count: int = 1) -> SandboxRuntime:
    """Where it lives, once that was seen so often."""
    until(lambda: len(facts(kasmon, session, ConfinementSeen)) >= count, LIMIT_S, "a look at its sandbox")
    runtime = facts(kasmon, session, ConfinementSeen)[-1].runtime
    assert isinstance(runtime, SandboxRuntime)
    return runtime


def tier_of(kasmon: Cli, session: SessionId) -> tuple[AgentTier, SandboxPolicy]:
    policy = msgspec.json.decode(kasmon.paths.sandbox(session).read_bytes(), type=SandboxPolicy)
    return load_agent_tier(kasmon.paths, policy), policy


def put_to_disk(kasmon: Cli, session: SessionId) -> None:
    """Pause it, once it is idle; nothing of its sandbox runs then."""
    until_state(kasmon, session, SessionState.IDLE)
    runtime = session_of(kasmon, session).sandbox_state.runtime
    done = kasmon("sandbox", "pause", session, "--disk")
    assert 0 == done.code, done.err
    until_state(kasmon, session, SessionState.PAUSED)
    assert not is_running(runtime.pid, runtime.started)
    moves = facts(kasmon, session, SandboxPhaseChanged)
    assert (SandboxPhase.PAUSED, False) == (moves[-1].phase, moves[-1].held)
    assert moves[-1].snapshot


def robbed(kasmon: Cli, session: SessionId) -> None:
    """Kill its host, tmux and what stands in front of it, as a machine that loses its power does."""
    front = there(kasmon, session).front
    asks = ["tmux", "-S", str(kasmon.paths.tmux_socket), "display-message", "-p", "#{pid}"]
    server = int(subprocess.run(asks, capture_output=True, check=True).stdout)
    for pid in (lock_holder(kasmon.paths.tmux_host_lock), server, front):
        if pid:
            born = started_at(pid)
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid, born=born: not is_running(pid, born))  # type: ignore[misc]
