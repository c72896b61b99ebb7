"""Which tmux is there, and whether it will do."""

import re

MINIMUM = (3, 2)
"""Flow control, format subscriptions and pane options came with 3.2."""

JOINS_SINCE = (3, 4)
"""What is seen as one character (an emoji with its variation, its skin, its joiners) has one place from here on."""

UNRELEASED = (99, 0)


def parse(answer: str) -> tuple[int, int]:
    """The version in what `tmux -V` says: (3, 3) for `tmux 3.3a` and for `tmux next-3.3`.

    A tmux without a number (`tmux master`) is newer than any release; what is no tmux at all is (0, 0).
    """
    if number := re.search(r"(\d+)\.(\d+)", answer):
        return int(number[1]), int(number[2])
    return UNRELEASED if re.fullmatch(r"tmux (master|openbsd\S*)", answer.strip()) else (0, 0)
