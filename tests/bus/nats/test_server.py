"""Which `nats-server` runs a cluster: one that is new enough, from PATH or from the package."""

import os
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import msgspec
import pytest

from kasmon.bus.nats import server
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.peer import PeerServer
from kasmon.bus.nats.server import ServerProgram, check_configuration, find_server, is_new_enough, read_version
from kasmon.errors import NotFoundError, UnavailableError
from tests.support.bus.cluster_server import ClusterServer
from tests.support.bus.server_programs import need_server

MEMBER = Identity(
    cluster="c1",
    team="main",
    name="ann",
    role="operator",
    host="127.0.0.1",
    port=1,
    tls_name="",
    ca="",
    cluster_key="",
    seed="",
)


def program(folder: Path, version: str) -> str:
    """A program that prints *version* as nats-server does."""
    file = folder / f"nats-server-{version}"
    file.write_text(f"#!/bin/sh\necho 'nats-server: v{version}'\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("version", "is_new"),
    [
        ("2.11.0", True),
        ("2.15.1", True),
        ("3.0.0", True),
        ("2.10.29", False),
        ("2.9.10", False),
        ("", False),
        ("x", False),
    ],
)
def test_a_server_needs_version_2_11(version: str, is_new: bool) -> None:
    assert is_new == is_new_enough(version)


def test_an_older_server_is_refused_with_the_missing_features(tmp_path: Path) -> None:
    old, broken = program(tmp_path, "2.9.10"), str(tmp_path / "absent")

    with pytest.raises(UnavailableError) as refused:
        find_server([old, broken])

    assert f"nats-server is too old: {old!r} is version 2.9.10, {broken!r} is version unknown" in refused.value.message
    assert "no expiry of single keys and no delete markers" in refused.value.message
    assert "`pipx install --force '.[nats-server]'` in kasmon's clone" in refused.value.hint


def test_without_a_server_the_error_shows_how_to_get_one() -> None:
    with pytest.raises(UnavailableError, match=r"not installed or not on PATH.*install --force '\.\[nats-server\]"):
        find_server([])


def test_the_first_server_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    programs = [program(tmp_path, version) for version in ("2.9.10", "2.11.3", "2.15.1")]

    found = find_server(programs)

    assert (programs[1], "2.11.3") == (found.path, found.version)


def test_the_server_of_the_package_is_found_though_an_old_one_is_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_server()
    (tmp_path / "nats-server").symlink_to(program(tmp_path, "2.9.10"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    assert is_new_enough(read_version(find_server().path))


def test_a_configuration_that_the_server_refuses_is_refused_with_its_reason(tmp_path: Path) -> None:
    faulty = tmp_path / "server.conf"
    faulty.write_text('{"listen": "127.0.0.1:-1", "no_such_setting": true}')

    assert "no_such_setting" in check_configuration(need_server(), faulty)
    assert "no such file" in check_configuration(ServerProgram(need_server().path, ""), tmp_path / "absent")


@pytest.mark.parametrize("content", [b"", b"{}", msgspec.json.encode(MEMBER)], ids=["empty", "no member", "a person"])
def test_a_folder_that_is_not_of_a_server_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "peer.json").write_bytes(content)

    with pytest.raises(NotFoundError, match="is no folder of a server"):
        PeerServer(tmp_path, ServerProgram("nats-server", ""))


def test_without_a_server_a_test_is_skipped_with_the_reason_and_fails_where_one_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server, "distribution", find_nothing)
    monkeypatch.delenv("KASMON_REQUIRE_NATS_SERVER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="'nats-server' is not installed or not on PATH"):
        ClusterServer(tmp_path)

    monkeypatch.setenv("KASMON_REQUIRE_NATS_SERVER", "1")
    with pytest.raises(pytest.fail.Exception, match=r"not on PATH.*KASMON_REQUIRE_NATS_SERVER asks for one"):
        ClusterServer(tmp_path)
