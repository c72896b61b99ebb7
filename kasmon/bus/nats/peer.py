"""One of the further servers of a cluster, run from its folder with the configuration that the service signs.

`kasmon cluster init --servers` makes the folder, which is copied to the machine of that server.
"""

import asyncio
import contextlib
import json
import logging
import signal
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec
from nats.aio.msg import Msg

from kasmon.asyncio_tasks import end_tasks, wait_within
from kasmon.bus.nats import certificates
from kasmon.bus.nats.connection import Connection, connect
from kasmon.bus.nats.identity import Identity
from kasmon.bus.nats.leaf import end_leafs
from kasmon.bus.nats.server import ServerProgram, start_server, stop_server
from kasmon.bus.nats.server_config import build_server_name, find_removed_users
from kasmon.bus.nats.signatures import CommandRefusedError, read_signed_text
from kasmon.bus.nats.subjects import certificate_subject, configuration_subject
from kasmon.errors import KasmonError, NotFoundError, UnavailableError
from kasmon.paths import write_private

START_S: Final = 15.0
LONGEST_WAIT_S: Final = 30.0
FIRST_WAIT_S: Final = 1.0
RENEW_CHECK_S: Final = 600.0
"""How often is looked whether the certificate expires soon."""

log = logging.getLogger(__name__)


class PeerServer:
    """Runs the server of one folder until it is stopped."""

    def __init__(self, folder: Path, program: ServerProgram) -> None:
        """Raise `NotFoundError` if *folder* is no folder of a further server."""
        self._path, self._program = folder, program
        self._configuration = folder / "server.conf"
        try:
            self._identity = msgspec.json.decode((folder / "peer.json").read_bytes(), type=Identity)
            self._number = int(self._identity.name.rpartition("-")[2])
        except (OSError, msgspec.DecodeError, ValueError) as error:
            raise NotFoundError(
                f"{str(folder)!r} is no folder of a server: {error}.",
                hint="Copy it from the folder `servers` of the cluster, which `kasmon cluster init --servers` made.",
            ) from error
        self._process: subprocess.Popen[bytes] | None = None
        self._signed_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Run until *stop* is set; a server that ends is started again."""
        wait_s = 1.0
        while not stop.is_set():
            process = self._process = await asyncio.to_thread(
                start_server, self._program, self._configuration, self._path
            )
            since = time.monotonic()
            following = asyncio.create_task(self._follow(process))
            tasks = [following, asyncio.create_task(asyncio.to_thread(process.wait)), asyncio.create_task(stop.wait())]
            try:
                await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await asyncio.shield(asyncio.to_thread(stop_server, process))
                await end_tasks(tasks)
            wait_s = 1.0 if time.monotonic() - since > LONGEST_WAIT_S else min(2 * wait_s, LONGEST_WAIT_S)
            await wait_within(wait_s, stop)

    async def _follow(self, process: "subprocess.Popen[bytes]") -> None:
        """Use each new configuration that the service of the cluster sends."""
        async with contextlib.aclosing(await self._connect(process)) as connection:
            await connection.subscribe(configuration_subject(self._identity.cluster, self._number), self._handle)
            await connection.flush()
            wait_s = FIRST_WAIT_S
            while True:
                is_renewed = await self._renew_certificate(connection)
                wait_s = RENEW_CHECK_S if is_renewed else min(2 * wait_s, RENEW_CHECK_S)
                await asyncio.sleep(wait_s)

    async def _renew_certificate(self, connection: Connection) -> bool:
        """Get a new certificate from the service of the cluster, if this one expires soon. The new key is made here.

        Returns whether this one does not expire soon now.
        """
        old = await asyncio.to_thread((self._path / "server.pem").read_bytes)
        if certificates.expires_at(old) - time.time() > certificates.RENEW_S:
            return True
        key = certificates.make_key()
        subject = certificate_subject(self._identity.cluster, str(self._number))
        try:
            answer = await connection.request(subject, certificates.public_part(key))
            certificates.check_renewed(answer.data, self._identity.ca.encode(), key)
        except (KasmonError, ValueError) as error:  # it is tried again
            log.warning("the certificate of this server expires soon, and is not renewed: %s", error)
            return False
        await asyncio.to_thread(write_private, self._path / "server.key", key)
        await asyncio.to_thread(write_private, self._path / "server.pem", answer.data)
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)
        log.warning("the certificate of this server is renewed")
        return True

    async def _connect(self, process: "subprocess.Popen[bytes]") -> Connection:
        while process.poll() is None:
            try:
                return await connect(self._identity)
            except UnavailableError as error:
                log.info("%s", error)
            await asyncio.sleep(0.1)
        raise UnavailableError("the NATS server ended.")

    async def _handle(self, message: Msg) -> None:
        try:
            text, signed_at = read_signed_text(message.data, self._identity.cluster_key)
        except CommandRefusedError as error:
            log.warning("%s", error)
            return
        if signed_at > self._signed_at and self._process is not None:
            self._signed_at = signed_at
            old = await asyncio.to_thread(self._configuration.read_text)
            if old != text:
                await asyncio.to_thread(write_private, self._configuration, text.encode())
                self._process.send_signal(signal.SIGHUP)
                if (removed := find_removed_users(old, text)) and "leafnodes" in json.loads(text):
                    await self._end_leafs(removed)

    async def _end_leafs(self, accounts: Collection[str]) -> None:
        """End the leafnodes in *accounts*, which have lost a user."""
        try:
            async with contextlib.aclosing(await connect(self._identity)) as connection:
                await end_leafs(connection, build_server_name(self._identity.cluster, self._number), accounts)
        except KasmonError as error:
            log.warning("leafnodes of members that were removed may still be connected: %s", error)
