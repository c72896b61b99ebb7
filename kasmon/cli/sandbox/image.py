"""`kasmon sandbox image build`: build the image of virtual machines, and the warm machines to copy new ones from."""

import os
import time
from pathlib import Path
from typing import Annotated, Literal

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import note, print_json, say
from kasmon.errors import KasmonError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import MIB, SandboxPolicy
from kasmon.paths import user_paths
from kasmon.sandbox.microvm import image, qemu_program
from kasmon.sandbox.microvm.machine import MicroVm

ImageSize = Literal["default", "build", "max"]


def build(
    *,
    size: Annotated[
        list[ImageSize] | None, Arg("Only store a warm machine of this size, from the existing image.")
    ] = None,
    wants_json: Json = False,
) -> None:
    """Build the image for virtual machines from Debian packages; takes some minutes, needs no root."""
    where = user_paths()
    where.make()
    began, folder = time.monotonic(), image.folder_of(where)
    known = image.load_image(folder) if size else None
    built = known or image.build(folder, note)
    vm = MicroVm(where)
    warm = {each: _warm(vm, each) for each in dict.fromkeys(size or ("default",))}
    if wants_json:
        image_json = {"id": built.id, "kernel": built.kernel, "versions": built.versions, "hashes": built.hashes}
        size_bytes, why = next(iter(warm.values()))
        warm_of = {each: {"bytes": bytes_, "why_not": why_not} for each, (bytes_, why_not) in warm.items()}
        print_json(**image_json, bytes=_bytes(folder, built), warm_bytes=size_bytes, why_not_warm=why, warm=warm_of)
        return
    if not known:
        size_mib = _bytes(folder, built) // MIB
        say(f"Built {built.id}: {len(built.versions)} packages, kernel {built.kernel}, {size_mib} MiB.")
    for each, (bytes_, why_not) in warm.items():
        if why_not:
            say(f"No warm machine of size {each} was stored, so the next one has to boot: {why_not}")
        else:
            say(f"Stored a warm machine of size {each}: {bytes_ // MIB} MiB.")
    say(f"It took {time.monotonic() - began:.0f} s in all.")


def _warm(vm: MicroVm, size: ImageSize) -> tuple[int, str]:
    """Store a warm machine of *size*; return the size of its memory in bytes, or why there is none."""
    if lack := qemu_program.lacking():
        return 0, f"{lack.why}. {lack.hint}"
    note(f"Starting a machine of size {size}; new machines will be copies of it.")
    policy = SandboxPolicy(session=SessionId(f"warm-{os.getpid()}"), tier="microvm", size=size)
    try:
        note(f"Machines are played {vm.provisioning.describe_accelerator()}.")
        return vm.provisioning.make_warm(policy).size_bytes, ""
    except KasmonError as error:
        return 0, error.message


def _bytes(folder: Path, built: image.VmImage) -> int:
    return sum((folder / name).stat().st_size for name in built.hashes)
