"""Starts a host as a separate process, which outlives its starter."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from kasmon.backends.common.environment import secret_values
from kasmon.host.journal.process_log import opened
from kasmon.host.rpc.secret_stdin import handed
from kasmon.launch import MACHINERY, base_environment
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.event_log import Cursor

OF_ONE_SESSION = ("KASMON_SESSION", "KASMON_TASK", "KASMON_WAVE", "KASMON_PEERS", "KASMON_PLAN", "TMUX", "TMUX_PANE")
"""Variables that describe where their process runs; a host runs elsewhere."""
RUNNING = ("KASMON_", "PYTHON", "LD_", "DYLD_", "COVERAGE_", "VIRTUAL_ENV")
"""Prefixes of the variables that a host itself needs, in addition to those that every agent gets."""
SERVICES = ("E2B_",)
"""Prefixes of the variables for sandboxes on a remote service; a host gets them in memory only."""


def spawn(places: Paths, session: SessionId | None, since: Cursor | None = None) -> subprocess.Popen[bytes]:
    """Start the host of *session*, or the shared tmux host for None, detached; do not wait for its socket.

    Its output goes to its host log. Several at once do no harm: one gets the lock, the others exit.

    Args:
        places: the folders of its session.
        session: the session whose agent it starts.
        since: the starter's position in the session's log. A host that finds more there has come too late, and
            starts nothing.

    Raises:
        OSError: if no process could be started.
    """
    log = places.host_log(session) if session else places.tmux_host_log
    what = [session, *([] if since is None else ["--since", str(since)])] if session else ["--tmux"]
    return _detached(places, what, log, keeps=bool(session))


def spawn_runner(places: Paths, plan: str) -> subprocess.Popen[bytes]:
    """Start the process that runs *plan*, detached; it passes kasmon's variables on to its agents.

    Several at once do no harm: one gets the lock, the others exit.

    Raises:
        OSError: if no process could be started.
    """
    return _detached(places, ["--plan", plan], places.plan(plan) / "host.log", keeps=True)


def _detached(places: Paths, what: Sequence[str], log: Path, *, keeps: bool) -> subprocess.Popen[bytes]:
    """Start `kasmon host` with the arguments *what*; with *keeps* it has all variables, most of them in memory only."""
    places.make()
    shown, kept = surroundings(places, os.environ)
    kept = kept if keeps else {name: value for name, value in kept.items() if name.startswith(SERVICES)}
    with opened(log) as output, handed(places, kept) as given:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "kasmon", "host", *what],
            stdin=given,
            stdout=output,
            stderr=output,
            cwd="/",
            env=shown | {MACHINERY: "host"},
            umask=0o077,
            start_new_session=True,
        )
    threading.Thread(target=child.wait, name=f"reaps host {child.pid}", daemon=True).start()
    return child


def surroundings(places: Paths, variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the part of *variables* that a host is started with, and the part kept in its memory, for its agent.

    Neither has those that describe where the starter itself runs. A shared host needs none for its agents: they come
    with each command to start one.
    """
    kept = {
        name: value
        for name, value in variables.items()
        if name not in OF_ONE_SESSION and not name.startswith("KASMOS_")
    }
    usual = base_environment(kept) | {name: value for name, value in kept.items() if name.startswith(RUNNING)}
    shown = {name: value for name, value in usual.items() if not secret_values({name: value})}
    return shown | places.environment_variables(), {name: kept[name] for name in kept.keys() - shown.keys()}


def last_words(log: Path) -> str:
    """Return the last line that a host printed; empty if there is none."""
    try:
        lines = log.read_bytes()[-4096:].decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
