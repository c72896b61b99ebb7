"""Both ends of the connections that a sandbox's one line carries, in one process: what goes where, and how much."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kasmon.errors import SandboxError
from kasmon.sandbox.guest.mux import (
    ACKNOWLEDGE,
    ACKNOWLEDGED_BYTES,
    AGENT,
    CLOSE,
    CONNECT,
    DATA,
    EGRESS,
    INSIDE,
    MOST,
    OUTSIDE,
    WINDOW_BYTES,
    ConnectionMux,
    MuxConnection,
    connect_path,
    connect_port,
)
from kasmon.sandbox.network.port_forward import ListenerConnector
from tests.support.wait import until

Record = tuple[int, int, bytes]


class Ends:
    """The end inside, the one outside, and what each said that the other did not hear yet."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kept = folder, contextlib.ExitStack()
        self.said: dict[str, list[Record]] = {"inside": [], "outside": []}
        self.inside = ConnectionMux(lambda *record: self.said["inside"].append(record), INSIDE, connect_port)
        gate = str(folder / "gate")
        self.outside = ConnectionMux(
            lambda *record: self.said["outside"].append(record), OUTSIDE, lambda to: connect_path(to, EGRESS, gate)
        )

    def go(self) -> None:
        """Let both go on as far as they can now."""
        for ways in (self.inside, self.outside):
            ways.serve()
        for who, other in (("inside", self.outside), ("outside", self.inside)):
            said, self.said[who] = self.said[who], []
            for record in said:
                other.handle_record(*record)

    def until(self, done: Callable[[], object]) -> None:
        """Let both go on until *done*."""

        def looked() -> object:
            self.go()
            return done()

        until(looked)

    def gate(self) -> socket.socket:
        """Who takes those that come out, listening."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.folder / "gate"))
        listener.listen(200)
        listener.settimeout(10)
        return listener

    def outward(self) -> socket.socket:
        """A program inside that looks for its proxy."""
        listener = self.kept.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.inside.listen(listener, EGRESS)
        program = socket.create_connection(listener.getsockname(), timeout=60)
        self.until(lambda: self.inside._connections or _is_over(program))
        return program


@pytest.fixture
def ends() -> Iterator[Ends]:
    with tempfile.TemporaryDirectory(prefix="kw-", dir="/tmp") as name:
        ends = Ends(Path(name))
        yield ends
        ends.inside.close_all()
        ends.outside.close_all()
        ends.kept.close()


def test_output_of_a_guest_program_arrives_and_its_answer_and_each_end_is_notified_of_the_other(ends: Ends) -> None:
    with ends.gate() as gate, ends.outward() as program:
        program.sendall(b"ask")
        program.shutdown(socket.SHUT_WR)
        ends.go()
        came, _ = gate.accept()
        with came:
            came.setblocking(False)
            heard = b""

            def rest() -> bool:
                nonlocal heard
                with contextlib.suppress(BlockingIOError):
                    piece = came.recv(100)
                    heard += piece
                    return not piece
                return False

            ends.until(rest)
            assert b"ask" == heard
            came.sendall(b"answer")
        ends.until(lambda: not ends.inside._connections and not ends.outside._connections)
        assert b"answer" == program.makefile("rb").read()


def test_no_more_than_the_window_is_buffered(ends: Ends) -> None:
    """Nobody reads outside: the program inside waits, and another one does not wait for it."""
    with ends.gate() as gate, ends.outward() as program:
        program.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                program.send(bytes(65536))
                ends.go()
        (way,) = ends.outside._connections.values()
        assert len(way.waiting) <= WINDOW_BYTES
        assert 0 <= next(iter(ends.inside._connections.values())).window < WINDOW_BYTES
        with ends.outward() as other:
            other.sendall(b"x")
            ends.until(lambda: len(ends.outside._connections) == 2)
            with gate.accept()[0], gate.accept()[0] as second:
                second.setblocking(False)
                ends.until(lambda: _peeked(second))
                assert b"x" == second.recv(10)


def _peeked(stream: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return bool(stream.recv(1, socket.MSG_PEEK))
    return False


def test_no_more_than_the_window_is_sent(ends: Ends) -> None:
    with ends.gate(), ends.outward() as program:
        (way,) = ends.inside._connections.values()
        way.window = 10
        program.sendall(bytes(100))
        until(lambda: _gone_on(ends.inside) and way.window <= 0)

        assert bytes(10) == b"".join(content for kind, _, content in ends.said["inside"] if kind == DATA)


def _gone_on(ways: ConnectionMux) -> bool:
    ways.serve()
    return True


def test_a_peer_that_exceeds_the_window_is_disconnected(ends: Ends) -> None:
    with ends.gate():
        ends.outside.handle_record(CONNECT, 1, EGRESS.encode())
        (way,) = ends.outside._connections.values()
        way.is_connecting = True  # what is said to it waits

        ends.outside.handle_record(DATA, 1, bytes(WINDOW_BYTES))
        assert ends.outside._connections
        ends.outside.handle_record(DATA, 1, b"x")

        assert not ends.outside._connections
        assert CLOSE == ends.said["outside"][-1][0]


def test_unused_window_cannot_be_granted(ends: Ends) -> None:
    with ends.gate():
        ends.outside.handle_record(CONNECT, 1, EGRESS.encode())
        ends.outside.handle_record(ACKNOWLEDGE, 1, b"\xff\xff\xff\xff")

        assert WINDOW_BYTES == ends.outside._connections[1].window


def test_accepted_data_is_acknowledged_in_parts_of_the_window(ends: Ends) -> None:
    """A key that is typed costs one message, and its echo one."""
    with ends.gate() as gate:
        ends.outside.handle_record(CONNECT, 1, EGRESS.encode())
        with gate.accept()[0] as program:
            ends.outside.serve()
            for size in (1, ACKNOWLEDGED_BYTES - 2, 1, 1):
                ends.outside.handle_record(DATA, 1, bytes(size))
                program.recv(size, socket.MSG_WAITALL)

    told = [int.from_bytes(content, "big") for kind, _, content in ends.said["outside"] if kind == ACKNOWLEDGE]
    assert [ACKNOWLEDGED_BYTES] == told


@pytest.mark.parametrize("where", ["22", "127.0.0.1:22", "/run/x", "", "\xff"])
def test_guest_connections_lead_to_the_egress_proxy_and_nowhere_else(ends: Ends, where: str) -> None:
    with ends.gate():
        ends.outside.handle_record(CONNECT, 1, where.encode())

        assert not ends.outside._connections
        assert (CLOSE, 1) == ends.said["outside"][-1][:2]


def test_without_an_egress_proxy_a_connection_ends_at_once(ends: Ends) -> None:
    with ends.outward() as program:
        ends.until(lambda: _is_over(program))
    assert not ends.inside._connections


def test_a_used_number_or_one_of_the_peer_opens_nothing(ends: Ends) -> None:
    with ends.gate() as gate:
        ends.outside.handle_record(CONNECT, 1, EGRESS.encode())
        gate.accept()[0].close()
        for channel in (1, 2):
            ends.outside.handle_record(CONNECT, channel, EGRESS.encode())
            assert (CLOSE, channel, b"no new connection is accepted now") == ends.said["outside"][-1]
        assert [1] == list(ends.outside._connections)


def test_the_number_of_connections_is_limited(ends: Ends) -> None:
    with ends.gate():
        for channel in range(1, 2 * MOST + 3, 2):
            ends.outside.handle_record(CONNECT, channel, EGRESS.encode())

        assert MOST == len(ends.outside._connections)
        assert (CLOSE, 2 * MOST + 1) == ends.said["outside"][-1][:2]


def test_ports_in_use_leave_room_for_connections_to_the_guest_program(ends: Ends) -> None:
    with ends.gate():
        for channel in range(1, 2 * MOST + 1, 2):
            ends.outside.handle_record(CONNECT, channel, EGRESS.encode())
        ours, theirs = socket.socketpair()
        with ours:
            ends.outside._open(theirs, AGENT, None)

            assert MOST + 1 == len(ends.outside._connections)


def test_data_is_inspected_before_it_is_sent_and_may_be_refused(ends: Ends) -> None:
    seen: list[object] = []

    def look(connection: MuxConnection, data: bytes) -> None:
        seen.extend([connection.destination, data, len(ends.said["inside"])])
        raise OSError(1, "no")

    ends.inside._before_data = look
    with ends.gate(), ends.outward() as program:
        program.sendall(b"x")
        ends.until(lambda: not ends.inside._connections)

    assert [EGRESS, b"x", 0] == seen


def test_a_paused_mux_has_no_connection_and_accepts_waiting_ones_afterwards(ends: Ends) -> None:
    with ends.gate() as gate:
        listener = ends.kept.enter_context(socket.create_server(("127.0.0.1", 0)))
        ends.inside.listen(listener, EGRESS)
        with socket.create_connection(listener.getsockname(), timeout=60) as old:
            ends.until(lambda: ends.outside._connections)
            gate.accept()[0].close()
            ends.inside.suspend()
            assert b"" == old.recv(1)
            with socket.create_connection(listener.getsockname(), timeout=60) as new:
                ends.go()
                assert not ends.inside._connections
                ends.inside.handle_record(CONNECT, 2, b"80")
                assert (CLOSE, 2, b"no new connection is accepted now") == ends.said["inside"][-1]
                ends.inside.resume()
                new.sendall(b"new")
                ends.until(lambda: ends.outside._connections)
                assert b"new" == _read(ends, gate.accept()[0])


def _read(ends: Ends, stream: socket.socket) -> bytes:
    with stream:
        stream.setblocking(False)
        ends.until(lambda: _peeked(stream))
        return stream.recv(10)


class TestPorts:
    """Who comes from outside, by the same socket as the command line does."""

    @pytest.fixture
    def asking(self, ends: Ends) -> Callable[[bytes], socket.socket]:
        listener = ends.kept.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(ends.folder / "ports"))
        listener.listen(10)
        ends.outside.listen_for_destination(listener, ends.outside.connect)

        def ask(line: bytes) -> socket.socket:
            link = socket.socket(socket.AF_UNIX)
            link.connect(str(ends.folder / "ports"))
            link.sendall(line)
            link.setblocking(False)
            return link

        return ask

    def test_a_port_in_the_guest_is_reached_and_may_send_first(
        self, ends: Ends, asking: Callable[[bytes], socket.socket]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, asking(b"%d\nmore" % server.getsockname()[1]) as link:
            ends.until(lambda: ends.inside._connections)
            came, _ = server.accept()
            with came:
                came.sendall(b"hello")
                assert b"more" == _read(ends, came.dup())
                ends.until(lambda: len(link.recv(100, socket.MSG_PEEK)) >= 8 if _peeked(link) else False)
            assert b"ok\nhello" == link.recv(100)

    @pytest.mark.parametrize("line", [b"1\n", b"70000\n", b"ssh\n", b"\n", b"out\n"])
    def test_a_port_without_a_listener_is_reported_and_leaves_nothing(
        self, ends: Ends, asking: Callable[[bytes], socket.socket], line: bytes
    ) -> None:
        with asking(line) as link:
            ends.until(lambda: _peeked(link))
            assert not link.recv(200).startswith(b"ok")
            assert not ends.inside._connections
            assert not ends.outside._connections

    def test_a_client_without_a_request_line_is_disconnected(
        self, ends: Ends, asking: Callable[[bytes], socket.socket]
    ) -> None:
        with asking(b"1" * 1000) as link:
            ends.until(lambda: _is_over(link))
        assert not ends.outside._connections

    def test_a_connection_to_ports_of_a_stopped_guest_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SandboxError, match="cannot reach port 80"):
            ListenerConnector(os.fspath(tmp_path / "nobody")).connect(80)


def _is_over(stream: socket.socket) -> bool:
    try:
        return not stream.recv(10, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
