"""Credentials of a sandbox: looked up for each run, stored in no file of kasmon, and searched for in what is stored.

A value reaches the one command that is run, and the volatile files that the policy names. Before anything of a sandbox
is stored, these files are emptied and the interpreters forget the values. What is then stored is searched for each
value, in the forms in which values are usually written (`forms`). Other forms are not found.
"""

import base64
import json
import os
import stat
import subprocess
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from kasmon.model.sandbox.policy import Credential, SandboxPolicy, SandboxRuntime
from kasmon.paths import expanded
from kasmon.sandbox.base import InspectableTier, SandboxTier

COMMAND_S: Final = 10.0
"""How long a command may take to print a value, in seconds."""
VALUE_BYTES: Final = 64 * 1024
SHORTEST: Final = 6
"""A shorter value (in characters) is not searched for: it would be found everywhere."""
FILE_BYTES: Final = 4 * 1024 * 1024
SETTLED_NS: Final = 50_000_000
"""File timestamps are coarse: a change after so long gets another timestamp."""
FILES: Final = 20_000
"""Limits of a search: bytes per file (`FILE_BYTES`) and files; beyond them, nothing is known to be clean."""


class CredentialFindings(NamedTuple):
    """The values of credentials that were found."""

    values: dict[str, str]
    """Variable -> value."""
    missing: tuple[str, ...]
    """Why some have no value, each as one sentence."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that are long enough to be searched for, each once."""
        return tuple(dict.fromkeys(value for value in self.values.values() if len(value) >= SHORTEST))


def resolve(credentials: Sequence[Credential], variables: Mapping[str, str] = os.environ) -> CredentialFindings:
    """Return the current values of *credentials*, under each name and alias. Blocks up to `COMMAND_S` per command.

    Args:
        credentials: their sources; only these are looked up.
        variables: the environment of the caller.
    """
    values: dict[str, str] = {}
    missing: list[str] = []
    for credential in credentials:
        value, why = _resolve(credential, variables)
        if value is None:
            missing.append(f"The credential {credential.name!r} has no value: {why}.")
            continue
        values |= dict.fromkeys((credential.name, *credential.aliases), value)
    return CredentialFindings(values, tuple(missing))


def fault(credential: Credential) -> str:
    """Return what is wrong with the definition of *credential*; empty if nothing is."""
    sources = [source for source in (credential.variable, credential.file, credential.command) if source]
    if len(sources) != 1:
        return f"the credential {credential.name!r} requires exactly one of variable, file and command"
    for name in (credential.name, *credential.aliases):
        if not name.isidentifier() or not name.isascii():
            return f"{name!r} is not a valid variable name"
    return ""


def holders(content: bytes, findings: CredentialFindings) -> tuple[str, ...]:
    """Return the variables whose value is in *content*, in a form in which values are usually written."""
    return tuple(
        name
        for name, value in findings.values.items()
        if len(value) >= SHORTEST and any(form in content for form in forms(value))
    )


class CredentialSearch:
    """Searches files for values; skips files that are unchanged since they contained none."""

    def __init__(self) -> None:
        self._clean: dict[Path, _Stamp] = {}
        self._wanted: tuple[str, ...] = ()

    def files_with(
        self, folder: Path, findings: CredentialFindings, mapped: Callable[[], Container[int]] = frozenset
    ) -> Iterator[tuple[str, str]]:
        """Yield the files below *folder* that contain a value, as relative path and variable. Links are not followed.

        *mapped* returns the inodes of files that are written through shared memory, which are always searched.
        """
        if findings.secrets != self._wanted:
            self._clean, self._wanted = {}, findings.secrets
        wanted = [(name, forms(value)) for name, value in findings.values.items() if len(value) >= SHORTEST]
        known, self._clean = self._clean, {}
        if not wanted:
            return
        began = time.time_ns()
        unsettled = mapped()  # after *began*: a file that is mapped later gets a later timestamp
        for path in _files(folder):
            stamp = _stamp(path, began)
            if stamp is not None and stamp.inode in unsettled:
                stamp = None
            if stamp is not None and known.get(path) == stamp:
                self._clean[path] = stamp
                continue
            content = _content(path)
            if name := next((name for name, written in wanted if any(form in content for form in written)), ""):
                yield os.path.relpath(path, folder), name
            elif stamp is not None:
                self._clean[path] = stamp


def forms(value: str) -> tuple[bytes, ...]:
    """Return *value* in the forms a file may contain: plain, JSON, URL, base64, hex, UTF-16, and reversed.

    Reversed is by character and by byte. UTF-16 is in both byte orders, hex in both cases.
    """
    plain = value.encode("utf-8", "surrogateescape")
    in_hex = plain.hex().encode()
    written = (
        plain,
        json.dumps(value)[1:-1].encode(),
        quote(plain, safe="").encode(),
        base64.b64encode(plain),
        in_hex,
        in_hex.upper(),
        value.encode("utf-16-le", "surrogatepass"),
        value.encode("utf-16-be", "surrogatepass"),
        value[::-1].encode("utf-8", "surrogateescape"),
        plain[::-1],
    )
    return tuple(dict.fromkeys(written))


