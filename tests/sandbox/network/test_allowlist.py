"""A sandbox's list of hosts, and what a wish meets there."""

import pytest

from kasmon.errors import UsageError
from kasmon.sandbox.network.allowlist import PRESETS, address_fault, allowlist, entry_for, judge


@pytest.mark.parametrize(
    ("listed", "host", "port"),
    [
        ("example.org", "example.org", 443),
        ("example.org", "example.org", 80),
        ("example.org", "EXAMPLE.org.", 443),
        ("example.org:8443", "example.org", 8443),
        ("*.example.org", "a.example.org", 443),
        ("*.example.org", "a.b.example.org", 443),
        ("private:localhost:5000", "localhost", 5000),
        ("bücher.example", "xn--bcher-kva.example", 443),
        ("pypi", "pypi.org", 443),
    ],
)
def test_hosts_that_an_entry_names_are_reachable(listed: str, host: str, port: int) -> None:
    assert judge(allowlist([listed]), host, port).allowed


@pytest.mark.parametrize(
    ("listed", "host", "port", "why"),
    [
        ("example.org", "evil.example", 443, "evil.example:443 is not on the list"),
        ("example.org", "a.example.org", 443, "not on the list"),
        ("example.org", "example.org.evil.example", 443, "not on the list"),
        ("example.org", "notexample.org", 443, "not on the list"),
        ("*.example.org", "example.org", 443, "not on the list"),
        ("*.example.org", "badexample.org", 443, "not on the list"),
        ("example.org", "example.org", 22, "not its port 22"),
        ("example.org:8443", "example.org", 443, "not its port 443"),
        ("pypi", "pypi.org", 80, "not its port 80"),
        ("example.org", "93.184.216.34", 443, "not by addresses"),
        ("example.org", "[::1]", 443, "not by addresses"),
        ("example.org", "127.1", 443, "not by addresses"),
        ("example.org", "2130706433", 443, "not by addresses"),
        ("example.org", "0x7f000001", 443, "not by addresses"),
        ("example.org", "169.254.169.254.", 80, "not by addresses"),
        ("example.org", "exam ple.org", 443, "that is not a host name"),
        ("example.org", "example.org\0.evil.example", 443, "that is not a host name"),
        ("example.org", "", 443, "that is not a host name"),
        ("example.org", "a" * 64 + ".org", 443, "that is not a host name"),
        ("example.org", "example.org..", 443, "that is not a host name"),
    ],
)
def test_other_hosts_are_refused_with_the_reason(listed: str, host: str, port: int, why: str) -> None:
    verdict = judge(allowlist([listed]), host, port)

    assert not verdict.allowed
    assert why in verdict.why


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.org",
        "a.*.org",
        "localhost",
        "intranet",
        "10.0.0.1",
        "[::1]:443",
        "::1",
        "private:127.0.0.1",
        "example.org:0",
        "example.org:65536",
        "example.org:x",
        "example.org:",
        "https://example.org",
        "example.org/x",
    ],
)
def test_an_entry_that_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be allowed"):
        allowlist([text])


def test_every_preset_is_a_list_of_hosts_on_the_port_of_tls() -> None:
    assert {"npm", "pypi", "github"} == set(PRESETS)
    assert {443} == {entry.port for entry in allowlist(PRESETS)}


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
        "::1",
        "fd00::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::1",
    ],
)
def test_a_name_that_leads_into_a_private_network_is_refused(address: str) -> None:
    assert "private:HOST" in address_fault(address, private=False)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "100.64.0.1", "::1", "fd00::1", "::ffff:10.0.0.1"])
def test_an_entry_may_allow_a_private_address(address: str) -> None:
    assert "" == address_fault(address, private=True)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1%eth0",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "::ffff:169.254.169.254",
        "2001::1",
        "64:ff9b::a9fe:a9fe",
        "nonsense",
        "240.0.0.1",
    ],
)
def test_no_entry_leads_to_where_machines_talk_about_themselves(address: str) -> None:
    assert address_fault(address, private=True)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_any_other_address_is_decided_by_the_list(address: str) -> None:
    assert "" == address_fault(address, private=False)


def test_the_user_gets_the_command_to_type() -> None:
    """Each is an entry of a list that allows just this."""
    assert "example.org" == entry_for("example.org", 443)
    assert "example.org:8443" == entry_for("example.org", 8443)
    assert "private:localhost:48081" == entry_for("localhost", 48081)
    assert "private:shop.example:8443" == entry_for("shop.example", 8443, private=True)
    for host, port in (("localhost", 48081), ("example.org", 443)):
        assert judge(allowlist([entry_for(host, port)]), host, port).allowed
