"""The secrets that this process knows, which it redacts in its log, its errors and the events that it writes.

There is one set for the whole process, so a secret of any of its sessions is redacted everywhere.
"""

from collections.abc import Iterable

from kasmon.host.journal.redaction import Redactor

_hiding = Redactor()


def add_secrets(secrets: Iterable[str]) -> None:
    """Redact *secrets* too from now on. From any thread."""
    _hiding.add_secrets(secrets)


def hidden(text: str) -> str:
    """Return *text* without tokens and the values passed to `add_secrets`."""
    return _hiding.line(text)
