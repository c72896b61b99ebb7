"""Opens an address in the user's browser, by the desktop's own opener program."""

import asyncio
import shutil
import sys
from asyncio.subprocess import DEVNULL
from typing import Final

from kasmon.errors import RefusedError, UnavailableError
from kasmon.tui.terminal.links import is_link

OPENERS: Final = ("open",) if sys.platform == "darwin" else ("xdg-open", "wslview")
OPEN_S: Final = 3.0
"""How long to wait for the opener to fail, in seconds; some run for as long as the browser does."""


async def open_address(address: str) -> None:
    """Open *address*, which is http or https, in a browser.

    Raises:
        RefusedError: for any other address.
        UnavailableError: if there is no opener program here, or it fails.
    """
    if not is_link(address):
        raise RefusedError("only http and https addresses are opened.")
    opener = next((path for name in OPENERS if (path := shutil.which(name))), None)
    if opener is None:
        raise UnavailableError(
            f"cannot open a browser: {OPENERS[0]!r} is not on PATH.", hint="Copy the address instead."
        )
    running = await asyncio.create_subprocess_exec(
        opener, address, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
    )
    try:
        async with asyncio.timeout(OPEN_S):
            code = await asyncio.shield(running.wait())
    except TimeoutError:
        return
    if code:
        raise UnavailableError(f"{OPENERS[0]} could not open the address.", hint="Copy the address instead.")
