"""What codex, or an MCP server through it, wants to know: one request for each question, one result for all."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kasmon.backends.codex.approval import elicited
from kasmon.backends.codex.ask import QUESTION, Ask, Labels, Setting
from kasmon.backends.codex.shape import Table, rows, table, text, texts
from kasmon.errors import UsageError
from kasmon.model.permission import AskKind, Request, sealed

YES: Final = "yes"
NO: Final = "no"
LEAVE_OUT: Final = "(leave out)"
"""The option that answers a field of a form that may stay empty."""
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
    fields = table(params, "requestedSchema", "properties")
    needed = set(texts(params, "requestedSchema", "required"))
    read = [_field(name, table(fields, name), name in needed, params, setting, n) for n, name in enumerate(fields)]
    _, decline, cancel = elicited(None)

    def value(n: int, labels: Labels) -> Any:
        return None if labels == (LEAVE_OUT,) else read[n][1](labels)

    def filled(chosen: Sequence[Labels]) -> Table:
        values = {name: value(n, labels) for n, (name, labels) in enumerate(zip(fields, chosen, strict=True))}
        return elicited({name: told for name, told in values.items() if told is not None})[0]

    return Ask(requests=tuple(request for request, _ in read), deny=decline, cancel=cancel, compose=filled, check=value)


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


def _field(
    name: str, schema: Table, is_needed: bool, params: Table, setting: Setting, n: int
) -> tuple[Request, Callable[[Labels], Any]]:
    """The question for the field *name*, and what turns the labels that answer it into its value."""
    kind = text(schema, "type")
    choices = _choices(table(schema, "items") if kind == "array" else schema)
    if kind == "boolean":
        choices = {YES: True, NO: False}
    options = (*choices, *(() if is_needed else (LEAVE_OUT,)))
    described = text(schema, "description")
    request = _request(
        setting,
        n,
        title=f"{text(params, 'serverName')}: {text(schema, 'title') or name}",
        shown="\n\n".join(part for part in (text(params, "message"), described) if part),
        options=options,
        free_text=not choices,
        many=kind == "array",
    )

    def value(labels: Labels) -> Any:
        if kind == "array":
            return [choices.get(label, label) for label in labels]
        if choices:
            return choices.get(labels[0], labels[0])
        return _typed(kind, labels[0], name)

    return request, value


def _choices(schema: Table) -> dict[str, Any]:
    """What can be chosen for *schema*: the words for people -> the value; empty where it takes anything."""
    titled = rows(schema, "oneOf") or rows(schema, "anyOf")
    if titled:
        return {text(option, "title") or text(option, "const"): text(option, "const") for option in titled}
    values, names = texts(schema, "enum"), texts(schema, "enumNames")
    return dict(zip(names if len(names) == len(values) else values, values, strict=True))


def _typed(kind: str, word: str, name: str) -> str | int | float:
    """*word* as a value of type *kind*."""
    try:
        return int(word) if kind == "integer" else float(word) if kind == "number" else word
    except ValueError as error:
        raise UsageError(f"{name!r} wants a number, and {word!r} is none.") from error


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
