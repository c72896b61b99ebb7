"""A form that an MCP server asks for, as questions: one for each field, and the answers make its content. Pure.

A form is a flat JSON schema: strings, numbers, booleans, one or several of a list. Its fields are untrusted: one that
is missing or of another type counts as empty. Only numbers are checked here, since the form accepts no text for them;
the server validates everything else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kasmon.backends.common.json_access import rows, table, text, texts
from kasmon.backends.common.open_calls import Labels
from kasmon.errors import UsageError

YES: Final = "yes"
NO: Final = "no"
LEAVE_OUT: Final = "(leave out)"
"""The option that answers a field that may stay empty."""
MAXIMUM: Final = 100
"""A form with more fields is not shown to the user."""


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    kind: str
    """The type of its value in the schema: `string`, `integer`, `number`, `boolean` or `array`."""
    choices: dict[str, Any]
    """What can be chosen: label -> value; empty if the field takes any value."""
    options: Labels
    """The labels that the user is offered."""

    @property
    def many(self) -> bool:
        """Whether more than one option may be chosen."""
        return self.kind == "array"

    @property
    def free_text(self) -> bool:
        """Whether it accepts the user's own text."""
        return not self.choices

    def value(self, labels: Labels) -> Any:
        """Return the value that *labels* mean to the server; None if they leave the field out.

        Raises:
            UsageError: if the field requires a number and they are none.
        """
        if labels == (LEAVE_OUT,):
            return None
        if self.many:
            return [self.choices.get(label, label) for label in labels if label != LEAVE_OUT]
        if self.choices:
            return self.choices.get(labels[0], labels[0])
        return _parse_value(self.kind, labels[0], self.name)


def fields(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return the fields of the form *schema*, in its order; empty if it has none or more than `MAXIMUM`."""
    properties = table(schema, "properties")
    needed = set(texts(schema, "required"))
    if len(properties) > MAXIMUM:
        return ()
    return tuple(_field(name, table(properties, name), is_needed=name in needed) for name in properties)


def content(form: Sequence[FormField], chosen: Sequence[Labels]) -> dict[str, Any]:
    """Return what the server gets if *chosen* answer the fields of *form*, in their order.

    Raises:
        UsageError: as `FormField.value`.
    """
    values = {field.name: field.value(labels) for field, labels in zip(form, chosen, strict=True)}
    return {name: value for name, value in values.items() if value is not None}


def _field(name: str, schema: Mapping[str, Any], *, is_needed: bool) -> FormField:
    kind = text(schema, "type")
    choices = _choices(table(schema, "items") if kind == "array" else schema)
    if kind == "boolean":
        choices = {YES: True, NO: False}
    default = schema.get("default")
    suggested = (str(default),) if not choices and isinstance(default, str | int | float) and default != "" else ()
    return FormField(
        name=name,
        title=text(schema, "title") or name,
        description=text(schema, "description"),
        kind=kind,
        choices=choices,
        options=(*choices, *suggested, *(() if is_needed else (LEAVE_OUT,))),
    )


def _choices(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what can be chosen for *schema*; empty if it takes any value."""
    for name in ("oneOf", "anyOf"):
        if titled := rows(schema, name):
            return {text(option, "title") or text(option, "const"): text(option, "const") for option in titled}
    values, names = texts(schema, "enum"), texts(schema, "enumNames")
    return dict(zip(names if len(names) == len(values) else values, values, strict=True))


def _parse_value(kind: str, label: str, name: str) -> str | int | float:
    try:
        return int(label) if kind == "integer" else float(label) if kind == "number" else label
    except ValueError as error:
        raise UsageError(f"{name!r} requires a number, and {label!r} is not one.") from error
