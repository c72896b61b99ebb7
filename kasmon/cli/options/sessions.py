"""Commands that start, move, rename and end sessions."""

from typing import Annotated, Literal

from kasmon.cli.arguments import Arg, Json, Session


def new(
    name: str,
    /,
    *argv: Annotated[str, Arg("Program and arguments to run in tmux (after `--`).")],
    agent: Annotated[
        str,
        Arg(
            completer="agents",
            help="Profile: claude, codex, opencode, gemini, amp, shell, scripted, or one from your config.",
        ),
    ] = "",
    mode: Annotated[str | None, Arg("tmux or sdk (default: the profile's, else tmux).")] = None,
    sandbox: Annotated[
        str | None,
        Arg(
            "Sandbox tier: `jail`, `microvm` or `e2b` (`kasmon doctor` lists which are available,"
            " and how to get the others); '' means none (default: the profile's)."
        ),
    ] = None,
    yes: Annotated[bool, Arg("Agree that the sandbox gets the profile's files and credentials.")] = False,
    dir: Annotated[str, Arg("Working directory (default: the current folder).")] = "",  # noqa: A002 - its flag
    prompt: Annotated[str, Arg(hyphen=True, help="First prompt (`-`: from stdin).")] = "",
    in_: Annotated[
        str | None, Arg(flags=("--in",), completer="sessions", help="Open as an extra window of this session.")
    ] = None,
    task: Annotated[int | None, Arg("Task number.")] = None,
    wave: Annotated[int | None, Arg("Wave number.")] = None,
    peers: Annotated[int | None, Arg("Number of sessions in the wave, including this one.")] = None,
    env: Annotated[
        list[str] | None,
        Arg(
            "Environment variable: NAME passes your value through; NAME=VALUE is visible in `ps`. The "
            "value is treated"
            " as secret: it is redacted in the log, and a sandbox that holds it is never paused to disk.",
        ),
    ] = None,
    env_public: Annotated[list[str] | None, Arg("Environment variable whose value is not secret.")] = None,
    json: Json = False,
) -> int:
    """Start a session and print its id; exit code 1 if its program exits immediately with an error."""
    from kasmon.cli import sessions as living

    wanted = living.NewSessionOptions(
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
        public_variables=env_public or (),
        agrees=yes,
    )
    return living.new(wanted, wants_json=json)


def adopt(
    target: Annotated[str, Arg("SESSION, SESSION:WINDOW, SESSION:WINDOW.PANE or %PANE in your own tmux.")],
    /,
    *,
    name: Annotated[str, Arg("Session name (default: the name of the tmux session).")] = "",
    socket: Annotated[str, Arg("Socket of your tmux server (default: the current one, or tmux's default).")] = "",
    json: Json = False,
) -> None:
    """Adopt a pane of your own tmux (`kasmon ls --tmux` lists them); kasmon never resizes, renames or ends it."""
    from kasmon.cli.sessions import adopt

    adopt(target, name, socket, wants_json=json)


def restart(session: Session, /, *, json: Json = False) -> int:
    """Restart an ended session."""
    from kasmon.cli import sessions as living

    return living.restart(session, wants_json=json)


def move(
    session: Session,
    /,
    *,
    to: Annotated[Literal["tmux", "sdk"], Arg("Mode to move to.")],
    change_permissions: Annotated[bool, Arg("Move even if the permission mode cannot be carried over.")] = False,
    json: Json = False,
) -> None:
    """Move a conversation between terminal and structured mode."""
    from kasmon.cli.sessions import move

    move(session, to, changes_permissions=change_permissions, wants_json=json)


def rename(session: Session, name: str, /, *, json: Json = False) -> None:
    """Rename a session."""
    from kasmon.cli import sessions as living

    living.rename(session, name, wants_json=json)


def mark(session: Session, /, *, json: Json = False) -> None:
    """Mark a session's finished turn as viewed; it is no longer listed first."""
    from kasmon.cli import sessions as living

    living.mark(session, wants_json=json)


def stop(session: Session, /, *, json: Json = False) -> None:
    """Stop a session's agent; the log is kept, and the session can be restarted."""
    from kasmon.cli import sessions as living

    living.stop(session, wants_json=json)


def rm(session: Session, /, *, json: Json = False) -> None:
    """Remove an ended session."""
    from kasmon.cli import sessions as living

    living.rm(session, wants_json=json)
