"""`kasmon machines`: register other machines, whose sessions are shown and used here."""

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any, Final

from kasmon import __version__
from kasmon.cli.arguments import Arg, Json
from kasmon.cli.machines.delegation import require_link, run_words
from kasmon.cli.output.console import accepts, note, print_answer, print_json, say
from kasmon.config import load
from kasmon.errors import NotInstalledError, TimedOutError, UsageError
from kasmon.model.formatting import duration
from kasmon.model.plan.plan import LOCAL
from kasmon.paths import user_paths
from kasmon.store.machines import (
    Machine,
    MachineStatus,
    Presence,
    is_drained,
    is_own_name,
    machine_names,
)
from kasmon.supervisor.machines import registration
from kasmon.supervisor.plans.machines.offer import count_tasks

CONNECT_S: Final = 30.0
"""How long `add` waits for the first connection, in seconds."""
DRAINED_HERE: Final = "local  drained: no more tasks of plans are placed on this machine"
Name = Annotated[str, Arg("Name of a registered machine.", ("MACHINE",), completer="machines")]


def list_all(*, wants_json: Json = False) -> None:
    """List the registered machines."""
    where = user_paths()
    registration.start_links(where)
    machines = [registration.status(where, name) for name in machine_names(where)]
    if wants_json:
        tasks = count_tasks(where)
        print_json(machines=[machine_object(each, tasks) for each in machines])
        return
    if is_drained(where):
        say(DRAINED_HERE)
    if machines:
        say(*(row(each) for each in machines))
    else:
        say("No other machines. `kasmon machines add NAME --ssh DESTINATION` adds one.")


def add(
    name: Annotated[str, Arg("Name for the machine.", ("MACHINE",))],
    /,
    *,
    ssh: Annotated[str, Arg("Its ssh destination: HOST or USER@HOST.")] = "",
    cluster: Annotated[str, Arg("The cluster that it joined as MACHINE, and you as operator or viewer.")] = "",
    command: Annotated[str, Arg("The command that runs kasmon there; default: it is looked for.")] = "",
    install: Annotated[bool, Arg("Install this kasmon there, in the home folder, if there is none.")] = False,
    wants_json: Json = False,
) -> None:
    """Register a machine that ssh reaches without a password, or a cluster's, and show its sessions here.

    Nothing is registered if it cannot be reached, or its kasmon speaks another version of the protocol.
    """
    from kasmon.bus.ssh import check_machine  # not for the other commands

    if bool(ssh) == bool(cluster):
        raise UsageError("a machine is reached over ssh or over a cluster.", hint="Pass --ssh or --cluster.")
    where = user_paths()
    if cluster:
        from kasmon.cli.cluster.commands import describe_member

        machine = describe_member(where, name, cluster)
    else:
        program = load(where).remote.ssh
        try:
            machine = registration.describe(where, name, ssh, program, command)
        except NotInstalledError:
            if not install and (wants_json or not _agrees_to_install(ssh)):
                raise
            from kasmon.supervisor.machines.installation import install as installed  # rarely needed

            note(f"installing kasmon {__version__} on {ssh}; pip downloads there what it needs.")
            installed(ssh, program)
            machine = registration.describe(where, name, ssh, program, command)
        asyncio.run(check_machine(machine, program))
    registration.register(where, machine)
    deadline = time.monotonic() + CONNECT_S
    while (status := registration.status(where, name)).state != "connected":
        if time.monotonic() > deadline:
            raise TimedOutError(
                f"{name!r} is registered, and not connected yet: {status.presence.why}.",
                hint=f"`kasmon machines show {name}` shows the progress.",
            )
        time.sleep(0.05)
    if wants_json:
        print_json(machine=machine_object(status, count_tasks(where)))
    else:
        say(row(status))


