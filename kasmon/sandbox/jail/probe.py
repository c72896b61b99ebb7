"""Why no jail can be created on this machine, and how to fix it."""

import contextlib
import functools
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from kasmon import system
from kasmon.errors import SandboxError
from kasmon.sandbox.base import UnavailableReason
from kasmon.sandbox.jail import seccomp
from kasmon.sandbox.jail.cgroup import PRLIMIT
from kasmon.sandbox.shared.host_folders import PYTHON
from kasmon.sandbox.shared.install_command import find_install_command

OLDEST: Final = (0, 8, 0)
"""The first bubblewrap that can forbid further user namespaces inside."""
PYTHON_MINOR: Final = 11
FORBIDDEN: Final = re.compile(
    r"No permissions to creat\w* new namespace|Creating new namespace failed|setting up uid map|"
    r"write to uid_map|capset failed|Can't mount proc|Failed to make / slave|Unexpected capabilities",
    re.IGNORECASE,
)
SETTINGS: Final = Path("/proc/sys")


def lacking(program: str) -> UnavailableReason | None:
    """Return what this machine lacks for a jail, as far as that is known without trying."""
    if not system.HERE.has_namespaces:
        return UnavailableReason("a jail requires Linux namespaces", "Use another tier (`kasmon doctor` lists them).")
    found = shutil.which(program)
    if found is None:
        return UnavailableReason("bubblewrap is not installed", f"Install it: {find_install_command('bubblewrap')}.")
    version = _read_cached_version(found, Path(found).stat().st_mtime_ns)
    if version is None or version < OLDEST:
        named = ".".join(map(str, version or ()))
        wanted = ".".join(map(str, OLDEST))
        return UnavailableReason(
            f"bubblewrap is of version {named or 'unknown'}", f"A jail requires {wanted} or later."
        )
    if not _runs_inside():
        return UnavailableReason(
            f"{PYTHON} is missing or older than 3.{PYTHON_MINOR}", f"Install it: {find_install_command('python3')}."
        )
    if not Path(PRLIMIT).exists():
        return UnavailableReason(f"{PRLIMIT} is missing", f"Install it: {find_install_command('util-linux')}.")
    try:
        seccomp.build_filter(platform.machine())
    except SandboxError as error:
        return UnavailableReason(error.message, error.hint)
    return None


def explain_failure(output: str) -> UnavailableReason:
    """Return what bubblewrap's error output *output* means."""
    line = next((line for line in reversed(output.splitlines()) if line.strip()), "") or "it gives no reason"
    why = line.removeprefix("bwrap: ").rstrip(".")
    if "seccomp" in output.lower() or "PR_SET_SECCOMP" in output:
        return UnavailableReason(f"the kernel accepts no seccomp filter ({why})", "A jail requires one.")
    if FORBIDDEN.search(output):
        return UnavailableReason(f"this system lets only root create user namespaces ({why})", how_to_allow())
    return UnavailableReason(why)


def how_to_allow(settings: Path = SETTINGS) -> str:
    """Return how the user can allow user namespaces for non-root users here."""

    def is_set(name: str, value: str) -> bool:
        try:
            return (settings / name).read_text().strip() == value
        except OSError:
            return False

    if is_set("kernel/apparmor_restrict_unprivileged_userns", "1"):
        return (
            "AppArmor forbids it: give bwrap a profile that says `userns,` (/etc/apparmor.d/bwrap),"
            " or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`."
        )
    if is_set("kernel/unprivileged_userns_clone", "0"):
        return "`sysctl kernel.unprivileged_userns_clone=1` allows it."
    if is_set("user/max_user_namespaces", "0"):
        return "`sysctl user.max_user_namespaces=15000` allows it."
    return "In a container, that container's own seccomp filter or capabilities may forbid it."


@functools.cache
def _runs_inside() -> bool:
    asks = f"import sys; sys.exit(sys.version_info < (3, {PYTHON_MINOR}))"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return not subprocess.run([PYTHON, "-I", "-S", "-c", asks], capture_output=True, timeout=10, env={}).returncode
    return False


@functools.cache
def _read_cached_version(program: str, changed_ns: int) -> tuple[int, ...] | None:
    return read_version(program)


def read_version(program: str) -> tuple[int, ...] | None:
    """Return the version of bubblewrap at *program*; None if it prints none."""
    try:
        output = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, env={})
    except (OSError, subprocess.SubprocessError):
        return None
    numbers = re.search(r"(\d+)\.(\d+)\.(\d+)", output.stdout)
    return tuple(map(int, numbers.groups())) if numbers else None
