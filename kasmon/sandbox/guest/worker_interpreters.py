"""Python and node: worker processes that read requests from a socket and answer there."""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable

from kasmon.sandbox.guest.children import build_environment, end_family, numbers, spawn
from kasmon.sandbox.guest.event_loop import READABLE, WRITABLE, EventLoop
from kasmon.sandbox.guest.frames import LIMIT_BYTES, FrameReader, FrameTooLargeError, pack_json
from kasmon.sandbox.guest.interpreter import GuestInterpreter
from kasmon.sandbox.guest.private_folder import PrivateFolder, program
from kasmon.sandbox.guest.turn import GuestTurn

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH120, PTH100
BLOCK_BYTES = 1 << 18


class WorkerInterpreter(GuestInterpreter):
    """Its socket has another number each time, and an answer needs the turn's nonce: code does not find them by chance.
    Code that searches its own process finds both; nothing within one process can prevent that."""

    def __init__(self, loop: EventLoop, place: PrivateFolder, name: str, argv: Callable[[], list[str]]) -> None:
        super().__init__(loop, place)
        self.name = name
        self._argv = argv
        self._socket: socket.socket | None = None

    def start(self) -> int:
        argv = self._argv()
        ours, theirs = socket.socketpair()
        (number,) = numbers(1)
        files = {1: self.output("stdout"), 2: self.output("stderr"), number: theirs.fileno()}
        try:
            pid = spawn(argv, build_environment({"KASMON_CONTROL": str(number)}), files, deaf=True)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket, self._frames, self._out = ours, FrameReader(), bytearray()
        self.loop.watch(ours.fileno(), self.listen)
        return pid

    def signal_interrupt(self, is_second: bool) -> None:
        """Interrupt it; node's children too the second time: it handles no signal while it waits for one."""
        (os.killpg if is_second and self.needs_second_signal else os.kill)(self.pid, signal.SIGINT)

    def feed(self, turn: GuestTurn) -> None:
        request = {"do": turn.do, "nonce": turn.nonce, "turn": turn.number, **turn.words}
        self._out += pack_json(request, 8 * LIMIT_BYTES)  # JSON escapes may make six bytes of one
        self._send()

    def _send(self) -> None:
        if self._socket is None:
            return
        try:
            while self._out:
                del self._out[: self._socket.send(self._out[:BLOCK_BYTES])]
        except BlockingIOError:
            self.loop.watch(self._socket.fileno(), self._handle_ready, READABLE | WRITABLE)
        except OSError:
            self._end_unreachable()
        else:
            self.loop.watch(self._socket.fileno(), self.listen)

    def _handle_ready(self) -> None:
        self.listen()
        self._send()

    def listen(self) -> None:
        if self._socket is None:
            return
        try:
            while data := self._socket.recv(BLOCK_BYTES):
                for frame in self._frames.feed(data):
                    self._process(frame)
        except BlockingIOError:
            return
        except (OSError, FrameTooLargeError):
            self._end_unreachable()
            return
        # It closed its end, and may still run: another program after exec. Its output and end are still reported.
        self.loop.forget(self._socket.fileno())
        if self.turn is None:
            self._end_unreachable()

    def _process(self, frame: bytes) -> None:
        try:
            answer = json.loads(frame)
        except ValueError:
            return
        if isinstance(answer, dict) and "begun" in answer:
            self.handle_begin(answer["begun"], waits=bool(answer.get("waits")))
        elif isinstance(answer, dict):
            self.handle_answer(answer.pop("nonce", None), answer)

    def _end_unreachable(self) -> None:
        if self.pid:
            end_family(self.pid)

    def close(self) -> None:
        if self._socket:
            self.loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None


def python_interpreter(loop: EventLoop, place: PrivateFolder) -> WorkerInterpreter:
    return WorkerInterpreter(loop, place, "python", lambda: [sys.executable, f"{HERE}/main.py", "python"])


def node_interpreter(loop: EventLoop, place: PrivateFolder) -> WorkerInterpreter:
    ours = ("--no-warnings", "--expose-internals", "--experimental-vm-modules")
    node = WorkerInterpreter(loop, place, "node", lambda: [program("node"), *ours, f"{HERE}/nodeworker.js"])
    node.needs_second_signal = node.says_begun = True
    return node
