"""How a machine or a person becomes a member: a token that works once, and a key that its holder makes.

A token is the private key of a user who may do one thing: send the public key of the new member to the service of the
cluster. The server's configuration has public keys only, of open tokens and of members.
"""

import asyncio
import base64
import binascii
import contextlib
import time
from typing import Any, Final

import msgspec

from kasmon.bus.nats.cluster import Cluster, ClusterFolder, Member, OpenToken, Role
from kasmon.bus.nats.connection import Connection, connect
from kasmon.bus.nats.identity import Identity, IdentityFile
from kasmon.bus.nats.keys import PUBLIC, is_signed, make_seed, public_key, sign
from kasmon.bus.nats.server_config import DIRECTORY_BYTES, EVENTS_BYTES, TASKS_BYTES
from kasmon.bus.nats.subjects import check_name, enrolment_subject
from kasmon.errors import KasmonError, NotFoundError, RefusedError, UsageError
from kasmon.paths import Paths

START: Final = "kasmon1_"
PURPOSE: Final = b"kasmon enrolment\0"
JOIN_S: Final = 15.0


class JoinToken(msgspec.Struct, frozen=True, array_like=True):
    """What the text of a token says. Only the private key gives a right; the rest is for its holder."""

    cluster: str
    team: str
    name: str
    role: Role
    host: str
    port: int
    tls_name: str
    ca: str
    """The certificate authority as PEM, so that not even the first connection trusts another; empty: the system's."""
    cluster_key: str
    seed: str
    expires_at: float
    servers: tuple[str, ...] = ()
    leaf_port: int = 0


class JoinRequest(msgspec.Struct, frozen=True):
    """What the holder of a token sends."""

    public_key: str
    signature: bytes
    """Proves that the sender has the private key."""


class JoinReply(msgspec.Struct, frozen=True):
    refusal: str = ""
    """Why the service did not admit the member; empty if it did."""
    hint: str = ""


def encode_join_token(token: JoinToken) -> str:
    return START + base64.urlsafe_b64encode(msgspec.msgpack.encode(token)).decode().rstrip("=")


def decode_join_token(text: str) -> JoinToken:
    """Return what the token *text* says.

    Raises:
        UsageError: if it is not a whole token.
    """
    encoded = "".join(text.split())
    try:
        if not encoded.startswith(START):
            raise ValueError
        encoded = encoded.removeprefix(START)
        token = msgspec.msgpack.decode(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)), type=JoinToken)
        public_key(token.seed)
        check_name(token.cluster, "a cluster")
    except (ValueError, msgspec.DecodeError, binascii.Error, KasmonError):
        raise UsageError(
            "this is not a whole token.", hint=f"Copy all of it: `kasmon cluster token` prints it, from {START!r} on."
        ) from None
    return token


def make_join_token(folder: ClusterFolder, name: str, role: Role, team: str, minutes: float, cluster_key: str) -> str:
    """Add an open token for a member *name* to the cluster and return its text. The server must be told of it.

    Raises:
        UsageError: if *name* is not valid.
        NotFoundError: if there is no such team.
        RefusedError: if another member has the name.
    """
    check_name(name, "a member")
    seed, expires_at = make_seed(), time.time() + minutes * 60
    with folder.change() as change:
        cluster = change.cluster
        team = cluster.find_team(team).name
        _check_free(cluster, name, role, team)
        opened = OpenToken(name, role, team, public_key(seed), expires_at)
        change.cluster = msgspec.structs.replace(cluster, tokens=(*cluster.tokens, opened))
    ca = folder.ca.read_text() if folder.ca.exists() else ""
    return encode_join_token(
        JoinToken(
            cluster.name,
            team,
            name,
            role,
            cluster.host,
            cluster.port,
            cluster.tls_name,
            ca,
            cluster_key,
            seed,
            expires_at,
            tuple(each.address for each in cluster.servers[1:]),
            cluster.leaf_port,
        )
    )


def admit(folder: ClusterFolder, token_key: str, sent: bytes) -> JoinReply:
    """Admit the member whose key the holder of *token_key* sent; each token admits one key.

    The server has authenticated the holder: it may publish to this token's subject only.
    """
    try:
        request = msgspec.json.decode(sent, type=JoinRequest)
    except msgspec.DecodeError:
        return JoinReply("the request cannot be read", "Use the kasmon version of the cluster.")
    proof = proof_content(folder.path.name, token_key, request.public_key)
    if PUBLIC.fullmatch(request.public_key) is None or not is_signed(request.public_key, proof, request.signature):
        return JoinReply("the request is not signed with the new key")
    now = time.time()
    try:
        with folder.change() as change:
            cluster = change.cluster
            token = next((each for each in cluster.tokens if each.public_key == token_key), None)
            if token is None or token.member_key not in ("", request.public_key):
                return JoinReply("the token was used already, or has expired", "Get a new one: `kasmon cluster token`.")
            if not token.member_key:
                _check_free(cluster, token.name, token.role, token.team, token_key)
                _check_storage(cluster, token)
                keys = {each.public_key for each in cluster.members} | {each.public_key for each in cluster.tokens}
                if request.public_key in keys:
                    return JoinReply("another member has this key")
                member = Member(token.name, token.role, token.team, request.public_key, now)
                used = msgspec.structs.replace(token, member_key=request.public_key)
                tokens = [used if each.public_key == token_key else each for each in cluster.tokens]
                members = (*cluster.members, member)
                change.cluster = msgspec.structs.replace(cluster, members=members, tokens=tuple(tokens))
    except KasmonError as error:
        return JoinReply(error.message, error.hint)
    return JoinReply()


