"""Strict parser of the config file: every error names file, line, key and the allowed values. Writes nothing."""

import os
import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from kasmon.config.schema import Config, Profile
from kasmon.errors import ConfigError
from kasmon.paths import Paths, open_regular
from kasmon.toml_struct import allowed_values, parse_table

Node = TypeVar("Node", bound=msgspec.Struct)
PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
SHIPPED_CONFIG: Final = Config()
HIDDEN: Final = "⟨hidden⟩"


def load(paths: Paths) -> Config:
    """Load the config of *paths*; the defaults if there is no file.

    Raises:
        ConfigError: if the file cannot be read, is not TOML, or has settings that the schema does not know.
    """
    return parse(read(paths.config_file), str(paths.config_file))


def load_or_default(paths: Paths, warn: Callable[[str], object] = lambda text: None) -> Config:
    """Load the config of *paths* for callers that must always run; the defaults if it is invalid.

    *warn* is called with the reason then.
    """
    try:
        return load(paths)
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
    if not text:
        return base
    table = parse_table(text, file)
    reader = _Reader(text, file)
    config = reader.struct(base, table, ())
    if config.default_agent not in config.agents:
        raise reader.error(f"there is no profile {config.default_agent!r}", ("default_agent",), sorted(config.agents))
    return config


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the line of the TOML *text* that sets the key at *path*, else of the nearest table that contains it."""
    table: tuple[str, ...] = ()
    best: tuple[int, int | None] = (0, None)
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?([^\[\]]+)\]", line):
            current = table = _names(header[1])
        elif setting := re.match(r"""\s*((?:[\w.\s-]|"[^"]*"|'[^']*')+?)\s*=""", line):
            current = (*table, *_names(setting[1]))
        else:
            continue
        if current == tuple(path[: len(current)]) and len(current) > best[0]:
            best = (len(current), number)
    return best[1]


def is_secret(path: Sequence[str]) -> bool:
    """Return whether the setting at *path* is, or contains, the address of a target with its secrets."""
    return tuple(path[:2]) == ("notify", "targets") and (len(path) < 4 or path[3] == "url")


def without_secrets(config: Config) -> Config:
    """Return *config* as it may be shown: `HIDDEN` stands for each address of a target and each value of an account."""
    targets = {
        name: msgspec.structs.replace(target, url=HIDDEN) if target.url else target
        for name, target in config.notify.targets.items()
    }
    accounts = {
        name: msgspec.structs.replace(
            account, env={key: value if value.startswith("$") else HIDDEN for key, value in account.env.items()}
        )
        for name, account in config.accounts.items()
    }
    notify = msgspec.structs.replace(config.notify, targets=targets)
    return msgspec.structs.replace(config, notify=notify, accounts=accounts)


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
            key_path = (*path, name)
            if name not in fields:
                raise self.error("unknown setting", key_path, sorted(fields))
            if key_path == ("agents",):
                changes[name] = self.profiles(getattr(base, name), value, key_path)
            elif isinstance(known := getattr(base, name), msgspec.Struct):
                changes[name] = self.struct(known, value, key_path)
            elif isinstance(known, dict) and isinstance(value, dict):
                changes[name] = {**known, **self.table(value, fields[name].type, key_path)}
            else:
                changes[name] = self.value(value, fields[name].type, key_path)
        return msgspec.structs.replace(base, **changes)

    def profiles(self, base: Mapping[str, Profile], table: object, path: tuple[str, ...]) -> Mapping[str, Profile]:
        """Return the *base* profiles, overridden by *table*, and the profiles that it adds."""
        if not isinstance(table, dict):
            raise self.error("it must be a table", path)
        own: dict[str, Profile] = {}
        for name, entry in table.items():
            key_path = (*path, name)
            if not PROFILE_NAME.fullmatch(name):
                raise self.error("a profile name may have up to 40 letters, digits, _, . and -", key_path)
            own[name] = profile = self.struct(base.get(name, Profile()), entry, key_path)
            if not profile.program and name != "shell":
                raise self.error("the profile has no program", key_path, ["program = ..."])
        lower = base if isinstance(base, ChainMap) else ChainMap(cast("dict[str, Profile]", base))
        return lower.new_child(own)  # so that kasmon's own profiles are read when they are used

    def value(self, value: object, kind: Any, path: tuple[str, ...]) -> object:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
            return self.struct(kind(), value, path)
        if get_origin(kind) is dict and isinstance(value, dict):
            return self.table(value, kind, path)
        if (table := _table_of(kind)) is not None and isinstance(value, list):
            self.check_tables(value, table, path)
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, OverflowError) as error:
            shown = "it" if is_secret(path) else repr(value)
            raise self.error(f"{shown} must be {_describe_type(kind)}", path, allowed_values(kind)) from error

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
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        meta = arguments[1]
        if meta.description:
            return str(meta.description)
        low, high = meta.ge if meta.ge is not None else meta.gt, meta.le
        return f"{_describe_type(arguments[0])} {'from' if meta.ge is not None else 'above'} {low} up to {high}"
    if origin in (Union, UnionType):
        return " or ".join(_describe_type(part) for part in arguments if part is not NoneType)
    if origin is Literal:
        return "one of the allowed values"
    if origin is dict:
        return "a table"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"a table of {', '.join(kind.__struct_fields__)}"
    if (table := _table_of(kind)) is not None:
        return f"a list of tables of {', '.join(table.__struct_fields__)}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}.get(
        kind, "a list of strings"
    )


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(a or b or c for a, b, c in re.findall(r""""([^"]*)"|'([^']*)'|([\w-]+)""", dotted))
