"""Signed commands and answers, and the signed list of members that says who may send them.

A machine verifies each command itself, so that neither the server nor another member can make, change, repeat or
redirect one. It trusts one key, the cluster's, which came with its token. The list of members has a short life: a
machine that is cut from the cluster refuses commands when the list that it has expires.
"""

import hashlib
import os
from collections.abc import Mapping
from typing import Final

import msgspec

from kasmon.bus.nats.cluster import Member
from kasmon.bus.nats.keys import is_signed, public_key, sign
from kasmon.errors import RefusedError

COMMAND_S: Final = 60.0
"""How long a command is valid after it was signed, and how much the clocks of two machines may differ."""
ROSTER_S: Final = 300.0
"""How long a machine trusts a list of members."""
NONCES: Final = 100_000
"""How many valid commands a machine remembers; it refuses further ones until the oldest expire."""

COMMAND: Final = b"kasmon command\0"
LIST: Final = b"kasmon roster\0"
ORDER: Final = b"kasmon order\0"
CONFIGURATION: Final = b"kasmon configuration\0"
ORDER_S: Final = 7 * 86400.0
"""How long an order may wait, if the machine's service runs as long."""


class CommandRefusedError(RefusedError):
    """A command that was not signed for this machine now, or by no one who may send it. Nothing was done."""

    code = "signature"

    def __init__(self, why: str, hint: str = "", *, is_temporary: bool = False) -> None:
        """*is_temporary*: the same command may be accepted later."""
        self.why, self.is_temporary = why, is_temporary
        super().__init__(f"the command was refused: {why}.", hint=hint)


class RemoteCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One message of an operator to a machine, which takes it once."""

    cluster: str
    machine: str
    epoch: str
    """The run of the machine's service that it is for; a later run refuses it."""
    verb: str
    """`stream`; a machine refuses each other one."""
    stream: str = msgspec.field(default="", name="request")
    """The name of the stream that it is a part of: its sender chose it, and it is the last part of the subject."""
    body: bytes = b""
    """The next bytes of that stream. An answer is a frame in them, with its request and the digest that was shown."""
    nonce: str
    at: float


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command of kasmon for one attempt at a task, which may wait in the queue of its machine."""

    cluster: str
    machine: str
    epoch: int
    """The run of the machine's service that it is for; a later run refuses it."""
    plan: str
    task: str
    attempt: int
    """Counts from 1; once a machine has an order for an attempt, it refuses those for earlier ones."""
    arguments: tuple[str, ...]
    """Empty to withdraw the order that has the same key, if that was not carried out."""
    stdin: bytes = b""
    at: float

    @property
    def key(self) -> str:
        """What names it in subjects and in its machine's directory."""
        return order_key(self.plan, self.task, self.attempt, self.epoch)


def order_key(plan: str, task: str, attempt: int, epoch: int) -> str:
    """Return the name of an order, which is safe in a subject; ids of sessions are shorter."""
    return "order-" + hashlib.blake2b(f"{plan}\0{task}\0{attempt}\0{epoch}".encode(), digest_size=16).hexdigest()


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a team, while `signed_at` is at most `ROSTER_S` ago."""

    cluster: str
    team: str
    members: tuple[Member, ...]
    signed_at: float


class SignedEnvelope(msgspec.Struct, frozen=True):
    """Content and its signature, as sent."""

    content: bytes
    signature: bytes
    signer: str
    """A public key."""


def sign_command(seed: str, command: RemoteCommand) -> bytes:
    """Return *command* as sent, signed with *seed*."""
    return _sign(seed, COMMAND, msgspec.json.encode(command))


def sign_order(seed: str, order: Order) -> bytes:
    """Return *order* as sent, signed with *seed*."""
    return _sign(seed, ORDER, msgspec.json.encode(order))


class SignedText(msgspec.Struct, frozen=True):
    text: str
    signed_at: float


def sign_text(seed: str, text: str, now: float) -> bytes:
    """Return the configuration *text* of a further server as sent, signed with the cluster's *seed*."""
    return _sign(seed, CONFIGURATION, msgspec.json.encode(SignedText(text, now)))


def read_signed_text(sent: bytes, cluster_key: str) -> tuple[str, float]:
    """Return the configuration in *sent*, and when it was signed.

    Raises:
        CommandRefusedError: if the cluster did not sign it.
    """
    signed = msgspec.json.decode(_open_of_cluster(sent, CONFIGURATION, cluster_key, "configuration"), type=SignedText)
    return signed.text, signed.signed_at


def read_order(sent: bytes) -> Order | None:
    """Return the order in *sent*, whose signature is not checked; None if there is none."""
    try:
        return msgspec.json.decode(_open(sent).content, type=Order)
    except (CommandRefusedError, msgspec.DecodeError):
        return None


def sign_roster(seed: str, roster: Roster) -> bytes:
    """Return *roster* as sent, signed with the cluster's *seed*."""
    return _sign(seed, LIST, msgspec.json.encode(roster))


def make_nonce() -> str:
    return os.urandom(16).hex()


