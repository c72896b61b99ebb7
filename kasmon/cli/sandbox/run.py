"""`kasmon sandbox run`: run code in a sandbox, and print its output as it arrives."""

import asyncio
import contextlib
import sys

import msgspec

from kasmon.cli.output.console import print_json
from kasmon.cli.output.json_objects import answer
from kasmon.cli.sandbox.run_output import RunOutput
from kasmon.errors import KasmonError
from kasmon.model.sandbox.policy import Interpreter
from kasmon.paths import places
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import look_once
from kasmon.supervisor.sandboxes import use


def run(name: str, code: str, interpreter: Interpreter, timeout_s: float | None, *, wants_json: bool) -> int:
    """Run code, print its output as it arrives, and return its exit code."""
    where = places()
    session = find(look_once(where), name)
    shown, call = RunOutput(is_quiet=wants_json), use.new_run()
    text = sys.stdin.read() if code == "-" else code
    running = use.run(where, session, interpreter, text, timeout_s=timeout_s, printed=shown.take, run=call)
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
