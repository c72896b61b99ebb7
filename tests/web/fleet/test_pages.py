"""The list of sessions and the page of each: what they show, live and without a script, and of all machines."""

import asyncio
import os
import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import msgspec
import pytest

from kasmon.config.schema import WebConfig
from kasmon.model.events import MessageWritten, ReceiptChanged, RequestAnswered, RequestOpened, SessionForgotten
from kasmon.model.fleet import Fleet
from kasmon.model.permission import Decision, SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.store.event_log import EventLog
from kasmon.store.web_logins import WebLogins
from kasmon.supervisor.request_links import login_link
from kasmon.supervisor.sessions import session_operations
from kasmon.web.fleet.handler import FleetPages
from kasmon.web.fleet.html import MAX_REQUESTS, MAX_SESSIONS, list_blocks
from kasmon.web.request_handler import RequestPages
from tests.support.bus.joined import NAME, JoinedKasmons, joined_over
from tests.support.sample_fleet import command
from tests.support.supervisor.env import NOW, Env
from tests.support.tui.dashboard import Home
from tests.support.wait import until
from tests.support.web.chromium import Chromium, Page
from tests.support.web.logged_in import LoggedIn
from tests.support.web.request_link import OpenedLink, link_to
from tests.support.web.web_server import Served
from tests.web.conftest import Web

pytestmark = pytest.mark.story

KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


