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
import re
from collections.abc import Collection
from itertools import pairwise
from typing import Final, NamedTuple

from kasmon import system
from kasmon.errors import RefusedError
from kasmon.launch import MACHINERY, RUN, SESSION
from kasmon.system.base import PeerProcess

MARKS: Final = (SESSION, RUN, MACHINERY)
"""Variables that only agents, kasmon's hosts and its tmux server have, and the processes that these start."""
TMUX_SOCKET: Final = "t.sock"
"""The file name of the socket of kasmon's own tmux server (`paths.Paths.tmux_socket`)."""
PEER: Final = re.compile(r"[\w.+-]{1,64}@[\w.:-]{1,255}", re.ASCII)
"""A user of another machine, as `kasmon bus --from` says it."""
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


def find_relatives(pid: int) -> tuple[int, ...]:
    """Return the parent of *pid* and the leaders of its process group and session; none if it does not exist."""
    stat = system.HERE.read_stat(pid)
    return () if stat is None else (stat.parent, stat.group, stat.session)


def _by_company(pid: int, leaderless: Collection[int]) -> str:
    """Return the evidence from processes in a session or group of *leaderless*, or in *pid*'s control group."""
    control_group = system.HERE.read_control_group(pid)
    if not leaderless and not control_group:
        return ""
    is_in_other_group: dict[int, bool] = {}
    """Parents that are machinery of kasmon's in another control group; few processes have children."""
    for each in system.HERE.list_pids():
        is_in_group = bool(control_group) and system.HERE.read_control_group(each) == control_group
        if each == pid or not (is_in_group or leaderless) or (stat := system.HERE.read_stat(each)) is None:
            continue
        if {stat.session, stat.group} & {*leaderless} - {0} and (facts := _read_process(each)) and facts.mark:
            return f"process {each}, of the same session, carries {facts.mark}"
        if is_in_group:
            if stat.parent not in is_in_other_group:
                is_in_other_group[stat.parent] = _is_machinery_outside(stat.parent, control_group)
            if is_in_other_group[stat.parent]:
                return f"process {each}, of the same control group, was started by kasmon"
    return ""


def _is_machinery_outside(pid: int, control_group: bytes) -> bool:
    """Return whether *pid* is this process or one with the mark of kasmon's machinery, in another *control_group*."""
    if system.HERE.read_control_group(pid) in (b"", control_group):  # empty once it has ended
        return False
    if pid == os.getpid():
        return True
    facts = _read_process(pid)  # after its group: one that exits loses its mark before its group
    return facts is not None and facts.mark == MACHINERY


def _read_process(pid: int) -> ProcessFacts | None:
    stat = system.HERE.read_stat(pid)
    return None if stat is None else ProcessFacts(*stat, *_parse_variables(system.HERE.read_variables(pid)))


def _parse_variables(variables: dict[str, str]) -> tuple[str, int]:
    """Return the mark among *variables*, and the pid of kasmon's tmux server that they name."""
    socket, _, rest = variables.get("TMUX", "").partition(",")
    server = rest.partition(",")[0]
    is_ours = socket.rpartition("/")[2] == TMUX_SOCKET and server.isascii() and server.isdecimal()
    mark = next((mark for mark in MARKS if mark in variables), "")
    return mark, int(server) if is_ours else 0


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
    """Return the terminal and pid of the user behind process *pid*, or who is behind it on another machine, as text.

    Empty if unknown.
    """
    import psutil  # only here: a host that is never answered does without

    try:
        process = psutil.Process(pid)
        terminal, argv = process.terminal(), process.cmdline()
    except (psutil.Error, ValueError):
        return ""
    if "bus" in argv and "--stdio" in argv:
        source = next((word for option, word in pairwise(argv) if option == "--from"), "")
        return f"{source if PEER.fullmatch(source) else 'another machine'} through the bus (pid {pid})"
    return f"{terminal} (pid {pid})" if terminal else f"process {pid}"
