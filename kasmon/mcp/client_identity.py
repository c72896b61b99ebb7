"""Whose sandboxes these are: the names that a client's sessions have in the fleet, and the lock that says it lives.

What ends with one server is called `mcp-1a2b3c4d/...`, after the server. A client that has a name of its own, or that
is itself a session of kasmon's, keeps its sessions under that: the next server of the same one finds them again.
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
from kasmon.supervisor.sessions.names import proper

ONCE: Final = "once"


class ClientIdentity:
    """One server's names. `begin` before anything is made under them."""

    def __init__(self, places: Paths, client: str = "") -> None:
        """*client*: the name under which sessions outlive this server; empty is none.

        Raises:
            UsageError: if that cannot be a client's name.
        """
        if client and ("/" in client or proper(client) != client or server_of(f"{client}/")):
            raise UsageError(f"{client!r} is not a valid client name.", hint="Use letters and digits.")
        self._places = places
        self.own: Final = f"mcp-{secrets.token_hex(4)}"
        self.prefix: Final = client or self.own
        self._lock = HostLock(lock_of(places, self.own))

    def begin(self) -> None:
        """Say that this server lives; blocks."""
        self._places.make()
        private_folder(self._lock.path.parent)
        self._lock.take()

    def end(self) -> None:
        """Nothing is under its own names any more; blocks."""
        self._lock.path.unlink(missing_ok=True)
        self._lock.let_go()

    def name_of(self, session: str) -> str:
        """What the client's *session* is called in the fleet.

        Raises:
            UsageError: if it is no name as it stands: what is shown would be another one.
        """
        name = proper(f"{self.prefix}/{session}")
        if name != f"{self.prefix}/{session}" or session != session.strip():
            raise UsageError(f"{session!r} is not a valid session name.", hint="Use letters and digits.")
        return name

    def sessions(self, fleet: Fleet) -> list[tuple[str, Session]]:
        """The client's sessions, by the name that it gave them; those of runs without one are not among them."""
        found = []
        for session in fleet.sessions:
            prefix, slash, name = session.name.partition("/")
            if session.mode is Mode.INTERPRETER and slash and prefix == self.prefix and not _is_once(session.name):
                found.append((name, session))
        return sorted(found, key=lambda each: each[0])

    def passing(self, fleet: Fleet) -> list[Session]:
        """What ends with this server."""
        return [session for session in fleet.sessions if _server_of(session) == self.own]


def once(owner: ClientIdentity) -> str:
    """A name for a sandbox that nobody asked for by name."""
    return f"{owner.own}/{ONCE}-{secrets.token_hex(4)}"


def abandoned(places: Paths, fleet: Fleet) -> list[Session]:
    """What was to end with a server that is gone without having ended it; blocks."""
    gone: dict[str, bool] = {}
    left = []
    for session in fleet.sessions:
        if server := _server_of(session):
            if server not in gone:
                gone[server] = lock_holder(lock_of(places, server)) is None
            if gone[server]:
                left.append(session)
    return left


def _server_of(session: Session) -> str:
    return server_of(session.name) if session.mode is Mode.INTERPRETER else ""


def _is_once(name: str) -> bool:
    return re.fullmatch(rf"mcp-[0-9a-f]{{8}}/{ONCE}-[0-9a-f]{{8}}", name) is not None
