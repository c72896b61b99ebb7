"""The configuration of the NATS server: a pure function of the cluster.

A team has four accounts, because permissions on subjects do not confine replies: a user that may ask a service anything
can have it reply to any subject of its account (measured: a user that may only read deletes a stream). Between accounts
the server replaces reply subjects. Streams are in the account `.data`, which no member enters.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kasmon.bus.nats.cluster import Cluster, Member, OpenToken, Role, Server, Team
from kasmon.bus.nats.subjects import (
    PREFIX,
    PUBLISHED,
    ROSTER,
    enrolment_subject,
    inbox,
    read_subject,
    roster_subject,
    stream,
    subject,
)

SYSTEM: Final = "system"
ENROLMENT: Final = "enrolment"
ROSTER_KEY: Final = "roster"
"""The purpose of the key that signs the list of members. It may not connect."""
ACCOUNTS: Final[Mapping[Role, str]] = {"machine": "machines", "viewer": "viewers", "operator": "operators"}
READERS: Final[tuple[Role, ...]] = ("operator", "viewer")
DIRECT_GET: Final = "$JS.API.DIRECT.GET"
NEXT: Final = "$JS.API.CONSUMER.MSG.NEXT"
ACK: Final = "$JS.ACK"
MAX_PAYLOAD: Final = 1024 * 1024
EVENTS_BYTES: Final = 64 * 1024**2
"""How much of a machine's events the server stores; the machine has all."""
DIRECTORY_BYTES: Final = 8 * 1024**2
TASKS_BYTES: Final = 8 * 1024**2
WORKER: Final = "worker"
"""The consumer of a machine's work queue."""
ACK_WAIT_S: Final = 30
"""After this time without a sign of its machine an order is delivered again,"""
MOST_DELIVERIES: Final = 5
"""and so often at most."""
MARKER_S: Final = 7 * 86400
"""How long the directory shows since when a machine is away."""
RESPONSES: Final = {"max": 100_000, "expires": "5m"}
"""How many replies a machine may send to one request, and for how long."""


class ServerFiles:
    """The paths in a configuration."""

    def __init__(self, *, certificate: str, key: str, ca: str, streams: str, log: str, hub_ca: str = "") -> None:
        self.certificate, self.key, self.ca, self.streams, self.log = certificate, key, ca, streams, log
        self.hub_ca = hub_ca


class LeafRemote(msgspec.Struct, frozen=True):
    """How a leafnode connects to its cluster for one of its members, who reads there."""

    role: Role
    addresses: tuple[str, ...]
    seed: str


def render(
    cluster: Cluster,
    files: ServerFiles,
    key: Callable[[str], str],
    number: int = 1,
    remotes: Sequence[LeafRemote] = (),
) -> str:
    """Return a server's configuration.

    Args:
        key: returns the public key of the service for an account, or of a further server.
        number: which of several servers it is for.
        remotes: of a leafnode, its connections to the cluster.
    """
    peers = [{"nkey": key(peer_key(each + 1))} for each in range(1, len(cluster.servers))]
    accounts: dict[str, Any] = {SYSTEM: {"users": [{"nkey": key(SYSTEM)}, *peers]}}
    accounts[ENROLMENT] = {
        "users": [{"nkey": key(ENROLMENT)}, *(_token_user(cluster.name, token) for token in cluster.tokens)]
    }
    for team in cluster.teams:
        accounts |= _team_accounts(cluster, team, key(account(team.name, "data")))
    # JSON is a subset of the configuration's syntax, so that no value can be read as more than a value.
    return json.dumps(
        {
            "server_name": build_server_name(cluster.name, number if cluster.servers else 0)
            + (f"-leaf-{cluster.leaf_of}" if cluster.leaf_of else ""),  # else it has the name of a cluster of three
            "host": cluster.listen,
            "port": cluster.port,
            **_routes(cluster, files, number),
            **_leafnodes(cluster, files, number, remotes),
            "log_file": files.log,
            "logfile_size_limit": 8 * 1024**2,
            "max_payload": MAX_PAYLOAD,
            "max_connections": 8192,
            "max_subscriptions": 4096,
            "ping_interval": "10s",
            "ping_max": 3,
            "write_deadline": "10s",
            "tls": _tls(files),
            "jetstream": {
                **({"domain": f"leaf-{cluster.leaf_of}"} if cluster.leaf_of else {}),
                "store_dir": files.streams,
                "max_memory_store": 64 * 1024**2,
                "max_file_store": sum(team.storage_bytes for team in cluster.teams),
            },
            "accounts": accounts,
            "system_account": SYSTEM,
        },
        indent=1,
    )


