"""Web Push: a logged-in browser subscribes, gets what is pushed, encrypted for it, until its login ends."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from kasmon.config.schema import WebConfig
from kasmon.errors import UnavailableError
from kasmon.model.permission import SessionId
from kasmon.store.push_subscriptions import PushSubscriptions
from kasmon.store.web_logins import WebLogins
from kasmon.supervisor.notifications.alerts import Alert
from kasmon.supervisor.notifications.notifier import CONTACT, Notifier
from kasmon.supervisor.notifications.web_push import public_key, send_web_push
from kasmon.supervisor.request_links import announced_address
from kasmon.web.fleet import handler
from kasmon.web.fleet.handler import FleetPages
from tests.support.tui.dashboard import Home
from tests.support.wait import until
from tests.support.web.certificate import CertificateFiles
from tests.support.web.chromium import Chromium
from tests.support.web.logged_in import LoggedIn
from tests.support.web.push_service import PushService
from tests.support.web.web_server import Served
from tests.web.conftest import Web

pytestmark = pytest.mark.story

NEWS = Alert(kind="asking", title="fix-auth has a request", text="Bash make " + "x" * 5000, sessions=(SessionId("a"),))


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PushService]:
    files = CertificateFiles(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", files.certificate)
    service = PushService(files)
    yield service
    service.close()


@pytest.fixture
def served(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(handler, "start_notifier", lambda paths: None)  # the tests run one of their own
    with Served(fleet_pages=FleetPages(home.paths, WebConfig())) as served:
        yield served


def subscribe(browser: LoggedIn, service: PushService, **changed: object) -> int:
    said = json.dumps({**service.subscription, **changed})
    return browser.post("push/subscribe", {**browser.fields(), "subscription": said}).status


def test_a_message_is_encrypted_for_the_browser_and_signed(
    home: Home, served: Served, service: PushService, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = LoggedIn(served, home.paths)
    key = bytes(json.loads(browser.post("push/key", browser.fields()).body)["key"])
    assert 200 == subscribe(browser, service)
    store = PushSubscriptions(home.paths)
    [subscription] = store.active(time.time())

    receipt, is_over = send_web_push(subscription, store.key(), CONTACT, "browser", NEWS, "http://x/r/1")

    assert (True, "", False) == (receipt.is_sent, receipt.why, is_over)
    assert b"fix-auth" not in service.messages[0][1]
    message = service.read()
    assert ("fix-auth has a request", "http://x/r/1") == (message["title"], message["link"])
    assert 400 == len(message["body"])
    claims = service.claims(key)
    assert key == public_key(store.key())
    assert CONTACT == claims["sub"]
    assert "aes128gcm" == service.messages[0][0]["Content-Encoding"]

    for status, over in (
        (500, False),
        (401, False),
        (403, False),
        (413, False),
        (429, False),
        (404, True),
        (410, True),
    ):
        service.status = status
        receipt, is_over = send_web_push(subscription, store.key(), CONTACT, "browser", NEWS)
        assert (False, f"it answered {status}", over) == (receipt.is_sent, receipt.why, is_over)
    monkeypatch.delenv("SSL_CERT_FILE")
    before = len(service.messages)
    receipt, _ = send_web_push(subscription, store.key(), CONTACT, "browser", NEWS)
    assert "its certificate is not valid" == receipt.why
    elsewhere = msgspec.structs.replace(subscription, endpoint="https://127.0.0.1:1/secret")
    receipt, _ = send_web_push(elsewhere, store.key(), CONTACT, "browser", NEWS)
    assert "it cannot be reached" == receipt.why
    assert before == len(service.messages)


def test_the_longest_message_is_no_larger_than_a_service_takes(
    home: Home, served: Served, service: PushService
) -> None:
    """4,096 bytes with all that encryption adds (RFC 8030), also of characters that take four bytes, or an escape."""
    assert 200 == subscribe(LoggedIn(served, home.paths), service)
    store = PushSubscriptions(home.paths)
    [subscription] = store.active(time.time())

    for letter in ("\U0001f600", '"', "\\"):
        news = msgspec.structs.replace(NEWS, title=letter * 5000, text=letter * 5000)
        link = f"https://{'x' * 253}/r/{'y' * 55}"
        receipt, _ = send_web_push(subscription, store.key(), CONTACT, "browser", news, link)

        assert receipt.is_sent
        assert len(service.messages[-1][1]) <= 4096
        message = service.read()
        assert (letter * 120, letter * 400, link) == (message["title"], message["body"], message["link"])


def test_only_a_subscription_is_recorded_and_it_ends_with_its_login(
    home: Home, served: Served, service: PushService
) -> None:
    browser, store = LoggedIn(served, home.paths), PushSubscriptions(home.paths)
    good = service.subscription
    wrong: list[dict[str, object]] = [
        {"endpoint": "http://127.0.0.1/x"},
        {"endpoint": "https:///x"},
        {"endpoint": "https://x/" + "y" * 1000},
        {"keys": {**good["keys"], "auth": "AAAA"}},
        {"keys": {**good["keys"], "p256dh": "AAAA"}},
        {"keys": {}},
    ]
    for changed in wrong:
        assert 400 == subscribe(browser, service, **changed), changed
    assert 403 == browser.post("push/subscribe", {"subscription": json.dumps(good)}).status
    assert () == store.list_all()

    assert [200, 200] == [subscribe(browser, service) for _ in range(2)]
    [only] = store.active(time.time())
    assert 0o600 == home.paths.web_push.stat().st_mode & 0o777
    WebLogins(home.paths).revoke(time.time(), only.login)
    assert () == store.active(time.time())
    other = LoggedIn(served, home.paths)
    assert 200 == subscribe(other, service)
    assert 200 == other.post("push/end", other.fields()).status
    assert () == store.active(time.time())
    store.key()
    home.paths.web_push_key.chmod(0o640)
    with pytest.raises(UnavailableError, match="readable by others"):
        store.key()


def test_the_notifier_pushes_a_request_with_a_link_that_ends_with_the_login(
    home: Home, served: Served, service: PushService
) -> None:
    assert 200 == subscribe(LoggedIn(served, home.paths), service)
    session = home.start("fix-auth")

    async def push() -> None:
        running = asyncio.ensure_future(Notifier(home.paths).run())
        try:
            await asyncio.to_thread(home.prompt, session, "ask git push")
            await asyncio.to_thread(until, lambda: service.messages)
            service.status = 410
            await asyncio.to_thread(home.start, "docs", "ask make docs")
            await asyncio.to_thread(until, lambda: not PushSubscriptions(home.paths).list_all())
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    with announced_address(home.paths, f"http://{served.host}"):
        asyncio.run(push())

    message = service.read(0)
    assert ("fix-auth has a request", "Bash git push") == (message["title"], message["body"])
    assert message["link"].startswith(f"http://{served.host}/r/")
    assert 2 == len(service.messages)


@pytest.mark.web
def test_the_page_is_a_web_app_that_subscribes_and_shows_what_is_pushed(
    home: Home, web: Web, service: PushService, browser: Chromium
) -> None:
    """The browser's own service is not reachable: its answer to the subscription is replaced.

    As every browser, it refuses a second subscription with another key: kasmon has one after the file of its key was
    lost.
    """
    page = browser.page("about:blank")
    page.as_phone()
    host = f"localhost:{urlsplit(web.link).port}"
    allowed = {"permissions": ["notifications"], "origin": f"http://{host}", "browserContextId": page.context}
    browser.call("Browser.grantPermissions", allowed)
    fake = (
        "let isOver = false; PushManager.prototype.getSubscription = async () => ({ unsubscribe: async () =>"
        " { isOver = true; } }); PushManager.prototype.subscribe = async () => {"
        " if (!isOver) throw new DOMException('it has another key', 'InvalidStateError');"
        f" return {json.dumps(service.subscription)}; }}"
    )
    page.call("Page.addScriptToEvaluateOnNewDocument", {"source": fake})
    logins = WebLogins(home.paths)
    token = logins.create(time.time())
    page.go(f"http://{host}/l/{logins.place}/login/{token}")
    until(lambda: "Log in to kasmon" in page.says)
    page.tap("button.allow")
    until(lambda: "Notify this device" in page.says)
    manifest = page.call("Page.getAppManifest")
    assert [] == manifest["errors"]
    assert "standalone" in manifest["data"]
    page.tap("#push button")
    until(lambda: "This device is notified" in page.says)
    assert 1 == len(PushSubscriptions(home.paths).active(time.time()))

    page.run(
        "navigator.serviceWorker.ready.then(worker => new Promise(done => { const check = () =>"
        " worker.active.state === 'activated' ? done() : setTimeout(check, 50); check(); }))"
    )
    text = json.dumps({"title": "fix-auth has a request", "body": "Bash git push", "link": ""})
    page.call("ServiceWorker.enable")
    registration = until(
        lambda: next(
            (
                each["registrationId"]
                for told in browser.told("ServiceWorker.workerRegistrationUpdated", page._session)
                for each in told["registrations"]
            ),
            None,
        )
    )
    pushed = {"origin": f"http://{host}", "registrationId": registration, "data": text}
    page.call("ServiceWorker.deliverPushMessage", pushed)
    shown = "navigator.serviceWorker.ready.then(worker => worker.getNotifications()).then(all => all.map(n => n.title))"
    until(lambda: ["fix-auth has a request"] == page.run(shown))
