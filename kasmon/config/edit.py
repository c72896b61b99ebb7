"""Changing one setting in the person's own file: comments and links stay, and what could not be read is not written."""

import os
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from kasmon.config.parser import field_type, parse, read
from kasmon.config.schema import Config
from kasmon.errors import ConfigError, KasmonError, NotFoundError, UsageError
from kasmon.paths import Paths, private_folder


def put(places: Paths, key: str, said: str, check: Callable[[Config], object] = lambda config: None) -> Config:
    """Set *key* to what *said* says on a command line; return the config that is in force then.

    A text may be written without quotes, a list as TOML or as its only element. The file is replaced whole or not at
    all, and keeps its mode, its comments and its place behind a link. *check* may refuse the new config, too: by
    raising a ConfigError.

    Raises:
        NotFoundError: if there is no such setting.
        UsageError: if *key* is a table, or does not take this value.
        ConfigError: if the file cannot be used as it is; it stays untouched.
        KasmonError: if the system does not let it be written; it stays untouched.
    """
    path = tuple(key.split("."))
    kind = field_type(path)
    if kind is None:
        raise NotFoundError(f"there is no setting {key!r}.", hint="`kasmon config` lists all settings.")
    if _is_table(kind):
        raise UsageError(f"{key!r} is a table; give a setting in it.", hint="`kasmon config` lists all settings.")
    file = places.config_file
    before = read(file)
    parse(before, str(file))
    after = _edited(before, path, _value(said, kind))
    try:
        config = parse(after, str(file))
        check(config)
    except ConfigError as error:
        raise UsageError(f"{key!r} was not changed: {error.why}.", hint=error.hint) from error
    try:
        private_folder(places.config)
        _replace(file, after)
    except OSError as error:
        raise KasmonError(
            f"{key!r} was not changed: cannot write {str(file)!r}: {error.strerror or error}.",
            hint="Run `kasmon doctor` for a diagnosis.",
        ) from error
    return config


def _is_table(kind: Any) -> bool:
    return get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))


def _value(said: str, kind: Any) -> Any:
    """The value that *said* means for a setting of type *kind*; what it cannot mean is left to the schema to refuse."""
    parts = get_args(kind) or (kind,)
    if kind is str or (not said.lstrip().startswith("[") and any(isinstance(part, str) for part in parts)):
        return said
    with suppress(ValueError, RecursionError):  # what is no TOML, or a number of 5,000 digits
        return tomllib.loads(f"value = {said}")["value"]
    return [said] if get_origin(kind) is tuple else said


def _edited(text: str, path: tuple[str, ...], value: Any) -> str:
    if not text.strip():
        return _first(path, value)
    import tomlkit

    document = tomlkit.parse(text)
    table: Any = document
    for name in path[:-1]:
        if name not in table:
            table[name] = tomlkit.table(is_super_table=name == "agents")
        table = table[name]
    table[path[-1]] = value
    return tomlkit.dumps(document)


def _first(path: tuple[str, ...], value: Any) -> str:
    """The first config: kasmon's own writing, so there are no comments to keep."""
    import tomli_w

    nested = value
    for name in reversed(path):
        nested = {name: nested}
    return tomli_w.dumps(nested)


def _replace(file: Path, text: str) -> None:
    """Put *text* in the place of what *file* is or links to, whole or not at all."""
    target = file.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    fresh = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            written.write(text)
            written.flush()
            os.fsync(handle)
        fresh.chmod(mode)
        fresh.replace(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