def build_server_name(cluster: str, number: int) -> str:
    """Return the name of a server, *number* of several or 0 for the only one."""
    return f"kasmon-{cluster}" + (f"-{number}" if number else "")


def find_removed_users(old: str, new: str) -> frozenset[str]:
    """Return the accounts that have a user in the configuration *old*, and no longer in *new*."""
    before, after = (
        {name: {user["nkey"] for user in entry["users"]} for name, entry in json.loads(text)["accounts"].items()}
        for text in (old, new)
    )
    return frozenset(name for name, users in before.items() if users - after.get(name, set()))


def _tls(files: ServerFiles) -> dict[str, Any]:
    return {
        "cert_file": files.certificate,
        "key_file": files.key,
        "min_version": "1.3",
        "handshake_first": True,
        "timeout": 5,
    }


def _leafnodes(cluster: Cluster, files: ServerFiles, number: int, remotes: Sequence[LeafRemote]) -> dict[str, Any]:
    """Return where leafnodes connect to, or where this one does.

    What concerns a leafnode's own machine does not cross: it is stored in both domains, each with epochs of its own.
    """
    if cluster.leaf_port:
        server = cluster.servers[number - 1] if cluster.servers else Server(cluster.host, cluster.port, cluster.listen)
        port = cluster.leaf_port_of(number)
        advertised = {"advertise": msgspec.structs.replace(server, port=port).address} if cluster.servers else {}
        return {"leafnodes": {"host": server.listen, "port": port, **advertised, "tls": _tls(files)}}
    if not remotes:
        return {}
    own = [f"{subject(cluster.name, kind, cluster.leaf_of)}.>" for kind in (*PUBLISHED, "cmd", "log", "tasks")]
    denied = [*own, subject(cluster.name, PUBLISHED[-1], cluster.leaf_of), roster_subject(cluster.name)]
    return {
        "leafnodes": {
            "reconnect": "1s",
            "remotes": [
                {
                    "urls": [f"tls://{address}" for address in each.addresses],
                    "account": account(cluster.teams[0].name, ACCOUNTS[each.role]),
                    "nkey": each.seed,
                    "tls": {"handshake_first": True} | ({"ca_file": files.hub_ca} if files.hub_ca else {}),
                    "deny_imports": denied,
                    "deny_exports": denied,
                }
                for each in remotes
            ],
        }
    }


def _routes(cluster: Cluster, files: ServerFiles, number: int) -> dict[str, Any]:
    """Return what one of several servers has of its own."""
    if not cluster.servers:
        return {}
    server = cluster.servers[number - 1]
    others = [each for each in cluster.servers if each is not server]
    return {
        "host": server.listen,
        "port": server.port,
        "client_advertise": server.address,
        "cluster": {
            "name": f"kasmon-{cluster.name}",
            "host": server.listen,
            "port": server.route_port,
            "routes": [f"nats-route://{each.address.rpartition(':')[0]}:{each.route_port}" for each in others],
            "tls": {
                "cert_file": files.certificate,
                "key_file": files.key,
                "ca_file": files.ca,
                "verify": True,
                "timeout": 5,
            },
        },
    }


