"""Suspend the dashboard for another program, a real `tmux attach`, and resume it afterwards."""

import asyncio
import os
import signal
from collections.abc import Sequence

from textual.app import SuspendNotSupported

from kasmon.errors import UnableError
from kasmon.tui.app_protocols import SuspendableApp


async def run_in_terminal(app: SuspendableApp, argv: Sequence[str]) -> None:
    """Run *argv* on this terminal until it ends; then the app resumes, in the terminal's current size.

    Raises:
        UnableError: if there is no terminal to hand over, or the program cannot be started.
    """
    try:
        with app.suspend():  # if this block raises, Textual 8.2 does not take the terminal back
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                failed = await asyncio.to_thread(_run, list(argv))
            finally:
                signal.signal(signal.SIGINT, before)
    except SuspendNotSupported as error:
        raise UnableError("cannot attach: this screen has no terminal.") from error
    if failed is not None:
        raise failed
    app.refresh(layout=True)


def _run(argv: Sequence[str]) -> UnableError | None:
    """Run *argv* on the terminal until it ends; return the error, None if it succeeded."""
    import subprocess  # imported late

    environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
    try:
        code = subprocess.run(argv, env=environment, check=False).returncode
    except OSError as error:
        return UnableError(f"cannot start {argv[0]!r}: {error.strerror}.")
    if code:
        return UnableError(f"{argv[0]!r} ended with exit code {code}.", hint="Run `kasmon doctor`.")
    return None
