"""The wrong ways to the list of sessions: each is refused and changes nothing."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import psutil
import pytest

from kasmon.config.schema import WebConfig
from kasmon.launch import SESSION
from kasmon.model.events import ReceiptChanged, RequestAnswered
from kasmon.model.permission import SessionId
from kasmon.store.request_links import RequestLinks
from kasmon.store.web_logins import LoginState, WebLogins
from kasmon.web.connections import MAX_CONNECTIONS
from kasmon.web.fleet import event_streams
from kasmon.web.fleet.event_streams import MAX_LOGIN_STREAMS
from kasmon.web.fleet.handler import FleetPages
from kasmon.web.forms import BODY_BYTES
from kasmon.web.request_handler import RequestPages
from kasmon.web.request_limits import MAX_UNKNOWN, RequestLimits
from tests.support.tui.dashboard import Home
from tests.support.wait import until
from tests.support.web.logged_in import LoggedIn, fields_of
from tests.support.web.request_link import BROWSER, TYPE, OpenedLink
from tests.support.web.web_server import Served
from tests.web.conftest import Web

PUBLIC = "box.tail1234.ts.net"
FLOOD = 2 * (MAX_CONNECTIONS + 60)
"""So many streams: twice as many as are open, and so many that the system's queue of connections is full."""


class Site:
    """A real session that asks, the web view over its kasmon, and a browser that is logged in."""

    def __init__(self, home: Home, served: Served, session: SessionId) -> None:
        self.home, self.served, self.session = home, served, session
        self.browser = LoggedIn(served, home.paths)

    @property
    def pages(self) -> FleetPages:
        assert self.served.view._fleet_pages
        return self.served.view._fleet_pages

    def prompts(self) -> list[ReceiptChanged]:
        return [each for each in self.home.facts(ReceiptChanged, self.session) if each.prompt]


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    config = WebConfig(link_url=f"https://{PUBLIC}")
    with Home() as home:
        session = home.start("fix-auth")
        pages = RequestPages(home.paths, config), FleetPages(home.paths, config)
        with Served(request_pages=pages[0], fleet_pages=pages[1]) as served:
            yield Site(home, served, session)


@pytest.fixture
def site(running: Site) -> Site:
    running.pages.limits = RequestLimits()
    return running


def test_a_link_logs_one_browser_in_and_its_preview_uses_nothing_up(site: Site) -> None:
    token = WebLogins(site.home.paths).create(time.time())
    link = f"/l/{WebLogins(site.home.paths).place}/login/{token}"
    bot = {"User-Agent": "Slackbot-LinkExpanding 1.0"}
    for query in ("", "?form=x"):
        assert 200 == site.served.ask(link + query, bot).status
    for method in ("HEAD", "PUT", "DELETE", "OPTIONS"):
        assert 405 == site.served.ask(link, bot, method).status
    fields = urlencode(fields_of(site.served.ask(link).body))
    sent = {**TYPE, **BROWSER}

    assert 403 == site.served.ask(link, sent, "POST", "form=x").status
    assert 403 == site.served.ask(link, {**sent, "Sec-Fetch-Site": "cross-site"}, "POST", fields).status
    assert 403 == site.served.ask(link, {**TYPE}, "POST", fields).status
    assert LoginState.UNUSED is WebLogins(site.home.paths).list_all()[-1].state(time.time())
    done = site.served.ask(link, {**sent, "User-Agent": "Phone\x9b31m 1"}, "POST", fields)

    assert 303 == done.status
    parts = {part.strip() for part in done.headers["Set-Cookie"].split(";")[1:]}
    assert {"HttpOnly", "SameSite=Strict", f"Path={done.headers['Location']}", "Max-Age=2592000"} == parts
    assert [404, 404] == [site.served.ask(link).status, site.served.ask(link, sent, "POST", fields).status]
    assert WebLogins(site.home.paths).list_all()[-1].browser.isprintable()
    assert 200 == site.browser.get().status


def test_without_the_cookie_or_the_place_nothing_is_shown(site: Site) -> None:
    browser, token = site.browser, site.browser.cookie["Cookie"].partition("=")[2]
    other = f"{token[:-1]}{'A' if token[-1] != 'A' else 'E'}"
    for path in ("", "events", f"s/{site.session}"):
        for cookie in (
            "",
            f"kasmon_login={other}",
            f"kasmon={token}",
            f"kasmon_login={browser.link.rpartition('/')[2]}",
        ):
            refused = site.served.ask(browser.path + path, {"Cookie": cookie})
            assert 403 == refused.status, (path, cookie)
            assert "fix-auth" not in refused.body
    for path in ("/l/", "/l", "/l/wrong-place1/", f"/l/{browser.logins.place}x/"):
        assert site.served.ask(path, browser.cookie).status in (403, 404), path
    assert 403 == site.served.ask(site.served.path, {"Cookie": f"kasmon={token}"}).status, "it is no dashboard"


