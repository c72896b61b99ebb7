"""Prompts with fields: `Fix issue {issue}.` A field is replaced by a text; it is no format and no expression. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from kasmon.config.schema import PROMPT_TEMPLATE
from kasmon.errors import UsageError

_PART: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")


def prompt_fields(text: str) -> tuple[str, ...]:
    """Return the fields of the prompt *text*, each once, in their order.

    Raises:
        UsageError: if a brace belongs to none of them.
    """
    if not re.fullmatch(PROMPT_TEMPLATE, text):
        rest = re.sub(_PART, "", text)
        near = rest[min(at for brace in "{}" if (at := rest.find(brace)) >= 0) :][:20]
        raise UsageError(
            f"the prompt has a brace that belongs to no field, at {near!r}.",
            hint="A field is a word in braces, as {issue}. Write {{ and }} for braces.",
        )
    return tuple(dict.fromkeys(match[1] for match in _PART.finditer(text) if match[1]))


def fill_prompt(text: str, values: Mapping[str, str]) -> str:
    """Return the prompt *text* with the *values* of its fields, which are inserted as they are.

    Raises:
        UsageError: if a field has no value, or as `prompt_fields`.
    """
    if missing := [field for field in prompt_fields(text) if not values.get(field, "").strip()]:
        raise UsageError(f"the field {missing[0]!r} has no value.", hint=f"Pass --field {missing[0]}=TEXT.")
    return _PART.sub(lambda match: values[match[1]] if match[1] else match[0][0], text)
