"""The commands that say how sessions are: nothing changes by them."""

from typing import Annotated, Literal

from cyclopts import Parameter

from kasmon.cli.parameter import Json, Session, States, Timeout, agents, sessions
from kasmon.errors import UsageError


def ls(
    *,
    watch: Annotated[bool, Parameter(negative=(), help="Go on, and print what changes.")] = False,
    state: States = None,
    wave: int | None = None,
    tmux: Annotated[bool, Parameter(negative=(), help="List the panes of your own tmux, for `kasmon adopt`.")] = False,
    socket: Annotated[str, Parameter(help="With --tmux: the socket of that tmux.")] = "",
    json: Json = False,
) -> None:
    """List the sessions, those that need you first."""
    if tmux:
        from kasmon.commands.adopting import ls_tmux

        return ls_tmux(socket, wants_json=json)
    if watch:
        from kasmon.commands.watching import watch as follow

        return follow(state, wave, wants_json=json)
    from kasmon.commands.listing import ls

    return ls(state, wave, wants_json=json)


def show(session: Session, /, *, json: Json = False) -> None:
    """Show all that is known of one session."""
    from kasmon.commands.looking import show

    show(session, wants_json=json)


def read(
    session: Session,
    /,
    *,
    range: Annotated[  # noqa: A002 - its flag
        str | None,
        Parameter(allow_leading_hyphen=True, help="Lines A:B; -N counts from the end, nothing or `-` is the end."),
    ] = None,
    lines: Annotated[int | None, Parameter(help="The last so many lines.")] = None,
    ansi: Annotated[bool, Parameter(negative=(), help="Keep colours.")] = False,
    json: Json = False,
) -> None:
    """Print a session's screen with 50 lines above it, or its transcript."""
    from kasmon.commands.reading import read

    read(session, span=range, lines=lines, ansi=ansi, wants_json=json)


def wait(
    *sessions: Session,
    for_: Annotated[str, Parameter(name="--for", help="States, with commas.")],
    timeout: Timeout = None,
    any: Annotated[bool, Parameter(negative=(), help="One of them is enough.")] = False,  # noqa: A002 - its flag
    json: Json = False,
) -> None:
    """Wait until sessions are in a state."""
    from kasmon.commands.watching import wait

    if not sessions:
        raise UsageError("there is no session to wait for.", hint="See `kasmon wait --help`.")
    wait(sessions, for_, timeout, one_will_do=any, wants_json=json)


def explain(
    session: Annotated[
        str | None, Parameter(completer=sessions, help="Id, exact name, or the beginning of an id.")
    ] = None,
    /,
    *,
    screen: Annotated[
        str | None, Parameter(allow_leading_hyphen=True, help="A captured screen, or a golden folder; `-` is stdin.")
    ] = None,
    agent: Annotated[str | None, Parameter(completer=agents, help="Whose screen that is.")] = None,
    title: Annotated[
        str | None, Parameter(allow_leading_hyphen=True, help="The window's title that belongs to it.")
    ] = None,
    agent_version: Annotated[str, Parameter(help="The agent's version; by default the newest that is known.")] = "",
    export: Annotated[str | None, Parameter(help="Write the case into this folder, as a golden folder.")] = None,
    json: Json = False,
) -> None:
    """Say which evidence made a state, which lost, and why."""
    from kasmon.commands.explaining import explain_screen, explain_session

    if screen is None and session is None:
        raise UsageError("there is nothing to explain.", hint="kasmon explain SESSION, or --screen FILE --agent AGENT")
    if screen is None and session is not None:
        if agent is not None or title is not None or agent_version:
            raise UsageError("--agent, --title and --agent-version go with --screen.")
        explain_session(session, export=export, wants_json=json)
    elif agent is None or session is not None or screen is None:
        raise UsageError("a screen is explained for one agent.", hint="kasmon explain --screen FILE --agent AGENT")
    else:
        explain_screen(screen, agent, title=title, version=agent_version, export=export, wants_json=json)


def grep(
    pattern: Annotated[str, Parameter(allow_leading_hyphen=True, help="What to look for, as it is written.")],
    /,
    *,
    session: Annotated[
        list[str] | None,
        Parameter(negative=(), completer=sessions, help="Only there: id, exact name, or the beginning of an id."),
    ] = None,
    ignore_case: Annotated[
        bool, Parameter(name=["--ignore-case", "-i"], negative=(), help="Upper and lower case are one.")
    ] = False,
    regex: Annotated[
        bool, Parameter(name=["--regex", "-E"], negative=(), help="It is a regular expression, as Python has them.")
    ] = False,
    context: Annotated[
        int, Parameter(name=["--context", "-C"], help="So many lines above and below each; 0 is one line a hit.")
    ] = 1,
    max: Annotated[  # noqa: A002 - its flag
        int | None, Parameter(name=["--max", "-m"], help="At most so many of each session, the newest.")
    ] = None,
    json: Json = False,
) -> int:
    """Search all transcripts, and what terminals printed.

    Exit code 1 where nothing is found.
    """
    from kasmon.commands.searching import grep

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
        Literal["markdown", "json"], Parameter(help="For people, or for programs: every fact as it was written.")
    ] = "markdown",
    out: Annotated[
        str | None, Parameter(allow_leading_hyphen=True, help="A file to write, which must not be there; else stdout.")
    ] = None,
    json: Json = False,
) -> None:
    """Write out all of a session: its transcript, and what its terminal printed."""
    from kasmon.commands.exporting import export

    export(session, "json" if json else format, out)
