"""Bytes in and out of a sandbox: the program that carries them inside, and the port on this machine."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kasmon.boot_id import boot
from kasmon.bus.nats.creation import find_free_port
from kasmon.errors import RefusedError, SandboxError
from kasmon.process_identity import started_at
from kasmon.sandbox.network.port_forward import NetworkConnector, PortForward
from tests.support.wait import until

PROGRAM = Path(__file__).parents[3] / "kasmon" / "sandbox" / "guest" / "proxy_forwarder.py"


def unix(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(50)
    return listener


def serve(listener: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    def run() -> None:
        with contextlib.suppress(OSError):
            while True:
                came, _ = listener.accept()
                threading.Thread(target=answer, args=(came,), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()


def echo(came: socket.socket) -> None:
    with came, contextlib.suppress(OSError):
        while piece := came.recv(65536):
            came.sendall(piece)


class Inside:
    """The carrier, with its proxy's door and its own socket in a folder."""

    def __init__(self, folder: Path) -> None:
        self.door = unix(folder / "proxy.sock")
        self.port = find_free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM)],
            env={"KASMON_PROXY": str(folder / "proxy.sock"), "KASMON_PROXY_PORT": str(self.port)},
        )

    def call(self) -> socket.socket:
        def link() -> socket.socket | None:
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", self.port), timeout=60)
            return None

        return until(link)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.door.close()


@pytest.fixture
def inside() -> Iterator[Inside]:
    with tempfile.TemporaryDirectory(prefix="kf-", dir="/tmp") as name:
        carrier = Inside(Path(name))
        yield carrier
        carrier.close()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serve(listener, echo)
        yield listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def rest(link: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := link.recv(65536):
            said += piece
    return said


def test_output_of_programs_to_their_proxy_reaches_it_and_ends_with_them(inside: Inside) -> None:
    serve(inside.door, echo)
    with inside.call() as link:
        link.sendall(b"CONNECT")
        link.shutdown(socket.SHUT_WR)
        assert b"CONNECT" == rest(link)


def test_much_data_flows_both_ways_despite_slow_readers(inside: Inside) -> None:
    serve(inside.door, echo)
    much = os.urandom(1 << 20) * 8
    with inside.call() as link:
        link.settimeout(30)

        def write() -> None:
            link.sendall(much)
            link.shutdown(socket.SHUT_WR)

        writer = threading.Thread(target=write)
        writer.start()
        assert much == rest(link)
        writer.join()


def test_without_a_network_a_connection_ends_and_the_forwarder_continues(inside: Inside) -> None:
    inside.door.close()
    for _ in range(2):
        with inside.call() as link:
            assert b"" == rest(link)
    assert inside.process.poll() is None


def test_a_port_of_this_machine_leads_to_its_target(server: socket.socket) -> None:
    forward = PortForward(lambda: socket.create_connection(("127.0.0.1", port_of(server))))
    thread = threading.Thread(target=forward.serve)
    thread.start()
    with socket.create_connection(("127.0.0.1", forward.port), timeout=60) as link:
        link.sendall(b"hello")
        assert b"hello" == link.recv(10)
        link.shutdown(socket.SHUT_WR)
        assert b"" == rest(link)
    forward.close()
    forward.close()
    thread.join(60)

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", forward.port), timeout=60)


def test_a_sandbox_that_is_not_reached_ends_the_connection_and_not_the_port() -> None:
    def unreached() -> socket.socket:
        raise SandboxError("cannot reach port 80", "Connection refused")

    forward = PortForward(unreached)
    thread = threading.Thread(target=forward.serve)
    thread.start()
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", forward.port), timeout=60) as link:
            assert b"" == rest(link)
    forward.close()
    thread.join(60)


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_an_exited_process_is_not_joined() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with pytest.raises(SandboxError, match="it has ended"):
        NetworkConnector(gone.pid, 1.0, boot())


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_a_process_that_reuses_the_id_of_the_sandbox_is_not_joined() -> None:
    started = started_at(os.getpid())
    assert started
    with pytest.raises(SandboxError, match="it has ended"):
        NetworkConnector(os.getpid(), started - 1, boot())


def test_a_port_of_this_machine_that_is_taken_is_refused(server: socket.socket) -> None:
    with pytest.raises(RefusedError, match="cannot be used"):
        PortForward(lambda: socket.socket(), port_of(server))


def test_a_program_that_replaces_it_finds_its_proxy() -> None:
    """The carrier is ready before the program runs, and ends with the sandbox, not with the program."""
    with tempfile.TemporaryDirectory(prefix="kf-", dir="/tmp") as name, unix(Path(name, "proxy.sock")) as door:
        serve(door, echo)
        port = find_free_port()
        code = (
            f"import socket; link = socket.create_connection(('127.0.0.1', {port})); link.sendall(b'x');"
            " print(link.recv(1).decode()); link.close()"
        )
        # the carrier goes on by itself: a child of ours in a session of its own ends it
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", WATCHED, str(PROGRAM), sys.executable, "-c", code],
            env={"KASMON_PROXY": f"{name}/proxy.sock", "KASMON_PROXY_PORT": str(port)},
            capture_output=True,
            timeout=20,
            check=True,
        )

    assert b"x\n" == done.stdout


def test_a_caller_that_waits_for_the_end_of_the_program_does_not_wait_for_the_forwarder() -> None:
    """It holds none of the pipes that the program was given."""
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb") as pipe:
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                WATCHED,
                str(PROGRAM),
                "sh",
                "-c",
                f"echo x >/proc/self/fd/{writes}; exit 7",
            ],
            env={"KASMON_PROXY": "/nowhere", "KASMON_PROXY_PORT": str(find_free_port()), "HOLDS": str(writes)},
            pass_fds=[writes],
            capture_output=True,
            timeout=20,
            check=False,
        )
        os.close(writes)
        assert b"x\n" == pipe.read()
    assert 7 == done.returncode


WATCHED = """
import ctypes, os, signal, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)  # what is orphaned below becomes ours
held = [int(os.environ["HOLDS"])] if "HOLDS" in os.environ else []
done = subprocess.run([sys.executable, "-I", "-S", sys.argv[1], "--", *sys.argv[2:]], pass_fds=held)
for handle in held:
    os.close(handle)
kids = open(f"/proc/self/task/{os.getpid()}/children").read().split()
open_in = [os.readlink(f"/proc/{kid}/fd/{name}") for kid in kids for name in os.listdir(f"/proc/{kid}/fd")]
for kid in kids:
    os.kill(int(kid), signal.SIGKILL)
    os.waitpid(int(kid), 0)
sys.exit(99 if len(kids) != 1 or any(name.startswith("pipe:") for name in open_in) else done.returncode)
"""
