"""Makes the folder of a new cluster: its keys, its certificates, and the server's configuration."""

import datetime as dt
import errno
import ipaddress
import os
import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.bus.nats import certificates
from kasmon.bus.nats.cluster import Cluster, ClusterFolder, Role, Server, Team
from kasmon.bus.nats.identity import Identity, IdentityFile
from kasmon.bus.nats.server_config import READERS, ROSTER_KEY, LeafRemote, ServerFiles, peer_key, render
from kasmon.errors import UsageError
from kasmon.paths import Paths, private_folder, write_private

LASTING_PORTS: Final = range(20_000, 32_768)
"""Ports that no system takes for a connection to elsewhere. A server that is started again finds its port free."""
SERVERS: Final = 3
"""How many servers a cluster has if it has several: it works while one of them is down."""


def create_cluster(
    paths: Paths,
    name: str,
    host: str,
    port: int = 4222,
    *,
    teams: Sequence[Team] = (Team("main"),),
    certificate: tuple[bytes, bytes] | None = None,
    ca: bytes = b"",
    servers: Sequence[str] = (),
    leaf_port: int = 0,
    leaf_of: str = "",
) -> ClusterFolder:
    """Create the folder of a new cluster: its keys, its certificates, its configuration.

    Args:
        port: 0 takes a port that is free now.
        certificate: a given certificate with its chain and its key, as PEM; by default the cluster's own CA signs one.
        ca: the authority that signed the given certificate, as PEM; empty: one that every system trusts.
        servers: two further servers, as HOST or HOST:PORT.
        leaf_port: where leafnodes connect to at this server, and as far from the port of each further one; 0: nowhere.
        leaf_of: for a leafnode, its machine (`kasmon.bus.nats.leaf`).

    Raises:
        UsageError: if *name*, *host* or *port* cannot be used.
        RefusedError: if the cluster exists.
    """
    folder = ClusterFolder(paths, name)
    listen = _listen_address(host)
    port = port or find_free_port(listen)
    own = certificate is None
    cluster = Cluster(
        name,
        host,
        port,
        listen,
        certificates.server_name(name) if own else "",
        own,
        tuple(teams),
        leaf_port=leaf_port,
        leaf_of=leaf_of,
    )
    if servers:
        further = [_server(each, port) for each in servers]
        cluster = msgspec.structs.replace(cluster, servers=(Server(host, port, listen), *further))
        if len({each.address for each in cluster.servers}) != SERVERS or not own:
            raise UsageError(
                f"a cluster has one server, or {SERVERS} at different addresses with certificates of its own.",
                hint="`--host 192.0.2.7 --servers 192.0.2.8,192.0.2.9`, without --cert.",
            )
    folder.make(cluster)
    if certificate is None:
        authority = certificates.make_ca(name, dt.datetime.now(dt.UTC))
        write_private(folder.ca, authority.certificate)
        write_private(folder.ca_key, authority.key)
        renew_certificate(folder)
    else:
        write_private(folder.certificate, certificate[0])
        write_private(folder.certificate_key, certificate[1])
        if ca:
            write_private(folder.ca, ca)
    write_configuration(folder)
    for number in range(2, cluster.replicas + 1):
        _make_peer(folder, cluster, number)
    return folder


def renew_certificate(folder: ClusterFolder) -> None:
    """Have the cluster's own CA sign a new certificate of the server."""
    made = _make_certificate(folder, folder.load())
    write_private(folder.certificate_key, made.key)
    write_private(folder.certificate, made.certificate)


def renew_peer_certificate(folder: ClusterFolder, public_key: bytes) -> bytes:
    """Return a new certificate of a further server for its *public_key*, both as PEM.

    Raises:
        ValueError: if it is no such key.
    """
    cluster = folder.load()
    return certificates.sign_certificate(
        _authority(folder), cluster.name, dt.datetime.now(dt.UTC), public_key, hosts=_hosts(cluster)
    )


def _make_certificate(folder: ClusterFolder, cluster: Cluster) -> certificates.KeyPair:
    now = dt.datetime.now(dt.UTC)
    return certificates.make_server_certificate(_authority(folder), cluster.name, now, hosts=_hosts(cluster))


def _authority(folder: ClusterFolder) -> certificates.KeyPair:
    return certificates.KeyPair(folder.ca.read_bytes(), folder.ca_key.read_bytes())


