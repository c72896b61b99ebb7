"""Read a TOML file strictly into a struct: each error names the file, the line, the key and the allowed values."""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from enum import EnumType
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from kasmon.errors import ConfigError

Struct = TypeVar("Struct", bound=msgspec.Struct)
KeyPath = tuple[str | int, ...]
"""The path of a value: `("rule", 2, "state")`, counted from 0."""
_AT: Final = re.compile(r"^(?P<why>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?$", re.DOTALL)
_STEP: Final = re.compile(r"([A-Za-z_-]+)|\[(\d+)\]")


def read_text(path: Path, largest: int) -> str:
    """Return the text of the file at *path*, which has at most *largest* bytes. It never waits, as on a pipe.

    Raises:
        ConfigError: if it is no regular file, is larger, cannot be read, or is not UTF-8.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(largest + 1) if is_regular else b""
    except IsADirectoryError as error:
        raise ConfigError(str(path), "it is no file") from error
    except OSError as error:
        raise ConfigError(str(path), f"it cannot be read ({error.strerror or error})") from error
    if not is_regular:
        raise ConfigError(str(path), "it is no file")
    if len(content) > largest:
        raise ConfigError(str(path), f"it is larger than {largest // 1024} KB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "it is not UTF-8") from error


def parse_table(text: str, name: str) -> dict[str, Any]:
    """Return the TOML *text* as a table; *name* appears only in errors. Raises `ConfigError` if it is no TOML."""
    import tomllib  # only here: it takes 5 ms to load

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits raises no TOMLDecodeError
        raise _no_toml(text, name, error) from error


def parse_struct(text: str, name: str, kind: type[Struct]) -> Struct:
    """Return the TOML *text* as a *kind*; *name* appears only in errors.

    Raises:
        ConfigError: if it is not TOML, or does not match *kind*.
    """
    table = parse_table(text, name)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise _invalid(text, name, kind, str(error), table) from error


def fault(text: str, name: str, path: KeyPath, why: str, allowed: Sequence[str] = ()) -> ConfigError:
    """Return the error that the value at *path* of *text* is wrong because of *why*."""
    return ConfigError(name, why, line=find_line(text, path), key=dotted(path), allowed=allowed)


def _no_toml(text: str, file: str, error: Exception) -> ConfigError:
    """Convert *error*, which `tomllib` raised for *text*."""
    why, _, place = str(error).partition(" (at ")
    line = re.match(r"line (\d+)", place)
    at_end = text.count("\n") + 1 if place.startswith("end") else None
    why = f"it is not valid TOML: {why[:1].lower()}{why[1:]}"
    return ConfigError(file, why, line=int(line[1]) if line else at_end, hint="Fix it there, or move the file away.")


def find_line(text: str, path: Sequence[str | int]) -> int | None:
    """Return the line that sets the key at *path* (`rule`, 2, `state`), or that of the nearest table containing it."""
    if len(path) == 2 and isinstance(path[1], int) and re.search(rf"(?m)^\s*{re.escape(str(path[0]))}\s*=", text):
        path = path[:1]  # an element of a list that a key at the top sets
    wanted, number = (str(path[0]) if path else ""), (path[1] if len(path) > 1 else 0)
    key = next((str(step) for step in path[1:] if isinstance(step, str)), "")
    seen, is_match, best = -1, not isinstance(number, int) or len(path) == 1, None
    for at, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([\w-]+)(?:\.([\w-]+))?\s*\]", line):
            if header[1] == wanted and not header[2]:
                seen += 1
            is_match = header[1] == wanted and (seen == number or not isinstance(number, int))
            if is_match and not header[2]:
                best = at
            elif is_match and header[2] == key:
                return at
        elif is_match or (len(path) == 1 and best is None):
            setting = re.match(r"\s*([\w-]+)\s*=", line)
            if setting and setting[1] in (key, wanted if len(path) == 1 else key):
                return at
    return best


def dotted(path: Sequence[str | int]) -> str:
    """Return *path* as `rule[2].state`, counted from 0 as in the schema."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def field_type(path: Sequence[str | int], root: Any) -> Any:
    """Return the type of the setting at *path* in the schema *root*, or None if that has no such setting."""
    kind: Any = root
    for name in path:
        kind = without_none(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = next((field.type for field in msgspec.structs.fields(kind) if field.encode_name == name), None)
        elif get_origin(kind) is tuple:
            kind = get_args(kind)[0]
        elif get_origin(kind) in (dict, Mapping):
            kind = get_args(kind)[1]
        else:
            return None
    return kind


def without_none(kind: Any) -> Any:
    """Return the first type in `KIND | None`; any other *kind* as it is."""
    return next(part for part in get_args(kind) if part is not NoneType) if NoneType in get_args(kind) else kind


def allowed_values(kind: Any) -> tuple[str, ...]:
    """Return the values that a setting of type *kind* accepts, if they can be listed."""
    if kind is bool:
        return ("true", "false")
    if isinstance(kind, EnumType):
        return tuple(kind)
    if get_origin(kind) in (Union, UnionType):
        return tuple(value for part in get_args(kind) for value in allowed_values(part))
    return tuple(f'"{value}"' for value in get_args(kind)) if get_origin(kind) is Literal else ()


def _invalid(text: str, name: str, root: type[msgspec.Struct], message: str, table: Any) -> ConfigError:
    """Return an error for msgspec's message *message*, with the line and the allowed values."""
    match = _AT.match(message)
    why, where = (match["why"], match["path"] or "") if match else (message, "")
    path: list[str | int] = [int(digits) if digits else key for key, digits in _STEP.findall(where)]
    kind = without_none(field_type(path, root))
    allowed: Sequence[str] = ()
    if unknown := re.search(r"unknown field `(.+)`", why):
        path.append(unknown[1])
        why = "there is no such key"
        allowed = sorted(field.encode_name for field in msgspec.structs.fields(kind)) if kind else ()
    else:
        allowed = allowed_values(kind)
        if isinstance(value := _value_at(table, path), str) and repr(value) not in why:
            why = f"{why}, not {value!r}"
    return fault(text, name, tuple(path), f"{why[:1].lower()}{why[1:]}", allowed)


def _value_at(table: Any, path: Sequence[str | int]) -> Any:
    """Return the value at *path* of a parsed *table*; None if there is none."""
    for step in path:
        try:
            table = table[step]
        except (KeyError, IndexError, TypeError):
            return None
    return table
