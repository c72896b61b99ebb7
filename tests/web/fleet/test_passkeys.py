"""Passkeys: a real browser adds one and logs in with it; every other answer to a challenge is refused."""

import json
import time
from urllib.parse import urlsplit

import pytest

from kasmon.config.schema import WebConfig
from kasmon.errors import NotFoundError, RefusedError
from kasmon.paths import Paths
from kasmon.store import passkeys as passkey_store
from kasmon.store.passkeys import Passkey, Passkeys
from kasmon.store.web_logins import WebLogins
from kasmon.supervisor.request_links import login_link
from kasmon.web.fleet import passkeys
from kasmon.web.fleet.handler import FleetPages
from kasmon.web.fleet.passkeys import PasskeyChecks, PasskeyHost
from kasmon.web.request_limits import MAX_VIEWS
from tests.support.cli.cli_runner import Cli
from tests.support.supervisor.env import NOW, Env
from tests.support.tui.dashboard import Home
from tests.support.wait import until
from tests.support.web.chromium import Chromium
from tests.support.web.logged_in import LoggedIn
from tests.support.web.request_link import BROWSER, TYPE
from tests.support.web.web_server import Served
from tests.web.conftest import Web

AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
HOST = PasskeyHost("localhost", "http://localhost:8000")


def passkey(number: int, **fields: object) -> Passkey:
    base: dict[str, object] = {
        "id": f"id{number}",
        "credential": bytes([number]),
        "public_key": b"k",
        "sign_count": 0,
        "host": "localhost",
        "login": "login-1",
        "created_at": NOW,
    }
    return Passkey(**(base | fields))  # type: ignore[arg-type]


@pytest.fixture
def paths(env: Env) -> Paths:
    return env.paths


