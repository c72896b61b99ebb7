"""Whether machines can be made here, and the image that tests make them from: built once, beside the environment.

python -m tests.support.sandbox.machine_image       builds it, unless it is there; says why where it cannot
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from kasmon.errors import KasmonError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import user_paths
from kasmon.sandbox.microvm import image, qemu_program
from kasmon.sandbox.microvm.machine import MicroVm

CACHE: Final = Path(__file__).parents[3] / ".cache" / "microvm"
IMAGE: Final = CACHE / "image"


def need_machine() -> None:
    """Skip the test where no machine can be made; fail it where KASMON_REQUIRE_SANDBOXES names it."""
    if not (why := _why_not()):
        return
    required = {word.strip() for word in os.environ.get("KASMON_REQUIRE_SANDBOXES", "").split(",")}
    if required & {"microvm", "all"}:
        pytest.fail(f"{why} (KASMON_REQUIRE_SANDBOXES asks for it)", pytrace=False)
    pytest.skip(why)


def _why_not() -> str:
    if lack := qemu_program.lacking():
        return f"no machine is available here: {lack.why}. {lack.hint}"
    if image.load_image(IMAGE) is None:
        return "no machine is available here: there is no image. `make machine` builds it."
    return ""


def warmed(vm: MicroVm) -> None:
    """Have a warm machine to copy; one process at a time makes it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if vm.provisioning.warm_pool("default").origin(vm.provisioning.made_by).memory is None:
            vm.provisioning.make_warm(SandboxPolicy(session=SessionId("golden00"), tier="microvm"))


def ended(vm: MicroVm) -> None:
    """End and remove every machine that is there."""
    for lock in sorted(vm.host_folders.base.glob("*/lock")):
        vm.forget(SandboxPolicy(session=SessionId(lock.parent.name)))


@contextmanager
def machine() -> Iterator[MicroVm]:
    """The tier, with a warm machine to copy; none of its machines is there after that."""
    need_machine()
    vm = MicroVm(user_paths(), image=IMAGE)
    warmed(vm)
    try:
        yield vm
    finally:
        ended(vm)


def build() -> int:
    """Build the image unless it is there; 0, also where none can be."""
    if image.load_image(IMAGE) is None:
        try:
            built = image.build(IMAGE, print)
        except KasmonError as error:
            print(f"Machines are not tested: {error.message} {error.hint}", file=sys.stderr)
        else:
            print(f"Built the image {built.id}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(build())
