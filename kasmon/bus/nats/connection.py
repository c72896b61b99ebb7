"""One connection of a member to its cluster: TLS with the cluster's own authority, its key, and its own inbox.

A connection that was lost is made again, for as long as the member is one. Each failure is a sentence with its cause
and the next step.
"""

import asyncio
import contextlib
import json
import logging
import random
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.server import MISSING, is_new_enough
from kasmon.bus.nats.server_config import DIRECT_GET
from kasmon.bus.nats.signatures import COMMAND_S, ROSTER_S, Roster, verify_roster
from kasmon.bus.nats.subjects import ROSTER, inbox, read_subject, roster_subject
from kasmon.errors import KasmonError, RefusedError, TimedOutError, UnavailableError

CONNECT_S: Final = 5
PLAIN_S: Final = 3.0
"""How long a server without TLS may take to say what it is."""
REQUEST_S: Final = 5.0
FIRST_WAIT_S: Final = 0.25
LAST_WAIT_S: Final = 30.0
PING_S: Final = 5
CLOSE_S: Final = 2.0
FULL_STORE: Final = frozenset((10002, 10023, 10047, 10077, 10109, 10125))
"""JetStream's codes for a store, an account or a stream that takes no more."""
NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
OTHER_NAME: Final = (62, 64)
"""OpenSSL's codes for a certificate that is refused."""
FAILURES: Final = (nats.errors.Error, OSError, TimeoutError)
"""What the client raises."""
REFUSED_SUBJECT: Final = re.compile(r'permissions violation for publish to "([^"]*)"')
"""In the text of an error, all of which the client has in lower case."""


