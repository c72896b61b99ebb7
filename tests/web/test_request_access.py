"""The wrong ways to answer by a link: each is refused and changes nothing; the right one answers once."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import psutil
import pytest

from kasmon.config.schema import WebConfig
from kasmon.launch import SESSION
from kasmon.model.events import RequestAnswered, RequestSetAside
from kasmon.model.permission import Decision, Request, SessionId
from kasmon.store.request_links import LinkState, RequestLinks
from kasmon.web import request_limits
from kasmon.web.forms import BODY_BYTES
from kasmon.web.request_handler import RequestPages
from kasmon.web.request_limits import MAX_COUNTED, MAX_UNKNOWN, MAX_VIEWS, Pace, RequestLimits
from tests.support.tui.dashboard import Home
from tests.support.wait import until
from tests.support.web.request_link import BROWSER, TYPE, OpenedLink, link_to
from tests.support.web.web_server import Served

PUBLIC = "box.tail1234.ts.net"


class Site:
    """A real session that asks, and the web view over its kasmon."""

    def __init__(self, home: Home, served: Served, session: SessionId) -> None:
        self.home, self.served, self.session = home, served, session

    def asks(self, script: str = "ask git push") -> Request:
        """The request of a new turn with *script*; open ones are denied before."""
        for waiting in self.home.session(self.session).requests:
            link_to(self.served, self.home.paths, waiting).answer("deny")
        self.home.prompt(self.session, script)
        return until(lambda: next(iter(self.home.session(self.session).requests), None))

    def link(self, request: Request, **more: float) -> OpenedLink:
        return link_to(self.served, self.home.paths, request, **more)

    def answered(self, request: Request) -> list[RequestAnswered]:
        return [each for each in self.home.facts(RequestAnswered, self.session) if each.request == request.id]

    @property
    def pages(self) -> RequestPages:
        assert self.served.view._request_pages
        return self.served.view._request_pages


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    config = WebConfig(link_url=f"https://{PUBLIC}")
    with Home() as home:
        session = home.start("fix-auth")
        with Served(request_pages=RequestPages(home.paths, config)) as served:
            yield Site(home, served, session)


@pytest.fixture
def site(running: Site) -> Site:
    running.pages.limits = RequestLimits()
    return running


@pytest.fixture(scope="module")
def shared(running: Site) -> Request:
    """A request that no test answers."""
    other = running.home.start("docs", "ask make docs")
    return until(lambda: next(iter(running.home.session(other).requests), None))


def test_a_link_answers_once_and_the_log_names_it(site: Site) -> None:
    asked = site.asks()
    link = site.link(asked)
    [record] = [each for each in RequestLinks(site.home.paths).list_all() if each.request == asked.id]
    fields = link.forms()["allow"]

    sent = link.send(fields)
    seen, again = link.open(), link.send(fields)

    assert (303, link.path) == (sent.status, sent.headers["Location"])
    [answered] = until(lambda: site.answered(asked))
    assert Decision.ALLOW is answered.decision
    assert answered.who.startswith(f"link {record.id}, ")
    assert f"pid {os.getpid()}" in answered.who or f"process {os.getpid()}" in answered.who
    for page in (seen, again):
        assert 200 == page.status
        assert f"By user at link {record.id}" in page.body
        assert "<form" not in page.body
        assert "git push" not in page.body
    assert 1 == len(site.answered(asked))


def test_a_denial_carries_its_reason_and_a_question_its_options(site: Site) -> None:
    asked = site.asks()
    site.link(asked).answer("deny", reason="not on a Friday; ä\n<b>")
    [denied] = until(lambda: site.answered(asked))
    assert (Decision.DENY, "not on a Friday; ä\n<b>") == (denied.decision, denied.reason.replace("\r", ""))

    asked = site.asks("choose Which?|a|b|c|...")
    link = site.link(asked)
    for wrong in ({}, {"option": ["7"]}, {"option": ["x"]}, {"option": ["-1"]}, {"text": "y" * 4001}):
        refused = link.answer("choose", **wrong)
        assert 400 == refused.status
        assert "Nothing was sent: " in refused.body
        assert {"choose"} <= link.forms().keys()
    assert 303 == link.answer("choose", option=["0", "2"], text="or d").status
    [chosen] = until(lambda: site.answered(asked))
    assert ("a", "c", "or d") == chosen.labels


def test_hidden_characters_are_allowed_only_by_the_tools_letters(site: Site) -> None:
    asked = site.asks("ask rm \u200bx")
    link = site.link(asked)

    for wrong in ({}, {"letters": "no"}):
        assert 400 == link.answer("allow", **wrong).status
    assert [] == site.answered(asked)
    assert 303 == link.answer("allow", letters=" Bas ").status
    assert until(lambda: site.answered(asked))


def test_later_dismisses_the_request_once_and_the_link_still_works(site: Site) -> None:
    asked = site.asks()
    link = site.link(asked)
    fields = link.forms()["later"]
    before = len(site.home.facts(RequestSetAside, site.session))

    assert [303] * 3 == [link.send(fields).status for _ in range(3)]
    assert before + 1 == len(site.home.facts(RequestSetAside, site.session))
    assert {"allow", "deny"} == link.forms().keys()
    assert 303 == link.answer("deny").status


def test_of_two_answers_at_once_one_is_accepted(site: Site) -> None:
    """Each of the same link and of two links."""
    asked = site.asks()
    links = [site.link(asked), site.link(asked)]
    sent = [(link, link.forms()[decision]) for link in (*links, links[0]) for decision in ("allow", "deny")]
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda one=one: statuses.append(one[0].send(one[1]).status)) for one in sent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 6 == len(statuses)
    assert 1 == len(site.answered(asked))


@pytest.mark.parametrize("ended", ["expired", "revoked", "all revoked"])
def test_an_expired_link_shows_nothing_and_answers_nothing(site: Site, shared: Request, ended: str) -> None:
    link = site.link(shared)
    fields = link.forms()["allow"]
    if ended == "expired":
        other = link
        link = site.link(shared, ago=901)
        fields = fields | {"form": other.forms()["allow"]["form"]}
    else:
        RequestLinks(site.home.paths).revoke(time.time(), "" if ended == "all revoked" else link.path[3:15])

    opened, sent = link.open(), link.send(fields)

    assert [410, 410] == [opened.status, sent.status]
    for answer in (opened, sent):
        assert "expired" in answer.body or "revoked" in answer.body
        assert shared.digest not in answer.body
        assert "make docs" not in answer.body
    assert [] == list(site.home.session(shared.session).closed)


@pytest.mark.parametrize("purpose", ["", "prefetch"])
def test_a_program_that_previews_links_changes_nothing(site: Site, shared: Request, purpose: str) -> None:
    link = site.link(shared)
    bot = {"User-Agent": "Slackbot-LinkExpanding 1.0", **({"Sec-Purpose": purpose} if purpose else {})}
    before = site.home.paths.request_links.read_bytes(), site.home.paths.log(shared.session).read_bytes()

    for query in ("", "?part=1", "?decision=allow", f"?{urlencode(link.forms()['allow'])}"):
        assert 200 == link.open(query, **bot).status
    for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"):
        assert 405 == link.open(method=method, **bot).status

    assert before == (site.home.paths.request_links.read_bytes(), site.home.paths.log(shared.session).read_bytes())
    assert "allow" in link.forms()


def test_a_forwarded_link_gives_that_request_and_nothing_else(site: Site, shared: Request) -> None:
    """No cookie, no dashboard, no other request, no list."""
    link = site.link(shared)
    page = link.open()
    token = link.path.rpartition("/")[2]

    assert 200 == page.status
    assert "Set-Cookie" not in page.headers
    assert site.served.view.access_guard.folder not in page.body
    folder = site.served.path
    for path in ("/", folder, f"{folder}?t={token}", f"{folder}ws", "/r/", "/r", f"/r/{token}/", f"/r/{token}/../"):
        assert site.served.ask(path, {"Cookie": f"kasmon={token}"}).status in (403, 404), path


FOREIGN = {
    "another site": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "a sandboxed frame of another site": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "another port of this machine": {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    "a browser that hides where it came from": {"Origin": "null"},
    "no browser's form": {},
    "two origins": {"Origin": "null, http://evil.example", "Sec-Fetch-Site": "same-origin"},
    "own origin, other site": {"Origin": "OWN", "Sec-Fetch-Site": "cross-site"},
    "the public name's origin on loopback": {"Origin": f"https://{PUBLIC}", "Sec-Fetch-Site": "same-origin"},
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_form_that_another_page_sends_is_refused(site: Site, shared: Request, case: str) -> None:
    link = site.link(shared)
    headers = {name: value.replace("OWN", f"http://{site.served.host}") for name, value in FOREIGN[case].items()}

    refused = link.send(link.forms()["allow"], headers)

    assert 403 == refused.status
    assert "came from another site" in refused.body
    assert "allow" in link.forms()


def test_a_form_without_the_value_of_this_link_is_refused(site: Site, shared: Request) -> None:
    link, other = site.link(shared), site.link(shared)
    fields = link.forms()["allow"]

    for form in ("", "x", other.forms()["allow"]["form"], link.forms()["deny"]["form"]):
        assert 403 == link.send({**fields, "form": form}).status
    assert 403 == link.send({name: value for name, value in fields.items() if name != "form"}).status
    assert 409 == link.send({**fields, "digest": "0" * 64}).status
    for decision in ("always", "never", "edit", "cancel", "choose", "", "ALLOW"):
        assert 403 == link.send({**fields, "decision": decision}).status
    assert {"allow"} <= link.forms().keys()


@pytest.mark.parametrize("kind", ["iframe", "frame", "embed", "object"])
def test_the_page_is_not_shown_inside_another_one(site: Site, shared: Request, kind: str) -> None:
    link = site.link(shared)

    refused = link.open(**{"Sec-Fetch-Dest": kind})

    assert 403 == refused.status
    assert shared.digest not in refused.body


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("{}", "application/json"),
        ("decision=allow", "text/plain"),
        ("x" * (BODY_BYTES + 1), TYPE["Content-Type"]),
        ("decision=%FF%00", f"{TYPE['Content-Type']}; charset=klingon"),
        ("--x\r\n\r\n--x--", "multipart/form-data; boundary=x"),
    ],
    ids=["json", "text", "too long", "no charset", "multipart"],
)
def test_an_invalid_form_is_refused(site: Site, shared: Request, body: str, kind: str) -> None:
    assert 413 == site.served.ask(site.link(shared).path, {**BROWSER, "Content-Type": kind}, "POST", body).status


@pytest.mark.parametrize(
    ("name", "origin", "opened", "sent"),
    [
        ("evil.example", "http://evil.example", 403, 403),
        (PUBLIC, f"https://{PUBLIC}", 200, 409),
        (PUBLIC.upper(), f"https://{PUBLIC}", 200, 409),
        (PUBLIC, f"http://{PUBLIC}", 200, 403),
    ],
)
def test_host_names_are_checked(site: Site, shared: Request, name: str, origin: str, opened: int, sent: int) -> None:
    """A form without its fields is refused for that, where its origin is right."""
    link = site.link(shared)

    assert opened == link.open(Host=name).status
    refused = link.send({}, {"Host": name, "Origin": origin})
    assert sent == refused.status
    assert ("another site" in refused.body) == (origin == f"http://{PUBLIC}")
    for path in (site.served.path, "/", f"{site.served.path}ws"):
        assert 403 == site.served.ask(path, {**site.served.cookie, "Host": name}).status


def test_an_agent_cannot_answer_by_a_link(site: Site, shared: Request) -> None:
    link = site.link(shared)
    code = "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode(), eval(sys.argv[3])))"
    argv = [sys.executable, "-c", code, f"http://{site.served.host}{link.path}", urlencode(link.forms()["allow"])]

    refused = subprocess.run(
        [*argv, repr({**TYPE, **BROWSER})], env={**os.environ, SESSION: "fix-auth"}, capture_output=True, check=False
    )

    assert b"HTTP Error 403" in refused.stderr
    assert LinkState.OPEN is RequestLinks(site.home.paths).list_all()[-1].state(time.time())


def test_many_unknown_links_lock_out_their_address_but_no_valid_link(site: Site, shared: Request) -> None:
    link = site.link(shared)
    unknown = [site.served.ask(f"/r/{number:055}").status for number in range(MAX_UNKNOWN + 3)]

    assert [404] * MAX_UNKNOWN + [429] * 3 == unknown
    assert 200 == link.open().status


def test_a_link_is_opened_only_so_often(site: Site, shared: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "MAX_VIEWS", 5)
    link = site.link(shared)

    assert [200] * 5 + [429] * 2 == [link.open().status for _ in range(7)]
    assert 200 == site.link(shared).open().status
    assert MAX_VIEWS > 5


def test_a_flood_is_bounded_in_memory(site: Site, shared: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    link = site.link(shared)
    limits = RequestLimits()
    for number in range(5000):
        limits.add_unknown(f"127.0.{number % 250}.{number // 250}", float(number) / 1000)
        limits.add_view(f"link {number}", float(number) / 1000)
    assert len(limits) <= 2 * MAX_COUNTED

    monkeypatch.setattr(site.served.view, "_pace", Pace(1, 1000.0))
    process = psutil.Process()
    sizes = []
    for number in range(600):
        site.served.ask(f"/r/{number:055}")
        if number % 200 == 199:
            sizes.append(process.memory_info().rss)

    assert sizes[-1] - sizes[0] < 8 << 20
    assert 200 == link.open().status


def test_limits_end_after_their_time() -> None:
    limits = RequestLimits()
    for _ in range(MAX_UNKNOWN):
        limits.add_unknown("a", 0.0)

    assert limits.is_locked("a", 599.0)
    limits.add_unknown("a", 599.0)
    assert limits.is_locked("a", 1100.0), "further unknown links extend it"
    assert not limits.is_locked("a", 1199.0)
    limits.add_unknown("a", 1200.0)
    assert not limits.is_locked("a", 1200.0)
    assert [True] * MAX_VIEWS + [False] == [limits.add_view("l", 0.0) for _ in range(MAX_VIEWS + 1)]
    assert limits.add_view("l", 60.0)


def test_a_rate_limit_allows_a_burst_and_then_a_rate() -> None:
    pace = Pace(3, 10.0, 0.5)
    waits = [pace.add(100.0) for _ in range(20)]

    assert [0.0, 0.0, 0.0] == waits[:3]
    assert [0.1, 0.2, 0.3, 0.4, 0.5, 0.5] == [round(each, 6) for each in waits[3:9]]
    assert 0.5 == max(waits)
    assert 0.0 == pace.add(101.0)


def test_in_a_flood_refused_requests_wait_and_a_valid_link_does_not(
    site: Site, shared: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.served.view, "_pace", Pace(1, 1 / 3600))
    link = site.link(shared)
    assert 404 == site.served.ask("/r/unknown").status
    with contextlib.ExitStack() as opened:
        lines = []
        for path in ("/r/unknown", "/l/x/", "/", f"{site.served.path}?t=wrong"):
            line = opened.enter_context(socket.create_connection(("127.0.0.1", site.served.view.port), 20))
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: {site.served.host}\r\n\r\n".encode())
            lines.append(line)

        assert [200, 200] == [link.open().status, site.served.ask(site.served.link()).status]
        for line in lines:
            line.setblocking(False)
            with pytest.raises(BlockingIOError):
                line.recv(1)