def peer_key(number: int) -> str:
    """Return the purpose of the key of a further server: it may see and reload servers."""
    return f"server-{number}"


def account(team: str, part: str) -> str:
    """Return the name of an account of *team*: its *part* is `data` or a value of `ACCOUNTS`."""
    return f"{team}.{part}"


def _team_accounts(cluster: Cluster, team: Team, service_key: str) -> dict[str, Any]:
    name, machine = cluster.name, cluster.leaf_of or "*"
    data, machines, viewers, operators = (
        account(team.name, part) for part in ("data", "machines", "viewers", "operators")
    )
    people = [viewers, operators]
    stored = [f"{PREFIX}.{name}.{kind}.{machine}.>" for kind in PUBLISHED[:-1]]
    live = [*stored, f"{PREFIX}.{name}.{PUBLISHED[-1]}.{machine}"]
    commands = f"{PREFIX}.{name}.cmd.{machine}.>"
    roster = roster_subject(name)
    ranges = f"{PREFIX}.{name}.log.{machine}.*"
    orders = f"{PREFIX}.{name}.tasks.{machine}.*"
    pulls, acknowledgements = f"{NEXT}.*.{WORKER}", f"{ACK}.*.{WORKER}.>"

    read: list[dict[str, Any]] = [{"service": {"account": data, "subject": f"{DIRECT_GET}.>"}}]
    read_by_leafs = [] if cluster.leaf_of else [{**read[0], "to": f"{read_subject(name)}.>"}]
    follow_roster = {"stream": {"account": data, "subject": roster}}
    watch = [
        *({"stream": {"account": machines, "subject": each}} for each in live),
        {"service": {"account": machines, "subject": ranges}},
    ]
    return {
        data: {
            "jetstream": {
                "max_memory": 0,
                "max_file": team.storage_bytes,
                "max_streams": 4096,
                "max_consumers": 64,
            },
            "users": [{"nkey": service_key}],
            "exports": [
                *({"service": each, "accounts": [machines]} for each in stored),
                {"service": f"{DIRECT_GET}.>", "response_type": "stream", "accounts": [machines, *people]},
                {"stream": roster, "accounts": [machines, *people]},
                {"service": orders, "accounts": [operators]},
                {"service": pulls, "response_type": "stream", "accounts": [machines]},
                {"service": acknowledgements, "accounts": [machines]},
            ],
        },
        machines: {
            "users": _users(cluster, team, "machine"),
            "exports": [
                {"service": commands, "response_type": "stream", "accounts": [operators]},
                {"service": ranges, "accounts": people},
                *({"stream": each, "accounts": people} for each in live),
            ],
            "imports": [
                *({"service": {"account": data, "subject": each}} for each in (*stored, pulls, acknowledgements)),
                *read,
                follow_roster,
            ],
        },
        viewers: {"users": _users(cluster, team, "viewer"), "imports": [*read, *read_by_leafs, follow_roster, *watch]},
        operators: {
            "users": _users(cluster, team, "operator"),
            "imports": [
                *read,
                *read_by_leafs,
                follow_roster,
                *watch,
                {"service": {"account": machines, "subject": commands}},
                {"service": {"account": data, "subject": orders}},
            ],
        },
    }


def _users(cluster: Cluster, team: Team, role: Role) -> list[dict[str, Any]]:
    members = [member for member in cluster.members if member.team == team.name and member.role == role]
    return [{"nkey": member.public_key, "permissions": permissions(cluster.name, member)} for member in members]


