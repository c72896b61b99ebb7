"""Strict parser of the config file: every error names file, line, key and the allowed values. Writes nothing."""

import os
import re
from collections.abc import Callable, Sequence
from enum import EnumType
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from kasmon.config.schema import Config, Profile
from kasmon.errors import ConfigError
from kasmon.paths import Paths, open_regular

Node = TypeVar("Node", bound=msgspec.Struct)
PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
SHIPPED_CONFIG: Final = Config()


def load(places: Paths) -> Config:
    """Load the config of *places*; the defaults if there is no file.

    Raises:
        ConfigError: if the file cannot be read, is not TOML, or has settings that the schema does not know.
    """
    return parse(read(places.config_file), str(places.config_file))


def load_or_default(places: Paths, warn: Callable[[str], object] = lambda text: None) -> Config:
    """Load the config of *places* for callers that must always run; the defaults if it is invalid.

    *warn* is called with the reason then.
    """
    try:
        return load(places)
    except ConfigError as error:
        warn(f"the config is not valid, so the defaults apply: {error}")
        return Config()


def read(path: Path) -> str:
    """Return the text of the config file; empty if there is none.

    Raises:
        ConfigError: if it exists and cannot be read.
    """
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "it is not UTF-8", hint="Save it as UTF-8.") from error
    except OSError as error:
        hint = "Make it readable, or remove it to use the defaults."
        raise ConfigError(str(path), f"it cannot be read ({error.strerror or error})", hint=hint) from error


def parse(text: str, file: str = "config", base: Config = SHIPPED_CONFIG) -> Config:
    """Return *base* (by default the shipped config), overridden by *text*; *file* is used in errors only.

    Raises:
        ConfigError: as `load`.
    """
    import tomllib  # only here: it takes 5 ms to load, and there may be no config

    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is no TOMLDecodeError
        raise no_toml(text, file, error) from error
    reader = _Reader(text, file)
    config = reader.struct(base, table, ())
    if config.default_agent not in config.agents:
        raise reader.error(f"there is no profile {config.default_agent!r}", ("default_agent",), sorted(config.agents))
    return config


def no_toml(text: str, file: str, error: Exception) -> ConfigError:
    """Convert *error*, which `tomllib` raised for *text*."""
    why, _, place = str(error).partition(" (at ")
    line = re.match(r"line (\d+)", place)
    at_end = text.count("\n") + 1 if place.startswith("end") else None
    why = f"it is not valid TOML: {why[:1].lower()}{why[1:]}"
    return ConfigError(file, why, line=int(line[1]) if line else at_end, hint="Fix it there, or move the file away.")


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the line of the TOML *text* that sets the key at *path*, else of the nearest table that contains it."""
    table: tuple[str, ...] = ()
    best: tuple[int, int | None] = (0, None)
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?([^\[\]]+)\]", line):
            here = table = _names(header[1])
        elif setting := re.match(r"""\s*((?:[\w.\s-]|"[^"]*"|'[^']*')+?)\s*=""", line):
            here = (*table, *_names(setting[1]))
        else:
            continue
        if here == tuple(path[: len(here)]) and len(here) > best[0]:
            best = (len(here), number)
    return best[1]