def close_token(folder: ClusterFolder, token_key: str) -> None:
    with folder.change() as change:
        left = tuple(each for each in change.cluster.tokens if each.public_key != token_key)
        change.cluster = msgspec.structs.replace(change.cluster, tokens=left)


def withdraw(folder: ClusterFolder, token_key: str) -> None:
    """Remove the member that *token_key* admitted, because the server could not be told; the token is open again."""
    with folder.change() as change:
        cluster = change.cluster
        used = next((each for each in cluster.tokens if each.public_key == token_key), None)
        if used is not None and used.member_key:
            opened = msgspec.structs.replace(used, member_key="")
            change.cluster = msgspec.structs.replace(
                cluster,
                members=tuple(each for each in cluster.members if each.public_key != used.member_key),
                tokens=tuple(opened if each.public_key == token_key else each for each in cluster.tokens),
            )


def revoke(folder: ClusterFolder, name: str, team: str = "") -> list[Member]:
    """Remove the members *name*, in every role, and their open tokens; return the members.

    Raises:
        NotFoundError: if there is neither a member nor a token of this name.
    """
    with folder.change() as change:
        cluster = change.cluster
        gone = [each for each in cluster.members if each.name == name and each.team == (team or each.team)]
        tokens = [each for each in cluster.tokens if each.name == name and each.team == (team or each.team)]
        if not gone and not tokens:
            names = ", ".join(sorted({each.name for each in cluster.members})) or "none"
            raise NotFoundError(f"the cluster {cluster.name!r} has no member {name!r}.", hint=f"Members: {names}.")
        change.cluster = msgspec.structs.replace(
            cluster,
            members=tuple(each for each in cluster.members if each not in gone),
            tokens=tuple(each for each in cluster.tokens if each not in tokens),
        )
    return gone


async def join(paths: Paths, text: str) -> Identity:
    """Become a member with the token *text*, and return the new identity, which is stored.

    Raises:
        UsageError: if *text* is no token.
        RefusedError: if the token was used or has expired, or this machine has that role in the cluster already.
        UnavailableError: if the cluster cannot be reached.
    """
    token = decode_join_token(text)
    stored = IdentityFile(paths, token.cluster, token.role)
    if await asyncio.to_thread(stored.path.exists):
        raise RefusedError(
            f"this machine is a member of {token.cluster!r} already, as {token.role}.",
            hint=f"Delete {str(stored.path)!r} first, if it should join again.",
        )
    promised = msgspec.convert(token, Identity, from_attributes=True)
    identity = msgspec.structs.replace(promised, seed=make_seed())
    try:
        async with contextlib.aclosing(await connect(msgspec.structs.replace(promised, role=None))) as holder:
            reply = await _ask(holder, identity)
    except RefusedError:
        raise RefusedError(
            f"the cluster {token.cluster!r} does not accept the token: it was used already, or has expired.",
            hint="Get a new one on the cluster's machine: `kasmon cluster token`.",
        ) from None
    if reply.refusal:
        raise RefusedError(
            f"the cluster {token.cluster!r} did not admit {token.name!r}: {reply.refusal}.", hint=reply.hint
        )
    await asyncio.to_thread(stored.save, identity)
    await (await connect(identity, now=time.time)).aclose()
    return identity


async def _ask(holder: Connection, identity: Identity) -> JoinReply:
    """Ask for *identity* to be admitted, by the token of *holder*.

    Raises:
        RefusedError: if the token becomes invalid meanwhile.
        UnavailableError, TimedOutError: if the service does not answer.
    """
    token, key = holder.identity.public_key, identity.public_key
    sent = msgspec.json.encode(JoinRequest(key, sign(identity.seed, proof_content(identity.cluster, token, key))))
    subject = enrolment_subject(identity.cluster, token)
    asked = asyncio.ensure_future(holder.request(subject, sent, timeout_s=JOIN_S))
    try:
        waited: list[asyncio.Future[Any]] = [asked, holder.refusal]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise holder.refusal.result()
        return msgspec.json.decode((await asked).data, type=JoinReply)
    finally:
        asked.cancel()


def proof_content(cluster: str, token_key: str, member_key: str) -> bytes:
    """Return what a new member signs."""
    return PURPOSE + f"{cluster}\n{token_key}\n{member_key}".encode()


def _check_free(cluster: Cluster, name: str, role: Role, team: str, token_key: str = "") -> None:
    """Raise `RefusedError` if *name* is that of a member, or of another open token."""
    taken = any((each.name, each.role, each.team) == (name, role, team) for each in cluster.members)
    asked = any(
        (each.name, each.role, each.team) == (name, role, team) and each.public_key != token_key
        for each in cluster.tokens
    )
    if taken or asked:
        what = f"is a {role} already" if taken else "has an open token"
        raise RefusedError(f"{name!r} {what}.", hint=f"Choose another name, or first `kasmon cluster revoke {name}`.")


def _check_storage(cluster: Cluster, token: OpenToken) -> None:
    """Raise `RefusedError` if the team's storage has no room for one more machine."""
    machines = [each for each in cluster.members if each.team == token.team and each.role == "machine"]
    needed = (len(machines) + 1) * (EVENTS_BYTES + DIRECTORY_BYTES + TASKS_BYTES)
    if token.role == "machine" and needed > cluster.find_team(token.team).storage_bytes:
        raise RefusedError(
            f"the team {token.team!r} has no storage for another machine; it has {len(machines)}.",
            hint="On the cluster's machine: `kasmon cluster limit --storage-gb N`.",
        )