class _WithoutEndOfFile(logging.Filter):
    """Hides what asyncio says whenever a server ends a connection: the client's reader does not know of TLS."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("returning true from eof_received()")


logging.getLogger("asyncio").addFilter(_WithoutEndOfFile())

Callback = Callable[[], Awaitable[None]]
Handler = Callable[[Msg], Awaitable[None]]


class Connection:
    """A connected member; `connect` returns one."""

    def __init__(self, identity: Identity, client: Client, rewatch: Callback | None, lost: Callback | None) -> None:
        self.identity: Final = identity
        self.client: Final = client
        self.roster_message = b""
        """The signed list of members, as it was when connected."""
        self.refusal: asyncio.Future[KasmonError] = asyncio.get_running_loop().create_future()
        """Has a result when the cluster admits this member no longer, and the connection is closed for good."""
        self.is_connected = False
        """Whether it was connected once."""
        self._rewatch, self._lost = rewatch, lost
        self._is_closing = False
        self._requests: list[tuple[str, asyncio.Future[Msg]]] = []
        self._attempts = 0
        self._refusals = 0
        """How often the server refused this member since it was connected last."""

    async def publish(self, subject: str, content: bytes, headers: dict[str, str] | None = None) -> None:
        """Store *content* under *subject*, and return when the server has it.

        Raises:
            UnavailableError: if the server does not answer, or its store is full.
        """
        acknowledged = json.loads((await self.request(subject, content, headers=headers)).data)
        if error := acknowledged.get("error"):
            raise explain_jetstream(error, self.identity)

    async def request(
        self, subject: str, content: bytes, *, timeout_s: float = REQUEST_S, headers: dict[str, str] | None = None
    ) -> Msg:
        """Return the first answer to *content*.

        Raises:
            UnavailableError: if no one listens there, or the connection is lost.
            TimedOutError: if there is no answer in time; whether it was received is unknown.
        """
        task = asyncio.ensure_future(self.client.request(subject, content, timeout=timeout_s, headers=headers))
        entry = (subject.lower(), task)
        self._requests.append(entry)
        try:
            return await task
        except FAILURES as error:
            raise explain(error, self.identity) from error
        except asyncio.CancelledError:
            if entry in self._requests:
                raise
            raise RefusedError(
                f"{self.identity.name!r} may not send to {subject!r} in the cluster {self.identity.cluster!r}.",
                hint=f"Its role is {self.identity.role or 'none'}; a token of another role allows more.",
            ) from None
        finally:
            if entry in self._requests:
                self._requests.remove(entry)

    async def send(self, subject: str, content: bytes) -> None:
        """Send *content* under *subject*, and return when the server has it; nothing says whether anyone listens.

        Raises:
            UnavailableError: if the connection is lost.
        """
        try:
            await self.client.publish(subject, content)
            await self.flush()
        except FAILURES as error:
            raise explain(error, self.identity) from error

    async def flush(self) -> None:
        """Return when the server has everything that was sent."""
        await self.client.flush()  # nats-py 2.16 writes this ping in front of what it has not written yet
        await self.client.flush()

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Call *handler* with each message under *subject*, one after the other; also after a reconnect."""
        return await self.client.subscribe(subject, cb=handler)

    async def read_roster(self) -> Roster:
        """Return the list of members that the cluster signed last.

        Raises:
            UnavailableError: if JetStream is off, the service of the cluster does not run, or the clocks differ.
        """
        subject = roster_subject(self.identity.cluster)
        try:
            sent = await self.client.request(f"{DIRECT_GET}.{ROSTER}.{subject}", b"", timeout=REQUEST_S)
        except nats.errors.NoRespondersError:
            raise UnavailableError(
                f"the server at {self.identity.address!r} has JetStream off, or no streams of this cluster.",
                hint="On the cluster's machine: `kasmon cluster up`.",
            ) from None
        except FAILURES as error:
            raise explain(error, self.identity) from error
        if (sent.headers or {}).get("Status"):
            raise UnavailableError(
                f"the cluster {self.identity.cluster!r} has not published its members yet.",
                hint="On the cluster's machine: `kasmon cluster status`.",
            )
        self.roster_message = sent.data
        return verify_roster(sent.data, self.identity.cluster_key, self.identity.cluster, self.identity.team)

    def read_subject(self, stream: str) -> str:
        """Return where *stream* is read from: a leafnode has those of its own machine only."""
        leaf_of = self.identity.leaf_of
        is_here = not leaf_of or stream.partition("_")[2] in ("", leaf_of)
        return f"{DIRECT_GET if is_here else read_subject(self.identity.cluster)}.{stream}"

    async def aclose(self) -> None:
        """Close it; idempotent. Bounded: the client waits for ever for a connection whose TLS failed."""
        self._is_closing = True
        self.client.options["allow_reconnect"] = False
        closing = asyncio.ensure_future(self.client.close())  # a task: the client can cancel a future that it waits for
        await asyncio.wait([closing], timeout=CLOSE_S if self.is_connected else 0.05)
        if not closing.cancel() and not closing.cancelled():
            closing.exception()
        if (writer := getattr(self.client._transport, "_io_writer", None)) is not None:
            writer.transport.abort()  # what is left open, because the other end does not close it or the client failed

    async def handle_lost(self) -> None:
        if self._lost is not None and not self._is_closing:
            await self._lost()

    async def handle_reconnected(self) -> None:
        self._attempts = self._refusals = 0
        if self._rewatch is not None:
            await self._rewatch()

    async def handle_error(self, error: Exception) -> None:
        """Fail the requests that the server refused. Close for good if it does not know this member any more.

        The first attempt to connect fails with *error*: else the client repeats it for ever. A server that reloads its
        configuration refuses who is just connecting: only the second refusal in a row counts.
        """
        if not self.is_connected:
            raise error
        if (refused := REFUSED_SUBJECT.search(str(error))) is not None:
            for entry in [each for each in self._requests if each[0] == refused[1]]:
                self._requests.remove(entry)
                entry[1].cancel()
        if is_refusal(error) and not self.refusal.done():
            self._refusals += 1
            if self._refusals == 1:
                return
            self.refusal.set_result(explain(error, self.identity))
            self._is_closing = True
            self.client.options["allow_reconnect"] = False
            await self.client.close()

    def next_wait_s(self) -> float:
        """Return how long to wait before the next attempt to connect: twice as long each time, and randomly less."""
        longest = min(LAST_WAIT_S, FIRST_WAIT_S * 2**self._attempts)
        self._attempts = min(self._attempts + 1, 16)
        return random.uniform(longest / 2, longest)