@pytest.mark.web
def test_a_browser_adds_a_passkey_and_logs_in_with_it_until_it_is_revoked(
    home: Home, web: Web, browser: Chromium
) -> None:
    home.start("fix-auth", "say done.")
    page = browser.page("about:blank")
    page.as_phone()
    page.call("WebAuthn.enable")
    authenticator = page.call("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})["authenticatorId"]
    here = urlsplit(login_link(home.paths, WebConfig(), time.time()))
    page.go(f"http://localhost:{here.port}{here.path}")
    until(lambda: "Log in to kasmon" in page.says)
    page.tap("button.allow")
    until(lambda: "Add a passkey" in page.says)
    page.tap("#passkey-add button")
    until(lambda: "Added. It logs you in here." in page.says)
    [added] = Passkeys(home.paths).list_all()
    [first] = WebLogins(home.paths).list_all()
    assert ("localhost", first.id) == (added.host, added.login)

    page.tap("form[action=logout] button")
    until(lambda: "Logged out" in page.says)
    place = f"http://localhost:{here.port}/l/{WebLogins(home.paths).place}/"
    page.go(place)
    until(lambda: "Log in with a passkey" in page.says)
    page.call("WebAuthn.setUserVerified", {"authenticatorId": authenticator, "isUserVerified": False})
    page.tap("#passkey-login button")
    until(lambda: "It was not accepted" in page.says)
    page.call("WebAuthn.setUserVerified", {"authenticatorId": authenticator, "isUserVerified": True})
    page.tap("#passkey-login button")
    until(lambda: "fix-auth" in page.says)
    assert added.id == WebLogins(home.paths).list_all()[-1].passkey
    assert Passkeys(home.paths).list_all()[0].used_at

    Passkeys(home.paths).revoke(time.time(), added.id)
    WebLogins(home.paths).revoke(time.time(), passkey=added.id)
    until(lambda: "Not logged in" in page.says)
    assert "Log in with a passkey" not in page.says


def test_if_browsers_accept_no_passkey_the_page_reports_that(paths: Paths) -> None:
    with Served(fleet_pages=FleetPages(paths, WebConfig())) as served:
        mine = LoggedIn(served, paths)
        there = LoggedIn(served, paths, f"localhost:{served.view.port}")

        assert "A passkey needs HTTPS, or the name localhost." in mine.get().body
        assert 403 == mine.post("passkey/options", mine.fields()).status
        assert "Add a passkey" in there.get().body
        options = json.loads(there.post("passkey/options", there.fields()).body)
        assert ("localhost", "required") == (
            options["rp"]["id"],
            options["authenticatorSelection"]["userVerification"],
        )
        assert 403 == there.post("passkey/options", {}).status
        assert 403 == there.post("passkey/register", {**there.fields(), "credential": "{}"}).status


def test_without_a_passkey_nothing_is_offered_and_wrong_answers_are_refused(paths: Paths) -> None:
    with Served(fleet_pages=FleetPages(paths, WebConfig())) as served:
        browser = LoggedIn(served, paths)
        host = {"Host": f"localhost:{served.view.port}"}
        sent = {**TYPE, **BROWSER, **host}
        challenge = f"{browser.path}passkey/challenge"
        assert "passkey" not in served.ask(browser.path, host).body
        assert 403 == served.ask(challenge, sent, "POST", "").status

        Passkeys(paths).add(passkey(1))
        assert "Log in with a passkey" in served.ask(browser.path, host).body
        assert "passkey" not in served.ask("/l/elsewhere/", host).body
        assert "passkey" not in served.ask(browser.path).body
        assert 200 == served.ask(challenge, sent, "POST", "").status
        assert 403 == served.ask(challenge, {**sent, "Sec-Fetch-Site": "cross-site"}, "POST", "").status
        for credential in ("", "{}", "[]", "null", "x" * 1000):
            refused = served.ask(f"{browser.path}passkey/login", sent, "POST", f"credential={credential}")
            assert 403 == refused.status
            assert "Set-Cookie" not in refused.headers
        assert 429 == [served.ask(challenge, sent, "POST", "").status for _ in range(MAX_VIEWS)][-1]


def test_a_challenge_works_once_for_its_purpose_and_their_number_is_bounded(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = PasskeyChecks(Passkeys(paths))

    def client_data(options: str) -> bytes:
        return json.dumps({"challenge": json.loads(options)["challenge"]}).encode()

    first = client_data(checks.request_options(HOST))
    assert checks._use_challenge(first, "log in localhost")
    with pytest.raises(KeyError):
        checks._use_challenge(first, "log in localhost")
    for other in ("log in other", "add login-1 localhost"):
        with pytest.raises(LookupError):
            checks._use_challenge(client_data(checks.request_options(HOST)), other)
    monkeypatch.setattr(passkeys, "CHALLENGE_S", 0)
    with pytest.raises(LookupError):
        checks._use_challenge(client_data(checks.request_options(HOST)), "log in localhost")
    for _ in range(passkeys.MAX_CHALLENGES + 5):
        checks.request_options(HOST)
    assert passkeys.MAX_CHALLENGES == len(checks._challenges)


def test_passkeys_are_revoked_by_id_by_login_or_all_and_are_bounded(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Passkeys(paths)
    for number in range(3):
        store.add(passkey(number, login=f"login-{number}"))

    assert ["id0"] == [each.id for each in store.revoke(NOW, "id0")]
    assert not store.use("id0", 1, NOW)
    assert ["id1"] == [each.id for each in store.revoke(NOW, login="login-1")]
    assert ["id2"] == [each.id for each in store.active("localhost")]
    assert () == store.active("other")
    with pytest.raises(NotFoundError, match="no passkey 'x'"):
        store.revoke(NOW, "x")
    monkeypatch.setattr(passkey_store, "MAX_PASSKEYS", 1)
    with pytest.raises(RefusedError, match="1 passkeys already"):
        store.add(passkey(4))
    assert ["id2"] == [each.id for each in store.revoke(NOW)]


def test_the_command_line_lists_and_revokes_them_with_their_logins() -> None:
    line = Cli()
    try:
        logins, store = WebLogins(line.paths), Passkeys(line.paths)
        logins.use_passkey("id1", "Phone", 30, time.time())
        by_link = logins.create(time.time())[:12]
        store.add(passkey(1, login="gone"))
        store.add(passkey(2, login=by_link))

        assert "id1  passkey  active  localhost\n" in line("web", "links").out
        revoked = line("web", "links", "revoke", "id1", "--json").json
        assert (["id1"], ["id1"]) == ([each["id"] for each in revoked["passkeys"]], [revoked["logins"][0]["passkey"]])
        also = line("web", "links", "revoke", by_link, "--json").json
        assert (["id2"], [by_link]) == ([each["id"] for each in also["passkeys"]], [also["logins"][0]["id"]])
    finally:
        line.close()
