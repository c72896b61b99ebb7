"""Open the dashboard on this terminal."""

import os
import sys

from kasmon.paths import Places
from kasmon.tui.app import Kasmon
from kasmon.tui.driver import TapDriver
from kasmon.tui.live import LiveWorld
from kasmon.tui.trouble import keep_trouble


def run(places: Places, *, agents_go_on: bool = True) -> int:
    """Show the dashboard over *places* until the person leaves it, and return the exit code.

    *agents_go_on* is what it tells that person; of a demo they do not.
    """
    keep_trouble(places.own_log)
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # what a shell once exported; the terminal knows its size, also when that changes
    world = LiveWorld(places)
    app = Kasmon(world.first(), world, driver_class=TapDriver)
    app.agents_go_on = agents_go_on
    try:
        app.run()
    finally:
        world.close()
        if app.crash:
            sys.stderr.write(f"kasmon: {app.crash}\n")
    return app.return_code or 0
