"""Start a host as a process of its own, which outlives whoever started it."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from kasmon.model.permission import SessionId
from kasmon.paths import Places
from kasmon.store.log import Cursor

OF_ONE_SESSION = ("KASMON_SESSION", "KASMON_TASK", "KASMON_WAVE", "KASMON_PEERS", "KASMON_PLAN", "TMUX", "TMUX_PANE")
"""Variables that say where their process runs; a host runs somewhere else."""
LOG_BYTES = 1 << 20
"""A host's own log (what it prints, not the session's facts) starts anew once it is longer than this."""


def spawn(places: Places, session: SessionId | None, since: Cursor | None = None) -> subprocess.Popen[bytes]:
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
    places.make()
    log = places.host_log(session) if session else places.tmux_host_log
    what = [session, *([] if since is None else ["--since", str(since)])] if session else ["--tmux"]
    with _opened(log) as output:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "kasmon", "host", *what],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=surroundings(places, os.environ),
            umask=0o077,
            start_new_session=True,
        )
    threading.Thread(target=child.wait, name=f"reaps host {child.pid}", daemon=True).start()
    return child


def surroundings(places: Places, variables: Mapping[str, str]) -> dict[str, str]:
    """What a host gets of *variables*: all, but for those that say where the starter itself runs; and our places."""
    kept = {
        name: value
        for name, value in variables.items()
        if name not in OF_ONE_SESSION and not name.startswith("KASMOS_")
    }
    return kept | places.environment_variables()


def last_words(log: Path) -> str:
    """The last line that a host printed; empty if it was silent."""
    try:
        lines = log.read_bytes()[-4096:].decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _opened(log: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(log, flags, 0o600)
    if os.fstat(handle).st_size > LOG_BYTES:
        os.ftruncate(handle, 0)
    return os.fdopen(handle, "ab")
