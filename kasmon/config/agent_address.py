"""`AGENT@HOST`: a profile, and the machine on which its program runs, in the words that ssh takes."""

import re
from typing import Final

from kasmon.errors import UsageError

HOST: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,63}@)?[A-Za-z0-9_:][A-Za-z0-9._:-]{0,254}")
"""A name, an address or an alias of the user's own ssh config, with or without `USER@`. Nothing here can be an option
of ssh, a word for a shell, or a file."""


def split(agent: str) -> tuple[str, str]:
    """The profile's name and the machine that *agent* names; no machine is this one.

    Raises:
        UsageError: if what stands behind the @ cannot be a machine.
    """
    name, at, host = agent.partition("@")
    if at and not HOST.fullmatch(host):
        raise UsageError(
            f"{host!r} is not a valid host name in {agent!r}.",
            hint="Write AGENT@HOST or AGENT@USER@HOST; put other ssh options into the ssh config.",
        )
    return name, host


def machine_of(agent: str) -> str:
    """The machine that *agent* names, unchecked; empty for this one."""
    return agent.partition("@")[2]


def there(machine: str, folder: str) -> str:
    """*folder* of *machine*, the home folder if it is empty, so that nobody takes it for one of this machine."""
    return f"{machine}:{folder or '~'}"


def folder_of(machine: str, workdir: str) -> str:
    """The folder in *workdir*, which `there` made, as that machine knows it."""
    return workdir.removeprefix(f"{machine}:")
