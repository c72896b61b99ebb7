"""Whether the folder of a host's session was removed: the host cannot be found then, and cannot write."""

import asyncio
from pathlib import Path
from typing import Final

LOOK_S: Final = 5.0
"""The interval of checks. Only a folder missing in two checks was removed: it may be missing for a moment."""


async def removed(folder: Path) -> None:
    """Return once *folder* was removed. One that cannot be checked counts as existing."""
    missing = 0
    while missing < 2:
        await asyncio.sleep(LOOK_S)
        missing = missing + 1 if await asyncio.to_thread(_is_missing, folder) else 0


def _is_missing(folder: Path) -> bool:
    try:
        folder.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
