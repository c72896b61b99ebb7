"""Runs a command there whose session is on another machine, with the same arguments and the same output."""

import contextlib
import io
import json
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

from kasmon.cli.commands import call, find
from kasmon.cli.output.console import LOCAL, note, print_json, say
from kasmon.cli.output.json_objects import error_object
from kasmon.errors import KasmonError, OtherMachineError, UnavailableError, of_system
from kasmon.paths import Paths, user_paths
from kasmon.sanitize import clean_block
from kasmon.store.machines import ALL, machine_names, read_machine
from kasmon.supervisor.fleet.lookup import PREFIX_LENGTH
from kasmon.supervisor.machines.link_client import CommandOutput, run
from kasmon.supervisor.machines.registration import start_link

STDIN: Final = "-"
OPTION: Final = "--machine"


def run_there(arguments: Sequence[str], error: OtherMachineError) -> int:
    """Run `kasmon ARGUMENTS` on the machine that *error* names, print its output, and return its exit code.

    The word that names the session becomes its id; all other words mean there what they mean here. If *error* names no
    session, `--machine` names the machine, and is left out.

    Raises:
        RemoteUnreachableError: if the machine is not connected, or it is unknown whether the command was carried out.
    """
    if not error.session:
        return _run_on(error.machine, without_machine(arguments))
    kasmon_arguments = list(arguments)
    first = len(find(kasmon_arguments)[0].split())
    at = next(
        (at for at, argument in enumerate(kasmon_arguments) if at >= first and _is_session(argument, error)), None
    )
    if at is None:
        raise error
    kasmon_arguments[at] = error.session
    return run_words(error.machine, kasmon_arguments)


def _run_on(machine: str, arguments: Sequence[str]) -> int:
    """Run `kasmon WORDS` on *machine*, or here and on each registered one."""
    where = user_paths()
    if machine != ALL:
        require_link(where, machine)
        return run_words(machine, arguments)
    if "--json" in arguments:
        answers = ask_all(arguments)
        print_json(machines={each.machine: each.content for each in answers})
        return max(each.exit_code for each in answers)
    running = {name: _start(where, name, arguments) for name in machine_names(where)}
    codes = [_run_section(LOCAL, lambda: call([*arguments, f"{OPTION}={LOCAL}"]) or 0)]
    codes += [_run_section(name, partial(_print_output, each.result)) for name, each in running.items()]
    return max(codes)


def _run_section(machine: str, print_section: Callable[[], int]) -> int:
    """Have the section of *machine* printed below its name, and return the exit code."""
    say(f"{machine}:")
    try:
        return print_section()
    except KasmonError as error:
        return _note_failure(machine, error)


class MachineAnswer(NamedTuple):
    """What a command answered on one machine."""

    machine: str
    exit_code: int
    content: dict[str, Any]
    """The object that it printed, or that of the error."""


def ask_all(arguments: Sequence[str]) -> list[MachineAnswer]:
    """Run `kasmon WORDS --json` here and, at the same time, on each registered machine; this one is the first.

    Why one did not answer is printed on stderr.
    """
    where = user_paths()
    arguments = arguments if "--json" in arguments else [*arguments, "--json"]
    running = {name: _start(where, name, arguments) for name in machine_names(where)}
    answers = [_ask_here([*arguments, f"{OPTION}={LOCAL}"])]
    return answers + [_read_answer(name, each.result) for name, each in running.items()]


def _start(where: Paths, machine: str, arguments: Sequence[str]) -> Future[CommandOutput]:
    """Run `kasmon WORDS` on *machine* in a thread that does not hold up the end of this process."""
    future: Future[CommandOutput] = Future()

    def work() -> None:
        try:
            require_link(where, machine)
            future.set_result(run(where, machine, arguments))
        except KasmonError as error:
            future.set_exception(error)
        except OSError as error:
            future.set_exception(of_system(error))
        except BaseException as error:  # noqa: BLE001 - the other machines answer nevertheless
            failure = UnavailableError(f"it could not be asked: {error!r}.")
            failure.__cause__ = error
            future.set_exception(failure)

    threading.Thread(target=work, daemon=True).start()
    return future


def _ask_here(arguments: list[str]) -> MachineAnswer:
    def run_here() -> CommandOutput:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = call(arguments) or 0
        return CommandOutput(exit_code=code, stdout=printed.getvalue().encode(), stderr=b"")

    return _read_answer(LOCAL, run_here)


def _read_answer(machine: str, read_output: Callable[[], CommandOutput]) -> MachineAnswer:
    try:
        output = read_output()
        content = json.loads(output.stdout.decode("utf-8", "replace") or "{}")
        if not isinstance(content, dict):
            raise ValueError(f"{type(content).__name__} is no object")
    except KasmonError as error:
        return MachineAnswer(machine, _note_failure(machine, error), error_object(error))
    except ValueError as error:
        unreadable = UnavailableError(f"its answer cannot be read: {error}.")
        return MachineAnswer(machine, _note_failure(machine, unreadable), error_object(unreadable))
    return MachineAnswer(machine, output.exit_code & 0xFF, content)


def _note_failure(machine: str, error: KasmonError) -> int:
    """Print why *machine* did not do it, and return the exit code."""
    note(f"{machine}: {error}")
    return error.exit_code


def require_link(where: Paths, machine: str) -> None:
    """Start the link to *machine* if it does not run.

    Raises:
        NotFoundError: if it is not registered.
        UnavailableError: if the link cannot be started.
    """
    read_machine(where, machine)
    start_link(where, machine)


def without_machine(arguments: Sequence[str]) -> list[str]:
    """Return *arguments* without the option `--machine`."""
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            return [*rest, argument, *left]
        if argument == OPTION:
            next(left, None)
        elif not argument.startswith(f"{OPTION}="):
            rest.append(argument)
    return rest


def run_words(machine: str, arguments: Sequence[str]) -> int:
    """Run `kasmon WORDS` on *machine*, print its output, and return its exit code.

    Raises:
        RemoteUnreachableError: if the machine is not connected, or it is unknown whether the command was carried out.
    """
    stdin = sys.stdin.buffer.read() if STDIN in arguments else b""
    return _print_output(partial(run, user_paths(), machine, arguments, stdin))


def _print_output(read: Callable[[], CommandOutput]) -> int:
    output = read()
    for stream, content in ((sys.stdout, output.stdout), (sys.stderr, output.stderr)):
        stream.write(clean_block(content.decode("utf-8", "replace")))
        stream.flush()
    return output.exit_code & 0xFF


def _is_session(argument: str, error: OtherMachineError) -> bool:
    names = (error.session, error.name, f"{error.machine}:{error.name}", f"{error.machine}:{error.session}")
    return argument in names or (len(argument) >= PREFIX_LENGTH and error.session.startswith(argument))
