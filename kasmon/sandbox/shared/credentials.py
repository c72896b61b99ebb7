"""Credentials of a sandbox: looked up each time that something runs, in no file of ours, searched for in what is kept.

A value reaches the one command that is run, and the volatile files that its policy names. Before anything is kept of a
sandbox these files are emptied and the interpreters told to forget; what is kept then is searched for each value, in
the forms in which it is usually written (`forms`). What a program wrote down in another form is not found.
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

from kasmon.model.sandbox.policy import Credential
from kasmon.paths import expanded

COMMAND_S: Final = 10.0
"""How long a command may take to say a value, in seconds."""
VALUE_BYTES: Final = 64 * 1024
SHORTEST: Final = 6
"""A value of fewer characters is not searched for: it would be found everywhere."""
FILE_BYTES: Final = 4 * 1024 * 1024
SETTLED_NS: Final = 50_000_000
"""The clock of files stands still for a while: after so long one that changes has another time."""
FILES: Final = 20_000
"""A search looks into so much of so many files; what is beyond it is not said to be clean."""


class CredentialFindings(NamedTuple):
    """What a look for the values of credentials brought."""

    values: dict[str, str]
    """Variable -> value."""
    missing: tuple[str, ...]
    """Why some have none, each as one sentence."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that are long enough to be told from any other text, each once."""
        return tuple(dict.fromkeys(value for value in self.values.values() if len(value) >= SHORTEST))


def looked_up(credentials: Sequence[Credential], variables: Mapping[str, str] = os.environ) -> CredentialFindings:
    """The values of *credentials* now, each under its name and its aliases. Blocks up to `COMMAND_S` for each command.

    Args:
        credentials: where they come from; only these are looked up.
        variables: the environment of whoever asks.
    """
    values: dict[str, str] = {}
    missing: list[str] = []
    for credential in credentials:
        value, why = _value(credential, variables)
        if value is None:
            missing.append(f"The credential {credential.name!r} has no value: {why}.")
            continue
        values |= dict.fromkeys((credential.name, *credential.aliases), value)
    return CredentialFindings(values, tuple(missing))


def fault(credential: Credential) -> str:
    """What is wrong with how *credential* is described; empty where nothing is."""
    sources = [source for source in (credential.variable, credential.file, credential.command) if source]
    if len(sources) != 1:
        return f"the credential {credential.name!r} requires exactly one of variable, file and command"
    for name in (credential.name, *credential.aliases):
        if not name.isidentifier() or not name.isascii():
            return f"{name!r} is not a valid variable name"
    return ""


def holders(content: bytes, looked: CredentialFindings) -> tuple[str, ...]:
    """The variables whose value stands in *content*, in a form in which values are usually written."""
    return tuple(
        name
        for name, value in looked.values.items()
        if len(value) >= SHORTEST and any(form in content for form in forms(value))
    )


class CredentialSearch:
    """Looks for values in files, and not again into those that have not changed since they held none."""

    def __init__(self) -> None:
        self._clean: dict[Path, _Stamp] = {}
        self._wanted: tuple[str, ...] = ()

    def files_with(
        self, folder: Path, looked: CredentialFindings, mapped: Callable[[], Container[int]] = frozenset
    ) -> Iterator[tuple[str, str]]:
        """Yield the files below *folder* that hold a value, as path there and variable. Links are not followed.

        *mapped* tells the inodes of files that somebody writes to as to memory, which are always looked into.
        """
        if looked.secrets != self._wanted:
            self._clean, self._wanted = {}, looked.secrets
        wanted = [(name, forms(value)) for name, value in looked.values.items() if len(value) >= SHORTEST]
        known, self._clean = self._clean, {}
        if not wanted:
            return
        began = time.time_ns()
        unsettled = mapped()  # only now: what is mapped later changes a file's time, to one that is later too
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
    """*value* as it may stand in a file: itself, in JSON, in an address, in base64, in hex, in UTF-16, and reversed.

    Reversed means its characters, and its bytes. UTF-16 and hex are looked for in both orders and in both cases.
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


def _value(credential: Credential, variables: Mapping[str, str]) -> tuple[str | None, str]:
    """The value, or None and why there is none."""
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
    return _told(credential.command, variables)


def _told(command: Sequence[str], variables: Mapping[str, str]) -> tuple[str | None, str]:
    """What *command* prints; its own errors may hold a secret, and are not told."""
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
    """What changes with a file's content, and what nobody can set back."""

    inode: int
    size_bytes: int
    changed_ns: int


def _stamp(path: Path, began: int) -> _Stamp | None:
    """The stamp of *path*; None where it changed so shortly before *began* that it may change again without another."""
    try:
        found = path.lstat()
    except OSError:
        return None
    if began - found.st_ctime_ns < SETTLED_NS:
        return None
    return _Stamp(found.st_ino, found.st_size, found.st_ctime_ns)


def _content(path: Path) -> bytes:
    """The beginning of a plain file; nothing of anything else, which could keep us waiting."""
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
