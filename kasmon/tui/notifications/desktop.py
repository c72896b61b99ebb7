"""Shows one note on the desktop: `python -m kasmon.tui.notifications.desktop`, with the call as JSON on its stdin.

A process of its own, because what talks to a desktop may hang, print, or take the terminal's signals, and a dashboard
must not. Exit code 0: the desktop has it; 3: there is no library for it; 1: it could not be shown, stderr says why.
"""

import asyncio
import json
import logging
import sys
from typing import Final

MISSING: Final = 3
FOREIGN: Final = str.maketrans({"<": "‹", ">": "›", "&": "+"})
"""Some desktops read a note's text as markup; what agents say is none."""


class DesktopFailures(logging.Handler):
    """What the library says went wrong: it raises nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.reasons.append(str(error) if error else record.getMessage())


def main() -> int:
    """Show the note that stands on stdin."""
    note = json.load(sys.stdin)
    try:
        from desktop_notifier import DesktopNotifier
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        return MISSING
    failures = DesktopFailures()
    log = logging.getLogger("desktop_notifier")
    log.addHandler(failures)
    log.propagate = False
    title, text = (str(note[part]).translate(FOREIGN) for part in ("title", "text"))

    async def show() -> None:
        await DesktopNotifier(app_name="kasmon").send(title=title, message=text)

    asyncio.run(show())
    if failures.reasons:
        sys.stderr.write(f"{failures.reasons[0]}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
