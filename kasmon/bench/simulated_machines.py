"""Program that writes what the links to many machines write, without machines: registrations, lists, logs, presence.

    python -m kasmon.bench.simulated_machines MACHINES SESSIONS RUNNING HZ

It registers machines with SESSIONS sessions each, of which RUNNING are working, and prints `ready` once all are copied.
After the end of its input, it writes HZ changes a second, spread over the working sessions, without end. Each machine's
copy is written by a `Mirror`, as by its link, and this process holds the locks of the links.
"""

import itertools
import random
import sys
import time
from collections.abc import Iterator
from typing import Final

from kasmon import __version__
from kasmon.bench.dashboard.event_writer import EVERY_MESSAGE, generate_story
from kasmon.bench.support.fleet import session_events
from kasmon.bus.base import PROTOCOL, BusWelcome, Heartbeat, ListEnd, LogPart, SessionEntry
from kasmon.bus.mirror import Mirror
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.events import Event, TurnEnded, TurnStarted, encode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, user_paths
from kasmon.store.machines import HostPresence, Machine, write_machine

LOG: Final = "1"
MESSAGES: Final = 5
"""After so many messages a turn ends, and the next one begins."""


class SimulatedMachine:
    """A machine with *sessions* sessions, of which the first *running* work; their numbers begin with *first*."""

    def __init__(self, paths: Paths, name: str, first: int, sessions: int, running: int) -> None:
        self._first, self._sessions, self._running = first, sessions, running
        write_machine(paths, Machine(name=name, ssh=name), is_new=True)
        self._lock = HostLock(paths.machine_lock(name))
        self._lock.acquire()
        self._mirror = Mirror(paths, name)
        self._sizes: dict[SessionId, int] = {}
        self._stories: list[tuple[SessionId, Iterator[Event]]] = []

    def list(self) -> None:
        """Write its list and its logs."""
        self._mirror.positions()
        self._mirror.apply(BusWelcome(__version__, PROTOCOL, "simulated", ()))
        for number in range(self._first, self._first + self._sessions):
            is_alive = number < self._first + self._running
            created, *events = session_events(number, time.time() - 60, is_alive=is_alive)
            session = created.launch.session
            presence = HostPresence(1, agent_runs=True) if is_alive else HostPresence()
            self._mirror.apply(SessionEntry(created, created.launch.name, 0.0, presence))
            self._write(session, *events)
            if is_alive:
                self._stories.append((session, _work()))
        self._mirror.apply(ListEnd())

    def change(self) -> None:
        """Write the next event of a session that works."""
        session, story = random.choice(self._stories)
        self._write(session, next(story))
        self._mirror.apply(Heartbeat())

    def _write(self, session: SessionId, *events: Event) -> None:
        content = b"".join(encode(event) + b"\n" for event in events)
        offset = self._sizes.get(session, 0)
        self._mirror.apply(LogPart(session, LOG, offset, content))
        self._sizes[session] = offset + len(content)


def _work() -> Iterator[Event]:
    story = generate_story(stamps=False)
    while True:
        yield from itertools.islice(story, EVERY_MESSAGE * MESSAGES)
        yield TurnEnded(at=time.time())
        yield TurnStarted(at=time.time(), prompt="go on")


def main(machines: int, sessions: int, running: int, rate_hz: float) -> None:
    """Simulate *machines*; never returns."""
    paths = user_paths()
    simulated = [
        SimulatedMachine(paths, f"m{number:03d}", number * sessions, sessions, running) for number in range(machines)
    ]
    for machine in simulated:
        machine.list()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    due_at = time.monotonic()
    while True:
        if rate_hz:
            random.choice(simulated).change()
        due_at += 1 / (rate_hz or 1.0)
        time.sleep(max(0.0, due_at - time.monotonic()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
