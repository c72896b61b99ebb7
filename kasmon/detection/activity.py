"""Finds the last message or tool call that a terminal agent shows above its composer. Pure."""

from typing import Final

from kasmon.detection.prompt_box import Composer
from kasmon.detection.rule_file import ScreenRules
from kasmon.detection.screenshot import Screenshot

LONGEST: Final = 200
COLUMN_GAP: Final = "    "
"""Text behind this many blanks belongs to another column of the screen, such as a sidebar."""


def last_activity(shot: Screenshot, box: Composer | None, rules: ScreenRules) -> str:
    """Return the last paragraph of the agent's last message, or its last tool call; empty if *shot* shows neither.

    *box* is the composer on *shot*. Without one a dialog covers the messages, and the result is empty.
    """
    found: list[str] = []
    is_open, is_below_blank = False, True
    for row in shot.rows[: box.first_row] if box is not None else ():
        text = row.seen
        if not text.strip():
            is_below_blank = True
            continue
        is_chrome = any(pattern.search(text) for pattern in rules.activity.none)
        first = [*rules.activity.first, *(rules.activity.alone if is_below_blank else ())]
        first, more = ([], ()) if is_chrome else (first, rules.activity.more)
        begins = next((match for pattern in first if (match := pattern.search(text))), None)
        goes_on = next((match for pattern in more if is_open and (match := pattern.search(text))), None)
        if begins is not None:
            found = [begins["text"]]
        elif goes_on is not None:
            found = [goes_on["text"]] if is_below_blank else [*found, goes_on["text"]]
        is_open, is_below_blank = begins is not None or goes_on is not None, False
    return " ".join(part.strip().partition(COLUMN_GAP)[0] for part in found)[:LONGEST]
