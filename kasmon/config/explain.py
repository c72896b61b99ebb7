"""Explain a setting: its meaning (the docstring below its field in the schema), its value and the value's origin."""

import ast
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from kasmon.config import schema
from kasmon.config.parser import line_of, parse, read, without_secrets
from kasmon.config.schema import SHIPPED, AccountConfig, Config, NotifyTarget, Profile
from kasmon.errors import NotFoundError
from kasmon.paths import Paths
from kasmon.toml_struct import allowed_values, field_type


class ExplainedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, or one table of settings."""

    key: str
    value: Any
    default: Any
    origin: str
    """Where the value comes from: `file:line`, or `default`."""
    sentence: str
    allowed: tuple[str, ...] = ()
    """The allowed values, if they can be listed."""


def explain(paths: Paths, key: str) -> ExplainedSetting:
    """Return the setting *key* (`ui.theme`, `agents.claude.flags`) with its current value.

    Raises:
        NotFoundError: if there is no such setting.
        ConfigError: if the config file cannot be used.
    """
    text = read(paths.config_file)
    config = without_secrets(parse(text, str(paths.config_file)))
    path = tuple(key.split("."))
    kind = field_type(path, Config)
    if kind is None:
        raise NotFoundError(f"there is no setting {key!r}.", hint=f"Settings: {', '.join(settings(config))}.")
    line = line_of(text, path) if (value := value_at(config, path)) != value_at(Config(), path) else None
    return ExplainedSetting(
        key=key,
        sentence=_sentence(path),
        value=value,
        default=_default(path),
        origin=f"{paths.config_file}:{line}" if line else "default",
        allowed=allowed_values(kind),
    )


def settings(config: Config) -> dict[str, Any]:
    """Return every setting's key and value, in schema order; for a profile only what differs from the defaults.

    Addresses of targets are hidden.
    """
    result: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(without_secrets(config)).items():
        if isinstance(value, msgspec.Struct):
            result |= {f"{name}.{inner}": item for inner, item in msgspec.structs.asdict(value).items()}
        elif isinstance(value, Mapping):
            for inner, item in value.items():
                if isinstance(item, Profile | AccountConfig):
                    result |= {f"{name}.{inner}.{field}": set_to for field, set_to in _diff(item).items()}
                else:
                    result[f"{name}.{inner}"] = item
        else:
            result[name] = value
    return result


def value_at(config: Config, path: tuple[str, ...]) -> Any:
    """Return the value of *config* at *path*; None if there is none."""
    value: Any = config
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return msgspec.to_builtins(value, enc_hook=dict)  # the profiles are a mapping of their own


def _default(path: tuple[str, ...]) -> Any:
    match path:
        case ("agents", name, field) if name not in SHIPPED:
            table: msgspec.Struct = Profile()
        case ("accounts", _, field):
            table = AccountConfig()
        case ("notify", "targets", _, field):
            table = NotifyTarget()
        case _:
            return value_at(Config(), path)
    return msgspec.to_builtins(getattr(table, field))


def _diff(table: Profile | AccountConfig) -> dict[str, Any]:
    before = msgspec.structs.asdict(type(table)())
    return {name: value for name, value in msgspec.structs.asdict(table).items() if value != before[name]}


def _sentence(path: tuple[str, ...]) -> str:
    """Return the sentence below the field at *path*."""
    owner: Any = field_type(path[:-1], Config) if len(path) > 1 else Config
    if not (isinstance(owner, type) and issubclass(owner, msgspec.Struct)):
        return _sentence(path[:-1])  # an entry of a table: a key, a variable, a profile
    tree = ast.parse(Path(schema.__file__).read_text("utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__)
    for field, under in pairwise(body):
        match field, under:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(sentence))):
                if name == path[-1]:
                    return " ".join(sentence.split())
    return ""
