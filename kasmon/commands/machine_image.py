"""`kasmon sandbox image build`: what virtual machines start from, and a warm one of which new ones are copies."""

import os
import time

from kasmon.commands.objects import answer
from kasmon.commands.output import note, say, tell
from kasmon.errors import KasmonError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import MIB, Policy
from kasmon.paths import places
from kasmon.sandbox.microvm import emulator, image, warming
from kasmon.sandbox.microvm.machine import MicroVm


def build(*, wants_json: bool) -> None:
    """Build the image anew, start a machine of it, and put that away warm.

    Raises:
        SandboxError: if no image can be built; the one before is untouched.
    """
    where = places()
    where.make()
    began = time.monotonic()
    built = image.build(image.folder_of(where), note)
    size = sum((image.folder_of(where) / name).stat().st_size for name in built.hashes)
    why, warm_bytes = "", 0
    if lack := emulator.lacking():
        why = f"{lack.why}. {lack.hint}"
    else:
        note("Starting a machine of it, of which new ones will be copies.")
        policy = Policy(session=SessionId(f"warm-{os.getpid()}"), tier="microvm")
        try:
            warm_bytes = MicroVm(where).warm(policy, warming.warmed).size_bytes
        except KasmonError as error:
            why = error.message
    if wants_json:
        told = {"id": built.id, "kernel": built.kernel, "versions": built.versions, "hashes": built.hashes}
        tell(answer(**told, bytes=size, warm_bytes=warm_bytes, why_not_warm=why))
        return
    say(f"Built {built.id}: {len(built.versions)} packages, kernel {built.kernel}, {size // MIB} MiB.")
    if why:
        say(f"No machine was put away warm, so each new one has to be started: {why}")
    else:
        say(
            f"A warm machine of {warm_bytes // MIB} MiB is there to be copied; {time.monotonic() - began:.0f} s in all."
        )
