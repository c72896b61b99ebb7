"""Commands for prompts, answers, rules, notes and messages between users and agents."""

from typing import Annotated, Literal

from kasmon.cli.arguments import Arg, Json, Session, Text, Timeout
from kasmon.errors import UsageError
from kasmon.model.commands import When


def send(
    session: Annotated[
        str | None,
        Arg(
            completer="sessions",
            hyphen=True,
            help="Session id, exact name or id prefix; omit with --to.",
        ),
    ] = None,
    text: Text = None,
    /,
    *,
    to: Annotated[str | None, Arg("Send to all matching agents, for example state=idle,wave=2,agent=claude.")] = None,
    include: Annotated[
        Literal["shells"] | None,
        Arg("With --to: also send to shells, interpreters and plain commands, which execute the prompt."),
    ] = None,
    dry_run: Annotated[bool, Arg("With --to: list the recipients without sending.")] = False,
    yes: Annotated[bool, Arg("With --to: send to several without confirmation.")] = False,
    when: Annotated[When, Arg("What to do if busy: queue (idle), send anyway (now), interrupt, or refuse.")] = "now",
    anyway: Annotated[bool, Arg("Send even if the input box is not visible, unless a request is pending.")] = False,
    wait: Annotated[str | None, Arg("After sending, wait until the session is in one of these states.")] = None,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Send a prompt, and print its receipt."""
    from kasmon.cli.send import Recipients, send

    if to is not None and text is None:
        session, text = None, session
    if text is None:
        raise UsageError("missing prompt.", hint="Usage: `kasmon send SESSION TEXT`, or `-` to read it from stdin.")
    if to is None and (include or dry_run):
        raise UsageError(
            "--include and --dry-run require --to.", hint="A prompt for one SESSION is sent whatever program it runs."
        )
    several = Recipients(to=to or "", include_shells=include == "shells", dry_run=dry_run, yes=yes)
    return send(
        session,
        text,
        several=several if to is not None else None,
        when=when,
        anyway=anyway,
        states=wait,
        timeout_s=timeout,
        wants_json=json,
    )


def interrupt(
    session: Session,
    /,
    *,
    run: Annotated[str, Arg("In a sandbox: interrupt only the run with this id.")] = "",
    json: Json = False,
) -> None:
    """Interrupt the current turn."""
    from kasmon.cli import sessions as living

    living.interrupt(session, run, wants_json=json)


def fg(session: Session, /, *, json: Json = False) -> None:
    """Continue an agent that Ctrl+Z suspended in its terminal."""
    from kasmon.cli import sessions as living

    living.continue_stopped(session, wants_json=json)


def inbox(
    *,
    alike: Annotated[str, Arg("List only this request and similar ones, with one digest for all.")] = "",
    json: Json = False,
) -> None:
    """List pending requests, oldest first."""
    if alike:
        from kasmon.cli.answer_alike import list_alike

        list_alike(alike, wants_json=json)
        return
    from kasmon.cli.show import inbox

    inbox(wants_json=json)


def answer(
    request: Annotated[str, Arg(completer="requests", help="Request id, from `kasmon inbox`.")],
    decision: Annotated[str, Arg("allow, always, deny, never, edit, choose, cancel or later.")],
    /,
    *,
    digest: Annotated[
        str, Arg("Digest of the request that you reviewed. Without it, the request is shown first.")
    ] = "",
    scope: Annotated[
        Literal["session", "plan", "project"], Arg("Scope of the rule for `always` and `never`.")
    ] = "session",
    reason: Annotated[str, Arg(hyphen=True, help="With `deny`, `never` and `cancel`: reason, sent to the agent.")] = "",
    input: Annotated[  # noqa: A002 - its flag
        str | None,
        Arg(hyphen=True, help="With `edit`: the edited input as JSON (`-`: from stdin)."),
    ] = None,
    choice: Annotated[
        list[str] | None,
        Arg(
            "With `choose`: label or number of an option. May be repeated if the question allows several.",
        ),
    ] = None,
    text: Annotated[str, Arg(hyphen=True, help="With `choose`: custom answer, if the question accepts one.")] = "",
    alike: Annotated[bool, Arg("Also answer all similar requests, with `allow` or `deny`; lists them first.")] = False,
    yes: Annotated[bool, Arg("With --alike and the list's --digest: answer without confirmation.")] = False,
    json: Json = False,
) -> int:
    """Answer a request, or with --alike all similar ones. `allow` approves an agent's plan, `deny` rejects it."""
    if alike:
        from kasmon.cli.answer_alike import answer_alike

        if input is not None or choice or text or scope != "session":
            raise UsageError(
                "--alike cannot be combined with --input, --choice, --text or --scope.", hint="Answer them one by one."
            )
        return answer_alike(request, decision, digest=digest, reason=reason, yes=yes, wants_json=json)
    if yes:
        raise UsageError(
            "--yes requires --alike.", hint="To answer one request without confirmation, pass its --digest."
        )
    from kasmon.cli.answer import answer

    answer(
        request,
        decision,
        digest=digest,
        scope=scope,
        reason=reason,
        edited=input,
        labels=choice or (),
        text=text,
        wants_json=json,
    )
    return 0


def rules(
    act: Annotated[Literal["ls", "rm"], Arg("List rules, or revoke them.")] = "ls",
    /,
    *wanted: Annotated[str, Arg("With `rm`: rule ids.")],
    json: Json = False,
) -> None:
    """List or revoke the standing rules that answer requests for you."""
    from kasmon.cli.answer_alike import list_or_revoke_rules

    list_or_revoke_rules(act, wanted, wants_json=json)


def ctx(
    session: Annotated[
        str | None,
        Arg(completer="sessions", help="Session id or name (default: the session that runs this command)."),
    ] = None,
    /,
    *,
    done: Annotated[
        str | None,
        Arg(hyphen=True, help="Report the task as done, with an optional note."),
    ] = None,
    waiting: Annotated[
        str | None,
        Arg(hyphen=True, help="Report what the agent waits for on purpose ('' clears it)."),
    ] = None,
    json: Json = False,
) -> None:
    """Show an agent its task, wave and peers; report that the task is done or that the agent waits."""
    from kasmon.cli.ctx import ctx

    ctx(session, done=done, waiting=waiting, wants_json=json)


def tell_peer(
    peer: Annotated[str, Arg("Peer name, id or task number; `wave` means all peers.")],
    text: Text = None,
    /,
    *,
    json: Json = False,
) -> None:
    """Message a peer from a plan's session (delivered after its current turn)."""
    from kasmon.cli.ctx import tell_peer

    tell_peer(peer, text, wants_json=json)
