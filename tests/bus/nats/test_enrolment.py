"""Joining a cluster with a token and being removed from it, with the real service and its server."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.bus.nats import process
from kasmon.bus.nats.cluster import ClusterFolder, Role
from kasmon.bus.nats.connection import Connection, connect
from kasmon.bus.nats.enrolment import (
    JoinRequest,
    admit,
    decode_join_token,
    join,
    make_join_token,
    proof_content,
    revoke,
    withdraw,
)
from kasmon.bus.nats.identity import Identity, IdentityFile
from kasmon.bus.nats.keys import make_seed, public_key, sign
from kasmon.bus.nats.server_config import ROSTER_KEY
from kasmon.bus.nats.service import apply_changes, service_identity
from kasmon.bus.nats.signatures import CommandRefusedError, CommandVerifier, RemoteCommand, make_nonce, sign_command
from kasmon.bus.nats.subjects import enrolment_subject, subject
from kasmon.errors import KasmonError, NotFoundError, RefusedError, UsageError
from kasmon.paths import Paths
from tests.support.bus.cluster_service import ClusterUp
from tests.support.wait import auntil, until


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUp]:
    cluster = ClusterUp(tmp_path_factory.mktemp("up"))
    try:
        cluster.start()
        cluster.wait()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def folder(up: ClusterUp) -> ClusterFolder:
    return up.folder


def other_machine(path: Path) -> Paths:
    return Paths(state=path, config=path)


def make_token(folder: ClusterFolder, name: str, role: Role = "machine", team: str = "main", minutes: float = 5) -> str:
    text = make_join_token(folder, name, role, team, minutes, folder.key(ROSTER_KEY))
    assert asyncio.run(apply_changes(folder))
    return text


def names(folder: ClusterFolder) -> set[str]:
    return {member.name for member in folder.load().members}


def remove(folder: ClusterFolder, name: str) -> None:
    revoke(folder, name)
    assert asyncio.run(apply_changes(folder))


def test_a_machine_joins_with_a_key_that_stays_there(folder: ClusterFolder, tmp_path: Path) -> None:
    text, there = make_token(folder, "gpu-1"), other_machine(tmp_path)

    joined = asyncio.run(join(there, text))

    stored = IdentityFile(there, "c1", "machine")
    assert joined == stored.load()
    assert 0o600 == stat.S_IMODE(stored.path.stat().st_mode)
    assert ("gpu-1", "machine", "main") == (joined.name, joined.role, joined.team)
    (member,) = [each for each in folder.load().members if each.name == "gpu-1"]
    assert joined.public_key == member.public_key
    here = b"".join(file.read_bytes() for file in folder.path.rglob("*") if file.is_file())
    for secret in (joined.seed, decode_join_token(text).seed):
        assert secret.encode() not in here
    until(lambda: "gpu-1" not in {each.name for each in folder.load().tokens}, what="the end of the used token")


async def use(identity: Identity) -> None:
    """Publish an event as that machine."""
    machine = await connect(identity, now=time.time)
    try:
        await machine.publish(subject("c1", "ev", identity.name, "s1"), b"event")
    finally:
        await machine.aclose()


def test_a_machine_that_joined_may_publish_at_once(folder: ClusterFolder, tmp_path: Path) -> None:
    asyncio.run(use(asyncio.run(join(other_machine(tmp_path), make_token(folder, "gpu-2")))))


def test_a_token_admits_one_machine_only_even_when_two_use_it_at_once(folder: ClusterFolder, tmp_path: Path) -> None:
    text = make_token(folder, "once")

    async def race() -> list[Identity | BaseException]:
        machines = [other_machine(tmp_path / str(number)) for number in range(3)]
        return await asyncio.gather(*(join(each, text) for each in machines), return_exceptions=True)

    results = asyncio.run(race())

    joined = [each for each in results if isinstance(each, Identity)]
    assert 1 == len(joined), results
    assert all(isinstance(each, Identity | RefusedError) for each in results), results
    assert [joined[0].public_key] == [each.public_key for each in folder.load().members if each.name == "once"]
    with pytest.raises(RefusedError, match="used already, or has expired"):
        asyncio.run(join(other_machine(tmp_path / "late"), text))


def test_an_expired_token_admits_no_one(folder: ClusterFolder, tmp_path: Path) -> None:
    text = make_token(folder, "late", minutes=1e-9)

    with pytest.raises(RefusedError, match=r"used already, or has expired.*kasmon cluster token"):
        asyncio.run(join(other_machine(tmp_path), text))
    assert "late" not in names(folder)


def test_a_withdrawn_token_admits_no_one(folder: ClusterFolder, tmp_path: Path) -> None:
    text = make_token(folder, "withdrawn")
    remove(folder, "withdrawn")

    with pytest.raises(RefusedError, match="used already, or has expired"):
        asyncio.run(join(other_machine(tmp_path), text))


def test_a_token_gives_the_right_to_ask_and_no_other(folder: ClusterFolder) -> None:
    token, other = decode_join_token(make_token(folder, "asks")), make_token(folder, "victim")
    identity = token_identity(token.seed, folder)

    async def attempt() -> None:
        holder = await connect(identity)
        try:
            for refused in (
                enrolment_subject("c1", public_key(decode_join_token(other).seed)),
                subject("c1", "ev", "asks", "s1"),
                "$JS.API.INFO",
                "$SYS.REQ.SERVER.PING",
            ):
                with pytest.raises(RefusedError, match="may not send"):
                    await holder.request(refused, b"x", timeout_s=30)
        finally:
            await holder.aclose()

    asyncio.run(attempt())
    remove(folder, "asks")
    remove(folder, "victim")


def token_identity(seed: str, folder: ClusterFolder) -> Identity:
    cluster = folder.load()
    return Identity(
        cluster="c1",
        team="main",
        name="holder",
        role=None,
        host=cluster.host,
        port=cluster.port,
        tls_name=cluster.tls_name,
        ca=folder.ca.read_text(),
        cluster_key=folder.key(ROSTER_KEY),
        seed=seed,
    )


def test_a_request_that_is_not_signed_with_the_new_key_admits_no_one(folder: ClusterFolder) -> None:
    token = public_key(decode_join_token(make_token(folder, "forged")).seed)
    mine, victim = make_seed(), public_key(make_seed())

    def ask(key: str, content: bytes) -> str:
        return admit(folder, token, msgspec.json.encode(JoinRequest(key, sign(mine, content)))).refusal

    assert "not signed with the new key" in ask(victim, proof_content("c1", token, victim))
    assert "not signed with the new key" in ask(public_key(mine), proof_content("c2", token, public_key(mine)))
    assert "not signed with the new key" in ask("x\n", proof_content("c1", token, "x\n"))
    assert "cannot be read" in admit(folder, token, b"{}").refusal
    assert (
        "used already"
        in admit(
            folder,
            victim,
            msgspec.json.encode(
                JoinRequest(public_key(mine), sign(mine, proof_content("c1", victim, public_key(mine))))
            ),
        ).refusal
    )
    assert "forged" not in names(folder)
    remove(folder, "forged")


def test_a_token_is_open_again_if_the_server_could_not_be_notified(folder: ClusterFolder) -> None:
    token, mine = public_key(decode_join_token(make_token(folder, "retries")).seed), make_seed()
    key = public_key(mine)
    asked = msgspec.json.encode(JoinRequest(key, sign(mine, proof_content("c1", token, key))))
    assert "" == admit(folder, token, asked).refusal

    withdraw(folder, token)

    assert "retries" not in names(folder)
    assert "" == admit(folder, token, asked).refusal
    assert "retries" in names(folder)
    remove(folder, "retries")


def test_a_later_machine_of_the_same_name_finds_nothing_of_the_removed_one(
    folder: ClusterFolder, tmp_path: Path
) -> None:
    asyncio.run(use(asyncio.run(join(other_machine(tmp_path / "1"), make_token(folder, "reused")))))
    remove(folder, "reused")
    asyncio.run(join(other_machine(tmp_path / "2"), make_token(folder, "reused")))

    async def count() -> int:
        service = await connect(await asyncio.to_thread(service_identity, folder, "main.data"))
        info = json.loads((await service.request("$JS.API.STREAM.INFO.ev_reused", b"")).data)
        await service.aclose()
        return int(info["state"]["messages"])

    assert 0 == asyncio.run(count())


def test_a_name_is_one_member_s(folder: ClusterFolder, tmp_path: Path) -> None:
    asyncio.run(join(other_machine(tmp_path), make_token(folder, "taken")))

    with pytest.raises(RefusedError, match=r"'taken' is a machine already.*kasmon cluster revoke taken"):
        make_token(folder, "taken")
    make_token(folder, "open")
    with pytest.raises(RefusedError, match="'open' has an open token"):
        make_token(folder, "open")
    for name in ("a.b", "*", ">", "a b", "Ä", ""):
        with pytest.raises(UsageError, match="is not a valid name"):
            make_token(folder, name)
    with pytest.raises(NotFoundError, match="there is no team 'x'"):
        make_token(folder, "x", team="x")
    with pytest.raises(NotFoundError, match=r"has no member 'absent'.*taken"):
        revoke(folder, "absent")


def test_a_team_without_space_admits_no_machine(folder: ClusterFolder, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"'small' has no storage for another machine.*kasmon cluster limit"):
        asyncio.run(join(other_machine(tmp_path), make_token(folder, "m", team="small")))


@pytest.mark.parametrize("text", ["", "kasmon1_", "kasmon1_AAAA", "x", "kasmon1_é", "kasmon1_" + "A" * 50])
def test_an_invalid_token_is_refused_with_how_to_get_one(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a whole token.*kasmon cluster token"):
        asyncio.run(join(other_machine(tmp_path), text))


def test_only_the_removed_operator_is_disconnected(folder: ClusterFolder, tmp_path: Path) -> None:
    roles: dict[str, Role] = {"olga": "operator", "otto": "operator", "host-1": "machine"}
    members = {
        name: asyncio.run(join(other_machine(tmp_path / name), make_token(folder, name, role)))
        for name, role in roles.items()
    }

    async def watch() -> KasmonError:
        lost: list[str] = []

        async def connected(name: str) -> Connection:
            async def note() -> None:
                lost.append(name)

            return await connect(members[name], lost=note)

        otto, olga, host = [await connected(name) for name in ("otto", "olga", "host-1")]
        verifier = CommandVerifier("c1", "main", host.identity.cluster_key, "host-1", "e1")
        verifier.update_roster(host.roster_message)
        verifier.verify(command(members["otto"]), time.time())

        await asyncio.to_thread(revoke, folder, "otto")
        assert await apply_changes(folder)
        error = await _result(otto)
        await host.read_roster()
        verifier.update_roster(host.roster_message)
        with pytest.raises(CommandRefusedError, match="no operator"):
            verifier.verify(command(members["otto"]), time.time())
        verifier.verify(command(members["olga"]), time.time())
        assert ["otto"] == lost
        assert olga.client.is_connected
        for each in (otto, olga, host):
            await each.aclose()
        return error

    error = asyncio.run(watch())

    assert isinstance(error, RefusedError)
    assert "does not know 'otto': it was removed" in error.message
    with pytest.raises(RefusedError, match="was removed"):
        asyncio.run(use(members["otto"]))


async def _result(connection: Connection) -> KasmonError:
    async with asyncio.timeout(60):
        return await connection.refusal


def command(identity: Identity) -> bytes:
    made = RemoteCommand(cluster="c1", machine="host-1", epoch="e1", verb="answer", nonce=make_nonce(), at=time.time())
    return sign_command(identity.seed, made)


def test_members_stay_connected_while_another_one_joins(folder: ClusterFolder, tmp_path: Path) -> None:
    first = asyncio.run(join(other_machine(tmp_path / "1"), make_token(folder, "stays")))
    text = make_token(folder, "comes")

    async def watch() -> list[str]:
        lost: list[str] = []

        async def note() -> None:
            lost.append("lost")

        machine = await connect(first, lost=note)
        await join(other_machine(tmp_path / "2"), text)
        await machine.publish(subject("c1", "ev", "stays", "s1"), b"event")
        await machine.aclose()
        return lost

    assert [] == asyncio.run(watch())


def test_a_second_service_is_refused(up: ClusterUp, tmp_path: Path) -> None:
    done = subprocess.run(
        process.service_command("c1"),
        env={**os.environ, **up.paths.environment_variables()},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 4 == done.returncode
    assert "the cluster 'c1' is up already" in done.stderr


def test_the_server_comes_back_after_it_was_killed_and_members_with_it(folder: ClusterFolder, tmp_path: Path) -> None:
    joined = asyncio.run(join(other_machine(tmp_path), make_token(folder, "survives")))

    async def watch() -> None:
        machine = await connect(joined)
        before = await asyncio.to_thread(process.read_server, folder)
        assert before is not None
        os.kill(before.pid, signal.SIGKILL)
        await auntil(lambda: not machine.client.is_connected)
        await auntil(lambda: machine.client.is_connected)
        await machine.publish(subject("c1", "ev", "survives", "s1"), b"event")
        await machine.aclose()

    asyncio.run(watch())
    until(lambda: (server := process.read_server(folder)) is not None and server.is_ready)


def test_the_service_comes_back_after_it_was_killed_and_ends_the_server_that_it_left(
    up: ClusterUp, tmp_path: Path
) -> None:
    folder = up.folder
    pid, server = process.service_pid(folder), process.read_server(folder)
    assert pid
    assert server is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: process.service_pid(folder) is None)
    assert server.is_running(), "members can still use the server"

    up.start()
    until(lambda: (now := process.read_server(folder)) is not None and now.is_ready and now.pid != server.pid)

    assert not server.is_running()
    asyncio.run(use(asyncio.run(join(other_machine(tmp_path), make_token(folder, "again")))))


def test_a_stopped_cluster_leaves_no_process(up: ClusterUp) -> None:
    server = process.read_server(up.folder)
    assert server is not None

    assert process.stop_service(up.folder)

    assert (None, None, False) == (
        process.service_pid(up.folder),
        process.read_server(up.folder),
        server.is_running(),
    )
    assert not process.stop_service(up.folder)
    up.start()
    up.wait()
