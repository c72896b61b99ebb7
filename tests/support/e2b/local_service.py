"""The service on loopback, for a test module: where it is, and what it was asked."""

import contextlib
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kasmon.sandbox.e2b.service import ServiceAccess
from kasmon.sandbox.shared.safe_tree import remove_tree


class Served:
    """A service that runs."""

    def __init__(self, url: str, process: "subprocess.Popen[str]") -> None:
        self.url, self._process, self.pid = url, process, process.pid
        self.access = ServiceAccess(key=f"e2b_{'0' * 40}", api=url, sandbox=url)

    def asked(self, what: str = "") -> list[Any]:
        """What it was asked, oldest first: of one kind, or of all as pairs."""
        with urllib.request.urlopen(f"{self.url}/log") as answer:
            log = json.load(answer)
        return [request for kind, request in log if kind == what] if what else log

    def end(self) -> None:
        self._process.kill()
        self._process.wait(60)

    def fails(self, path: str, **how: Any) -> None:
        """What goes to a path that has *path* in it is answered wrongly next: `status`, `half`, `late_s`, `times`."""
        asked = json.dumps({"path": path, "times": 1, **how}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/fault", asked)).close()

    def goes_on(self) -> None:
        """No more of that."""
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/fault", b"{}", method="DELETE")).close()


@contextlib.contextmanager
def served(sees: Mapping[str, Path] = {}) -> Iterator[Served]:
    """A service for as long as the context is; nothing of it is left.

    *sees*: what its template has beside this machine's own /usr: place inside -> where it lies here.
    """
    root = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    root.chmod(0o755)
    command = [sys.executable, "-P", "-m", "tests.support.e2b.service", str(root)]
    command += [f"{place}={path}" for place, path in sees.items()]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        yield Served(service.stdout.readline().strip(), service)
    finally:
        service.terminate()
        service.wait(60)
        assert service.stdout is not None
        service.stdout.close()
        remove_tree(root)
