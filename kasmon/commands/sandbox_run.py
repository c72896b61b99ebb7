"""`kasmon sandbox run`: code goes to a sandbox, and what it prints comes meanwhile."""

import asyncio
import contextlib
import sys

import msgspec

from kasmon.commands.objects import answer
from kasmon.commands.output import tell
from kasmon.commands.sandbox_output import Shown
from kasmon.errors import KasmonError
from kasmon.model.sandbox import Interpreter
from kasmon.paths import places
from kasmon.supervisor import sandbox_use
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once


def run(name: str, code: str, interpreter: Interpreter, timeout_s: float | None, *, wants_json: bool) -> int:
    """Run code and return its exit code; what it prints is printed meanwhile."""
    where = places()
    session = find(look_once(where), name)
    shown, call = Shown(is_quiet=wants_json), sandbox_use.new_run()
    text = sys.stdin.read() if code == "-" else code
    running = sandbox_use.run(where, session, interpreter, text, timeout_s=timeout_s, printed=shown.take, run=call)
    try:
        ran = asyncio.run(running)
    except KeyboardInterrupt:
        with contextlib.suppress(KasmonError):
            asyncio.run(sandbox_use.interrupt(where, session, run=call))
        raise
    if wants_json:
        tell(answer(run=call, ran=msgspec.to_builtins(ran)))
    else:
        shown.finish(ran)
    return ran.exit_code
