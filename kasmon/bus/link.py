"""The link to one registered machine: a process that keeps the copy of its sessions and forwards to their hosts.

It holds the machine's `link.lock`, connects again after each loss, and ends when the machine is no longer registered.
"""

import asyncio
import contextlib
import logging
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kasmon import __version__, system
from kasmon.asyncio_tasks import TaskSet, end_tasks
from kasmon.bus.base import LATE_S, LOST_S, Bus, BusWelcome, Heartbeat, JoinedBus, ListEnd, LogPart, QueueBus
from kasmon.bus.clock_offset import ClockOffset
from kasmon.bus.mirror import Mirror
from kasmon.bus.ssh import open_bus
from kasmon.config import load_or_default
from kasmon.errors import KasmonError, NotFoundError, RefusedError, RemoteUnreachableError
from kasmon.host.journal import process_log
from kasmon.host.rpc import codec
from kasmon.host.rpc.frames import Hello, NumberedFrame, Welcome
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.host.rpc.locked_process import run_until_signalled
from kasmon.host.rpc.peer import evidence, is_ours
from kasmon.host.rpc.server import bind
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, user_paths
from kasmon.process_identity import started_at
from kasmon.sandbox.guest.frames import FrameReader, FrameTooLargeError, pack
from kasmon.store.machines import ChildRegister, HostPresence, Machine, read_machine
from kasmon.supervisor.machines.link_client import (
    AgentRequest,
    CommandOutput,
    CommandReply,
    FileReply,
    LinkReply,
    ReadFile,
    RunCommand,
)

if TYPE_CHECKING:
    from kasmon.supervisor.machines.agent_requests import MachineCommand

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
"""After a lost connection the link waits from the first to the second of these, and some more by chance."""
AGENT_START_S: Final = 45.0
"""How long a start by an agent may take there; another agent's start waits longer than that and the copy's wait."""
PIECE_BYTES: Final = 64 * 1024
REGISTERED_S: Final = 2.0
"""How often the link looks whether its machine is still registered, in seconds."""
MOST_CLIENTS: Final = 1000
"""How many results of that check are remembered."""
OTHER_USER: Final = "it belongs to another user"
MESSAGE: Final = b'"peer.wrote"'
"""What the record of a message to an agent on another machine contains."""
AGENT_REFUSED: Final = "an agent cannot reach sessions of other machines"

OpenBus = Callable[[Machine], Coroutine[Any, Any, JoinedBus]]
LinkRequest = RunCommand | ReadFile | AgentRequest
_request_decoder: msgspec.msgpack.Decoder[LinkRequest] = msgspec.msgpack.Decoder(LinkRequest)


def main(argv: Sequence[str]) -> int:
    """Run the link to the machine that is the only argument; 0 also if another process runs it."""
    os.umask(0o077)
    process_log.configure()
    paths = user_paths()
    try:
        machine = read_machine(paths, argv[0])
    except (IndexError, KasmonError) as error:
        sys.stderr.write(f"{error}\n")
        return NotFoundError.exit_code
    lock = HostLock(paths.machine_lock(machine.name))
    if not lock.acquire():
        return 0
    try:
        asyncio.run(_run_link(paths, machine))
    finally:
        lock.let_go()
    return 0


async def _run_link(paths: Paths, machine: Machine) -> None:
    ssh = load_or_default(paths, log.warning).remote.ssh

    async def open_link(current: Machine) -> JoinedBus:
        if not current.cluster:
            return await open_bus(current, ssh)
        from kasmon.bus.nats.bus import open_nats_bus  # needs the extra `nats`
        from kasmon.bus.nats.leaf import load_reader

        identity = await asyncio.to_thread(load_reader, paths, current.cluster)
        return await open_nats_bus(identity, current.name)

    link = MachineLink(paths, machine.name, open_link)
    await run_until_signalled(link.run())


