"""A kasmon process's own output, its log and last tracebacks, without known secrets.

There is one log for the whole process, so a secret of any of its sessions is redacted everywhere in it.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

from kasmon.host.journal.redaction import Redactor

LINE: Final = "%(asctime)s %(levelname)s %(message)s"
LOG_BYTES: Final = 1 << 20
"""A process log is restarted once it is longer than this."""

log = logging.getLogger(__name__)
_hiding = Redactor()


class RedactingFormatter(logging.Formatter):
    """Formats a record, its traceback included, and redacts the values passed to `add_secrets`."""

    def format(self, record: logging.LogRecord) -> str:
        return _hiding.line(super().format(record))


def add_secrets(secrets: Iterable[str]) -> None:
    """Redact *secrets* too from now on. From any thread."""
    _hiding.add_secrets(secrets)


def hidden(text: str) -> str:
    """Return *text* without tokens and the values passed to `add_secrets`."""
    return _hiding.line(text)


def configure(handler: logging.Handler | None = None) -> None:
    """From now on log only to *handler*, by default stderr, uncaught errors included."""
    handler = handler or logging.StreamHandler()
    if handler.formatter is None:
        handler.setFormatter(RedactingFormatter(LINE))
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    sys.unraisablehook = _log_unraisable


def opened(path: Path) -> BinaryIO:
    """Open the log at *path* for appending, accessible to this user only; truncated if it was long.

    Raises:
        OSError: if it cannot be opened, or is a link.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(handle).st_size > LOG_BYTES:
        os.ftruncate(handle, 0)
    return os.fdopen(handle, "ab")


def _log_uncaught(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    if not isinstance(error, KeyboardInterrupt):
        log.critical("uncaught error", exc_info=(kind, error, at))


def _log_uncaught_in_thread(uncaught: threading.ExceptHookArgs) -> None:
    if uncaught.exc_value is not None and not isinstance(uncaught.exc_value, SystemExit):
        name = uncaught.thread.name if uncaught.thread is not None else "a thread"
        log.error("uncaught error in %s", name, exc_info=uncaught.exc_value)


def _log_unraisable(uncaught: "sys.UnraisableHookArgs") -> None:
    log.error("%s", uncaught.err_msg or "an error that cannot be raised", exc_info=uncaught.exc_value)
