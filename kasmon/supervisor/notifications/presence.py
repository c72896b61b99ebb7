"""Whether the user is at the desk: when a key was last pressed in any dashboard, and whether the screen is locked."""

import contextlib
import os
import subprocess
from typing import Final

from kasmon.paths import Paths, private_folder, write_private

LOGIND_S: Final = 2.0


def note_key(paths: Paths, at: float) -> None:
    """Record that a key was pressed in a dashboard at *at*, in seconds since the epoch. Raises `OSError`."""
    private_folder(paths.notifications)
    if at > last_key_at(paths):
        write_private(paths.notifications / "last-key", f"{at:.3f}\n".encode())


def last_key_at(paths: Paths) -> float:
    """Return when a key was last pressed in any dashboard, in seconds since the epoch; 0 if never."""
    with contextlib.suppress(OSError, ValueError):
        return float((paths.notifications / "last-key").read_bytes())
    return 0.0


def is_screen_locked() -> bool:
    """Return whether logind says that the screen of this user's graphical session is locked. Blocks.

    False where there is no logind (macOS, containers), no graphical session, or a desktop that does not report it.
    """
    session = _ask_logind("show-user", str(os.getuid()), "--property=Display", "--value")
    if not session:
        return False
    return _ask_logind("show-session", session, "--property=LockedHint", "--value") == "yes"


def _ask_logind(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["loginctl", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LOGIND_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
