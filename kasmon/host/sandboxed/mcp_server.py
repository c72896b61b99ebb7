"""Which `kasmon mcp` server a sandbox ends with, by the sandbox's name, and whether that server still runs.

What ends with a server is called `mcp-1a2b3c4d/...`, after the server, which holds a lock until it exits.
"""

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Final

from kasmon.errors import LogMissingError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import SessionRenamed
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.event_log import EventLog

OWN: Final = re.compile(r"(mcp-[0-9a-f]{8})/")
LOOK_S: Final = 5.0
"""How often a host checks whether the server of its session runs, in seconds."""
GONE: Final = "its `kasmon mcp` has ended"


def server_of(name: str) -> str:
    """Return the server that a sandbox called *name* ends with; empty if there is none."""
    found = OWN.match(name)
    return found[1] if found else ""


def lock_of(paths: Paths, server: str) -> Path:
    """Return the file on which *server* holds a lock until it exits."""
    return paths.mcp / f"{server}.lock"


async def server_gone(paths: Paths, session: SessionId, name: str) -> bool:
    """Wait until the server that *session*, first called *name*, ends with has exited: true; false if it has none."""
    while server := server_of(name):
        await asyncio.sleep(LOOK_S)
        if not await asyncio.to_thread(_is_gone, paths, server):
            continue
        now = await asyncio.to_thread(_rename, paths, session, name)
        if now == name:
            return True
        name = now  # a pre-provisioned one, assigned to a client by now
    return False


def _is_gone(paths: Paths, server: str) -> bool:
    try:
        return lock_holder(lock_of(paths, server)) is None
    except OSError:
        return False


def _rename(paths: Paths, session: SessionId, name: str) -> str:
    with contextlib.suppress(LogMissingError, OSError):
        for event in EventLog(paths.fleet_log).events():
            if isinstance(event, SessionRenamed) and event.session == session:
                name = event.name
    return name
