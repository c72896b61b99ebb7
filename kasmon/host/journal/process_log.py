"""A kasmon process's own output, its log and last tracebacks, without known secrets."""

import logging
import sys
import threading
from types import TracebackType
from typing import Final

from kasmon.host.journal.known_secrets import hidden

LINE: Final = "%(asctime)s %(levelname)s %(message)s"

log = logging.getLogger(__name__)


class RedactingFormatter(logging.Formatter):
    """Formats a record, its traceback included, and redacts the known secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return hidden(super().format(record))


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


def _log_uncaught(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    if not isinstance(error, KeyboardInterrupt):
        log.critical("uncaught error", exc_info=(kind, error, at))


def _log_uncaught_in_thread(uncaught: threading.ExceptHookArgs) -> None:
    if uncaught.exc_value is not None and not isinstance(uncaught.exc_value, SystemExit):
        name = uncaught.thread.name if uncaught.thread is not None else "a thread"
        log.error("uncaught error in %s", name, exc_info=uncaught.exc_value)


def _log_unraisable(uncaught: "sys.UnraisableHookArgs") -> None:
    log.error("%s", uncaught.err_msg or "an error that cannot be raised", exc_info=uncaught.exc_value)