def text(html: str) -> str:
    """What a person reads of *html*."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html.partition("<body>")[2])).split())


def kept(page: Page, name: str) -> None:
    if folder := os.environ.get("KASMON_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


def is_live(page: Page) -> bool:
    return bool(page.run("document.getElementById('live-status')?.textContent == 'live'"))


class Site:
    """A kasmon with sessions that have a host which takes nothing, its web view, and a browser that is logged in."""

    def __init__(self, env: Env, served: Served) -> None:
        self.env, self.served = env, served
        self.browser = LoggedIn(served, env.paths)

    def has(self, name: str, *events: RequestOpened | MessageWritten) -> None:
        self.env.has(name, *events, name=name)
        self.env.hosts(name)


@pytest.fixture
def site() -> Iterator[Site]:
    env = Env()
    config = WebConfig()
    try:
        with Served(request_pages=RequestPages(env.paths, config), fleet_pages=FleetPages(env.paths, config)) as served:
            yield Site(env, served)
    finally:
        env.close()


def opened(name: str, line: str, **fields: object) -> RequestOpened:
    return RequestOpened(at=NOW, request=command(name, line, **fields))  # type: ignore[arg-type]


def test_requests_come_first_and_no_text_of_an_agent_is_markup(site: Site) -> None:
    evil = "</button></form><script>alert(1)</script><form action=//evil.example>"
    site.has("aaa", MessageWritten(at=NOW, text="all is well"))
    site.has("fix-auth", opened("fix-auth", f"curl -H {KEY} {evil} \x1b[31m\u202e"))
    site.env.has("named", name=f"x{evil}")

    body = site.browser.get().body

    seen = text(body)
    assert seen.index("curl -H") < seen.index("all is well")
    assert "1 open request · 3 sessions" in seen
    for part in ("◆", "scripted", "asking", "⟨hidden"):
        assert part in seen
    assert KEY not in body
    assert "\x1b" not in body
    assert "\u202e" not in body
    assert 1 == body.count("<script>")
    assert [] == re.findall(r"<(?:script|form)[^>]*(?:alert|evil)", body)
    assert body.count("</form>") == body.count("<form")


def test_a_large_fleet_is_cut_and_reports_that() -> None:
    sessions = [Session(id=SessionId(f"s{number}"), name=f"s{number}", last_line="x" * 500) for number in range(1000)]
    asking = msgspec.structs.replace(
        sessions[0], requests=tuple(command("s0", "make", number) for number in range(1, 200))
    )

    blocks = list_blocks(Fleet(sessions=(asking, *sessions[1:])))

    assert 4 + MAX_REQUESTS + MAX_SESSIONS == len(blocks)
    assert "And 800 more sessions" in blocks["b-more"]
    assert sum(map(len, blocks.values())) < 256 * 1024


def test_a_stream_sends_only_changes(site: Site) -> None:
    site.has("aaa", MessageWritten(at=NOW, text="all is well"))
    site.has("fix-auth", opened("fix-auth", "git push"))
    with site.browser.stream() as stream, site.browser.stream("fix-auth") as one:
        stream.until("git push")
        before = dict(stream.shown)
        one.until("git push")
        site.env.tells("aaa", MessageWritten(at=NOW, text="now <b>two</b>"))
        stream.until("now <b>two</b>")

        assert [name for name in before if before[name] != stream.shown[name]] == ["s-aaa"]
        assert "&lt;b&gt;" in stream.shown["s-aaa"]
        assert "s-aaa" not in one.shown
        site.env.tells("fix-auth", RequestAnswered(at=NOW, request=command("fix-auth", "").id, decision=Decision.DENY))
        site.env.says(SessionForgotten(at=NOW, session=SessionId("aaa")))
        while {"s-aaa", "q-fix-auth-1"} & stream.shown.keys():
            assert stream.next()
        assert "0 open requests · 1 session" in stream.shown["b-total"]
        site.env.says(SessionForgotten(at=NOW, session=SessionId("fix-auth")))
        one.until("This session was removed")


class Away:
    """A session of another machine, the web view of this one, and a browser that is logged in here."""

    def __init__(self, joined: JoinedKasmons, served: Served) -> None:
        self.joined = joined
        self.session = asyncio.run(joined.begin())
        joined.shown(self.session)
        self.browser = LoggedIn(served, joined.near.paths)

    def asks(self, what: str) -> OpenedLink:
        """Prompt it to ask for *what* and then to answer, and open the request from the list."""
        sent = self.browser.prompt(self.session, f"ask {what}\nsay After {what}.")
        assert 303 == sent.status, text(sent.body)
        self.joined.shown(self.session, lambda now: now.requests)
        listed = text(self.browser.get().body)
        assert what in listed
        assert f"{NAME}:docs" in listed
        [asked] = self.joined.shown(self.session).requests
        led = self.browser.post("open", {**self.browser.fields(), "request": asked.id})
        link = OpenedLink(self.browser.served, led.headers["Location"])
        assert what in text(link.open().body)
        return link

    def pushed(self) -> OpenedLink:
        """A link to its request as a notification has it, beside that of the list."""
        [asked] = self.joined.shown(self.session).requests
        return link_to(self.browser.served, self.joined.near.paths, asked)

    def goes_on(self, what: str) -> None:
        """The agent received the answer and said what comes next, and the list shows it."""
        self.joined.shown(self.session, lambda now: not now.requests and now.state is SessionState.IDLE)
        assert f"After {what}." in text(self.browser.get().body)
        assert "Prompt finished" in text(self.browser.get(f"s/{self.session}").body)


@pytest.fixture
def away(request: pytest.FixtureRequest) -> Iterator[Away]:
    config = WebConfig()
    with joined_over(request.param) as joined:
        paths = joined.near.paths
        with Served(request_pages=RequestPages(paths, config), fleet_pages=FleetPages(paths, config)) as served:
            yield Away(joined, served)


@pytest.mark.parametrize(
    ("away", "through"),
    [("stream", "through the bus"), ("ssh", "through the bus"), ("nats", ", process ")],
    indirect=["away"],
)
def test_a_request_of_another_machine_is_listed_opened_and_answered_and_its_agent_continues(
    away: Away, through: str
) -> None:
    for what, decision, outcome in (("make docs", "allow", "Allowed"), ("git push", "deny", "Denied")):
        link = away.asks(what)
        assert "Prompt started" in text(away.browser.get(f"s/{away.session}").body)

        assert 303 == link.answer(decision).status

        away.goes_on(what)
        receipt = text(link.open().body)
        assert outcome in receipt
        assert f"By user at link {away.browser.id}, " in receipt
        assert through in receipt
        assert what not in receipt
    assert [Decision.ALLOW, Decision.DENY] == [
        event.decision
        for event in EventLog(away.joined.far.paths.log(away.session)).events()
        if isinstance(event, RequestAnswered)
    ]


@pytest.mark.parametrize("away", ["ssh", "nats"], indirect=True)
def test_an_answer_to_an_unreachable_machine_is_unknown_and_its_request_is_answered_later(away: Away) -> None:
    link, other = away.asks("make docs"), away.pushed()
    fields, others = (each.forms()["allow"] for each in (link, other))
    away.joined.stall()

    sent = link.send(fields)

    away.joined.cut()
    away.joined.shown(away.session, lambda now: now.is_unreachable)
    again = [link.open(), link.send(fields)]
    assert [502, 503, 503] == [each.status for each in (sent, *again)]
    for each in (sent, *again):
        assert "It is unknown whether the answer arrived" in text(each.body)
    waits = [other.open(), other.send(others)]
    assert [503, 503] == [each.status for each in waits]
    assert ["Nothing was sent." in text(each.body) for each in waits] == [False, True]
    for each in waits:
        assert "It is unknown whether the agent still waits" in text(each.body)
    for each in (sent, *again, *waits):
        assert "Look at the session in kasmon." in text(each.body)
        assert "<form" not in each.body
    assert f"{NAME} is unreachable" in text(waits[0].body)
    away.joined.heal()
    away.joined.shown(away.session, lambda now: now.state is SessionState.ASKING)
    assert "The agent has not received that answer." in text(link.open().body)
    assert 303 == other.send(others).status
    away.goes_on("make docs")


@pytest.mark.parametrize("away", ["stream"], indirect=True)
def test_an_answer_that_the_other_machine_refuses_is_not_delivered(away: Away) -> None:
    link, joined = away.asks("make docs"), away.joined
    joined.far.paths.config.mkdir(parents=True, exist_ok=True)
    joined.far.paths.config_file.write_text('[machine]\nallow = ["see", "prompt"]\n')
    joined.bus_process().kill()
    until(lambda: joined.presence.why, what="the loss")
    joined.until_connected()
    joined.shown(away.session, lambda now: now.requests)

    sent = link.answer("allow")

    assert 502 == sent.status
    assert "The answer was not delivered" in text(sent.body)
    assert "This link is used up." in text(sent.body)


@pytest.mark.web
def test_a_phone_logs_in_watches_prompts_and_answers(home: Home, web: Web, browser: Chromium) -> None:
    session = home.start("fix-auth", "say the index is faster now.")
    home.start("docs", "ask make docs")
    home.start("api", "say I updated the tests, and all of them pass on this machine.")
    page = browser.page("about:blank")
    page.as_phone()
    page.go(login_link(home.paths, WebConfig(), time.time()))
    until(lambda: "Log in to kasmon" in page.says)
    kept(page, "list-login")
    page.tap("button.allow")
    until(lambda: is_live(page))
    until(lambda: "make docs" in page.says)
    assert [390, 390] == page.run("[document.documentElement.scrollWidth, innerWidth]")
    heights = page.run(
        "[...document.querySelectorAll('button, .row')].filter(each => each.offsetHeight)"
        ".map(each => each.offsetHeight)"
    )
    assert min(heights) >= 48
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        kept(page, f"list-{scheme}")

    home.prompt(session, "say a new last line.")
    until(lambda: "a new last line." in page.says)
    page.tap(f"#s-{session}")
    until(lambda: "Prompt" in page.says and is_live(page))
    page.tap("textarea")
    page.type("say from the phone.")
    page.tap("form button.allow")
    until(lambda: "Prompt finished" in page.says)
    until(lambda: "from the phone." in page.says)
    kept(page, "list-session")
    [login] = WebLogins(home.paths).list_all()
    assert login.id == [each.login for each in home.facts(ReceiptChanged, session) if each.prompt][-1]

    page.tap("a.back")
    until(lambda: "make docs" in page.says and is_live(page))
    page.tap(".request")
    until(lambda: "Allow once" in page.says)
    page.tap("button.allow")
    until(lambda: "Allowed" in page.says)
    page.tap("a.back")
    until(lambda: "0 open requests" in page.says)
    second = browser.page("about:blank", page)
    second.as_phone()
    second.call("Emulation.setScriptExecutionDisabled", {"value": True})
    second.go(page.run("location.href"))
    until(lambda: "from the phone." in second.says and " s" in second.says)
    WebLogins(home.paths).revoke(time.time())
    until(lambda: "Not logged in" in page.says)
    assert [] == [each for each in page.complaints if "403" not in each]


def test_receipts_show_how_far_a_prompt_got(home: Home) -> None:
    session = home.start("fix-auth")
    asyncio.run(session_operations.send(home.paths, home.session(session), "say one."))
    until(lambda: "finished" in {each.state for each in home.session(session).receipts})
    pages = FleetPages(home.paths, WebConfig())
    with Served(fleet_pages=pages) as mine:
        browser = LoggedIn(mine, home.paths)
        home.prompt(session, "ask wait for me")
        until(lambda: home.session(session).requests)
        assert 303 == browser.prompt(session, "say two.", when="idle").status
        assert "Prompt queued" in text(browser.get(f"s/{session}").body)
        asyncio.run(session_operations.stop(home.paths, home.session(session), 0))
        refused = browser.get(f"s/{session}").body
        assert "It has ended" in refused
        assert "<textarea" not in refused