class MachineLink:
    """Follows the machine *name* through the bus that *open_bus* opens; the caller holds the machine's `link.lock`."""

    def __init__(self, paths: Paths, name: str, open_bus: OpenBus) -> None:
        self._paths, self._name, self._open_bus = paths, name, open_bus
        self._mirror = Mirror(paths, name)
        loop = asyncio.get_running_loop()

        def report(session: SessionId, presence: HostPresence | None) -> None:  # it is called in threads
            loop.call_soon_threadsafe(self._handle_session, session, presence)

        self._mirror.on_session = report
        self._clients = ClientCheck()
        self._bus: JoinedBus | None = None
        self._register = ChildRegister(paths, name)
        self._messages_came = asyncio.Event()
        self._agent_start = asyncio.Lock()
        """One start by an agent at a time: the others would wait in the threads that the link needs."""
        self._servers: dict[SessionId, _SocketListener | None] = {}
        """The socket of each session whose host runs; None while it is being opened."""
        self._tasks = TaskSet()
        """Those that open sockets, and those that forget removed sessions."""
        self._removed: list[SessionId] = []
        """The sessions to forget in the register."""

    async def run(self) -> None:
        """Run until the machine is no longer registered; its copies are removed then."""
        listener = await self._listen(self._paths.machine_socket(self._name), self._handle_request)
        following, delivering = asyncio.ensure_future(self._follow()), asyncio.ensure_future(self._deliver_messages())
        try:
            machine_file = self._paths.machine(self._name) / "machine.json"
            while await asyncio.to_thread(machine_file.exists) and not following.done():
                await asyncio.wait([following], timeout=REGISTERED_S)
            if following.done():
                following.result()
            else:
                await asyncio.to_thread(self._mirror.remove_all)
        finally:
            await end_tasks([following, delivering])
            for server in (listener, *self._servers.values()):
                if server is not None:
                    server.close()
            await self._tasks.aclose()
            await asyncio.to_thread(self._leave)

    def _leave(self) -> None:
        for session in list(self._servers):
            self._paths.socket(session).unlink(missing_ok=True)
        self._paths.machine_socket(self._name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the machine may be removed
            self._mirror.disconnect("the link to it has ended")

    async def _follow(self) -> None:
        """Connect, copy, and connect again after each loss."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with contextlib.aclosing(await self._connect()) as bus:
                    self._bus, connected_at = bus, time.monotonic()
                    try:
                        await self._copy(bus)
                    finally:
                        if time.monotonic() - connected_at > LONGEST_PAUSE_S:
                            pause_s = FIRST_PAUSE_S
            except (KasmonError, OSError) as error:
                why = error.why if isinstance(error, RemoteUnreachableError) else str(error)
                log.info("%s is unreachable: %s", self._name, why)
                await asyncio.to_thread(self._mirror.disconnect, why)
            finally:
                self._bus = None
            await asyncio.sleep(pause_s * (1 + random.random() / 2))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _connect(self) -> JoinedBus:
        return await self._open_bus(await asyncio.to_thread(read_machine, self._paths, self._name))

    async def _copy(self, bus: Bus) -> None:
        positions = await asyncio.to_thread(self._mirror.positions)
        clock, asked_at = ClockOffset(), time.time()
        async with contextlib.aclosing(bus.updates(positions)) as updates:
            while True:
                coming = asyncio.ensure_future(anext(updates))
                try:
                    await asyncio.wait([coming], timeout=LATE_S)
                    if is_late := not coming.done():
                        await asyncio.to_thread(self._mirror.note_late, True)
                        await asyncio.wait([coming], timeout=LOST_S - LATE_S)
                    if not coming.done():
                        raise RemoteUnreachableError(
                            self._name, f"no sign of life for {LOST_S:g} s", is_registered=True
                        )
                    update = await coming
                except StopAsyncIteration:
                    raise RemoteUnreachableError(self._name, "the connection ended", is_registered=True) from None
                finally:
                    await end_tasks([coming])
                if is_late:
                    await asyncio.to_thread(self._mirror.note_late, False)
                if isinstance(update, BusWelcome):
                    clock.begin(asked_at, update.at, time.time())
                elif isinstance(update, Heartbeat):
                    clock.add(update.at, time.time())
                self._mirror.clock_offset_s = clock.value_s
                if isinstance(update, ListEnd | Heartbeat | LogPart):
                    await self._tasks.wait(LATE_S)  # what is shown as running can be connected to
                await asyncio.to_thread(self._mirror.apply, update)
                if isinstance(update, ListEnd) or (isinstance(update, LogPart) and MESSAGE in update.content):
                    self._messages_came.set()

    # The sockets of the hosts.

    def _handle_session(self, session: SessionId, presence: HostPresence | None) -> None:
        """Open the socket of a session whose host runs; close it once that is gone."""
        runs = presence is not None and presence.host is not None
        if runs and session not in self._servers:
            self._servers[session] = None
            self._tasks.start(self._open_socket(session))
            self._tasks.start(asyncio.to_thread(_start_notifier, self._paths))
        elif not runs and (server := self._servers.pop(session, None)) is not None:
            server.close()
            self._paths.socket(session).unlink(missing_ok=True)
        if presence is None and self._register:
            self._removed.append(session)
            if len(self._removed) == 1:
                self._tasks.start(self._forget_removed())

    async def _forget_removed(self) -> None:
        from kasmon.supervisor.machines.child_messages import forget_removed  # rarely needed

        removed, self._removed = self._removed, []
        with contextlib.suppress(OSError):  # the machine may be removed
            await asyncio.to_thread(forget_removed, self._paths, self._name, self._register, removed)

    async def _open_socket(self, session: SessionId) -> None:
        async def forward(client: socket.socket) -> None:
            await self._forward(session, client)

        server = await self._listen(self._paths.socket(session), forward)
        if session in self._servers:
            self._servers[session] = server
        else:
            server.close()

    async def _forward(self, session: SessionId, client: socket.socket) -> None:
        """Connect *client* with the host of *session*; answer it with the reason if that fails."""
        try:
            why = await asyncio.to_thread(self._clients.refusal, client)
            if why:
                raise RefusedError(why)
            await self._require_bus().join(session, client)
        except KasmonError as error:
            await _refuse(client, error)
        except OSError:
            return

    # Requests of this machine's programs.

    async def _handle_request(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        frames = FrameReader()
        try:
            why = await asyncio.to_thread(self._clients.refusal, client)
            while data := await loop.sock_recv(client, PIECE_BYTES):
                for frame in frames.feed(data):
                    request = _request_decoder.decode(frame)
                    if why == OTHER_USER or (why and not isinstance(request, AgentRequest)):
                        reply: LinkReply = codec.failed(request.n, RefusedError(f"{why}."))
                    elif isinstance(request, AgentRequest):
                        reply = await self._reply_to_agent(request, system.HERE.identify_peer(client).pid)
                    else:
                        reply = await self._reply(request)
                    await loop.sock_sendall(client, pack(msgspec.msgpack.encode(reply)))
        except (OSError, FrameTooLargeError, msgspec.DecodeError):
            return

    async def _reply(self, request: RunCommand | ReadFile) -> LinkReply:
        try:
            bus = self._require_bus()
            if isinstance(request, RunCommand):
                return CommandReply(request.n, await _run(bus, request))
            return FileReply(request.n, await bus.read_file(request.session, request.name, request.offset))
        except (KasmonError, OSError) as error:
            return codec.failed(request.n, error)

    async def _reply_to_agent(self, request: AgentRequest, pid: int) -> LinkReply:
        """Have *request* of process *pid* done, if the person allowed its agent that."""
        from kasmon.supervisor.machines import agent_requests, delegation  # rarely needed

        allowed = agent_requests.command_for(self._paths, self._name, pid, request)
        is_start = request.act == "start"
        try:
            async with self._agent_start if is_start else contextlib.nullcontext():
                command = await asyncio.to_thread(allowed.__enter__)
                try:
                    async with asyncio.timeout(AGENT_START_S if is_start else None):
                        output = await self._run_for_agent(command)
                    if is_start:
                        session = delegation.started_session(self._name, output)
                        await asyncio.to_thread(self._register.add, session, command.starter)
                        self._messages_came.set()  # it may have written some meanwhile
                        await delegation.wait_for_copy(self._paths, session, lambda now: now is not None)
                finally:
                    allowed.__exit__(None, None, None)
        except TimeoutError:
            why = f"it did not answer within {AGENT_START_S:g} s; it is unknown whether the session was started"
            return codec.failed(request.n, RemoteUnreachableError(self._name, why, is_registered=True))
        except (KasmonError, OSError) as error:
            return codec.failed(request.n, error)
        return CommandReply(request.n, output)

    async def _run_for_agent(self, command: "MachineCommand") -> CommandOutput:
        return await self._require_bus().run(command.arguments, command.stdin)

    def _require_bus(self) -> JoinedBus:
        if self._bus is None:
            raise RemoteUnreachableError(self._name, "it is not connected", is_registered=True)
        return self._bus

    # Messages of agents there to those here that started them.

    async def _deliver_messages(self) -> None:
        while True:
            await self._messages_came.wait()
            self._messages_came.clear()
            if not self._register:
                continue
            from kasmon.supervisor.machines.child_messages import ChildMessages  # rarely needed

            try:
                await ChildMessages(self._paths, self._name, self._register, self._refuse_messages).deliver()
            except (KasmonError, OSError) as error:  # the next message, or connection, tries it again
                log.warning("messages of agents on %s cannot be delivered: %s", self._name, error)

    async def _refuse_messages(self, sender: SessionId, recipient: SessionId, reasons: Sequence[str]) -> None:
        from kasmon.supervisor.machines.agent_requests import refusal_of_messages  # rarely needed

        try:
            command = await asyncio.to_thread(refusal_of_messages, self._paths, sender, recipient, reasons)
            async with asyncio.timeout(AGENT_START_S):
                await self._run_for_agent(command)
        except (KasmonError, OSError, TimeoutError) as error:
            log.info("the agent of %s is not told that messages of it were refused: %s", sender, error)

    async def _listen(
        self, path: Path, handle: Callable[[socket.socket], Coroutine[Any, Any, None]]
    ) -> "_SocketListener":
        return _SocketListener(await asyncio.to_thread(bind, path), handle)


def _start_notifier(paths: Paths) -> None:
    """Start the process that pushes notifications, as a session here does that starts; the link runs without it."""
    config = load_or_default(paths, log.warning)
    targets = config.notify.targets.values()
    if not targets or any(target.url_env for target in targets):  # a link has no variables of the user
        return
    with contextlib.suppress(KasmonError, OSError):
        if lock_holder(paths.notifier_lock) is None:
            from kasmon.supervisor.notifications.notifier import start_notifier  # some megabytes, and rarely needed

            start_notifier(paths, config)


async def _run(bus: Bus, request: RunCommand) -> CommandOutput:
    if request.order is not None and isinstance(bus, QueueBus):
        return await bus.run_order(request.order, request.arguments, request.stdin)
    return await bus.run(request.arguments, request.stdin)


class _SocketListener:
    """Accepts clients at *listening*, and runs *handle* for each; a client's socket is closed here after that.

    A client that *handle* joined to a host stays connected, through the bus's own descriptor.
    """

    def __init__(self, listening: socket.socket, handle: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
        self._listening, self._handle = listening, handle
        self._loop = asyncio.get_running_loop()
        self._clients = TaskSet()
        self._loop.add_reader(listening.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more clients, and end what *handle* still does for others."""
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        self._clients.cancel()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listening.accept()
            client.setblocking(False)
            self._clients.start(self._serve(client))

    async def _serve(self, client: socket.socket) -> None:
        with client:
            await self._handle(client)


class ClientCheck:
    """Decides which processes may use the link; each is looked at once, as that may take a second."""

    def __init__(self) -> None:
        self._results: dict[tuple[int, float | None], str] = {}

    def refusal(self, client: socket.socket) -> str:
        """Return why *client* may not use the link; empty if it may. Blocks."""
        peer = system.HERE.identify_peer(client)
        if not is_ours(peer):
            return OTHER_USER
        process = peer.pid, started_at(peer.pid)
        if process not in self._results:
            if len(self._results) >= MOST_CLIENTS:
                self._results.clear()
            shown = evidence(peer.pid)
            self._results[process] = f"{AGENT_REFUSED} ({shown})" if shown else ""
        return self._results[process]


async def _refuse(client: socket.socket, error: KasmonError) -> None:
    """Greet *client* as a host does, and answer each other frame of it with *error*."""
    loop = asyncio.get_running_loop()
    unpacker = codec.Unpacker()
    with contextlib.suppress(OSError, codec.WireError, msgspec.DecodeError):
        while data := await loop.sock_recv(client, PIECE_BYTES):
            for body in unpacker.feed(data):
                frame = codec.decode_client_frame(body)
                if isinstance(frame, NumberedFrame):
                    greeting = Welcome(n=frame.n, pid=os.getpid(), kasmon=__version__)
                    answer = greeting if isinstance(frame, Hello) else codec.failed(frame.n, error)
                    await loop.sock_sendall(client, codec.pack(answer))
