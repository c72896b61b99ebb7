"""The dashboard's parent process, which restores the terminal however the dashboard ended.

`run_guarded` forks early, before anything heavy is imported: the parent waits, the child is the dashboard, in the same
foreground process group. The parent forwards TERM and HUP, and stops when the child stops. If the child is killed by a
signal, or leaves the terminal's modes changed, the parent restores them; a signal it reports in one line.

If the parent is killed, the child sees the end of `lifeline` and exits (`shutdown.py`): a shell that lost the process
it waited for takes the terminal back, and two readers would share the keys.

A waiting Python takes 9 MB. With *asleep* the parent becomes a dash, of half a megabyte, until anything happens at all:
a signal, the child's end, or its `wake` before a stop. Then the dash becomes this module, in a Python that still is the
child's parent. While asleep it misses only a STOP sent to the dashboard alone.
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
    b"\x1b[<u\x1b[<u"  # kitty's keyboard protocol: Textual's and, in a focused terminal, ours
    b"\x1b[>4;0m"  # a tmux's, in a focused terminal
    b"\x1b[?2004l\x1b[?1004l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
    b"\x1b[?2026l\x1b[?2031l\x1b[?2048l\x1b[?7h\x1b[0m\x1b[?1049l\x1b[0m\x1b[0 q\x1b[?25h"
)
"""Undoes every mode that the dashboard may have set; a terminal without them is unchanged."""

DASH = "/bin/dash"
"""No other shell works: with CHLD blocked this one leaves a child alone that it did not start, and a trapped signal
ends its `read`."""
SLEEP = r"""
told=0
awake() {
    [ -x "$0" ] && [ -r "$1" ] && exec "$0" -I -S "$1" "$2" "$3" "$told"
    stty sane
    printf 'RESTORE'
    exit 1
}
trap 'told=15; awake "$@"' TERM
trap 'told=1; awake "$@"' HUP
read -r never <&"$4"
awake "$@"
"""
"""The program of the dash: `dash -c SLEEP PYTHON THIS PID MODES FD`. A line or the end of file on FD wakes it.

If this program was removed meanwhile, it restores the terminal as well as a shell can.
"""
LIFELINE = "KASMON_LIFELINE"
FLAGS = 6
"""How many numbers of a terminal's modes come before its control characters."""
SHELLS_TURN = 20
"""How many hundredths of a second a shell gets to continue the whole job, and not only this process."""
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN)
_HANDLED = (*_PASSED_ON, *_IGNORED)

Modes = tuple[int, ...]
"""Four words of flags, two speeds, and the control characters."""

lifeline: int | None = None
"""In the child: a descriptor that reaches end of file when the parent is gone. None without a guard."""
_parent_pipe: int | None = None
"""In the child: the pipe that the parent waits on, open until the child is gone."""


