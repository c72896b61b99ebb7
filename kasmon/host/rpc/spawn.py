"""Starts a host, or another process of kasmon, detached: it outlives its starter.

Several of one kind at once do no harm: one gets the lock, the others exit. Each function raises `OSError` if no process
could be started.
"""

import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, TypeAlias

from kasmon import system
from kasmon.backends.common.environment import secret_values
from kasmon.host.journal.log_file import open_log
from kasmon.host.rpc import fork_server
from kasmon.host.rpc.host_lock import HostLock
from kasmon.host.rpc.secret_stdin import handed
from kasmon.launch import MACHINERY, RUN, SESSION, base_environment
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, private_folder
from kasmon.store.event_log import Cursor

if TYPE_CHECKING:
    import subprocess

OF_ONE_SESSION = (
    *(SESSION, RUN, "KASMON_TASK", "KASMON_WAVE", "KASMON_PEERS", "KASMON_PLAN"),
    *("TMUX", "TMUX_PANE"),
)
"""Variables that describe where their process runs; a host runs elsewhere, and does not end with an agent's run."""
RUNNING = ("KASMON_", "PYTHON", "LD_", "DYLD_", "COVERAGE_", "VIRTUAL_ENV")
"""Prefixes of the variables that a host itself needs, in addition to those that every agent gets."""
SERVICES = ("E2B_",)
"""Prefixes of the variables for sandboxes on a remote service; a host gets them in memory only."""


Host: TypeAlias = "subprocess.Popen[bytes] | fork_server.ForkedHost"


def spawn(paths: Paths, session: SessionId, since: Cursor | None = None) -> Host:
    """Start the host of *session*; do not wait for its socket. Its output goes to its host log.

    On Linux the fork server starts it, except for an agent.

    Args:
        session: the session whose agent it starts.
        since: the starter's position in the session's log. A host that finds more there has come too late, and
            starts nothing.

    Raises:
        OSError: also if the session is another machine's.
    """
    if paths.via(session).exists():
        raise OSError(errno.EXDEV, "the session is another machine's", str(paths.via(session)))
    what = [session, *([] if since is None else ["--since", str(since)])]
    with _streams(paths, paths.host_log(session), keeps=True) as (environment, given, output):
        if system.HERE.can_continue_after_fork and SESSION not in os.environ and RUN not in os.environ:
            with contextlib.suppress(OSError):  # without the fork server, a host starts in a new Python
                if (host := _fork(paths, what, environment, given, output)) is not None:
                    return host
        return _start(what, environment, given, output)


def spawn_tmux_host(paths: Paths) -> "Host | None":
    """Start the shared tmux host, with its lock; None if there is one, or another process starts one."""
    with _streams(paths, paths.tmux_host_log, keeps=False) as (environment, given, output):
        lock = HostLock(paths.tmux_host_lock)
        if not lock.acquire(wait_s=0, pid=0) or lock.handle is None:  # who ends the holder must not end this process
            return None
        try:
            host = _start(["--tmux", str(lock.handle)], environment, given, output, (lock.handle,))
            lock.write_pid(host.pid)
            return host
        finally:
            lock.let_go()


def spawn_runner(paths: Paths, plan: str) -> "subprocess.Popen[bytes]":
    """Start the process that runs *plan*; it passes kasmon's variables on to its agents.

    Its tasks may run on other machines: it may use the links, unless an agent starts it; its checks may not.
    """
    with _streams(paths, paths.plan(plan) / "host.log", keeps=True) as (environment, given, output):
        from kasmon.host.rpc.peer import evidence  # no host needs it here

        if not evidence(os.getpid()):
            environment.pop(MACHINERY)
        return _start(["--plan", plan], environment, given, output)


def spawn_link(paths: Paths, machine: str) -> "subprocess.Popen[bytes]":
    """Start the link to the registered *machine*."""
    with _streams(paths, paths.machine(machine) / "link.log", keeps=False) as (environment, given, output):
        environment.pop(MACHINERY)  # it starts no agent, and what it runs for a person may answer requests
        return _start(["--machine", machine], environment, given, output)


