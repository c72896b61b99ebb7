"""The machines of `kasmon demo --fleet`: kasmons in folders of this machine, which the demo's own reaches over NATS.

Without the extra `nats-server`, it runs their commands directly, as it does over ssh.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.demo.cast import DemoAgent, cast
from kasmon.demo.populate import populate
from kasmon.demo.scratch import machine_paths
from kasmon.errors import KasmonError
from kasmon.model.commands import ABILITIES
from kasmon.paths import Paths
from kasmon.store.machines import Machine, write_machine
from kasmon.supervisor.machines.registration import start_links

if TYPE_CHECKING:
    from kasmon.bus.nats.cluster import Role

LOCAL: Final = ""
MACHINES: Final = (LOCAL, "build", "gpu")
"""The demo's own kasmon, and the names of the others."""
CLUSTER: Final = "demo"
KASMON: Final = (sys.executable, "-P", "-m", "kasmon")


async def start_fleet(paths: Paths, agents: int, seed: int) -> list[str]:
    """Start *agents* agents on three machines, which *paths* lists; return an error message for each failed start."""
    where = {name: paths if name == LOCAL else machine_paths(paths, name) for name in MACHINES}
    for other in where.values():
        other.make()
    others = {name: where[name] for name in MACHINES[1:]}
    try:
        await start_cluster(paths, others)
        cluster = CLUSTER
    except (ImportError, KasmonError):
        cluster = ""
    for name, other in others.items():
        command = () if cluster else command_of(other)
        write_machine(paths, Machine(name=name, cluster=cluster, command=command, added_at=time.time()))
    await asyncio.to_thread(start_links, paths)
    parts = distribute(cast(agents)).items()
    failures = await asyncio.gather(*(populate(where[name], agents_there, seed) for name, agents_there in parts))
    return [failure for each in failures for failure in each]


async def start_cluster(paths: Paths, others: Mapping[str, Paths]) -> "list[subprocess.Popen[bytes]]":
    """Start `CLUSTER`, which *others* serve their sessions to by name, and which *paths* is an operator of.

    Returns its processes: the service, which runs the server, and one for each of *others*.

    Raises:
        ImportError: if the extra `nats-server` is not installed.
        KasmonError: if the server does not start, or does not admit them.
    """
    from kasmon.bus.nats.creation import create_cluster
    from kasmon.bus.nats.enrolment import join, make_join_token
    from kasmon.bus.nats.process import start_service, wait_until_up
    from kasmon.bus.nats.server import find_server
    from kasmon.bus.nats.server_config import ROSTER_KEY
    from kasmon.bus.nats.service import apply_changes

    await asyncio.to_thread(find_server)
    folder = create_cluster(paths, CLUSTER, "127.0.0.1", 0)
    service = start_service(folder, paths)
    await asyncio.to_thread(wait_until_up, folder, service)
    members: dict[str, tuple[Role, Paths]] = {"you": ("operator", paths)}
    members |= {name: ("machine", other) for name, other in others.items()}
    key = folder.key(ROSTER_KEY)
    tokens = {name: make_join_token(folder, name, role, "main", 5, key) for name, (role, _) in members.items()}
    await apply_changes(folder)
    for name, (_, member) in members.items():
        await join(member, tokens[name])
    return [service, *[await asyncio.to_thread(_serve, other) for other in others.values()]]


def _serve(paths: Paths) -> "subprocess.Popen[bytes]":
    """Start the process that serves the sessions of *paths* to the cluster."""
    return subprocess.Popen(
        [*KASMON, "bus", f"--cluster={CLUSTER}", f"--allow={','.join(ABILITIES)}"],
        env={**os.environ, **paths.environment_variables()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def command_of(paths: Paths) -> tuple[str, ...]:
    variables = (f"{name}={value}" for name, value in paths.environment_variables().items())
    return ("env", *variables, *KASMON)


def distribute(parts: Sequence[DemoAgent]) -> dict[str, list[DemoAgent]]:
    """Return which machine has which of *parts*: in turn, a child with its parent; none is of a wave."""
    shares: dict[str, list[DemoAgent]] = {name: [] for name in MACHINES}
    machine_of: dict[str, str] = {}
    tops = 0
    for part in parts:
        if part.parent is None:
            machine_of[part.name], tops = MACHINES[tops % len(MACHINES)], tops + 1
        else:
            machine_of[part.name] = machine_of[part.parent]
        shares[machine_of[part.name]].append(msgspec.structs.replace(part, task=None, wave=None, peers=None))
    return shares
