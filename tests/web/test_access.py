"""The wrong ways in: each is refused, and comes in as soon as the guard against it is taken out."""

import ipaddress
from hmac import compare_digest

import psutil
import pytest

from kasmon.errors import UsageError
from kasmon.web import access as gates
from kasmon.web.access import AccessGuard, AccessRequest, loopback
from tests.support.web.web_server import UPGRADE, Served

EVIL = "http://evil.example"


def ways(served: Served) -> dict[str, tuple[str, dict[str, str], dict[str, object]]]:
    """Each wrong way in: path, headers, and what the gate would have to be told in their place."""
    page, good, here = served.path, served.cookie, f"http://{served.host}"
    own, cookie = (served.host,), good["Cookie"].partition("=")[2]
    link = served.link().rpartition("=")[2]
    socket_of_a_page = {**UPGRADE, **good}
    return {
        "a foreign name that leads here": (page, {**good, "Host": f"evil.example:{served.view.port}"}, {"hosts": own}),
        "a foreign page": (page, {**good, "Origin": EVIL}, {"origins": ()}),
        "no token": (page, {}, {"cookie": cookie}),
        "a wrong token": (f"{page}?t=wrong", {}, {"link": link}),
        "a wrong cookie": (page, {"Cookie": "kasmon=wrong"}, {"cookie": cookie}),
        "a foreign page's socket": (
            f"{page}ws?width=80&height=24",
            {**socket_of_a_page, "Origin": EVIL},
            {"origins": (here,)},
        ),
        "a socket of nobody's page": (f"{page}ws", socket_of_a_page, {"origins": (here,)}),
        "a socket without a token": (f"{page}ws", {**UPGRADE, "Origin": here}, {"cookie": cookie}),
    }


WAYS = [
    *("a foreign name that leads here", "a foreign page", "no token", "a wrong token", "a wrong cookie"),
    *("a foreign page's socket", "a socket of nobody's page", "a socket without a token"),
]


@pytest.mark.parametrize("way", WAYS)
def test_an_invalid_request_is_refused_by_its_guard(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Served() as served:
        path, headers, good = ways(served)[way]

        refused = served.ask(path, headers)

        assert 403 == refused.status
        assert refused.body.startswith("kasmon: ")
        assert set() == served.view.dashboards
        served.taken_in(monkeypatch, **good)
        assert (101 if "Upgrade" in headers else 200) == served.ask(path, headers).status


def test_a_valid_request_has_the_link_then_the_cookie() -> None:
    with Served() as served:
        entered = served.ask(served.link())

        assert 200 == entered.status
        assert 'content="0; url=./"' in entered.body
        given, *kind = entered.headers["Set-Cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict", f"Path={served.path}"} == set(kind)
        assert "textual.js" in served.ask(served.path, {"Cookie": given}).body
        here = {"Origin": f"http://{served.host}", "Cookie": given}
        assert 101 == served.ask(f"{served.path}ws?width=80&height=24", {**UPGRADE, **here}).status


def test_no_other_address_of_this_machine_listens() -> None:
    """`kasmon web --address 0.0.0.0` is refused; and who comes by another address finds nobody."""
    with Served() as served:
        me = psutil.Process().net_connections("tcp")
        listening = {(at.laddr.ip, at.laddr.port) for at in me if at.status == psutil.CONN_LISTEN}

        assert ("127.0.0.1", served.view.port) in listening
        assert {"127.0.0.1"} == {ip for ip, port in listening if port == served.view.port}


@pytest.mark.parametrize(
    "address", ["0.0.0.0", "::", "192.168.1.7", "10.0.0.1", "example.org", "", "127.0.0.1.evil.example", "169.254.0.1"]
)
def test_an_address_that_others_could_reach_is_refused_with_the_alternative(address: str) -> None:
    with pytest.raises(UsageError, match=r"on this machine only.*ssh -t -L 8000:127.0.0.1:8000"):
        loopback(address)


def test_only_that_check_refuses_other_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipaddress.IPv4Address, "is_loopback", True)

    assert "0.0.0.0" == gates.loopback("0.0.0.0")


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("127.1.2.3", "127.1.2.3"),
        ("::1", "::1"),
        ("[::1]", "::1"),
    ],
)
def test_an_address_of_this_machine_is_accepted(address: str, meant: str) -> None:
    assert meant == loopback(address)


def asked(access_guard: AccessGuard, **more: object) -> AccessRequest:
    known = min(access_guard._cookies) if access_guard._cookies else ""
    fields: dict[str, object] = {"path": f"/{access_guard.folder}/", "hosts": ["127.0.0.1:8000"], "cookie": known}
    return AccessRequest(**(fields | more))  # type: ignore[arg-type]  # a test's own fields


@pytest.fixture
def access_guard() -> AccessGuard:
    """One that let a browser in before."""
    access_guard = AccessGuard("127.0.0.1", 8000)
    access_guard.change()
    return access_guard


def token(link: str) -> str:
    return link.rpartition("=")[2]


def test_a_link_opens_once(access_guard: AccessGuard) -> None:
    link = token(access_guard.create_link())
    assert None is access_guard.refusal(asked(access_guard, link=link, cookie=""))

    cookie = access_guard.change()

    assert None is access_guard.refusal(asked(access_guard, cookie=cookie))
    refused = access_guard.refusal(asked(access_guard, link=link, cookie=""))
    assert refused
    assert "this link is unknown or already used" in refused.why


