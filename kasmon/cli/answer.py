"""`kasmon answer`: answer exactly one request, by its id and the digest of the text that was shown."""

import json
import sys
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final

import msgspec

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import print_answer, say_block, typed
from kasmon.cli.output.json_objects import request_object
from kasmon.cli.show import option_lines
from kasmon.errors import (
    RefusedError,
    RemoteUnreachableError,
    RequestClosedError,
    RequestNotFoundError,
    UnableError,
    UsageError,
)
from kasmon.host.journal.secrets import secrets_of
from kasmon.host.rpc import event_loop
from kasmon.host.session.rules import project_of
from kasmon.model.answer import check_decision, must_be_complete, must_be_whole, with_text_as_label
from kasmon.model.commands import Answer, Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import MAY_BE_CUT, Decision, Request, RequestId, RequestKind, parse_decision
from kasmon.model.request_groups import strings, texts
from kasmon.model.rule import Scope
from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.sanitize import has_hidden, redact, visible
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions import session_operations

STANDING: Final = frozenset({Decision.ALWAYS, Decision.NEVER})
ALLOWING: Final = frozenset({Decision.ALLOW, Decision.ALWAYS, Decision.EDIT})


def answer(
    wanted: Annotated[str, Arg("Request id, from `kasmon inbox`.", ("REQUEST",), completer="requests")],
    said: Annotated[str, Arg("allow, always, deny, never, edit, choose, cancel or later.", ("DECISION",))],
    /,
    *,
    digest: Annotated[
        str, Arg("Digest of the request that you reviewed. Without it, the request is shown first.")
    ] = "",
    scope: Annotated[Scope, Arg("Scope of the rule for `always` and `never`.")] = "session",
    reason: Annotated[str, Arg("With `deny`, `never` and `cancel`: reason, sent to the agent.", hyphen=True)] = "",
    edited: Annotated[
        str | None, Arg("With `edit`: the edited input as JSON (`-`: from stdin).", ("--input",), hyphen=True)
    ] = None,
    choice: Annotated[
        list[str] | None,
        Arg("With `choose`: label or number of an option. May be repeated if the question allows several."),
    ] = None,
    text: Annotated[str, Arg("With `choose`: custom answer, if the question accepts one.", hyphen=True)] = "",
    alike: Annotated[bool, Arg("Also answer all similar requests, with `allow` or `deny`; lists them first.")] = False,
    yes: Annotated[bool, Arg("With --alike and the list's --digest: answer without confirmation.")] = False,
    wants_json: Json = False,
) -> int:
    """Answer a request, or with --alike all similar ones. `allow` approves an agent's plan, `deny` rejects it."""
    if alike:
        from kasmon.cli.answer_alike import answer_alike

        if edited is not None or choice or text or scope != "session":
            raise UsageError(
                "--alike cannot be combined with --input, --choice, --text or --scope.", hint="Answer them one by one."
            )
        return answer_alike(wanted, said, digest=digest, reason=reason, yes=yes, wants_json=wants_json)
    if yes:
        raise UsageError(
            "--yes requires --alike.", hint="To answer one request without confirmation, pass its --digest."
        )
    decision = parse_decision(said)
    where = user_paths()
    session, request = meant(read_fleet(where), wanted)
    labels = tuple(_label(request, label) for label in choice or ())
    if digest and digest != request.digest and request.digest.startswith(digest.rstrip("…")):
        raise UsageError(
            f"{digest!r} is only the beginning of the digest of request {request.id!r}.",
            hint="`kasmon inbox --json` prints all of it.",
        )
    _check(request, decision)
    tool_input = None if edited is None else _parse_edit(edited) if decision is Decision.EDIT else {}
    given = Answer(
        request=request.id,
        digest=digest,
        decision=decision,
        reason=reason,
        input=tool_input,
        labels=labels,
        text=text,
        scope=scope,
    )
    must_be_complete(request, given)
    makes_rule = decision in STANDING and session.mode is not Mode.TMUX
    if makes_rule and scope == "plan" and not session.plan:
        raise UnableError(
            f"session {session.id!r} does not belong to a plan.", hint="Use --scope session or --scope project."
        )
    if decision in STANDING and _holds_secrets(request, secrets_of(where, request.session)):
        raise UnableError(
            f"request {request.id!r} contains secrets, so no rule can be created from it.",
            hint="Answer it with `allow` or `deny`.",
        )
    if not digest:
        reach = _reach(session, scope) if makes_rule else ""
        chosen = with_text_as_label(given).labels
        seen = shown(where, request, decision, edited=tool_input, labels=chosen, reach=reach)
        given = msgspec.structs.replace(given, digest=ask(request, decision, seen, wants_json=wants_json))
    event_loop.run(session_operations.execute(where, session, given))
    print_answer(
        f"{request.id}: {decision}", wants_json=wants_json, request=request_object(request), decision=decision.value
    )
    return 0


