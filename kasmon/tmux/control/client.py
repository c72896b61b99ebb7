"""One `tmux -C` client: runs commands without forking and receives the panes' output. Its caller pumps it."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kasmon.errors import KasmonError, TmuxCommandError, TmuxServerGoneError
from kasmon.tmux.control.protocol import AnswerItem, BrokenItem, ControlParser, Item, NoticeItem, OutputItem
from kasmon.tmux.control.requests import AnswerLines, TmuxRequest, refused

Answer = TypeVar("Answer")

READ_BYTES = 1 << 18
PUMP_BYTES = 1 << 20
"""How much one `pump` reads at most, so that a flood leaves its caller time for other work."""
CLOSE_STEPS = ((None, 0.2), (signal.SIGTERM, 0.5), (signal.SIGKILL, 2.0))
"""The steps of `close`: the end of the client's stdin, then signals; each with its time in seconds."""


@dataclass(slots=True)
class PendingRequest:
    """A request of which some answers are still missing."""

    request: TmuxRequest[Any]
    done: Callable[[Any], None]
    answers: list[AnswerLines] = field(default_factory=list)

    def read(self) -> Any:
        """Return the answer, or the error that it stands for."""
        try:
            return self.request.read(self.answers)
        except KasmonError as error:
            return error


class ControlClient:
    """A running `tmux -C attach`.

    Watch `fileno()` for reading and call `pump`; while `wants_write()`, watch `write_fileno()` for writing and call
    `flush`. Only `call`, `wait_until_attached` and `close` block. Requests are answered in order, each exactly once; a
    client that ends answers the pending ones with an error. Callbacks run inside `pump`, `call` or `close`; they may
    submit and call.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None = None, server: str = "") -> None:
        self.on_output: Callable[[str, bytes], None] = lambda pane, data: None
        self.on_notice: Callable[[NoticeItem], None] = lambda notice: None
        self.on_exit: Callable[[], None] = lambda: None
        """Called once when tmux ends the connection; not after `close`."""
        self.check: Callable[[str], KasmonError | None] = lambda line: None
        """Returns the error of a request whose line must not be sent."""
        self._server = server or " ".join(argv)
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
            start_new_session=True,  # Ctrl+C in our terminal must not reach this client
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self._parser = ControlParser()
        self._items: deque[Item] = deque()
        self._pending: deque[PendingRequest] = deque()
        self._outgoing = bytearray()
        self._greeting: AnswerItem | None = None
        self._is_open = True
        self._is_exit_reported = False

    @property
    def pid(self) -> int:
        """The pid of the client process (not of the tmux server)."""
        return self._process.pid

    @property
    def is_open(self) -> bool:
        return self._is_open

    def fileno(self) -> int:
        """The pipe to watch for reading."""
        return self._stdout.fileno()

    def write_fileno(self) -> int:
        """The pipe to watch for writing while `wants_write()`."""
        return self._stdin.fileno()

    @property
    def is_awaiting_answer(self) -> bool:
        return bool(self._pending)

    def wants_write(self) -> bool:
        """Whether some requests are not yet fully written to the pipe."""
        return bool(self._outgoing)

    def submit(
        self, request: TmuxRequest[Answer], on_done: Callable[[Answer | KasmonError], None] | None = None
    ) -> None:
        """Send *request*; *on_done* receives its answer, or the error instead of an answer. Never blocks."""
        error = self.check(request.line) if self._is_open else TmuxServerGoneError(self._server)
        if error is not None:
            if on_done:
                on_done(error)
            return
        self._pending.append(PendingRequest(request, on_done or (lambda answer: None)))
        self._outgoing += request.line.encode("utf-8", "surrogateescape") + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write as much as the pipe accepts without blocking."""
        while self._outgoing and self._is_open:
            try:
                written = os.write(self._stdin.fileno(), self._outgoing[:65536])
            except BlockingIOError:
                return
            except OSError:
                # tmux closed the pipe. `pump` sees the end of its output after the last answers.
                self._outgoing.clear()
                return
            del self._outgoing[:written]

    def pump(self) -> bool:
        """Read the available output and run the callbacks; return False once tmux has ended the connection."""
        taken = 0
        while self._is_open and taken < PUMP_BYTES:
            try:
                data = os.read(self._stdout.fileno(), READ_BYTES)
            except BlockingIOError:
                break
            self._is_open = bool(data)
            taken += len(data)
            self._items.extend(self._parser.feed(data))
        while self._items:
            match self._items.popleft():
                case OutputItem(pane, data):
                    self.on_output(pane, data)
                case AnswerItem(is_requested=False) as item:
                    self._greeting = self._greeting or item
                case AnswerItem() as item if self._pending:
                    waiting = self._pending[0]
                    waiting.answers.append(item.lines)
                    if item.failed or len(waiting.answers) == waiting.request.blocks:
                        self._pending.popleft()
                        waiting.done(refused(waiting.request, item.lines) if item.failed else waiting.read())
                case NoticeItem() as notice:
                    self.on_notice(notice)
                case BrokenItem():
                    self._is_open = False
                    self._items.clear()
                    self._process.terminate()
        if not self._is_open and not self._is_exit_reported:
            self._is_exit_reported = True
            self.fail_pending()
            self.on_exit()
        return self._is_open

    def call(self, request: TmuxRequest[Answer], limit_s: float = 10.0) -> Answer:
        """Send *request* and return its answer; meanwhile dispatches everything else that arrives, as `pump` does.

        Raises:
            TmuxCommandError: if tmux refuses the request, or has not answered within *limit_s*.
            TmuxServerGoneError: if the connection ends first.
            KasmonError: if the request's reader turns the answer into an error.
        """
        answers: list[Answer | KasmonError] = []
        self.submit(request, answers.append)
        deadline = time.monotonic() + limit_s
        self.pump()
        while not answers:
            if time.monotonic() > deadline:
                raise TmuxCommandError(request.name, f"no answer within {limit_s:g} s")
            self._wait(min(1.0, max(0.0, deadline - time.monotonic())))
            self.pump()
        if isinstance(answers[0], KasmonError):
            raise answers[0]
        return answers[0]

    def wait_until_attached(self, limit_s: float = 10.0) -> None:
        """Wait until tmux has attached this client; it may answer an earlier request as if it had no client.

        Raises:
            TmuxServerGoneError: if there is no server, or no such session.
            TmuxCommandError: if tmux does not answer within *limit_s*.
        """
        deadline = time.monotonic() + limit_s
        while self.pump() and self._greeting is None:
            if time.monotonic() > deadline:
                raise TmuxCommandError("attach-session", f"no answer within {limit_s:g} s")
            self._wait(max(0.0, deadline - time.monotonic()))
        if self._greeting is None or self._greeting.failed:
            raise TmuxServerGoneError(self._server)

    def close(self) -> None:
        """End this client, by its pid and within three seconds; idempotent. The server and its sessions stay."""
        self._is_open, self._is_exit_reported = False, True
        with contextlib.suppress(OSError):
            self._stdin.close()
        for number, patience_s in CLOSE_STEPS:
            if self._process.poll() is None and number is not None:
                self._process.send_signal(number)
            if self._drain_until_exit(patience_s):
                break
        self._stdout.close()
        self.fail_pending()

    def fail_pending(self) -> None:
        """Answer the pending requests with an error, as `close` does in its thread."""
        while self._pending:
            self._pending.popleft().done(TmuxServerGoneError(self._server))
        self._outgoing.clear()

    def _wait(self, limit_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno(), selectors.EVENT_READ)
            if self._outgoing:
                selector.register(self.write_fileno(), selectors.EVENT_WRITE)
            if any(events & selectors.EVENT_WRITE for _, events in selector.select(limit_s)):
                self.flush()

    def _drain_until_exit(self, patience_s: float) -> bool:
        """Wait for the process, and read its output: a client that cannot write its last lines does not exit."""
        deadline = time.monotonic() + patience_s
        while self._process.poll() is None:
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(BlockingIOError):
                if os.read(self._stdout.fileno(), READ_BYTES):
                    continue
            time.sleep(0.002)
        return True
