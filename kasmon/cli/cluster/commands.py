"""`kasmon cluster` and `kasmon machines join`: the arguments. `operations.py` needs the extra `nats-server`."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import note, print_json, say
from kasmon.errors import KasmonError, UnavailableError, UsageError
from kasmon.host.rpc.locked_process import StopSignal
from kasmon.model.commands import Ability
from kasmon.model.formatting import duration
from kasmon.paths import Paths, user_paths
from kasmon.store.machines import Machine, read_machine, require_free

if TYPE_CHECKING:
    from kasmon.bus.nats.identity import Identity
    from kasmon.bus.nats.jetstream.machine_records import OrderReport

DEFAULT_PORT: Final = 4222
UnitAction = Literal["start", "remove", "print"]
ClusterOption = Annotated[str, Arg("The cluster (default: the only one of this machine).")]
TeamOption = Annotated[str, Arg("The team (default: the only one).")]


@contextlib.contextmanager
def _require_imports(extra: str) -> Iterator[None]:
    """Raise `UnavailableError` if a package that an import inside needs is not installed."""
    try:
        yield
    except ImportError as error:
        why = f"`kasmon cluster` and `kasmon machines join` require more packages: {error.name} is not installed."
        raise UnavailableError(why, hint=f"`pipx install --force '.[{extra}]'` in kasmon's clone") from error


def init(
    *,
    name: Annotated[str, Arg("Name of the new cluster.")] = "main",
    host: Annotated[str, Arg("Address that the machines reach this one at.")] = "127.0.0.1",
    port: Annotated[int, Arg("Port to listen on (0: any free port).")] = DEFAULT_PORT,
    team: Annotated[str, Arg("Names of the teams, separated by commas.")] = "main",
    storage_gb: Annotated[float, Arg("Disk space for each team's messages.", at_least=0.1)] = 10,
    cert: Annotated[str, Arg("Certificate of the server with its chain (default: made here).")] = "",
    key: Annotated[str, Arg("Private key of --cert.")] = "",
    ca: Annotated[str, Arg("Authority that signed --cert (default: those of each system).")] = "",
    servers: Annotated[str, Arg("Two further servers as HOST or HOST:PORT, separated by a comma.")] = "",
    leaf_port: Annotated[int, Arg("Port for leafnodes, such as 7422 (0: none).")] = 0,
    wants_json: Json = False,
) -> None:
    """Make a cluster: certificates, keys and the configuration of a NATS server for machines of a team."""
    with _require_imports("nats-server"):
        from kasmon.cli.cluster import operations
    operations.init(name, host, port, team, storage_gb, cert, key, ca, servers, leaf_port, wants_json)


def start(
    *,
    cluster: ClusterOption = "",
    foreground: Annotated[bool, Arg("Run here until Ctrl+C.")] = False,
    print_unit: Annotated[bool, Arg("Print the unit of systemd or launchd, and start nothing.")] = False,
    no_unit: Annotated[bool, Arg("Start a plain process, also where systemd or launchd is.")] = False,
    wants_json: Json = False,
) -> None:
    """Start the server of a cluster, supervised by systemd or launchd where they are."""
    with _require_imports("nats-server"):
        from kasmon.cli.cluster import operations
    operations.start(cluster, foreground, print_unit, no_unit, wants_json)


def leaf(
    *,
    cluster: Annotated[str, Arg("A cluster that this machine joined as a machine (default: the only one).")] = "",
    port: Annotated[int, Arg("Port to listen on, for this machine only (0: any free port).")] = 0,
    wants_json: Json = False,
) -> None:
    """Make a leafnode: a server of this machine's own, which works offline; `kasmon cluster up` starts it."""
    with _require_imports("nats-server"):
        from kasmon.cli.cluster import operations
    operations.leaf(cluster, port, wants_json)


def serve(
    folder: Annotated[str, Arg("The folder that `kasmon cluster init --servers` made for it.", ("FOLDER",))], /
) -> None:
    """Run one of the further servers of a cluster from its folder, until Ctrl+C."""
    with _require_imports("nats-server"):
        from kasmon.cli.cluster import operations
    operations.serve(folder)


def stop(*, cluster: ClusterOption = "", wants_json: Json = False) -> None:
    """Stop the server of a cluster. Agents and dashboards of the machines keep running."""
    with _require_imports("nats-server"):
        from kasmon.cli.cluster import operations
    operations.stop(cluster, wants_json)


