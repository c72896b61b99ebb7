"""Entry point and dispatch of the guest program: each request is checked, routed, and answered once it is done."""

import contextlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping

from kasmon.sandbox.guest.bash import BashInterpreter
from kasmon.sandbox.guest.children import build_environment, is_open, spawn
from kasmon.sandbox.guest.client import VARIABLE, GuestConnection, InvalidRequestError, JsonObject, texts, variables_of
from kasmon.sandbox.guest.environment import GuestEnvironment, GuestService, report_confinement
from kasmon.sandbox.guest.event_loop import EventLoop
from kasmon.sandbox.guest.interpreter import GuestInterpreter
from kasmon.sandbox.guest.interpreter_state import MOST_BYTES, ask_all, load_state, save_state, unpacked
from kasmon.sandbox.guest.outcome import NOT_DONE, refusal
from kasmon.sandbox.guest.private_folder import PrivateFolder
from kasmon.sandbox.guest.process import GuestProcess
from kasmon.sandbox.guest.processes import Processes
from kasmon.sandbox.guest.runs import GuestRuns
from kasmon.sandbox.guest.turn import GuestTurn
from kasmon.sandbox.guest.worker_interpreters import node_interpreter, python_interpreter

PROTOCOL = 1
PROXY_PORT = 3128
LISTENER = 3
"""The descriptor of the forwarder's listening socket, in the forwarder."""
CLIENTS = 256
"""Most clients at a time; further connections are closed at once."""


def serve(*, forwards: bool = False) -> None:
    """Serve on the inherited listening socket, forever. With *forwards*, start the proxy forwarder on demand."""
    for usual in (0, 1, 2):
        if not is_open(usual):
            os.open("/dev/null", os.O_RDWR)
    listening = socket.socket(fileno=int(os.environ.pop("KASMON_LISTEN_FD")))
    listening.setblocking(False)
    os.set_inheritable(listening.fileno(), False)
    ready = os.environ.pop("KASMON_READY_FD", "")
    if ready:
        os.set_inheritable(int(ready), False)
    router = RequestRouter(listening)
    if forwards:
        router.forward_on_demand()
    signal.signal(signal.SIGTERM, lambda *_: router.shut())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if ready:
        os.write(int(ready), b"R")
        os.close(int(ready))
    router.loop.run()


