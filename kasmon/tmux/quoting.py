"""Quoting of values in tmux commands, so that none is read as a command, a flag or a format."""

import re
from collections.abc import Sequence

ID = re.compile(r"[$@%](0|[1-9][0-9]{0,9})")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,39}")


def exact(target: str) -> str:
    """Return *target* if it is a tmux id: `$3` a session, `@5` a window, `%7` a pane.

    Raises:
        ValueError: if it is anything else. tmux would match a name by prefix and pattern.
    """
    if not ID.fullmatch(target):
        raise ValueError(f"{target!r} is no tmux id")
    return target


def own_name(name: str) -> str:
    """Return *name* if it is valid as one of our own names: letters, digits, `_` and `-`, at most 40.

    Raises:
        ValueError: if it is not. A session name that a person chose goes through `escape_format`.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a tmux session")
    return name


def escape_format(text: str) -> str:
    """Escape *text* for a place where tmux expands formats, so that `#(...)` and `#{...}` stay literal."""
    return text.replace("#", "##")


def quote_text(text: str) -> str:
    """Quote *text* as one word of a line for `tmux -C`.

    Raises:
        ValueError: if it holds a newline or a NUL: a newline would start the next command.
    """
    if any(sign in text for sign in "\n\r\0"):
        raise ValueError(f"{text!r} cannot be quoted: it contains a line break or NUL")
    return "'" + text.replace("'", "'\\''") + "'"


def argument(text: str) -> str:
    """Escape *text* as one argument of the tmux program, for which a trailing `;` would end the command."""
    return f"{text[:-1]}\\;" if text.endswith(";") else text


def command_line(argv: Sequence[str]) -> list[str]:
    """Return *argv* in the form in which tmux runs it directly, without a shell. Raises `ValueError` if it is empty."""
    if not argv:
        raise ValueError("there is no command to run")
    arguments = list(argv) if len(argv) > 1 else ["/bin/sh", "-c", 'exec "$0"', *argv]
    return [argument(text) for text in arguments]
