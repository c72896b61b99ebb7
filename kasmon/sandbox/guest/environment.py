"""The guest's clock, volatile files, services and ports: the requests that concern no interpreter."""

import time

from kasmon.sandbox.guest import whole_file
from kasmon.sandbox.guest.client import GuestConnection
from kasmon.sandbox.guest.event_loop import EventLoop
from kasmon.sandbox.guest.interpreter_state import unpacked
from kasmon.sandbox.guest.port import probe
from kasmon.sandbox.guest.request_fields import InvalidRequestError, JsonObject, number
from kasmon.sandbox.guest.services import GuestService

DRIFT_S = 0.5
"""A clock that is off by less is left alone: it is the machine's own, or accurate enough."""


class GuestEnvironment:
    """Request handlers: each takes a request, and returns its answer or sends that later."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.services: dict[str, GuestService] = {}

    def set_clock(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        now = number(message, "now", 0.0, 1e11)
        drift_s = now - time.time()
        if abs(drift_s) < DRIFT_S:
            return {"set": False, "drift_s": drift_s}
        try:
            time.clock_settime(time.CLOCK_REALTIME, now)
        except OSError as error:
            return {"set": False, "drift_s": drift_s, "why": error.strerror}
        return {"set": True, "drift_s": drift_s}

    def write_volatile(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        path = message.get("path")
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            raise InvalidRequestError("'path' is a whole path")
        whole_file.write(path, unpacked(message.get("data")), int(number(message, "mode", 0o600, 0o777)))
        return {}

    def spawn(self, client: GuestConnection, message: JsonObject) -> JsonObject:
        name, start = message.get("name"), message.get("start")
        variables = message.get("variables") or {}
        if not isinstance(name, str) or not isinstance(start, str) or not isinstance(variables, dict) or "\0" in start:
            raise InvalidRequestError("'name' and 'start' are texts")
        before = self.services.get(name)
        if before and before.pid and message.get("again") is not True:
            return {"pid": before.pid, "started": False}
        if before:
            before.end()
        self.services[name] = GuestService(
            self._loop, start, {str(key): str(value) for key, value in variables.items()}
        )
        return {"pid": self.services[name].pid, "started": True}

    def probe(self, client: GuestConnection, message: JsonObject) -> None:
        port = int(number(message, "port", 0, 65535))
        probe(
            self._loop, port, lambda taken: client.send({"id": message.get("id"), "type": "answer", "listening": taken})
        )