def field_type(path: Sequence[str | int], root: Any = Config) -> Any:
    """Return the type of the setting at *path* in the schema *root*, or None if that has no such setting."""
    kind: Any = root
    for name in path:
        kind = without_none(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = next((field.type for field in msgspec.structs.fields(kind) if field.encode_name == name), None)
        elif get_origin(kind) is tuple:
            kind = get_args(kind)[0]
        elif get_origin(kind) is dict:
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


class _Reader:
    """One pass over a parsed config; it uses the text only for line numbers."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file

    def struct(self, base: Node, table: object, path: tuple[str, ...]) -> Node:
        """Return *base*, overridden by *table*."""
        if not isinstance(table, dict):
            raise self.error("it must be a table", path)
        fields = {field.name: field for field in msgspec.structs.fields(base)}
        changes: dict[str, Any] = {}
        for name, value in table.items():
            here = (*path, name)
            if name not in fields:
                raise self.error("unknown setting", here, sorted(fields))
            if here == ("agents",):
                changes[name] = self.profiles(getattr(base, name), value, here)
            elif isinstance(known := getattr(base, name), msgspec.Struct):
                changes[name] = self.struct(known, value, here)
            elif isinstance(known, dict) and isinstance(value, dict):
                changes[name] = {**known, **self.table(value, fields[name].type, here)}
            else:
                changes[name] = self.value(value, fields[name].type, here)
        return msgspec.structs.replace(base, **changes)

    def profiles(self, known: dict[str, Profile], table: object, path: tuple[str, ...]) -> dict[str, Profile]:
        """Return the *known* profiles, overridden by *table*, and the profiles that it adds."""
        if not isinstance(table, dict):
            raise self.error("it must be a table", path)
        profiles = dict(known)
        for name, entry in table.items():
            here = (*path, name)
            if not PROFILE_NAME.fullmatch(name):
                raise self.error("a profile name may have up to 40 letters, digits, _, . and -", here)
            profiles[name] = profile = self.struct(known.get(name, Profile()), entry, here)
            if not profile.program and name != "shell":
                raise self.error("the profile has no program", here, ["program = ..."])
        return profiles

    def value(self, value: object, kind: Any, path: tuple[str, ...]) -> object:
        if get_origin(kind) is dict and isinstance(value, dict):
            return self.table(value, kind, path)
        if (table := _table_of(kind)) is not None and isinstance(value, list):
            self.check_tables(value, table, path)
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, OverflowError) as error:
            raise self.error(f"{value!r} must be {_describe_type(kind)}", path, allowed_values(kind)) from error

    def table(self, value: dict[str, object], kind: Any, path: tuple[str, ...]) -> dict[str, object]:
        return {name: self.value(item, get_args(kind)[1], (*path, name)) for name, item in value.items()}

    def check_tables(self, values: list[object], kind: type[msgspec.Struct], path: tuple[str, ...]) -> None:
        """Raise for any setting in *values* that tables of *kind* do not have."""
        known = kind.__struct_fields__
        for value in values:
            for name in value if isinstance(value, dict) else ():
                if name not in known:
                    raise self.error(f"it contains the unknown setting {name!r}", path, sorted(known))

    def error(self, why: str, path: tuple[str, ...], allowed: Sequence[str] = ()) -> ConfigError:
        key = ".".join(path)
        return ConfigError(self.file, why, line=line_of(self.text, path), key=key, allowed=allowed)


def _table_of(kind: Any) -> type[msgspec.Struct] | None:
    """Return the element type of a list of tables; None for any other type."""
    inner = get_args(kind)[:1] if get_origin(kind) is tuple else ()
    return inner[0] if inner and isinstance(inner[0], type) and issubclass(inner[0], msgspec.Struct) else None


def _describe_type(kind: Any) -> str:
    """Describe what a setting of type *kind* accepts."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        meta = arguments[1]
        low, high = meta.ge if meta.ge is not None else meta.gt, meta.le
        return f"{_describe_type(arguments[0])} {'from' if meta.ge is not None else 'above'} {low} up to {high}"
    if origin in (Union, UnionType):
        return " or ".join(_describe_type(part) for part in arguments if part is not NoneType)
    if origin is Literal:
        return "one of the allowed values"
    if origin is dict:
        return "a table"
    if (table := _table_of(kind)) is not None:
        return f"a list of tables of {', '.join(table.__struct_fields__)}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}.get(
        kind, "a list of strings"
    )


def _names(dotted: str) -> tuple[str, ...]:
    """Return the parts of a dotted TOML key."""
    return tuple(a or b or c for a, b, c in re.findall(r""""([^"]*)"|'([^']*)'|([\w-]+)""", dotted))