async def connect(
    identity: Identity,
    *,
    rewatch: Callback | None = None,
    lost: Callback | None = None,
    now: Callable[[], float] | None = None,
) -> Connection:
    """Connect as *identity*.

    Args:
        rewatch: called after each reconnect: what was published in between must be read again.
        lost: called when the connection is lost.
        now: the time in seconds since the epoch. With it, the clocks are compared.

    Raises:
        UnavailableError: if there is no usable server, with the cause.
        RefusedError: if the server does not know this member.
    """
    for address in identity.servers:
        with contextlib.suppress(UnavailableError, TimedOutError):  # the error of the last one is raised
            return await _connect_to(identity, rewatch, lost, now)
        host, _, port = address.rpartition(":")
        identity = msgspec.structs.replace(identity, host=host.strip("[]"), port=int(port))
    return await _connect_to(identity, rewatch, lost, now)


async def _connect_to(
    identity: Identity, rewatch: Callback | None, lost: Callback | None, now: Callable[[], float] | None
) -> Connection:
    try:
        return await _connect(identity, rewatch, lost, now)
    except (RefusedError, UnavailableError) as error:
        dropped = BrokenPipeError | ConnectionResetError | nats.errors.UnexpectedEOF
        if error.__cause__ is None or not (is_refusal(error.__cause__) or isinstance(error.__cause__, dropped)):
            raise
    await asyncio.sleep(FIRST_WAIT_S)  # a server that reloads its configuration drops or refuses who is just connecting
    return await _connect(identity, rewatch, lost, now)


async def _connect(
    identity: Identity, rewatch: Callback | None, lost: Callback | None, now: Callable[[], float] | None
) -> Connection:
    client = Client()
    connection = Connection(identity, client, rewatch, lost)
    try:
        await client.connect(
            f"tls://{identity.address}",
            name=f"kasmon {identity.name}",
            tls=await asyncio.to_thread(tls_context, identity),
            tls_hostname=identity.tls_name or identity.host,
            tls_handshake_first=True,  # else a server in the middle could have the connection continue without TLS
            nkeys_seed_str=identity.seed,
            inbox_prefix=inbox(identity.public_key),
            connect_timeout=CONNECT_S,
            ping_interval=PING_S,
            flush_timeout=REQUEST_S,  # without it, who publishes waits for as long as the server does not read
            max_reconnect_attempts=-1,
            allow_reconnect=False,  # the first failure is the caller's to report
            error_cb=connection.handle_error,
            reconnected_cb=connection.handle_reconnected,
            disconnected_cb=connection.handle_lost,
            reconnect_to_server_handler=lambda servers, _: (random.choice(servers), connection.next_wait_s()),
        )
    except FAILURES as error:
        await connection.aclose()
        if not is_refusal(error) and not isinstance(error, ssl.SSLCertVerificationError | ConnectionRefusedError):
            await _check_plain_server(identity)
        raise explain(error, identity) from error
    except asyncio.CancelledError:
        await connection.aclose()
        raise
    connection.is_connected = True
    client.options["allow_reconnect"] = True
    try:
        await _check_server(connection, now)
    except BaseException:
        await connection.aclose()
        raise
    return connection


async def _check_server(connection: Connection, now: Callable[[], float] | None) -> None:
    identity = connection.identity
    version = connection.client.connected_server_version
    _check_version(f"{version.major}.{version.minor}.{version.patch}", identity)
    if identity.role is None:
        return
    roster = await connection.read_roster()
    # a leafnode has an old list while it is cut off: the machine decides which commands it still trusts
    if (
        now is not None
        and not identity.leaf_of
        and (skew := now() - roster.signed_at)
        and not -COMMAND_S < skew < ROSTER_S
    ):
        direction = "behind" if skew < 0 else "ahead of"
        raise UnavailableError(
            f"the clock of this machine is {abs(skew):.0f} s {direction} the cluster's, or its service stopped.",
            hint="Compare the clocks with `date -u`; on the cluster's machine: `kasmon cluster status`.",
        )


def _check_version(version: str, identity: Identity) -> None:
    if not is_new_enough(version):
        raise UnavailableError(
            f"the NATS server at {identity.address!r} is version {version}, which is too old: {MISSING}.",
            hint="Run nats-server 2.11 or newer there; `kasmon cluster up` does.",
        )