def _agrees_to_install(destination: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    note(f"kasmon is not installed on {destination!r}.")
    return accepts("Copy this kasmon there, and install it into ~/.local/share/kasmon/venv?", sys.stderr)


def show(name: Name, /, *, wants_json: Json = False) -> None:
    """Show a registered machine."""
    where = user_paths()
    status, tasks = registration.status(where, name), count_tasks(where)
    if wants_json:
        print_json(machine=machine_object(status, tasks))
        return
    machine = status.machine
    say(
        row(status),
        f"  cluster: {machine.cluster}" if machine.cluster else f"  ssh destination: {machine.ssh}",
        f"  command there: {' '.join(status.machine.command)}",
        f"  kasmon there: {status.presence.kasmon or 'unknown'}",
        f"  tasks of plans at work: {tasks.get(name, 0)}",
        f"  log of the link: {where.machine(name) / 'link.log'}",
    )


def rm(name: Name, /, *, wants_json: Json = False) -> None:
    """Remove a registered machine and the copies of its sessions. Nothing ends there."""
    registration.remove(user_paths(), name)
    print_answer(f"{name}: removed; its sessions keep running there", wants_json=wants_json, machine=name)


def drain(
    name: Name,
    /,
    *,
    undo: Annotated[bool, Arg("Let sessions start there again.")] = False,
    wants_json: Json = False,
) -> None:
    """Start no more sessions on a machine from here. Running sessions continue.

    Tasks of plans that were placed there and have not begun are placed on another machine, if they may run there.
    `local`, or this machine's own name: no more tasks of plans are placed here. What names no machine still runs here.
    """
    where = user_paths()
    registration.drain(where, name, drained=not undo)
    if is_own_name(where, name):
        _say_own(drained=not undo, wants_json=wants_json)
        return
    status = registration.status(where, name)
    if wants_json:
        print_json(machine=machine_object(status, count_tasks(where)))
    else:
        say(row(status))
        if not undo and (count := count_tasks(where).get(name, 0)):
            say(f"  {count} {'task' if count == 1 else 'tasks'} of plans still at work there")


def _say_own(*, drained: bool, wants_json: bool) -> None:
    if wants_json:
        status = MachineStatus(machine=Machine(name=LOCAL, command=(), drained=drained), presence=Presence(), link=None)
        print_json(machine=machine_object(status, {}) | {"state": "connected", "kasmon": __version__})
    else:
        say(DRAINED_HERE if drained else "local  tasks of plans are placed on this machine")


def run(
    name: Name,
    /,
    *words: Annotated[str, Arg("The command and its arguments (after `--`), such as `-- recover --dry-run`.")],
) -> int:
    """Run a command of kasmon on a registered machine, without a terminal, with its output and its exit code here."""
    if not words:
        raise UsageError("`kasmon machines run` requires a command.", hint=f"`kasmon machines run {name} -- doctor`")
    require_link(user_paths(), name)
    return run_words(name, words)


def row(status: MachineStatus) -> str:
    """Return *status* as one line."""
    state, presence = status.state, status.presence
    if presence.why and presence.since:
        state += f" for {duration(time.time() - presence.since)}: {presence.why}"
    if status.clock_problem:
        state += f"; {status.clock_problem}"
    running = sum(each.host is not None for each in presence.sessions.values())
    drained = ", drained" if status.machine.drained else ""
    return f"{status.machine.name}  {state}  {len(presence.sessions)} sessions, {running} running{drained}"


def machine_object(status: MachineStatus, tasks: Mapping[str, int]) -> dict[str, Any]:
    """Return *status* as an object for programs; *tasks*: machine -> how many tasks of plans are at work there."""
    machine, presence = status.machine, status.presence
    return {
        "name": machine.name,
        "ssh": machine.ssh,
        "cluster": machine.cluster or None,
        "command": list(machine.command),
        "state": status.state,
        "since": presence.since or None,
        "why": presence.why or None,
        "kasmon": presence.kasmon or None,
        "sessions": len(presence.sessions),
        "tasks": tasks.get(machine.name, 0),
        "clock_offset_s": presence.clock_offset_s,
        "link_pid": status.link,
        "added_at": machine.added_at,
        "drained": machine.drained,
    }
