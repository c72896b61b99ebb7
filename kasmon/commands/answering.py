"""`kasmon answer`: exactly one request, by its id and the digest of what was shown."""

import asyncio
import json
import sys
import termios
from collections.abc import Collection, Sequence
from typing import Any, Final

from kasmon.clean import has_hidden, redact, visible
from kasmon.commands.looking import option_lines
from kasmon.commands.objects import answer as answered
from kasmon.commands.objects import request_object
from kasmon.commands.output import say, say_block, tell
from kasmon.errors import RefusedError, RequestClosedError, RequestNotFoundError, UnableError, UsageError
from kasmon.host.policy import project_of
from kasmon.host.secret import secrets_of
from kasmon.model.alike import strings, texts
from kasmon.model.answer import must_take
from kasmon.model.command import Answer, Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import AskKind, Decision, Request, RequestId
from kasmon.model.rule import Scope
from kasmon.model.session import Session
from kasmon.paths import Places, places
from kasmon.supervisor import verb
from kasmon.supervisor.look import look_once

STANDING: Final = frozenset({Decision.ALWAYS, Decision.NEVER})
ALLOWING: Final = frozenset({Decision.ALLOW, Decision.ALWAYS, Decision.EDIT})


def answer(
    wanted: str,
    said: str,
    *,
    digest: str,
    scope: Scope,
    reason: str,
    edited: str | None,
    labels: Sequence[str],
    wants_json: bool,
) -> None:
    """Answer the request *wanted* with the decision *said*.

    Without a *digest* the request is shown and the person asked, on a terminal only.

    Raises:
        UsageError: if there is no such decision, or it lacks what it needs.
        RequestNotFoundError: if there never was such a request.
        RefusedError: if it is closed, does not take this decision, has another digest, or nobody could look at it.
    """
    decision = decision_of(said)
    where = places()
    session, request = meant(look_once(where), wanted)
    labels = tuple(_label(request, label) for label in labels)
    _check(request, decision, labels)
    makes_rule = decision in STANDING and session.mode is not Mode.TMUX
    if makes_rule and scope == "plan" and not session.plan:
        raise UnableError(f"session {session.id!r} belongs to no plan.", hint="Use --scope session or --scope project.")
    if decision in STANDING and _holds_secrets(request, secrets_of(where, request.session)):
        raise UnableError(
            f"request {request.id!r} holds secrets, so no rule is made of it.", hint="Answer it this once."
        )
    tool_input = _edited(edited) if decision is Decision.EDIT else None
    if not digest:
        reach = _reach(session, scope) if makes_rule else ""
        seen = shown(where, request, decision, edited=tool_input, labels=labels, reach=reach)
        digest = ask(request, decision, seen, wants_json=wants_json)
    given = Answer(
        request=request.id,
        digest=digest,
        decision=decision,
        reason=reason,
        input=tool_input,
        labels=labels,
        scope=scope,
    )
    asyncio.run(verb.answer(where, session, given))
    if wants_json:
        tell(answered(request=request_object(request), decision=decision.value))
    else:
        say(f"{request.id}: {decision}")


def meant(fleet: Fleet, wanted: str) -> tuple[Session, Request]:
    """The open request called *wanted*, and its session.

    Raises:
        RequestClosedError: if it was answered or withdrawn.
        RequestNotFoundError: if nothing is known of it.
    """
    for session in fleet.sessions:
        if (request := session.open_request(RequestId(wanted))) is not None:
            return session, request
        for closed in session.closed:
            if closed.id == wanted:
                who = f" at {closed.who}" if closed.who else ""
                how = f"{closed.decision} by {closed.by}{who}" if closed.decision else f"withdrawn, {closed.by}"
                raise RequestClosedError(wanted, how)
    raise RequestNotFoundError(wanted)


def ask(request: Request, decision: Decision, seen: Sequence[str], *, wants_json: bool) -> str:
    """Show *seen*, all of *request*, have the person type the decision, and return the digest of what was shown.

    Raises:
        RefusedError: if nobody can look, or the person typed something else.
    """
    if wants_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RefusedError(
            f"request {request.id!r} was not answered: nobody could look at it here.",
            hint="Give the digest of what you decided on: `kasmon inbox --json` has it, --digest takes it.",
        )
    for line in seen:
        say_block(line)
    hidden = any(map(has_hidden, texts(request)))
    word = request.tool if hidden and request.tool and decision in ALLOWING else decision.value
    why = "It holds hidden characters. " if hidden else ""
    if typed(f"{why}Type {visible(word)} to answer {decision.value!r}") != word:
        raise RefusedError(f"request {request.id!r} was left as it is.", hint="Nothing was sent.")
    return request.digest


