"""The Debian packages of a machine image: resolved and fetched by apt without root, and unpacked here.

The packages installed on this system play no part: apt gets an empty status file.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from kasmon.errors import SandboxError
from kasmon.paths import write_private

PROGRAMS: Final = (
    "bash", "coreutils", "diffutils", "findutils", "grep", "gzip", "less", "mawk", "ncurses-base", "nodejs",
    "procps", "python3", "sed",
    "tar",
)  # fmt: skip
"""Programs available inside; their dependencies are added."""
BUSYBOX: Final = "busybox-static"
KERNEL: Final = "linux-image-cloud-amd64"
"""Depends on the newest kernel of its kind, which is another package at each version."""
FETCH_S: Final = 600.0
LEFT_OUT: Final = re.compile(
    r"usr/share/(doc|man|info|locale|lintian|bash-completion|zoneinfo|icons|i18n/locales)/|usr/lib/x86_64-linux-gnu/gconv/"
    r"|usr/(s?bin/(perl|dpkg)|lib/x86_64-linux-gnu/perl)|var/|boot/|lib/modules/|.*/__pycache__/|usr/lib/python3.11/test/"
)
"""Files that are not needed inside."""
MERGED: Final = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")


class DebianPackage(NamedTuple):
    name: str
    version: str
    path: Path


def missing() -> str:
    """Return why no image can be built here; empty if one can."""
    if platform.machine() != "x86_64":
        return f"an image can be built for x86_64 only, and this is {platform.machine()}"
    wanted = {"apt-get": "apt", "dpkg-deb": "dpkg", "mke2fs": "e2fsprogs"}
    absent = [f"{program} (package {package})" for program, package in wanted.items() if not find_program(program)]
    return f"{', '.join(absent)} is missing: an image is built from Debian packages" if absent else ""


def find_program(program: str) -> str | None:
    """Return the path of *program*, also searched where only root has programs."""
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def fetch(folder: Path, report: Callable[[str], None] = lambda _: None) -> list[DebianPackage]:
    """Fetch all packages of an image into *folder*. Raises `SandboxError` if apt fails."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "partial").mkdir(mode=0o700, exist_ok=True)
    write_private(folder / "status", b"")
    options = [
        *("-o", f"Dir::State::status={folder}/status", "-o", f"Dir::Cache::archives={folder}"),
        *("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "APT::Architecture=amd64"),
        *("-o", "APT::Get::AllowUnauthenticated=false", "-o", "Debug::NoLocking=true"),
    ]
    wanted = [*PROGRAMS, BUSYBOX]
    kernel = _kernel(options, folder)
    report(f"Resolving the dependencies of {', '.join(PROGRAMS)}.")
    plan = ["--print-uris", "--no-install-recommends", "-y", "-qq", "install"]
    lines = _apt([*options, *plan, *wanted], folder).splitlines()
    named = [name for line in lines if line.startswith("'") and (name := _parse_name_version(shlex.split(line)[1]))]
    if not named:
        raise SandboxError("cannot build the image", "apt knows none of its packages", "Run `apt-get update` as root.")
    report(f"Fetching {len(named) + 1} packages.")
    _apt([*options, "-qq", "download", kernel, *named], folder)
    return [_package(path) for path in sorted(folder.glob("*.deb"))]


def _kernel(options: Sequence[str], folder: Path) -> str:
    """Return the package of the newest kernel, on which `KERNEL` depends."""
    output = _apt(["depends", KERNEL], folder, program="apt-cache")
    names = re.findall(r"Depends: (linux-image-\S+)", output)
    if not names:
        raise SandboxError(
            "cannot build the image", f"apt does not know {KERNEL}", "It requires Debian's own packages."
        )
    return str(names[-1])


def _parse_name_version(file: str) -> str:
    """Return `name=version` for a package's file `name_version_architecture.deb`."""
    name, version, _ = file.removesuffix(".deb").split("_")
    return f"{name}={version.replace('%3a', ':')}"


def _apt(arguments: Sequence[str], folder: Path, program: str = "apt-get") -> str:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "HOME": str(folder)}
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    try:
        done = subprocess.run(
            [program, *arguments],
            cwd=folder,
            env=environment | proxies,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError("cannot build the image", f"{program} could not be run: {error}") from error
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if line.startswith("E:")), done.stderr.strip()[-200:])
        raise SandboxError(
            "cannot build the image", f"{program}: {why}", "Run `apt-get update` as root, and try again."
        )
    return str(done.stdout)


def _package(path: Path) -> DebianPackage:
    output = subprocess.run(
        ["dpkg-deb", "--show", "--showformat=${Package} ${Version}", path], capture_output=True, text=True, timeout=60
    ).stdout.split()
    if len(output) != 2:
        raise SandboxError("cannot build the image", f"{path.name} is not a package")
    return DebianPackage(output[0], output[1], path)


def unpack(
    package: DebianPackage, folder: Path, wanted: Callable[[str], bool] = lambda name: not LEFT_OUT.match(name)
) -> None:
    """Unpack the *wanted* files of *package* into *folder*, readable, without setuid. May raise `SandboxError`."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package.path], stdout=subprocess.PIPE) as reader:
        try:
            with tarfile.open(fileobj=reader.stdout, mode="r|") as archive:
                for member in archive:
                    member.name = _move_below_usr(member.name.removeprefix("./"))
                    if member.islnk():
                        member.linkname = _move_below_usr(member.linkname.removeprefix("./"))
                    if member.name and wanted(f"{member.name}/" if member.isdir() else member.name):
                        member.mode = (member.mode & 0o777) | (0o755 if member.isdir() else 0o444)
                        _put(archive, member, folder)
        except (OSError, tarfile.TarError) as error:
            raise SandboxError("cannot build the image", f"{package.path.name}: {error}") from error
    if reader.returncode:
        raise SandboxError("cannot build the image", f"{package.path.name} cannot be unpacked")


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    if ".." in PurePosixPath(member.name).parts:
        raise SandboxError("cannot build the image", f"a package contains {member.name!r}")
    target = folder / member.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if member.isdir():
        target.mkdir(mode=0o700, exist_ok=True)
    elif member.issym():
        target.unlink(missing_ok=True)
        target.symlink_to(member.linkname)
    elif member.islnk() and (folder / member.linkname).exists():
        target.unlink(missing_ok=True)
        target.hardlink_to(folder / member.linkname)
    elif member.isreg() and (content := archive.extractfile(member)):
        target.unlink(missing_ok=True)
        with target.open("xb") as file:
            shutil.copyfileobj(content, file)
        target.chmod(member.mode)


def _move_below_usr(name: str) -> str:
    parts = PurePosixPath(name).parts
    return (
        str(PurePosixPath("usr", *parts)) if parts and parts[0] in MERGED else str(PurePosixPath(*parts)) * bool(parts)
    )
