"""A terminal of a person's that shows a session of a tmux server."""

import contextlib
import os
import subprocess
import termios
from collections.abc import Iterator

from kasmon.tmux.server import TmuxServer


@contextlib.contextmanager
def attached(server: TmuxServer, session: str) -> Iterator[int]:
    """Attach a terminal to *session*; yields what its keyboard writes to."""
    outer, inner = os.openpty()
    termios.tcsetwinsize(outer, (40, 120))
    try:
        client = subprocess.Popen(
            server.attach_argv(session),
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )
        try:
            yield outer
        finally:
            client.kill()
            client.wait()
    finally:
        os.close(inner)
        os.close(outer)