def status(*, cluster: ClusterOption = "", wants_json: Json = False) -> None:
    """Show a cluster: its server, its members and its open tokens."""
    with _require_imports("nats-server"):
        from kasmon.cli.cluster import operations
    operations.status(cluster, wants_json)


def token(
    *,
    role: Annotated[Literal["machine", "viewer", "operator"], Arg("Publish sessions, read, or also command.")],
    name: Annotated[str, Arg("Name of the new member.")],
    minutes: Annotated[float, Arg("How long the token is valid.", above=0)] = 15,
    team: TeamOption = "",
    cluster: ClusterOption = "",
    wants_json: Json = False,
) -> None:
    """Print a token, with which one machine or person joins once: `kasmon machines join TOKEN`."""
    with _require_imports("nats-server"):
        from kasmon.cli.cluster import operations
    operations.token(role, name, minutes, team, cluster, wants_json)


def revoke(
    name: Annotated[str, Arg("Name of the member.", ("NAME",))],
    /,
    *,
    team: TeamOption = "",
    cluster: ClusterOption = "",
    wants_json: Json = False,
) -> None:
    """Remove a member, and its open tokens. Its connections end at once."""
    with _require_imports("nats-server"):
        from kasmon.cli.cluster import operations
    operations.revoke(name, team, cluster, wants_json)


def limit(
    *,
    storage_gb: Annotated[float, Arg("Disk space for the team's messages.", at_least=0.1)],
    team: TeamOption = "",
    cluster: ClusterOption = "",
    wants_json: Json = False,
) -> None:
    """Change how much disk space a team's messages may use."""
    with _require_imports("nats-server"):
        from kasmon.cli.cluster import operations
    operations.limit(storage_gb, team, cluster, wants_json)


def join(
    token: Annotated[str, Arg("The token, as `kasmon cluster token` printed it.", ("TOKEN",))],
    /,
    *,
    wants_json: Json = False,
) -> None:
    """Join a cluster with a token. The private key is made here and never leaves this machine."""
    with _require_imports("nats"):
        from kasmon.bus.nats.enrolment import join as join_cluster
    identity = asyncio.run(join_cluster(user_paths(), token))
    if wants_json:
        joined = {"cluster": identity.cluster, "team": identity.team, "name": identity.name, "role": identity.role}
        print_json(joined=joined | {"public_key": identity.public_key})
    else:
        say(f"joined {identity.cluster!r} as {identity.role} {identity.name!r} of the team {identity.team!r}")


def orders(
    name: Annotated[str, Arg("A machine of a cluster that is registered here.", ("MACHINE",), completer="machines")],
    /,
    *,
    every: Annotated[bool, Arg("Also those that were carried out.", ("--all",))] = False,
    wants_json: Json = False,
) -> None:
    """List orders in a machine's work queue: those that wait, run, failed, or were not carried out."""
    with _require_imports("nats"):
        from kasmon.bus.nats.bus import open_nats_bus
        from kasmon.bus.nats.leaf import load_reader
    where = user_paths()
    machine = read_machine(where, name)
    if not machine.cluster:
        raise UsageError(f"{name!r} is reached over ssh, which has no work queue.", hint="See `kasmon machines`.")
    identity = load_reader(where, machine.cluster)

    async def read() -> "list[OrderReport]":
        async with contextlib.aclosing(await open_nats_bus(identity, name)) as bus:
            return await bus.orders()

    listed = [each for each in asyncio.run(read()) if every or each.state != "done"]
    listed.sort(key=lambda each: each.at)
    if wants_json:
        print_json(orders=[_order_object(each) for each in listed])
    elif listed:
        say(
            *(
                f"{each.state:<8}  {each.plan} {each.task}  attempt {each.attempt}  {duration(time.time() - each.at)}"
                + (f"  {each.why}" if each.why else "")
                for each in listed
            )
        )
    else:
        say(f"{name}: no orders{'' if every else ' that wait, run or failed'}")


def _order_object(report: "OrderReport") -> dict[str, Any]:
    return {
        "plan": report.plan,
        "task": report.task,
        "attempt": report.attempt,
        "state": str(report.state),
        "at": report.at,
        "exit_code": report.exit_code,
        "why": report.why or None,
        "stdout": report.stdout.decode("utf-8", "replace"),
        "stderr": report.stderr.decode("utf-8", "replace"),
    }


