"""What is around the interpreters: the clock, files that a sleep does not keep, services and their ports."""

import time

from kasmon.sandbox.inside import file
from kasmon.sandbox.inside.client import Client
from kasmon.sandbox.inside.loop import Loop
from kasmon.sandbox.inside.port import probe
from kasmon.sandbox.inside.request import RefusedError, Words, number
from kasmon.sandbox.inside.service import Service
from kasmon.sandbox.inside.state import unpacked

DRIFT_S = 0.5
"""A clock that is off by less is left alone: it is the machine's own, or as good."""


class Upkeep:
    """Each act takes a request, and gives its answer or sends that later."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.services: dict[str, Service] = {}

    def set_clock(self, client: Client, message: Words) -> Words:
        now = number(message, "now", 0.0, 1e11)
        drift_s = now - time.time()
        if abs(drift_s) < DRIFT_S:
            return {"set": False, "drift_s": drift_s}
        try:
            time.clock_settime(time.CLOCK_REALTIME, now)
        except OSError as error:
            return {"set": False, "drift_s": drift_s, "why": error.strerror}
        return {"set": True, "drift_s": drift_s}

    def write_volatile(self, client: Client, message: Words) -> Words:
        path = message.get("path")
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            raise RefusedError("'path' is a whole path")
        file.write(path, unpacked(message.get("data")), int(number(message, "mode", 0o600, 0o777)))
        return {}

    def spawn(self, client: Client, message: Words) -> Words:
        name, start = message.get("name"), message.get("start")
        variables = message.get("variables") or {}
        if not isinstance(name, str) or not isinstance(start, str) or not isinstance(variables, dict) or "\0" in start:
            raise RefusedError("'name' and 'start' are texts")
        before = self.services.get(name)
        if before and before.pid and message.get("again") is not True:
            return {"pid": before.pid, "started": False}
        if before:
            before.end()
        self.services[name] = Service(self._loop, start, {str(key): str(value) for key, value in variables.items()})
        return {"pid": self.services[name].pid, "started": True}

    def probe(self, client: Client, message: Words) -> None:
        port = int(number(message, "port", 0, 65535))
        probe(
            self._loop, port, lambda taken: client.send({"id": message.get("id"), "type": "answer", "listening": taken})
        )
