"""What `kasmon doctor` says of the other machines that sessions run on: whether they answer, which tmux they have."""

import concurrent.futures
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace

from kasmon.commands.check import Check, Level
from kasmon.config import load
from kasmon.errors import KasmonError, RemoteUnreachableError
from kasmon.paths import Places
from kasmon.supervisor.look import look_once
from kasmon.supervisor.machines import used
from kasmon.tmux.remote_task import version
from kasmon.tmux.ssh import Machine, ssh_environment

AT_ONCE: Final = 8
"""So many machines are asked at once: each that does not answer takes ten seconds to say so."""


def machines(where: Places, known_of_tmux: Callable[[str], tuple[Level, str]]) -> Iterator[Check]:
    """A line for each machine that a session runs on, or ran on; *known_of_tmux* judges the tmux there."""
    try:
        hosts, ssh = used(look_once(where)), load(where).remote.ssh
    except KasmonError:
        return  # other lines say so
    if hosts:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            asked = pool.map(partial(_asked, ssh=ssh, known_of_tmux=known_of_tmux), hosts)
            yield from (replace(check, private={host: "⟨machine⟩"}) for host, check in zip(hosts, asked, strict=True))


def _asked(host: str, ssh: tuple[str, ...], known_of_tmux: Callable[[str], tuple[Level, str]]) -> Check:
    name = f"machine-{host}"
    try:
        said = version(Machine(host, ssh), ssh_environment(os.environ))
    except RemoteUnreachableError as error:
        return Check(id=name, level="warn", text=f"{host!r} does not answer: {error.why}", fix=error.hint)
    if not said:
        text = f"{host!r} answers, and has no tmux: no agent can be started there"
        return Check(id=name, level="fail", text=text, fix=f"Install tmux 3.4 or newer on {host!r}.")
    level, why = known_of_tmux(said)
    text = f"{host!r} answers, with {said}" + (f": {why}" if why else "")
    return Check(id=name, level=level, text=text, fix=f"Install a newer tmux on {host!r}." if level != "ok" else "")
