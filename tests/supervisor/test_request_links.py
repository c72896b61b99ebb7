"""`link_of`: a link to the `kasmon web` that runs, or none."""

from kasmon.config.schema import WebConfig
from kasmon.store.request_links import RequestLinks
from kasmon.supervisor.request_links import announced_address, link_of, served_address
from tests.support.sample_fleet import NOW, command
from tests.support.supervisor.env import Env

ASKED = command("fix-auth", "git push")
HERE = "http://127.0.0.1:8000"


def test_a_link_leads_to_the_running_server_and_without_one_no_link_is_made(env: Env) -> None:
    with announced_address(env.paths, HERE) as is_ours:
        assert is_ours
        link = link_of(env.paths, WebConfig(link_minutes=5), ASKED, NOW)
    address, token = link.split("/r/")
    [record] = RequestLinks(env.paths).list_all()

    assert HERE == address
    assert record == RequestLinks(env.paths).find(token)
    assert NOW + 300 == record.expires_at
    assert "" == link_of(env.paths, WebConfig(), ASKED, NOW)
    assert "" == link_of(env.paths, WebConfig(link_url="https://box.example"), ASKED, NOW)
    assert 1 == len(RequestLinks(env.paths).list_all())


def test_outside_of_this_machine_the_configured_address_is_used(env: Env) -> None:
    with announced_address(env.paths, HERE):
        link = link_of(env.paths, WebConfig(link_url="https://box.example:8443"), ASKED, NOW)

    assert link.startswith("https://box.example:8443/r/")


def test_the_first_of_two_servers_is_linked(env: Env) -> None:
    with announced_address(env.paths, HERE), announced_address(env.paths, "http://127.0.0.1:9") as is_ours:
        assert not is_ours
        assert HERE == served_address(env.paths)
    assert "" == served_address(env.paths)
