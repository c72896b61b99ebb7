"""One interpreter: its process, its queue of turns and its output. It does one turn at a time."""

import contextlib
import errno
import fcntl
import functools
import math
import os
import signal
import struct
import termios
import time
from collections import deque
from collections.abc import Callable

from kasmon.sandbox.guest.children import end_family
from kasmon.sandbox.guest.event_loop import EventLoop, Timer
from kasmon.sandbox.guest.outcome import INTERRUPTED, ended, lost_before, not_run, outcome
from kasmon.sandbox.guest.private_folder import PrivateFolder
from kasmon.sandbox.guest.turn import STREAMS, GuestTurn, TruncatingBuffer

WriteAnswer = Callable[[dict[str, object]], None]

GRACE_S = 2.0
"""How long an interpreter may take to react to an interrupt."""
YOUNG_S = 0.3
DEAF_S = float(os.environ.pop("KASMON_DEAF_S", "0.1"))
"""For interpreters that report when code begins: an interrupt this long after that ends only the code. node removes its
own signal handler before the code's is installed; an emulated processor may take longer for that."""
START_S = 10.0
"""How much longer than its time limit a run may take whose code has not begun: its interpreter may start slowly."""
LAST_S = 1.0
"""How long after that it has to exit by itself, with its state saved."""
GIVEN_UP_S = 5.0
"""After which a killed process that does not end is no longer waited for."""
QUEUE = 64
LOOSE_BYTES = 64 * 1024


