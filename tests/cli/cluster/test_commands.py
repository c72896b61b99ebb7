"""`kasmon cluster` and `kasmon machines join`, by real processes: from nothing to a member and back."""

import asyncio
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.bus.nats.cluster import ClusterFolder
from kasmon.bus.nats.connection import connect
from kasmon.bus.nats.enrolment import revoke
from kasmon.bus.nats.identity import IdentityFile
from kasmon.errors import KasmonError
from tests.support.bus.server_programs import need_server
from tests.support.cli.cli_runner import Cli, Done
from tests.support.cli.fork_server import KASMON, ForkServer
from tests.support.wait import until


@pytest.fixture
def cluster(kasmon: Cli) -> Iterator[Cli]:
    """A cluster of the name `main`, which is down."""
    need_server()
    assert 0 == kasmon("cluster", "init", "--port", "0").code
    yield kasmon
    kasmon("cluster", "down")


def folder(kasmon: Cli) -> Path:
    return kasmon.paths.state / "cluster" / "main"


def test_a_machine_joins_a_new_cluster_and_is_removed(cluster: Cli, tmp_path: Path) -> None:
    there = {"XDG_STATE_HOME": str(tmp_path)}

    up = cluster("cluster", "up", "--no-unit", "--json")
    assert (0, True) == (up.code, up.json["cluster"]["up"]), up.err
    token = cluster("cluster", "token", "--role", "machine", "--name", "gpu-1", "--json").json
    assert ("gpu-1", "machine") == (token["name"], token["role"])
    joined = cluster("machines", "join", token["token"], "--json", **there)
    assert 0 == joined.code, joined.err
    assert {"cluster": "main", "team": "main", "name": "gpu-1", "role": "machine"}.items() <= joined.json[
        "joined"
    ].items()
    second = cluster("machines", "join", token["token"], **there)
    assert 4 == second.code
    assert "this machine is a member of 'main' already, as machine" in second.err

    members = cluster("cluster", "status", "--json").json["cluster"]["members"]
    assert [joined.json["joined"]["public_key"]] == [each["public_key"] for each in members]
    assert "  machine   gpu-1" in cluster("cluster", "status").out
    revoked = cluster("cluster", "revoke", "gpu-1")
    assert (0, "gpu-1: removed as machine of main\n") == (revoked.code, revoked.out)
    assert (0, "main: stopped\n") == ((down := cluster("cluster", "down")).code, down.out)
    assert "main: was not running\n" == cluster("cluster", "down").out
    until(lambda: not cluster("cluster", "status", "--json").json["cluster"]["up"])


def test_revoke_disconnects_members_that_a_killed_revoke_removed_only_from_the_list(cluster: Cli) -> None:
    assert 0 == cluster("cluster", "up", "--no-unit").code
    token = cluster("cluster", "token", "--role", "machine", "--name", "gpu-1").out.strip()
    assert 0 == cluster("machines", "join", token).code
    identity = IdentityFile(cluster.paths, "main", "machine").load()

    async def watch() -> tuple[Done, KasmonError]:
        connection = await connect(identity)
        try:
            await asyncio.to_thread(revoke, ClusterFolder(cluster.paths, "main"), "gpu-1")  # a killed one did no more
            again = await asyncio.to_thread(cluster, "cluster", "revoke", "gpu-1")
            async with asyncio.timeout(20):
                return again, await connection.refusal
        finally:
            await connection.aclose()

    again, refusal = asyncio.run(watch())

    assert 3 == again.code
    assert "has no member 'gpu-1'. Members: none. The server received the change again." in again.err
    assert "it was removed" in refusal.message


def test_a_new_cluster_is_private_and_admits_no_one_without_a_key(cluster: Cli) -> None:
    assert 0o700 == stat.S_IMODE(folder(cluster).stat().st_mode)
    assert {0o600} == {stat.S_IMODE(file.stat().st_mode) for file in folder(cluster).iterdir()}
    text = (folder(cluster) / "server.conf").read_text()
    assert "no_auth_user" not in text
    assert '"handshake_first": true' in text

    again = cluster("cluster", "init")
    assert 4 == again.code
    assert "the cluster 'main' already exists" in again.err


def test_the_unit_is_printed_and_nothing_is_started(cluster: Cli) -> None:
    printed = cluster("cluster", "up", "--print-unit")

    assert 0 == printed.code
    assert '"cluster" "up" "--foreground" "--cluster" "main"' in printed.out
    assert not (cluster.home / "c" / "systemd").exists()
    assert not cluster("cluster", "status", "--json").json["cluster"]["up"]


