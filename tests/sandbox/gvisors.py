"""The gVisor that tests run: Debian 13's, beside the environment, also where this system is older and has an older one.

It is fetched once, from where this machine's own apt fetches, and taken only if it is what is pinned here.

python -m tests.sandbox.gvisors        fetches it, unless it is there; says why where it cannot
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

PROGRAM: Final = Path(__file__).parents[2] / ".cache" / "runsc" / "runsc"
PACKAGE: Final = "pool/main/g/golang-gvisor-gvisor/runsc_0.0~20240729.0-4+b7_amd64.deb"
PACKAGE_SHA256: Final = "3c25a5130dfac2f71237d5baad56ac86a255de87a0400f11b36a555156dc325a"
INSIDE: Final = "./usr/bin/runsc"
HELPER: Final = Path("/usr/lib/apt/apt-helper")
LIMIT_S: Final = 120.0


class NotFetchedError(Exception):
    """It cannot be had here; the message says why."""


def named() -> dict[str, str]:
    """The variable by which kasmon takes it; none where it is not here, or another one is named already."""
    return {"KASMON_RUNSC": str(PROGRAM)} if PROGRAM.exists() and not os.environ.get("KASMON_RUNSC") else {}


def fetch() -> None:
    """Have it.

    Raises:
        NotFetchedError: if it cannot be had.
        OSError: if it cannot be put there.
    """
    if platform.machine() != "x86_64" or not HELPER.exists():
        raise NotFetchedError("it is fetched by apt, for x86_64 alone")
    with tempfile.TemporaryDirectory() as name:
        package = Path(name) / "runsc.deb"
        _told([str(HELPER), "download-file", f"{_archive()}{PACKAGE}", str(package), f"SHA256:{PACKAGE_SHA256}"])
        with package.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != PACKAGE_SHA256:
                raise NotFetchedError("what came is not what is pinned")
        program = Path(name) / "runsc"
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as reader:
            with tarfile.open(fileobj=reader.stdout, mode="r|") as archive, program.open("wb") as file:
                content = next(archive.extractfile(member) for member in archive if member.name == INSIDE)
                assert content is not None
                shutil.copyfileobj(content, file)
            reader.kill()
        program.chmod(0o755)
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program, fresh := PROGRAM.with_suffix(f".{os.getpid()}"))
        fresh.replace(PROGRAM)


def _archive() -> str:
    """Where this machine's apt fetches Debian's own packages."""
    form = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
    for line in _told(["apt-get", "indextargets", "--format", form, "Created-By: Packages"]).splitlines():
        origin, label, component, where = line.split("|", 3)
        if (origin, label, component) == ("Debian", "Debian", "main"):
            return where
    raise NotFetchedError("apt knows no archive of Debian's here")


def _told(words: list[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotFetchedError(str(error)) from error
    if done.returncode:
        raise NotFetchedError((done.stderr.strip().splitlines() or [f"{words[0]} fails"])[-1])
    return done.stdout


def main() -> int:
    """Fetch it unless it is there; 0, also where it cannot be had."""
    if not PROGRAM.exists():
        try:
            fetch()
        except (NotFetchedError, OSError) as error:
            print(f"gVisor is tested with this system's own runsc: {error}.", file=sys.stderr)
        else:
            print("Fetched Debian 13's runsc.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
