"""The process of an agent with a line-based protocol: started in its own session, ended with all its descendants.

At most one line of its output is buffered: without a reader, the process blocks. Its end is the exit of the process
itself, not the closing of its pipes, which a descendant may hold open for ever.
"""

import asyncio
import contextlib
import os
import signal as signals
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from secrets import token_hex
from typing import Final

from kasmon.asyncio_tasks import cancel_and_wait, wait_within
from kasmon.backends.common.process_family import ProcessFamily
from kasmon.errors import LaunchError, SessionEndedError
from kasmon.launch import RUN, SESSION
from kasmon.sanitize import Clean, clean_block, redact

LINE_BYTES: Final = 1 << 26
"""The longest line that is passed on whole; a longer one is truncated."""
KEPT_BYTES: Final = 1 << 16
"""How much of a line that is too long is passed on."""
BLOCK_BYTES: Final = 1 << 16
TERM_S: Final = 2.0
"""How long a process may take to end after SIGTERM before it is killed, in seconds."""
KILL_S: Final = 3.0
"""How long to wait for a process to end after SIGKILL, in seconds."""
REST_S: Final = 1.0
"""How long to read a silent pipe of an ended process, in seconds: another process holds it open then."""
LOOK_S: Final = 1.0
"""Delay between a line and the scan for descendants, in seconds: an agent announces a child before it starts it."""
LOOK_AGAIN_S: Final = 10.0
"""Minimum interval between those scans, in seconds; each takes a few milliseconds."""

STDERR_LINES: Final = 20
STDERR_LINE_BYTES: Final = 2000
STDERR_BLOCK_BYTES: Final = 1 << 16


