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
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

RESTORE = (
    b"\x1b[<u\x1b[<u"  # kitty's keyboard: Textual's and, in focus, ours
    b"\x1b[?2004l\x1b[?1004l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
    b"\x1b[?2026l\x1b[?2031l\x1b[?2048l\x1b[?7h\x1b[0m\x1b[?1049l\x1b[0m\x1b[0 q\x1b[?25h"
)
"""Undoes every mode that the dashboard may have set; on a terminal that has none of them set it changes nothing."""

LIFELINE = "KASMON_LIFELINE"
SHELLS_TURN = 20
"""How many hundredths of a second a shell gets to continue the whole job, and not only this process."""
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN)

lifeline: int | None = None
"""In the child: a descriptor at its end once the guarding parent is gone. None where nobody guards."""


def run_guarded(
    child: Callable[[], int],
    *,
    anew: bool = sys.platform == "darwin",
    again: Sequence[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run *child*, the dashboard, in a process of its own and return its exit code; 128 + n where signal n ended it.

    In the child process this never returns: it exits with what *child* returned. Without a terminal on stdin nothing is
    guarded.

    Args:
        anew: start Python anew in the child instead of going on with a copy, as macOS wants it: its libraries do not
            survive a fork. What is started has to come to this call again, which then runs *child* at once.
        again: the arguments that start it, behind the interpreter; this program's own unless given. Whoever did more
            than parse a command line before the call gives others.
        variables: what it gets beside this process's environment.
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
            _start_again(reader, [*again] or sys.orig_argv[1:], variables)
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


def _start_again(reader: int, arguments: list[str], variables: Mapping[str, str]) -> None:
    os.set_inheritable(reader, True)
    os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **variables, LIFELINE: str(reader)})


def _wait(pid: int) -> int:
    """The child's wait status once it has ended. While it is stopped, so are we, and the shell has the terminal."""
    _, status = os.waitpid(pid, os.WUNTRACED)
    while os.WIFSTOPPED(status):
        os.kill(os.getpid(), signal.SIGSTOP)
        status = _going_on(pid)
    return status


def _going_on(pid: int) -> int:
    """The child's next stop or end, now that we were told to go on. It is told too, where nobody else did."""
    for _ in range(SHELLS_TURN):
        changed, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED | os.WNOHANG)
        if changed and not os.WIFCONTINUED(status):
            return status
        if changed:
            break
        time.sleep(0.01)
    else:
        _send(pid, signal.SIGCONT)
    return os.waitpid(pid, os.WUNTRACED)[1]


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
