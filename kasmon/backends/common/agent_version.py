"""Find an agent's version and explain it, for errors of agents that do not speak their protocol as expected."""

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Final

from kasmon.agents.catalog import find
from kasmon.backends.common.environment import program_of
from kasmon.config.profile import NATIVE
from kasmon.detection import version_range
from kasmon.errors import LaunchError, UnfitAgentError
from kasmon.launch import base_environment
from kasmon.model.agent_program import RUNNERS
from kasmon.sanitize import clean_line

LIMIT_S: Final = 5.0
"""How long a program may take to print its version, in seconds."""
PATIENT_S: Final = 10.0
"""The same limit where no user waits."""
HURRY_S: Final = 1.5
"""The same limit after a handshake has already timed out."""
GUARD: Final = ("/bin/sh", "-c", '"$@" </dev/null & exec >/dev/null; read -r _; kill -9 0', "sh")
"""Runs the command after it; kills its process group when stdin closes, so it does not outlive its caller."""
ANSWER_BYTES: Final = 4096
VERSION: Final = re.compile(r"\b\d{1,9}\.\d{1,9}\.\d{1,9}[\w.+-]{0,40}")


async def explain_unfit(
    error: UnfitAgentError, backend: str, argv: Sequence[str], workdir: str, variables: Mapping[str, str]
) -> UnfitAgentError:
    """Return *error* with a hint: which version *argv* runs, which one kasmon knows, and what to do.

    Args:
        backend: the backend of the agent; if it supports several agents, the program identifies the agent.
        variables: the agent's whole environment.
    """
    agent = backend if backend in NATIVE else program_of(argv)
    limit_s = HURRY_S if isinstance(error.__cause__, TimeoutError) else LIMIT_S
    advice_text = advice(agent, await find_version(argv, workdir, variables, limit_s))
    return UnfitAgentError(error.message, hint=" ".join(part for part in (error.hint, advice_text) if part))


def advice(agent: str, version: str) -> str:
    """Return advice about *version* of *agent*; *version* may be empty."""
    known = find(agent)
    this = f"This is {agent} {version}" if version else f"{agent!r} does not report its version"
    if not known.tried:
        return f"{this}." if version else ""
    if version == known.tried:
        return f"{this}, which kasmon was tested with: check the profile's flags and the agent's config."
    if version and numbers(version) > numbers(known.tried):
        return f"{this}, and kasmon was tested with {known.tried}: update kasmon, or install that version."
    return f"{this}; kasmon was tested with {known.tried}. {known.update}".rstrip()


async def find_version(
    argv: Sequence[str], workdir: str, variables: Mapping[str, str], limit_s: float = LIMIT_S
) -> str:
    """Return the version that the program of *argv* reports; empty if it reports none in *limit_s* seconds."""
    if not argv:
        return ""
    command = [argv[0]]
    if os.path.basename(command[0]) in RUNNERS:  # noqa: PTH119 - any text may stand there
        command += [argument for argument in argv[1:2] if not argument.startswith("-")]
    try:
        import asyncio

        output = await asyncio.to_thread(answer, [*command, "--version"], workdir, dict(variables), limit_s)
    except (OSError, ValueError):
        return ""
    version = VERSION.search(output.decode("utf-8", "replace"))
    return clean_line(version[0]) if version else ""


def answer(argv: Sequence[str], workdir: str, variables: Mapping[str, str], limit_s: float) -> bytes:
    """Return the first output of *argv*, until it ends or *limit_s* seconds have passed. Blocks.

    Then the program is killed; it does not outlive this process either.

    Raises:
        OSError: if it cannot be run there.
    """
    deadline, output = time.monotonic() + limit_s, b""
    import subprocess  # `kasmon explain` runs no agent

    process = subprocess.Popen(
        [*GUARD, *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=workdir,
        env=variables,
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout as pipe:
            while (
                len(output) < ANSWER_BYTES and select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]
            ):
                piece = os.read(pipe.fileno(), ANSWER_BYTES)
                output += piece
                if not piece:
                    break
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return output


def numbers(version: str) -> tuple[int, ...]:
    """Return the numeric parts of *version*, for comparison."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def version_of(argv: Sequence[str]) -> str:
    """Return what the program of *argv* prints for `--version`; empty if it fails or is started by a runner. Blocks.

    A program is run once, and again when its file has changed.
    """
    if not argv or not argv[0].startswith("/") or PurePath(argv[0]).name in RUNNERS:
        return ""
    try:
        return _version(argv[0], Path(argv[0]).stat().st_mtime_ns)
    except OSError:
        return ""


def advised(argv: Sequence[str]) -> str:
    """Return advice on the version of the agent that *argv* runs; empty for an unknown one. Blocks."""
    agent = program_of(argv)
    version = VERSION.search(version_of(argv)) if find(agent).tried else None
    return advice(agent, version[0]) if version else ""


def refuse_in_terminal(argv: Sequence[str], agent: str) -> None:
    """Refuse a version of the agent that *argv* runs of which kasmon knows no screen. Blocks, where versions matter.

    *agent*: the name of its profile. A program that does not report its version is not refused.

    Raises:
        LaunchError: if its version is not among those of its profile.
    """
    program = program_of(argv, agent)
    wanted = find(program).start.terminal_versions
    version = version_range.version_of(version_of(argv)) if wanted else None
    if version is None or version_range.range_of(wanted).holds(version):
        return
    number = ".".join(map(str, version))
    raise LaunchError(
        f"{program} {number} cannot run in a terminal session: kasmon knows the screens of {program} {wanted} only.",
        hint=f"Start it as a structured session: `kasmon new NAME --agent {agent or program} --mode sdk`.",
    )


@lru_cache(maxsize=64)
def _version(program: str, _changed: int) -> str:
    with contextlib.suppress(OSError):
        variables = {**base_environment(dict(os.environ)), "TERM": "dumb", "NO_COLOR": "1"}
        output = answer((program, "--version"), "/", variables, PATIENT_S)
        return clean_line(output[:400].decode("utf-8", "replace").strip().partition("\n")[0])[:80]
    return ""
