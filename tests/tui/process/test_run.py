"""The dashboard as a process, before its first frame."""

import signal
from pathlib import Path

from tests.support.tui.pty_program import OnTerminal, program


def test_an_interrupt_before_the_signal_handlers_ends_the_dashboard(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    with OnTerminal(program("absorbing"), tmp_path) as screen:
        assert -signal.SIGINT == screen.ended()
