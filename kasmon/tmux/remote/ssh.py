"""Runs scripts on another machine over ssh and returns their answers. Calls block; use a thread.

`ssh HOST sh` reads its script from stdin: none of it is on a command line, here or there.
"""

import os
import subprocess
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from kasmon.errors import RemoteUnreachableError
from kasmon.launch import base_environment

OPTIONS: Final = (
    "-oBatchMode=yes",  # no prompts: a key, an ssh agent or a master connection must authenticate us
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oConnectTimeout=10",
    "-oControlMaster=no",  # use an existing master; one of ours would stay behind and hold our pipes open
    "-oClearAllForwardings=yes",  # a second session could not listen on the ports of the first
)
"""All other ssh options come from the user's own config."""
ANSWER_S: Final = 30.0
"""How long connecting and running a script may take, in seconds."""
LOST: Final = 255
"""The exit code of ssh itself: no connection, or a lost one."""
SIGN: Final = "kasmon-remote:"
BEGINS: Final = "begins"
"""Marks the beginning of a script's output; before it is what the remote login prints."""


class RemoteMachine(msgspec.Struct, frozen=True):
    """A remote machine and the command that reaches it."""

    host: str
    """As validated by `config.agent_address`: never an option, never more than one word."""
    ssh: tuple[str, ...] = ("ssh",)


class ScriptResult(NamedTuple):
    fields: list[str]
    shown: bytes = b""
    """What it printed between `show` and its answer."""


HEAD: Final = f"""\
umask 077
PATH=$PATH:/usr/local/bin:/opt/homebrew/bin
show() {{ printf '\\n{SIGN} {BEGINS}\\n'; }}
say() {{ printf '\\n{SIGN} %s\\n' "$*"; exit 0; }}
"""
"""The prologue of every script: `say` answers and exits, `show` begins output before the answer."""


def run_script(
    machine: RemoteMachine, script: str, variables: Mapping[str, str], limit_s: float = ANSWER_S
) -> ScriptResult:
    """Run *script*, which begins with `HEAD`, and return its answer. *variables*: the environment of ssh.

    Raises:
        RemoteUnreachableError: if no answer comes.
    """
    argv = [*machine.ssh, *OPTIONS, "-T", "--", machine.host, "sh"]
    try:
        completed = subprocess.run(
            argv,
            input=script.encode("utf-8", "surrogateescape"),
            capture_output=True,
            timeout=limit_s,
            env=dict(variables),
            cwd="/",
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise RemoteUnreachableError(machine.host, f"it did not respond within {limit_s:g} s") from error
    except OSError as error:
        raise RemoteUnreachableError(
            machine.host, f"{machine.ssh[0]!r} cannot be run: {error.strerror or error}"
        ) from error
    before, sign, answer = completed.stdout.rpartition(f"\n{SIGN} ".encode())
    if not sign:
        raise RemoteUnreachableError(machine.host, _last_line(completed.stderr) or "it gave no reason")
    shown = before.partition(f"\n{SIGN} {BEGINS}\n".encode())[2]
    return ScriptResult(answer.decode("utf-8", "replace").split(), shown)


def ssh_environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that ssh needs: the locations of its agent, its config and its programs."""
    return base_environment(dict(variables))


def _last_line(stderr: bytes) -> str:
    lines = (line.strip().rstrip(".") for line in reversed(stderr[-4096:].decode("utf-8", "replace").splitlines()))
    return next((line for line in lines if line), "")
