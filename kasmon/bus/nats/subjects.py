"""The subjects and streams of a cluster. Each part of a subject is a checked name, or encoded.

`k.CLUSTER.KIND.MACHINE.REST`: `ev` events, `dir` the directory, `hb` the heartbeat, `cmd` commands and answers,
`log` requests for parts of logs, `tasks` orders that may wait.
"""

import base64
import re
from typing import Final

from kasmon.errors import UsageError

PREFIX: Final = "k"
PUBLISHED: Final = ("ev", "dir", "hb")
"""The kinds that a machine publishes below its own name; all but the last are stored."""
NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
ROSTER: Final = "roster"
"""The stream that has the last signed list of members."""


def check_name(name: str, what: str) -> str:
    """Return *name*, which is safe in subjects, stream names, file names, certificates and the server's configuration.

    Raises:
        UsageError: if it is not 1 to 32 lower-case letters, digits and hyphens.
    """
    if NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} is not a valid name for {what}.",
            hint="A name has 1 to 32 lower-case letters, digits and hyphens, and no hyphen at its ends.",
        )
    return name


def encode_token(text: str) -> str:
    """Return *text* as one part of a subject. Different texts differ; none has `.`, `*`, `>` or a space."""
    if PLAIN.fullmatch(text):
        return text
    return "=" + base64.urlsafe_b64encode(text.encode("utf-8", "surrogateescape")).decode().rstrip("=")


def subject(cluster: str, kind: str, machine: str, *parts: str) -> str:
    """Return a subject of *machine*; *parts* are encoded."""
    return ".".join((PREFIX, cluster, kind, machine, *map(encode_token, parts)))


def roster_subject(cluster: str) -> str:
    return f"{PREFIX}.{cluster}.{ROSTER}"


def configuration_subject(cluster: str, number: int) -> str:
    """Return where a further server gets its configuration."""
    return f"{PREFIX}.{cluster}.configuration.{number}"


def certificate_subject(cluster: str, number: str) -> str:
    """Return where the further server *number* asks for a new certificate."""
    return f"{PREFIX}.{cluster}.certificate.{number}"


def read_subject(cluster: str) -> str:
    """Return where a leafnode reads the streams of its cluster: JetStream's own subjects do not leave a domain."""
    return f"{PREFIX}.{cluster}.get"


def enrolment_subject(cluster: str, token: str) -> str:
    """Return where the holder of *token*, a public key, asks to be admitted."""
    return f"{PREFIX}.{cluster}.enrol.{token}"


def inbox(public_key: str) -> str:
    """Return the prefix of the answers to the one who has *public_key*; no one else may subscribe below it."""
    return f"_INBOX_{public_key}"


def stream(kind: str, machine: str) -> str:
    """Return the name of the stream with the *kind* of messages of *machine*."""
    return f"{kind}_{machine}"
