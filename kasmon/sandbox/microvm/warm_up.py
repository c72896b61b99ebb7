"""Warm-up of a machine before it is stored: starts its interpreters with what each needs first.

An emulated machine takes seconds for that.
"""

import contextlib
from typing import Final

from kasmon.model.sandbox.policy import Interpreter, SandboxRuntime
from kasmon.sandbox.guest_client.channel import GuestChannel

LIMIT_S: Final = 60.0
FIRST: Final[dict[Interpreter, str]] = {
    "bash": ":",
    "python": "await __import__('asyncio').sleep(0); __import__('subprocess')",
}
"""Code to run in each; node takes too much memory to run in every machine."""


def warm_up(runtime: SandboxRuntime) -> None:
    """Warm up the machine at *runtime*.

    Raises:
        SandboxError: if it does not answer.
    """
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        inside.prewarm(tuple(FIRST))
        for interpreter, code in FIRST.items():
            inside.run(interpreter, code, timeout_s=LIMIT_S)
