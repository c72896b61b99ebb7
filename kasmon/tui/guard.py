"""The process beside the dashboard that gives the terminal back, however the dashboard ended.

`run_guarded` splits early, before anything heavy is imported: the parent waits with 9 MB, the child is the dashboard,
in the same foreground process group. The parent passes TERM and HUP on and stops when the child stops. If the child
dies by a signal, or leaves the terminal's modes changed, the parent restores them; a signal it tells in one line.

If the parent is killed, the child learns it from `lifeline` and ends by itself (`hygiene.py`): a shell that lost the
process it waited for takes the terminal back, and two readers would share the keys.
"""

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Callable

RESTORE = (
    b"\x1b[<u\x1b[<u"  # kitty's keyboard: Textual's and, in focus, ours
    b"\x1b[?2004l\x1b[?1004l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
    b"\x1b[?2026l\x1b[?2031l\x1b[?2048l\x1b[?7h\x1b[0m\x1b[?1049l\x1b[0m\x1b[0 q\x1b[?25h"
)
"""Undoes every mode that the dashboard may have set; on a terminal that has none of them set it changes nothing."""

LIFELINE = "KASMON_LIFELINE"
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN)

lifeline: int | None = None
"""In the child: a descriptor at its end once the guarding parent is gone. None where nobody guards."""


def run_guarded(child: Callable[[], int], *, anew: bool = sys.platform == "darwin") -> int:
    """Run *child*, the dashboard, in a process of its own and return its exit code; 128 + n where signal n ended it.

    In the child process this never returns: it exits with what *child* returned. Without a terminal on stdin nothing is
    guarded. *anew* starts this program a second time in the child instead of going on with a copy, as macOS wants it:
    its libraries do not survive a fork.
    """
    global lifeline
    if LIFELINE in os.environ:
        lifeline = int(os.environ.pop(LIFELINE))
        os.set_inheritable(lifeline, False)
        return child()
    if not os.isatty(0):
        return child()
    saved = termios.tcgetattr(0)
    reader, writer = os.pipe()
    blocked = {*_PASSED_ON, *_IGNORED}
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        lifeline = reader
        if anew:
            _start_again(reader)
        sys.exit(child())
    os.close(reader)
    for number in _PASSED_ON:
        signal.signal(number, lambda passed, _frame: _send(pid, passed))
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    status = _wait(pid)
    os.close(writer)
    return _afterwards(status, saved)


def _start_again(reader: int) -> None:
    os.set_inheritable(reader, True)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, LIFELINE: str(reader)})


def _wait(pid: int) -> int:
    """The child's wait status once it has ended. While it is stopped, so are we, and the shell has the terminal."""
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return status
        os.kill(os.getpid(), signal.SIGSTOP)
        ended, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED | os.WNOHANG)
        if ended and not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
            return status
        if not ended or os.WIFSTOPPED(status):
            _send(pid, signal.SIGCONT)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _afterwards(status: int, saved: list[object]) -> int:
    """Give the terminal back where the child did not; the exit code."""
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError, termios.error):  # the terminal is gone: nobody looks at it
        if _is_ours() and (code < 0 or termios.tcgetattr(0) != saved):
            _restore(saved)
            if code < 0:
                _say(f"the dashboard was killed (signal {-code}); your sessions are still running - run kasmon again")
    return 128 - code if code < 0 else code


def _is_ours() -> bool:
    """Whether no shell has taken the terminal back meanwhile."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # it controls nobody
        return True


def _restore(saved: list[object]) -> None:
    screen = next((number for number in (2, 1) if os.isatty(number)), 0)
    os.write(screen, RESTORE)
    termios.tcsetattr(0, termios.TCSADRAIN, saved)  # type: ignore[arg-type]  # what tcgetattr gave; no typing here
    termios.tcflush(0, termios.TCIFLUSH)


def _say(sentence: str) -> None:
    os.write(2, f"kasmon: {sentence}\n".encode())
