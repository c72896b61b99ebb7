"""A dashboard under its guard. `run` stays; `leave N` exits with N; `vanish N` does so without tidying up.

It is `copied` by the fork, or started `starts_python`, or so with `otherwise` given arguments and variables.
"""

import atexit
import os
import sys
import threading
from pathlib import Path

from kasmon.tui.process import terminal_guard


def dashboard() -> int:
    from kasmon.host.rpc.frames import TerminalModes
    from tests.support.tui.programs.tapped import Tapped

    with Path(sys.argv[1]).open("a") as notes:
        notes.write(f'["pids", [{os.getppid()}, {os.getpid()}]]\n["home", "{os.environ["HOME"]}"]\n')
    app = Tapped(Path(sys.argv[1]), TerminalModes())
    how, code = sys.argv[2], int(sys.argv[3])
    atexit.register(threading.Event().wait)  # what a library may do: Python's own end would never come
    if how == "leave":
        app.call_later(lambda: app.set_timer(0.3, lambda: app.exit(return_code=code)))
    elif how == "vanish":
        app.call_later(lambda: app.set_timer(0.3, lambda: os._exit(code)))
    app.run()
    return app.return_code or 0


if __name__ == "__main__":
    again = (
        ["-P", "-m", "tests.support.tui.programs.guarded", *sys.argv[1:4], "otherwise"]
        if sys.argv[4] == "otherwise"
        else []
    )
    variables = {"HOME": os.environ["HOME"] + "/other"} if again else {}
    starts_python, asleep = "copied" not in sys.argv[4], "asleep" in sys.argv[4]
    sys.exit(
        terminal_guard.run_guarded(
            dashboard, starts_python=starts_python, again=again, variables=variables, asleep=asleep
        )
    )
