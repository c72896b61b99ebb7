"""The scripted agent as it is put into a sandbox that has nothing of kasmon: its modules find each other there."""

import os
import subprocess
import sys
from pathlib import Path

from kasmon.sandbox.remote_guest.scripted_agent import FOLDER, put

IMPORT_ALL = """
import importlib, pkgutil, sys
import kasmon
for module in pkgutil.walk_packages(kasmon.__path__, "kasmon."):
    if not module.name.endswith(("scripted.__main__", "terminal.__main__")):
        importlib.import_module(module.name)
print(*(name for name in sys.modules if name.startswith("kasmon.")))
"""


def test_its_modules_import_only_files_that_are_copied_too(tmp_path: Path) -> None:
    put(tmp_path, (os.getuid(), os.getgid()))
    environ = {"PYTHONPATH": str(tmp_path / FOLDER), "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, "-P", "-S", "-c", IMPORT_ALL], env=environ, cwd=tmp_path, capture_output=True, text=True
    )

    assert "" == done.stderr
    assert "kasmon.scripted_agent.terminal.program" in done.stdout.split()
