"""The process at the other end of a local socket, as the system reports it.

Only positive evidence shows that it belongs to an agent or to kasmon's machinery, so a user in their own tmux, screen,
container or ssh is never locked out:

- its ancestors: an agent, this host, or a process with a mark in its environment;
- the leaders of its and their sessions and process groups, which also reveal a double fork;
- the tmux server that its environment names, if that server is kasmon's;
- where a leader has ended, the other members of that session or group;
- a control group that was made for an agent: a member is the child of a host or tmux server of kasmon's that is
  itself in another group.
"""

import os
import socket
import struct
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.errors import RefusedError
from kasmon.launch import MACHINERY, RUN, SESSION
from kasmon.process_identity import HAS_PROC, fields, variables_of

"""Every agent gets this variable."""
MARKS: Final = (SESSION, RUN, MACHINERY)
"""Variables that only agents, kasmon's hosts and its tmux server have, and the processes that these start."""
TMUX_SOCKET: Final = "t.sock"
"""The file name of the socket of kasmon's own tmux server (`paths.Paths.tmux_socket`)."""
MOST: Final = 512
"""The most processes inspected in one search."""


class ProcessFacts(NamedTuple):
    """The system's data on one process."""

    parent: int
    group: int
    session: int
    has_ended: bool
    """Whether it is a zombie."""
    mark: str
    """The first of `MARKS` in its environment; empty if none."""
    tmux_server: int
    """The pid of the tmux server in its environment, if the socket has the name of kasmon's; 0 if none."""


def evidence(pid: int, agents: Collection[int] = ()) -> str:
    """Return the evidence that process *pid* belongs to an agent or to kasmon, as text; empty if there is none.

    A process that cannot be inspected counts as an agent's. One that deliberately loses its parents, its session and
    its environment is not recognised.

    Args:
        pid: the process in question. This process itself belongs to no agent.
        agents: the pids of known agents, running or not.
    """
    agent_pids, todo = set(agents), [pid]
    seen: set[int] = set()
    leaderless: set[int] = set()
    while todo and len(seen) < MOST:
        each = todo.pop()
        if each in seen or (each <= 0 and each != pid):  # 0 is a process outside this pid namespace
            continue
        seen.add(each)
        if each in agent_pids or (each == os.getpid() and each != pid):
            return f"process {each} is an agent or its host"
        facts = _read_process(each)
        if facts is None and each == pid:
            return f"process {pid} cannot be inspected"
        if facts is None or facts.has_ended:
            leaderless.add(each)
        if facts is not None:
            if facts.mark:
                return f"process {each} carries {facts.mark}"
            todo += [facts.parent, facts.session, facts.group, facts.tmux_server]
    return _by_company(pid, leaderless)


def _by_company(pid: int, leaderless: Collection[int]) -> str:
    """Return the evidence from processes in a session or group of *leaderless*, or in *pid*'s control group."""
    control_group = _control_group(pid)
    if not leaderless and not control_group:
        return ""
    for each in _pids():
        facts = _read_process(each)
        if facts is None or each == pid:
            continue
        if facts.mark and ({facts.session, facts.group} & {*leaderless} - {0}):
            return f"process {each}, of the same session, carries {facts.mark}"
        if control_group and _control_group(each) == control_group:
            above = _read_process(facts.parent)
            is_machinery = facts.parent == os.getpid() or (above is not None and above.mark == MACHINERY)
            if is_machinery and _control_group(facts.parent) not in (b"", control_group):  # empty once it has ended
                return f"process {each}, of the same control group, was started by kasmon"
    return ""


def _pids() -> Iterator[int]:
    if HAS_PROC:
        yield from (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal())
        return
    import psutil  # only where there is no /proc

    yield from psutil.pids()


def _control_group(pid: int) -> bytes:
    """Return the control group of *pid*, as the system writes it; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_bytes() if HAS_PROC else b""
    except OSError:
        return b""


def _read_process(pid: int) -> ProcessFacts | None:
    """Return the system's data on *pid*; None if it does not exist."""
    if pid <= 0:
        return None
    if HAS_PROC:
        if (stat_fields := fields(pid)) is None:
            return None
        parent, group, session = (int(number) for number in stat_fields[1:4])
        has_ended = stat_fields[0] in (b"Z", b"X")
        return ProcessFacts(parent, group, session, has_ended, *_parse_variables(variables_of(pid)))
    import psutil  # only here, where there is no /proc

    try:
        process = psutil.Process(pid)
        parent, has_ended = process.ppid(), process.status() == psutil.STATUS_ZOMBIE
        group, session = os.getpgid(pid), os.getsid(pid)
    except (psutil.Error, OSError):
        return None
    return ProcessFacts(parent, group, session, has_ended, *_parse_variables(variables_of(pid)))


def _parse_variables(variables: dict[str, str]) -> tuple[str, int]:
    """Return the mark among *variables*, and the pid of kasmon's tmux server that they name."""
    socket, _, rest = variables.get("TMUX", "").partition(",")
    server = rest.partition(",")[0]
    is_ours = socket.rpartition("/")[2] == TMUX_SOCKET and server.isascii() and server.isdecimal()
    mark = next((mark for mark in MARKS if mark in variables), "")
    return mark, int(server) if is_ours else 0


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
