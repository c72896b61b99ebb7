"""One `tmux -C` client: commands without forks, and what panes print, pushed. Its caller pumps it."""

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
from kasmon.tmux.control_protocol import AnswerItem, BrokenItem, ControlParser, Item, NoticeItem, OutputItem
from kasmon.tmux.requests import Lines, TmuxRequest, refused

Answer = TypeVar("Answer")

READ_BYTES = 1 << 18
PUMP_BYTES = 1 << 20
"""What one `pump` reads at most, so that a flood leaves its caller time for others."""
CLOSE_STEPS = ((None, 0.2), (signal.SIGTERM, 0.5), (signal.SIGKILL, 2.0))
"""How a client is ended: by the end of its input, then by signals; each with the time it gets, in seconds."""


@dataclass(slots=True)
class PendingRequest:
    """A request whose answers have not all come."""

    request: TmuxRequest[Any]
    done: Callable[[Any], None]
    answers: list[Lines] = field(default_factory=list)


class ControlClient:
    """A running `tmux -C attach`.

    Watch `fileno()` for reading and call `pump`; while `wants_write()`, watch `write_fileno()` for writing and call
    `flush`. Only `call`, `until_attached` and `close` wait. Answers come in the order of their requests, each exactly
    once: a client that ends answers the rest with an error. Callbacks run inside `pump`, `call` or `close`; they may
    submit and call.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None = None, where: str = "") -> None:
        self.on_output: Callable[[str, bytes], None] = lambda pane, data: None
        self.on_notice: Callable[[NoticeItem], None] = lambda notice: None
        self.on_gone: Callable[[], None] = lambda: None
        """Called once, when tmux ended the connection; not after `close`."""
        self._where = where or " ".join(argv)
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
            start_new_session=True,  # Ctrl+C in our terminal is not meant for it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self._parser = ControlParser()
        self._items: deque[Item] = deque()
        self._waiting: deque[PendingRequest] = deque()
        self._outgoing = bytearray()
        self._greeting: AnswerItem | None = None
        self._is_open = True
        self._is_told = False

    @property
    def pid(self) -> int:
        """The client's own process, and not the server's."""
        return self._process.pid

    @property
    def is_open(self) -> bool:
        """Whether tmux still talks to us."""
        return self._is_open

    def fileno(self) -> int:
        """The pipe to watch for reading."""
        return self._stdout.fileno()

    def write_fileno(self) -> int:
        """The pipe to watch for writing while `wants_write()`."""
        return self._stdin.fileno()

    def wants_write(self) -> bool:
        """Whether tmux has not taken all requests yet."""
        return bool(self._outgoing)

    def submit(
        self, request: TmuxRequest[Answer], on_done: Callable[[Answer | KasmonError], None] | None = None
    ) -> None:
        """Send *request*; *on_done* gets its answer, or the error that took its place. Never blocks."""
        if not self._is_open:
            if on_done:
                on_done(TmuxServerGoneError(self._where))
            return
        self._waiting.append(PendingRequest(request, on_done or (lambda answer: None)))
        self._outgoing += request.line.encode("utf-8", "surrogateescape") + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what the pipe takes now."""
        while self._outgoing and self._is_open:
            try:
                written = os.write(self._stdin.fileno(), self._outgoing[:65536])
            except BlockingIOError:
                return
            except OSError:
                # The reading end is gone; the end of our input will tell, behind the last answers.
                self._outgoing.clear()
                return
            del self._outgoing[:written]

    def pump(self) -> bool:
        """Read what is there and tell it; False once tmux has ended the connection."""
        self._read()
        self._dispatch()
        return self._is_open

    def call(self, request: TmuxRequest[Answer], limit_s: float = 10.0) -> Answer:
        """The answer to *request*; tells everything else that comes meanwhile, as `pump` does.

        Raises:
            TmuxCommandError: if tmux refuses it, or has not answered within *limit_s*.
            TmuxServerGoneError: if the connection ends first.
            KasmonError: whatever reading the answer makes of it.
        """
        answers: list[Answer | KasmonError] = []
        self.submit(request, answers.append)
        deadline = time.monotonic() + limit_s
        self.pump()
        while not answers:
            if time.monotonic() > deadline:
                raise TmuxCommandError(request.line[:200], f"no answer within {limit_s:g} s")
            self._wait(min(1.0, max(0.0, deadline - time.monotonic())))
            self.pump()
        if isinstance(answers[0], KasmonError):
            raise answers[0]
        return answers[0]

    def until_attached(self, limit_s: float = 10.0) -> None:
        """Wait until tmux has attached this client. What is asked before then may be answered as if by nobody.

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
            raise TmuxServerGoneError(self._where)

    def close(self) -> None:
        """End this client, by its pid and within three seconds; idempotent. The server and its sessions go on."""
        self._is_open, self._is_told = False, True
        with contextlib.suppress(OSError):
            self._stdin.close()
        for number, patience_s in CLOSE_STEPS:
            if self._process.poll() is None and number is not None:
                self._process.send_signal(number)
            if self._drain_until_exit(patience_s):
                break
        self._stdout.close()
        self._fail_waiting()

    def _wait(self, limit_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno(), selectors.EVENT_READ)
            if self._outgoing:
                selector.register(self.write_fileno(), selectors.EVENT_WRITE)
            if any(events & selectors.EVENT_WRITE for _, events in selector.select(limit_s)):
                self.flush()

    def _read(self) -> None:
        taken = 0
        while self._is_open and taken < PUMP_BYTES:
            try:
                data = os.read(self._stdout.fileno(), READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._is_open = False
                return
            taken += len(data)
            self._items.extend(self._parser.feed(data))

    def _dispatch(self) -> None:
        while self._items:
            match self._items.popleft():
                case OutputItem(pane, data):
                    self.on_output(pane, data)
                case AnswerItem(asked=True) as block:
                    self._answer(block)
                case AnswerItem() as block:
                    self._greeting = self._greeting or block
                case NoticeItem() as notice:
                    self.on_notice(notice)
                case BrokenItem():
                    self._is_open = False
                    self._items.clear()
                    self._process.terminate()
        if not self._is_open and not self._is_told:
            self._is_told = True
            self._fail_waiting()
            self.on_gone()

    def _answer(self, block: AnswerItem) -> None:
        if not self._waiting:
            return
        waiting = self._waiting[0]
        waiting.answers.append(block.lines)
        if not block.failed and len(waiting.answers) < waiting.request.blocks:
            return
        self._waiting.popleft()
        if block.failed:
            waiting.done(refused(waiting.request, block.lines))
            return
        try:
            answer = waiting.request.read(waiting.answers)
        except KasmonError as error:
            answer = error
        waiting.done(answer)

    def _fail_waiting(self) -> None:
        self._outgoing.clear()
        while self._waiting:
            self._waiting.popleft().done(TmuxServerGoneError(self._where))

    def _drain_until_exit(self, patience_s: float) -> bool:
        """Wait for the process; a client that cannot get rid of its last lines would not end."""
        deadline = time.monotonic() + patience_s
        while self._process.poll() is None:
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(BlockingIOError):
                if os.read(self._stdout.fileno(), READ_BYTES):
                    continue
            time.sleep(0.002)
        return True
