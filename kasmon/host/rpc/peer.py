"""The process at the other end of a local socket, as the system reports it."""

import os
import socket
import struct
import sys
from typing import NamedTuple

from kasmon.errors import RefusedError
from kasmon.host.rpc.process_origin import evidence

SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID = 0, 1, 2
"""macOS and the BSDs; Python names none of them."""


class PeerProcess(NamedTuple):
    """The process that connected, and its user; `pid` is 0 if the system does not report it."""

    uid: int
    pid: int


def peer_of(connection: socket.socket) -> PeerProcess:
    """Return the process at the other end of *connection*, as it was when it connected.

    Raises:
        OSError: if the system does not report it.
    """
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return PeerProcess(uid, pid)
    _, uid = struct.unpack_from("II", connection.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, 76))
    pid = 0
    if sys.platform == "darwin":
        (pid,) = struct.unpack("i", connection.getsockopt(SOL_LOCAL, LOCAL_PEERPID, 4))
    return PeerProcess(uid, pid)


def is_ours(peer: PeerProcess) -> bool:
    """Whether the peer runs under this process's user."""
    return peer.uid == os.geteuid()


async def must_be_a_person(
    pid: int, agent: int | None, *, is_agents: bool = False, action: str = "answer requests"
) -> None:
    """Refuse process *pid* if it belongs to an agent, of which process *agent* is one, or declares so (*is_agents*).

    *action*: what it wants to do, for the message.

    Raises:
        RefusedError: if it does; the hint contains the evidence.
    """
    import asyncio  # a host has loaded it

    agents = {agent} if agent and agent != os.getpid() else set()
    shown = "it says so itself" if is_agents else await asyncio.to_thread(evidence, pid, agents)
    if shown:
        raise RefusedError(
            f"an agent cannot {action}.",
            hint=f"Do it in your own terminal: this came from a process of kasmon ({shown}).",
        )


def describe_terminal(pid: int) -> str:
    """Return the terminal and pid of the user behind process *pid*, as text; empty if unknown."""
    import psutil  # only here: a host that is never answered does without

    try:
        terminal = psutil.Process(pid).terminal()
    except (psutil.Error, ValueError):
        return ""
    return f"{terminal} (pid {pid})" if terminal else f"process {pid}"
