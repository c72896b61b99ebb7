"""Services in the sandbox: each is started by a bash command line, has a name, and keeps the end of its output."""

import contextlib
import os
import signal
from collections.abc import Mapping

from kasmon.sandbox.guest.children import build_environment, spawn
from kasmon.sandbox.guest.event_loop import EventLoop
from kasmon.sandbox.guest.outcome import ended
from kasmon.sandbox.guest.private_folder import program
from kasmon.sandbox.guest.process_group import end_family, members
from kasmon.sandbox.guest.truncation import TruncatingBuffer

WORDS_BYTES = 8 * 1024


class GuestService:
    """A process in its own session; its stdin is /dev/null."""

    def __init__(self, loop: EventLoop, start: str, variables: Mapping[str, str]) -> None:
        self._loop = loop
        self._said = TruncatingBuffer(WORDS_BYTES)
        self._ours, theirs = os.pipe()
        os.set_blocking(self._ours, False)
        try:
            argv = [program("bash"), "--noprofile", "--norc", "-c", start]
            self.pid = spawn(argv, build_environment(variables), {1: theirs, 2: theirs})
        except OSError:
            os.close(self._ours)
            raise
        finally:
            os.close(theirs)
        self._session = self.pid
        self.how = ""
        loop.watch(self._ours, self._hear)

    def handle_exit(self, status: int) -> None:
        self.pid = 0
        self.how = ended(os.waitstatus_to_exitcode(status))

    def end(self) -> None:
        if self.pid:
            end_family(self.pid)
        for pid in members(self._session):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._loop.forget(self._ours)
        os.close(self._ours)
        if self.pid:
            os.waitpid(self.pid, 0)
            self.handle_exit(int(signal.SIGKILL))

    def state(self) -> dict[str, object]:
        return {"pid": self.pid, "ended": self.how, "said": self._said.text()[0]}

    def forget_output(self) -> None:
        """Delete its output so far."""
        self._said = TruncatingBuffer(WORDS_BYTES)

    def _hear(self) -> None:
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:
            return
        if data:
            self._said.add(data)
        else:
            self._loop.forget(self._ours)
