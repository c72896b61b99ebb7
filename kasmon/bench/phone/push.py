"""Measures the delay from a request in a session's log to its message at a service: an ntfy on loopback."""

import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kasmon.bench.phone.page import COMMAND
from kasmon.bench.support.figure import Figure, percentile, timed
from kasmon.bench.support.fleet import build_request, create_sessions, scratch, session_id
from kasmon.bench.support.terminal import KASMON, environment
from kasmon.errors import TimedOutError, UnavailableError
from kasmon.model.events import RequestOpened
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, private_folder, write_private
from kasmon.store.event_log import EventLog
from kasmon.supervisor.notifications.push_sender import is_installed

LIMIT_S = 30.0
PAUSE_S = 0.7


class PushService:
    """Accepts messages as ntfy does, in a thread. Close it."""

    def __init__(self) -> None:
        self.received = threading.Semaphore(0)
        """Released for each message, once all of it is here."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                service.received.release()
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the parent's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"ntfy://127.0.0.1:{self._server.server_address[1]}/topic"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def measure_push(rounds: int) -> list[Figure]:
    """Measure *rounds* requests, each of a session with a target of its own: several of one target are one message.

    Raises:
        UnavailableError: if apprise is not installed.
        TimedOutError: if a message does not arrive.
    """
    if not is_installed():
        raise UnavailableError("apprise is not installed.", hint="`pipx install --force '.[push]'` in kasmon's clone")
    service = PushService()
    try:
        with scratch() as paths, create_sessions(paths, rounds + 1) as ids:
            _configure(paths, service.address, len(ids))
            own = environment(paths.environment_variables())
            with subprocess.Popen([*KASMON, "host", "--notify"], env=own, stdin=subprocess.DEVNULL) as notifier:
                try:
                    delays = [_push(paths, service, session) for session in ids]
                finally:
                    notifier.terminate()
    finally:
        service.close()
    delays = delays[1:]  # the first one waits for apprise, which takes seconds to load
    note = f"p95 {percentile(delays, 0.95):.0f} ms; 100 ms of it wait for further requests, which are one message then"
    return [timed("request to message at the service, p50", delays, 300, note)]


def _configure(paths: Paths, address: str, count: int) -> None:
    private_folder(paths.config)
    targets = (
        f'[notify.targets.t{number}]\nurl = "{address}"\nwhen = "always"\nsessions = ["{session_id(number)}"]\n'
        for number in range(count)
    )
    write_private(paths.config_file, "".join(targets).encode())


def _push(paths: Paths, service: PushService, session: SessionId) -> float:
    """Return the time from the request of *session* to its message, in ms."""
    time.sleep(PAUSE_S)
    request = build_request(session, COMMAND)
    began = time.perf_counter()
    EventLog(paths.log(session)).append(RequestOpened(at=time.time(), request=request))
    if not service.received.acquire(timeout=LIMIT_S):
        raise TimedOutError(f"no message arrived within {LIMIT_S:g} s.")
    return 1000 * (time.perf_counter() - began)