class GuestInterpreter:
    """Base class; a subclass defines how to start it, how to give it a turn, and how to interrupt it."""

    name = ""
    needs_second_signal = False
    """Whether a second interrupt may work where the first did not, and does no harm."""
    says_begun = False
    """Whether it reports when code begins; an earlier interrupt is delayed until then."""

    def __init__(self, loop: EventLoop, place: PrivateFolder) -> None:
        self.loop, self.place = loop, place
        self.pid = 0
        self.starts = self.turns = 0
        self.turn: GuestTurn | None = None
        self.queue: deque[GuestTurn] = deque()
        self.last_code = 0
        self.output_reader = OutputReader(loop, self._handle_output)
        self._loose = {stream: TruncatingBuffer(LOOSE_BYTES) for stream in STREAMS}
        self._exit_reason = ""
        self._carried = False
        self._interrupts = InterruptAttempt(loop)

    # For subclasses to override.

    def start(self) -> int:
        """Start the process, and return its pid."""
        raise NotImplementedError

    def feed(self, turn: GuestTurn) -> None:
        """Send it *turn*; it will answer with the turn's nonce."""
        raise NotImplementedError

    def signal_interrupt(self, is_second: bool) -> None:
        """Send it its equivalent of Ctrl-C, the first or the second time."""
        os.kill(self.pid, signal.SIGINT)

    def ask_to_exit(self) -> bool:
        """Ask it to save its state and exit; return False where it cannot."""
        return False

    def saves_state(self) -> bool:
        """Whether the process that just ended saved its state for the next."""
        return False

    def close(self) -> None:
        """Close all files that lead to the process, which has ended."""

    def listen(self) -> None:
        """Read its pending answers."""

    # Requests.

    def submit(self, turn: GuestTurn) -> bool:
        """Queue *turn*; return False where the queue is full."""
        if len(self.queue) >= QUEUE:
            return False
        self.queue.append(turn)
        self._begin_next()
        return True

    def interrupt(self, answer: WriteAnswer, key: str = "") -> None:
        """Interrupt the current run, or only the run *key*; the answer reports the reaction within two seconds.

        A run that is still queued is removed.
        """
        turn = self.turn
        if key and (turn is None or turn.key != key):
            answer({"state": "interrupted" if self._withdrawn(key) else "nothing runs"})
            return
        if turn is None or turn.do != "run" or not self.pid:
            answer({"state": "nothing runs"})
            return
        turn.interrupted = True
        self._interrupts.add(answer, lambda: turn is self.turn)
        self._interrupt(turn)

    def _withdrawn(self, key: str) -> bool:
        """Remove the run *key* from the queue and answer its clients; return whether it was queued."""
        turn = next((each for each in self.queue if each.key == key), None)
        if turn is not None:
            self.queue.remove(turn)
            turn.answer(not_run("It was interrupted while waiting: nothing was run.", INTERRUPTED))
        return turn is not None

    def handle_begin(self, nonce: object, *, waits: bool) -> None:
        """Handle the interpreter's report that the code of the turn *nonce* begins, or *waits* at an `await`."""
        turn = self.turn
        if turn is None or nonce != turn.nonce:
            return
        turn.interruptible_at = time.monotonic() + (0.0 if waits else DEAF_S)
        if turn.overdue and not waits:
            self.loop.cancel(turn.timer)
            turn.timer = self.loop.after(GRACE_S, self._handle_no_reaction)
        if turn.is_unwanted:
            self._interrupt(turn)

    def _interrupt(self, turn: GuestTurn) -> None:
        if self.says_begun and (left := turn.interruptible_at - time.monotonic()) > 0:
            turn.is_unwanted = True
            self.loop.cancel(turn.held)
            turn.held = self.loop.after(left, lambda: self._interrupt(turn)) if left < math.inf else None
            return
        turn.is_unwanted = False
        self.loop.cancel(turn.held)
        with contextlib.suppress(OSError):
            self.signal_interrupt(turn.again is not None)
        is_first = turn.again is None
        if is_first and (
            self.needs_second_signal or time.monotonic() - turn.begun_at < YOUNG_S
        ):  # code may not have begun
            turn.again = self.loop.after(YOUNG_S, lambda: self._interrupt(turn))

    def reset(self) -> None:
        """End the process with all in its session; the next run restarts it and does not report that."""
        if self.turn:
            self.turn.killed = True
        if self.pid:
            end_family(self.pid)
            if self.turn is None:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self.pid, 0)
                self._forget_process()
        self._exit_reason, self._carried = "", False
        self.forget_saved_state()

    def forget_saved_state(self) -> None:
        """Delete the saved state of an earlier process."""

    def forget_output(self) -> None:
        """Delete output of background jobs that no run has returned yet."""
        self._pop_stray_output()

    def has_state(self) -> bool:
        """Whether it, or the saved state of an earlier process, may hold anything."""
        return bool(self.pid) or self._carried

    def state(self) -> dict[str, object]:
        return {
            "pid": self.pid,
            "starts": self.starts,
            "turns": self.turns,
            "busy": self.turn is not None and self.turn.do == "run",
            "queued": sum(turn.do == "run" for turn in self.queue),
        }

    # A turn, from start to end.

    def _begin_next(self) -> None:
        while self.turn is None and self.queue:
            turn = self.turn = self.queue.popleft()
            try:
                self._begin(turn)
            except (OSError, ValueError) as error:
                self._end_turn(turn)
                why = str(error.strerror or error) if isinstance(error, OSError) else str(error)
                why = f"{self.name} cannot do that: {why}. Nothing was run."
                turn.answer(not_run(why) | {"lost": why})

    def _begin(self, turn: GuestTurn) -> None:
        if not self.pid:
            self.output_reader.open()
            turn.restarted = turn.do == "run" and bool(self._exit_reason)
            if turn.restarted:
                turn.lost_before = lost_before(self.name, self._exit_reason, self._carried)
                turn.carried = self._carried
                self._exit_reason, self._carried = "", False
            self.pid = self.start()
            self.starts += 1
            prefer_oom_kill(self.pid)
        if turn.do == "run":
            self.turns += 1
            turn.number = self.turns
            self.output_reader.read_all()
            turn.earlier = self._pop_stray_output()
        turn.begin()
        turn.timer = self.loop.after(turn.timeout_s, self._interrupt_overdue)
        self.feed(turn)

    def _pop_stray_output(self) -> tuple[str, str]:
        if not any(keep.total for keep in self._loose.values()):
            return "", ""
        texts = self._loose["stdout"].text()[0], self._loose["stderr"].text()[0]
        self._loose = {stream: TruncatingBuffer(LOOSE_BYTES) for stream in STREAMS}
        return texts

    def _interrupt_overdue(self) -> None:
        turn = self.turn
        assert turn
        turn.overdue = True
        turn.timer = self.loop.after(GRACE_S, self._handle_no_reaction)
        self._interrupt(turn)

    def _handle_no_reaction(self) -> None:
        turn = self.turn
        assert turn
        if turn.do != "run":  # an internal operation must not cost the interpreter's state
            turn.answer({"lost": f"{self.name} took longer than {turn.timeout_s:g} s"})
            return
        starts = self.says_begun and turn.interruptible_at == math.inf
        if starts and time.monotonic() < turn.begun_at + turn.timeout_s + START_S:
            turn.timer = self.loop.after(GRACE_S, self._handle_no_reaction)
            return
        turn.killed = True
        turn.timer = self.loop.after(LAST_S, self._kill)
        if not self.ask_to_exit():
            self._kill()

    def _kill(self) -> None:
        turn = self.turn
        assert turn
        self.loop.cancel(turn.timer)
        turn.timer = self.loop.after(GIVEN_UP_S, lambda: self._handle_death(-signal.SIGKILL))
        end_family(self.pid)

    def handle_answer(self, nonce: object, answer: dict[str, object]) -> None:
        """Handle the interpreter's answer to the turn *nonce*."""
        turn = self.turn
        if turn is None or nonce != turn.nonce:
            return  # not the interpreter's: code wrote it
        self.output_reader.read_all()
        self._end_turn(turn)
        if turn.do == "run":
            result = outcome(self.name, turn, answer=answer, died=None, carried=False)
            self.last_code = _code(answer.get("rc"))
        else:
            result = answer
        turn.answer(result)
        self._interrupts.answer_all("interrupted")
        self._begin_next()

    def _end_turn(self, turn: GuestTurn) -> None:
        self.loop.cancel(turn.timer)
        self.loop.cancel(turn.again)
        self.loop.cancel(turn.held)
        self.turn = None

    # The process's end.

    def handle_exit(self, status: int) -> None:
        """Handle the process's end; *status* is of `waitpid`."""
        self.listen()  # it may have answered before it ended
        self._handle_death(os.waitstatus_to_exitcode(status))

    def _handle_death(self, code: int) -> None:
        turn = self.turn
        self.output_reader.read_all()
        self._forget_process()
        carried = self.saves_state()
        wanted = turn is not None and turn.killed and not turn.overdue
        how = "its time limit expired" if turn and turn.overdue else ended(code)
        self._exit_reason, self._carried = ("", False) if wanted else (how, carried)
        if turn:
            self._end_turn(turn)
            if turn.do == "run":
                result = outcome(self.name, turn, answer=None, died=code, carried=carried)
            else:
                result = {"lost": f"{self.name} ended ({ended(code)})"}
            turn.answer(result)
        self._interrupts.answer_all("ended")
        self._begin_next()

    def _forget_process(self) -> None:
        self.pid = 0
        self.last_code = 0
        self.close()

    def output(self, stream: str) -> int:
        """Return the file that its process gets as *stream*."""
        return self.output_reader.theirs(stream)

    def _handle_output(self, stream: str, data: bytes) -> None:
        if self.turn:
            self.turn.handle_output(stream, data)
        else:
            self._loose[stream].add(data)


