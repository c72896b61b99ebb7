"""The process beside the dashboard that gives the terminal back, however the dashboard ended.

`run_guarded` splits early, before anything heavy is imported: the parent waits, the child is the dashboard, in the same
foreground process group. The parent passes TERM and HUP on and stops when the child stops. If the child dies by a
signal, or leaves the terminal's modes changed, the parent restores them; a signal it tells in one line.

If the parent is killed, the child learns it from `lifeline` and ends by itself (`shutdown.py`): a shell that lost the
process it waited for takes the terminal back, and two readers would share the keys.

A Python that waits holds 9 MB. With *asleep* the parent becomes a dash, of half a megabyte, until anything happens at
all: a signal, the child's end, or its `wake` before a stop. Then the dash becomes this module, in a Python that still
is the child's parent. What it does not notice in its sleep is a STOP to the dashboard alone.
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
    b"\x1b[>4;0m"  # a tmux's, in focus
    b"\x1b[?2004l\x1b[?1004l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
    b"\x1b[?2026l\x1b[?2031l\x1b[?2048l\x1b[?7h\x1b[0m\x1b[?1049l\x1b[0m\x1b[0 q\x1b[?25h"
)
"""Undoes every mode that the dashboard may have set; on a terminal that has none of them set it changes nothing."""

DASH = "/bin/dash"
"""No other shell will do: with CHLD blocked this one leaves a child alone that it did not start, and a trapped signal
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
"""What the dash does: `dash -c SLEEP PYTHON THIS PID MODES FD`, where FD gets a line or its end when it has to wake.

Where this program was removed meanwhile, it tidies up as well as a shell can.
"""
LIFELINE = "KASMON_LIFELINE"
FLAGS = 6
"""How many numbers of a terminal's modes stand before its control characters."""
SHELLS_TURN = 20
"""How many hundredths of a second a shell gets to continue the whole job, and not only this process."""
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN)
_HANDLED = (*_PASSED_ON, *_IGNORED)

Modes = tuple[int, ...]
"""Four words of flags, two speeds, and the control characters."""

lifeline: int | None = None
"""In the child: a descriptor at its end once the guarding parent is gone. None where nobody guards."""
_life: int | None = None
"""In the child: what the parent waits on, open until the child is gone."""


def run_guarded(
    child: Callable[[], int],
    *,
    anew: bool = sys.platform == "darwin",
    again: Sequence[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
    asleep: bool = False,
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
        asleep: wait in a dash, where there is one. This never returns then either: the process exits with the code.
    """
    global lifeline, _life
    if LIFELINE in os.environ:
        lifeline, _life = map(int, os.environ.pop(LIFELINE).split(","))
        os.set_inheritable(lifeline, False)
        os.set_inheritable(_life, False)
        return _leave(child())
    if not os.isatty(0):
        return child()
    saved = _modes()
    reader, writer = os.pipe()
    end, life = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.close(end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        lifeline, _life = reader, life
        if anew:
            _start_again(reader, life, [*again] or sys.orig_argv[1:], variables)
        return _leave(child())
    os.close(reader)
    os.close(life)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if asleep and os.access(DASH, os.X_OK) and sys.executable:
        with contextlib.suppress(OSError):
            _sleep(pid, saved, end, writer)
    _listen(pid)
    code = _afterwards(_wait(pid), saved)
    os.close(writer)
    return code


def _leave(code: int) -> int:
    """End this process without Python's own end, in which no thread of ours could end one that hangs in a library."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def wake() -> None:
    """In the child: have the parent look at us, as we are about to stop. Nothing happens where nobody guards."""
    if _life is not None:
        with contextlib.suppress(OSError):
            os.write(_life, b"\n")


def _start_again(reader: int, life: int, arguments: list[str], variables: Mapping[str, str]) -> None:
    os.set_inheritable(reader, True)
    os.set_inheritable(life, True)
    os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **variables, LIFELINE: f"{reader},{life}"})


def _sleep(pid: int, saved: Modes, end: int, writer: int) -> None:
    """Become the dash that waits, with the lifeline's *writer* open in it.

    Raises:
        OSError: if there is none that can be started.
    """
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
    os.execve(DASH, sleep, {"PATH": os.defpath})  # whoever sleeps for hours keeps none of the person's variables


def _listen(pid: int) -> None:
    """From now on pass on what the child has to be told."""
    for number in _PASSED_ON:
        signal.signal(number, lambda passed, _frame: _send(pid, passed))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)


def _awake(pid: int, modes: str, told: int) -> int:
    """Be what guards *pid*, after the sleep that *told*, a signal or 0, ended; the exit code."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    _listen(pid)
    if told:
        _send(pid, told)
    return _afterwards(_wait(pid), tuple(map(int, modes.split(":"))))


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


def _modes() -> Modes:
    """The terminal's modes, as numbers."""
    *numbers, characters = termios.tcgetattr(0)
    return (*numbers, *(each if isinstance(each, int) else ord(each) for each in characters))


def _afterwards(status: int, saved: Modes) -> int:
    """Give the terminal back where the child did not; the exit code."""
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError, termios.error):  # the terminal is gone: nobody looks at it
        if _is_ours() and (code < 0 or _modes() != saved):
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


def _restore(saved: Modes) -> None:
    screen = next((number for number in (2, 1) if os.isatty(number)), 0)
    os.write(screen, RESTORE)
    modes: list[int | list[int]] = [*saved[:FLAGS], list(saved[FLAGS:])]
    termios.tcsetattr(0, termios.TCSADRAIN, modes)
    termios.tcflush(0, termios.TCIFLUSH)


def _say(sentence: str) -> None:
    os.write(2, f"kasmon: {sentence}\n".encode())


if __name__ == "__main__":
    sys.exit(_awake(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
