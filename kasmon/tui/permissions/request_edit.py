"""A request as text for editing: its secrets become numbered placeholders, which are replaced back. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kasmon.model.answer import missing_fields
from kasmon.model.permission import Request
from kasmon.model.transcript.request_text import command_of
from kasmon.sanitize import has_hidden, redact


class UnfinishedEdit(Exception):  # noqa: N818 - it is no error: the user continues editing
    """The edited text is no valid tool input; the message has the reason."""


def get_editable_text(request: Request, secret_values: Sequence[str] = ()) -> str:
    """Return what the user edits of *request*: its command, else its whole input as JSON; without secrets."""
    command = command_of(request)
    if command is not None and isinstance(command[1], str):
        return hide_secrets(command[1], secret_values)
    return hide_secrets(_json(request), _in_json(secret_values))


def parse_edit(request: Request, text: str, secret_values: Sequence[str] = ()) -> dict[str, Any]:
    """Return the tool's input as edited, with the secrets that were left out.

    Raises:
        UnfinishedEdit: if it is no JSON object, a placeholder was broken, or a required field is missing.
    """
    command = command_of(request)
    if command is not None and isinstance(command[1], str):
        return _complete(request, {**request.input, command[0]: restore_secrets(text, command[1], secret_values)})
    try:
        value = json.loads(restore_secrets(text, _json(request), _in_json(secret_values)))
    except json.JSONDecodeError as error:
        raise UnfinishedEdit(f"this is not valid JSON: {error.msg}, line {error.lineno}") from error
    if not isinstance(value, dict):
        raise UnfinishedEdit("the input must be a JSON object, in braces")
    return _complete(request, value)


def _complete(request: Request, edited: dict[str, Any]) -> dict[str, Any]:
    if missing := missing_fields(request, edited):
        raise UnfinishedEdit(f"missing: {', '.join(map(repr, missing))}")
    return edited


def can_edit(request: Request) -> bool:
    """Whether the user can edit it as text without losing anything."""
    command = command_of(request)
    text = command[1] if command is not None and isinstance(command[1], str) else _json(request)
    return not has_hidden(text) and bool(request.input)


def _json(request: Request) -> str:
    return json.dumps(request.input, indent=2, ensure_ascii=False)


_PLACEHOLDER: Final = re.compile(r"⟨hidden (\d+): \d+ characters⟩")
_SHOWN_PIECE: Final = re.compile(r"⟨hidden: (\d+) characters⟩|⟨U\+[0-9A-F]+⟩|.", re.DOTALL)


def hide_secrets(text: str, secret_values: Sequence[str]) -> str:
    """Replace each secret of *text* by a numbered placeholder, so that `restore_secrets` can put it back."""
    shown: list[str] = []
    number = 0
    for piece, secret in _pieces(text, secret_values):
        number += secret
        shown.append(f"⟨hidden {number}: {len(piece)} characters⟩" if secret else piece)
    return "".join(shown)


def restore_secrets(edited: str, raw: str, secret_values: Sequence[str]) -> str:
    """Return *edited* with the secrets of *raw* in place of their placeholders; removed placeholders drop theirs.

    Raises:
        UnfinishedEdit: if a placeholder was changed.
    """
    secrets = [piece for piece, secret in _pieces(raw, secret_values) if secret]
    placeholders = {number: f"⟨hidden {number}: {len(secret)} characters⟩" for number, secret in enumerate(secrets, 1)}

    def back(match: re.Match[str]) -> str:
        if placeholders.get(int(match[1])) != match[0]:
            raise UnfinishedEdit("a hidden part was changed; keep it whole or remove it completely")
        return secrets[int(match[1]) - 1]

    if "⟨hidden" in _PLACEHOLDER.sub("", edited) and secrets:
        raise UnfinishedEdit("a hidden part is incomplete; keep it whole or remove it completely")
    return _PLACEHOLDER.sub(back, edited) if secrets else edited


def _pieces(text: str, secret_values: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """*text* split into visible and secret pieces; `redact` shows each other character as one mark or itself."""
    at = start = 0
    for match in _SHOWN_PIECE.finditer(redact(text, secret_values)[0]):
        if match[1] is None:
            at += 1
        elif text.startswith(match[0], at):  # redacted before it was logged; its host restores it
            at += len(match[0])
        else:
            size = int(match[1])
            yield text[start:at], False
            yield text[at : at + size], True
            start = at = at + size
    yield text[start:], False


def _in_json(secret_values: Sequence[str]) -> tuple[str, ...]:
    return (*secret_values, *(json.dumps(value, ensure_ascii=False)[1:-1] for value in secret_values))