def meant(fleet: Fleet, wanted: str) -> tuple[Session, Request]:
    """Return the open request with the id *wanted*, and its session.

    Raises:
        RequestClosedError: if it was answered or withdrawn.
        RemoteUnreachableError: if its machine is unreachable, so that it is unknown.
        RequestNotFoundError: if it is unknown.
    """
    for session in fleet.sessions:
        if (request := session.open_request(RequestId(wanted))) is not None:
            return session, request
        for closed in session.closed:
            if closed.id == wanted:
                who = f" at {closed.who}" if closed.who else ""
                how = f"{closed.decision} by {closed.by}{who}" if closed.decision else f"withdrawn, {closed.by}"
                raise RequestClosedError(wanted, how)
        if session.is_unreachable and wanted.startswith(f"{session.id}-"):
            why = f"whether the request {wanted!r} of {session.label!r} is open is unknown, and nothing was sent"
            raise RemoteUnreachableError(session.via, why, is_registered=True)
    raise RequestNotFoundError(wanted)


def ask(request: Request, decision: Decision, seen: Sequence[str], *, wants_json: bool) -> str:
    """Show *seen*, all of *request*, have the user type the decision, and return the digest of what was shown.

    Raises:
        RefusedError: if there is no terminal, or the user typed something else.
    """
    if wants_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RefusedError(
            f"request {request.id!r} was not answered: there is no terminal to show it on.",
            hint="Review it with `kasmon inbox --json`, then pass its digest with --digest.",
        )
    for line in seen:
        say_block(line)
    hidden = any(map(has_hidden, texts(request)))
    word = request.tool if hidden and request.tool and decision in ALLOWING else decision.value
    why = "It contains hidden characters. " if hidden else ""
    if typed(f"{why}Type {visible(word)} to answer {decision.value!r}") != word:
        raise RefusedError(f"request {request.id!r} was not answered.", hint="Nothing was sent.")
    return request.digest


def shown(
    where: Paths,
    request: Request,
    decision: Decision,
    *,
    edited: dict[str, Any] | None = None,
    labels: Sequence[str] = (),
    reach: str = "",
) -> list[str]:
    """Return the whole request and the effect of *decision* as text, with secrets hidden and everything visible.

    Args:
        where: to find the secrets of its session.
        reach: the scope of a new rule; empty if the agent's own menu defines it.
    """
    known = secrets_of(where, request.session)
    text, hidden = redact(request.shown or json.dumps(request.input, ensure_ascii=False, indent=2), known)
    lines = [f"{request.kind} {request.id}", visible(f"{request.tool} {request.title}".strip()), "", text, ""]
    lines += [*further, ""] if (further := _further(request, known)) else []
    if request.may_be_cut:
        lines += [f"{MAY_BE_CUT}.".capitalize(), ""]
    if hidden:
        lines.append(f"{hidden} secrets are redacted.")
    if request.why:
        lines += ["Reason: " + redact(request.why, known)[0], ""]
    lines += option_lines(request, known)
    if edited is not None:
        lines += ["Edited input:", redact(json.dumps(edited, ensure_ascii=False, indent=2), known)[0], ""]
    if decision in STANDING:
        effect = "allowed" if decision is Decision.ALWAYS else "denied"
        where_to = f"From now on {effect} in {reach}" if reach else "The agent's own menu says"
        lines.append(f"{where_to}: {visible(request.rule)}")
    if decision is Decision.CANCEL:
        lines.append("The request is denied, and the turn is interrupted.")
    lines += [f"Chosen: {visible(label)}" for label in labels]
    return lines


def _further(request: Request, secrets: Collection[str]) -> list[str]:
    """Return the parts of the tool's input that its displayed text does not contain."""
    if not request.shown or request.kind is RequestKind.QUESTION:  # a question's input repeats the question
        return []
    lines: list[str] = []
    for key, value in request.input.items():
        parts = value.split("\n") if isinstance(value, str) and request.is_diff else [value]
        if all(isinstance(part, str) and part in request.shown for part in parts):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        lines.append(f"{visible(key)}: {redact(text, secrets)[0]}")
    return lines


def _holds_secrets(request: Request, secrets: Collection[str]) -> bool:
    return any(redact(text, secrets)[1] for text in (request.shown, "\n".join(strings(request.input))))


def _reach(session: Session, scope: Scope) -> str:
    match scope:
        case "session":
            return "this session"
        case "plan":
            return f"plan {visible(session.plan or '')}"
        case "project":
            return f"project {visible(project_of(session.workdir))}"


def _check(request: Request, decision: Decision) -> None:
    must_be_whole(request, decision)
    if not request.answerable:
        raise UnableError(
            f"request {request.id!r} was only recognised on the screen, so kasmon cannot answer it.",
            hint=f"Answer it in the terminal: `kasmon attach {request.session}`.",
        )
    check_decision(request, decision, (*request.choices, Decision.LATER))


def _label(request: Request, text: str) -> str:
    """Return the option that *text* names by its label, or its number from 1; otherwise *text*, which is no choice."""
    if text in request.options or not (text.isascii() and text.isdecimal()):
        return text
    number = int(text)
    return request.options[number - 1] if 0 < number <= len(request.options) else text


def _parse_edit(text: str) -> dict[str, Any]:
    try:
        edited = json.loads(sys.stdin.read() if text == "-" else text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the input is not valid JSON: {error}.") from error
    if not isinstance(edited, dict):
        raise UsageError("the input must be a JSON object, as shown by `kasmon inbox --json`.")
    return edited
