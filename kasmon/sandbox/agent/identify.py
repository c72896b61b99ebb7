"""Identifies the process of a sandboxed agent behind its front process, and checks how it is confined.

The facts come from the kernel, from outside: code inside cannot forge them.
"""

import contextlib
import time
from pathlib import Path
from typing import Final

import msgspec

from kasmon.boot_id import boot
from kasmon.errors import KasmonError, SandboxError
from kasmon.model.commands import Launch
from kasmon.model.events import ConfinementSeen
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.paths import Paths, read_json
from kasmon.process_identity import started_at
from kasmon.sandbox.agent.launch import NOTICES
from kasmon.sandbox.base import HostedTier
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.remote_guest import proof
from kasmon.sandbox.remote_guest.launch_spec import (
    AgentTier,
    RemoteAgentStatus,
    is_waiting,
    load_agent_tier,
    load_status,
)
from kasmon.sandbox.shared.guest_paths import INSIDE
from kasmon.sandbox.shared.processes import children, is_inside, lives, name_inside, tree
from kasmon.sandbox.tiers import policy_of
from kasmon.system.linux import fields

AGENT_START_S: Final = 10.0
"""How long a jail may take until its agent runs."""
POLL_S: Final = 0.01
REMOTE_START_S: Final = 180.0
"""How long a sandbox with its own kernel may take until its agent runs."""
REMOTE_POLL_S: Final = 0.05
LAUNCHERS: Final = frozenset({b"bwrap", b"env", b"prlimit"})
"""The programs that an agent's process runs, one after the other, before its own."""


def identify_agent(paths: Paths, launch: Launch, front: int) -> ConfinementSeen | None:
    """Find the agent of *launch* behind process *front* and check its confinement; blocks.

    Returns None where *front* ended before an agent ran.
    """
    policy, jail = policy_of(paths, launch.session), Jail(paths)
    if policy.tier != "jail":
        return _identify_remote(paths, policy, front)
    front_started, deadline = started_at(front), time.monotonic() + AGENT_START_S
    agent = None
    while front_started is not None and lives(front, front_started, boot()) and time.monotonic() < deadline:
        if (agent := find_agent(front)) is not None:
            break
        time.sleep(POLL_S)
    if agent is None and (front_started is None or not lives(front, front_started, boot())):
        return None
    first = _find_init(front)
    if agent is None or first is None:
        return ConfinementSeen(at=time.time(), ok=False, mismatches=("no sandbox was seen around it",))
    for report in jail.host_folders.of(launch.session).glob(
        "enter-*.json"
    ):  # already read; they hold the agent's variables
        report.unlink(missing_ok=True)
    with contextlib.suppress(KasmonError):
        if policy.hosts:
            proxy_control.bind_to_process(jail.host_folders.gate(launch.session), first)
    try:
        result = jail.prove(policy, agent, workdir=launch.workdir)
        ok, faults = result.ok, tuple(result.mismatches)
    except SandboxError as error:
        ok, faults = False, (error.message,)
    return ConfinementSeen(
        at=time.time(),
        ok=ok,
        mismatches=faults,
        pid=agent,
        pid_started=started_at(agent),
        runtime=SandboxRuntime(
            pid=first,
            started=started_at(first) or 0.0,
            boot=boot(),
            front=front,
            session_folder=str(jail.host_folders.of(launch.session)),
            notices=read_json(jail.host_folders.of(launch.session) / NOTICES, tuple[str, ...], ()),
        ),
    )


def wait_for_agent(paths: Paths, session: SessionId, front: int) -> None:
    """Return once the agent behind *front* runs in its sandbox, or *front* ended; at once for a jail. Blocks."""
    policy = policy_of(paths, session)
    if policy.tier != "jail":
        _wait_for_status(load_agent_tier(paths, policy).host_folders.of(session), front)


def _wait_for_status(session_folder: Path, front: int) -> RemoteAgentStatus | None:
    """Return the status that *front* wrote once its agent ran; None where it ended, or after `REMOTE_START_S`."""
    front_started, deadline = started_at(front), time.monotonic() + REMOTE_START_S
    while (status := load_status(session_folder)) is None or status.front != front:
        if front_started is None or not lives(front, front_started, boot()) or time.monotonic() > deadline:
            return None
        time.sleep(REMOTE_POLL_S)
    return status


def _identify_remote(paths: Paths, policy: SandboxPolicy, front: int) -> ConfinementSeen | None:
    """As `identify_agent`, for an agent that its front reaches over a connection: it is no process of this machine."""
    tier = load_agent_tier(paths, policy)
    session_folder = tier.host_folders.of(policy.session)
    status = _wait_for_status(session_folder, front)
    if status is None and started_at(front) is None:
        return None
    if status is None:
        return ConfinementSeen(at=time.time(), tier=policy.tier, ok=False, mismatches=("it did not start in time",))
    ok, mismatches = _check_confinement(tier, policy, status.runtime, is_asleep=is_waiting(session_folder))
    return ConfinementSeen(
        at=time.time(),
        tier=policy.tier,
        ok=ok,
        mismatches=mismatches,
        is_proven=not isinstance(tier, HostedTier),
        runtime=msgspec.structs.replace(
            status.runtime, front=front, notices=(*status.notices, status.lost) if status.lost else status.notices
        ),
    )


def _check_confinement(
    tier: AgentTier, policy: SandboxPolicy, runtime: SandboxRuntime, *, is_asleep: bool
) -> tuple[bool, tuple[str, ...]]:
    """Whether the sandbox is confined as it should be, by the guest program's report; and the mismatches.

    One that *is_asleep* is not asked, as its host records no result then; nor is one at a service.
    """
    if is_asleep:
        return True, ()
    if not tier.find(policy, runtime):
        return False, ("its sandbox has ended",)
    if isinstance(tier, HostedTier):
        return True, ()
    result = proof.seen(runtime)
    return result if result is not None else (False, ("the guest program cannot report its confinement",))


def find_agent(front: int) -> int | None:
    """Return the agent's process in the jail of process *front*; None while that does not run its program yet."""
    first = _find_init(front)
    for child in children(first) if first is not None else ():
        if is_inside(child) and _is_program(child):
            return child
    return None


def _find_init(front: int) -> int | None:
    """Return the first process of the jail behind *front*: PID 1 inside."""
    for pid in tree(front):
        if name_inside(pid) == "1":
            return pid
    return None


def _is_program(pid: int) -> bool:
    """Whether *pid* runs the agent's program by now, rather than one of the launchers before it."""
    try:
        head = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[0].partition(b"(")[2]
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    is_relay = f"{INSIDE}/proxy_forwarder.py".encode() in arguments and b"--" in arguments
    return fields(pid) is not None and head not in LAUNCHERS and not is_relay
