"""Register and remove machines, and start the links to them."""

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kasmon import __version__
from kasmon.backends.common.agent_version import numbers
from kasmon.config import load
from kasmon.config.agent_address import HOST
from kasmon.errors import NotInstalledError, RefusedError, UnavailableError, UsageError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.spawn import spawn_link
from kasmon.paths import Paths
from kasmon.store.machines import (
    Machine,
    MachineStatus,
    is_own_name,
    machine_names,
    read_machine,
    read_presence,
    remove_machine,
    require_free,
    write_drained,
    write_machine,
)
from kasmon.supervisor.limits.agents import check_is_person
from kasmon.tmux.remote.ssh import HEAD, RemoteMachine, run_script, ssh_environment

CANDIDATES: Final = ("kasmon", "~/.local/bin/kasmon", "~/.local/share/kasmon/venv/bin/kasmon")
"""Where kasmon is looked for on another machine: a command run by ssh often has not the PATH of a login."""
NOT_INSTALLED: Final = "none"
ENDING_S: Final = 5.0
REGISTERS: Final = "register or remove machines"
"""What only a person does, for the message to an agent."""


def find_kasmon(destination: str, ssh: Sequence[str]) -> tuple[str, str]:
    """Return the path and the version of kasmon on the machine at *destination*. Blocks. Raises `NotInstalledError`."""
    tries = " ".join(CANDIDATES)
    script = f"""{HEAD}
for each in {tries}; do
    path=$(command -v "$each" 2>/dev/null) || continue
    version=$("$path" --version 2>/dev/null) && say "$path" $version
done
say {NOT_INSTALLED}
"""
    fields = run_script(RemoteMachine(destination, tuple(ssh)), script, ssh_environment()).fields
    if len(fields) != 3 or fields[1] != "kasmon":
        raise NotInstalledError(
            f"kasmon is not installed on {destination!r}.",
            hint="--install copies this one there; or install it yourself, or name it with --command.",
        )
    return fields[0], fields[2]


def describe(paths: Paths, name: str, destination: str, ssh: Sequence[str], command: str = "") -> Machine:
    """Return the machine at the ssh *destination*, to be registered as *name*. Blocks.

    *command*: how kasmon is run there; empty: it is looked for.

    Raises:
        UsageError: if a name is invalid.
        RefusedError: if *name* is taken, or an agent calls it.
        NotInstalledError: if kasmon is not installed there.
        RemoteUnreachableError: if the machine cannot be reached.
    """
    check_is_person(paths, REGISTERS)
    check_destination(destination)
    require_free(paths, name)
    command_arguments = tuple(shlex.split(command)) or (find_kasmon(destination, ssh)[0],)
    return Machine(name=name, ssh=destination, command=command_arguments, added_at=time.time())


def check_destination(destination: str) -> None:
    """Raise `UsageError` if *destination* cannot be an ssh destination."""
    if not HOST.fullmatch(destination):
        raise UsageError(
            f"{destination!r} is not a valid ssh destination.",
            hint="Write HOST or USER@HOST; the ssh config has the rest.",
        )


def register(paths: Paths, machine: Machine) -> None:
    """Register *machine*, and start the link to it. Raises `RefusedError` if its name is taken, or for an agent."""
    check_is_person(paths, REGISTERS)
    write_machine(paths, machine, is_new=True)
    start_link(paths, machine.name)


def drain(paths: Paths, name: str, *, drained: bool) -> None:
    """Record whether no more sessions start on the machine *name*; for this one, no more tasks that are placed.

    Raises `NotFoundError` if there is none, `RefusedError` if an agent calls it.
    """
    check_is_person(paths, "drain a machine")
    if is_own_name(paths, name):
        write_drained(paths, drained=drained)
        return
    write_machine(paths, msgspec.structs.replace(read_machine(paths, name), drained=drained))


def remove(paths: Paths, name: str) -> None:
    """Remove the registration of *name*; its link removes the copies of its sessions, and ends. Blocks.

    Raises `NotFoundError` if it is not registered, `RefusedError` if an agent calls it.
    """
    check_is_person(paths, REGISTERS)
    read_machine(paths, name)
    start_link(paths, name)  # which removes the copies
    (paths.machine(name) / "machine.json").unlink(missing_ok=True)
    _wait_for_end(paths, name)
    remove_machine(paths, name)


def _wait_for_end(paths: Paths, name: str) -> None:
    """Wait until the link to *name* has ended, at most `ENDING_S` seconds."""
    deadline = time.monotonic() + ENDING_S
    while lock_holder(paths.machine_lock(name)) is not None and time.monotonic() < deadline:
        time.sleep(0.05)


def terminal_argv(paths: Paths, name: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs `kasmon ARGUMENTS` on the machine *name* in this terminal.

    Raises:
        NotFoundError: if it is not registered.
        RefusedError: if it is reached over a cluster, which carries no terminal.
        ConfigError: if the config cannot be read.
    """
    machine = read_machine(paths, name)
    if machine.cluster:
        raise RefusedError(
            f"{name!r} is reached over the cluster {machine.cluster!r}, which carries no terminal.",
            hint="Use the dashboard, or run the command there.",
        )
    argv = [*machine.command, *arguments]
    return [*load(paths).remote.ssh, "-t", "--", machine.ssh, shlex.join(argv)] if machine.ssh else argv


def start_link(paths: Paths, name: str) -> None:
    """Start the link to *name* unless it runs. One of an older kasmon is replaced; one of a newer one is not. Blocks.

    Raises `UnavailableError` if it cannot be started.
    """
    link = lock_holder(paths.machine_lock(name))
    if link is not None:
        presence = read_presence(paths, name)
        if presence.link != link or numbers(presence.link_kasmon) >= numbers(__version__):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(link, signal.SIGTERM)
        _wait_for_end(paths, name)
    try:
        spawn_link(paths, name)
    except OSError as error:
        raise UnavailableError(f"the link to {name!r} cannot be started: {error.strerror}.") from error


def start_links(paths: Paths, names: Iterable[str] | None = None) -> None:
    """Start each link to *names* (None: all) that does not run; a failure shows as a machine without one. Blocks."""
    for name in machine_names(paths) if names is None else names:
        with contextlib.suppress(UnavailableError, OSError):
            start_link(paths, name)


def status(paths: Paths, name: str) -> MachineStatus:
    """Return what is known of the machine *name*. Raises `NotFoundError` if it is not registered."""
    return MachineStatus(
        machine=read_machine(paths, name),
        presence=read_presence(paths, name),
        link=lock_holder(paths.machine_lock(name)),
    )