def prefer_oom_kill(pid: int) -> None:
    """Let the OOM killer prefer process *pid* to the guest program."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "r+b", buffering=0) as file:  # noqa: PTH123
        file.write(b"500")


def _code(value: object) -> int:
    return value if isinstance(value, int) else 0


class InterruptAttempt:
    """The waiting clients of one interpreter."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._all: list[tuple[Timer, WriteAnswer]] = []

    def add(self, answer: WriteAnswer, still_runs: Callable[[], bool]) -> None:
        """Call *answer* with the result; with `no reaction` if *still_runs* returns True when the time is over."""
        self._all.append((self._loop.after(GRACE_S, lambda: self._report_no_reaction(still_runs)), answer))

    def _report_no_reaction(self, still_runs: Callable[[], bool]) -> None:
        if still_runs():
            self.answer_all("no reaction")

    def answer_all(self, state: str) -> None:
        """Answer all waiting clients with *state*."""
        everybody, self._all = self._all, []
        for timer, answer in everybody:
            self._loop.cancel(timer)
            answer({"state": state})


BLOCK_BYTES = 1 << 16


class OutputReader:
    """One pipe for each stream; restarted processes get the same pipes, so background jobs of earlier ones can still
    write."""

    def __init__(self, loop: EventLoop, on_output: Callable[[str, bytes], None]) -> None:
        self._loop, self._on_output = loop, on_output
        self._ends: dict[str, tuple[int, int]] = {}

    def open(self) -> None:
        """Create the pipes and watch them, at the first call."""
        for stream in STREAMS if not self._ends else ():
            ours, theirs = os.pipe()
            os.set_blocking(ours, False)
            self._ends[stream] = ours, theirs
            self._loop.watch(ours, functools.partial(self._read, stream))

    def theirs(self, stream: str) -> int:
        """Return the write end of *stream*."""
        return self._ends[stream][1]

    def read_all(self) -> None:
        """Read all data that is in the pipes now, but not what arrives meanwhile."""
        for stream, (ours, _) in self._ends.items():
            left = struct.unpack("i", fcntl.ioctl(ours, termios.FIONREAD, b"\0\0\0\0"))[0]
            while left > 0 and (data := self._read(stream)):
                left -= data

    def _read(self, stream: str) -> int:
        try:
            data = os.read(self._ends[stream][0], BLOCK_BYTES)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise
            return 0
        self._on_output(stream, data)
        return len(data)
