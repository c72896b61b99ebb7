"""What a cluster is: its address, its teams, its members and its open tokens.

It is stored in a folder that only the owner reads. The folder has one secret, from which the keys of the service are
derived. It has no secret of a member.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from kasmon.bus.nats.keys import SECRET_BYTES, derive_seed, public_key
from kasmon.bus.nats.subjects import check_name
from kasmon.errors import KasmonError, NotFoundError, RefusedError
from kasmon.paths import Paths, private_folder, write_private
from kasmon.store.file_lock import lock

Role = Literal["machine", "viewer", "operator"]
"""What a member may do: publish its own sessions; read; or also send commands and answers."""
GIB: Final = 1024**3


class Team(msgspec.Struct, frozen=True):
    """An account of its own: its members see no message of another team."""

    name: str
    storage_bytes: int = 10 * GIB
    """How much of the server's disk the team's machines may use together."""


class Member(msgspec.Struct, frozen=True):
    """A machine or a person that was admitted."""

    name: str
    role: Role
    team: str
    public_key: str
    joined_at: float


class OpenToken(msgspec.Struct, frozen=True):
    """The right to join once. Its holder has the private key."""

    name: str
    role: Role
    team: str
    public_key: str
    expires_at: float
    member_key: str = ""
    """The public key that joined with it; empty until then."""


class Server(msgspec.Struct, frozen=True):
    """One of several servers of a cluster, each on a machine of its own."""

    host: str
    port: int
    listen: str

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def route_port(self) -> int:
        """Where the other servers connect to: 6222 for 4222, as is usual."""
        return self.port + 2000


class Cluster(msgspec.Struct, frozen=True):
    """One server and those that may connect to it."""

    name: str
    host: str
    """The address that members connect to."""
    port: int
    listen: str
    tls_name: str = ""
    """The name in the server's certificate; empty: `host`."""
    has_own_ca: bool = True
    teams: tuple[Team, ...] = ()
    members: tuple[Member, ...] = ()
    tokens: tuple[OpenToken, ...] = ()
    servers: tuple[Server, ...] = ()
    """All servers, this machine's first; empty: that is the only one."""
    leaf_port: int = 0
    """Where leafnodes connect to at the first server; 0: nowhere."""
    leaf_of: str = ""
    """The machine of the cluster whose leafnode this is; empty: this is the cluster itself."""

    @property
    def replicas(self) -> int:
        """How many servers store each message."""
        return len(self.servers) or 1

    def leaf_port_of(self, number: int) -> int:
        """Return where leafnodes connect to at a server: as far from `leaf_port` as its port is from `port`."""
        return self.leaf_port + (self.servers[number - 1].port - self.port if self.servers else 0)

    def find_team(self, name: str) -> Team:
        """Return the team *name*; the only one for an empty name.

        Raises:
            NotFoundError: if there is none, or several for an empty name.
        """
        found = [team for team in self.teams if team.name == name or not name]
        if len(found) != 1:
            names = ", ".join(team.name for team in self.teams)
            what = f"there is no team {name!r}" if name else "the cluster has several teams"
            raise NotFoundError(f"{what}.", hint=f"Pass --team. Teams: {names}.")
        return found[0]

    def without_expired(self, now: float) -> "Cluster":
        """Return it without the tokens that have expired."""
        tokens = tuple(token for token in self.tokens if token.expires_at > now)
        return self if len(tokens) == len(self.tokens) else msgspec.structs.replace(self, tokens=tokens)


class ClusterFolder:
    """The files of one cluster."""

    def __init__(self, paths: Paths, name: str) -> None:
        """Raise `UsageError` if *name* is not valid."""
        self.paths: Final = paths
        self.path: Final = clusters_folder(paths) / check_name(name, "a cluster")
        self.state: Final = self.path / "cluster.json"
        self.secret_file: Final = self.path / "secret"
        self.configuration: Final = self.path / "server.conf"
        self.ca, self.ca_key = self.path / "ca.pem", self.path / "ca.key"
        self.certificate, self.certificate_key = self.path / "server.pem", self.path / "server.key"
        self.streams: Final = self.path / "jetstream"
        self.server_log: Final = self.path / "server.log"
        self.service_log: Final = self.path / "service.log"
        self.service_lock: Final = self.path / "service.lock"
        self.processes: Final = self.path / "processes.json"
        self.hub_ca, self.hub_problem = self.path / "hub-ca.pem", self.path / "hub-problem"
        """Of a leafnode: the authority of its cluster, and why it is not connected."""
        self.peers: Final = self.path / "servers"
        """The folders of the further servers, `2` and so on, which are copied to their machines."""

    def make(self, cluster: Cluster) -> None:
        """Create the folder with *cluster* and a new secret. The certificates are the caller's.

        Raises:
            RefusedError: if it has a cluster already.
            UnsafeFolderError: if others could write to it.
        """
        private_folder(self.path.parent)
        private_folder(self.path)
        with lock(self.state):
            if self.state.exists():
                raise RefusedError(
                    f"the cluster {cluster.name!r} already exists.",
                    hint=f"Choose another --name, or delete {str(self.path)!r} with all its members and messages.",
                )
            write_private(self.secret_file, os.urandom(SECRET_BYTES), durable=True)
            self._write(cluster)

    def load(self) -> Cluster:
        """Return the cluster.

        Raises:
            NotFoundError: if there is none.
            KasmonError: if its file cannot be read.
        """
        try:
            return msgspec.json.decode(self.state.read_bytes(), type=Cluster)
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no cluster {self.path.name!r} on this machine.", hint="`kasmon cluster init` makes one."
            ) from None
        except msgspec.DecodeError as error:
            raise KasmonError(f"cannot read {str(self.state)!r}: {error}.", hint="Restore it from a backup.") from error

    @contextlib.contextmanager
    def change(self) -> Iterator["ClusterChange"]:
        """Load the cluster for a change, and store its new value at the end; one caller at a time.

        Raises:
            NotFoundError: if there is no cluster.
        """
        self.load()
        with lock(self.state):
            change = ClusterChange(self.load().without_expired(time.time()))
            yield change
            self._write(change.cluster)

    def _write(self, cluster: Cluster) -> None:
        write_private(self.state, msgspec.json.format(msgspec.json.encode(cluster)), durable=True)

    def seed(self, purpose: str) -> str:
        """Return the private key of the service for *purpose*: an account's name, or `ROSTER_KEY`."""
        return derive_seed(self.secret_file.read_bytes(), purpose)

    def key(self, purpose: str) -> str:
        return public_key(self.seed(purpose))


class ClusterChange:
    """A cluster that is being changed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster


def clusters_folder(paths: Paths) -> Path:
    return paths.state / "cluster"


def find_cluster(paths: Paths, name: str) -> ClusterFolder:
    """Return the cluster *name*; the only one for an empty name.

    Raises:
        UsageError, NotFoundError: if *name* is not valid, there is none, or there are several.
    """
    names = sorted(file.parent.name for file in clusters_folder(paths).glob("*/cluster.json"))
    if not name and len(names) > 1:
        raise NotFoundError("this machine has several clusters.", hint=f"Pass --name. Clusters: {', '.join(names)}.")
    folder = ClusterFolder(paths, name or next(iter(names), "main"))
    folder.load()
    return folder
