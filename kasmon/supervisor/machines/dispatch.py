"""Does an operation on a session where that session is: here, or by kasmon's commands on its machine.

    @dispatch
    def read_history(paths: Paths, session: Session) -> SandboxHistory: ...

    @read_history.elsewhere
    def _read_history_there(paths: Paths, session: Session) -> SandboxHistory: ...

Callers need not know where the session is. Besides this module only those of
`tests/safety/test_session_location.py` ask.
"""

import functools
from collections.abc import Callable
from typing import Concatenate, Generic, ParamSpec, TypeVar

from kasmon.errors import OtherMachineError
from kasmon.model.session import Session
from kasmon.paths import Paths

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class SessionOperation(Generic[Parameters, Result]):
    """An operation on a session, wherever that is. `dispatch` returns one."""

    def __init__(self, here: Callable[Concatenate[Paths, Session, Parameters], Result]) -> None:
        self._here = here
        self._there: Callable[Concatenate[Paths, Session, Parameters], Result] | None = None
        functools.update_wrapper(self, here)

    def __call__(
        self, paths: Paths, session: Session, /, *arguments: Parameters.args, **options: Parameters.kwargs
    ) -> Result:
        """Raises `OtherMachineError` if it can only be done on the session's machine, which is another one."""
        if not session.via:
            return self._here(paths, session, *arguments, **options)
        if self._there is None:
            raise OtherMachineError(session.id, session.name, session.via)
        return self._there(paths, session, *arguments, **options)

    def elsewhere(
        self, there: Callable[Concatenate[Paths, Session, Parameters], Result]
    ) -> Callable[Concatenate[Paths, Session, Parameters], Result]:
        """Have *there* do it for sessions of other machines; it imports what only those need."""
        self._there = there
        return there


def dispatch(
    here: Callable[Concatenate[Paths, Session, Parameters], Result],
) -> SessionOperation[Parameters, Result]:
    """Return the operation that *here* is for sessions of this machine."""
    return SessionOperation(here)
