"""Whom a sandbox may reach: a list of hosts, and the verdict on one wish with its reason. Nothing is looked up here.

An entry is `HOST`, `HOST:PORT`, `*.DOMAIN` (every name below it, not itself) or the name of a preset; without a port it
means 443 and 80. `private:` before it lets that name lead to this machine or to a private network; without it a name
that leads there is refused, whoever answers for it. Numbers are no names: an address is never reached by its number,
and a link-local one (where clouds keep their keys) never at all.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kasmon.errors import UsageError
from kasmon.sandbox.network.presets import PRESETS

PORTS: Final = (443, 80)
"""What an entry without a port means."""
PRIVATE: Final = "private:"
LONGEST: Final = 253
"""No host name is longer."""
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""What makes a name a number where it stands last in it: `127.1`, `0x7f000001`."""
_WITHIN: Final = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)
"""Addresses that hold another one, and how many bits stand behind it."""
_HIDING: Final = (ipaddress.IPv6Network("2001::/32"), ipaddress.IPv6Network("64:ff9b:1::/48"))
"""Addresses that lead to another one which nobody can tell."""


class AllowlistEntry(NamedTuple):
    """One line of the list."""

    name: str
    """A host; for `*.DOMAIN` the domain with its leading dot."""
    port: int = 0
    """0 is any of `PORTS`."""
    private: bool = False

    def names(self, host: str) -> bool:
        """Whether it is of *host*, written as it is looked up."""
        return host.endswith(self.name) if self.name.startswith(".") else host == self.name

    def opens(self, port: int) -> bool:
        """Whether it is of *port*."""
        return port == self.port if self.port else port in PORTS


class HostVerdict(NamedTuple):
    """Whether *host* may be reached at *port*."""

    allowed: bool
    host: str
    """As it is looked up: lower case, no dot at its end; empty where what was asked for is no name."""
    port: int
    why: str = ""
    """Why not."""
    private: bool = False
    """It may lead to this machine or to a private network."""
    listed: bool = False
    """An entry names its port, so what is spoken there need not be TLS."""


def allowlist(hosts: Iterable[str]) -> tuple[AllowlistEntry, ...]:
    """The entries that *hosts* mean, presets among them.

    Raises:
        UsageError: for what is no host; it says why.
    """
    entries: list[AllowlistEntry] = []
    for text in hosts:
        written = text.strip().lower()
        entries += [_entry(name, name) for name in PRESETS.get(written, ())] or [_entry(text, written)]
    return tuple(dict.fromkeys(entries))


def judge(entries: Sequence[AllowlistEntry], host: str, port: int) -> HostVerdict:
    """Whether *host*, as a program wrote it, may be reached at *port*. Whom it leads to is another question."""
    name, fault = host_name(host)
    if fault:
        return HostVerdict(False, "", port, fault)
    named = [entry for entry in entries if entry.names(name)]
    if entry := next((entry for entry in named if entry.opens(port)), None):
        private = any(entry.private and entry.opens(port) for entry in named)
        return HostVerdict(True, name, port, private=private, listed=bool(entry.port))
    why = (
        f"{name} is on the list of this sandbox, but not its port {port}"
        if named
        else f"{name}:{port} is not on the list of this sandbox"
    )
    return HostVerdict(False, name, port, why, private=any(entry.private for entry in named))


def entry_for(host: str, port: int, *, private: bool = False) -> str:
    """The entry of a list that allows *host* at *port*, and no more than it must; *private*: it leads there."""
    prefix = PRIVATE if private or "." not in host else ""
    return f"{prefix}{host}{'' if port in PORTS else f':{port}'}"


def how_to_allow(session: str, entry: str) -> str:
    """The command by which a person allows what *entry* says."""
    return f"kasmon sandbox allow {session} {entry}"


def host_name(text: str) -> tuple[str, str]:
    """*text* as a name that can be looked up, and an empty reason; or an empty name, and why it is none."""
    name = text.lower().removesuffix(".")
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            return "", "that is not a host name"
    if name.startswith("[") or ":" in name or _NUMBER.fullmatch(name.rpartition(".")[2]):
        return "", "this sandbox reaches hosts by their names, not by addresses"
    if not name or len(name) > LONGEST or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        return "", "that is not a host name"
    return name, ""


def address_fault(address: str, *, private: bool) -> str:
    """Why no sandbox is led to *address*; empty where it may be. With *private* this machine and its networks may."""
    try:
        ip = _innermost(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return "it resolves to something that is not an address"
    hiding = any(ip in network for network in _HIDING) or (ip.version == 4 and ip.is_reserved)
    if hiding or ip.is_unspecified or ip.is_multicast or ip.is_link_local:
        return "it resolves to an address that no sandbox may reach"
    if ip.is_global and not ip.is_reserved:
        return ""
    where = "this machine" if ip.is_loopback else "a private network"
    if private and (ip.is_loopback or ip.is_private or ip in ipaddress.ip_network("100.64.0.0/10")):
        return ""
    return f"it resolves to {where}, which requires an entry (`{PRIVATE}HOST`)"


def _innermost(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The IPv4 address that *ip* is another way of writing; *ip* where it is itself."""
    for network, behind in _WITHIN:
        if isinstance(ip, ipaddress.IPv6Address) and ip in network:
            return ipaddress.IPv4Address(int(ip) >> behind & 0xFFFFFFFF)
    return ip


def _entry(text: str, written: str) -> AllowlistEntry:
    private, rest = written.startswith(PRIVATE), written.removeprefix(PRIVATE)
    name, colon, number = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        name, number = rest, ""
    if colon and not (number.isascii() and number.isdecimal() and 0 < int(number[:6]) < 65536):
        raise _no_host(text, f"{number!r} is not a port" if name.count(":") == 0 else "an address is not a name")
    below = name.startswith("*.")
    host, fault = host_name(name.removeprefix("*."))
    if "*" in name.removeprefix("*."):
        raise _no_host(text, "a `*` is allowed only in front of a domain")
    if fault:
        raise _no_host(text, fault)
    if "." not in host and (below or not private):
        why = (
            "that would allow every host below it"
            if below
            else "a name without a dot belongs to this machine or its network"
        )
        raise _no_host(text, why)
    return AllowlistEntry(f".{host}" if below else host, int(number) if number else 0, private)


def _no_host(text: str, why: str) -> UsageError:
    return UsageError(
        f"a sandbox cannot be allowed {text!r}: {why}.",
        hint=f"Write a host (`example.org`, `*.example.org`, `example.org:8443`), {', '.join(sorted(PRESETS))}, "
        f"or `{PRIVATE}HOST` for one on this machine or its network.",
    )
