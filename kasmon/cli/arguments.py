"""The arguments of a command, read from the signature of its function without cyclopts, whose import takes 80 ms.

`Arg` describes one argument, in an `Annotated` of the function. `parse` reads what is written plainly; it leaves the
rest (errors, help, unusual spellings) to cyclopts, which `app` gives the same functions.
"""

from collections.abc import Iterator, Sequence
from types import FunctionType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

Assignments = list[tuple["CommandParameter", str]]
DIGITS: Final = 10
"""A number with this many digits is left to cyclopts."""
HAS_REST: Final = 0x04
"""The flag of a function's code that has a `*` parameter."""


class Arg(msgspec.Struct, frozen=True):
    """The description of an argument. Its type, its default and, unless *flags* are set, its name are its parameter's.

    Attributes:
        help: its text in the help.
        flags: its options, as `--json`; or the name of a positional argument in the help.
        completer: the function in `completion` that lists its values.
        hyphen: whether its value may begin with a hyphen.
        at_least, at_most, above: the limits of a number.
        is_shown: whether the help lists it.
    """

    help: str = ""
    flags: tuple[str, ...] = ()
    completer: str = ""
    hyphen: bool = False
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    is_shown: bool = True


Json = Annotated[bool, Arg("Print one JSON object.", ("--json",))]
NAMED: Final = "Session id, exact name or id prefix (at least 3 characters)."
SessionArgument = Annotated[str, Arg(NAMED, ("SESSION",), completer="sessions")]
SandboxArgument = Annotated[str, Arg(NAMED, ("SESSION",), completer="sandboxes")]
Text = Annotated[str | None, Arg("Prompt text (`-`: from stdin).", hyphen=True)]
Timeout = Annotated[float | None, Arg("Give up after this many seconds.", at_least=0)]
OnMachine = Annotated[
    str,
    Arg("Run it on this registered machine instead; all: here and on each.", ("--machine",), completer="machines"),
]
States = Annotated[str | None, Arg("States, separated by commas: starting, idle, working, asking, limited, ...")]


class CommandParameter(msgspec.Struct, frozen=True):
    """A parameter of a command's function."""

    name: str
    type: Any
    """Without `Annotated`, and without None."""
    arg: Arg

    @property
    def is_list(self) -> bool:
        """Whether its option may be repeated."""
        return get_origin(self.type) is list


class Signature(msgspec.Struct, frozen=True):
    """The parameters of a command's function: words by their position, the rest of them, and options by their flag."""

    words: tuple[CommandParameter, ...]
    rest: CommandParameter | None
    options: dict[str, CommandParameter]


class NotPlainError(Exception):
    """The words are not written plainly: cyclopts has to parse them."""


def signature_of(command: FunctionType) -> Signature:
    """Return the parameters of *command*; `inspect` would do the same, at more than the time of `kasmon ls`."""
    code = command.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    parameters = [_parameter(name, command.__annotations__[name]) for name in code.co_varnames[:count]]
    rest = code.co_varnames[count] if code.co_flags & HAS_REST else None
    named = parameters[code.co_argcount :]
    return Signature(
        words=tuple(parameters[: code.co_argcount]),
        rest=_parameter(rest, command.__annotations__[rest]) if rest else None,
        options={flag: each for each in named for flag in each.arg.flags or (f"--{each.name.replace('_', '-')}",)},
    )


def _parameter(name: str, hint: Any) -> CommandParameter:
    arg = Arg()
    if get_origin(hint) is Annotated:
        hint, arg = hint.__origin__, hint.__metadata__[0]
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    return CommandParameter(name, hint, arg)


def parse(command: FunctionType, tokens: Sequence[str]) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the arguments for *command*; None if cyclopts has to parse *tokens*."""
    signature = signature_of(command)
    values: dict[str, Any] = {}
    rest: list[Any] = []
    try:
        for parameter, token in assign(signature, tokens):
            value = _value(parameter, token)
            if parameter is signature.rest:
                rest.append(value)
            elif parameter.is_list:
                values.setdefault(parameter.name, []).append(value)
            elif parameter.name in values:
                return None
            else:
                values[parameter.name] = value
    except NotPlainError:
        return None
    required = {each.name for each in signature.options.values()} - (command.__kwdefaults__ or {}).keys()
    first = len(signature.words) - len(command.__defaults__ or ())
    given = [values.pop(each.name) for each in signature.words if each.name in values]
    if len(given) < first or required - values.keys():
        return None
    return [*given, *rest], values


def assign(signature: Signature, tokens: Sequence[str]) -> Assignments:
    """Return each of *tokens* that is a value with its parameter. Raises `NotPlainError` if cyclopts has to decide."""
    found: Assignments = []
    positions = iter(signature.words)
    left = iter(tokens)
    are_options_over = False
    for token in left:
        flag, has_value, value = token.partition("=")
        if token == "--" and not are_options_over:
            are_options_over = True
        elif are_options_over or not token.startswith("-"):
            found.append((_next(positions, signature), token))
        elif token == "-":
            if not (parameter := _next(positions, signature)).arg.hyphen:
                raise NotPlainError
            found.append((parameter, token))
        elif (option := signature.options.get(flag)) is None or (option.type is bool and has_value):
            raise NotPlainError
        elif option.type is bool:
            found.append((option, flag))
        else:
            value = value if has_value else next(left, "--")
            if value.startswith("-") and not (value == "-" and option.arg.hyphen):
                raise NotPlainError
            found.append((option, value))
    return found


def _next(positions: Iterator[CommandParameter], signature: Signature) -> CommandParameter:
    parameter = next(positions, signature.rest)
    if parameter is None:
        raise NotPlainError
    return parameter


def _value(parameter: CommandParameter, text: str) -> Any:
    kind, arg = parameter.type, parameter.arg
    if kind is bool:
        return True
    if parameter.is_list:
        kind = get_args(kind)[0]
    if not text:
        raise NotPlainError
    if kind is str or (get_origin(kind) is Literal and text in get_args(kind)):
        return text
    whole, _, decimals = text.partition(".")
    digits = whole + decimals if kind is float else text
    if kind not in (int, float) or not (digits.isascii() and digits.isdigit() and len(digits) < DIGITS):
        raise NotPlainError
    number = kind(text)
    is_low = (arg.at_least or 0) > number or (arg.above is not None and arg.above >= number)
    if is_low or (arg.at_most is not None and arg.at_most < number):
        raise NotPlainError
    return number
