"""A session's own variables: those of its profile and those that its creator named; kept in a 0600 file of its folder.

What an agent gets besides stands elsewhere: `kasmon.backends.surroundings` says what of its starter's environment
passes (no variable of kasmon, tmux or another agent does), and `kasmon.model.task.environment` tells it its place.
"""

import re
from collections.abc import Iterable, Mapping

from kasmon.errors import UsageError
from kasmon.model.task import OWN_PREFIXES

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def own_variables(profile: Mapping[str, str], named: Iterable[str], caller: Mapping[str, str]) -> dict[str, str]:
    """The variables of *profile*, and over them those that are *named*: `NAME` with the *caller*'s value, `NAME=value`.

    Raises:
        UsageError: if one has no proper name, is kasmon's own to set, or the caller has no value for it.
    """
    own = dict(profile)
    for text in named:
        name, is_given, value = text.partition("=")
        if not is_given:
            if name not in caller:
                raise UsageError(f"there is no variable {name!r} here.", hint=f"Set it, or write {name}=value.")
            value = caller[name]
        own[name] = value
    for name, value in own.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name for a variable.")
        if name.startswith(OWN_PREFIXES):
            raise UsageError(f"{name!r} is set by kasmon itself.")
        if "\0" in value:
            raise UsageError(f"the value of {name!r} holds a NUL character.")
    return own
