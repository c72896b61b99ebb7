"""Convert what the agent asks to requests: a permission, a plan to approve, or the questions of one call."""

from typing import Final

import msgspec

from kasmon.backends.claude import diff, tool_text
from kasmon.backends.common.json_access import Table, as_json, rows, table, text
from kasmon.model.permission import NO_PLAN, Decision, Request, RequestId, RequestKind, SessionId
from kasmon.sanitize import clean_line

QUESTION_TOOL: Final = "AskUserQuestion"
PLAN_TOOL: Final = "ExitPlanMode"
PERMISSION_CHOICES: Final = (Decision.ALLOW, Decision.DENY, Decision.EDIT, Decision.CANCEL)
PLAN_CHOICES: Final = (Decision.ALLOW, Decision.CHOOSE, Decision.DENY, Decision.CANCEL)
ACCEPT_EDITS: Final = "Approve, and accept edits automatically"
ASK_EACH: Final = "Approve, and ask before each edit"
KEEP_PLANNING: Final = "Keep planning"
PLAN_OPTIONS: Final = (ACCEPT_EDITS, ASK_EACH, KEEP_PLANNING)
"""The agent's own choices for a plan; a custom answer is feedback, and it keeps planning."""
PLAN_NOTES: Final = (
    "It changes to the mode acceptEdits.",
    "It changes to the mode default.",
    "Or type what to change as a custom answer.",
)
QUESTION_CHOICES: Final = (Decision.CHOOSE, Decision.DENY, Decision.CANCEL)


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a call besides its own fields."""

    session: SessionId
    at: float
    before: str | None = None
    """What the file to change holds, empty if there is none; None if unknown."""
    said: str = ""
    """The agent's last text, for a plan that it sent without one."""


def build_requests(call: str, asked: Table, context: RequestContext) -> tuple[Request, ...]:
    """Return the requests for *asked*, the `request` of a `can_use_tool` message; one for each question, else one.

    They get their ids from *call*, that of the message.
    """
    name, given = text(asked, "tool_name"), table(asked, "input")
    questions = [question for question in rows(given, "questions") if text(question, "question")]
    if name == QUESTION_TOOL and questions:
        made = [_question(f"{call}:{n}", question) for n, question in enumerate(questions, 1)]
    elif name == PLAN_TOOL:
        made = [_plan(call, given, context.said)]
    else:
        made = [_permission(call, name, given, asked, context.before)]
    return tuple(msgspec.structs.replace(request, session=context.session, asked_at=context.at) for request in made)


def _permission(call: str, name: str, given: Table, asked: Table, before: str | None) -> Request:
    changes = diff.wanted(name, given, before)
    return Request(
        id=RequestId(call),
        session=SessionId(""),
        tool=name,
        title=tool_text.title(given) or clean_line(name),
        input=given,
        shown=changes or _format_input(name, given),
        is_diff=bool(changes),
        required=tool_text.REQUIRED.get(name, ()),
        choices=PERMISSION_CHOICES,
        why=_why(name, asked),
    )


def _format_input(name: str, given: Table) -> str:
    """Return the whole input of the tool *name* as readable text."""
    if name == "Bash" and text(given, "command"):
        return text(given, "command")
    if name == "Write" and given.keys() == {"file_path", "content"}:
        return f"{text(given, 'file_path')}\n\n{text(given, 'content')}"
    return as_json(given, indent=2)


def _why(name: str, asked: Table) -> str:
    """Return the agent's reason for asking, and the path that it wants to access."""
    described = text(asked, "description") if name == "Bash" else ""
    reach = text(asked, "blocked_path")
    reasons = [described, text(asked, "decision_reason"), f"It reaches {reach}" if reach else ""]
    by = "Requested by a sub-agent" if text(asked, "agent_id") else ""
    return " · ".join(clean_line(reason) for reason in (by, *reasons) if reason)


def _plan(call: str, given: Table, plan: str) -> Request:
    return Request(
        id=RequestId(call),
        session=SessionId(""),
        kind=RequestKind.PLAN,
        tool=PLAN_TOOL,
        title="Approve the plan",
        input=given,
        shown=text(given, "plan") or (f"{NO_PLAN} Its last message:\n\n{plan}" if plan else NO_PLAN),
        choices=PLAN_CHOICES,
        options=PLAN_OPTIONS,
        option_notes=PLAN_NOTES,
        free_text=True,
    )


def _question(call: str, question: Table) -> Request:
    options = [option for option in rows(question, "options") if text(option, "label")]
    notes = tuple(text(option, "description") for option in options)
    previews = [f"{text(option, 'label')}:\n{text(option, 'preview')}" for option in options if text(option, "preview")]
    return Request(
        id=RequestId(call),
        session=SessionId(""),
        kind=RequestKind.QUESTION,
        tool=QUESTION_TOOL,
        title=clean_line(text(question, "question"))[: tool_text.TITLE_CHARACTERS],
        input=question,
        shown="\n\n".join([text(question, "question"), *previews]),
        choices=QUESTION_CHOICES,
        options=tuple(text(option, "label") for option in options),
        option_notes=notes if any(notes) else (),
        many=question.get("multiSelect") is True,
        free_text=True,
    )