def typed(question: str) -> str:
    """What the person at the terminal types to *question*, after it stands there."""
    # What was typed before was not meant for it.
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    print(f"{question}, anything else to leave it:", end=" ", flush=True)
    return sys.stdin.readline().strip()


def shown(
    where: Places,
    request: Request,
    decision: Decision,
    *,
    edited: dict[str, Any] | None = None,
    labels: Sequence[str] = (),
    reach: str = "",
) -> list[str]:
    """The whole request as text, nothing invisible in it, secrets hidden; and what *decision* would do.

    Args:
        where: where the secrets of its session are known from.
        request: what is asked.
        decision: what the person is about to say.
        edited: the input that it would go on with.
        labels: what is chosen.
        reach: whose requests a rule would cover; empty where the agent's own menu says it.
    """
    known = secrets_of(where, request.session)
    text, hidden = redact(request.shown or json.dumps(request.input, ensure_ascii=False, indent=2), known)
    lines = [f"{request.kind} {request.id}", visible(f"{request.tool} {request.title}".strip()), "", text, ""]
    lines += [*further, ""] if (further := _further(request, known)) else []
    if hidden:
        lines.append(f"{hidden} secrets are hidden.")
    if request.why:
        lines += ["Its reason: " + redact(request.why, known)[0], ""]
    lines += option_lines(request, known)
    if edited is not None:
        lines += [
            "It would run with this instead:",
            redact(json.dumps(edited, ensure_ascii=False, indent=2), known)[0],
            "",
        ]
    if decision in STANDING:
        effect = "allowed" if decision is Decision.ALWAYS else "denied"
        where_to = f"From now on {effect} in {reach}" if reach else "Its own menu says"
        lines.append(f"{where_to}: {visible(request.rule)}")
    if decision is Decision.CANCEL:
        lines.append("It is denied, and the turn ends.")
    lines += [f"Chosen: {visible(label)}" for label in labels]
    return lines


def _further(request: Request, known: Collection[str]) -> list[str]:
    """What else the tool would get than what is shown as its text."""
    if not request.shown or request.kind is AskKind.QUESTION:  # a question's input is the question again
        return []
    lines: list[str] = []
    for key, value in request.input.items():
        parts = value.split("\n") if isinstance(value, str) and request.is_diff else [value]
        if all(isinstance(part, str) and part in request.shown for part in parts):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        lines.append(f"{visible(key)}: {redact(text, known)[0]}")
    return lines


def _holds_secrets(request: Request, known: Collection[str]) -> bool:
    return any(redact(text, known)[1] for text in (request.shown, "\n".join(strings(request.input))))


def _reach(session: Session, scope: Scope) -> str:
    """Whose requests a rule of *scope* would cover, in words."""
    match scope:
        case "session":
            return "this session"
        case "plan":
            return f"plan {visible(session.plan or '')}"
        case "project":
            return f"project {visible(project_of(session.workdir))}"


def decision_of(said: str) -> Decision:
    """The decision called *said*.

    Raises:
        UsageError: if there is none.
    """
    try:
        return Decision(said)
    except ValueError as error:
        raise UsageError(f"there is no answer {said!r}.", hint=f"Answers: {', '.join(Decision)}.") from error


def _check(request: Request, decision: Decision, labels: Sequence[str]) -> None:
    if not request.answerable:
        raise UnableError(
            f"request {request.id!r} was only seen on a terminal, so kasmon cannot answer it.",
            hint=f"Answer it there: `kasmon attach {request.session}`.",
        )
    must_take(request, decision, (*request.choices, Decision.LATER))
    if decision is Decision.CHOOSE and not labels:
        raise UsageError("choose needs --choice LABEL.", hint=f"Labels: {', '.join(request.options)}.")
    if decision is Decision.CHOOSE and len(labels) > 1 and not request.many:
        raise UsageError(f"request {request.id!r} takes one choice, not {len(labels)}.")
    for label in labels:
        own_words = request.free_text or not request.options
        if request.kind is AskKind.QUESTION and not own_words and label not in request.options:
            raise UsageError(f"there is no choice {label!r}.", hint=f"Labels: {', '.join(request.options)}.")


def _label(request: Request, said: str) -> str:
    """The option that *said* names by its label, or by its number from 1; else what was said, in the person's words."""
    if said in request.options or not (said.isascii() and said.isdecimal()):
        return said
    number = int(said)
    return request.options[number - 1] if 0 < number <= len(request.options) else said


def _edited(said: str | None) -> dict[str, Any]:
    if said is None:
        raise UsageError("edit needs --input JSON, the input to go on with; `-` reads it from stdin.")
    try:
        edited = json.loads(sys.stdin.read() if said == "-" else said)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the input is no JSON that can be read: {error}.") from error
    if not isinstance(edited, dict):
        raise UsageError("the input must be a JSON object, like the one that `kasmon inbox --json` shows.")
    return edited