def run_guarded(
    child: Callable[[], int],
    *,
    starts_python: bool = False,
    again: Sequence[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
    asleep: bool = False,
) -> int:
    """Run *child*, the dashboard, in a child process and return its exit code; 128 + n if signal n killed it.

    In the child process this never returns: it exits with what *child* returned. Without a terminal on stdin there is
    no guard.

    Args:
        starts_python: start a new Python in the child instead of continuing after fork, as macOS requires: its
            libraries do not survive a fork. The new program must reach this call again, which then runs *child* at
            once.
        again: the arguments that start it, after the interpreter; by default this program's own. A caller that did more
            than parse a command line before the call must pass others.
        variables: its additional environment variables.
        asleep: wait in a dash, if there is one. Then too this never returns: the process exits with the code.
    """
    global lifeline, _parent_pipe
    if LIFELINE in os.environ:
        lifeline, _parent_pipe = map(int, os.environ.pop(LIFELINE).split(","))
        os.set_inheritable(lifeline, False)
        os.set_inheritable(_parent_pipe, False)
        return _flush_and_exit(child())
    if not os.isatty(0):
        return child()
    saved = _modes()
    reader, writer = os.pipe()
    end, parent_pipe = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.close(end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        lifeline, _parent_pipe = reader, parent_pipe
        if starts_python:
            _exec_again(reader, parent_pipe, [*again] or sys.orig_argv[1:], variables)
        return _flush_and_exit(child())
    os.close(reader)
    os.close(parent_pipe)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if asleep and os.access(DASH, os.X_OK) and sys.executable:
        with contextlib.suppress(OSError):
            _exec_dash(pid, saved, end, writer)
    _forward_signals(pid)
    code = _clean_up(_wait(pid), saved)
    os.close(writer)
    return code


def _flush_and_exit(code: int) -> int:
    """Exit without Python's own shutdown, during which our threads could not end one that hangs in a library."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def wake() -> None:
    """In the child, before it stops: wake the parent to watch it. Does nothing without a guard."""
    if _parent_pipe is not None:
        with contextlib.suppress(OSError):
            os.write(_parent_pipe, b"\n")


def _exec_again(reader: int, parent_pipe: int, arguments: list[str], variables: Mapping[str, str]) -> None:
    os.set_inheritable(reader, True)
    os.set_inheritable(parent_pipe, True)
    os.execve(
        sys.executable, [sys.executable, *arguments], {**os.environ, **variables, LIFELINE: f"{reader},{parent_pipe}"}
    )


def _exec_dash(pid: int, saved: Modes, end: int, writer: int) -> None:
    """Become the dash that waits, with the lifeline's *writer* open in it. Raises `OSError`."""
    os.set_inheritable(writer, True)
    low = 3 if writer != 3 else 4  # the shell's language knows descriptors of one digit
    if end != low:
        os.dup2(end, low)
    os.set_inheritable(low, True)
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_DFL)  # what is ignored from the start, a shell cannot trap
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
    screen = RESTORE.decode().replace("\x1b", "\\033")
    modes = ":".join(str(number) for number in saved)
    sleep = ["kasmon", "-c", SLEEP.replace("RESTORE", screen), sys.executable, __file__, str(pid), modes, str(low)]
    os.execve(DASH, sleep, {"PATH": os.defpath})  # a process that sleeps for hours keeps none of the user's variables


def _forward_signals(pid: int) -> None:
    """Forward TERM and HUP to the child from now on."""
    for number in _PASSED_ON:
        signal.signal(number, lambda passed, _frame: _send_signal(pid, passed))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)


def _guard_after_sleep(pid: int, modes: str, received: int) -> int:
    """Guard *pid* after the sleep, which ended by the signal *received*, or 0 for none; return the exit code."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    _forward_signals(pid)
    if received:
        _send_signal(pid, received)
    return _clean_up(_wait(pid), tuple(map(int, modes.split(":"))))


def _wait(pid: int) -> int:
    """The child's wait status once it has ended. While it is stopped, so is this process, and the shell takes over."""
    _, status = os.waitpid(pid, os.WUNTRACED)
    while os.WIFSTOPPED(status):
        os.kill(os.getpid(), signal.SIGSTOP)
        status = _wait_after_continue(pid)
    return status


def _wait_after_continue(pid: int) -> int:
    """The child's next stop or end after this process was continued. It continues the child if the shell did not."""
    for _ in range(SHELLS_TURN):
        changed, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED | os.WNOHANG)
        if changed and not os.WIFCONTINUED(status):
            return status
        if changed:
            break
        time.sleep(0.01)
    else:
        _send_signal(pid, signal.SIGCONT)
    return os.waitpid(pid, os.WUNTRACED)[1]


def _send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _modes() -> Modes:
    *numbers, characters = termios.tcgetattr(0)
    return (*numbers, *(each if isinstance(each, int) else ord(each) for each in characters))


def _clean_up(status: int, saved: Modes) -> int:
    """Restore the terminal if the child did not; return the exit code."""
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError, termios.error):  # the terminal is gone: there is nothing to restore
        if _is_foreground() and (code < 0 or _modes() != saved):
            _restore(saved)
            if code < 0:
                killed = f"kasmon: the dashboard was killed (signal {-code}); your sessions are still running"
                os.write(2, f"{killed} - run kasmon again\n".encode())
    return 128 - code if code < 0 else code


def _is_foreground() -> bool:
    """Whether no shell has taken the terminal back meanwhile."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # it has no controlling terminal
        return True


def _restore(saved: Modes) -> None:
    screen = next((number for number in (2, 1) if os.isatty(number)), 0)
    os.write(screen, RESTORE)
    modes: list[int | list[int]] = [*saved[:FLAGS], list(saved[FLAGS:])]
    termios.tcsetattr(0, termios.TCSADRAIN, modes)
    termios.tcflush(0, termios.TCIFLUSH)


if __name__ == "__main__":
    sys.exit(_guard_after_sleep(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
