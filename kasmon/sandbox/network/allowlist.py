"""The allowlist of a sandbox's hosts, and the verdict on one connection with its reason. No name is resolved here.

An entry is `HOST`, `HOST:PORT`, `*.DOMAIN` (every name below it, not itself) or the name of a preset; without a port it
means 443 and 80. With the prefix `private:` the name may resolve to this machine or a private network; without it such
a name is refused, whichever DNS server answers. Numeric addresses are never allowed as hosts. A link-local address
(where clouds serve their keys) is never reached.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kasmon.errors import UsageError

PRESETS: Final[dict[str, tuple[str, ...]]] = {
    "npm": ("registry.npmjs.org:443",),
    "pypi": ("pypi.org:443", "files.pythonhosted.org:443"),
    "github": (
        "github.com:443",
        "api.github.com:443",
        "codeload.github.com:443",
        "raw.githubusercontent.com:443",
        "objects.githubusercontent.com:443",
        "release-assets.githubusercontent.com:443",
    ),
}
"""Hosts by preset name. A sandbox that reaches a forge can also upload to it, see SECURITY.md."""


PORTS: Final = (443, 80)
PRIVATE: Final = "private:"
LONGEST: Final = 253
"""The maximum length of a host name."""
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""What makes a name an address if it is its last label: `127.1`, `0x7f000001`."""
_WITHIN: Final = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)
"""Networks whose addresses embed an IPv4 address, and how many bits follow it."""
_HIDING: Final = (ipaddress.IPv6Network("2001::/32"), ipaddress.IPv6Network("64:ff9b:1::/48"))
"""Networks whose addresses embed an address that cannot be read."""


class AllowlistEntry(NamedTuple):
    name: str
    """A host; for `*.DOMAIN` the domain with its leading dot."""
    port: int = 0
    """0 means any of `PORTS`."""
    private: bool = False

    def names(self, host: str) -> bool:
        """Whether it covers *host*, in the form that `host_name` returns."""
        return host.endswith(self.name) if self.name.startswith(".") else host == self.name

    def opens(self, port: int) -> bool:
        return port == self.port if self.port else port in PORTS


class HostVerdict(NamedTuple):
    """Whether *host* may be reached at *port*."""

    allowed: bool
    host: str
    """In the form that is resolved: lower case, no trailing dot; empty if the requested host is not a name."""
    port: int
    why: str = ""
    private: bool = False
    """Whether it may resolve to this machine or a private network."""
    listed: bool = False
    """Whether an entry names its port, so the protocol need not be TLS."""


def allowlist(hosts: Iterable[str]) -> tuple[AllowlistEntry, ...]:
    """Parse *hosts* into entries, with presets expanded. Raises `UsageError` for an invalid host, with the reason."""
    entries: list[AllowlistEntry] = []
    for text in hosts:
        written = text.strip().lower()
        entries += [_parse_entry(name, name) for name in PRESETS.get(written, ())] or [_parse_entry(text, written)]
    return tuple(dict.fromkeys(entries))


def judge(entries: Sequence[AllowlistEntry], host: str, port: int) -> HostVerdict:
    """Decide whether *host*, as a program wrote it, may be reached at *port*. Its addresses are not checked here."""
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
    """Return the narrowest entry that allows *host* at *port*; *private*: it resolves to a private address."""
    prefix = PRIVATE if private or "." not in host else ""
    return f"{prefix}{host}{'' if port in PORTS else f':{port}'}"


def how_to_allow(session: str, entry: str) -> str:
    """Return the command by which the user adds *entry*."""
    return f"kasmon sandbox allow {session} {entry}"


def host_name(text: str) -> tuple[str, str]:
    """Return *text* as a name to resolve and an empty reason; or an empty name and why *text* is no name."""
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
    """Return why no sandbox may connect to *address*, or "". *private* permits this machine and its networks."""
    try:
        ip = _embedded_address(ipaddress.ip_address(address.partition("%")[0]))
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


def _embedded_address(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the IPv4 address that is embedded in *ip*; *ip* itself if there is none."""
    for network, behind in _WITHIN:
        if isinstance(ip, ipaddress.IPv6Address) and ip in network:
            return ipaddress.IPv4Address(int(ip) >> behind & 0xFFFFFFFF)
    return ip


def _parse_entry(text: str, written: str) -> AllowlistEntry:
    private, rest = written.startswith(PRIVATE), written.removeprefix(PRIVATE)
    name, colon, number = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        name, number = rest, ""
    if colon and not (number.isascii() and number.isdecimal() and 0 < int(number[:6]) < 65536):
        raise _invalid_host(text, f"{number!r} is not a port" if name.count(":") == 0 else "an address is not a name")
    below = name.startswith("*.")
    host, fault = host_name(name.removeprefix("*."))
    if "*" in name.removeprefix("*."):
        raise _invalid_host(text, "a `*` is allowed only in front of a domain")
    if fault:
        raise _invalid_host(text, fault)
    if "." not in host and (below or not private):
        why = (
            "that would allow every host below it"
            if below
            else "a name without a dot belongs to this machine or its network"
        )
        raise _invalid_host(text, why)
    return AllowlistEntry(f".{host}" if below else host, int(number) if number else 0, private)


def _invalid_host(text: str, why: str) -> UsageError:
    return UsageError(
        f"a sandbox cannot be allowed {text!r}: {why}.",
        hint=f"Write a host (`example.org`, `*.example.org`, `example.org:8443`), {', '.join(sorted(PRESETS))}, "
        f"or `{PRIVATE}HOST` for one on this machine or its network.",
    )