def test_a_new_link_replaces_the_one_before(access_guard: AccessGuard) -> None:
    old, new = token(access_guard.create_link()), token(access_guard.create_link())

    assert access_guard.refusal(asked(access_guard, link=old))
    assert None is access_guard.refusal(asked(access_guard, link=new))


def test_a_link_that_the_browser_only_guessed_is_not_used_up() -> None:
    with Served() as served:
        link = served.link()

        assert 403 == served.ask(link, {"Sec-Purpose": "prefetch;prerender"}).status
        assert 405 == served.ask(link, method="HEAD").status
        assert 403 == served.ask(link, {"Host": "evil.example"}).status
        assert 200 == served.ask(link).status


def test_without_a_link_no_token_is_accepted(access_guard: AccessGuard) -> None:
    assert access_guard.refusal(asked(access_guard, link="", cookie=""))
    assert access_guard.refusal(asked(access_guard, link="None", cookie=""))


@pytest.mark.parametrize(
    "more",
    [
        {"hosts": []},
        {"hosts": ["127.0.0.1:8000", "127.0.0.1:8000"]},
        {"hosts": ["127.0.0.1"]},
        {"hosts": ["127.0.0.1:8001"]},
        {"hosts": ["127.0.0.1:8000.evil.example"]},
        {"hosts": ["localhost:8000@evil.example"]},
        {"origins": ["null"]},
        {"origins": ["http://127.0.0.1:8001"]},
        {"origins": ["https://127.0.0.1:8000"]},
        {"origins": ["http://localhost:8000"]},
        {"origins": ["http://127.0.0.1:8000", EVIL]},
        {"sites": ["same-site"]},
        {"sites": ["none", "cross-site"]},
        {"cookie": "é\udcff"},
        {"cookie": ""},
        {"path": "/"},
        {"path": "/elsewhere/"},
        {"path": "/é\udcff/"},
        {"path": ""},
        {"method": "POST"},
        {"link": "é\udcff"},
        {"link": ""},
    ],
    ids=str,
)
def test_a_request_that_differs_in_one_header_is_refused(access_guard: AccessGuard, more: dict[str, object]) -> None:
    access_guard.create_link()

    assert None is access_guard.refusal(asked(access_guard))
    assert access_guard.refusal(asked(access_guard, **more))


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LocalHost:8000"])
def test_both_names_of_this_machine_are_accepted(access_guard: AccessGuard, host: str) -> None:
    assert None is access_guard.refusal(asked(access_guard, hosts=[host], origins=[f"http://{host}"], is_socket=True))


def test_on_the_port_that_browsers_leave_out_the_name_alone_is_ours() -> None:
    access_guard = AccessGuard("::1", 80)
    access_guard.change()

    assert None is access_guard.refusal(asked(access_guard, hosts=["[::1]"]))
    assert access_guard.create_link().startswith("http://[::1]:80/")


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch, access_guard: AccessGuard) -> None:
    compared: list[bytes] = []

    def compare(given: bytes, wanted: bytes) -> bool:
        compared.append(wanted)
        return compare_digest(given, wanted)

    monkeypatch.setattr(gates, "compare_digest", compare)
    link = token(access_guard.create_link())

    access_guard.refusal(asked(access_guard))
    access_guard.refusal(asked(access_guard, link="wrong"))

    assert {access_guard.folder.encode(), *map(str.encode, access_guard._cookies), link.encode()} == set(compared)


def test_a_link_fits_in_a_line_of_80_columns() -> None:
    """A terminal that wraps it may take half of it for the link."""
    assert len(AccessGuard("127.0.0.1", 65535).create_link()) < 80


def test_two_web_views_share_no_secret() -> None:
    one, other = AccessGuard("127.0.0.1", 8000), AccessGuard("127.0.0.1", 8001)

    assert 6 == len({one.folder, one.change(), one.create_link(), other.folder, other.change(), other.create_link()})
    assert min(len(one.change()), len(token(one.create_link()))) >= 43


def test_each_browser_has_its_own_cookie_and_each_can_be_revoked_alone(access_guard: AccessGuard) -> None:
    one, other = access_guard.change(), access_guard.change()
    access_guard.revoke(one)

    assert access_guard.refusal(asked(access_guard, cookie=one))
    assert None is access_guard.refusal(asked(access_guard, cookie=other))
    access_guard.revoke()
    assert access_guard.refusal(asked(access_guard, cookie=other))
    assert None is access_guard.refusal(asked(access_guard, cookie=access_guard.change()))


LOG_OUT = {"method": "POST", "origins": ["http://127.0.0.1:8000"]}


@pytest.mark.parametrize(
    "more",
    [
        {"method": "GET"},
        {"origins": []},
        {"origins": [EVIL]},
        {"sites": ["cross-site"]},
        {"cookie": ""},
        {"hosts": ["evil.example"]},
        {"link": "x", "cookie": ""},
    ],
    ids=str,
)
def test_only_the_page_itself_can_log_out(access_guard: AccessGuard, more: dict[str, object]) -> None:
    path = f"/{access_guard.folder}/logout"

    assert None is access_guard.refusal(asked(access_guard, path=path, **LOG_OUT))
    assert access_guard.refusal(asked(access_guard, path=path, **(LOG_OUT | more)))
    assert access_guard.refusal(asked(access_guard, path=f"/{access_guard.folder}/", **LOG_OUT))
    link = access_guard.create_link().rpartition("=")[2]
    assert access_guard.refusal(asked(access_guard, path=path, link=link, **(LOG_OUT | {"cookie": ""}))), (
        "a link logs nobody out"
    )
