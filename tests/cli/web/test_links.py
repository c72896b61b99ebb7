"""`kasmon web links`: what links there are, and revoking them."""

import time
from collections.abc import Iterator

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


@pytest.fixture
def line() -> Iterator[Cli]:
    line = Cli()
    yield line
    line.close()


def test_links_are_listed_and_revoked(line: Cli) -> None:
    assert "There are no links.\n" == line("web", "links").out
    links, now = RequestLinks(line.paths), time.time()
    asked = command("fix-auth", "git push")
    tokens = [links.create(asked, minutes, now - 600) for minutes in (15, 15, 15, 5)]
    first, second, used, expired = (token[:12] for token in tokens)
    links.use(used, Decision.ALLOW, now)

    listed = line("web", "links", "--json")
    text = line("web", "links").out

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

    assert f"{first}  {asked.id}  revoked\n" == line("web", "links", "revoke", first).out
    revoked = line("web", "links", "revoke", "--all", "--json").json["links"]
    assert [(second, "revoked")] == [(each["id"], each["state"]) for each in revoked]
    assert "No link was revoked" in line("web", "links", "revoke", "--all").out


def test_what_is_meant_has_to_be_said(line: Cli) -> None:
    for words in ((), ("one", "--all")):
        done = line("web", "links", "revoke", *words)
        assert (2, "") == (done.code, done.out)
        assert "give the id of one link or login, or --all" in done.err
    assert 3 == line("web", "links", "revoke", "unknown").code
    assert not line.paths.request_links.exists()


def test_without_a_server_no_link_is_created_and_an_agent_creates_none(line: Cli) -> None:
    line.new("fix-auth", "ask git push")
    asked = until(lambda: next(iter(line.json("inbox")["requests"]), None))["id"]

    alone = line("web", "links", "create", asked)
    assert 69 == alone.code
    assert "no `kasmon web` runs" in alone.err
    with announced_address(line.paths, "http://127.0.0.1:8000"):
        assert 4 == line("web", "links", "create", asked, **{SESSION: "fix-auth"}).code
        assert 3 == line("web", "links", "create", "unknown-1").code
        created = line("web", "links", "create", asked)
    assert created.out.startswith("http://127.0.0.1:8000/r/")
    assert [asked] == [link.request for link in RequestLinks(line.paths).list_all()]


def test_a_login_is_created_listed_and_revoked(line: Cli) -> None:
    assert 69 == line("web", "links", "login").code
    with announced_address(line.paths, "http://127.0.0.1:8000"):
        assert 4 == line("web", "links", "login", **{SESSION: "fix-auth"}).code
        created = [line("web", "links", "login") for _ in range(2)]
        line.paths.config.mkdir(parents=True, exist_ok=True)
        line.paths.config_file.write_text('[web]\nlink_url = "https://box.ts.net"\n')
        at_home = line("web", "links", "login", "--json").json["link"]
        line.paths.config_file.write_text('[web]\nlink_url = "https://box.ts.net"\nlink_list = true\n')
        away = line("web", "links", "login", "--json").json["link"]
    logins = WebLogins(line.paths)
    assert [f"http://127.0.0.1:8000/l/{logins.place}/login/"] * 2 == [
        each.out.rpartition("/")[0] + "/" for each in created
    ]
    assert ["http://127.0.0.1:8000/l", "https://box.ts.net/l"] == [
        each["url"].partition(f"/{logins.place}")[0] for each in (at_home, away)
    ]
    first, second, third, fourth = (each.id for each in logins.list_all())
    assert (third, fourth) == (at_home["id"], away["id"])
    assert logins.use(first, "Phone 1", 30, time.time())

    assert f"{first}  login  active" in line("web", "links").out
    assert ["active", *["unused"] * 3] == [each["state"] for each in line("web", "links", "--json").json["logins"]]
    assert "Phone 1" == line("web", "links", "revoke", first, "--json").json["logins"][0]["browser"]
    assert f"{second}  login  revoked\n" in line("web", "links", "revoke", "--all").out
    assert ["revoked"] * 4 == [each["state"] for each in line("web", "links", "--json").json["logins"]]


def test_the_help_of_web_names_its_commands_and_its_options(line: Cli) -> None:
    shown = line("web", "--help").out

    assert "--port" in shown
    assert "links" in shown
    assert "revoke" in line("web", "links", "--help").out
