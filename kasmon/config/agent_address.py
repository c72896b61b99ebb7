"""Agent addresses `AGENT@HOST`: a profile, and the machine that runs its program, as an ssh destination."""

import re
from typing import Final

from kasmon.errors import UsageError

HOST: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,63}@)?[A-Za-z0-9_:][A-Za-z0-9._:-]{0,254}")
"""A name, an address or an alias from the user's ssh config, optionally with `USER@`. A match cannot be an ssh
option, shell syntax or a file."""


def split(agent: str) -> tuple[str, str]:
    """Return the profile name and the machine that *agent* names; an empty machine is this one.

    Raises:
        UsageError: if the part behind the @ is not a valid machine.
    """
    name, at, host = agent.partition("@")
    if at and not HOST.fullmatch(host):
        raise UsageError(
            f"{host!r} is not a valid host name in {agent!r}.",
            hint="Write AGENT@HOST or AGENT@USER@HOST; put other ssh options into the ssh config.",
        )
    return name, host


def machine_of(agent: str) -> str:
    """Return the machine that *agent* names, unchecked; empty for this one."""
    return agent.partition("@")[2]


def there(machine: str, folder: str) -> str:
    """Return `MACHINE:FOLDER`, with `~` for an empty *folder*, so that it is not mistaken for a local path."""
    return f"{machine}:{folder or '~'}"


def folder_of(machine: str, workdir: str) -> str:
    """Return the folder in *workdir* (made by `there`) as a path on that machine."""
    return workdir.removeprefix(f"{machine}:")
