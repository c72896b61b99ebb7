"""A second, silent client that keeps agents running while ours does not read.

tmux stops reading from a pane, and so stops its program, when no attached client can take more of its output. A host
that hangs would thus stop every agent. This client takes no output, so tmux always goes on, and skips ours instead.
"""

import subprocess
from collections.abc import Mapping, Sequence

from kasmon.tmux.control import CLOSE_STEPS


class Keeper:
    """At most one such client. It ends by itself when this process does: its input ends then."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv, self._environment = argv, environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def keep(self) -> None:
        """See to it that the client runs; idempotent, and waits for nothing."""
        if self.pid is not None:
            return
        self.close()
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the client, by its pid; idempotent, bounded by three seconds."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        for number, patience_s in CLOSE_STEPS:
            if number is not None:
                process.send_signal(number)
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
            return
