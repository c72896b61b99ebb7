"""Installs this kasmon on another machine over ssh: its own wheel, in a virtual environment of the user there."""

import base64
import hashlib
import io
import subprocess
import zipfile
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import kasmon
from kasmon import __version__
from kasmon.errors import RemoteUnreachableError, UnavailableError
from kasmon.tmux.remote.ssh import HEAD, OPTIONS, RemoteMachine, run_script, ssh_environment

FOLDER: Final = "~/.local/share/kasmon"
"""Where the virtual environment `venv` is there."""
COPY_S: Final = 120.0
INSTALL_S: Final = 600.0
"""How long pip may take there, in seconds; it downloads what kasmon needs."""
NAME: Final = f"kasmon-{__version__}-py3-none-any.whl"
WHEEL: Final = "Wheel-Version: 1.0\nGenerator: kasmon\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
DONE, NO_PYTHON, FAILED = "done", "no-python", "failed"
PYTHONS: Final = "python3 python3.14 python3.13 python3.12 python3.11"
SCRIPT: Final = f"""{HEAD}
folder={FOLDER}
for each in {PYTHONS}; do
    "$each" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    show
    {{ "$each" -m venv "$folder/venv" &&
        "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --force-reinstall "$folder/{NAME}"
    }} 2>&1 || say {FAILED}
    rm -f "$folder/{NAME}"
    say {DONE}
done
say {NO_PYTHON}
"""


def build_wheel() -> bytes:
    """Return the wheel of the kasmon that runs."""
    top = Path(kasmon.__file__).parent
    paths = (path for path in sorted(top.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    files = {f"kasmon/{path.relative_to(top).as_posix()}": path.read_bytes() for path in paths}
    described, info = distribution("kasmon"), f"kasmon-{__version__}.dist-info"
    files[f"{info}/METADATA"] = (described.read_text("METADATA") or "").encode()
    files[f"{info}/entry_points.txt"] = (described.read_text("entry_points.txt") or "").encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    listed = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items()]
    files[f"{info}/RECORD"] = "".join([*listed, f"{info}/RECORD,,\n"]).encode()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return whole.getvalue()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def install(destination: str, ssh: Sequence[str]) -> None:
    """Install this kasmon into `~/.local/share/kasmon/venv` at *destination*: no root, no port. Blocks.

    Raises:
        UnavailableError: if there is no suitable Python there, or pip fails; it has pip's last line.
        RemoteUnreachableError: if the machine cannot be reached.
    """
    _copy(destination, ssh, build_wheel())
    result = run_script(RemoteMachine(destination, tuple(ssh)), SCRIPT, ssh_environment(), INSTALL_S)
    if result.fields[:1] == [NO_PYTHON]:
        raise UnavailableError(
            f"{destination!r} has no Python 3.11 or newer with the modules venv and ensurepip.",
            hint="On Debian and Ubuntu the packages python3 and python3-venv have them.",
        )
    if result.fields[:1] != [DONE]:
        printed = result.shown.decode("utf-8", "replace").strip().splitlines() or ["it gave no reason"]
        raise UnavailableError(f"pip could not install kasmon on {destination!r}: {printed[-1].strip().rstrip('.')}.")


def _copy(destination: str, ssh: Sequence[str], wheel: bytes) -> None:
    argv = [*ssh, *OPTIONS, "-T", "--", destination, f"umask 077; mkdir -p {FOLDER} && cat >{FOLDER}/{NAME}"]
    try:
        copied = subprocess.run(
            argv, input=wheel, capture_output=True, timeout=COPY_S, env=ssh_environment(), cwd="/", check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RemoteUnreachableError(destination, f"it did not take the wheel within {COPY_S:g} s") from error
    except OSError as error:
        raise RemoteUnreachableError(destination, f"{argv[0]!r} cannot be run: {error.strerror}") from error
    if copied.returncode:
        printed = copied.stderr.decode("utf-8", "replace").strip().splitlines() or ["it gave no reason"]
        raise RemoteUnreachableError(destination, printed[-1].strip().rstrip("."))
