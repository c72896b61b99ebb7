"""The output of commands: cleaned lines for people, ASCII JSON for programs, one line for an error."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO

from kasmon.cli.output.json_objects import answer, error_object
from kasmon.errors import KasmonError, OtherMachineError, RefusedError, of_system
from kasmon.paths import Paths
from kasmon.sanitize import clean_block, clean_line

INTERRUPTED: Final = 130
LOCAL: Final = "local"
"""What `--machine` calls this machine."""


def say(*lines: str) -> None:
    """Print *lines*; each stays one line, whatever it contains."""
    for line in lines:
        print(clean_line(line), flush=True)


def say_block(text: str) -> None:
    """Print *text* with its lines and tabs."""
    print(clean_block(text), flush=True)


def print_json(**parts: Any) -> None:
    """Print a command's answer for programs: *parts* by their name, as one line of ASCII JSON."""
    print(as_json(answer(**parts)), flush=True)


def print_answer(*lines: str, wants_json: bool, **parts: Any) -> None:
    """Print a command's answer: *parts* as `print_json` does if *wants_json*, else *lines* as `say` does."""
    if wants_json:
        print_json(**parts)
    else:
        say(*lines)


def as_json(value: Any) -> str:
    """Return *value* as one line of JSON, in ASCII."""
    import json

    return json.dumps(value, separators=(",", ":"))


def note(text: str) -> None:
    """Print one line on stderr."""
    with contextlib.suppress(OSError):
        print(f"kasmon: {clean_line(text)}", file=sys.stderr, flush=True)


def check_machine(machine: str) -> None:
    """Raise unless *machine*, the value of a command's `--machine`, is this one.

    Raises:
        OtherMachineError: if it is not, or all; the command line runs the command there then.
    """
    if machine not in ("", LOCAL):
        raise OtherMachineError("", "", machine)


def note_other_machines(where: Paths, machine: str, command: str) -> None:
    """Print how `kasmon COMMAND` runs on a registered machine, if there is one, and *machine* was not chosen.

    What was printed is of this machine.
    """
    from kasmon.store.machines import machine_names  # few commands ask

    if not machine and (names := machine_names(where)):
        note(f"this is of this machine only. For {', '.join(names)}: `kasmon {command} --machine {names[0]}`, or all.")


def confirm(
    lines: Iterable[str], question: str, *, wants_json: bool, unasked: RefusedError, refused: RefusedError
) -> None:
    """Show *lines*, and have the user type `yes` to *question*.

    Raises:
        RefusedError: *unasked* if there is no terminal to ask on; *refused* if something else was typed.
    """
    if wants_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise unasked
    say(*lines)
    if typed(question) != "yes":
        raise refused


def accepts(question: str, terminal: TextIO) -> bool:
    """Whether the user answers *question*, written to *terminal*, with yes."""
    return _read_reply(f"{question} [y/N]", terminal).lower() in ("y", "yes")


def typed(question: str) -> str:
    """Return what the user types in reply to *question*."""
    return _read_reply(f"{question}, anything else to cancel:", sys.stdout)


def _read_reply(question: str, terminal: TextIO) -> str:
    if sys.stdin.isatty():
        import termios  # few commands ask

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # earlier input was not meant for it
    print(question, end=" ", file=terminal, flush=True)
    return sys.stdin.readline().strip()


def guarded(call: Callable[[], int | None], *, wants_json: bool) -> int:
    """Run *call* and return its exit code; print an error as one line on stderr and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        _replace_unencodable(stream)
    try:
        code = call()
        print(end="", flush=True)
    except KasmonError as error:
        return _complain(error, wants_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _give_up_stdout()
        return 0
    except OSError as error:
        return _complain(of_system(error), wants_json)
    except Exception as error:  # noqa: BLE001 - a bug: its text may be foreign, so Python must not print it
        from kasmon.backends.common.environment import secret_values
        from kasmon.host.journal.known_secrets import add_secrets, hidden

        add_secrets(secret_values(os.environ))
        if os.environ.get("KASMON_DEV") == "1":
            import traceback

            print(clean_block(hidden(traceback.format_exc())), file=sys.stderr)
        text = f"internal error in kasmon: {type(error).__name__}: {hidden(str(error))}."
        return _complain(KasmonError(text, hint="Set KASMON_DEV=1 to see the traceback."), wants_json)
    return code or 0


def _complain(error: KasmonError, wants_json: bool) -> int:
    note(str(error))
    try:
        if wants_json:
            print_json(**error_object(error))
        sys.stdout.flush()
    except OSError:  # stdout is closed or full: the sentence on stderr is enough
        _give_up_stdout()
    return error.exit_code


def _replace_unencodable(stream: TextIO) -> None:
    """Make *stream* print `?` for characters outside its encoding instead of failing."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


def _give_up_stdout() -> None:
    """Discard further output, so that Python does not report the closed stdout at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
