"""The proxy of one sandbox: what it passes on, what it refuses and says of it, and what nobody gets by it."""

import contextlib
import itertools
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.sandbox.network import proxy as module
from kasmon.sandbox.network import tunnel as passage
from kasmon.sandbox.network.denials import FULL, Denial, DenialLog, read_denials
from kasmon.sandbox.network.proxy import EgressProxy
from kasmon.sandbox.network.tunnel import UnsupportedRequestError
from tests.support.sandbox.tls_hellos import hello, made, naming
from tests.support.wait import LIMIT_S, until

HERE = {"shop.example": "127.0.0.1", "other.example": "127.0.0.1", "cloud.example": "169.254.169.254"}
"""Where names lead in these tests."""


class Host:
    """A server on loopback that notes what it hears, and answers each connection at its end or at an empty line."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                came, _ = self._listener.accept()
                self.heard.append(b"")
                threading.Thread(target=self._answer, args=(came, len(self.heard) - 1), daemon=True).start()

    def _answer(self, came: socket.socket, place: int) -> None:
        with came, contextlib.suppress(OSError):
            while piece := came.recv(65536):
                self.heard[place] += piece
                if self.heard[place].startswith(b"hold"):
                    came.sendall(b"held")
                elif b"\r\n\r\n" in self.heard[place] or self.heard[place][:1] == b"\x16":
                    came.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
                    return

    def close(self) -> None:
        self._listener.close()


class Way:
    """A proxy that serves in this process, with its own idea of where names lead."""

    def __init__(self, folder: Path, *hosts: str) -> None:
        self.log = folder / "denied.jsonl"
        self.log.write_bytes(b"")
        self._handle = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        self._folder = folder
        listeners = []
        for name in ("door", "control"):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(folder / name))
            listener.listen(200)
            listeners.append(listener)
        self.egress = EgressProxy("build", hosts, listeners[0], listeners[1], DenialLog(self._handle), self._look_up)
        self._thread = threading.Thread(target=self.egress.serve)
        self._thread.start()

    def _look_up(self, host: str, port: int) -> list[tuple[int, str]]:
        if host not in HERE:
            raise OSError(-2, "Name or service not known")
        return [(socket.AF_INET, HERE[host])]

    def call(self, *said: bytes) -> socket.socket:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(LIMIT_S)
        link.connect(str(self._folder / "door"))
        for piece in said:
            link.sendall(piece)
        return link

    def ask(self, *said: bytes) -> bytes:
        with self.call(*said) as link:
            return rest(link)

    def control(self, line: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(LIMIT_S)
            link.connect(str(self._folder / "control"))
            link.sendall(line + b"\n")
            return rest(link)

    @property
    def denied(self) -> tuple[Denial, ...]:
        return read_denials(self.log)

    @property
    def serves(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        if self.serves:
            self.control(b'{"do": "end"}')
        self._thread.join(60)
        os.close(self._handle)


def rest(link: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := link.recv(65536):
            said += piece
    return said


def line_of(link: socket.socket) -> bytes:
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        piece = link.recv(1)
        assert piece, said
        said += piece
    return said.split(b"\r\n")[0]


@pytest.fixture
def host() -> Iterator[Host]:
    server = Host()
    yield server
    server.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ke-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def way(folder: Path, host: Host) -> Iterator[Way]:
    made = Way(folder, f"private:shop.example:{host.port}", "cloud.example", "private:gone.example")
    yield made
    made.close()


def get(name: str, host: Host, *more: str) -> bytes:
    return "\r\n".join([f"GET http://{name}:{host.port}/a HTTP/1.1", f"Host: {name}", *more, "", ""]).encode()


def tunnel(name: str, port: int) -> bytes:
    return f"CONNECT {name}:{port} HTTP/1.1\r\n\r\n".encode()


def test_a_request_to_a_host_on_the_list_is_answered_by_it(way: Way, host: Host) -> None:
    assert way.ask(get("shop.example", host)).endswith(b"\r\n\r\nhello")
    assert host.heard[0].startswith(b"GET /a HTTP/1.1\r\nHost: shop.example:")


def test_a_tunnel_carries_both_directions(way: Way, host: Host) -> None:
    greeting = hello("shop.example")
    with way.call(tunnel("shop.example", host.port)) as link:
        assert b"HTTP/1.1 200 Connection established" == line_of(link)
        link.sendall(greeting[:20])
        link.sendall(greeting[20:])
        assert rest(link).endswith(b"hello")

    assert [greeting] == host.heard


def test_on_another_listed_port_a_protocol_without_tls_is_allowed(way: Way, host: Host) -> None:
    with way.call(tunnel("shop.example", host.port)) as link:
        line_of(link)
        link.sendall(b"hold")
        assert b"held" == link.recv(10)


def test_a_host_that_is_not_on_the_list_is_refused_with_a_message_and_logged(way: Way, host: Host) -> None:
    plain = way.ask(get("other.example", host))
    secret = way.ask(tunnel("other.example", host.port))
    words = f"other.example:{host.port} is not on the list of this sandbox; allow it with "
    fix = f"kasmon sandbox allow build other.example:{host.port}"

    assert plain.startswith(f"HTTP/1.1 403 {words}`{fix}`.\r\n".encode())
    assert plain.endswith(f"\r\n\r\n{words}`{fix}`.\n".encode())
    assert secret.startswith(f"HTTP/1.1 403 {words}".encode())
    assert [] == host.heard
    assert {("other.example", host.port, fix)} == {(each.host, each.port, each.fix) for each in way.denied}


@pytest.mark.parametrize("name", ["127.0.0.1", "[::1]", "2130706433", "localhost"])
def test_this_machine_is_not_reached_by_its_address_or_its_name(way: Way, host: Host, name: str) -> None:
    said = way.ask(tunnel(name, host.port))
    assert said.startswith(b"HTTP/1.1 403 ")
    assert (f"`kasmon sandbox allow build private:localhost:{host.port}`".encode() in said) is (name == "localhost")
    assert [] == host.heard


def test_a_name_of_a_cloud_metadata_service_is_refused(way: Way) -> None:
    said = way.ask(tunnel("cloud.example", 80))

    assert said.startswith(b"HTTP/1.1 403 cloud.example: it resolves to an address that no sandbox may reach.")
    assert "" == way.denied[0].fix


def test_a_name_of_this_machine_is_refused_unless_its_entry_allows_it(folder: Path, host: Host) -> None:
    way = Way(folder, f"shop.example:{host.port}")

    said = way.ask(get("shop.example", host))
    assert f"allow it with `kasmon sandbox allow build private:shop.example:{host.port}`".encode() in said
    assert [] == host.heard
    way.close()


def test_an_unknown_host_is_no_refusal(way: Way) -> None:
    said = way.ask(tunnel("gone.example", 443))

    assert said.startswith(b"HTTP/1.1 502 Bad Gateway: gone.example is unknown here")
    assert () == way.denied


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (hello("other.example"), "names another host"),
        (hello(None), "names no host"),
        (made(naming(b"shop.example"), (0xFE0D, b"x")), "is encrypted"),
        (made(naming(b"shop.example"), naming(b"other.example")), "is not TLS"),
    ],
    ids=["another name", "no name", "encrypted", "two names"],
)
def test_a_tunnel_with_a_hello_for_another_host_reaches_none(way: Way, host: Host, said: bytes, why: str) -> None:
    with way.call(tunnel("shop.example", host.port)) as link:
        line_of(link)
        link.sendall(said)
        assert b"" == rest(link)

    until(lambda: host.heard == [b""] and way.denied)
    assert why in way.denied[0].why


def test_on_the_port_of_tls_no_other_protocol_is_allowed(
    folder: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage, "TLS_PORT", host.port)
    way = Way(folder, f"private:shop.example:{host.port}")
    with way.call(tunnel("shop.example", host.port)) as link:
        line_of(link)
        link.sendall(b"SSH-2.0-x\r\n")
        assert b"" == rest(link)

    assert "is not TLS" in way.denied[0].why
    way.close()


def test_a_second_request_on_the_same_connection_is_never_passed_on(way: Way, host: Host) -> None:
    """It could be for another host, or smuggled in the body of the first."""
    way.ask(get("shop.example", host) + get("other.example", host))
    way.ask(get("shop.example", host, "Content-Length: 3") + b"abc" + get("shop.example", host))

    assert 2 == len(host.heard)
    assert all(b"other.example" not in heard and heard.count(b"GET") == 1 for heard in host.heard)
    assert host.heard[1].endswith(b"\r\n\r\nabc")


def test_no_data_is_accepted_in_a_tunnel_before_it_is_open(way: Way, host: Host) -> None:
    assert way.ask(tunnel("shop.example", host.port) + hello("shop.example")).startswith(b"HTTP/1.1 400 ")
    assert [] == [heard for heard in host.heard if heard]


def test_a_head_that_never_ends_is_given_up(way: Way) -> None:
    with way.call(b"GET http://shop.example/ HTTP/1.1\r\n") as link:
        with contextlib.suppress(OSError):
            for _ in range(1000):
                link.sendall(b"X: " + b"y" * 10_000 + b"\r\n")
        assert rest(link).startswith(b"HTTP/1.1 431 ")


def test_a_partial_request_is_given_up(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever says a byte now and then holds nothing open for longer than that."""
    with monkeypatch.context() as patch:
        patch.setattr(passage, "ASK_S", 0.2)
        with way.call(b"GET http://shop.exam") as link:
            assert rest(link).startswith(b"HTTP/1.1 408 ")

    with way.call(b"GET http://shop.exam") as link:
        link.shutdown(socket.SHUT_WR)
        assert rest(link).startswith(b"HTTP/1.1 400 ")