def spawn_notifier(paths: Paths, names: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start the process that pushes notifications.

    *names*: the variables with addresses of services, which it gets in memory only.
    """
    kept = {name: os.environ[name] for name in names if name in os.environ}
    with _streams(paths, paths.notifications / "notifier.log", keeps=kept) as (environment, given, output):
        return _start(["--notify"], environment, given, output)


def spawn_prompter(paths: Paths, work: Literal["limits", "watch"]) -> "subprocess.Popen[bytes]":
    """Start a process that sends prompts by itself.

    *work*: `limits` resumes sessions after a usage limit, `watch` feeds watcher sessions.
    """
    folder, log = {"limits": (paths.limits, "resume.log"), "watch": (paths.watch, "feeder.log")}[work]
    private_folder(folder)
    with _streams(paths, folder / log, keeps=True) as (environment, given, output):
        return _start([f"--{work}"], environment, given, output)


def spawn_log_in(paths: Paths, session: SessionId, log_in: SessionId) -> "subprocess.Popen[bytes]":
    """Start the process that restarts *session* after its *log_in*; its agent gets this process's variables."""
    with _streams(paths, paths.host_log(log_in), keeps=True) as (environment, given, output):
        return _start(["--log-in", session, log_in], environment, given, output)


def spawn_task_check(paths: Paths, order: Path) -> "subprocess.Popen[bytes]":
    """Start the process that runs the check in the file *order*."""
    with _streams(paths, order.with_suffix(".log"), keeps=True) as (environment, given, output):
        return _start(["--task-check", str(order)], environment, given, output)


@contextlib.contextmanager
def _streams(
    paths: Paths, log: Path, *, keeps: bool | Mapping[str, str]
) -> Iterator[tuple[dict[str, str], IO[bytes], IO[bytes]]]:
    """Yield the environment, stdin and output of a host.

    With *keeps* it has all variables, most in memory only; if that is a mapping, those of it in memory.
    """
    paths.make()
    shown, kept = build_host_environment(paths, os.environ)
    if not isinstance(keeps, bool):
        shown = {name: value for name, value in shown.items() if name not in keeps}
        kept = dict(keeps)
    elif not keeps:
        kept = {name: value for name, value in kept.items() if name.startswith(SERVICES)}
    with open_log(log) as output, handed(paths, kept) as given:
        yield shown | {MACHINERY: "host"}, given, output


def _fork(
    paths: Paths, what: Sequence[str], environment: Mapping[str, str], given: IO[bytes], output: IO[bytes]
) -> fork_server.ForkedHost | None:
    """Have the fork server start the host with the arguments *what*, and start the server if there is none."""
    path = fork_server.socket_path(paths, environment)
    ask = partial(fork_server.request, arguments=what, stdin=given, output=output)
    if (host := _ask_running(path, ask)) is not None:
        return host
    lock = HostLock(paths.fork_server_lock)  # of many that start a host at once, one starts a server
    if not lock.acquire(fork_server.START_S):
        return None
    try:
        if (host := _ask_running(path, ask)) is not None:
            return host
        client, servers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with servers:
            arguments = [str(servers.fileno()), os.fspath(path), "-" * fork_server.TITLE_BYTES]
            environment = {**environment, **fork_server.ONE_ARENA}
            _start(["--fork-server", *arguments], environment, None, None, (servers.fileno(),))
        return ask(client, limit_s=fork_server.START_S)
    finally:
        lock.let_go()


def _ask_running(path: Path, ask: "partial[fork_server.ForkedHost | None]") -> fork_server.ForkedHost | None:
    """Return the host that the server at *path* forks; None if there is none, or it is just ending."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(OSError):
        try:
            client.connect(os.fspath(path))
        except OSError:
            client.close()
            raise
        return ask(client, limit_s=fork_server.REPLY_S)
    return None


def _start(
    what: Sequence[str],
    environment: Mapping[str, str],
    stdin: IO[bytes] | None,
    output: IO[bytes] | None,
    passed: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Start it; None is /dev/null."""
    import subprocess  # here: it takes 4 ms to load, and the fork server starts most hosts

    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "kasmon", "host", *what],
        stdin=stdin or subprocess.DEVNULL,
        stdout=output or subprocess.DEVNULL,
        stderr=output or subprocess.DEVNULL,
        cwd="/",
        env=environment,
        umask=0o077,
        start_new_session=True,
        pass_fds=passed,
    )
    threading.Thread(target=child.wait, name=f"reaps host {child.pid}", daemon=True).start()
    return child


def build_host_environment(paths: Paths, variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the part of *variables* that a host is started with, and the part kept in its memory, for its agent.

    Neither has those that describe where the starter itself runs. A shared host needs none for its agents: they come
    with each command to start one.
    """
    kept = {
        name: value
        for name, value in variables.items()
        if name not in OF_ONE_SESSION and not name.startswith("KASMOS_")
    }
    usual = base_environment(kept) | {name: value for name, value in kept.items() if name.startswith(RUNNING)}
    shown = {name: value for name, value in usual.items() if not secret_values({name: value})}
    return shown | paths.environment_variables(), {name: kept[name] for name in kept.keys() - shown.keys()}


def read_last_line(log: Path) -> str:
    """Return the last line that a host printed; empty if there is none."""
    try:
        lines = log.read_bytes()[-4096:].decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
