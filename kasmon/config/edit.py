"""Change one setting in the user's config file, keeping comments and symlinks; an invalid file is left unchanged."""

import os
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from kasmon.config.parser import parse, read
from kasmon.config.schema import Config
from kasmon.errors import ConfigError, KasmonError, NotFoundError, UsageError
from kasmon.paths import Paths, private_folder
from kasmon.toml_struct import field_type


def put(paths: Paths, key: str, text: str, check: Callable[[Config], object] = lambda config: None) -> Config:
    """Set *key* to *text*, as written on a command line; return the config with the change.

    A string may be written without quotes, a list as TOML or as its only element. The file is replaced whole or not at
    all. It keeps its mode, its comments and the symlink that leads to it. *check* may reject the new config by raising
    a ConfigError.

    Raises:
        NotFoundError: if there is no such setting.
        UsageError: if *key* is a table, or does not accept this value.
        ConfigError: if the present file is invalid; it is left unchanged.
        KasmonError: if the file cannot be written; it is left unchanged.
    """
    path = tuple(key.split("."))
    kind = field_type(path, Config)
    if kind is None:
        raise NotFoundError(f"there is no setting {key!r}.", hint="`kasmon config` lists all settings.")
    if get_origin(kind) in (dict, Mapping) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        raise UsageError(f"{key!r} is a table; give a setting in it.", hint="`kasmon config` lists all settings.")
    file = paths.config_file
    before = read(file)
    parse(before, str(file))
    after = _edit(before, path, _value(text, kind))
    try:
        config = parse(after, str(file))
        check(config)
    except ConfigError as error:
        raise UsageError(f"{key!r} was not changed: {error.why}.", hint=error.hint) from error
    try:
        private_folder(paths.config)
        _replace(file, after)
    except OSError as error:
        raise KasmonError(
            f"{key!r} was not changed: cannot write {str(file)!r}: {error.strerror or error}.",
            hint="Run `kasmon doctor` for a diagnosis.",
        ) from error
    return config


def _value(text: str, kind: Any) -> Any:
    """Parse *text* for a setting of type *kind*; a value of the wrong type is left for the schema to reject."""
    parts = get_args(kind) or (kind,)
    if kind is str or (not text.lstrip().startswith("[") and any(isinstance(part, str) for part in parts)):
        return text
    with suppress(ValueError, RecursionError):  # not TOML, or a number of 5,000 digits
        return tomllib.loads(f"value = {text}")["value"]
    return [text] if get_origin(kind) is tuple else text


def _edit(text: str, path: tuple[str, ...], value: Any) -> str:
    if not text.strip():
        return _new_file(path, value)
    import tomlkit

    document = tomlkit.parse(text)
    table: Any = document
    for name in path[:-1]:
        if name not in table:
            table[name] = tomlkit.table(is_super_table=name == "agents")
        table = table[name]
    table[path[-1]] = value
    return tomlkit.dumps(document)


def _new_file(path: tuple[str, ...], value: Any) -> str:
    """Return the text of a new config file; it has no comments to preserve."""
    import tomli_w

    nested = value
    for name in reversed(path):
        nested = {name: nested}
    return tomli_w.dumps(nested)


def _replace(file: Path, text: str) -> None:
    """Replace the file that *file* is or links to by *text*, atomically."""
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
