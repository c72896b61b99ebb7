"""The identity of an MCP client: the fleet names of its sessions, and the lock that shows that its server runs.

Sessions that end with one server are named `mcp-1a2b3c4d/...`, after the server. A named client, or one that is itself
a kasmon session, uses its own name instead: its next server finds the sessions again.
"""

import re
import secrets
from typing import Final

from kasmon.errors import UsageError
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.host.sandboxed.mcp_server import lock_of, server_of
from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.paths import Paths, private_folder
from kasmon.supervisor.sessions.names import check_name

ONCE: Final = "once"
TEMPORARY: Final = re.compile(rf"mcp-[0-9a-f]{{8}}/{ONCE}-[0-9a-f]{{8}}")


class ClientIdentity:
    """The names of one server. Call `begin` before any session is created under them."""

    def __init__(self, paths: Paths, client: str = "") -> None:
        """*client*: the name under which sessions outlive this server; empty for none.

        Raises:
            UsageError: if that is not a valid client name.
        """
        if client and ("/" in client or check_name(client) != client or server_of(f"{client}/")):
            raise UsageError(f"{client!r} is not a valid client name.", hint="Use letters and digits.")
        self._paths = paths
        self.own: Final = f"mcp-{secrets.token_hex(4)}"
        self.prefix: Final = client or self.own
        self._lock = HostLock(lock_of(paths, self.own))

    def begin(self) -> None:
        """Take the lock that shows that this server runs; blocks."""
        self._paths.make()
        private_folder(self._lock.path.parent)
        self._lock.acquire()

    def end(self) -> None:
        """Release the lock, once no session has this server's own names; blocks."""
        self._lock.path.unlink(missing_ok=True)
        self._lock.let_go()

    def name_of(self, session: str) -> str:
        """Return the fleet name of the client's *session*.

        Raises:
            UsageError: if it is not valid unchanged: the displayed name would differ.
        """
        name = check_name(f"{self.prefix}/{session}")
        if name != f"{self.prefix}/{session}" or session != session.strip():
            raise UsageError(f"{session!r} is not a valid session name.", hint="Use letters and digits.")
        return name

    def sessions(self, fleet: Fleet) -> list[tuple[str, Session]]:
        """Return the client's sessions by the names that it gave them; not those of runs without one."""
        start = f"{self.prefix}/"
        sandboxes = (each for each in fleet.here if each.mode is Mode.INTERPRETER)
        own = (each for each in sandboxes if each.name.startswith(start))
        named = [(each.name.removeprefix(start), each) for each in own if not TEMPORARY.fullmatch(each.name)]
        return sorted(named, key=lambda each: each[0])

    def temporary_sessions(self, fleet: Fleet) -> list[Session]:
        """Return the sessions that end with this server."""
        return [session for session in fleet.here if _server_of(session) == self.own]


def temporary_name(owner: ClientIdentity) -> str:
    """Return a name for a sandbox without a requested one."""
    return f"{owner.own}/{ONCE}-{secrets.token_hex(4)}"


def find_abandoned(paths: Paths, fleet: Fleet) -> list[Session]:
    """Return the sessions of servers that exited without removing them; blocks."""
    gone: dict[str, bool] = {}
    left = []
    for session in fleet.here:
        if server := _server_of(session):
            if server not in gone:
                gone[server] = lock_holder(lock_of(paths, server)) is None
            if gone[server]:
                left.append(session)
    return left


def _server_of(session: Session) -> str:
    """Return the server whose session it is; empty if it is none's."""
    return server_of(session.name) if session.mode is Mode.INTERPRETER else ""
