"""Which commands a machine executes: signed by an operator, for this machine and this run of it, once, and in time."""

import msgspec
import pytest

from kasmon.bus.nats import signatures
from kasmon.bus.nats.cluster import Member, Role
from kasmon.bus.nats.keys import make_seed, public_key, sign
from kasmon.bus.nats.signatures import (
    COMMAND_S,
    ROSTER_S,
    CommandRefusedError,
    CommandVerifier,
    RemoteCommand,
    Roster,
    SignedEnvelope,
    make_nonce,
    sign_command,
    sign_roster,
)

NOW = 1_800_000_000.0
CLUSTER, OTTO, OLGA, VERA, STRANGER = (make_seed() for _ in range(5))


def member(name: str, role: Role, seed: str) -> Member:
    return Member(name, role, "main", public_key(seed), NOW)


MEMBERS = (member("otto", "operator", OTTO), member("olga", "operator", OLGA), member("vera", "viewer", VERA))


def roster(at: float = NOW, members: tuple[Member, ...] = MEMBERS, seed: str = CLUSTER, team: str = "main") -> bytes:
    return sign_roster(seed, Roster(cluster="c1", team=team, members=members, signed_at=at))


def verifier(machine: str = "m1", epoch: str = "e1") -> CommandVerifier:
    made = CommandVerifier("c1", "main", public_key(CLUSTER), machine, epoch)
    made.update_roster(roster())
    return made


def command(**changes: object) -> RemoteCommand:
    made = RemoteCommand(
        cluster="c1",
        machine="m1",
        epoch="e1",
        verb="stream",
        stream="s1",
        body=b"allow",
        nonce=make_nonce(),
        at=NOW,
    )
    return msgspec.structs.replace(made, **changes)


def test_a_command_of_an_operator_is_executed_and_says_who_sent_it() -> None:
    sent = command()

    assert (MEMBERS[0], sent) == verifier().verify(sign_command(OTTO, sent), NOW)


@pytest.mark.parametrize("seed", [VERA, STRANGER, CLUSTER], ids=["viewer", "stranger", "cluster"])
def test_a_viewer_a_stranger_and_the_cluster_itself_send_no_command(seed: str) -> None:
    with pytest.raises(CommandRefusedError, match="no operator"):
        verifier().verify(sign_command(seed, command()), NOW)


def test_a_command_is_executed_once() -> None:
    machine, sent = verifier(), sign_command(OTTO, command())
    machine.verify(sent, NOW)

    for later in (0, 1, COMMAND_S):
        with pytest.raises(CommandRefusedError, match="executed already"):
            machine.verify(sent, NOW + later)
    with pytest.raises(CommandRefusedError, match="61 s old"):
        machine.verify(sent, NOW + COMMAND_S + 1)


def test_an_earlier_kasmon_and_this_one_read_each_other_s_commands() -> None:
    """Earlier ones call the stream `request`, and send a digest that is empty."""
    sent = command()
    fields = msgspec.json.decode(msgspec.json.encode(sent))
    assert ("s1", "digest" in fields) == (fields["request"], False)

    content = msgspec.json.encode(fields | {"digest": ""})
    envelope = SignedEnvelope(content, sign(OTTO, signatures.COMMAND + content), public_key(OTTO))

    assert (MEMBERS[0], sent) == verifier().verify(msgspec.json.encode(envelope), NOW)


def test_two_operators_may_use_the_same_nonce() -> None:
    machine, sent = verifier(), command()
    machine.verify(sign_command(OTTO, sent), NOW)

    assert "olga" == machine.verify(sign_command(OLGA, sent), NOW)[0].name


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"machine": "m2"}, "for the machine 'm2'"),
        ({"cluster": "c2"}, "for the machine 'm1' of 'c2'"),
        ({"epoch": "e0"}, "restarted since"),
        ({"at": NOW - COMMAND_S - 1}, "61 s old"),
        ({"at": NOW + COMMAND_S + 1}, "61 s in the future"),
        ({"at": float("inf")}, "read"),
    ],
)
def test_a_command_for_another_machine_run_or_time_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(CommandRefusedError, match=why):
        verifier().verify(sign_command(OTTO, command(**changes)), NOW)