def _hosts(cluster: Cluster) -> list[str]:
    """Return the addresses that a certificate names: those of several servers, and what a leafnode connects to."""
    return [each.host for each in cluster.servers] or ([cluster.host] if cluster.leaf_port else [])


def _server(address: str, port: int) -> Server:
    host, colon, given = address.strip().rpartition(":")
    if not colon or ":" in host:  # an address of IPv6 is given without a port
        host, given = address.strip(), str(port)
    if not given.isdecimal() or not 0 < int(given) < 65536 - 2000:
        raise UsageError(f"{address!r} is no address of a server.", hint="--servers 192.0.2.8,192.0.2.9")
    return Server(host, int(given), _listen_address(host))


def _make_peer(folder: ClusterFolder, cluster: Cluster, number: int) -> None:
    """Make the folder of a further server. It has the private keys of that server, and none of the cluster."""
    path = private_folder(private_folder(folder.peers) / str(number))
    made = _make_certificate(folder, cluster)
    server = cluster.servers[number - 1]
    identity = Identity(
        cluster=cluster.name,
        team="",
        name=f"server-{number}",
        role=None,
        host="127.0.0.1" if server.listen in ("0.0.0.0", "::") else server.listen,
        port=server.port,
        tls_name=cluster.tls_name,
        ca=folder.ca.read_text(),
        cluster_key=folder.key(ROSTER_KEY),
        seed=folder.seed(peer_key(number)),
    )
    write_private(path / "server.key", made.key)
    write_private(path / "server.pem", made.certificate)
    write_private(path / "ca.pem", folder.ca.read_bytes())
    write_private(path / "peer.json", msgspec.json.encode(identity))
    write_private(path / "server.conf", render_peer(folder, cluster, number).encode())


def render_peer(folder: ClusterFolder, cluster: Cluster, number: int) -> str:
    """Return the configuration of a further server. Its paths are relative to its folder."""
    files = ServerFiles(certificate="server.pem", key="server.key", ca="ca.pem", streams="jetstream", log="server.log")
    return render(cluster, files, folder.key, number)


def write_configuration(folder: ClusterFolder) -> None:
    """Write the server's configuration for the cluster as it is stored now."""
    files = ServerFiles(
        certificate=str(folder.certificate),
        key=str(folder.certificate_key),
        ca=str(folder.ca),
        streams=str(folder.streams),
        log=str(folder.server_log),
        hub_ca=str(folder.hub_ca) if folder.hub_ca.exists() else "",
    )
    with folder.change() as change:  # its lock: no older configuration overwrites a newer one
        remotes = [_remote(folder, each.role) for each in change.cluster.members if change.cluster.leaf_of]
        text = render(change.cluster, files, folder.key, remotes=[each for each in remotes if each is not None])
        write_private(folder.configuration, text.encode())


def _remote(folder: ClusterFolder, role: Role) -> LeafRemote | None:
    """Return how the leafnode connects to its cluster for the reader of this *role*."""
    if role not in READERS:
        return None
    identity = IdentityFile(folder.paths, folder.path.name, role).load()
    return LeafRemote(role, tuple(each.address for each in identity.leaf_servers), identity.seed)


def _listen_address(host: str) -> str:
    """Return where the server listens: at *host* if that is an address of this machine, else everywhere.

    Raises:
        UsageError: if *host* is neither an address nor a name.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not host or not all(part and part.replace("-", "").isalnum() for part in host.rstrip(".").split(".")):
            raise UsageError(f"{host!r} is no address and no name of a host.", hint="--host 192.0.2.7") from None
        return "127.0.0.1" if host == "localhost" else "0.0.0.0"
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return "::" if address.version == 6 else "0.0.0.0"
    return host


def find_free_port(listen: str = "127.0.0.1") -> int:
    """Return a port of the address *listen* that is free now, of those that the system gives to no connection.

    Raises:
        OSError: if none was found, or *listen* is no address of this machine.
    """
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    for port in random.sample(LASTING_PORTS, len(LASTING_PORTS)):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((listen, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def read_given(path: Path, what: str) -> bytes:
    """Return the content of a certificate file that the user named.

    Raises:
        UsageError: if it cannot be read or is no PEM.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {what} {str(path)!r}: {error.strerror}.") from error
    if b"-----BEGIN " not in content:
        raise UsageError(f"{str(path)!r} is no {what} in PEM format.", hint="It begins with '-----BEGIN'.")
    return content
