"""What every tier promises of connections: out to whom its list allows, in to a port asked for, and no others."""

import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kasmon.errors import SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Interpreter, SandboxPolicy
from kasmon.sandbox.base import EgressTier, PortTier, SandboxTier
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.network.port_forward import PortForward

MUCH = os.urandom(1 << 20) * 3

GET = """
import os, urllib.request
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
def get(url, data=None):
    try:
        with urllib.request.urlopen(url, data, timeout=20) as answer:
            return answer.read()
    except Exception as error:
        return getattr(error, "read", lambda: repr(error).encode())()
"""
TUNNEL = """
import socket
def tunnel(port):
    link = socket.create_connection(("127.0.0.1", 3128), timeout=20)
    link.sendall(b"CONNECT localhost:%d HTTP/1.1\\r\\n\\r\\n" % port)
    said = b""
    while not said.endswith(b"\\r\\n\\r\\n"): said += link.recv(1)
    return link
def echoed(link, text):
    try:
        link.sendall(text)
        return link.recv(100)
    except OSError:
        return b""
"""
SERVE = """
import socket, threading
def serve(word):
    listener = socket.create_server(("127.0.0.1", 8000))
    def run():
        while True:
            came = listener.accept()[0]
            came.sendall(word + came.recv(100)); came.close()
    threading.Thread(target=run, daemon=True).start()
"""
ALONE = """
import socket
def tried(act):
    try: act(); return "reached"
    except OSError as error: return type(error).__name__
print(tried(lambda: socket.create_connection(("127.0.0.1", {port}), timeout=5)))
print(tried(lambda: socket.getaddrinfo("localhost.example", 80)))
print(tried(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5)))
print(sorted(name for _, name in socket.if_nameindex()))
"""


