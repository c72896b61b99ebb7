"""The dashboard, interrupted before it handles signals, while it absorbs the cancellation of its own start."""

import asyncio
import contextlib
import os
import signal
import sys

from kasmon.paths import user_paths
from kasmon.tui.app import Kasmon
from kasmon.tui.process import run


class Absorbing(Kasmon):
    async def on_load(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


if __name__ == "__main__":
    run.Kasmon = Absorbing  # type: ignore[attr-defined]  # what `run` starts
    found = user_paths(os.environ)
    found.make()
    sys.exit(run.run(found))
