"""Program that runs the real dashboard with a probe of its event loop's lag.

    python -m kasmon.bench.dashboard.loop_lag FILE

The probe sleeps for ten milliseconds at a time; the excess over that is the lag. After each second it appends the
longest lag of that second, in milliseconds, to FILE as a line.
"""

import asyncio
import sys
import time
from pathlib import Path

from kasmon.paths import user_paths
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.textual_ext.driver import TapDriver

STEP_S = 0.01


class ProbedKasmon(Kasmon):
    def __init__(self, file: Path) -> None:
        super().__init__(gateway=LiveGateway(user_paths()), driver_class=TapDriver)
        self._file = file

    def on_ready(self) -> None:
        self.run_worker(self._probe(), group="probe")

    async def _probe(self) -> None:
        with self._file.open("a", buffering=1) as file:
            while True:
                longest, until = 0.0, time.perf_counter() + 1.0
                while (asked := time.perf_counter()) < until:
                    await asyncio.sleep(STEP_S)
                    longest = max(longest, time.perf_counter() - asked - STEP_S)
                file.write(f"{1000 * longest:.1f}\n")


if __name__ == "__main__":
    ProbedKasmon(Path(sys.argv[1])).run()
