"""The user's own tmux servers with adopted panes: one passive connection each."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from kasmon.backends.tmux.adopted_backend import AdoptedBackend, list_adoptable_panes
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.config import Tmux
from kasmon.errors import RefusedError
from kasmon.host.rpc.frames import ForeignPanes, ListForeignPanes
from kasmon.model.commands import Launch
from kasmon.paths import Paths


class AdoptedServers:
    """The backends of these servers, by socket. *on_lost* is called with a backend whose server is gone, and why."""

    def __init__(self, places: Paths, settings: Tmux, on_lost: Callable[[AdoptedBackend, str], None]) -> None:
        self._places = places
        self._settings = settings
        self._on_lost = on_lost
        self._backends: dict[str, AdoptedBackend] = {}

    def of(self, launch: Launch) -> AdoptedBackend:
        """Return the backend of the server that *launch*, of an adopted session, names."""
        assert launch.adopted is not None
        socket = launch.adopted.socket
        if socket not in self._backends:
            backend = AdoptedBackend(self._places, self._settings, Path(socket))
            backend.line.on_lost = lambda why: self._on_lost(backend, why)
            self._backends[socket] = backend
        return self._backends[socket]

    async def panes(self, frame: ListForeignPanes, adopted: Mapping[tuple[str, str], str]) -> ForeignPanes:
        """Return the panes that could be adopted at the socket of *frame*; *adopted* has those that are, by socket and
        pane.

        Raises:
            RefusedError: if that is kasmon's own tmux.
            NotFoundError, TmuxError: if no tmux answers there.
        """
        socket = Path(frame.socket)
        if socket == self._places.tmux_socket:
            raise RefusedError("this is kasmon's own tmux: its sessions are already listed.")
        process, found = await asyncio.to_thread(list_adoptable_panes, socket, self._places.runtime)
        panes = tuple(msgspec.structs.replace(one, adopted=adopted.get((frame.socket, one.pane), "")) for one in found)
        return ForeignPanes(n=frame.n, server_pid=process.pid, server_started=process.started, panes=panes)

    async def tidy(self, needed: Collection[TmuxBackend]) -> None:
        """Close all connections except those *needed*."""
        for socket, backend in list(self._backends.items()):
            if backend not in needed:
                del self._backends[socket]
                await backend.aclose()

    async def aclose(self) -> None:
        """Close all connections; the servers run on. Idempotent."""
        for backend in self._backends.values():
            await backend.aclose()
