"""Errors on the wire: a `KasmonError` becomes a `FailureReply` at the host, and the same error again at the client."""

from collections.abc import Callable, Iterator

from kasmon.errors import KasmonError
from kasmon.host.journal.process_log import hidden
from kasmon.host.rpc.frames import FailureReply

CARRIED = (str, int, float, bool, type(None))
"""The field types that are sent unchanged; a tuple of strings is too."""


def failed(n: int, error: KasmonError) -> FailureReply:
    """Return *error* as the answer to frame *n*, without the secrets that this host knows."""
    fields = {
        name: _redact_value(value)
        for name, value in vars(error).items()
        if name not in ("message", "hint") and (isinstance(value, CARRIED) or _is_strings(value))
    }
    return FailureReply(
        n=n,
        error=error.code,
        exit_code=error.exit_code,
        message=hidden(error.message),
        hint=hidden(error.hint),
        kind=type(error).__name__,
        fields=fields,
    )


def rebuilt(frame: FailureReply) -> KasmonError:
    """Return the error in *frame*: of the same class, with the same message, hint and fields.

    A class unknown to this version becomes the most general one with its code, else with its exit code.
    """
    known = list(_tree(KasmonError))
    fits: tuple[Callable[[type[KasmonError]], bool], ...] = (
        lambda kind: kind.__name__ == frame.kind and kind.code == frame.error,
        lambda kind: kind.code == frame.error and kind.exit_code == frame.exit_code,
        lambda kind: kind.exit_code == frame.exit_code,
    )
    kind = next((kind for fit in fits for kind in known if fit(kind)), KasmonError)
    error = kind.__new__(kind)
    KasmonError.__init__(error, frame.message, hint=frame.hint)
    for name, value in frame.fields.items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error


def _tree(kind: type[KasmonError]) -> Iterator[type[KasmonError]]:
    """Yield *kind* and its subclasses, the general before the special."""
    level = [kind]
    while level:
        yield from level
        level = [below for above in level for below in above.__subclasses__()]


def _redact_value(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(hidden, value))
    return hidden(value) if isinstance(value, str) else value


def _is_strings(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(word, str) for word in value)
