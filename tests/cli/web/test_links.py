"""`kasmon web links`: what links there are, and revoking them."""

import time

import pytest

from kasmon.launch import SESSION
from kasmon.model.permission import Decision
from kasmon.store.request_links import RequestLinks
from kasmon.store.web_logins import WebLogins
from kasmon.supervisor.request_links import announced_address
from tests.support.cli.cli_runner import Cli
from tests.support.sample_fleet import command
from tests.support.wait import until

pytestmark = pytest.mark.story


def test_links_are_listed_and_revoked(kasmon: Cli) -> None:
    assert "There are no links.\n" == kasmon("web", "links").out
    links, now = RequestLinks(kasmon.paths), time.time()
    asked = command("fix-auth", "git push")
    tokens = [links.create(asked, minutes, now - 600) for minutes in (15, 15, 15, 5)]
    first, second, used, expired = (token[:12] for token in tokens)
    links.use(used, Decision.ALLOW, now)

    listed = kasmon("web", "links", "--json")
    text = kasmon("web", "links").out

    assert ["open", "open", "used", "expired"] == [each["state"] for each in listed.json["links"]]
    assert {
        "id": used,
        "request": asked.id,
        "session": "fix-auth",
        "digest": asked.digest,
        "decision": "allow",
    }.items() <= (listed.json["links"][2].items())
    assert [] == [token for token in tokens if token[12:] in listed.out + text]
    assert f"{used}  {asked.id}  used (allow)\n" in text
    assert f"{expired}  {asked.id}  expired\n" in text

    assert f"{first}  {asked.id}  revoked\n" == kasmon("web", "links", "revoke", first).out
    revoked = kasmon("web", "links", "revoke", "--all", "--json").json["links"]
    assert [(second, "revoked")] == [(each["id"], each["state"]) for each in revoked]
    assert "No link was revoked" in kasmon("web", "links", "revoke", "--all").out


def test_the_revoke_command_requires_its_target(kasmon: Cli) -> None:
    for words in ((), ("one", "--all")):
        done = kasmon("web", "links", "revoke", *words)
        assert (2, "") == (done.code, done.out)
        assert "give the id of one link or login, or --all" in done.err
    assert 3 == kasmon("web", "links", "revoke", "unknown").code
    assert not kasmon.paths.request_links.exists()


def test_without_a_server_no_link_is_created_and_an_agent_creates_none(kasmon: Cli) -> None:
    kasmon.new("fix-auth", "ask git push")
    asked = until(lambda: next(iter(kasmon.json("inbox")["requests"]), None))["id"]

    alone = kasmon("web", "links", "create", asked)
    assert 69 == alone.code
    assert "no `kasmon web` runs" in alone.err
    with announced_address(kasmon.paths, "http://127.0.0.1:8000"):
        assert 4 == kasmon("web", "links", "create", asked, **{SESSION: "fix-auth"}).code
        assert 3 == kasmon("web", "links", "create", "unknown-1").code
        created = kasmon("web", "links", "create", asked)
    assert created.out.startswith("http://127.0.0.1:8000/r/")
    assert [asked] == [link.request for link in RequestLinks(kasmon.paths).list_all()]


def test_a_login_is_created_listed_and_revoked(kasmon: Cli) -> None:
    assert 69 == kasmon("web", "links", "login").code
    with announced_address(kasmon.paths, "http://127.0.0.1:8000"):
        assert 4 == kasmon("web", "links", "login", **{SESSION: "fix-auth"}).code
        created = [kasmon("web", "links", "login") for _ in range(2)]
        kasmon.paths.config.mkdir(parents=True, exist_ok=True)
        kasmon.paths.config_file.write_text('[web]\nlink_url = "https://box.ts.net"\n')
        at_home = kasmon("web", "links", "login", "--json").json["link"]
        kasmon.paths.config_file.write_text('[web]\nlink_url = "https://box.ts.net"\nlink_list = true\n')
        away = kasmon("web", "links", "login", "--json").json["link"]
    logins = WebLogins(kasmon.paths)
    assert [f"http://127.0.0.1:8000/l/{logins.place}/login/"] * 2 == [
        each.out.rpartition("/")[0] + "/" for each in created
    ]
    assert ["http://127.0.0.1:8000/l", "https://box.ts.net/l"] == [
        each["url"].partition(f"/{logins.place}")[0] for each in (at_home, away)
    ]
    first, second, third, fourth = (each.id for each in logins.list_all())
    assert (third, fourth) == (at_home["id"], away["id"])
    assert logins.use(first, "Phone 1", 30, time.time())

    assert f"{first}  login  active" in kasmon("web", "links").out
    assert ["active", *["unused"] * 3] == [each["state"] for each in kasmon("web", "links", "--json").json["logins"]]
    assert "Phone 1" == kasmon("web", "links", "revoke", first, "--json").json["logins"][0]["browser"]
    assert f"{second}  login  revoked\n" in kasmon("web", "links", "revoke", "--all").out
    assert ["revoked"] * 4 == [each["state"] for each in kasmon("web", "links", "--json").json["logins"]]


def test_the_help_of_web_names_its_commands_and_its_options(kasmon: Cli) -> None:
    shown = kasmon("web", "--help").out

    assert "--port" in shown
    assert "links" in shown
    assert "revoke" in kasmon("web", "links", "--help").out