def permissions(cluster: str, member: Member) -> dict[str, Any]:
    """Return what *member* may publish and subscribe to; all else is refused."""
    roster = roster_subject(cluster)
    answers = f"{inbox(member.public_key)}.>"
    if member.role == "machine":
        stored = [subject(cluster, kind, member.name) + ".>" for kind in PUBLISHED[:-1]]
        beat = subject(cluster, PUBLISHED[-1], member.name)
        ranges = subject(cluster, "log", member.name) + ".*"
        queue = stream("tasks", member.name)
        read = [f"{DIRECT_GET}.{ROSTER}.{roster}", f"{DIRECT_GET}.{stream('dir', member.name)}"]
        work = [f"{NEXT}.{queue}.{WORKER}", f"{ACK}.{queue}.{WORKER}.>"]
        return {
            **_allow(
                [*stored, beat, *read, *work],
                [answers, subject(cluster, "cmd", member.name) + ".>", ranges, roster],
            ),
            "allow_responses": RESPONSES,
        }
    live = [f"{PREFIX}.{cluster}.{kind}.>" for kind in PUBLISHED]
    sent = [f"{DIRECT_GET}.>", f"{read_subject(cluster)}.>", f"{PREFIX}.{cluster}.log.*.*"]
    if member.role == "operator":
        sent += [f"{PREFIX}.{cluster}.cmd.*.>", f"{PREFIX}.{cluster}.tasks.*.*"]
    return _allow(sent, [answers, roster, *live])


def _token_user(cluster: str, token: OpenToken) -> dict[str, Any]:
    allowed = _allow([enrolment_subject(cluster, token.public_key)], [f"{inbox(token.public_key)}.>"])
    return {"nkey": token.public_key, "permissions": allowed}


def _allow(publish: Sequence[str], subscribe: Sequence[str]) -> dict[str, Any]:
    return {"publish": {"allow": list(publish)}, "subscribe": {"allow": list(subscribe)}}


def stream_configurations(cluster: str, machine: str, replicas: int = 1) -> list[dict[str, Any]]:
    """Return the streams of *machine*: what JetStream's API requires to create them.

    Events beyond the limit are dropped, the oldest first: a reader then asks the machine. The directory has one message
    for each session. The work queue has a message for each order that the machine has not acknowledged, or its
    withdrawal.
    """
    common = {
        "storage": "file",
        "discard": "old",
        "allow_direct": True,
        "num_replicas": replicas,
        "retention": "limits",
    }
    return [
        {
            **common,
            "name": stream("ev", machine),
            "subjects": [subject(cluster, "ev", machine) + ".>"],
            "max_bytes": EVENTS_BYTES,
            "duplicate_window": 120 * 10**9,
        },
        {
            **common,
            "name": stream("dir", machine),
            "subjects": [subject(cluster, "dir", machine) + ".>"],
            "max_bytes": DIRECTORY_BYTES,
            "max_msgs_per_subject": 1,
            "allow_msg_ttl": True,
            "subject_delete_marker_ttl": MARKER_S * 10**9,
        },
        {
            **common,
            "name": stream("tasks", machine),
            "subjects": [subject(cluster, "tasks", machine) + ".*"],
            "retention": "workqueue",
            "max_msgs_per_subject": 1,
            "discard": "new",
            "max_bytes": TASKS_BYTES,
            "max_age": 7 * 86400 * 10**9,
            "duplicate_window": 3600 * 10**9,
        },
    ]


def worker_configuration(machine: str) -> dict[str, Any]:
    """Return the consumer of *machine*'s work queue: what JetStream's API requires to create it."""
    return {
        "stream_name": stream("tasks", machine),
        "config": {
            "durable_name": WORKER,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_S * 10**9,
            "max_deliver": MOST_DELIVERIES,
            "deliver_policy": "all",
        },
    }


def roster_configuration(cluster: str, replicas: int = 1) -> dict[str, Any]:
    """Return the stream that has the last list of members."""
    return {
        "name": ROSTER,
        "subjects": [roster_subject(cluster)],
        "storage": "file",
        "allow_direct": True,
        "max_msgs_per_subject": 1,
        "max_bytes": 4 * MAX_PAYLOAD,
        "num_replicas": replicas,
    }
