"""Find links in text, and warn about what the user must know before opening one.

Only http and https addresses are links. A link is opened only after the user has seen the whole address.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kasmon.model.transcript.text import TextLine
from kasmon.sanitize import has_hidden, visible

LONGEST: Final = 1000
"""A longer address, in characters, is not a link: the user could not check it."""
_LINK: Final = re.compile(r"https?://[^\s<>\"'`\x00-\x20\x7f-\x9f\u2500-\u259f]+", re.IGNORECASE)
_BEHIND: Final = ".,;:!?…"
_PAIRS: Final = {")": "(", "]": "[", "}": "{"}


class LinkAddress(NamedTuple):
    """An address and its position in the line: characters from *start* to before *end*."""

    start: int
    end: int
    address: str


def links(text: str) -> list[LinkAddress]:
    """Return the links in one line of *text*, from left to right. Punctuation after a link is not part of it."""
    if "://" not in text:
        return []
    matches = (match for match in _LINK.finditer(text) if len(match[0]) <= 2 * LONGEST)
    found = (
        LinkAddress(match.start(), match.start() + len(whole), whole) for match in matches if (whole := _trim(match[0]))
    )
    return [link for link in found if is_link(link.address)]


def link_addresses(rows: Sequence[TextLine]) -> list[str]:
    """Return the addresses of the links in *rows*, each once, in order."""
    return [*dict.fromkeys(address for row in rows for address in row.links)]


def is_link(address: str) -> bool:
    """Whether *address* may be opened at all."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and len(address) <= LONGEST
        and not re.search(r"[\s\x00-\x1f\x7f-\x9f]", address)
    )


def warnings(address: str) -> list[str]:
    """Return warnings about *address* for the user, as sentences."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    messages: list[str] = []
    if not host.isascii():
        messages.append(f"The host name is not plain ASCII; in punycode it is {_punycode(host)}.")
    elif any(label.startswith("xn--") for label in host.split(".")):
        messages.append("The host name is punycode: a browser may show other letters.")
    if "@" in parts.netloc:
        messages.append(f"The part before the @ is a user name; the link goes to {visible(host)}.")
    if has_hidden(address):
        messages.append("The link contains hidden characters, shown as ⟨U+…⟩.")
    if parts.scheme == "http":
        messages.append("The connection is not encrypted.")
    return messages


def _punycode(host: str) -> str:
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return ascii(host)


def _trim(address: str) -> str:
    """Return *address* without the punctuation that follows it, and without unmatched closing brackets."""
    while address and (
        address[-1] in _BEHIND
        or (address[-1] in _PAIRS and address.count(address[-1]) > address.count(_PAIRS[address[-1]]))
    ):
        address = address[:-1]
    return address
