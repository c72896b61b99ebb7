"""`kasmon web`: it prints a link, and ends with Ctrl+C; where it cannot be had it says how to get it."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from kasmon.cli.web import command as browsing
from kasmon.errors import UnavailableError, UsageError
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON
from tests.support.tui.pty_program import OnTerminal
from tests.support.wait import until

LINK = re.compile(rb"http://127\.0\.0\.1:\d+/\S+/\?t=[\w-]{43}")


def status(link: str) -> int:
    parts = urlsplit(link)
    asking = http.client.HTTPConnection(parts.netloc, timeout=60)
    asking.request("GET", f"{parts.path}?{parts.query}")
    got = asking.getresponse().status
    asking.close()
    return got


def test_the_command_prints_a_link_and_another_for_each_enter_until_ctrl_c(line: Cli) -> None:
    """The link before leads nowhere then. No dashboard was opened: of this kasmon there is only the server's lock."""

    def links() -> list[str]:
        return [each.decode() for each in LINK.findall(web.seen)]

    with OnTerminal([*KASMON, "web"], line.home, environment=line.environment) as web:
        until(links)
        web.send(b"\n")
        until(lambda: len(links()) == 2)
        tried = [status(link) for link in links()]
        web.send(b"\x03")
        code = web.ended()

    assert [403, 200] == tried
    assert 128 + signal.SIGINT == code
    assert "Ctrl+C stops the server; agents keep running." in web.seen.decode()
    made = sorted(path.name for path in line.home.rglob("*") if path.name != ".cache")
    assert ["c", "kasmon", "r", "s", "web.lock"] == made


def test_for_programs_the_link_is_in_an_object_and_a_signal_ends_it(line: Cli) -> None:
    argv = [*KASMON, "web", "--json"]
    with subprocess.Popen(
        argv, env=line.environment, cwd=line.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as web:
        assert web.stdout
        told = json.loads(web.stdout.readline())

        assert {"schema", "web"} == told.keys()
        assert {"url", "address", "port"} == told["web"].keys()
        assert 200 == status(told["web"]["url"])
        assert 403 == status(told["web"]["url"])
        web.terminate()
        out, err = web.communicate(timeout=20)

    assert (128 + signal.SIGTERM, b"", b"") == (web.returncode, out, err)


def test_an_address_that_others_could_reach_is_an_error() -> None:
    with pytest.raises(UsageError, match="not a loopback address"):
        browsing.web(port=0, address="0.0.0.0", wants_json=False)


@pytest.mark.parametrize("port", [-1, 65536])
def test_an_invalid_port_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match="not a valid port"):
        browsing.web(port=port, address="127.0.0.1", wants_json=False)


def test_a_port_in_use_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        with pytest.raises(UnavailableError, match=rf"port {port} of 127.0.0.1 is unavailable: .*in use.*--port 0"):
            browsing.web(port=port, address="127.0.0.1", wants_json=True)
    assert "" == capsys.readouterr().out


@pytest.fixture
def _no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "aiohttp" or name == "kasmon.web.server"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)


@pytest.mark.usefixtures("_no_package")
def test_without_its_packages_the_error_shows_how_to_get_them() -> None:
    with pytest.raises(UnavailableError, match=r"not installed. `pipx install --force '\.\[web\]'` in") as refused:
        browsing.web(port=0, address="127.0.0.1", wants_json=False)

    assert 69 == refused.value.exit_code
    assert "`pipx install --force '.[web]'` in kasmon's clone" in browsing.check().text


def test_doctor_lists_the_web_view() -> None:
    check = browsing.check()

    assert ("web", "ok") == (check.id, check.level)
    assert "in a browser on this machine" in check.text