def describe_member(where: Paths, name: str, cluster: str) -> Machine:
    """Return the machine *name* of *cluster*, to be registered; it is a member, and an operator reached it.

    Raises:
        NotFoundError: if this machine has no identity of an operator or a viewer there.
        RefusedError: if the name is taken.
        RemoteUnreachableError: if it cannot be reached.
    """
    with _require_imports("nats"):
        from kasmon.bus.nats.bus import open_nats_bus
        from kasmon.bus.nats.leaf import load_reader
        from kasmon.bus.nats.machine_client import open_command_bus
    require_free(where, name)
    identity = load_reader(where, cluster)

    async def reach() -> None:
        await (await open_nats_bus(identity, name)).aclose()
        if identity.role == "operator":
            await (await open_command_bus(identity, name)).aclose()

    asyncio.run(reach())
    return Machine(name=name, cluster=cluster, added_at=time.time())


async def serve_cluster(where: Paths, cluster: str, abilities: Collection[Ability]) -> None:
    """Serve this machine's sessions to the operators of *cluster* until a signal ends it.

    With a leafnode they are served there too, and it waits for a cluster that cannot be reached.

    Raises:
        NotFoundError: if this machine did not join as a machine.
        UnavailableError: if the cluster cannot be reached.
        RefusedError: if the cluster admits this machine no longer.
    """
    from kasmon.bus.local import LocalBus  # not for the other commands
    from kasmon.supervisor.plans.machines.store_collection import collect_regularly  # likewise

    with _require_imports("nats"):
        from kasmon.bus.nats.identity import IdentityFile
        from kasmon.bus.nats.jetstream.outbox import PositionFile
        from kasmon.bus.nats.leaf import through_leaf
        from kasmon.bus.nats.machine import MachineServer, serve_until_refused
    identity = await asyncio.to_thread(IdentityFile(where, cluster, "machine").load)
    leaf = await asyncio.to_thread(through_leaf, where, identity)
    may = f"operators may {', '.join(sorted(abilities))}. Ctrl+C ends it."

    def serve(member: "Identity", positions: str, what: str) -> "asyncio.Future[KasmonError]":
        return asyncio.ensure_future(
            serve_until_refused(
                lambda: MachineServer(member, lambda: LocalBus(where), abilities, PositionFile(where, positions)),
                lambda: note(f"serving as {member.name!r} of {what}; {may}"),
                waits=leaf is not None,
            )
        )

    serving = [serve(identity, cluster, repr(cluster))]
    if leaf is not None:
        serving.append(serve(leaf, f"{cluster}.leaf", f"{cluster!r} on this machine's leafnode"))
    stop = asyncio.ensure_future(StopSignal().received.wait())
    collecting = asyncio.create_task(collect_regularly(where))
    waited: list[asyncio.Future[Any]] = [*serving, stop]
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [each.result() for each in serving if each.done()]
        await cancel_and_wait(*waited, collecting)
    if ended:
        raise ended[0]


def manage_bus_unit(where: Paths, cluster: str, allow: str, action: UnitAction) -> None:
    """Have systemd or launchd serve this machine to the operators of *cluster*, or no longer; or print the unit.

    Raises:
        NotFoundError: if this machine did not join as a machine.
        UnavailableError: if neither is here, or it refuses the unit.
    """
    with _require_imports("nats"):
        from kasmon.bus.nats import unit
        from kasmon.bus.nats.identity import IdentityFile
    service = f"bus-{cluster}"
    if action == "remove":
        say(f"{cluster}: {'no longer served by a unit' if unit.remove_unit(service) else 'there was no unit'}")
        return
    IdentityFile(where, cluster, "machine").load()
    arguments = ["bus", f"--cluster={cluster}", f"--allow={allow}"]
    kind = unit.supervisor_here()
    argv = [sys.executable, "-P", "-m", "kasmon", *arguments]
    log = where.state / f"bus-{cluster}.log"
    text = unit.render_unit(kind, service, argv, where.environment_variables(), log)
    if action == "print":
        print(text, end="")
        return
    if not kind:
        raise UnavailableError(
            "neither systemd nor launchd runs services for you here.",
            hint=f"Run `kasmon {' '.join(arguments)}` yourself.",
        )
    unit.start_unit(kind, service, text, f"kasmon {' '.join(arguments)}")
    say(f"{cluster}: served by {unit.unit_name(kind, service)}; its log is {log}")
