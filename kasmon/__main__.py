"""The entry point of `kasmon` and `python -m kasmon`."""

import contextlib
import gc
import os
import sys
from collections.abc import MutableMapping, Sequence
from importlib import import_module

from kasmon import __version__

KEPT = ("TEXTUAL_THEME", "TEXTUAL_ANIMATIONS")
"""Textual's variables that may take effect; the others press keys, import code or open connections."""


def main() -> int:
    """Execute the command line and return the exit code."""
    forget_textual(os.environ)
    arguments = sys.argv[1:]
    open_standard_streams()
    if sys.stdout is None:
        from kasmon.cli.output.console import note

        note("cannot print: standard output is closed. Nothing was done; redirect it to a file or to /dev/null.")
        return 1
    if arguments == ["--version"]:
        with contextlib.suppress(OSError):  # `run` reports it
            os.write(sys.stdout.fileno(), f"kasmon {__version__}\n".encode())
            return 0
    import_msgspec()
    if arguments[:1] == ["host"]:
        return host(arguments[1:])
    gc.disable()  # until the command begins: what is imported stays
    from kasmon.cli.commands import run

    return run(arguments)


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, which it uses where present and whose import takes as long as Python.

    msgspec 0.22 prefers its `get_type_hints`, `Required` and `NotRequired` to those of `typing`, which 3.11 has too.
    """
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment] # None makes an import fail
        try:
            import_module("msgspec")
        finally:
            del sys.modules["typing_extensions"]


def open_standard_streams() -> None:
    """Open /dev/null where stdin, stdout or stderr is closed, so that no file that kasmon opens gets its number.

    `sys.stdout` stays None where it is closed, so that no output is reported as printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def host(arguments: Sequence[str]) -> int:
    """Run a host process, or one of the others that no person starts; the first argument says which."""
    if arguments[:1] == ["--plan"]:
        from kasmon.supervisor.plans import runner

        return runner.main(list(arguments[1:]))
    if arguments[:1] == ["--tmux"]:
        from kasmon.host.terminal import host as terminals

        return terminals.main(*map(int, arguments[1:]))
    if arguments[:1] == ["--fork-server"]:
        from kasmon.host.rpc import fork_server

        return fork_server.main(list(arguments[1:]))
    if arguments[:1] == ["--commands"]:
        from kasmon.cli.task import command_server

        return command_server.main(list(arguments[1:]))
    if arguments[:1] == ["--task-check"]:
        from kasmon.supervisor.plans.machines import check_process

        return check_process.main(list(arguments[1:]))
    if arguments[:1] == ["--limits"]:
        from kasmon.supervisor.limits import resumer

        return resumer.main(list(arguments[1:]))
    if arguments[:1] == ["--log-in"]:
        from kasmon.supervisor.limits import log_in

        return log_in.main(list(arguments[1:]))
    if arguments[:1] == ["--watch"]:
        from kasmon.supervisor.watchers import feeder

        return feeder.main(list(arguments[1:]))
    if arguments[:1] == ["--machine"]:
        from kasmon.bus import link

        return link.main(list(arguments[1:]))
    if arguments[:1] == ["--notify"]:
        from kasmon.supervisor.notifications import notifier

        return notifier.main(list(arguments[1:]))
    from kasmon.host.structured import host as process

    return process.main(list(arguments)) or 0


def forget_textual(environment: MutableMapping[str, str]) -> None:
    """Drop Textual's variables, unless kasmon itself is being developed (`KASMON_DEV=1`)."""
    if environment.get("KASMON_DEV") != "1":
        for name in [name for name in environment if name.startswith("TEXTUAL_") or name == "TEXTUAL"]:
            if name not in KEPT:
                del environment[name]


if __name__ == "__main__":
    sys.exit(main())
