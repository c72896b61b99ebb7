"""A dashboard under its guard. `run` stays; `leave N` exits with N; `vanish N` does so without tidying up."""

import os
import sys
from pathlib import Path

from kasmon.tui import guard


def dashboard() -> int:
    from kasmon.host.wire import Modes
    from tests.tui.programs.tapped import Tapped

    with Path(sys.argv[1]).open("a") as notes:
        notes.write(f'["pids", [{os.getppid()}, {os.getpid()}]]\n')
    app = Tapped(Path(sys.argv[1]), Modes())
    how, code = sys.argv[2], int(sys.argv[3])
    if how == "leave":
        app.call_later(lambda: app.set_timer(0.3, lambda: app.exit(return_code=code)))
    elif how == "vanish":
        app.call_later(lambda: app.set_timer(0.3, lambda: os._exit(code)))
    app.run()
    return app.return_code or 0


if __name__ == "__main__":
    anew = {"copied": False, "anew": True}[sys.argv[4]]
    sys.exit(guard.run_guarded(dashboard, anew=anew))
