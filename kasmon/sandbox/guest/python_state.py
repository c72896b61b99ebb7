"""Saves the python interpreter's names as bytes that another one of the same version can load.

Uses the standard pickle, plus compiled code for functions and classes that the code itself defined. Names that share
an object share it again. Loading a pickle can execute code: it is loaded only in the sandbox.
"""

import abc
import dataclasses
import importlib
import io
import marshal
import os
import pickle
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

FLOORS = 6
VALUES = 100_000


def holds(value: object, secrets: list[str]) -> bool:
    """Whether *value*, or a value in it up to `FLOORS` levels deep, is a text that contains one of *secrets*."""
    pile, seen = [(value, 0)], 0
    while pile and (seen := seen + 1) < VALUES:
        each, depth = pile.pop()
        if isinstance(each, bytes | bytearray):
            each = bytes(each).decode("latin-1")
        if isinstance(each, str):
            if any(secret in each for secret in secrets):
                return True
        elif depth < FLOORS and isinstance(each, Mapping):
            pile += [(inner, depth + 1) for pair in each.items() for inner in pair]
        elif depth < FLOORS and isinstance(each, list | tuple | set | frozenset):
            pile += [(inner, depth + 1) for inner in each]
        elif depth < FLOORS and type(each).__module__ == "__main__" and hasattr(each, "__dict__"):
            pile.append((vars(each), depth + 1))
    return False


def wipe(names: Sequence[str], values: Sequence[str]) -> None:
    """Overwrite the C library's copies of the unset variables *names* with one of *values*.

    It keeps each string that a variable ever had, and reuses it for an equal one: so setting it again finds the copy.
    """
    try:
        import ctypes  # imported here: it takes long to load

        library = ctypes.CDLL(None)
        library.getenv.restype = ctypes.c_void_p
        for name in names:
            for value in values:
                os.putenv(name, value)
                at = library.getenv(os.fsencode(name))
                if at:
                    ctypes.memset(at, 0, len(os.fsencode(value)))
                os.unsetenv(name)
    except (ImportError, OSError, AttributeError, ValueError):
        return


JsonObject = dict[str, object]
StartState = tuple[Mapping[str, str], Sequence[str]]

_THIS = "_kasmon_state"
_OWN_OF_CLASSES = {"__dict__", "__weakref__", "_abc_impl", "__slots__", "__abstractmethods__"}


def save(main: types.ModuleType, begun: StartState, request: JsonObject) -> JsonObject:
    """Write the names of *main* to the file of *request*; return the saved names, and the reason for each other one."""
    secrets = [str(each).encode() for each in _list(request.get("secrets"))]
    kept: dict[str, object] = {}
    lost: dict[str, str] = {}
    for name, value in main.__dict__.items():
        if name.startswith("__") or name == "_":
            continue
        try:
            data = _pickle(value, main)
        except Exception:  # noqa: BLE001 - an object may raise anything when pickled
            lost[name] = _kind(value)
        else:
            if any(secret in data for secret in secrets if secret):
                lost[name] = "a credential is in it"
            else:
                kept[name] = value
    variables, path = begun
    changed = {name: value for name, value in os.environ.items() if variables.get(name) != value}
    whole = {
        "version": sys.version_info[:2],
        "names": _pickle(kept, main),
        "environ": changed,
        "gone": [name for name in variables if name not in os.environ],
        "path": [each for each in sys.path if each not in path],
        "folder": os.getcwd(),  # noqa: PTH109
    }
    with open(str(request["path"]), "wb") as file:  # noqa: PTH123
        pickle.dump(whole, file)
    return {"kept": list(kept), "lost": lost}


def load(main: types.ModuleType, begun: StartState, request: JsonObject) -> JsonObject:
    """Load the names that another interpreter wrote to the file of *request*."""
    with open(str(request["path"]), "rb") as file:  # noqa: PTH123
        whole = pickle.load(file)
    if whole["version"] != sys.version_info[:2]:
        made = ".".join(map(str, whole["version"]))
        return {"lost": f"it is of Python {made}, and this is {sys.version_info[0]}.{sys.version_info[1]}"}
    os.environ.update(whole["environ"])
    for name in whole["gone"]:
        os.environ.pop(name, None)
    sys.path.extend(each for each in whole["path"] if each not in sys.path)
    lost = {}
    try:
        os.chdir(whole["folder"])
    except OSError as error:
        lost[whole["folder"]] = f"folder: {error.strerror}"
    names = pickle.loads(whole["names"])
    main.__dict__.update(names)
    return {"kept": list(names), "lost": lost}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _kind(value: object) -> str:
    return f"class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _pickle(value: object, main: types.ModuleType) -> bytes:
    data = io.BytesIO()
    _Saver(data, main).dump(value)
    return data.getvalue()


