"""What several commands take, each with its help, and what Tab offers for it."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

if TYPE_CHECKING:
    from cyclopts.completion._engine import CompletionContext


def sessions(context: "CompletionContext") -> dict[str, str]:
    """The sessions."""
    from kasmon.commands import completing

    return completing.sessions(context.incomplete)


def sandboxes(context: "CompletionContext") -> dict[str, str]:
    """The sessions in sandboxes."""
    from kasmon.commands import completing

    return completing.sessions(context.incomplete, sandboxed=True)


def agents(context: "CompletionContext") -> dict[str, str]:
    """The profiles."""
    from kasmon.commands import completing

    return completing.agents(context.incomplete)


def requests(context: "CompletionContext") -> dict[str, str]:
    """The requests that wait."""
    from kasmon.commands import completing

    return completing.requests(context.incomplete)


def settings(context: "CompletionContext") -> dict[str, str]:
    """The settings."""
    from kasmon.commands import completing

    return completing.settings(context.incomplete)


def values(context: "CompletionContext") -> dict[str, str]:
    """What the setting before it takes."""
    from kasmon.commands import completing

    return completing.values(context["key"].raw or "")


def plans(context: "CompletionContext") -> dict[str, str]:
    """The plans that were run, and files."""
    from kasmon.commands import completing

    return completing.plans(context.incomplete)


def plan_files(context: "CompletionContext") -> dict[str, str]:
    """The files that are meant as plans."""
    from kasmon.commands import completing

    return completing.plan_files(context.incomplete)


Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object, for programs.")]
Session = Annotated[
    str, Parameter(completer=sessions, help="Id, exact name, or the beginning of an id (3 letters or more).")
]
Sandboxed = Annotated[
    str, Parameter(completer=sandboxes, help="Id, exact name, or the beginning of an id (3 letters or more).")
]
Text = Annotated[str | None, Parameter(allow_leading_hyphen=True, help="The prompt; `-` reads it from stdin.")]
Timeout = Annotated[float | None, Parameter(validator=validators.Number(gte=0), help="Give up after so many seconds.")]
States = Annotated[str | None, Parameter(help="States, with commas: starting, idle, working, asking, limited, ...")]
