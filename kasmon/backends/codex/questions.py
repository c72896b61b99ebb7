"""Questions of codex, or of an MCP server through it: one request for each question, one result for all."""

from collections.abc import Sequence
from typing import Final

from kasmon.backends.codex.approvals import elicited
from kasmon.backends.codex.request import QUESTION, CodexRequest, CodexRequestContext
from kasmon.backends.common.form import FormField, content, fields
from kasmon.backends.common.json_access import Table, rows, table, text
from kasmon.backends.common.open_calls import Labels
from kasmon.model.permission import Request, RequestKind

SECRET_TOO: Final = "Codex marks the answer as secret. kasmon stores answers in the session's log."


def questions(params: Table, setting: CodexRequestContext) -> CodexRequest:
    """Build the requests for questions of the agent, with options and free text as it allows."""
    asked = rows(params, "questions")
    names = [text(question, "id") for question in asked]
    requests = tuple(_question(question, setting, n) for n, question in enumerate(asked))
    none: Table = {"answers": {}}

    def answers(chosen: Sequence[Labels]) -> Table:
        return {"answers": {name: {"answers": list(labels)} for name, labels in zip(names, chosen, strict=True)}}

    return CodexRequest(requests=requests, deny=none, cancel=none, compose=answers)


def form(params: Table, setting: CodexRequestContext) -> CodexRequest:
    """Build the requests for the fields of an MCP server's form, each as a question."""
    read = fields(table(params, "requestedSchema"))
    _, decline, cancel = elicited(None)

    def filled(chosen: Sequence[Labels]) -> Table:
        return elicited(content(read, chosen))[0]

    def check(n: int, labels: Labels) -> object:
        return read[n].value(labels)

    requests = tuple(_field(field, params, setting, n) for n, field in enumerate(read))
    return CodexRequest(requests=requests, deny=decline, cancel=cancel, compose=filled, check=check)


def _question(question: Table, setting: CodexRequestContext, n: int) -> Request:
    options = rows(question, "options")
    labels = tuple(text(option, "label") for option in options)
    notes = tuple(text(option, "description") for option in options)
    return Request(
        id=setting.request_id(n),
        session=setting.session,
        kind=RequestKind.QUESTION,
        title=" ".join((text(question, "header") or text(question, "question")).split()),
        shown=text(question, "question"),
        choices=QUESTION,
        options=labels,
        option_notes=notes if any(notes) else (),
        free_text=question.get("isOther") is True or not labels,
        why=SECRET_TOO if question.get("isSecret") is True else "",
        asked_at=setting.now,
    )


def _field(field: FormField, params: Table, setting: CodexRequestContext, n: int) -> Request:
    return Request(
        id=setting.request_id(n),
        session=setting.session,
        kind=RequestKind.QUESTION,
        title=" ".join(f"{text(params, 'serverName')}: {field.title}".split()),
        shown="\n\n".join(part for part in (text(params, "message"), field.description) if part),
        choices=QUESTION,
        options=field.options,
        many=field.many,
        free_text=field.free_text,
        asked_at=setting.now,
    )