class RequestRouter:
    def __init__(self, listening: socket.socket) -> None:
        self.loop = EventLoop(self._reap)
        self._listening = listening
        self._place = PrivateFolder()
        self._interpreters: dict[str, GuestInterpreter] = {
            each.name: each
            for each in (
                python_interpreter(self.loop, self._place),
                BashInterpreter(self.loop, self._place),
                node_interpreter(self.loop, self._place),
            )
        }
        self._environment = GuestEnvironment(self.loop)
        self._runs = GuestRuns(self._interpreter)
        self._processes = Processes(self.loop)
        self._clients: set[GuestConnection] = set()
        self._most_clients = min(CLIENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._parts: dict[GuestConnection, bytearray] = {}
        self._instance = os.urandom(8).hex()
        self._since = time.monotonic()
        self._acts: dict[str, Callable[[GuestConnection, JsonObject], JsonObject | None]] = {
            "execute": self._runs.execute,
            "recall": self._runs.recall,
            "ping": self._ping,
            "look": self._report_confinement,
            "level": self._level,
            "renew": self._renew,
            "surround": self._set_variables,
            "interrupt": self._runs.interrupt,
            "reset": self._reset,
            "prewarm": self._prewarm,
            "forget": self._forget,
            "save_state": self._save_state,
            "load_part": self._load_part,
            "load_state": self._load_state,
            "set_clock": self._environment.set_clock,
            "write_volatile": self._environment.write_volatile,
            "spawn": self._environment.spawn,
            "probe": self._environment.probe,
            "shutdown": self._shutdown,
            **self._processes.acts,
        }
        self.loop.watch(listening.fileno(), self._accept)

    def forward_on_demand(self) -> None:
        """Start the forwarder at the first connection to its port; that connection waits in the backlog.

        It takes 5 MB, and most sandboxes never connect.
        """
        listener = socket.create_server(("127.0.0.1", PROXY_PORT), backlog=64)
        program = f"{__file__.rpartition('/')[0]}/proxy_forwarder.py"

        def start() -> None:
            self.loop.forget(listener.fileno())
            with listener:
                argv = [sys.executable, "-I", "-S", program, str(LISTENER)]
                spawn(argv, build_environment({}), {LISTENER: listener.fileno()})

        self.loop.watch(listener.fileno(), start)

    def shut(self) -> None:
        """End all processes started in here, and this one."""
        self._processes.end()
        for service in self._environment.services.values():
            service.end()
        for interpreter in self._interpreters.values():
            interpreter.reset()
        self._place.remove()
        os._exit(0)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while True:
                stream = self._listening.accept()[0]
                if len(self._clients) < self._most_clients:
                    self._clients.add(GuestConnection(self.loop, stream, self._receive, self._drop_client))
                else:
                    stream.close()

    def _drop_client(self, client: GuestConnection) -> None:
        self._clients.discard(client)
        self._parts.pop(client, None)
        self._processes.drop_client(client)

    def _reap(self) -> None:
        living: list[GuestInterpreter | GuestService | GuestProcess] = [
            *self._interpreters.values(),
            *self._environment.services.values(),
        ]
        for each in [*living, *self._processes.living]:
            if each.pid:
                with contextlib.suppress(ChildProcessError):
                    pid, status = os.waitpid(each.pid, os.WNOHANG)
                    if pid:
                        each.handle_exit(status)

    def _receive(self, client: GuestConnection, message: JsonObject) -> None:
        kind = message.get("type", "execute")
        act = self._acts.get(kind) if isinstance(kind, str) else None
        try:
            if act is None:
                raise InvalidRequestError(f"Unknown type: {kind}")
            answer = act(client, message)
        except (InvalidRequestError, OSError) as error:
            client.send(refusal(message, str(error)))
        except Exception as error:  # noqa: BLE001 - a bug here must not leave the client without an answer
            client.send(refusal(message, f"internal error in the guest program: {error!r}", NOT_DONE))
        else:
            if answer is not None:
                client.send({"id": message.get("id"), "type": "answer", **answer})

    def _interpreter(self, message: JsonObject, default: str = "") -> GuestInterpreter:
        name = message.get("interpreter", default) or default
        found = self._interpreters.get(name) if isinstance(name, str) else None
        if found is None:
            raise InvalidRequestError(f"Unknown interpreter: {name}")
        return found

    def _reset(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        self._interpreter(message).reset()
        return {}

    def _prewarm(self, client: GuestConnection, message: JsonObject) -> None:
        names = texts(message, "interpreters")
        self._ask_all(client, message, [self._interpreter({"interpreter": name}) for name in names], "nothing", {})

    def _ask_all(
        self,
        client: GuestConnection,
        message: JsonObject,
        asked: list[GuestInterpreter],
        do: str,
        fields: Mapping[str, object],
    ) -> None:
        """Submit *do* to each of *asked*; the answer has the reply of each."""
        ask_all(
            [(each, GuestTurn(fields, do=do)) for each in asked],
            lambda said: client.send({"id": message.get("id"), "type": "answer", "interpreters": said}),
        )

    # State to save, and secrets to delete.

    def _forget(self, client: GuestConnection, message: JsonObject) -> None:
        names, values = texts(message, "names"), [value for value in texts(message, "values") if value]
        if not all(VARIABLE.fullmatch(name) for name in names) or any("\0" in value for value in values):
            raise InvalidRequestError("'names' are names of variables, 'values' texts without NUL")
        self._runs.forget_output()
        for service in self._environment.services.values():
            service.forget_output()
        living = [each for each in self._interpreters.values() if each.has_state()]
        for each in living:
            each.forget_output()
        self._ask_all(client, message, living, "forget", {"names": names, "values": values})

    def _save_state(self, client: GuestConnection, message: JsonObject) -> None:
        living = [each for each in self._interpreters.values() if each.has_state()]
        save_state(
            self._place,
            living,
            texts(message, "secrets"),
            lambda words: client.send({"id": message.get("id"), **words}),
        )

    def _load_part(self, client: GuestConnection, message: JsonObject) -> None:
        parts = self._parts.setdefault(client, bytearray())
        parts += unpacked(message.get("data"))
        if len(parts) > MOST_BYTES * 2:
            del self._parts[client]
            raise InvalidRequestError("the state is too large")

    def _load_state(self, client: GuestConnection, message: JsonObject) -> None:
        state = bytes(self._parts.pop(client, b""))
        load_state(
            self._place, self._interpreters, state, lambda words: client.send({"id": message.get("id"), **words})
        )

    def _ping(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        return {
            "nonce": message.get("nonce"),
            "protocol": PROTOCOL,
            "instance": self._instance,
            "pid": os.getpid(),
            "up_s": time.monotonic() - self._since,
            "now": time.time(),
            "workers": {name: each.state() for name, each in self._interpreters.items()},
            "services": {name: each.state() for name, each in self._environment.services.items()},
        }

    def _report_confinement(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        return report_confinement()

    def _level(self, client: GuestConnection, message: JsonObject) -> None:
        """Answer at once: the relay copies the mirrored folders out before it forwards this, as for a run's result."""
        client.send({"id": message.get("id"), "type": "level"})

    def _renew(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        """Take a new instance id: this process is a copy of another, in a sandbox of its own."""
        self._instance = os.urandom(8).hex()
        return {}

    def _set_variables(self, client: GuestConnection, message: JsonObject) -> None:
        """Set these variables in the running interpreters, and for all processes started from now on."""
        variables = variables_of(message)
        os.environ.update(variables)
        living = [each for each in self._interpreters.values() if each.pid]
        self._ask_all(client, message, living, "surround", {"variables": variables})

    def _shutdown(self, client: GuestConnection, message: JsonObject) -> None:
        client.send({"id": message.get("id"), "type": "answer"})
        self.shut()
