"""`kasmon sandbox run`: run code in a sandbox, and print its output as it arrives."""

import asyncio
import contextlib
import sys
from typing import Annotated, Final

import msgspec

from kasmon.cli.arguments import Arg, Json, SandboxArgument
from kasmon.cli.output.console import note, print_json
from kasmon.errors import KasmonError, UsageError
from kasmon.host.rpc.frames import RunOutputChunk
from kasmon.model.sandbox.policy import MIB, Interpreter, RunResult
from kasmon.paths import user_paths
from kasmon.sanitize import clean_block
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes import use

REMEMBERED: Final = 4 * MIB
"""Printed output is remembered up to this many characters; the result contains no more than that."""


def run(
    name: SandboxArgument,
    code: Annotated[str, Arg("Code to run (`-`: from stdin).", hyphen=True)],
    /,
    *,
    lang: Annotated[Interpreter | None, Arg("Language of the code (default: bash).")] = None,
    env: Annotated[Interpreter | None, Arg("The old name of --lang.", is_shown=False)] = None,
    timeout: Annotated[float | None, Arg("Interrupt the code after this many seconds.", above=0)] = None,
    wants_json: Json = False,
) -> int:
    """Run code in a sandbox, resuming it if needed. Output is streamed; exits with the code's exit code."""
    if lang is not None and env is not None:
        raise UsageError("--env is the old name of --lang: only one of them can be given.", hint="Leave out --env.")
    where = user_paths()
    session = find(read_fleet(where), name)
    shown, call = RunOutput(is_quiet=wants_json), use.new_run()
    text = sys.stdin.read() if code == "-" else code
    running = use.run(
        where, session, lang or env or "bash", text, timeout_s=timeout, printed=shown.print_chunk, run=call
    )
    try:
        ran = asyncio.run(running)
    except KeyboardInterrupt:
        with contextlib.suppress(KasmonError):
            asyncio.run(use.interrupt(where, session, run=call))
        raise
    if wants_json:
        print_json(run=call, ran=msgspec.to_builtins(ran))
    else:
        shown.finish(ran)
    return ran.exit_code


class RunOutput:
    """Prints a run's output to stdout and stderr, each piece once."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._printed = {"stdout": "", "stderr": ""}

    def print_chunk(self, printed: RunOutputChunk) -> None:
        """Print a chunk of output, unless quiet; report skipped characters on stderr."""
        if self._is_quiet:
            return
        if printed.skipped:
            note(f"{printed.skipped} characters of output were not shown.")
        self._print("stdout", printed.stdout)
        self._print("stderr", printed.stderr)

    def finish(self, ran: RunResult) -> None:
        """Print the output that was not printed before, and the run's hint."""
        for name, whole in (("stdout", ran.stdout), ("stderr", ran.stderr)):
            printed = self._printed[name]
            if whole.startswith(printed):
                self._print(name, whole[len(printed) :])
        if ran.hint and ran.hint not in ran.stderr:
            note(ran.hint)
        elif ran.hint:
            self._print("stderr", "\n")

    def _print(self, name: str, text: str) -> None:
        if not text:
            return
        if len(self._printed[name]) <= REMEMBERED:
            self._printed[name] += text
        stream = sys.stdout if name == "stdout" else sys.stderr
        with contextlib.suppress(ValueError):
            print(clean_block(text) if stream.isatty() else text, end="", file=stream, flush=True)
