"""Runs a command there whose session is on another machine, with the same arguments and the same output."""

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from typing import Final

from kasmon.cli.commands import call, find
from kasmon.cli.output.console import LOCAL, as_json, note, print_json, say
from kasmon.cli.output.json_objects import answer, error_object
from kasmon.errors import KasmonError, OtherMachineError
from kasmon.paths import Paths, places
from kasmon.sanitize import clean_block
from kasmon.store.machines import ALL, machine_names, read_machine
from kasmon.supervisor.fleet.lookup import PREFIX_LENGTH
from kasmon.supervisor.machines.link_client import run
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
    words = list(arguments)
    first = len(find(words)[0].split())
    at = next((at for at, word in enumerate(words) if at >= first and _is_session(word, error)), None)
    if at is None:
        raise error
    words[at] = error.session
    return run_words(error.machine, words)


def _run_on(machine: str, words: Sequence[str]) -> int:
    """Run `kasmon WORDS` on *machine*, or here and on each registered one."""
    where = places()
    if machine != ALL:
        require_link(where, machine)
        return run_words(machine, words)
    wants_json = "--json" in words
    codes: list[int] = []
    objects: dict[str, str] = {}
    for name in (LOCAL, *machine_names(where)):
        if not wants_json:
            say(f"{name}:")
        try:
            if name == LOCAL:
                code, content = _run_here([*words, f"--machine={LOCAL}"], wants_json=wants_json)
            elif wants_json:
                require_link(where, name)
                output = run(where, name, words)
                code, content = output.exit_code & 0xFF, output.stdout.decode("utf-8", "replace")
            else:
                require_link(where, name)
                code, content = run_words(name, words), ""
        except KasmonError as error:
            note(f"{name}: {error.message} {error.hint}".strip())
            code, content = error.exit_code, as_json(error_object(error))
        codes.append(code)
        objects[name] = content
    if wants_json:
        print_json(answer(machines={name: json.loads(content or "null") for name, content in objects.items()}))
    return max(codes)


def _run_here(words: list[str], *, wants_json: bool) -> tuple[int, str]:
    """Run `kasmon WORDS`; return its exit code, and what it printed if it *wants_json*."""
    if not wants_json:
        return call(words) or 0, ""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = call(words) or 0
    return code, printed.getvalue()


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
    words: list[str] = []
    left = iter(arguments)
    for word in left:
        if word == "--":
            return [*words, word, *left]
        if word == OPTION:
            next(left, None)
        elif not word.startswith(f"{OPTION}="):
            words.append(word)
    return words


def run_words(machine: str, words: Sequence[str]) -> int:
    """Run `kasmon WORDS` on *machine*, print its output, and return its exit code.

    Raises:
        RemoteUnreachableError: if the machine is not connected, or it is unknown whether the command was carried out.
    """
    stdin = sys.stdin.buffer.read() if STDIN in words else b""
    output = run(places(), machine, words, stdin)
    for stream, content in ((sys.stdout, output.stdout), (sys.stderr, output.stderr)):
        stream.write(clean_block(content.decode("utf-8", "replace")))
        stream.flush()
    return output.exit_code & 0xFF


def _is_session(argument: str, error: OtherMachineError) -> bool:
    names = (error.session, error.name, f"{error.machine}:{error.name}", f"{error.machine}:{error.session}")
    return argument in names or (len(argument) >= PREFIX_LENGTH and error.session.startswith(argument))