class _Saver(pickle.Pickler):
    def __init__(self, file: io.BytesIO, main: types.ModuleType) -> None:
        super().__init__(file, protocol=5)
        self._main = main

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, types.FunctionType) and not _is_importable(value):
            where = value.__globals__.get("__name__")
            if getattr(sys.modules.get(str(where)), "__dict__", None) is not value.__globals__:
                raise pickle.PicklingError("a function of no module")
            made = (marshal.dumps(value.__code__), where, value.__name__, value.__closure__ or ())
            more = {name: getattr(value, name) for name in _OF_FUNCTIONS}
            return make_function, made, {"more": more, "own": value.__dict__}, None, None, fill_function
        if isinstance(value, types.CellType):
            try:
                return make_cell, (), (value.cell_contents,), None, None, fill_cell
            except ValueError:
                return make_cell, ()
        if isinstance(value, type) and value.__module__ == "__main__":
            return self._class(value)
        if isinstance(value, types.ModuleType) and sys.modules.get(value.__name__) is value and value is not self._main:
            return importlib.import_module, (value.__name__,)
        if isinstance(value, type) and value in _TYPES:
            return getattr, (types, _TYPES[value])
        if isinstance(value, types.MappingProxyType):
            return types.MappingProxyType, (dict(value),)
        if isinstance(value, property):
            return property, (value.fget, value.fset, value.fdel, value.__doc__)
        if isinstance(value, classmethod | staticmethod):
            return type(value), (value.__func__,)
        if type(value) in _MARKS:
            return get_mark, (next(name for name, mark in vars(dataclasses).items() if mark is value),)
        return NotImplemented

    def _class(self, value: type) -> Any:
        if type(value) not in (type, abc.ABCMeta):
            raise pickle.PicklingError(f"a class made by {type(value).__name__}")
        slots = value.__dict__.get("__slots__")
        made = (type(value), value.__name__, value.__bases__, slots, value.__qualname__)
        of_slots = {slots} if isinstance(slots, str) else set(slots or ())
        body = {key: each for key, each in value.__dict__.items() if key not in _OWN_OF_CLASSES | of_slots}
        return make_class, made, body, None, None, fill_class


_OF_FUNCTIONS = ("__defaults__", "__kwdefaults__", "__annotations__", "__doc__", "__qualname__", "__module__")
_TYPES = {each: name for name, each in vars(types).items() if isinstance(each, type) and each.__module__ == "builtins"}
"""Types whose module is `builtins` although they cannot be found there."""
_MARKS = {type(each) for name, each in vars(dataclasses).items() if name in ("MISSING", "KW_ONLY", "_FIELD")}
"""Types of unique sentinels, which are compared by identity."""


def _is_importable(value: types.FunctionType) -> bool:
    """Whether another process can import the function by its name, so that its code need not be saved."""
    found: object = sys.modules.get(value.__module__) if value.__module__ != "__main__" else None
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def make_function(code: bytes, module: str, name: str, cells: tuple[types.CellType, ...]) -> types.FunctionType:
    return types.FunctionType(marshal.loads(code), vars(importlib.import_module(module)), name, None, cells)


def fill_function(made: types.FunctionType, state: Mapping[str, Mapping[str, object]]) -> None:
    for name, value in state["more"].items():
        setattr(made, name, value)
    made.__dict__.update(state["own"])


def make_cell() -> types.CellType:
    return types.CellType()


def fill_cell(made: types.CellType, state: tuple[object]) -> None:
    (made.cell_contents,) = state


def make_class(kind: type, name: str, bases: tuple[type, ...], slots: object, qualname: str) -> type:
    body: dict[str, object] = {"__module__": "__main__", "__qualname__": qualname}
    if slots is not None:
        body["__slots__"] = slots
    made: type = kind(name, bases, body)
    return made


def fill_class(made: type, body: Mapping[str, object]) -> None:
    for name, value in body.items():
        setattr(made, name, value)
    if isinstance(made, abc.ABCMeta):
        abc.update_abstractmethods(made)  # type: ignore[arg-type]


def get_mark(name: str) -> object:
    return getattr(dataclasses, name)


for _made in (make_function, fill_function, make_cell, fill_cell, make_class, fill_class, get_mark):
    _made.__module__ = _THIS
