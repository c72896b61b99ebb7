"""What a browser is given: a page that asks nobody outside of this machine, and answers that guard themselves."""

import logging
import re
import sys

import pytest

from kasmon.errors import UnavailableError
from kasmon.web.page import ALWAYS, OWN_FILES, PACKAGE_FILES, page_files
from tests.support.web.web_server import UPGRADE, Served


def test_every_file_that_the_page_names_is_there() -> None:
    with Served() as served:
        html = served.ask(served.path, served.cookie).body
        named = set(re.findall(r'(?:src|href)="([^":]+)"', html))
        fonts = set(re.findall(r'url\("([^"]+)"\)', served.ask(f"{served.path}page.css", served.cookie).body))

        assert {*PACKAGE_FILES, *OWN_FILES} - {""} == named | fonts
        assert [200] * len(named | fonts) == [
            served.ask(f"{served.path}{name}", served.cookie).status for name in named | fonts
        ]


def test_no_file_of_kasmon_names_an_outside_address() -> None:
    files = page_files()

    assert [] == [
        name for name in OWN_FILES if b"http" in files[name].body or b"//" in files[name].body.replace(b"// ", b"")
    ]


@pytest.mark.parametrize(
    "name",
    [
        *("../server.py", "%2e%2e/server.py", "..%2fserver.py", "page.html", "enter.html", "static/js/textual.js", "x"),
        *("/etc/passwd", "//etc/passwd", "%00", "page.css%00", "images/background.png", "download/key", "%C3%A9"),
    ],
)
def test_only_the_files_of_the_page_are_served(name: str) -> None:
    with Served() as served:
        answer = served.ask(f"{served.path}{name}", served.cookie)

        assert (404, "kasmon: not found.\n") == (answer.status, answer.body)


def test_every_answer_has_the_headers_that_keep_other_pages_out() -> None:
    """Also those that refuse, and those that lead nowhere."""
    with Served() as served:
        asked = [
            served.ask(served.path, served.cookie),
            served.ask(served.link()),
            served.ask(served.path),
            served.ask(served.path, {"Host": "evil.example"}),
            served.ask(f"{served.path}nowhere", served.cookie),
            served.ask("/", method="POST"),
        ]

        assert [200, 200, 403, 403, 404, 405] == [answer.status for answer in asked]
        for answer in asked:
            assert ALWAYS.items() <= answer.headers.items()
            assert ("DENY", "no-store", "no-referrer", "nosniff") == tuple(
                answer.headers[name]
                for name in ("X-Frame-Options", "Cache-Control", "Referrer-Policy", "X-Content-Type-Options")
            )
            policy = answer.headers["Content-Security-Policy"]
            assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
            assert [] == [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"])
def test_only_read_methods_are_accepted(method: str) -> None:
    with Served() as served:
        assert 405 == served.ask(served.path, served.cookie, method).status


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET /PLACE/ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nHost: 127.0.0.1:PORT\r\nCookie: COOKIE\r\n\r\n",
        b"GET /PLACE/ HTTP/1.0\r\nCookie: COOKIE\r\n\r\n",
        b"GET /PLACE/?t=%FF%00&t=x HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n",
        b"GET /PLACE/ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nCookie: kasmon=\xff\xfe\x80; kasmon=\r\n\r\n",
        b"GET /PLACE/ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: \xc3\xa9\r\nCookie: COOKIE\r\n\r\n",
        b"GET /PLACE/ws HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: http://127.0.0.1:PORT\r\nCookie: COOKIE\r\n\r\n",
        b"GET /PLACE/ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nCookie: COOKIE\r\nX: " + b"x" * 70000 + b"\r\n\r\n",
        b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=[
        "tls",
        "proxy",
        "two hosts",
        "no host",
        "bytes in a token",
        "bytes in a cookie",
        "odd origin",
        "no socket",
        "long header",
        "long",
    ],
)
def test_an_invalid_request_gets_no_dashboard_and_is_not_logged(
    request_: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.WARNING)
    with Served() as served:
        served.link()
        place, port, cookie = served.view.access_guard.folder, served.view.port, served.view.access_guard.change()
        for field, value in ((b"PLACE", place), (b"PORT", str(port)), (b"COOKIE", f"kasmon={cookie}")):
            request_ = request_.replace(field, value.encode())

        said = served.raw(request_)

        assert re.match(rb"HTTP/1.[01] (400|403|404|405|431)", said), said
        assert b"textual" not in said
        assert set() == served.view.dashboards
    told = caplog.text + "".join(capfd.readouterr())
    assert [] == [secret for secret in (place, cookie) if secret in told]
    assert "Traceback" not in told


def test_no_address_is_logged(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    with Served() as served:
        link = served.link()
        here = {**served.cookie, "Origin": f"http://{served.host}"}
        for path, headers in ((link, {}), (link, {}), (served.path, here), (f"{served.path}ws", {**UPGRADE, **here})):
            served.ask(path, headers)

    told = caplog.text + "".join(capfd.readouterr())
    assert [] == [
        each for each in (link, served.view.access_guard.folder, *served.view.access_guard._cookies) if each in told
    ]


def test_another_version_of_the_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGE_FILES, "textual.js", ("static/js/elsewhere.js", "text/javascript"))

    with pytest.raises(UnavailableError, match="another version"):
        page_files()


def test_without_the_package_the_error_shows_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve", None)

    with pytest.raises(UnavailableError, match=r"not installed. `pipx install --force '\.\[web\]'` in"):
        page_files()
