"""`kasmon web --bind`: other machines reach the pages for phones by TLS alone, and never the dashboard."""

import http.client
import socket
import ssl
import time
from pathlib import Path

import pytest

from kasmon.cli.web import command
from kasmon.config.schema import WebConfig
from kasmon.errors import UsageError
from kasmon.store.web_logins import WebLogins
from kasmon.web.fleet.handler import FleetPages
from kasmon.web.request_handler import RequestPages
from kasmon.web.tls import PORT, tls_listener
from tests.support.supervisor.env import Env
from tests.support.web.certificate import NAME, CertificateFiles
from tests.support.web.web_server import LIMIT_S, Served

URL = f"https://{NAME}:8443"


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path)


def ask(served: Served, files: CertificateFiles, path: str, host: str = f"{NAME}:8443") -> tuple[int, str]:
    """What the server answers a browser that trusts the certificate."""
    context = ssl.create_default_context(cafile=files.certificate)
    context.check_hostname = False  # it is reached by its address
    line = http.client.HTTPSConnection("127.0.0.1", served.view.tls_port, timeout=LIMIT_S, context=context)
    line.request("GET", path, headers={"Host": host})
    answer = line.getresponse()
    text = answer.read().decode()
    line.close()
    return answer.status, text


@pytest.mark.parametrize("link_list", [True, False])
def test_other_machines_get_pages_for_phones_and_no_dashboard(
    env: Env, files: CertificateFiles, link_list: bool
) -> None:
    config = WebConfig(link_url=URL, link_list=link_list)
    tls = tls_listener("127.0.0.1:0", files.certificate, files.key, URL, 0)
    logins = WebLogins(env.paths)
    token = logins.create(time.time())  # the key is there from now on
    login = f"/l/{logins.place}/login/{token}"
    pages = RequestPages(env.paths, config), FleetPages(env.paths, config)
    with Served(request_pages=pages[0], fleet_pages=pages[1], tls=tls) as served:
        assert 404 == ask(served, files, "/r/unknown")[0]
        assert (200 if link_list else 403) == ask(served, files, login)[0]
        for path in ("/", served.path, served.link(), f"{served.path}ws"):
            assert (404, "kasmon: not found.\n") == ask(served, files, path), path
        for host in ("evil.example", f"127.0.0.1:{served.view.port}", served.host, "localhost"):
            assert 403 == ask(served, files, "/r/unknown", host)[0]
            assert 403 == ask(served, files, login, host)[0]
        with socket.create_connection(("127.0.0.1", served.view.tls_port), LIMIT_S) as plain:
            plain.sendall(f"GET /r/unknown HTTP/1.1\r\nHost: {NAME}:8443\r\n\r\n".encode())
            assert b"" == plain.recv(100), "it speaks no HTTP without TLS"
        assert 200 == served.ask(served.path, served.cookie).status, "the dashboard stays on loopback"


def test_without_a_certificate_the_error_shows_how_to_forward(
    files: CertificateFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="only with TLS") as neither:
        tls_listener("0.0.0.0", "", files.key, URL, 8000)
    assert "`tailscale serve --bg 8000` or `cloudflared tunnel" in neither.value.hint
    assert "neither is installed" in neither.value.hint
    program = tmp_path / "tailscale"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    with pytest.raises(UsageError, match="--tls-cert and --tls-key") as one:
        tls_listener("0.0.0.0", files.certificate, "", URL, 8000)
    assert "tailscale is installed" in one.value.hint
    assert "cloudflared" not in one.value.hint
    assert "tailscale can make its pages for phones available" in command.check().text


def test_an_unusable_certificate_is_named(files: CertificateFiles) -> None:
    for bind in ("", "everywhere", "0.0.0.0:http", "0.0.0.0:99999", "box.example:443"):
        with pytest.raises(UsageError, match="no address to listen on"):
            tls_listener(bind, files.certificate, files.key, URL, 0)
    with pytest.raises(UsageError, match="does not know the name"):
        tls_listener("0.0.0.0", files.certificate, files.key, "", 0)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        tls_listener("0.0.0.0", files.certificate + "x", files.key, URL, 0)
    for certificate, key in ((files.key, files.key), (files.certificate, files.locked)):
        with pytest.raises(UsageError, match="cannot be used"):
            tls_listener("0.0.0.0", certificate, key, URL, 0)
    Path(files.key).chmod(0o640)
    with pytest.raises(UsageError, match="others can read the key"):
        tls_listener("0.0.0.0", files.certificate, files.key, URL, 0)
    Path(files.key).chmod(0o600)
    listeners = [tls_listener(bind, files.certificate, files.key, URL, 0) for bind in ("0.0.0.0", "[::1]:9", "::1")]
    assert [("0.0.0.0", PORT), ("::1", 9), ("::1", PORT)] == [(each.address, each.port) for each in listeners]
    with pytest.raises(UsageError, match="require --bind"):
        command.web(tls_cert=files.certificate, wants_json=True)
