"""One run on its way to a sandbox, for as long as somebody wants it."""

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
    """What is to run, and where it does."""

    def __init__(self, interpreter: Interpreter, code: str, session: str, printed: Show) -> None:
        """
        Args:
            interpreter: which.
            code: what.
            session: the client's name of where; empty is a sandbox of its own.
            printed: is called with its output meanwhile.
        """
        self.id: Final = new_run()
        self.interpreter: Final = interpreter
        self.code: Final = code
        self.session: Final = session
        self.printed: Final = printed
        self.where: Session | None = None
        """Known as soon as it may run there."""
        self.is_unwanted = False

    def check(self) -> None:
        """
        Raises:
            KasmonError: if nobody wants it any more.
        """
        if self.is_unwanted:
            raise KasmonError(STOPPED)
