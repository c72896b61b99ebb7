"""Agents inside jails by kasmon's own command line, for tests: made, looked at, their hosts killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import ConfinementSeen
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.process_identity import is_running, started_at
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.sandbox.conftest import open_to_others
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.sandbox.requirements import closed
from tests.support.wait import until

ACP = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": 1, "agentCapabilities": {}}
    elif asked.get("method") == "session/new":
        result = {"sessionId": "one"}
    elif asked.get("method") == "session/prompt":
        result = {"stopReason": "end_turn"}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""A program of the standard library that speaks as much of the Agent Client Protocol as a turn needs."""
LIMIT_S = 100.0


def lined(can_jail: None, fork_server: ForkServer) -> Iterator[Cli]:
    """A kasmon with jails of its own, of which nothing is left."""
    line = Cli(fork_server)
    line.environment["SHELL"] = "/bin/bash"
    yield line
    closed(line)


def folder(shared: Path) -> Path:
    """A folder for an agent to work in."""
    return open_to_others(shared / "work")


def configured(kasmon: Cli, text: str) -> None:
    kasmon.paths.config.mkdir(mode=0o700, exist_ok=True)
    kasmon.paths.config_file.write_text(text)


def started(kasmon: Cli, workdir: Path, *more: str, agent: str = "shell") -> SessionId:
    done = kasmon("new", "mine", "--agent", agent, "--sandbox", "jail", "--dir", str(workdir), *more)
    assert 0 == done.code, done.err
    return SessionId(done.out.strip())


def session_of(kasmon: Cli, session: SessionId) -> Any:
    seen = read_fleet(kasmon.paths).get(session)
    assert seen is not None
    return seen


def until_state(kasmon: Cli, session: SessionId, *states: SessionState) -> None:
    until(lambda: session_of(kasmon, session).state in states, LIMIT_S, f"one of {states}")


def host_of(kasmon: Cli, session: SessionId) -> int:
    pid = lock_holder(kasmon.paths.host_lock(session))
    assert pid
    return pid


def facts(kasmon: Cli, session: SessionId, kind: type) -> list[Any]:
    return [event for event in EventLog(kasmon.paths.log(session)).events() if isinstance(event, kind)]


def seen(kasmon: Cli, session: SessionId, count: int = 1) -> ConfinementSeen:
    until(lambda: len(facts(kasmon, session, ConfinementSeen)) >= count, LIMIT_S, "a look at its jail")
    found = facts(kasmon, session, ConfinementSeen)[-1]
    assert isinstance(found, ConfinementSeen)
    return found


def shows(kasmon: Cli, session: SessionId, text: str) -> str:
    def there() -> str:
        output = kasmon("read", session).out
        return output if text in output else ""

    try:
        return until(there, LIMIT_S)
    except TimeoutError:
        raise AssertionError(f"no {text!r} in:\n{kasmon('read', session).out}") from None


def stands_still(pid: int) -> bool:
    """Whether process *pid* is stopped, by a signal or by its control group."""
    if "T" == Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
        return True
    own = next(line[3:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))
    tops = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
    events = next(path for top in tops if (path := top / own.lstrip("/") / "cgroup.events").exists())
    return "frozen 1" in events.read_text()


def killed_host(kasmon: Cli) -> None:
    pid = lock_holder(kasmon.paths.tmux_host_lock)
    assert pid
    born = started_at(pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_running(pid, born))


def standby_after(kasmon: Cli, seconds: float, more: str = "") -> None:
    configured(kasmon, f"[session]\nstandby_after_seconds = {seconds}\n{more}")
