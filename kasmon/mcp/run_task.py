"""One run on its way to a sandbox."""

from collections.abc import Callable
from typing import Final, TypeAlias

from kasmon.errors import KasmonError
from kasmon.host.rpc.frames import RunOutputChunk
from kasmon.model.sandbox.policy import Interpreter
from kasmon.model.session import Session
from kasmon.supervisor.sandboxes.operations import new_run

STOPPED: Final = "it was stopped before it started."
Show: TypeAlias = Callable[[RunOutputChunk], None]


class RunTask:
    """The code to run, and its sandbox."""

    def __init__(self, interpreter: Interpreter, code: str, session: str, printed: Show) -> None:
        """Args:
        interpreter: the interpreter.
        code: the code.
        session: the client's name of the session; empty is a temporary sandbox.
        printed: is called with its output as it arrives."""
        self.id: Final = new_run()
        self.interpreter: Final = interpreter
        self.code: Final = code
        self.session: Final = session
        self.printed: Final = printed
        self.where: Session | None = None
        """Set as soon as it may run there."""
        self.is_stopped = False

    def check(self) -> None:
        """Check that the run is still wanted.

        Raises:
            KasmonError: if it was stopped.
        """
        if self.is_stopped:
            raise KasmonError(STOPPED)
