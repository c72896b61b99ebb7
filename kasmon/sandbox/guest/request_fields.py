"""Validated access to the fields of a request; an invalid field refuses the request."""

import re

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

JsonObject = dict[str, object]


class InvalidRequestError(ValueError):
    """The request is invalid."""


def number(message: JsonObject, key: str, default: float, most: float) -> float:
    """Return the number *key*, from 0 to *most*; *default* where it is absent."""
    value = message.get(key, default)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InvalidRequestError(f"{key!r} is a number from 0 to {most:g}")
    return value


def variables_of(message: JsonObject) -> dict[str, str]:
    """Return the variables of a request; none where they are absent."""
    variables = message.get("variables") or {}
    if not isinstance(variables, dict):
        raise InvalidRequestError("'variables' are names and texts")
    for variable, value in variables.items():
        if not VARIABLE.fullmatch(variable) or not isinstance(value, str) or "\0" in value:
            raise InvalidRequestError(
                f"{variable!r} is not a valid variable name, or its value is not text without NUL"
            )
    return variables


def texts(message: JsonObject, key: str) -> list[str]:
    """Return the list of texts *key*; empty where it is absent."""
    value = message.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidRequestError(f"{key!r} are texts")
    return value
