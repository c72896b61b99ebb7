"""Shows one desktop notification: `python -m kasmon.tui.gateway.desktop_notification`, with the alert as JSON on stdin.

It is a process of its own, as a desktop library may hang, print, or catch the terminal's signals, which would harm the
dashboard. Exit code 0: shown; 3: there is no library for it; 1: it could not be shown, stderr has the reason.
"""

import asyncio
import json
import logging
import sys
from typing import Final

MISSING: Final = 3
FOREIGN: Final = str.maketrans({"<": "‹", ">": "›", "&": "+"})
"""Some desktops parse a notification as markup; the text of agents is not markup."""


class DesktopFailures(logging.Handler):
    """Collects the failures that the library logs: it raises nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.reasons.append(str(error) if error else record.getMessage())


def main() -> int:
    """Show the notification given on stdin."""
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
