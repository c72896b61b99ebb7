"""What stands in front of a confined agent: reads what it is to be, becomes nobody's root, and turns into bubblewrap.

It is run by path (`python -I -S enter.py FILE [WORD...]`), knows nothing else of kasmon, and is gone within some
milliseconds; words behind the file are added to the agent's command. The file is ours alone (0600) and holds JSON:

    program    the path of bubblewrap
    words      what it is told; with `{seccomp}` where the filter's file descriptor goes
    on_pipes   what it is told further where stdin is no terminal
    terminal   what stands in front of the command where stdin is one
    command    what runs inside
    seccomp    the filter, in base64
    user       whom root becomes: user and group; absent, we stay who we are
    group      the folder of a control group to enter first; may be absent

Everything that fails, fails before anything runs: one plain sentence on stderr and exit code 125.
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
    """What the file at *path* says, which must be ours alone.

    Raises:
        OSError, ValueError: if it is not.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o077 or not stat.S_ISREG(facts.st_mode):
            raise ValueError("it is not a private file of this user")
        spec: dict[str, Any] = json.load(file)
    return spec


def held(content: bytes) -> int:
    """A file descriptor from which *content* can be read; whoever we become inherits it."""
    handle = os.memfd_create("kasmon", 0)
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def drop(user: int, group: int) -> None:
    """Be *user*, for good; the terminal is theirs then."""
    if os.isatty(0):
        os.fchown(0, user, -1)
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if 0 in (*os.getresuid(), *os.getresgid()):
        raise ValueError("root privileges could not be dropped")


def terminal() -> "list[str]":
    """What those inside are told of the terminal, in its own words."""
    kept = [(name, value) for name, value in os.environ.items() if name.startswith("TERM")]
    return [word for name, value in kept for word in ("--setenv", name, value)]


def enter(path: str, more: "list[str]") -> None:
    """Become the jail that the file at *path* tells of; returns only by the error."""
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
    seccomp = held(base64.b64decode(str(spec["seccomp"]), validate=True))
    if not os.fstat(seccomp).st_size:
        raise ValueError("there is no seccomp filter")
    words = [word.format(seccomp=seccomp) if word == "{seccomp}" else word for word in spec["words"]]
    words += terminal() if on_terminal else spec["on_pipes"]
    in_front = spec["terminal"] if on_terminal else []
    given = held(b"".join(os.fsencode(word) + b"\0" for word in words))
    if in_front:  # Ctrl-C is for those inside: they get it back as it was by what stands in front
        for each in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(each, signal.SIG_IGN)
    program = str(spec["program"])
    command = [*in_front, *spec["command"], *more]
    os.execve(program, [program, "--args", str(given), "--", *command], {})


def main() -> None:
    """Become the jail, or say why not."""
    try:
        enter(sys.argv[1], sys.argv[2:])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        os.write(2, f"kasmon: the sandbox cannot be entered: {error}. Nothing was started.\r\n".encode())
        sys.exit(CANNOT)


if __name__ == "__main__":
    main()
