"""What a command lists here and on each registered machine, as one table or one JSON array: its `--machine all`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from kasmon.cli.machines.delegation import MachineAnswer, ask_all
from kasmon.cli.output.console import note, print_json, say
from kasmon.cli.output.table import aligned
from kasmon.errors import UnavailableError
from kasmon.sanitize import clean_line
from kasmon.supervisor.machines.link_client import parse_reply


class MachineTable(msgspec.Struct, frozen=True):
    """How a command's list of several machines is printed."""

    words: tuple[str, ...]
    field: str
    """The field of its JSON that has the list."""
    kind: Any
    """The type of an element of that list, as far as the table shows it."""
    heads: tuple[str, ...]
    row: Callable[[Any], Sequence[str]]
    """Returns the cells of an element, one for each of the heads."""
    none: str
    """What is printed if no machine has any, each has answered, and there is nothing else to be said."""
    notes: Callable[[dict[str, Any]], Iterable[str]] = lambda content: ()
    """Returns what else is to be said of one machine's answer, whose texts are cleaned; for people, on stderr."""


def print_all(table: MachineTable, *, wants_json: bool) -> int:
    """Print the list of this machine and of each registered one, and return the highest exit code of them.

    A machine that did not answer is named on stderr, and has its error in the JSON.
    """
    answers = ask_all(table.words)
    codes = [each.exit_code for each in answers]
    if wants_json:
        listed = [row | {"machine": each.machine} for each in answers for row in _rows(each, table.field)]
        machines = {each.machine: each.content for each in answers}
        print_json(**{table.field: listed}, machines=machines)
        return max(codes)
    rows: list[list[str]] = []
    notes: list[str] = []
    for each in answers:
        try:
            content = msgspec.json.encode(_rows(each, table.field))
            found = parse_reply(each.machine, content, list[table.kind])  # type: ignore[name-defined]  # mypy takes it for a type
            rows += [[each.machine, *map(clean_line, table.row(row))] for row in found]
            notes += [f"{each.machine}: {clean_line(text)}" for text in table.notes(each.content)]
        except UnavailableError as error:
            note(str(error))
            codes.append(error.exit_code)
        except (ValueError, OverflowError, OSError) as error:  # a time, say, that is none
            note(f"the answer of {each.machine!r} cannot be shown: {error}.")
            codes.append(UnavailableError.exit_code)
    if rows:
        say(*aligned([("MACHINE", *table.heads), *rows]))
    elif not notes and not any(codes):
        say(table.none)
    for text in notes:
        note(text)
    return max(codes)


def _rows(answer: MachineAnswer, field: str) -> list[dict[str, Any]]:
    rows = answer.content.get(field)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
