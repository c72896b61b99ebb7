"""A jail's network, with real programs in it: nothing but what its list allows, and ports that a person asks for."""

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.network import proxy_control
from kasmon.sandbox.network.port_forward import NetworkConnector, PortForward
from kasmon.sandbox.shared.host_folders import HostFolders
from tests.sandbox.conftest import OURS, TINY, JailedAgent, policy
from tests.support.sandbox import connection_contract
from tests.support.wait import until

pytestmark = [pytest.mark.sandboxes, pytest.mark.short]

ASK = """
import os, subprocess
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
done = subprocess.run(["curl", "-sS", "--max-time", "10", *{arguments!r}], capture_output=True)
print(done.stdout.decode(), done.stderr.decode(), sep="|", end="")
"""


class Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of callers that end in the midst of it."""


server = connection_contract.server


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[int]:
    """The same with TLS."""
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", key, "-out", certificate, "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run(words, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Quiet(("127.0.0.1", 0), connection_contract.Answer) as serves:
        serves.socket = context.wrap_socket(serves.socket, server_side=True)
        threading.Thread(target=serves.serve_forever, daemon=True).start()
        yield serves.server_port
        serves.shutdown()


FORWARDED = """
import os, sys
inside = os.path.dirname(os.path.abspath(__file__))
python = [sys.executable, "-I", "-S"]
os.execv(sys.executable, [*python, inside + "/proxy_forwarder.py", "--", *python, inside + "/tiny.py"])
"""


@pytest.fixture
def outward(jail: Jail, tmp_path: Path) -> Callable[..., JailedAgent]:
    """Makes a jail that has a way out: `outward("b", hosts=("example.org",))`."""
    folder = tmp_path / "inside"
    folder.mkdir()
    shutil.copy(TINY / "main.py", folder / "tiny.py")
    (folder / "main.py").write_text(FORWARDED)
    for name in ("proxy_forwarder.py", "nodeproxy.js"):
        shutil.copy(OURS / name, folder)
    jail.host_folders = HostFolders(jail.paths, folder)

    def make(name: str = "a", **more: object) -> JailedAgent:
        wanted = policy(name, **more)
        return JailedAgent(jail, wanted, jail.create(wanted))

    return make


def curl(jailed_agent: JailedAgent, *arguments: str) -> str:
    return jailed_agent.run(ASK.format(arguments=arguments)).out


def way_of(jailed_agent: JailedAgent) -> Path:
    return jailed_agent.jail.host_folders.gate(jailed_agent.policy.session)


def test_a_jail_has_no_network_without_a_setting(outward: Callable[..., JailedAgent], server: int) -> None:
    alone = outward()

    assert "Could not resolve host" in curl(alone, "--noproxy", "*", "http://example.org/")
    assert "Failed to connect" in curl(alone, "--noproxy", "*", f"http://127.0.0.1:{server}/")
    assert not proxy_control.is_running(way_of(alone))
    assert "is not on the list" in curl(alone, "http://example.org/")
    assert "is not on the list" in curl(alone, f"http://localhost.localdomain:{server}/")
    os.kill(alone.runtime.pid, signal.SIGKILL)
    until(lambda: not proxy_control.is_running(way_of(alone)))


def test_it_reaches_the_hosts_on_its_list_and_no_others(outward: Callable[..., JailedAgent], server: int) -> None:
    one = outward(hosts=(f"private:localhost:{server}",))

    assert "hello|" == curl(one, f"http://localhost:{server}/")
    said = curl(one, f"http://other.example:{server}/")
    assert f"other.example:{server} is not on the list of this sandbox; allow it with " in said
    assert f"`kasmon sandbox allow aaaaaaaa other.example:{server}`" in said
    assert "403" in curl(one, "https://other.example/")
    assert "not by addresses" in curl(one, f"http://127.0.0.1:{server}/")
    assert "not by addresses" in curl(one, "http://169.254.169.254/latest/meta-data/")
    assert {"other.example", ""} == {denial.host for denial in proxy_control.denials(way_of(one))}


TUNNEL = """
import socket, ssl
link = socket.create_connection(("127.0.0.1", 3128))
link.sendall(b"CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\n")
assert b" 200 " in link.recv(1000)
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
try:
    context.wrap_socket(link, server_hostname={name!r})
    print("open")
except OSError as error:
    print("closed")
"""


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_a_tunnel_leads_only_to_its_host(outward: Callable[..., JailedAgent], secure: int) -> None:
    """With true TLS on both sides; another name in it would reach another of the same machine's hosts."""
    one = outward(hosts=(f"private:localhost:{secure}",))

    assert "hello|" == curl(one, "-k", f"https://localhost:{secure}/")
    assert "open\n" == one.run(TUNNEL.format(port=secure, name="localhost")).out
    assert "closed\n" == one.run(TUNNEL.format(port=secure, name="other.example")).out
    assert "names another host" in proxy_control.denials(way_of(one))[-1].why


