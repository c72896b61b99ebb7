"""The program in front of a confined agent: reads its file, drops root, and executes bubblewrap.

It is run by path (`python -I -S enter.py FILE [WORD...]`), imports nothing of kasmon, and is replaced within some
milliseconds. Words behind the file are appended to the agent's command. The file is private (0600) and holds JSON:

    program    the path of bubblewrap
    words      its arguments; `{seccomp}` is replaced by the file descriptor of the filter
    on_pipes   further arguments if stdin is no terminal
    terminal   prefix of the command if stdin is a terminal
    command    the command that runs inside
    seccomp    the filter, in base64
    user       user and group that root changes to; if absent, the user stays the same
    group      the folder of a control group to enter first; may be absent

Any failure happens before anything runs, with one plain sentence on stderr and exit code 125.
"""

import base64
import json
import os
import signal
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CANNOT = 125


def read(path: str) -> "dict[str, Any]":
    """Read the file at *path*, which must belong to this user alone.

    Raises:
        OSError, ValueError: if it does not.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o077 or not stat.S_ISREG(facts.st_mode):
            raise ValueError("it is not a private file of this user")
        spec: dict[str, Any] = json.load(file)
    return spec


def open_memory_file(content: bytes) -> int:
    """Return a file descriptor to read *content* from; the executed program inherits it."""
    handle = os.memfd_create("kasmon", 0)
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def drop(user: int, group: int) -> None:
    """Become *user* and *group* for good; the terminal then belongs to that user."""
    if os.isatty(0):
        os.fchown(0, user, -1)
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if 0 in (*os.getresuid(), *os.getresgid()):
        raise ValueError("root privileges could not be dropped")


def build_terminal_arguments() -> "list[str]":
    """Return the arguments that pass the terminal's own variables (`TERM...`) inside."""
    kept = [(name, value) for name, value in os.environ.items() if name.startswith("TERM")]
    return [argument for name, value in kept for argument in ("--setenv", name, value)]


def enter(path: str, more: "list[str]") -> None:
    """Execute the jail that the file at *path* describes; returns only by an exception."""
    spec = read(path)
    if "group" in spec:
        processes = os.open(f"{spec['group']}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        os.write(processes, str(os.getpid()).encode())
        os.close(processes)
    if "user" in spec:
        user, group = spec["user"]
        drop(user, group)
    if os.geteuid() == 0:
        raise ValueError("a sandbox never runs as root")
    on_terminal = os.isatty(0)
    seccomp = open_memory_file(base64.b64decode(str(spec["seccomp"]), validate=True))
    if not os.fstat(seccomp).st_size:
        raise ValueError("there is no seccomp filter")
    arguments = [
        argument.format(seccomp=seccomp) if argument == "{seccomp}" else argument for argument in spec["words"]
    ]
    arguments += build_terminal_arguments() if on_terminal else spec["on_pipes"]
    in_front = spec["terminal"] if on_terminal else []
    given = open_memory_file(b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
    if in_front:  # Ctrl-C is for the programs inside: *in_front* restores it for them
        for each in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(each, signal.SIG_IGN)
    program = str(spec["program"])
    command = [*in_front, *spec["command"], *more]
    os.execve(program, [program, "--args", str(given), "--", *command], {})


def main() -> None:
    """Execute the jail, or report why that failed."""
    try:
        enter(sys.argv[1], sys.argv[2:])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        os.write(2, f"kasmon: the sandbox cannot be entered: {error}. Nothing was started.\r\n".encode())
        sys.exit(CANNOT)


if __name__ == "__main__":
    main()