def test_an_agent_can_neither_log_in_nor_send_by_a_cookie(site: Site) -> None:
    logins = WebLogins(site.home.paths)
    link = f"/l/{logins.place}/login/{logins.create(time.time())}"
    before = len(site.prompts())
    code = "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode(), eval(sys.argv[3])))"
    page = site.browser.path + f"s/{site.session}"
    for path, fields in (
        (link, fields_of(site.served.ask(link).body)),
        (page, {**site.browser.fields(f"s/{site.session}"), "prompt": "do it"}),
    ):
        headers = repr({**TYPE, **BROWSER, **site.browser.cookie} if path == page else {**TYPE, **BROWSER})
        argv = [sys.executable, "-c", code, f"http://{site.served.host}{path}", urlencode(fields), headers]
        refused = subprocess.run(argv, env={**os.environ, SESSION: "fix-auth"}, capture_output=True, check=False)
        assert b"HTTP Error 403" in refused.stderr
    assert LoginState.UNUSED is logins.list_all()[-1].state(time.time())
    assert before == len(site.prompts())


FOREIGN = {
    "another site": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "a sandboxed frame of another site": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "another port of this machine": {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    "a browser that hides where it came from": {"Origin": "null"},
    "no browser's form": {},
    "the public name's origin on loopback": {"Origin": f"https://{PUBLIC}", "Sec-Fetch-Site": "same-origin"},
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_form_that_another_page_sends_is_refused(site: Site, case: str) -> None:
    fields = {**site.browser.fields(f"s/{site.session}"), "prompt": "rm -rf /", "request": "x"}
    before = len(site.prompts())

    for path in (f"s/{site.session}", "open", "logout"):
        refused = site.browser.post(path, fields, FOREIGN[case])
        assert 403 == refused.status
        assert "came from another site" in refused.body
    assert before == len(site.prompts())
    assert 200 == site.browser.get().status


def test_a_form_without_the_value_of_this_login_is_refused(site: Site) -> None:
    other = LoggedIn(site.served, site.home.paths)
    mine, theirs = (each.fields(f"s/{site.session}") for each in (site.browser, other))
    before = len(site.prompts())

    for form in ("", "x", theirs["form"]):
        fields = {**mine, "form": form, "prompt": "do it"}
        assert 403 == site.browser.post(f"s/{site.session}", fields).status
        assert 403 == site.browser.post("logout", fields).status
    for path in ("", "events", "s/unknown", "nowhere"):
        assert 404 == site.browser.post(path, {**mine, "prompt": "do it"}).status
    assert 413 == site.browser.post("open", {**mine, "request": "x" * BODY_BYTES}).status
    assert before == len(site.prompts())


def test_the_page_is_neither_framed_nor_read_by_another_site(site: Site) -> None:
    for headers in ({"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        for path in ("", "events", f"s/{site.session}"):
            assert 403 == site.browser.get(path, **headers).status
    for path in ("", f"s/{site.session}"):
        headers = site.browser.get(path).headers
        policy = headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"} < set(policy)
        assert [] == [each for each in policy if "unsafe" in each or "http" in each]
        assert ("no-store", "no-referrer", "DENY") == tuple(
            headers[name] for name in ("Cache-Control", "Referrer-Policy", "X-Frame-Options")
        )


def test_outside_of_this_machine_it_is_served_only_if_the_config_allows_it(site: Site) -> None:
    for path in (site.browser.path, site.browser.link):
        assert 403 == site.served.ask(path, {**site.browser.cookie, "Host": PUBLIC}).status
        assert 403 == site.served.ask(path, {**site.browser.cookie, "Host": "evil.example"}).status

    config = WebConfig(link_url=f"https://{PUBLIC}", link_list=True)
    with Served(fleet_pages=FleetPages(site.home.paths, config)) as served:
        away = LoggedIn(served, site.home.paths, PUBLIC)
        assert "Secure" in away.set_cookie
        assert 200 == away.get().status
        assert 403 == served.ask(away.path, {**away.cookie, "Host": "evil.example"}).status
        assert 403 == away.post("logout", away.fields(), {"Origin": f"http://{PUBLIC}"}).status
        assert 200 == away.post("logout", away.fields(), {"Origin": f"https://{PUBLIC}"}).status
        assert 403 == away.get().status


def test_a_revoked_login_ends_with_its_stream_and_its_links(site: Site) -> None:
    browser = LoggedIn(site.served, site.home.paths)
    site.home.prompt(site.session, "ask git push")
    asked = until(lambda: next(iter(site.home.session(site.session).requests), None))
    opened = browser.post("open", {**browser.fields(), "request": asked.id})
    link = OpenedLink(site.served, opened.headers["Location"])
    assert (
        opened.headers["Location"]
        == browser.post("open", {**browser.fields(), "request": asked.id}).headers["Location"]
    )
    fields = link.forms()["allow"]
    with browser.stream() as stream:
        stream.until("git push")
        began = time.monotonic()
        browser.logins.revoke(time.time(), browser.id)
        while stream.next():
            pass
        assert time.monotonic() - began < 5

    assert 403 == browser.get().status
    assert [410, 410] == [link.open().status, link.send(fields).status]
    assert [] == [each for each in site.home.facts(RequestAnswered, site.session) if each.request == asked.id]
    again = site.browser.post("open", {**site.browser.fields(), "request": asked.id})
    mine = OpenedLink(site.served, again.headers["Location"])
    assert 303 == mine.answer("allow").status
    [answered] = until(
        lambda: [each for each in site.home.facts(RequestAnswered, site.session) if each.request == asked.id]
    )
    assert answered.who.startswith(f"link {site.browser.id}, ")
    assert f'href="{site.browser.path}"' in mine.open().body
    assert site.browser.id == next(each.login for each in RequestLinks(site.home.paths).list_all() if each.used_at)


def test_a_prompt_is_sent_once_and_the_log_names_the_login(site: Site) -> None:
    fields = {**site.browser.fields(f"s/{site.session}"), "prompt": "say one.\r\nsay two."}
    sent = [site.browser.post(f"s/{site.session}", fields) for _ in range(3)]

    assert [303, 409, 409] == [each.status for each in sent]
    [prompt] = [each for each in site.prompts() if each.prompt.startswith("say one")]
    assert ("say one.\nsay two.", site.browser.id) == (prompt.prompt, prompt.login)
    path, _, receipt = sent[0].headers["Location"].partition("#p-")
    assert f'id="p-{receipt}"' in site.served.ask(path, site.browser.cookie).body
    for text in ("", " \n", "x" * 16_001):
        assert 400 == site.browser.prompt(site.session, text).status
    assert 404 == site.browser.get("s/unknown").status


def test_only_so_many_streams_are_open_and_the_list_is_still_served(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "MAX_STREAMS", MAX_LOGIN_STREAMS + 1)
    other = LoggedIn(site.served, site.home.paths)
    mine = [site.browser.stream() for _ in range(MAX_LOGIN_STREAMS + 1)]
    theirs = [other.stream() for _ in range(2)]

    assert [200] * MAX_LOGIN_STREAMS + [503] == [each.status for each in mine]
    assert [200, 503] == [each.status for each in theirs]
    assert 200 == site.browser.get().status
    for each in (*mine, *theirs):
        each.close()
    until(lambda: 0 == len(site.pages.streams), what="the end of the streams")


@pytest.mark.timeout(200)
def test_hundreds_of_streams_are_refused_beyond_the_limit_and_others_are_answered(home: Home, web: Web) -> None:
    """Of one login, in a process of its own whose memory and file handles are bounded."""
    logins, now = WebLogins(home.paths), time.time()
    logins.create(now)
    mine, theirs, third = (logins.use_passkey("", name, 30.0, now) for name in ("mine", "theirs", "third"))
    port, path = urlsplit(web.link).port, f"/l/{logins.place}/"
    process = psutil.Process(web.pid)
    handles: list[int] = []

    async def ask(cookie: str, path: str) -> bytes:
        """The status of the answer; the connection of a stream stays open until the end of the loop."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: kasmon_login={cookie}\r\n\r\n".encode()
            )
            status = (await reader.readline())[9:12] or b"cut"
        except ConnectionError:
            status = b"cut"
        if status == b"200" and path.endswith("events"):
            streams.append(writer)
        else:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        return status

    async def flood() -> tuple[list[bytes], list[bytes], int]:
        asking = asyncio.gather(*(ask(mine, f"{path}events") for _ in range(FLOOD)))
        answers = []
        while not asking.done():
            answers.append(await ask(theirs, path))
            handles.append(process.num_fds())
        grown = process.memory_info().rss - before
        for each in streams:
            each.close()
            with contextlib.suppress(ConnectionError):
                await each.wait_closed()
        return await asking, answers, grown

    streams: list[asyncio.StreamWriter] = []
    assert b"200" == asyncio.run(ask(theirs, path))
    before = process.memory_info().rss
    refused, answers, grown = asyncio.run(flood())

    assert (FLOOD, MAX_LOGIN_STREAMS) == (len(refused), refused.count(b"200"))
    assert {b"200", b"503", b"429", b"cut"} >= set(refused)
    assert b"200" in answers
    assert max(handles) <= MAX_CONNECTIONS + 60
    assert grown < 32 << 20
    assert b"200" == asyncio.run(ask(third, path))


def test_a_closed_page_makes_place_for_the_next_before_anything_is_sent_to_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who opens one session after another would soon look at a page that is not live."""
    monkeypatch.setattr(event_streams, "HEARTBEAT_S", 3600.0)
    for _ in range(2):
        for each in [site.browser.stream() for _ in range(MAX_LOGIN_STREAMS)]:
            assert 200 == each.status
            assert each.next()
            each.close()
        until(lambda: 0 == len(site.pages.streams), what="the end of the streams")


def test_unknown_cookies_lock_out_their_address_but_no_valid_one(site: Site) -> None:
    token = "A" * 55
    unknown = [
        site.served.ask(site.browser.path, {"Cookie": f"kasmon_login={token}"}).status for _ in range(MAX_UNKNOWN)
    ]
    unknown += [site.served.ask(f"/l/{site.browser.logins.place}/login/{token}").status]

    assert [403] * MAX_UNKNOWN + [429] == unknown
    assert 200 == site.browser.get().status