class StderrTail:
    """The last stderr lines of a process; *secrets* are values that must not appear in them."""

    def __init__(self, secrets: Sequence[str]) -> None:
        clean = (line for secret in secrets for line in (clean_block(secret), *clean_block(secret).splitlines()))
        self._secrets = tuple(sorted({*secrets, *clean}, key=len, reverse=True))
        """They may appear cleaned, and each line of those with several alone."""
        self._lines: deque[bytes] = deque(maxlen=STDERR_LINES)

    @property
    def text(self) -> Clean:
        """The last lines, cleaned and without secrets."""
        return redact(clean_block(b"\n".join(self._lines).decode("utf-8", "replace")), self._secrets)[0]

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Read *reader* to its end; keep only the last lines, and of a long line its beginning."""
        kept = STDERR_LINE_BYTES + max((len(secret.encode()) for secret in self._secrets), default=0)
        rest = b""
        while block := await reader.read(STDERR_BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            self._lines.extend(self._truncate(line[:kept]) for line in lines if line.strip())
            rest = rest[:kept]
        if rest.strip():
            self._lines.append(self._truncate(rest))

    def _truncate(self, line: bytes) -> bytes:
        """Return *line* truncated, at a position that splits no secret."""
        end = STDERR_LINE_BYTES
        if len(line) <= end:
            return line
        for secret in (secret.encode() for secret in self._secrets):
            at = line.find(secret, max(0, end - len(secret) + 1))
            if 0 <= at < end:
                end = at + len(secret)
        return line[:end]


class ChildProcess:
    """One process in its own session and process group; the end of its stderr is retained."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, pipes: "_Pipes", stderr_tail: StderrTail, family: ProcessFamily
    ) -> None:
        self.pid: int = transport.get_pid()
        self._transport = transport
        self._pipes = pipes
        self._stderr_tail = stderr_tail
        self._family = family
        self._scan_task: asyncio.Task[None] | None = None
        self._is_scan_due = False
        self._reading: asyncio.Timeout | None = None
        self._is_read_through = asyncio.Event()
        self._is_read_through.set()
        self._ended = False
        self._ending = asyncio.Lock()
        assert pipes.stderr is not None
        self._stderr_task = asyncio.create_task(stderr_tail.read(pipes.stderr))
        self._cleanup_task = asyncio.create_task(self._clean_up())

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, workdir: str, environment: Mapping[str, str], secrets: Sequence[str] = ()
    ) -> "ChildProcess":
        """Run *argv* in *workdir* with *environment* and a `RUN` variable, which identifies its descendants.

        Args:
            secrets: values that its stderr tail must not show.

        Raises:
            LaunchError: if it cannot be started; the message names what is missing.
        """
        loop = asyncio.get_running_loop()
        mark = f"{environment.get(SESSION, '')}.{token_hex(16)}"
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
            raise await asyncio.to_thread(_start_error, argv[0], workdir, error) from error
        try:
            family = await asyncio.to_thread(ProcessFamily, transport.get_pid(), mark)
        except BaseException:  # no caller has the process yet to end it
            transport.close()
            raise
        return cls(transport, pipes, StderrTail(secrets), family)

    @property
    def is_running(self) -> bool:
        """Whether it has not exited; its descendants may outlive it for a moment."""
        return not self._pipes.exited.is_set()

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs, or if a signal ended it."""
        code = self._transport.get_returncode()
        return code if code is not None and code >= 0 else None

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended it, such as `SIGKILL`."""
        code = self._transport.get_returncode()
        return signal_name(-code) if code is not None and code < 0 else None

    @property
    def last_words(self) -> Clean:
        """The last lines of its stderr, cleaned and without secrets."""
        return self._stderr_tail.text

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield its stdout by lines without the newline, until it closes stdout or ends; the last line may be partial.

        For one reader. A line longer than `LINE_BYTES` is truncated to its first `KEPT_BYTES`.
        """
        self._is_read_through.clear()
        line = bytearray()
        size = 0
        try:
            while block := await self._block():
                self.scan_soon()
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
            self._is_read_through.set()

    async def write(self, line: bytes) -> None:
        """Send it *line* and a newline; waits while it does not read.

        Raises:
            SessionEndedError: if it no longer reads.
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
        """Return once it has ended, its remaining descendants are killed, and its stderr is read."""
        await self._pipes.exited.wait()
        await asyncio.wait([self._cleanup_task])  # takes `process_family.END_S` at most
        await asyncio.wait([self._stderr_task], timeout=REST_S)

    async def end(self, grace_s: float = 0.0) -> None:
        """Close its stdin, wait up to *grace_s* seconds, then end it and its descendants. Idempotent.

        Bounded: at most *grace_s* and some 9 seconds, even if the system cannot end it.
        """
        async with self._ending:
            if self._ended:
                return
            await self._scan()
            if self._pipes.stdin is not None:
                self._pipes.stdin.close()
            await wait_within(grace_s, self._pipes.exited)
            if self.is_running:
                await self._scan()
                self._signal(signals.SIGTERM)
                await wait_within(TERM_S, self._pipes.exited)
            if self.is_running:
                self._signal(signals.SIGKILL)
                await wait_within(KILL_S, self._pipes.exited)
            if not self.is_running:
                await self.wait()
                await wait_within(REST_S, self._is_read_through)
            self._ended = True
            await self._release()

    async def _block(self) -> bytes:
        """Return more of its stdout; empty at the end."""
        reader = self._pipes.stdout
        assert reader is not None
        try:
            async with asyncio.timeout(None if self.is_running else REST_S) as self._reading:
                return await reader.read(BLOCK_BYTES)
        except TimeoutError:
            return b""
        finally:
            self._reading = None

    async def _clean_up(self) -> None:
        """Once it has ended, kill its group and remaining descendants at once, before the system reuses their ids."""
        await self._pipes.exited.wait()
        self._signal(signals.SIGKILL)
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time() + REST_S)
        await asyncio.to_thread(self._family.end)

    async def _release(self) -> None:
        self._transport.close()
        await cancel_and_wait(self._stderr_task, self._cleanup_task, self._scan_task)

    def _signal(self, number: signals.Signals) -> None:
        """Send *number* to its process group, which exists as long as it has a member."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def scan_soon(self) -> None:
        """Scan for its descendants soon: it may have started one."""
        self._is_scan_due = True
        if self._scan_task is None or self._scan_task.done():
            self._scan_task = asyncio.create_task(self._scan_repeatedly())

    async def _scan_repeatedly(self) -> None:
        while self._is_scan_due:  # also after a line that came during the pause: it may be the last one for long
            self._is_scan_due = False
            await asyncio.sleep(LOOK_S)
            await self._scan()
            await asyncio.sleep(LOOK_AGAIN_S - LOOK_S)

    async def _scan(self) -> None:
        if self.is_running:
            await asyncio.to_thread(self._family.scan)


class _Pipes(asyncio.subprocess.SubprocessStreamProtocol):
    """The pipes of a process and its own exit: `Process.wait` also waits for the pipes (python/cpython#119710)."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


def _add(line: bytearray, more: bytes, size: int) -> None:
    """Add *more* to *line*, of which *size* bytes came so far; truncate it to `KEPT_BYTES` once it is too long."""
    if size + len(more) <= LINE_BYTES:
        line += more
    else:
        del line[KEPT_BYTES:]


def _start_error(program: str, workdir: str, error: Exception) -> LaunchError:
    if not os.path.isdir(workdir):  # noqa: PTH112 - any text may stand there
        return LaunchError(f"cannot start {program!r}: there is no folder {workdir!r}.", hint="Create it first.")
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return LaunchError(f"cannot start {program!r}: {why}.", hint="Check the agent's `program` in the config.")


def signal_name(number: int | None) -> str | None:
    """Return `SIGKILL` for 9; a number for a signal without a name."""
    if number is None:
        return None
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
