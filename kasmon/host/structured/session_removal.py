"""Whether the folder of a host's session was removed: nobody finds the host then, and it has nowhere to write."""

import asyncio
from pathlib import Path
from typing import Final

LOOK_S: Final = 5.0
"""How often it is looked for. Only what is missing at two looks was removed: a folder may be missing for a moment."""


async def removed(folder: Path) -> None:
    """Return once *folder* was removed. One that cannot be looked at is taken to be there."""
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
