"""The guest program's private folder for files to its interpreters: mode 0700, in memory where possible."""

import contextlib
import os


def program(name: str) -> str:
    """Return the path of a program. Raises `FileNotFoundError` if the sandbox has none of that name."""
    for folder in os.environ.get("PATH", os.defpath).split(":"):
        path = f"{folder or '.'}/{name}"
        if os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112
            return path
    raise FileNotFoundError(2, f"{name} is not installed in this sandbox")


class PrivateFolder:
    """Created on first use, and again if code removed it."""

    def __init__(self) -> None:
        roots = (os.environ.get("TMPDIR", ""), "/run")
        root = next((root for root in roots if root and os.access(root, os.W_OK)), "/tmp")
        self.path = f"{root}/kasmon-{os.urandom(6).hex()}"

    def write(self, name: str, data: bytes) -> str:
        """Write the file *name*, and return its path."""
        path = f"{self.path}/{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            file = os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.mkdir(self.path, mode=0o700)  # noqa: PTH102
            file = os.open(path, flags, 0o600)
        with open(file, "wb", buffering=0) as whole:  # noqa: PTH123
            whole.write(data)
        return path

    def read(self, name: str) -> bytes:
        """Return the content of the file *name*; empty where it does not exist."""
        try:
            with open(f"{self.path}/{name}", "rb") as file:  # noqa: PTH123
                return file.read()
        except OSError:
            return b""

    def drop(self, *names: str) -> None:
        """Remove these files, where they exist."""
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}/{name}")  # noqa: PTH108

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.drop(*os.listdir(self.path))  # noqa: PTH208
            os.rmdir(self.path)  # noqa: PTH106
