"""What programs, scripts, files and fingers rely on, as one JSON object: only what an issue names may change in it.

`make pages` writes it to `tests/interface.json`.
"""

import enum
import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from cyclopts import App

import kasmon
from kasmon.cli.app import build
from kasmon.cli.output.json_objects import request_object, session_object
from kasmon.config.schema import Config
from kasmon.errors import KasmonError
from kasmon.tui.keymap import ACTIONS
from tests.support.sample_fleet import crew

STORED: Final = Path(__file__).parents[1] / "interface.json"
APART: Final = ("kasmon.sandbox.guest", "kasmon.sandbox.microvm", "kasmon.web.page")
"""Modules that run elsewhere, or do something when they are imported."""


def interface() -> dict[str, Any]:
    """Struct fields by their tag, config keys, actions and keys, commands and options, exit codes, JSON objects."""
    tagged, untagged = _structs()
    return {
        "actions": {row.id: [list(row.keys), row.where.name] for row in ACTIONS},
        "commands": dict(sorted(_commands(build()))),
        "config": _settings(Config),
        "exit codes": _exit_codes(),
        "json": {"session": _shape([session_object(session) for session in crew().sessions]), "request": _requests()},
        "structs with a tag": tagged,
        "structs without one": untagged,
    }


def as_text() -> str:
    return json.dumps(interface(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _exit_codes() -> dict[str, int]:
    kinds: list[type[KasmonError]] = [KasmonError, *_below(KasmonError)]
    return {kind.code: kind.exit_code for kind in kinds}


def _requests() -> Any:
    return _shape([request_object(ask) for session in crew().sessions for ask in session.requests])


def _structs() -> tuple[dict[str, list[str]], list[list[str]]]:
    """The fields of each kind that is sent or kept, by its tag; those of the rest without the name of their class."""
    for module in pkgutil.walk_packages(kasmon.__path__, "kasmon."):
        if not module.name.startswith(APART) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = [kind for kind in _below(msgspec.Struct) if kind.__module__.startswith("kasmon.")]
    tagged: dict[str, list[str]] = {}
    parts: set[type[msgspec.Struct]] = {kind for kind in ours if kind.__module__.startswith("kasmon.store.")}
    for kind in ours:
        tag = kind.__struct_config__.tag
        if tag is not None and not kind.__subclasses__():  # what others are made of is never sent itself
            fields = [_field(field) for field in msgspec.structs.fields(kind)]
            tagged[f"{tag} ({', '.join(fields)})" if str(tag) in tagged else str(tag)] = fields
            parts |= _parts(kind)
    untagged = [kind for kind in parts if kind.__struct_config__.tag is None]
    return tagged, sorted([_field(field) for field in msgspec.structs.fields(kind)] for kind in untagged)


def _parts(kind: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
    found: set[type[msgspec.Struct]] = set()
    todo = [kind]
    while todo:
        for field in msgspec.structs.fields(todo.pop()):
            inner = {each for each in _types(field.type) if isinstance(each, type) and issubclass(each, msgspec.Struct)}
            todo += inner - found
            found |= inner
    return found


def _field(field: msgspec.structs.FieldInfo) -> str:
    return field.encode_name if field.required else f"{field.encode_name}={_plain(field.default)}"


def _plain(value: object) -> str:
    """A default without the name of a class in it."""
    if value is msgspec.NODEFAULT:
        return "made"
    if isinstance(value, enum.Enum):
        return repr(value.value)
    if isinstance(value, msgspec.Struct):
        return msgspec.json.encode(value, order="sorted", enc_hook=str).decode()
    return repr(value) if isinstance(value, (str, int, float, bool, tuple, type(None))) else "an object"


def _settings(kind: Any, above: str = "") -> dict[str, str]:
    """Every key of the config with its default; a table that a person names stands as `*`."""
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(kind):
        inner = [each for each in _types(field.type) if isinstance(each, type) and issubclass(each, msgspec.Struct)]
        name = f"{above}{field.encode_name}"
        if inner:
            is_named = "dict" in str(field.type).lower() or "mapping" in str(field.type).lower()
            found |= _settings(inner[0], f"{name}.*." if is_named else f"{name}.")
        else:
            found[name] = _field(field).partition("=")[2]
    return found


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _types(inner)


def _commands(group: App, above: str = "") -> Iterator[tuple[str, list[str]]]:
    for name in group:
        if name.startswith("-"):
            continue
        command = group[name]
        full_name = f"{above} {name}".strip()
        names = [] if command.default_command is None else command.assemble_argument_collection(parse_docstring=False)
        yield full_name, sorted("|".join(argument.names) for argument in names)
        yield from _commands(command, full_name)


def _shape(value: Any) -> Any:
    """The kinds of a JSON value's parts: of a list what all of its objects have."""
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        kinds = [_shape(each) for each in value]
        if kinds and all(isinstance(each, dict) for each in kinds):
            keys = sorted({key for each in kinds for key in each})
            return [{key: sorted({json.dumps(each[key]) for each in kinds if key in each}) for key in keys}]
        return sorted({json.dumps(each) for each in kinds})
    return type(value).__name__


def _below(kind: type[Any]) -> list[type[Any]]:
    found = {each for child in kind.__subclasses__() for each in (child, *_below(child))}
    return sorted(found, key=lambda each: (each.__module__, each.__qualname__))


if __name__ == "__main__":
    STORED.write_text(as_text(), encoding="utf-8")
