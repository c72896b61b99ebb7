"""The requests of a scripted agent: building them, their "always" rules, and the steps after an answer."""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from kasmon.errors import UnableError
from kasmon.model.answer import must_fit
from kasmon.model.commands import Answer
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId, seal
from kasmon.model.rule import PLAIN, SUBCOMMAND
from kasmon.scripted_agent import steps

RequestStep: TypeAlias = steps.AskStep | steps.QuestionStep | steps.TextStep | steps.VerbStep
"""The steps that wait for a person."""
SIGN_IN: Final = "Open https://login.example and enter the code KASM-0001, then say that you have signed in."


def build_request(step: RequestStep, request: RequestId, session: SessionId, now: float) -> Request:
    match step:
        case steps.AskStep(tool=tool):
            rule = build_rule(tool)
            always = (Decision.ALWAYS,) if rule else ()
            opened = Request(
                id=request,
                session=session,
                tool=tool.name,
                title=tool.title,
                input=tool.input,
                shown=tool.diff or tool.title,
                is_diff=bool(tool.diff),
                choices=(Decision.ALLOW, *always, Decision.DENY, Decision.EDIT),
                rule=rule,
                asked_at=now,
            )
        case steps.QuestionStep():
            opened = Request(
                id=request,
                session=session,
                kind=RequestKind.QUESTION,
                title=step.text,
                shown=step.text,
                choices=(Decision.CHOOSE, Decision.DENY),
                options=step.options,
                many=step.many,
                free_text=step.free_text,
                asked_at=now,
            )
        case steps.TextStep():
            opened = _yes_or_no(request, session, RequestKind.PLAN, "Approve the plan", step.text, now)
        case steps.VerbStep():
            opened = _yes_or_no(request, session, RequestKind.AUTH, "Sign in", SIGN_IN, now)
    return seal(opened)


def check(answer: Answer, request: Request) -> None:
    """Raise unless *request* accepts *answer*.

    Raises:
        StaleRequestError: if the answer is for another text.
        UnableError: if its decision, input or labels do not fit.
    """
    must_fit(request, answer)
    if answer.decision is Decision.EDIT:
        lacking = [key for key in request.input if not isinstance((answer.input or {}).get(key), str)]
        if lacking:
            raise UnableError(f"the edited input of {request.id!r} has no text for {lacking[0]!r}.")
    if answer.decision is Decision.CHOOSE:
        wrong = [label for label in answer.labels if label not in request.options]
        if len(wrong) > request.free_text or not answer.labels or (len(answer.labels) > 1 and not request.many):
            number = "one or more" if request.many else "exactly one"
            raise UnableError(f"request {request.id!r} wants {number} of {', '.join(request.options)}.")


def outcome(step: RequestStep, answer: Answer) -> steps.Script:
    """Return the steps that follow *answer* to *step*; the answer has passed `check`."""
    denied = f": {answer.reason}" if answer.reason else "."
    match step, answer.decision:
        case steps.AskStep(tool=tool), Decision.ALLOW:
            return (tool,)
        case steps.AskStep(tool=tool), Decision.ALWAYS:
            return (
                steps.TextStep(verb="notice", text=f"from now on allowed in this session: {build_rule(tool)}"),
                tool,
            )
        case steps.AskStep(tool=tool), Decision.EDIT:
            changed = answer.input or {}
            diff = str(changed.get("diff", "")) if tool.diff else ""
            edited = msgspec.structs.replace(tool, input=changed, diff=diff)
            return (steps.SayStep(text=f"I use your version instead: `{edited.title}`."), edited)
        case steps.AskStep(tool=tool), _:
            return (steps.SayStep(text=f"I did not use {tool.name} on `{tool.title}`{denied}"),)
        case steps.QuestionStep(), Decision.CHOOSE:
            return (steps.SayStep(text=f"You chose {', '.join(answer.labels)}."),)
        case steps.QuestionStep(), _:
            return (steps.SayStep(text=f"I go on without an answer{denied}"),)
        case steps.TextStep(), Decision.ALLOW:
            return (steps.SayStep(text="The plan is approved; I begin."),)
        case steps.TextStep(), _:
            return (steps.SayStep(text=f"The plan is not approved{denied}"),)
        case steps.VerbStep(), Decision.ALLOW:
            return (steps.TextStep(verb="notice", text="signed in"),)
        case _:
            return (steps.SayStep(text=f"I am not signed in{denied}"),)


def build_rule(tool: steps.ToolStep) -> str:
    """Return the rule that "always" adds for *tool*; empty if no rule expresses it exactly.

    `Bash(git push:*)` matches every plain command that begins with these words; any other rule matches only this use.
    """
    if tool.diff:
        return f"{tool.name}({tool.title})"
    command = tool.title
    arguments = command.split(" ")
    if len(arguments) > 1 and PLAIN.fullmatch(command) and SUBCOMMAND.fullmatch(arguments[1]):
        return f"{tool.name}({arguments[0]} {arguments[1]}:*)"
    return "" if command.endswith(":*") else f"{tool.name}({command})"


def find_covering_rule(rules: Iterable[str], tool: steps.ToolStep) -> str:
    """Return the first of *rules* that allows *tool*; empty if none does."""
    return next((rule for rule in rules if _covers(rule, tool)), "")


def _covers(rule: str, tool: steps.ToolStep) -> bool:
    if not rule.endswith(":*)"):
        return rule == f"{tool.name}({tool.title})"
    prefix = rule.removesuffix(":*)")
    used = f"{tool.name}({tool.title}"
    return PLAIN.fullmatch(tool.title) is not None and (used == prefix or used.startswith(f"{prefix} "))


def _yes_or_no(
    request: RequestId, session: SessionId, kind: RequestKind, title: str, shown: str, now: float
) -> Request:
    choices = (Decision.ALLOW, Decision.DENY)
    return Request(id=request, session=session, kind=kind, title=title, shown=shown, choices=choices, asked_at=now)