def test_it_cannot_bypass_its_proxy(outward: Callable[..., JailedAgent], server: int) -> None:
    one = outward(hosts=(f"private:localhost:{server}",))

    assert "Failed to connect" in curl(one, "--noproxy", "*", f"http://127.0.0.1:{server}/")
    assert "Could not resolve host" in curl(one, "--noproxy", "*", "http://example.org/")
    code = (
        "import os\n"
        "print(sorted(os.listdir('/run/kasmon')))\n"
        "for act in (lambda: os.unlink('/run/kasmon/proxy.sock'), lambda: open('/run/kasmon/x', 'w')):\n"
        "    try: act(); print('done')\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    assert "['proxy.sock']\nRead-only file system\nRead-only file system\n" == one.run(code).out


NODE = """
const ways = require("http"), safe = require("https");
const asked = (way, url, options = {}) => new Promise((done) => way.get(url, options, (answer) => {
  let said = answer.statusCode === 200 ? "" : `${answer.statusCode} `;
  answer.on("data", (piece) => { said += piece; }).on("end", () => done(said));
}).on("error", (error) => done(error.message)));
const fetched = (url) => fetch(url).then((answer) => answer.text(), (error) => error.cause.message);
(async () => {
  const [plain, secure] = process.argv.slice(1);
  const own = { agent: new ways.Agent({ keepAlive: true }), headers: ["Host", "localhost", "X-Own", "1"] };
  console.log(await fetched(plain), await fetched(secure));
  console.log(await asked(ways, plain), await asked(ways, plain, own), await asked(safe, secure));
  const [far, safely] = ["http://other.example/", "https://other.example/"];
  for (const each of [fetched(far), asked(ways, far), fetched(safely), asked(safe, safely)]) console.log(await each);
  process.exit();
})();
"""
RUN_NODE = """
import os, subprocess
os.environ |= {{"no_proxy": "", "NO_PROXY": "", "NODE_TLS_REJECT_UNAUTHORIZED": "0"}}
done = subprocess.run(["node", "--no-warnings", "-e", {code!r}, *{urls!r}], capture_output=True, text=True)
print(done.stdout, done.stderr, sep="", end="")
"""


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
@pytest.mark.parametrize("guarded", [True, False])
def test_node_programs_use_the_proxy_by_fetch_and_by_request(
    outward: Callable[..., JailedAgent], server: int, secure: int, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Node looks for no proxy by itself; *guarded* is off where it is left to that."""
    if not guarded:
        monkeypatch.setattr(proxy_control, "NODE_ALSO", "")
    one = outward(hosts=(f"private:localhost:{server}", f"private:localhost:{secure}"))
    urls = (f"http://localhost:{server}/", f"https://localhost:{secure}/")
    said = [line for line in one.run(RUN_NODE.format(code=NODE, urls=urls)).out.splitlines() if line]

    if not guarded:
        assert "hello" not in "".join(said)
        return
    assert ["hello hello", "hello hello hello"] == said[:2]
    assert all("other.example:80 is not on the list of this sandbox" in line for line in said[2:4])
    assert all("the proxy refused other.example:443: 403" in line for line in said[4:])
    assert 6 == len(said)


def test_a_change_of_its_list_applies_at_once(outward: Callable[..., JailedAgent], server: int) -> None:
    one = outward(hosts=("example.org",))
    assert "is not on the list" in curl(one, f"http://localhost:{server}/")

    proxy_control.allow(way_of(one), [f"private:localhost:{server}"])
    assert "hello|" == curl(one, f"http://localhost:{server}/")
    proxy_control.allow(way_of(one), ["example.org"])
    assert "is not on the list" in curl(one, f"http://localhost:{server}/")


def test_a_killed_proxy_is_restarted_after_a_pause(outward: Callable[..., JailedAgent], server: int) -> None:
    one = outward(hosts=(f"private:localhost:{server}",))
    pid = proxy_control.send_command(way_of(one), {"do": "state"})["pid"]
    slept = one.jail.pause(one.policy, one.runtime)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not proxy_control.is_running(way_of(one)))
    one.jail.resume(one.policy, one.runtime, slept)

    assert "hello|" == curl(one, f"http://localhost:{server}/")
    assert "is not on the list" in curl(one, "http://other.example/")


def test_an_agents_own_jail_has_the_same_proxy(
    outward: Callable[..., JailedAgent], jail: Jail, server: int, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    wanted = policy(hosts=(f"private:localhost:{server}",))
    said = []
    for url in (f"http://localhost:{server}/", "http://other.example/"):
        words = ["curl", "-sS", "--max-time", "10", "--noproxy", "", url]
        command = jail.wrap(wanted, words, str(tmp_path / "work"), {"PATH": os.environ["PATH"]})
        said.append(subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout)

    assert "hello" == said[0]
    assert "is not on the list" in said[1]


def test_its_proxy_ends_with_it(outward: Callable[..., JailedAgent]) -> None:
    one = outward(hosts=("example.org",))
    os.kill(one.runtime.pid, signal.SIGKILL)

    until(lambda: not proxy_control.is_running(way_of(one)))


SERVE = """
import os, socket, sys
if os.fork(): sys.exit()
os.setsid()
listener = socket.create_server(("127.0.0.1", 8000))
for handle in (0, 1, 2): os.close(handle)
while True:
    came, _ = listener.accept()
    came.sendall({said!r})
    came.close()
"""


def test_two_sandboxes_use_the_same_port_and_each_is_reached_by_its_own(outward: Callable[..., JailedAgent]) -> None:
    """Only when asked: before, nothing on this machine leads there."""
    said = {}
    with contextlib.ExitStack() as kept:
        for name in ("a", "b"):
            one = outward(name)
            one.run(SERVE.format(said=name.encode()))
            reach = NetworkConnector(one.runtime.pid, one.runtime.started, one.runtime.boot)
            kept.callback(reach.close)
            forward = PortForward(partial(reach.connect, 8000))
            kept.callback(forward.close)
            threading.Thread(target=forward.serve, daemon=True).start()
            with socket.create_connection(("127.0.0.1", forward.port), timeout=60) as link:
                said[name] = link.recv(10)

    assert {"a": b"a", "b": b"b"} == said