def test_each_field_is_signed() -> None:
    """A forger has one signed command of an operator, and changes it."""
    envelope = msgspec.json.decode(sign_command(OTTO, command()), type=SignedEnvelope)
    for field in RemoteCommand.__struct_encode_fields__:
        forged = msgspec.json.decode(envelope.content)
        assert field in forged
        forged[field] = NOW + 1 if field == "at" else "eA=="
        content = msgspec.json.encode(forged)
        with pytest.raises(CommandRefusedError, match="signature is wrong"):
            verifier().verify(msgspec.json.encode(SignedEnvelope(content, envelope.signature, envelope.signer)), NOW)
    swapped = SignedEnvelope(envelope.content, envelope.signature, public_key(OLGA))
    with pytest.raises(CommandRefusedError, match="signature is wrong"):
        verifier().verify(msgspec.json.encode(swapped), NOW)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"{}",
        b"\xff",
        b"[]",
        b"null",
        msgspec.json.encode(SignedEnvelope(b"", b"", "")),
        b'{"content":"' + b"A" * 999,
    ],
)
def test_an_unsigned_command_is_refused(sent: bytes) -> None:
    with pytest.raises(CommandRefusedError):
        verifier().verify(sent, NOW)


def test_a_signature_for_another_purpose_signs_no_command() -> None:
    content = msgspec.json.encode(command())
    for purpose in (b"", signatures.LIST):
        sent = msgspec.json.encode(SignedEnvelope(content, sign(OTTO, purpose + content), public_key(OTTO)))
        with pytest.raises(CommandRefusedError, match="signature is wrong"):
            verifier().verify(sent, NOW)


def test_a_removed_operator_is_refused_with_the_new_list_and_an_old_list_is_not_accepted() -> None:
    machine = verifier()
    machine.update_roster(roster(NOW + 1, MEMBERS[1:]))
    with pytest.raises(CommandRefusedError, match="no operator"):
        machine.verify(sign_command(OTTO, command()), NOW)

    with pytest.raises(CommandRefusedError, match="older than the one in use"):
        machine.update_roster(roster(NOW))
    with pytest.raises(CommandRefusedError, match="no operator"):
        machine.verify(sign_command(OTTO, command()), NOW)


def test_a_machine_refuses_commands_without_a_list_or_when_its_list_expires() -> None:
    machine, late = verifier(), NOW + ROSTER_S + 1
    with pytest.raises(CommandRefusedError, match="no list of members that is new enough"):
        machine.verify(sign_command(OTTO, command(at=late)), late)
    machine.update_roster(roster(late))
    machine.verify(sign_command(OTTO, command(at=late)), late)

    machine = CommandVerifier("c1", "main", public_key(CLUSTER), "m1", "e1")
    with pytest.raises(CommandRefusedError, match="no list of members"):
        machine.verify(sign_command(OTTO, command()), NOW)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (roster(seed=OTTO), "not signed by the cluster"),
        (roster(team="other"), "another team"),
        (sign_command(CLUSTER, command()), "not signed by the cluster"),
        (b"x", "not signed"),
    ],
    ids=["operator", "team", "command", "nothing"],
)
def test_only_the_cluster_signs_the_list_of_members(sent: bytes, why: str) -> None:
    with pytest.raises(CommandRefusedError, match=why):
        verifier().update_roster(sent)


def test_nonces_are_dropped_when_their_commands_expire_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "NONCES", 2)
    machine = verifier()
    first, second = (sign_command(OTTO, command()) for _ in range(2))
    machine.verify(first, NOW)
    machine.verify(second, NOW)

    with pytest.raises(CommandRefusedError, match="too many commands"):
        machine.verify(sign_command(OTTO, command()), NOW)
    later = NOW + COMMAND_S + 1
    machine.verify(sign_command(OTTO, command(at=later)), later)
