"""Where `kasmon web` listens for other machines: only with TLS, for the pages of requests and the list of sessions.

Without a certificate, another program has to forward HTTPS to loopback.
"""

import ipaddress
import os
import shutil
import ssl
import stat
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import UsageError

PORT: Final = 8443
PROGRAMS: Final = {
    "tailscale": "tailscale serve --bg {port}",
    "cloudflared": "cloudflared tunnel --url http://127.0.0.1:{port}",
}
"""Programs that forward HTTPS to loopback, and how."""


class TlsListener(msgspec.Struct, frozen=True):
    """An address for other machines."""

    address: str
    port: int
    context: ssl.SSLContext


def tls_listener(bind: str, certificate: str, key: str, link_url: str, port: int) -> TlsListener:
    """Return where to listen: *bind*, `ADDRESS` or `ADDRESS:PORT`, with the files of a *certificate* and its *key*.

    Args:
        bind: as given by the user.
        certificate: a PEM file, with its chain.
        key: a PEM file that only the user can read.
        link_url: as `WebConfig.link_url`: the name that other machines use.
        port: that of the loopback server, for the hint.

    Raises:
        UsageError: if one of them is missing or cannot be used.
    """
    address, bound_port = _parse(bind)
    if not certificate or not key:
        raise UsageError(
            f"kasmon web listens on {bind!r} only with TLS: give --tls-cert and --tls-key.", hint=how_to_forward(port)
        )
    if not link_url:
        raise UsageError(
            "kasmon web does not know the name that other machines use for it.",
            hint=f"`kasmon config web.link_url https://NAME:{bound_port or PORT}`: the name in the certificate.",
        )
    try:
        mode = Path(key).stat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise UsageError(f"others can read the key {key!r}.", hint=f"`chmod 600 {key}`.")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        why = error.reason or "they are no PEM files"
        raise UsageError(f"the certificate {certificate!r} and the key {key!r} cannot be used: {why}.") from error
    except OSError as error:
        name = error.filename or f"{certificate}, {key}"
        raise UsageError(f"the file {str(name)!r} cannot be read: {error.strerror or error}.") from error
    return TlsListener(address, PORT if bound_port is None else bound_port, context)


def how_to_forward(port: int) -> str:
    """Return how other machines reach a server on loopback without a certificate, with programs that are installed."""
    found = [name for name in PROGRAMS if shutil.which(name, path=os.environ.get("PATH"))]
    names = found or list(PROGRAMS)
    commands = " or ".join(f"`{PROGRAMS[name].format(port=port or 8000)}`" for name in names)
    state = f"{' and '.join(found)} {'is' if len(found) == 1 else 'are'} installed" if found else "neither is installed"
    return (
        f"Without a certificate, listen on loopback and forward HTTPS to it: {commands} ({state}). See docs/phone.md."
    )


def _parse(bind: str) -> tuple[str, int | None]:
    """Return the address and the port of *bind*; None for no port. Raises `UsageError` if it is none."""
    address, colon, number = bind.rpartition(":") if bind.count(":") == 1 or "]:" in bind else (bind, "", "")
    try:
        parsed = ipaddress.ip_address(address.strip("[]"))
        if colon and not (number.isascii() and number.isdecimal() and int(number) < 65536):
            raise ValueError(number)
    except ValueError as error:
        raise UsageError(
            f"{bind!r} is no address to listen on.", hint="An address of this machine, as 192.168.1.5 or 0.0.0.0:8443."
        ) from error
    return str(parsed), int(number) if colon else None


def _no_password() -> str:
    """OpenSSL would ask for the key's password on the terminal."""
    return ""
