"""What the commands of `kasmon cluster` do; `commands.py` has their arguments and their help."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from kasmon.bus.nats import certificates, process, unit
from kasmon.bus.nats.cluster import GIB, Cluster, ClusterFolder, Member, Role, Team, find_cluster
from kasmon.bus.nats.creation import create_cluster, read_given
from kasmon.bus.nats.enrolment import make_join_token
from kasmon.bus.nats.enrolment import revoke as revoke_member
from kasmon.bus.nats.identity import list_joined
from kasmon.bus.nats.leaf import create_leaf, read_problem
from kasmon.bus.nats.peer import PeerServer
from kasmon.bus.nats.server import find_server
from kasmon.bus.nats.server_config import ROSTER_KEY
from kasmon.bus.nats.service import ClusterService, apply_changes
from kasmon.bus.nats.subjects import check_name
from kasmon.cli.output.console import note, print_answer, print_json, say
from kasmon.errors import NotFoundError, RefusedError, UsageError
from kasmon.host.journal import process_log
from kasmon.host.rpc.locked_process import StopSignal
from kasmon.model.formatting import duration
from kasmon.paths import user_paths
from kasmon.supervisor.limits.agents import check_is_person

PORTS: Final = range(65536)


def init(
    name: str,
    host: str,
    port: int,
    team: str,
    storage_gb: float,
    cert: str,
    key: str,
    ca: str,
    servers: str,
    leaf_port: int,
    wants_json: bool,
) -> None:
    for given_port, option in ((port, "--port"), (leaf_port, "--leaf-port")):
        if given_port not in PORTS:
            raise UsageError(f"{given_port} is not a valid port.", hint=f"{option} must be from 0 to 65535.")
    if bool(cert) != bool(key) or (ca and not cert):
        raise UsageError("--cert and --key belong together, and --ca to them.")
    given = (read_given(Path(cert), "certificate"), read_given(Path(key), "key")) if cert else None
    authority = read_given(Path(ca), "certificate") if ca else b""
    teams = [Team(check_name(each.strip(), "a team"), int(storage_gb * GIB)) for each in team.split(",")]
    if len({each.name for each in teams}) < len(teams):
        raise UsageError(f"{team!r} names a team twice.")
    further = [each.strip() for each in servers.split(",") if each.strip()]
    folder = create_cluster(
        user_paths(),
        name,
        host,
        port,
        teams=teams,
        certificate=given,
        ca=authority,
        servers=further,
        leaf_port=leaf_port,
    )
    cluster = folder.load()
    if wants_json:
        print_json(cluster=cluster_object(folder, cluster))
        return
    say(
        f"{name}: made for {cluster.host}:{cluster.port}, in {folder.path}",
        *(
            f"  Copy {folder.peers / str(number)} to {address}, and run there `kasmon cluster serve {number}`."
            for number, address in enumerate(further, 2)
        ),
        f"  `kasmon cluster up --cluster {name}` starts it.",
        f"  `kasmon cluster token --cluster {name} --role machine --name MACHINE` lets a machine join.",
    )


def start(cluster: str, foreground: bool, print_unit: bool, no_unit: bool, wants_json: bool) -> None:
    folder = find_cluster(user_paths(), cluster)
    name = folder.path.name
    if foreground:
        os.umask(0o077)
        process_log.configure()
        asyncio.run(_run_service(folder))
        return
    kind = unit.supervisor_here()
    variables = user_paths().environment_variables()
    service = f"cluster-{name}"
    text = unit.render_unit(kind, service, process.service_command(name), variables, folder.service_log)
    if print_unit:
        print(text, end="")
        return
    find_server()
    if process.service_pid(folder) is None:
        if kind and not no_unit:
            unit.start_unit(kind, service, text, "kasmon cluster up --no-unit")
            process.wait_until_up(folder)
        else:
            process.wait_until_up(folder, process.start_service(folder, user_paths()))
    _print_status(folder, wants_json)


def leaf(cluster: str, port: int, wants_json: bool) -> None:
    joined = [name for name in list_joined(user_paths(), "machine") if name == (cluster or name)]
    if not cluster and len(joined) > 1:
        raise UsageError("this machine joined several clusters.", hint=f"Pass --cluster: {', '.join(joined)}.")
    folder = create_leaf(user_paths(), joined[0] if joined else cluster or "main", port)
    made = folder.load()
    if wants_json:
        print_json(cluster=cluster_object(folder, made))
        return
    say(
        f"{made.name}: a leafnode of {made.leaf_of!r}, in {folder.path}",
        f"  `kasmon cluster up --cluster {made.name}` starts it.",
        f"  Then start `kasmon bus --cluster {made.name}` again, which serves there too.",
    )


def serve(folder: str) -> None:
    os.umask(0o077)
    process_log.configure()
    asyncio.run(_run_peer(Path(folder).resolve()))


async def _run_peer(folder: Path) -> None:
    stop = StopSignal()
    peer = await asyncio.to_thread(PeerServer, folder, await asyncio.to_thread(find_server))
    note(f"serving from {folder}. Ctrl+C ends it.")
    await peer.run(stop.received)


async def _run_service(folder: ClusterFolder) -> None:
    stop = StopSignal()
    await ClusterService(folder, await asyncio.to_thread(find_server)).run(stop.received)


def stop(cluster: str, wants_json: bool) -> None:
    check_is_person(user_paths(), "change a cluster")
    folder = find_cluster(user_paths(), cluster)
    had_unit = unit.remove_unit(f"cluster-{folder.path.name}")
    ran = process.stop_service(folder) or had_unit
    if wants_json:
        print_json(cluster=cluster_object(folder, folder.load()))
    else:
        say(f"{folder.path.name}: {'stopped' if ran else 'was not running'}")


def status(cluster: str, wants_json: bool) -> None:
    _print_status(find_cluster(user_paths(), cluster), wants_json)


def _find_own(cluster: str) -> ClusterFolder:
    """Return this machine's cluster *cluster*. Raises `RefusedError` if this machine only has a leafnode of it."""
    folder = find_cluster(user_paths(), cluster)
    if leaf_of := folder.load().leaf_of:
        raise RefusedError(
            f"{folder.path.name!r} is a leafnode here, of the machine {leaf_of!r}.",
            hint="Run this on the machine where `kasmon cluster init` made the cluster.",
        )
    return folder


