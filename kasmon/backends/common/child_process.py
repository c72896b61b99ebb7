"""An agent's process that speaks in lines: started on its own, heard line by line, ended with all it started.

It never holds more of what it said than one line: where nobody reads, the process waits. Its end is its process's own,
not that of its pipes, which a descendant may hold open for ever.
"""

import asyncio
import contextlib
import os
import signal as signals
from collections.abc import AsyncIterator, Mapping, Sequence
from secrets import token_hex
from typing import Final

from kasmon.backends.common.process_family import ProcessFamily
from kasmon.backends.common.stderr_tail import StderrTail
from kasmon.errors import LaunchError, SessionEndedError
from kasmon.launch import RUN
from kasmon.sanitize import Clean

LINE_BYTES: Final = 1 << 26
"""The longest line that is read as one; of a longer one only the beginning is given on."""
KEPT_BYTES: Final = 1 << 16
"""How much of a line that is too long is given on."""
BLOCK_BYTES: Final = 1 << 16
TERM_S: Final = 2.0
"""How long a process may take to end after SIGTERM before it is killed."""
KILL_S: Final = 3.0
"""How long a process may take to end after SIGKILL before it is no longer waited for."""
REST_S: Final = 1.0
"""How long a pipe of an ended process is listened to when nothing comes: somebody else holds it open then."""
LOOK_S: Final = 1.0
"""How long after a line it is looked who its descendants are: a line is what an agent says before it starts one."""
LOOK_AGAIN_S: Final = 10.0
"""How seldom that is looked at; each time takes a few milliseconds."""