def _resolve(credential: Credential, variables: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the value, or None and why there is none."""
    if why := fault(credential):
        return None, why
    if credential.variable:
        value = variables.get(credential.variable)
        return value or None, f"{credential.variable!r} is not set here"
    if credential.file:
        try:
            with expanded(credential.file).open("rb") as file:
                return _text(file.read(VALUE_BYTES + 1))
        except OSError as error:
            return None, f"{credential.file!r} cannot be read ({error.strerror or error})"
    return _run_command(credential.command, variables)


def _run_command(command: Sequence[str], variables: Mapping[str, str]) -> tuple[str | None, str]:
    """Return what *command* prints; its stderr may contain a secret and is discarded."""
    try:
        done = subprocess.run(
            command,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return None, f"{command[0]!r} did not print it within {COMMAND_S:g} s"
    except OSError as error:
        return None, f"{command[0]!r} cannot be run ({error.strerror or error})"
    if done.returncode:
        return None, f"{command[0]!r} ended with exit code {done.returncode}"
    return _text(done.stdout)


def _text(content: bytes) -> tuple[str | None, str]:
    if len(content) > VALUE_BYTES:
        return None, f"it has more than {VALUE_BYTES} bytes"
    text = content.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
    if "\0" in text:
        return None, "it contains a NUL character"
    return (text, "") if text else (None, "it is empty")


def _files(folder: Path) -> Iterable[Path]:
    left = FILES
    for root, folders, names in os.walk(folder, followlinks=False):
        folders[:] = [name for name in folders if not os.path.islink(os.path.join(root, name))]  # noqa: PTH114, PTH118
        for name in names:
            left -= 1
            if left < 0:
                return
            yield Path(root, name)


class _Stamp(NamedTuple):
    """What changes with a file's content and cannot be set back."""

    inode: int
    size_bytes: int
    changed_ns: int


def _stamp(path: Path, began: int) -> _Stamp | None:
    """Return the stamp of *path*; None if it changed so shortly before *began* that a new change may keep the stamp."""
    try:
        found = path.lstat()
    except OSError:
        return None
    if began - found.st_ctime_ns < SETTLED_NS:
        return None
    return _Stamp(found.st_ino, found.st_size, found.st_ctime_ns)


def _content(path: Path) -> bytes:
    """Return the beginning of a regular file; empty for anything else, which could block."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return b""
        try:
            return file.read(FILE_BYTES)
        except OSError:
            return b""


PROC: Final = "/proc"
TOLD: Final = 5
"""How many places are listed."""


class CredentialLeaks:
    """Searches one sandbox. Each search reads what changed since the one before."""

    def __init__(self) -> None:
        self._searches: dict[str, CredentialSearch] = {}

    def in_files(self, folder: str, findings: CredentialFindings, mapped: Callable[[], Container[int]]) -> list[str]:
        """Return the files below *folder* that contain a value, each with the credential's name."""
        search = self._searches.setdefault(folder, CredentialSearch())
        return [f"{path} ({name})" for path, name in search.files_with(Path(folder), findings, mapped)]

    def beside_them(
        self, tier: SandboxTier, policy: SandboxPolicy, runtime: SandboxRuntime, findings: CredentialFindings
    ) -> list[str]:
        """Return where values are outside the workspace: files in memory and in the home, and initial environments.

        Empty if there are no values, or the tier is not inspectable.
        """
        if not findings.secrets or not isinstance(tier, InspectableTier):
            return []
        found = []
        for place, folder in tier.folders(policy, runtime).items():
            if folder.is_relative_to(PROC):  # older kernels do not update the time of in-memory files at such a write
                self._searches.pop(str(folder), None)
            files = self.in_files(str(folder), findings, find_mapped_inodes(tier, policy, runtime))
            found += [f"{place}/{file}" for file in files]
        for process, environ in tier.environments(policy, runtime):
            if names := holders(environ, findings):
                found.append(f"the environment of {process} ({names[0]})")
        return found


def find_mapped_inodes(
    tier: SandboxTier, policy: SandboxPolicy, runtime: SandboxRuntime | None
) -> Callable[[], Container[int]]:
    """Return a function for the inodes that processes inside write through shared memory; none if unavailable."""
    if runtime is None or not isinstance(tier, InspectableTier):
        return frozenset
    return lambda: tier.mapped(policy, runtime)


def format_paths(paths: list[str]) -> str:
    """Return the first `TOLD` of *paths* as text."""
    return ", ".join(paths[:TOLD]) + (f" and {len(paths) - TOLD} more" if len(paths) > TOLD else "")