def test_a_unit_serves_this_machine_to_a_cluster_that_it_joined(cluster: Cli, tmp_path: Path) -> None:
    words = ("bus", "--cluster", "main", "--allow", "see,prompt", "--unit")
    assert 3 == cluster(*words, "print").code
    assert 2 == cluster("bus", "--stdio", "--unit", "print").code
    assert 0 == cluster("cluster", "up", "--no-unit").code
    token = cluster("cluster", "token", "--role", "machine", "--name", "gpu-1").out.strip()
    assert 0 == cluster("machines", "join", token).code
    calls, systemctl = tmp_path / "calls", tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$*" >>{calls}\n')
    systemctl.chmod(0o755)
    with_systemd = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    file = cluster.home / "c" / "systemd/user/kasmon-bus-main.service"

    printed = cluster(*words, "print", **with_systemd)
    assert '"bus" "--cluster=main" "--allow=see,prompt"\n' in printed.out
    assert not file.exists()
    started = cluster(*words, "start", **with_systemd)
    assert (0, printed.out) == (started.code, file.read_text())
    assert "main: served by kasmon-bus-main.service" in started.out
    assert "--user restart kasmon-bus-main.service" in calls.read_text().splitlines()
    assert "main: no longer served by a unit\n" == cluster(*words, "remove", **with_systemd).out
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("init", "--name", "A.b"), 2, "'A.b' is not a valid name for a cluster"),
        (("init", "--host", "a b"), 2, "'a b' is no address and no name of a host"),
        (("init", "--port", "70000"), 2, "70000 is not a valid port"),
        (("init", "--team", "a,a"), 2, "names a team twice"),
        (("init", "--cert", "x.pem"), 2, "--cert and --key belong together"),
        (("init", "--cert", "absent.pem", "--key", "x"), 2, "cannot read certificate 'absent.pem'"),
        (("up",), 3, "there is no cluster 'main' on this machine"),
        (("token", "--role", "machine", "--name", "x", "--cluster", "c2"), 3, "there is no cluster 'c2'"),
        (("revoke", "x"), 3, "`kasmon cluster init` makes one"),
    ],
)
def test_an_impossible_command_gives_the_reason(kasmon: Cli, arguments: tuple[str, ...], code: int, why: str) -> None:
    done = kasmon("cluster", *arguments)

    assert (code, True) == (done.code, why in done.err), done.err


def test_a_given_certificate_is_used(cluster: Cli, tmp_path: Path) -> None:
    """Here the one of another cluster; its authority is given too."""
    given = {name: str(folder(cluster) / name) for name in ("server.pem", "server.key", "ca.pem")}
    arguments = ("--cert", given["server.pem"], "--key", given["server.key"], "--ca", given["ca.pem"])

    made = cluster("cluster", "init", "--name", "second", "--port", "0", *arguments)

    assert 0 == made.code, made.err
    second = folder(cluster).parent / "second"
    assert (folder(cluster) / "server.pem").read_bytes() == (second / "server.pem").read_bytes()
    assert not (second / "ca.key").exists()
    several = cluster("cluster", "status")
    assert (3, True) == (several.code, "this machine has several clusters" in several.err)


def test_an_operator_sees_the_sessions_of_a_machine_and_may_do_as_its_owner_allows(
    cluster: Cli, fork_server: ForkServer
) -> None:
    assert 0 == cluster("cluster", "up", "--no-unit").code
    there = Cli(fork_server)
    serving = None
    try:
        for name, role, line in (("gpu-1", "machine", there), ("otto", "operator", cluster)):
            token = cluster("cluster", "token", "--role", role, "--name", name, "--json").json["token"]
            assert 0 == line("machines", "join", token).code
        none = cluster("machines", "add", "gpu-1", "--cluster", "main")
        assert (69, True) == (none.code, "it is not connected" in none.err), none.err
        serving = subprocess.Popen([*KASMON, "bus", "--cluster", "main"], env=there.environment, cwd=there.home)
        session = there.new("docs")

        until(lambda: cluster("machines", "add", "gpu-1", "--cluster", "main").code == 0)

        assert "gpu-1  connected" in cluster("machines", "show", "gpu-1").out
        rows = until(lambda: cluster("ls", "--json").json["sessions"])
        assert [("docs", session)] == [(row["name"], row["id"]) for row in rows]
        refused = cluster("send", "docs", "hello")
        assert 4 == refused.code, refused.err
        assert "main" == cluster("machines", "show", "gpu-1", "--json").json["machine"]["cluster"]
        assert 2 == cluster("machines", "add", "x").code
        cluster("cluster", "revoke", "gpu-1")
        assert 4 == serving.wait(30)
    finally:
        cluster("machines", "rm", "gpu-1")
        if serving is not None and serving.poll() is None:
            serving.terminate()
            serving.wait()
        there.close()
