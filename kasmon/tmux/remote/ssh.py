"""A script that runs on another machine, and what it answers. Calls block; use a thread.

`ssh HOST sh` reads its script from its stdin: nothing of it stands on a command line, here or there.
"""

import os
import subprocess
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from kasmon.errors import RemoteUnreachableError
from kasmon.launch import base_environment

OPTIONS: Final = (
    "-oBatchMode=yes",  # nobody is there to be asked: a key, an agent or a master connection lets us in
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oConnectTimeout=10",
    "-oControlMaster=no",  # one that is there is used; ours would stay behind, and hold our pipes open
    "-oClearAllForwardings=yes",  # a second session could not listen where the first one does
)
"""Whatever else ssh does follows from the user's own config."""
ANSWER_S: Final = 30.0
"""How long a script may take there, with its connection, in seconds."""
LOST: Final = 255
"""With this code ssh itself ends: no connection, or none any more."""
SIGN: Final = "kasmon-remote:"
BEGINS: Final = "begins"
"""Behind this sign comes what a script shows; before it stands what a login there prints."""


class RemoteMachine(msgspec.Struct, frozen=True):
    """Another machine, and how it is reached."""

    host: str
    """As `config.agent_address` takes it: never an option, never more than one word."""
    ssh: tuple[str, ...] = ("ssh",)


class ScriptResult(NamedTuple):
    """What a script answered."""

    words: list[str]
    shown: bytes = b""
    """What it printed between `show` and its answer."""


HEAD: Final = f"""\
umask 077
PATH=$PATH:/usr/local/bin:/opt/homebrew/bin
show() {{ printf '\\n{SIGN} {BEGINS}\\n'; }}
say() {{ printf '\\n{SIGN} %s\\n' "$*"; exit 0; }}
"""
"""How every script begins: how it answers, and how it shows something before."""


def asked(machine: RemoteMachine, script: str, variables: Mapping[str, str]) -> ScriptResult:
    """The answer to *script*, which begins with `HEAD`. *variables*: those that ssh gets.

    Raises:
        RemoteUnreachableError: if there is none.
    """
    argv = [*machine.ssh, *OPTIONS, "-T", "--", machine.host, "sh"]
    try:
        done = subprocess.run(
            argv,
            input=script.encode("utf-8", "surrogateescape"),
            capture_output=True,
            timeout=ANSWER_S,
            env=dict(variables),
            cwd="/",
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise RemoteUnreachableError(machine.host, f"it did not respond within {ANSWER_S:g} s") from error
    except OSError as error:
        raise RemoteUnreachableError(
            machine.host, f"{machine.ssh[0]!r} cannot be run: {error.strerror or error}"
        ) from error
    before, sign, answer = done.stdout.rpartition(f"\n{SIGN} ".encode())
    if not sign:
        raise RemoteUnreachableError(machine.host, _last(done.stderr) or "it gave no reason")
    shown = before.partition(f"\n{SIGN} {BEGINS}\n".encode())[2]
    return ScriptResult(answer.decode("utf-8", "replace").split(), shown)


def ssh_environment(around: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What ssh gets of our variables: where its agent, its config and its programs are."""
    return base_environment(dict(around))


def _last(stderr: bytes) -> str:
    lines = (line.strip().rstrip(".") for line in reversed(stderr[-4096:].decode("utf-8", "replace").splitlines()))
    return next((line for line in lines if line), "")
