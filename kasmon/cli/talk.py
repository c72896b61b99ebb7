"""The commands by which people and agents tell each other something: prompts, answers, rules, notes, messages."""

from typing import Annotated, Literal

from cyclopts import Parameter

from kasmon.cli.parameter import Json, Session, Text, Timeout, requests, sessions
from kasmon.errors import UsageError
from kasmon.model.command import When


def send(
    session: Annotated[
        str | None,
        Parameter(
            completer=sessions,
            allow_leading_hyphen=True,
            help="Id, exact name, or the beginning of an id; left out with --to.",
        ),
    ] = None,
    text: Text = None,
    /,
    *,
    to: Annotated[str | None, Parameter(help="Send to all of these: state=idle,wave=2,agent=claude.")] = None,
    when: Annotated[When, Parameter(help="If it is busy: queue, type it all the same, interrupt, or refuse.")] = "now",
    anyway: Annotated[
        bool, Parameter(negative="", help="Type it also where nobody sees the box that takes it, if nothing is asked.")
    ] = False,
    wait: Annotated[str | None, Parameter(help="Then wait until it is in one of these states.")] = None,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Send a prompt, and print the receipt."""
    from kasmon.commands.talking import send

    if to is not None and text is None:
        session, text = None, session
    if text is None:
        raise UsageError("there is no prompt.", hint="Say `kasmon send SESSION TEXT`, or `-` to read it from stdin.")
    return send(session, text, to=to, when=when, anyway=anyway, states=wait, timeout_s=timeout, wants_json=json)


def interrupt(
    session: Session,
    /,
    *,
    run: Annotated[str, Parameter(help="In a sandbox: only the run with this id.")] = "",
    json: Json = False,
) -> None:
    """End the running turn."""
    from kasmon.commands import living

    living.interrupt(session, run, wants_json=json)


def inbox(
    *,
    alike: Annotated[str, Parameter(help="Only this request and those like it, and the digest of them all.")] = "",
    json: Json = False,
) -> None:
    """List the requests that wait for you, oldest first."""
    if alike:
        from kasmon.commands.together import list_alike

        list_alike(alike, wants_json=json)
        return
    from kasmon.commands.looking import inbox

    inbox(wants_json=json)


def answer(
    request: Annotated[str, Parameter(completer=requests, help="The request's id, from `kasmon inbox`.")],
    decision: Annotated[str, Parameter(help="allow, always, deny, never, edit, choose, cancel or later.")],
    /,
    *,
    digest: Annotated[
        str, Parameter(help="The digest of what you decided on. Without it the request is shown first.")
    ] = "",
    scope: Annotated[
        Literal["session", "plan", "project"], Parameter(help="How far `always` and `never` reach.")
    ] = "session",
    reason: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="With `deny` and `never`: why; the agent is told.")
    ] = "",
    input: Annotated[  # noqa: A002 - its flag
        str | None,
        Parameter(allow_leading_hyphen=True, help="With `edit`: the input to go on with, as JSON; `-` reads stdin."),
    ] = None,
    choice: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="With `choose`: a label, its number, or your own words; once for each where several may be chosen.",
        ),
    ] = None,
    alike: Annotated[
        bool, Parameter(negative=(), help="Answer all that are like it too, by `allow` or `deny`; lists them first.")
    ] = False,
    yes: Annotated[bool, Parameter(negative=(), help="With --alike and the list's --digest: do not ask.")] = False,
    json: Json = False,
) -> int:
    """Answer a request, or with --alike all that are like it. A plan is approved by `allow`, sent back by `deny`."""
    if alike:
        from kasmon.commands.together import answer_alike

        return answer_alike(request, decision, digest=digest, reason=reason, yes=yes, wants_json=json)
    if yes:
        raise UsageError("--yes goes with --alike.", hint="One request is answered without a question by its --digest.")
    from kasmon.commands.answering import answer

    answer(
        request,
        decision,
        digest=digest,
        scope=scope,
        reason=reason,
        edited=input,
        labels=choice or (),
        wants_json=json,
    )
    return 0


def rules(
    act: Annotated[Literal["ls", "rm"], Parameter(help="List them, or revoke some.")] = "ls",
    /,
    *wanted: Annotated[str, Parameter(help="With `rm`: the rules' ids.")],
    json: Json = False,
) -> None:
    """List the standing rules that answer requests for you, or revoke some."""
    from kasmon.commands.ruling import rules

    rules(act, wanted, wants_json=json)


def ctx(
    session: Annotated[
        str | None, Parameter(completer=sessions, help="Id or name; by default the session that this is run in.")
    ] = None,
    /,
    *,
    done: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="Say that its task is done; a word on it may follow."),
    ] = None,
    waiting: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="Say what it waits for on purpose; '' takes that back."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the agent inside its task, wave and peers; note that it is done, or waits on purpose."""
    from kasmon.commands.ctx import ctx

    ctx(session, done=done, waiting=waiting, wants_json=json)


def tell_peer(
    peer: Annotated[str, Parameter(help="A peer's name, id or task number; `wave` is all of them.")],
    text: Text = None,
    /,
    *,
    json: Json = False,
) -> None:
    """From within a plan's session: leave a peer a message, which it gets at its turn's end."""
    from kasmon.commands.telling import tell_peer

    tell_peer(peer, text, wants_json=json)
