"""The commands by which a session begins, changes its place or name, and ends."""

from typing import Annotated, Literal

from cyclopts import Parameter

from kasmon.cli.parameter import Json, Session, agents, sessions


def new(
    name: str,
    /,
    *argv: Annotated[str, Parameter(help="Behind `--`: any program to run in tmux, with its arguments.")],
    agent: Annotated[
        str,
        Parameter(
            completer=agents, help="A profile: claude, codex, opencode, gemini, amp, shell, scripted, or your own."
        ),
    ] = "",
    mode: Annotated[str | None, Parameter(help="tmux or sdk; by default what the profile says, else tmux.")] = None,
    sandbox: Annotated[
        str | None,
        Parameter(
            help="What confines it: `jail`, `gvisor`, `microvm` or `e2b` (`kasmon doctor` says which can be had here,"
            " and how to get the others); '' is nothing; by default what the profile says."
        ),
    ] = None,
    yes: Annotated[
        bool, Parameter(negative=(), help="Agree to what its sandbox is handed: its profile's files and credentials.")
    ] = False,
    dir: Annotated[str, Parameter(help="The folder it works in; by default this one.")] = "",  # noqa: A002 - its flag
    prompt: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="Its first prompt; `-` reads it from stdin.")
    ] = "",
    in_: Annotated[
        str | None, Parameter(name="--in", completer=sessions, help="Open a further window beside this session's.")
    ] = None,
    task: Annotated[int | None, Parameter(help="Its task's number.")] = None,
    wave: Annotated[int | None, Parameter(help="Its wave's number.")] = None,
    peers: Annotated[int | None, Parameter(help="How many sessions its wave has, with this one.")] = None,
    env: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="A variable for it: NAME takes yours. NAME=VALUE can be read by others, in `ps`.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Start a session and print its id; exit code 1 if its program fails at once."""
    from kasmon.commands import living

    wanted = living.Wanted(
        name=name,
        argv=argv,
        agent=agent,
        mode=mode,
        sandbox=sandbox,
        folder=dir,
        prompt=prompt,
        beside=in_,
        task=task,
        wave=wave,
        peers=peers,
        variables=env or (),
        agrees=yes,
    )
    return living.new(wanted, wants_json=json)


def adopt(
    target: Annotated[str, Parameter(help="SESSION, SESSION:WINDOW, SESSION:WINDOW.PANE or %PANE of your own tmux.")],
    /,
    *,
    name: Annotated[str, Parameter(help="What to call it; by default as its tmux session.")] = "",
    socket: Annotated[
        str, Parameter(help="The socket of that tmux; by default the one you are in, or the usual.")
    ] = "",
    json: Json = False,
) -> None:
    """Watch a session of your own tmux (`kasmon ls --tmux` lists them); it is never resized, renamed or ended."""
    from kasmon.commands.adopting import adopt

    adopt(target, name, socket, wants_json=json)


def restart(session: Session, /, *, json: Json = False) -> int:
    """Start an ended session again."""
    from kasmon.commands import living

    return living.restart(session, wants_json=json)


def move(
    session: Session,
    /,
    *,
    to: Annotated[Literal["tmux", "sdk"], Parameter(help="The mode it goes on in.")],
    json: Json = False,
) -> None:
    """Go on with the same conversation in a terminal, or as a structured session."""
    from kasmon.commands.moving import move

    move(session, to, wants_json=json)


def rename(session: Session, name: str, /, *, json: Json = False) -> None:
    """Give a session another name."""
    from kasmon.commands import living

    living.rename(session, name, wants_json=json)


def stop(session: Session, /, *, json: Json = False) -> None:
    """End the agent; its log stays, and it can be restarted."""
    from kasmon.commands import living

    living.stop(session, wants_json=json)


def rm(session: Session, /, *, json: Json = False) -> None:
    """Take an ended session off the list."""
    from kasmon.commands import living

    living.rm(session, wants_json=json)