NODE = """
no_proxy= node -e '
const ways = {
  http: (url) => new Promise((done) => require("http").get(url, (said) => {
    said.setEncoding("utf8"); let all = ""; said.on("data", (more) => { all += more; }).on("end", () => done(all));
  }).on("error", done)),
  fetch: (url) => fetch(url).then((said) => said.text(), String),
};
const [way, ...urls] = process.argv.slice(1);
(async () => { for (const url of urls) console.log(await ways[way](url)); })();
' """


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._say(MUCH if self.path == "/much" else b"hello")

    def do_POST(self) -> None:
        self._say(hashlib.sha256(self.rfile.read(int(self.headers["Content-Length"]))).hexdigest().encode())

    def _say(self, reply: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


class Home:
    def __init__(self, tier: SandboxTier, policy: SandboxPolicy) -> None:
        self.tier, self.policy = tier, policy
        self.runtime = tier.create(policy)

    def run(self, code: str, interpreter: Interpreter = "python") -> str:
        with contextlib.closing(GuestChannel(self.runtime.socket)) as channel:
            ran = channel.run(interpreter, code, timeout_s=60)
        assert not ran.stderr, ran.stderr
        return ran.stdout

    def slept(self) -> None:
        """Put to sleep on disk, and gone on from that."""
        slept = self.tier.pause(self.policy, self.runtime, to_disk=True)
        self.runtime = self.tier.resume(self.policy, self.runtime, slept)

    def asked(self, port: int, data: bytes) -> bytes:
        """What *port* inside says to *data*, by a port of this machine."""
        assert isinstance(self.tier, PortTier)
        with contextlib.closing(self.tier.ports(self.policy, self.runtime)) as ports:
            forward = PortForward(lambda: ports.connect(port))
            threading.Thread(target=forward.serve, daemon=True).start()
            with contextlib.closing(forward), socket.create_connection(("127.0.0.1", forward.port), timeout=20) as link:
                link.sendall(data)
                return link.makefile("rb").read()


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a web server on this machine's loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as serves:
        threading.Thread(target=serves.serve_forever, daemon=True).start()
        yield serves.server_port
        serves.shutdown()


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of one who says again what is said to him."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(came: socket.socket) -> None:
            with came, contextlib.suppress(OSError):
                while piece := came.recv(65536):
                    came.sendall(piece)

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=run, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


class ConnectionContract:
    """A subclass gives a fixture `tier`."""

    ways_of_node: tuple[str, ...] = ("http", "fetch")

    @pytest.fixture
    def home(self, tier: SandboxTier) -> Iterator[Callable[..., Home]]:
        """Makes a sandbox; all are gone at the end."""
        made: list[SandboxPolicy] = []

        def make(*hosts: str, name: str = "a") -> Home:
            policy = SandboxPolicy(session=SessionId(name * 8), tier=tier.tier, hosts=hosts)
            made.append(policy)
            return Home(tier, policy)

        yield make
        for policy in made:
            tier.forget(policy)

    def test_it_reaches_the_hosts_on_its_list_also_by_node_and_names_how_to_reach_others(
        self, tier: SandboxTier, home: Callable[..., Home], server: int
    ) -> None:
        one = home(f"private:localhost:{server}")

        assert "b'hello'\n" == one.run(f"{GET}\nprint(get('http://localhost:{server}/'))")
        said = one.run("print(get('http://other.example/').decode())")
        assert "other.example:80 is not on the list of this sandbox" in said
        assert "`kasmon sandbox allow aaaaaaaa other.example`" in said
        assert isinstance(one.tier, EgressTier)
        assert "other.example:80 is not on the list" in one.tier.denials(one.policy)[-1].sentence

        for way in self.ways_of_node:
            by_node = one.run(f"{NODE} {way} http://localhost:{server}/ http://third.example/", "bash")
            assert by_node.startswith("hello\nthird.example:80 is not on the list of this sandbox")

    def test_large_data_is_sent_and_received_whole(self, home: Callable[..., Home], server: int) -> None:
        one = home(f"private:localhost:{server}")
        digest = hashlib.sha256(MUCH).hexdigest()
        one.run(f"{GET}\nimport hashlib; much = get('http://localhost:{server}/much')")

        assert f"{digest}\n" == one.run("print(hashlib.sha256(much).hexdigest())")
        assert f"{digest}\n" == one.run(f"print(get('http://localhost:{server}/', much).decode())")

    def test_no_other_route_leads_out(self, home: Callable[..., Home], server: int) -> None:
        one, alone = home(f"private:localhost:{server}"), home(name="b")

        for each in (one, alone):
            said = each.run(ALONE.format(port=server)).splitlines()
            assert "reached" not in said
            assert ["ConnectionRefusedError", "gaierror"] == said[:2]
            assert "['lo']" == said[3]
        for host in ("localhost", "example.org"):
            assert "is not on the list" in alone.run(f"{GET}\nprint(get('http://{host}:{server}/').decode())")

    def test_a_change_of_its_list_applies_at_once(self, home: Callable[..., Home], server: int) -> None:
        one = home("example.org")
        get = f"print(get('http://localhost:{server}/').decode())"
        assert "is not on the list" in one.run(f"{GET}\n{get}")
        assert isinstance(one.tier, EgressTier)

        one.tier.allow(SandboxPolicy(session=one.policy.session, hosts=(f"private:localhost:{server}",)))
        assert "hello\n" == one.run(get)
        one.tier.allow(one.policy)
        assert "is not on the list" in one.run(get)

    def test_a_connection_does_not_survive_a_pause_to_disk_and_new_ones_are_made(
        self, tier: SandboxTier, home: Callable[..., Home], server: int, echo: int
    ) -> None:
        if not tier.keeps_memory:
            pytest.skip("it keeps none")
        one = home(f"private:localhost:{server}", f"private:localhost:{echo}")
        one.run(f"{TUNNEL}\nold = tunnel({echo})")
        assert "b'one'\n" == one.run("print(echoed(old, b'one'))")

        one.slept()

        assert "b''\n" == one.run("print(echoed(old, b'two'))")
        assert "b'three'\n" == one.run(f"print(echoed(tunnel({echo}), b'three'))")
        assert "b'hello'\n" == one.run(f"{GET}\nprint(get('http://localhost:{server}/'))")

    def test_two_sandboxes_have_the_same_port_and_each_is_reached_by_its_own(
        self, tier: SandboxTier, home: Callable[..., Home]
    ) -> None:
        homes = {word: home(name=word) for word in ("a", "b")}
        for word, one in homes.items():
            one.run(f"{SERVE}\nserve({word.encode()!r})")

        assert {"a": b"a!", "b": b"b!"} == {word: one.asked(8000, b"!") for word, one in homes.items()}
        if tier.keeps_memory:
            homes["a"].slept()
            assert b"a?" == homes["a"].asked(8000, b"?")

    def test_a_port_without_a_listener_is_reported(self, home: Callable[..., Home]) -> None:
        one = home()
        assert isinstance(one.tier, PortTier)

        with contextlib.closing(one.tier.ports(one.policy, one.runtime)) as way:
            for port in (9, 70000):
                with pytest.raises(SandboxError, match=f"cannot reach port {port}"):
                    way.connect(port)


class OverTheLine(ConnectionContract):
    """Of a tier whose way out is no socket that those inside see."""

    def test_a_sandbox_without_egress_gets_it_while_it_runs(self, home: Callable[..., Home], server: int) -> None:
        one = home()
        wanted: Any = SandboxPolicy(session=one.policy.session, hosts=(f"private:localhost:{server}",))
        assert isinstance(one.tier, EgressTier)

        one.tier.allow(wanted)

        assert "b'hello'\n" == one.run(f"{GET}\nprint(get('http://localhost:{server}/'))")
        with contextlib.closing(GuestChannel(one.runtime.socket)) as inside:
            said = inside.run("bash", "echo $https_proxy", timeout_s=60)
        assert "http://127.0.0.1:3128\n" == said.stdout
