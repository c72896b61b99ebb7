"""What codex, or an MCP server through it, wants to know: one request for each question, one result for all."""

from collections.abc import Sequence
from typing import Final

from kasmon.backends.codex.approval import elicited
from kasmon.backends.codex.ask import QUESTION, Ask, Labels, Setting
from kasmon.backends.form import Field, content, fields
from kasmon.backends.shape import Table, rows, table, text
from kasmon.model.permission import AskKind, Request, sealed

SECRET_TOO: Final = "Codex calls the answer a secret. Kasmon writes answers down in the session's log."


def questions(params: Table, setting: Setting) -> Ask:
    """Questions of the agent; options beside its own words where it takes them."""
    asked = rows(params, "questions")
    names = [text(question, "id") for question in asked]
    requests = tuple(_question(question, setting, n) for n, question in enumerate(asked))
    none: Table = {"answers": {}}

    def answers(chosen: Sequence[Labels]) -> Table:
        return {"answers": {name: {"answers": list(labels)} for name, labels in zip(names, chosen, strict=True)}}

    return Ask(requests=requests, deny=none, cancel=none, compose=answers)


def form(params: Table, setting: Setting) -> Ask:
    """The fields of an MCP server's form, each as a question."""
    read = fields(table(params, "requestedSchema"))
    _, decline, cancel = elicited(None)

    def filled(chosen: Sequence[Labels]) -> Table:
        return elicited(content(read, chosen))[0]

    def check(n: int, labels: Labels) -> object:
        return read[n].value(labels)

    requests = tuple(_field(field, params, setting, n) for n, field in enumerate(read))
    return Ask(requests=requests, deny=decline, cancel=cancel, compose=filled, check=check)


def _question(question: Table, setting: Setting, n: int) -> Request:
    options = rows(question, "options")
    labels = tuple(text(option, "label") for option in options)
    notes = tuple(text(option, "description") for option in options)
    return _request(
        setting,
        n,
        title=text(question, "header") or text(question, "question"),
        shown=text(question, "question"),
        options=labels,
        notes=notes if any(notes) else (),
        free_text=question.get("isOther") is True or not labels,
        why=SECRET_TOO if question.get("isSecret") is True else "",
    )


def _field(field: Field, params: Table, setting: Setting, n: int) -> Request:
    return _request(
        setting,
        n,
        title=f"{text(params, 'serverName')}: {field.title}",
        shown="\n\n".join(part for part in (text(params, "message"), field.description) if part),
        options=field.options,
        free_text=field.free_text,
        many=field.many,
    )


def _request(
    setting: Setting,
    n: int,
    *,
    title: str,
    shown: str,
    options: tuple[str, ...],
    notes: tuple[str, ...] = (),
    free_text: bool,
    many: bool = False,
    why: str = "",
) -> Request:
    return sealed(
        Request(
            id=setting.request_id(n),
            session=setting.session,
            kind=AskKind.QUESTION,
            title=" ".join(title.split()),
            shown=shown,
            choices=QUESTION,
            options=options,
            option_notes=notes,
            many=many,
            free_text=free_text,
            why=why,
            asked_at=setting.now,
        )
    )
