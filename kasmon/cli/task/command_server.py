"""The process that `kasmon.bus.command_forks` starts: it forks one process for each command.

It has no threads, so that a fork is a copy of all of it. Its exit code means nothing.
"""

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NoReturn

from kasmon import system
from kasmon.bus.command_forks import REQUEST_BYTES
from kasmon.host.rpc.fork_server import version_of

SHARED: Final = ("kasmon.cli.task.work", "kasmon.cli.task.commands", "psutil")
"""What the commands for tasks import sooner or later."""


def main(arguments: Sequence[str]) -> int:
    """Serve the connection with the descriptor `arguments[0]` until it ends."""
    connection = socket.socket(fileno=int(arguments[0]))
    for each in SHARED:
        import_module(each)
    files = [file for each in tuple(sys.modules.values()) if (file := getattr(each, "__file__", None))]
    imported = {file: version_of(file) for file in files}
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the commands are not waited for
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 4)
        if not message or any(version_of(file) != version for file, version in imported.items()):
            return 0
        if not os.fork():
            run_command(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def run_command(arguments: list[str], stdin: int, stdout: int, stderr: int, status: int) -> NoReturn:
    """Be what a new process with *arguments* would be, and write the pid and the exit code to *status*."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor, standard in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(descriptor, standard)
    status_copy = os.dup2(status, 3, inheritable=False)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    os.write(status_copy, b"%d\n" % os.getpid())
    if system.HERE.can_continue_after_fork:
        from kasmon.system.linux import set_title

        set_title(arguments)
    from kasmon.cli.commands import run

    code = run(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(status_copy, b"%d\n" % code)
    os._exit(code)  # what was imported need not be taken down in each