def test_a_slow_request_has_the_same_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes at once and takes a second, by this clock."""
    clock = itertools.count()
    monkeypatch.setattr(passage, "PIECE", 1)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    near, far = socket.socketpair()
    with near, far:
        near.sendall(b"GET http://shop.example/" + b"a" * 100)
        with pytest.raises(UnsupportedRequestError, match="the request was not received in time"):
            passage.read_request(far)
        monkeypatch.undo()
        assert len(far.recv(1000)) > 90


def test_connections_over_the_limit_are_refused_with_a_message(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    held = [way.call() for _ in range(3)]
    until(lambda: b'"open": 3' in way.control(b'{"do": "state"}'))

    assert way.ask().startswith(b"HTTP/1.1 503 ")
    for link in held:
        link.close()
    until(lambda: b'"open": 0' in way.control(b'{"do": "state"}'))


def test_connections_to_a_host_removed_from_the_list_are_closed_at_once(way: Way, host: Host) -> None:
    with way.call(tunnel("shop.example", host.port), b"") as link:
        line_of(link)
        link.sendall(b"hold")
        assert b"held" == link.recv(10)

        way.control(b'{"do": "allow", "hosts": ["cloud.example"]}')
        assert b"" == rest(link)
    assert way.ask(get("shop.example", host)).startswith(b"HTTP/1.1 403 ")


def test_connections_to_a_host_still_on_the_list_stay_open(way: Way, host: Host) -> None:
    with way.call(tunnel("shop.example", host.port)) as link:
        line_of(link)
        link.sendall(b"hold")
        assert b"held" == link.recv(10)
        way.control(f'{{"do": "allow", "hosts": ["private:shop.example:{host.port}"]}}'.encode())
        link.sendall(b".")
        assert b"held" == link.recv(10)


def test_an_invalid_list_changes_nothing(way: Way, host: Host) -> None:
    assert b"error" in way.control(b'{"do": "allow", "hosts": ["*"]}')
    assert b"error" in way.control(b"nonsense")
    assert way.ask(get("shop.example", host)).endswith(b"hello")


def test_it_ends_once_its_socket_is_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever removed the sandbox may have had no time to end it."""
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    way = Way(folder)
    (folder / "door").unlink()

    until(lambda: not way.serves)
    way.close()


def test_without_a_free_thread_it_refuses_and_continues(way: Way, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    assert b"" == way.ask()
    monkeypatch.undo()
    assert way.ask(get("shop.example", host)).endswith(b"hello")


def test_the_same_refusal_is_written_once_a_second_and_refusals_without_end_fill_no_disk(folder: Path) -> None:
    path = folder / "denied"
    path.write_bytes(b"")
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    log = DenialLog(handle)

    assert [True, False, True] == [log.note(Denial(at, "a.example", 443, "no")) for at in (10.0, 10.5, 11.6)]
    assert [11.6] == [each.at for each in read_denials(path, since=10.0)]

    for number in range(3000):
        log.note(Denial(float(number), f"h{number}.example", 443, "not on the list"))
    os.close(handle)

    assert path.stat().st_size <= FULL
    assert "h2999.example" == read_denials(path)[-1].host
    assert len(read_denials(path)) >= 50


def test_a_partial_line_of_the_log_is_left_out(folder: Path) -> None:
    (folder / "denied").write_bytes(b'[1.0, "a.example", 443, "no", ""]\n[2.0, "b.exa')

    assert ["a.example"] == [each.host for each in read_denials(folder / "denied")]
    assert () == read_denials(folder / "none")