async def _check_plain_server(identity: Identity) -> None:
    """Name the cause, if a server without TLS, or an older one that begins without TLS, listens there.

    Raises:
        UnavailableError: if one does.
    """
    try:
        async with asyncio.timeout(PLAIN_S):
            reader, writer = await asyncio.open_connection(identity.host, identity.port)
            try:
                line = await reader.readline()
            finally:
                writer.close()
        info = json.loads(line.removeprefix(b"INFO ")) if line.startswith(b"INFO ") else None
    except (OSError, ValueError, TimeoutError):
        return
    if not isinstance(info, dict):
        return
    _check_version(str(info.get("version", "")), identity)
    raise UnavailableError(
        f"the NATS server at {identity.address!r} is not that of a kasmon cluster: it does not begin with TLS.",
        hint="Check the address, or start the cluster with `kasmon cluster up`.",
    )


def tls_context(identity: Identity) -> ssl.SSLContext:
    """Return what trusts the authority of the cluster, or those of the system."""
    context = ssl.create_default_context(cadata=identity.ca or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def is_refusal(error: BaseException) -> bool:
    """Whether the server does not know the member."""
    return "authorization violation" in str(error).lower() or isinstance(error, nats.errors.AuthorizationError)


def explain(error: BaseException, identity: Identity) -> KasmonError:
    """Return what *error* of a connection as *identity* means, and what to do."""
    where = f"the cluster {identity.cluster!r} at {identity.address!r}"
    status = "On the cluster's machine: `kasmon cluster status`. Also check the address and the firewall."
    match error:
        case KasmonError():
            return error
        case ssl.SSLCertVerificationError(verify_code=code):
            return _explain_certificate(code, str(error.verify_message), where)
        case ssl.SSLError():
            return UnavailableError(f"cannot connect to {where}: TLS failed: {error.reason or error}.", hint=status)
        case socket.gaierror():
            return UnavailableError(f"cannot reach {where}: {error.strerror}.", hint="Check the address.")
        case nats.errors.NoRespondersError():
            return UnavailableError(f"no machine of {where} answers: it is not connected.", hint="`kasmon machines ls`")
        case nats.errors.OutboundBufferLimitError() | nats.errors.ConnectionClosedError():
            return UnavailableError(f"the connection to {where} is lost.", hint=status)
        case nats.errors.MaxPayloadError():
            return RefusedError("the message is larger than the server accepts.", hint="Send it in parts.")
        case TimeoutError():
            return TimedOutError(f"{where} did not answer in time.", hint=status)
        case OSError():
            return UnavailableError(f"cannot reach {where}: {error.strerror or error}.", hint=status)
    if is_refusal(error):
        return RefusedError(
            f"{where} does not know {identity.name!r}: it was removed, or the server was created again.",
            hint="Get a new token: `kasmon cluster token` on the cluster's machine, then `kasmon machines join TOKEN`.",
        )
    return UnavailableError(f"cannot use {where}: {error}.", hint=status)


def _explain_certificate(code: int, message: str, where: str) -> UnavailableError:
    if code == EXPIRED:
        why = "its certificate has expired, or the clock of this machine is ahead"
        hint = (
            "Compare `date -u` on both machines; `kasmon cluster up` on the cluster's machine renews its certificate."
        )
    elif code == NOT_YET_VALID:
        why, hint = "its certificate is not valid yet", "The clock of this machine is behind: compare `date -u`."
    elif code in OTHER_NAME:
        why, hint = "its certificate has another name", "Another cluster listens there, or someone in the middle."
    else:
        why = f"its certificate is not signed by the authority of this cluster ({message})"
        hint = "Another server listens there, or someone in the middle. If the cluster was made again, join again."
    return UnavailableError(f"refused to connect to {where}: {why}.", hint=hint)


def explain_jetstream(error: dict[str, Any], identity: Identity) -> KasmonError:
    """Return what an *error* in an answer of JetStream means."""
    code, what = error.get("err_code"), str(error.get("description", "no reason given"))
    if code in FULL_STORE:
        return UnavailableError(
            f"the cluster {identity.cluster!r} has no space left: {what}.",
            hint="Nothing is lost: it stays in the machine's own log. On the cluster's machine: free disk space, or "
            "`kasmon cluster limit --storage-gb N`.",
        )
    return UnavailableError(f"the cluster {identity.cluster!r} refused to store a message: {what}.")
