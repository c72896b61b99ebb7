"""The service on loopback, for a test module: where it is, and what it was asked."""

import contextlib
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kasmon.sandbox.e2b.service import Access
from kasmon.sandbox.jail.tree import raze


class Served:
    """A service that runs."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.access = Access(key=f"e2b_{'0' * 40}", api=url, sandbox=url)

    def asked(self, what: str = "") -> list[Any]:
        """What it was asked, oldest first: of one kind, or of all as pairs."""
        with urllib.request.urlopen(f"{self.url}/log") as answer:
            log = json.load(answer)
        return [told for kind, told in log if kind == what] if what else log


@contextlib.contextmanager
def served() -> Iterator[Served]:
    """A service for as long as the context is; nothing of it is left."""
    root = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    root.chmod(0o755)
    command = [sys.executable, "-P", "-m", "tests.sandbox.e2b_service", str(root)]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        yield Served(service.stdout.readline().strip())
    finally:
        service.terminate()
        service.wait(10)
        assert service.stdout is not None
        service.stdout.close()
        raze(root)
