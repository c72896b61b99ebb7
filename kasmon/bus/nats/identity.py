"""What a member has of a cluster: its private key, the cluster's address and the keys that it trusts."""

from typing import Final

import msgspec

from kasmon.bus.nats.cluster import Role
from kasmon.bus.nats.keys import public_key
from kasmon.bus.nats.subjects import check_name
from kasmon.errors import KasmonError, NotFoundError
from kasmon.paths import Paths, private_folder, write_private


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One member of one cluster; `seed` never leaves its machine."""

    cluster: str
    team: str
    name: str
    role: Role | None
    """None: the service of the cluster, or the holder of a token."""
    host: str
    port: int
    tls_name: str
    ca: str
    """The certificate authority as PEM; empty: those of the system."""
    cluster_key: str
    """The public key that signs lists of members."""
    seed: str
    servers: tuple[str, ...] = ()
    """The addresses of further servers, as HOST:PORT."""
    leaf_port: int = 0
    """Where leafnodes connect to at `host`, and as far from the port of each further server; 0: nowhere."""
    leaf_of: str = ""
    """The machine to whose leafnode this connects; empty: to the cluster itself."""

    @property
    def public_key(self) -> str:
        return public_key(self.seed)

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def leaf_servers(self) -> "tuple[Identity, ...]":
        """The identity at each address where leafnodes connect to, that of the first server first."""
        hosts = [(self.host, self.leaf_port)]
        for each in self.servers:
            host, _, port = each.rpartition(":")
            hosts.append((host.strip("[]"), int(port) + self.leaf_port - self.port))
        return tuple(msgspec.structs.replace(self, host=host, port=port) for host, port in hosts)


class IdentityFile:
    """The file of a member, 0600."""

    def __init__(self, paths: Paths, cluster: str, role: Role) -> None:
        self.path: Final = paths.identities / f"{check_name(cluster, 'a cluster')}-{role}.json"

    def save(self, identity: Identity) -> None:
        private_folder(self.path.parent)
        write_private(self.path, msgspec.json.encode(identity), durable=True)

    def load(self) -> Identity:
        """Return the identity.

        Raises:
            NotFoundError: if this machine did not join.
            KasmonError: if the file cannot be read.
        """
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Identity)
        except FileNotFoundError:
            raise NotFoundError(
                f"this machine has no identity at {str(self.path)!r}.", hint="`kasmon machines join TOKEN` makes one."
            ) from None
        except msgspec.DecodeError as error:
            raise KasmonError(
                f"cannot read {str(self.path)!r}: {error}.", hint="Join again with a new token."
            ) from error


def list_joined(paths: Paths, role: Role) -> list[str]:
    """Return the clusters that this machine joined in this *role*."""
    return [file.stem.removesuffix(f"-{role}") for file in sorted(paths.identities.glob(f"*-{role}.json"))]
