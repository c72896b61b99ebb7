"""Open the dashboard on this terminal."""

from kasmon.paths import Places
from kasmon.tui.app import Kasmon
from kasmon.tui.driver import TapDriver
from kasmon.tui.live import LiveWorld


def run(places: Places) -> int:
    """Show the dashboard over *places* until the person leaves it, and return the exit code; the agents go on."""
    world = LiveWorld(places)
    app = Kasmon(world.first(), world, driver_class=TapDriver)
    try:
        app.run()
    finally:
        world.close()
    return app.return_code or 0
