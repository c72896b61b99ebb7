"""Commands that show the state of sessions and change nothing."""

from typing import Annotated, Literal

from kasmon.cli.arguments import Arg, Json, Session, States, Timeout
from kasmon.errors import UsageError


def ls(
    *,
    watch: Annotated[bool, Arg("Keep running and print changes.")] = False,
    state: States = None,
    wave: int | None = None,
    tmux: Annotated[bool, Arg("List the panes of your own tmux that `kasmon adopt` can use.")] = False,
    socket: Annotated[str, Arg("With --tmux: socket of your tmux server.")] = "",
    json: Json = False,
) -> None:
    """List sessions (most urgent first)."""
    if tmux:
        from kasmon.cli.sessions import ls_tmux

        return ls_tmux(socket, wants_json=json)
    if watch:
        from kasmon.cli.watch import watch as follow

        return follow(state, wave, wants_json=json)
    from kasmon.cli.ls import ls

    return ls(state, wave, wants_json=json)


def show(session: Session, /, *, json: Json = False) -> None:
    """Show the details of a session."""
    from kasmon.cli.show import show

    show(session, wants_json=json)


def read(
    session: Session,
    /,
    *,
    range: Annotated[  # noqa: A002 - its flag
        str | None,
        Arg(hyphen=True, help="Lines A:B; -N counts from the end; empty or `-` means the end."),
    ] = None,
    lines: Annotated[int | None, Arg("Number of lines from the end.")] = None,
    ansi: Annotated[bool, Arg("Keep colours.")] = False,
    json: Json = False,
) -> None:
    """Print a session's screen and the 50 lines above it, or its transcript."""
    from kasmon.cli.show import read

    read(session, span=range, lines=lines, ansi=ansi, wants_json=json)


def wait(
    *sessions: Session,
    for_: Annotated[str, Arg(flags=("--for",), help="States, separated by commas.")],
    timeout: Timeout = None,
    any: Annotated[bool, Arg("Return as soon as one session is in such a state.")] = False,  # noqa: A002 - its flag
    json: Json = False,
) -> None:
    """Wait until sessions are in one of these states."""
    from kasmon.cli.watch import wait

    if not sessions:
        raise UsageError("`kasmon wait` requires a session.", hint="See `kasmon wait --help`.")
    wait(sessions, for_, timeout, one_will_do=any, wants_json=json)


def explain(
    session: Annotated[str | None, Arg(completer="sessions", help="Session id, exact name or id prefix.")] = None,
    /,
    *,
    screen: Annotated[
        str | None,
        Arg(hyphen=True, help="File with a captured screen, or a golden folder (`-`: stdin)."),
    ] = None,
    agent: Annotated[str | None, Arg(completer="agents", help="Agent that the screen belongs to.")] = None,
    title: Annotated[str | None, Arg(hyphen=True, help="Window title of that screen.")] = None,
    agent_version: Annotated[str, Arg("Agent version (default: the newest known).")] = "",
    export: Annotated[str | None, Arg("Write the screen and its result to this folder, as a golden folder.")] = None,
    json: Json = False,
) -> None:
    """Explain why a session has its status."""
    from kasmon.cli.explain import explain_screen, explain_session

    if screen is None and session is None:
        raise UsageError(
            "`kasmon explain` requires a session or a screen.",
            hint="Run `kasmon explain SESSION` or `kasmon explain --screen FILE --agent AGENT`.",
        )
    if screen is None and session is not None:
        if agent is not None or title is not None or agent_version:
            raise UsageError("--agent, --title and --agent-version require --screen.")
        explain_session(session, export=export, wants_json=json)
    elif agent is None or session is not None or screen is None:
        raise UsageError(
            "--screen requires --agent, and cannot be combined with a session.",
            hint="Run `kasmon explain --screen FILE --agent AGENT`.",
        )
    else:
        explain_screen(screen, agent, title=title, version=agent_version, export=export, wants_json=json)


def grep(
    pattern: Annotated[str, Arg(hyphen=True, help="Text to search for, literally.")],
    /,
    *,
    session: Annotated[
        list[str] | None,
        Arg(
            completer="sessions",
            help="Search only this session (id, exact name or id prefix). May be repeated.",
        ),
    ] = None,
    ignore_case: Annotated[bool, Arg(flags=("--ignore-case", "-i"), help="Case-insensitive.")] = False,
    regex: Annotated[
        bool, Arg(flags=("--regex", "-E"), help="Treat the pattern as a Python regular expression.")
    ] = False,
    context: Annotated[
        int, Arg(flags=("--context", "-C"), help="Lines of context around each match (0: the matching line only).")
    ] = 1,
    max: Annotated[  # noqa: A002 - its flag
        int | None, Arg(flags=("--max", "-m"), help="Max matches per session (newest first).")
    ] = None,
    json: Json = False,
) -> int:
    """Search all transcripts and terminal output.

    Exit code 1 if there is no match.
    """
    from kasmon.cli.grep import grep

    return grep(
        pattern,
        only=session or (),
        ignores_case=ignore_case,
        is_regex=regex,
        context=context,
        most=max,
        wants_json=json,
    )


def export(
    session: Session,
    /,
    *,
    format: Annotated[  # noqa: A002 - its flag
        Literal["markdown", "json"],
        Arg("markdown: for people. json: for programs, with every event as logged."),
    ] = "markdown",
    out: Annotated[str | None, Arg(hyphen=True, help="Output file (must not exist; default: stdout).")] = None,
    json: Json = False,
) -> None:
    """Export a session's transcript and terminal output."""
    from kasmon.cli.show import export

    export(session, "json" if json else format, out)