def verify_roster(sent: bytes, cluster_key: str, cluster: str, team: str) -> Roster:
    """Return the list of members in *sent*, whatever its age.

    Raises:
        CommandRefusedError: if the cluster did not sign it.
    """
    content = _open_of_cluster(sent, LIST, cluster_key, "list of members")
    try:
        roster = msgspec.json.decode(content, type=Roster)
    except msgspec.DecodeError as error:
        raise CommandRefusedError("the list of members cannot be read") from error
    if (roster.cluster, roster.team) != (cluster, team):
        raise CommandRefusedError("the list of members is that of another team")
    return roster


class CommandVerifier:
    """Decides which commands one run of a machine's service executes."""

    def __init__(self, cluster: str, team: str, cluster_key: str, machine: str, epoch: str) -> None:
        """*cluster_key*: the key that signs the lists of members."""
        self._cluster, self._team, self._cluster_key = cluster, team, cluster_key
        self._machine, self._epoch = machine, epoch
        self._roster: Roster | None = None
        self._operators: Mapping[str, Member] = {}
        self._nonces: dict[tuple[str, str], float] = {}

    def update_roster(self, sent: bytes) -> Roster:
        """Use the list of members in *sent* from now on.

        Raises:
            CommandRefusedError: if the cluster did not sign it, or a later one was used already.
        """
        roster = verify_roster(sent, self._cluster_key, self._cluster, self._team)
        if self._roster is not None and roster.signed_at < self._roster.signed_at:
            raise CommandRefusedError("the list of members is older than the one in use")
        self._roster = roster
        self._operators = {member.public_key: member for member in roster.members if member.role == "operator"}
        return roster

    def verify(self, sent: bytes, now: float) -> tuple[Member, RemoteCommand]:
        """Return who sent *sent* and the command in it; a second call with the same command refuses it.

        Raises:
            CommandRefusedError: if it must not be executed.
        """
        envelope = _open(sent)
        member = self._find_signer(envelope, COMMAND, now)
        try:
            command = msgspec.json.decode(envelope.content, type=RemoteCommand)
        except msgspec.DecodeError as error:
            raise CommandRefusedError("its content cannot be read") from error
        if (command.cluster, command.machine) != (self._cluster, self._machine):
            raise CommandRefusedError(f"it is for the machine {command.machine!r} of {command.cluster!r}")
        if command.epoch != self._epoch:
            raise CommandRefusedError("the machine's service was restarted since", "Review it and send it again.")
        if abs(now - command.at) > COMMAND_S:
            seconds = round(now - command.at)
            why = f"it is {seconds} s old" if seconds > 0 else f"it was signed {-seconds} s in the future"
            raise CommandRefusedError(why, "Send it again; if that fails too, compare the clocks of both machines.")
        self._use_nonce((member.public_key, command.nonce), command.at, now)
        return member, command

    def verify_order(self, sent: bytes, now: float) -> Order:
        """Return the order in *sent*. Whether it was carried out already, and for which epoch it is, is not checked.

        Raises:
            CommandRefusedError: if no operator signed it for this machine, or it is too old.
        """
        envelope = _open(sent)
        self._find_signer(envelope, ORDER, now)
        if (order := read_order(sent)) is None:
            raise CommandRefusedError("its content cannot be read")
        if (order.cluster, order.machine) != (self._cluster, self._machine):
            raise CommandRefusedError(f"it is for the machine {order.machine!r} of {order.cluster!r}")
        if not -COMMAND_S <= now - order.at <= ORDER_S:
            raise CommandRefusedError("it is too old, or was signed in the future", "Compare the clocks.")
        return order

    def _find_signer(self, envelope: SignedEnvelope, purpose: bytes, now: float) -> Member:
        if self._roster is None or abs(now - self._roster.signed_at) > ROSTER_S:
            why = "this machine has no list of members that is new enough"
            hint = "It gets one when it reaches the cluster; also compare the clocks."
            raise CommandRefusedError(why, hint, is_temporary=True)
        member = self._operators.get(envelope.signer)
        if member is None:
            raise CommandRefusedError("its signer is no operator of this cluster")
        if not is_signed(envelope.signer, purpose + envelope.content, envelope.signature):
            raise CommandRefusedError("its signature is wrong")
        return member

    def _use_nonce(self, nonce: tuple[str, str], at: float, now: float) -> None:
        if nonce in self._nonces:
            raise CommandRefusedError("it was executed already")
        if len(self._nonces) >= NONCES:
            self._nonces = {each: until for each, until in self._nonces.items() if until >= now}
            if len(self._nonces) >= NONCES:
                raise CommandRefusedError("too many commands arrived in a minute", "Send it again later.")
        self._nonces[nonce] = at + COMMAND_S


def _sign(seed: str, purpose: bytes, content: bytes) -> bytes:
    return msgspec.json.encode(SignedEnvelope(content, sign(seed, purpose + content), public_key(seed)))


def _open_of_cluster(sent: bytes, purpose: bytes, cluster_key: str, what: str) -> bytes:
    """Return the content of *sent*. Raises `CommandRefusedError` if the cluster did not sign it for *purpose*."""
    envelope = _open(sent)
    if envelope.signer != cluster_key or not is_signed(cluster_key, purpose + envelope.content, envelope.signature):
        raise CommandRefusedError(f"the {what} is not signed by the cluster")
    return envelope.content


def _open(sent: bytes) -> SignedEnvelope:
    try:
        return msgspec.json.decode(sent, type=SignedEnvelope)
    except msgspec.DecodeError as error:
        raise CommandRefusedError("it is not signed") from error
