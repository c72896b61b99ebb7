"""`kasmon bus --stdio`: this machine's sessions, for another machine's kasmon."""

import asyncio
import contextlib
import os
import stat
from collections.abc import Collection
from typing import Annotated

from kasmon.bus.local import LocalBus
from kasmon.bus.ssh import GREETING
from kasmon.bus.stream import StreamServer
from kasmon.cli.arguments import Arg
from kasmon.cli.cluster.commands import UnitAction, manage_bus_unit, serve_cluster
from kasmon.config import load
from kasmon.errors import UsageError
from kasmon.model.commands import ABILITIES, Ability
from kasmon.paths import Paths, user_paths
from kasmon.sandbox.guest.frames import LIMIT_BYTES
from kasmon.supervisor.plans.machines.store_collection import collect_regularly


def bus(
    *,
    stdio: Annotated[bool, Arg("Serve on stdin and stdout.")] = False,
    cluster: Annotated[str, Arg("Serve to the operators of this cluster, which this machine joined.")] = "",
    allow: Annotated[
        str | None,
        Arg(
            f"What the other machine may do, separated by commas: {', '.join(ABILITIES)} (default: as the config says)."
        ),
    ] = None,
    unit: Annotated[
        UnitAction | None,
        Arg("With --cluster: have systemd or launchd run it from now on; no longer; or print the unit for that."),
    ] = None,
    from_: Annotated[
        str,
        Arg("Who uses it, as USER@MACHINE; hosts log it with each answer.", ("--from",)),
    ] = "",  # `kasmon.host.rpc.peer.describe_terminal` reads it from the command line
) -> None:
    """Serve this machine's sessions to another machine's kasmon, which starts this over ssh.

    To limit what a key may do, make `kasmon bus --stdio --allow see,prompt` its `command` in `authorized_keys`. The
    stricter of --allow and of `allow` in the table [machine] of the config applies. With --cluster, operators may
    only see sessions unless --allow names more.
    """
    if stdio == bool(cluster):
        raise UsageError(
            "`kasmon bus` requires --stdio or --cluster.", hint="Another machine's `kasmon machines add` runs it."
        )
    if unit and not cluster:
        raise UsageError("--unit requires --cluster.")
    where = user_paths()
    if cluster and allow is None:
        allow = "see"
    abilities = _abilities_in(allow).intersection(load(where).machine.allow)
    where.make()
    if unit:
        manage_bus_unit(where, cluster, allow or "", unit)
    elif cluster:
        asyncio.run(serve_cluster(where, cluster, abilities))
    else:
        _require_stream(0, "reads requests from")
        _require_stream(1, "writes answers to")
        asyncio.run(_serve(where, abilities))


def _require_stream(number: int, use: str) -> None:
    """Refuse a file or /dev/null, on which the event loop cannot wait. Raises `UsageError`."""
    mode = os.fstat(number).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number)):
        raise UsageError(
            f"`kasmon bus --stdio` {use} file descriptor {number}, which is neither a pipe nor a socket.",
            hint="`kasmon machines add NAME --ssh DESTINATION` runs it on the other machine.",
        )


def _abilities_in(allow: str | None) -> frozenset[Ability]:
    """Return the abilities in a comma-separated list; all for None. Raises `UsageError`."""
    names = ABILITIES if allow is None else [word.strip() for word in allow.split(",") if word.strip()]
    if unknown := [word for word in names if word not in ABILITIES]:
        raise UsageError(f"{unknown[0]!r} in --allow is unknown.", hint=f"Use {', '.join(ABILITIES)}.")
    return frozenset(each for each in ABILITIES if each in names)


async def _serve(where: Paths, abilities: Collection[Ability]) -> None:
    loop = asyncio.get_running_loop()
    stream, output = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # what anything prints must not get between the frames
    reader = asyncio.StreamReader(LIMIT_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
    transport, protocol = await loop.connect_write_pipe(  # a protocol that says when it is closed
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), output
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    writer.write(GREETING)
    collecting = asyncio.create_task(collect_regularly(where))
    with contextlib.suppress(ConnectionError, BrokenPipeError):
        await StreamServer(LocalBus(where), reader, writer, abilities).serve()
    collecting.cancel()
