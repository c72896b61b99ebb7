"""`kasmon sandbox run`: run code in a sandbox, and print its output as it arrives."""

import asyncio
import contextlib
import sys
from typing import Annotated

import msgspec

from kasmon.cli.arguments import Arg, Json, SandboxArgument
from kasmon.cli.output.console import print_json
from kasmon.cli.output.json_objects import answer
from kasmon.cli.sandbox.run_output import RunOutput
from kasmon.errors import KasmonError, UsageError
from kasmon.model.sandbox.policy import Interpreter
from kasmon.paths import places
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes import use


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
    where = places()
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
        print_json(answer(run=call, ran=msgspec.to_builtins(ran)))
    else:
        shown.finish(ran)
    return ran.exit_code