def token(role: Role, name: str, minutes: float, team: str, cluster: str, wants_json: bool) -> None:
    check_is_person(user_paths(), "change a cluster")
    folder = _find_own(cluster)
    text = make_join_token(folder, name, role, team, minutes, folder.key(ROSTER_KEY))
    if not asyncio.run(apply_changes(folder)):
        _note_down(folder)
    print_answer(text, wants_json=wants_json, token=text, name=name, role=role, minutes=minutes)


def revoke(name: str, team: str, cluster: str, wants_json: bool) -> None:
    check_is_person(user_paths(), "change a cluster")
    folder = _find_own(cluster)
    try:
        gone = revoke_member(folder, name, team)
    except NotFoundError as error:
        # an earlier `revoke` may have been killed before it did this
        if asyncio.run(apply_changes(folder, _possible_members(folder, name, team))):
            raise NotFoundError(error.message, hint=f"{error.hint} The server received the change again.") from None
        raise
    if not asyncio.run(apply_changes(folder, gone)):
        _note_down(folder)
    lines = [f"{each.name}: removed as {each.role} of {each.team}" for each in gone] or [f"{name}: token removed"]
    print_answer(*lines, wants_json=wants_json, revoked=msgspec.to_builtins(gone))


def _possible_members(folder: ClusterFolder, name: str, team: str) -> list[Member]:
    """Return whom *name* may have named: a member that is gone has no record of its team and role."""
    teams = [each.name for each in folder.load().teams if each.name == (team or each.name)]
    return [Member(name, role, each, "", 0.0) for each in teams for role in get_args(Role)]


def limit(storage_gb: float, team: str, cluster: str, wants_json: bool) -> None:
    check_is_person(user_paths(), "change a cluster")
    folder = _find_own(cluster)
    with folder.change() as change:
        chosen = change.cluster.find_team(team)
        changed = msgspec.structs.replace(chosen, storage_bytes=int(storage_gb * GIB))
        teams = tuple(changed if each is chosen else each for each in change.cluster.teams)
        change.cluster = msgspec.structs.replace(change.cluster, teams=teams)
    if not asyncio.run(apply_changes(folder)):
        _note_down(folder)
    _print_status(folder, wants_json)


def _note_down(folder: ClusterFolder) -> None:
    note(f"{folder.path.name!r} is not running here; `kasmon cluster up` starts it.")


def _print_status(folder: ClusterFolder, wants_json: bool) -> None:
    cluster = folder.load().without_expired(time.time())
    shown = cluster_object(folder, cluster)
    if wants_json:
        print_json(cluster=shown)
        return
    state = f"up, server {shown['server_version']} (pid {shown['server_pid']})" if shown["up"] else "down"
    say(f"{cluster.name}  {state}  {cluster.host}:{cluster.port}", f"  authority: {shown['ca_sha256'] or 'given'}")
    if cluster.leaf_of:
        say(f"  leafnode of {cluster.leaf_of}: {shown['hub_problem'] or 'connected to the cluster'}")
    say(*_rows(cluster.members, cluster.teams))
    say(
        *(f"  token  {each.role:<8}  {each.name}  {duration(each.expires_at - time.time())}" for each in cluster.tokens)
    )


def _rows(members: Sequence[Member], teams: Sequence[Team]) -> list[str]:
    rows = [f"  {each.role:<8}  {each.name}{f'  of {each.team}' if len(teams) > 1 else ''}" for each in members]
    return rows or ["  no members"]


def cluster_object(folder: ClusterFolder, cluster: Cluster) -> dict[str, Any]:
    """Return a cluster as an object for programs; it has no secret."""
    server = process.read_server(folder)
    is_up = process.service_pid(folder) is not None and server is not None and server.is_ready
    certificate = folder.certificate.read_bytes()
    return {
        "name": cluster.name,
        "host": cluster.host,
        "port": cluster.port,
        "folder": str(folder.path),
        "up": is_up,
        "service_pid": process.service_pid(folder),
        "server_pid": None if server is None else server.pid,
        "server_version": find_server().version if is_up else None,
        "ca_sha256": certificates.fingerprint(folder.ca.read_bytes()) if folder.ca.exists() else None,
        "certificate_expires_at": certificates.expires_at(certificate),
        "leaf_port": cluster.leaf_port or None,
        "leaf_of": cluster.leaf_of or None,
        "hub_problem": (read_problem(folder) or None) if cluster.leaf_of else None,
        "teams": msgspec.to_builtins(cluster.teams),
        "members": msgspec.to_builtins(cluster.members),
        "tokens": [
            {"name": each.name, "role": each.role, "team": each.team, "expires_at": each.expires_at}
            for each in cluster.tokens
        ],
    }