class ChildProcess:
    """One process in a session and process group of its own; its stderr is kept for last words."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, pipes: "_Pipes", words: StderrTail, family: ProcessFamily
    ) -> None:
        self.pid: int = transport.get_pid()
        self._transport = transport
        self._pipes = pipes
        self._words = words
        self._family = family
        self._looking: asyncio.Task[None] | None = None
        self._is_to_look = False
        self._reading: asyncio.Timeout | None = None
        self._all_read = asyncio.Event()
        self._all_read.set()
        self._ended = False
        self._ending = asyncio.Lock()
        assert pipes.stderr is not None
        self._listening = asyncio.create_task(words.listen(pipes.stderr))
        self._burying = asyncio.create_task(self._bury())

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, workdir: str, environment: Mapping[str, str], secrets: Sequence[str] = ()
    ) -> "ChildProcess":
        """Run *argv* in *workdir* with *environment* and a `RUN`, by which what it starts is known.

        Args:
            secrets: values that its last words must not show.

        Raises:
            LaunchError: if it cannot be started; the message names what is missing.
        """
        loop = asyncio.get_running_loop()
        mark = token_hex(16)
        try:
            transport, pipes = await loop.subprocess_exec(
                lambda: _Pipes(BLOCK_BYTES, loop),
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=workdir,
                env={**environment, RUN: mark},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise await asyncio.to_thread(_not_started, argv[0], workdir, error) from error
        try:
            family = await asyncio.to_thread(ProcessFamily, transport.get_pid(), mark)
        except BaseException:  # nobody would end it
            transport.close()
            raise
        return cls(transport, pipes, StderrTail(secrets), family)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; what it started may outlive it for a moment."""
        return not self._pipes.exited.is_set()

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs, and where a signal ended it."""
        code = self._code
        return code if code is not None and code >= 0 else None

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended it, such as `SIGKILL`."""
        code = self._code
        if code is None or code >= 0:
            return None
        try:
            return signals.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    @property
    def last_words(self) -> Clean:
        """The last lines of its stderr, cleaned and without secrets."""
        return self._words.text

    async def lines(self) -> AsyncIterator[bytes]:
        """Its stdout, line by line without the newline, until it closes it or has ended; a last line may be half.

        For one reader. What is longer than `LINE_BYTES` comes as its first `KEPT_BYTES`.
        """
        self._all_read.clear()
        line = bytearray()
        size = 0
        try:
            while block := await self._block():
                self._look_soon()
                *ends, rest = block.split(b"\n")
                for end in ends:
                    _add(line, end, size)
                    yield bytes(line[:-1] if line.endswith(b"\r") else line)
                    line.clear()
                    size = 0
                _add(line, rest, size)
                size += len(rest)
            if line:
                yield bytes(line)
        finally:
            self._all_read.set()

    async def write(self, line: bytes) -> None:
        """Give it *line* and a newline; waits while it does not read.

        Raises:
            SessionEndedError: if it does not read any more.
        """
        writer = self._pipes.stdin
        assert writer is not None
        try:
            if writer.is_closing() or not self.is_running:
                raise BrokenPipeError
            writer.write(line + b"\n")
            await writer.drain()
        except (ConnectionError, RuntimeError) as error:
            raise SessionEndedError(str(self.pid)) from error

    async def wait(self) -> None:
        """Return when it has ended, what it left behind is ended too, and its stderr is read."""
        await self._pipes.exited.wait()
        await asyncio.wait([self._burying, self._listening], timeout=REST_S)

    async def end(self, grace_s: float = 0.0) -> None:
        """Close its stdin, wait up to *grace_s* seconds, then end it and whatever it started. Idempotent.

        Bounded: at most *grace_s* and some 8 seconds, even where the system cannot end it.
        """
        async with self._ending:
            if self._ended:
                return
            await self._look()
            if self._pipes.stdin is not None:
                self._pipes.stdin.close()
            await self._ended_within(grace_s)
            if self.is_running:
                await self._look()
                self._signal(signals.SIGTERM)
                await self._ended_within(TERM_S)
            if self.is_running:
                self._signal(signals.SIGKILL)
                await self._ended_within(KILL_S)
            if not self.is_running:
                await self.wait()
                await _within(REST_S, self._all_read)
            self._ended = True
            await self._let_go()

    @property
    def _code(self) -> int | None:
        return self._transport.get_returncode()

    async def _block(self) -> bytes:
        """More of its stdout; empty when there is no more."""
        reader = self._pipes.stdout
        assert reader is not None
        try:
            async with asyncio.timeout(None if self.is_running else REST_S) as self._reading:
                return await reader.read(BLOCK_BYTES)
        except TimeoutError:
            return b""
        finally:
            self._reading = None

    async def _ended_within(self, limit_s: float) -> None:
        await _within(limit_s, self._pipes.exited)

    async def _bury(self) -> None:
        """Once it has ended, end its group and the rest of its family at once: their ids are still theirs."""
        await self._pipes.exited.wait()
        self._signal(signals.SIGKILL)
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time() + REST_S)
        await asyncio.to_thread(self._family.end)

    async def _let_go(self) -> None:
        self._transport.close()
        tasks = [task for task in (self._listening, self._burying, self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _signal(self, number: signals.Signals) -> None:
        """Send *number* to its process group, which outlives it as long as anybody is in it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _look_soon(self) -> None:
        self._is_to_look = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_now_and_then())

    async def _look_now_and_then(self) -> None:
        while self._is_to_look:  # also after a line that came in the pause: it may be the last one for long
            self._is_to_look = False
            await asyncio.sleep(LOOK_S)
            await self._look()
            await asyncio.sleep(LOOK_AGAIN_S - LOOK_S)

    async def _look(self) -> None:
        if self.is_running:
            await asyncio.to_thread(self._family.look)


class _Pipes(asyncio.subprocess.SubprocessStreamProtocol):
    """The pipes of a process, and its own end: `Process.wait` also waits for the pipes (python/cpython#119710)."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


async def _within(limit_s: float, event: asyncio.Event) -> None:
    if limit_s > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await event.wait()


def _add(line: bytearray, more: bytes, size: int) -> None:
    """Add *more* to *line*, of which *size* bytes came so far; of one that gets too long only the beginning stays."""
    if size + len(more) <= LINE_BYTES:
        line += more
    else:
        del line[KEPT_BYTES:]


def _not_started(program: str, workdir: str, error: Exception) -> LaunchError:
    """Why *program* did not start."""
    if not os.path.isdir(workdir):  # noqa: PTH112 - any text may stand there
        return LaunchError(f"cannot start {program!r}: there is no folder {workdir!r}.", hint="Create it first.")
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return LaunchError(f"cannot start {program!r}: {why}.", hint="Check the agent's `program` in the config.")
