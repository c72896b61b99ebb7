"""Parameters that several commands share, each with its help and completion."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

if TYPE_CHECKING:
    from cyclopts.completion._engine import CompletionContext


def sessions(context: "CompletionContext") -> dict[str, str]:
    """Complete sessions."""
    from kasmon.cli import completion

    return completion.sessions(context.incomplete)


def sandboxes(context: "CompletionContext") -> dict[str, str]:
    """Complete sessions in sandboxes."""
    from kasmon.cli import completion

    return completion.sessions(context.incomplete, sandboxed=True)


def agents(context: "CompletionContext") -> dict[str, str]:
    """Complete profiles."""
    from kasmon.cli import completion

    return completion.agents(context.incomplete)


def requests(context: "CompletionContext") -> dict[str, str]:
    """Complete open requests."""
    from kasmon.cli import completion

    return completion.requests(context.incomplete)


def settings(context: "CompletionContext") -> dict[str, str]:
    """Complete settings."""
    from kasmon.cli import completion

    return completion.settings(context.incomplete)


def values(context: "CompletionContext") -> dict[str, str]:
    """Complete the values of the setting before."""
    from kasmon.cli import completion

    return completion.values(context["key"].raw or "")


def plans(context: "CompletionContext") -> dict[str, str]:
    """Complete plans that were run, and plan files."""
    from kasmon.cli import completion

    return completion.plans(context.incomplete)


def plan_files(context: "CompletionContext") -> dict[str, str]:
    """Complete plan files."""
    from kasmon.cli import completion

    return completion.plan_files(context.incomplete)


Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object.")]
Session = Annotated[
    str, Parameter(completer=sessions, help="Session id, exact name or id prefix (at least 3 characters).")
]
SandboxArgument = Annotated[
    str, Parameter(completer=sandboxes, help="Session id, exact name or id prefix (at least 3 characters).")
]
Text = Annotated[str | None, Parameter(allow_leading_hyphen=True, help="Prompt text (`-`: from stdin).")]
Timeout = Annotated[
    float | None, Parameter(validator=validators.Number(gte=0), help="Give up after this many seconds.")
]
States = Annotated[
    str | None, Parameter(help="States, separated by commas: starting, idle, working, asking, limited, ...")
]
