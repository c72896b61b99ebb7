"""Start a host as a process of its own, which outlives whoever started it."""

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
"""Variables that say where their process runs; a host runs somewhere else."""
RUNNING = ("KASMON_", "PYTHON", "LD_", "DYLD_", "COVERAGE_", "VIRTUAL_ENV")
"""How the variables begin that a host itself runs by, beside those that every agent gets."""
SERVICES = ("E2B_",)
"""Likewise those by which it reaches sandboxes that are kept elsewhere; it gets them in memory only."""


def spawn(places: Paths, session: SessionId | None, since: Cursor | None = None) -> subprocess.Popen[bytes]:
    """Start the host of *session*, or the shared tmux host for None, detached; do not wait for its socket.

    What it prints goes to its host log. Several at once do no harm: one takes the lock, the others leave.

    Args:
        places: where it finds its session.
        session: whose agent it starts.
        since: what its starter had read of the session's log. A host that finds more there has come too late, and
            starts nothing.

    Raises:
        OSError: if no process could be started.
    """
    log = places.host_log(session) if session else places.tmux_host_log
    what = [session, *([] if since is None else ["--since", str(since)])] if session else ["--tmux"]
    return _detached(places, what, log, keeps=bool(session))


def spawn_runner(places: Paths, plan: str) -> subprocess.Popen[bytes]:
    """Start the process that runs *plan*, detached; it passes what is ours of the environment on to its agents.

    Several at once do no harm: one takes the lock, the others leave.

    Raises:
        OSError: if no process could be started.
    """
    return _detached(places, ["--plan", plan], places.plan(plan) / "host.log", keeps=True)


def _detached(places: Paths, what: Sequence[str], log: Path, *, keeps: bool) -> subprocess.Popen[bytes]:
    """`kasmon host` with the arguments *what*; with *keeps* it has all our variables, most of them in memory only."""
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
    """What a host gets of *variables*: what it is started with, and what only goes into its memory, for its agent.

    Not among either are those that say where the starter itself runs. A shared host needs none for its agents: they
    come with each wish to start one.
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
    """The last line that a host printed; empty if it was silent."""
    try:
        lines = log.read_bytes()[-4096:].decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
