"""The config file of the tmux server of kasmon, and the versions of tmux that kasmon supports."""

import re

from kasmon.config.schema import Tmux
from kasmon.tmux.quoting import word

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


CELLS = (120, 40)
"""The size of a session that nobody looks at: columns and rows."""

HISTORY_LINES = Tmux().history_limit
"""How many lines that scrolled away a terminal keeps where nobody set that."""

SERVER = """
set -s exit-empty off
set -s escape-time 0
set -s focus-events on
set -s set-clipboard off
set -s extended-keys on
set -s buffer-limit 100
set -s terminal-features[100] '*:RGB:extkeys:focus'
set -g status off
set -g prefix None
set -g prefix2 None
set -g mouse on
set -g update-environment ''
set -g destroy-unattached off
set -g detach-on-destroy on
set -g visual-bell off
set -g visual-activity off
set -g bell-action any
set -g display-time 2000
set -g set-titles off
set -g lock-after-time 0
set -gw remain-on-exit on
set -gw window-size latest
set -gw aggressive-resize off
set -gw allow-rename off
set -gw automatic-rename off
set -gw monitor-activity off
set -gw monitor-bell on
set -gwq allow-passthrough off
unbind -n MouseDown3Pane
unbind -n M-MouseDown3Pane
bind -n C-] detach-client
"""
"""What stays the same on every machine. The menus of the right button go because they could kill and split."""


def configuration(terminal: str, history_lines: int = HISTORY_LINES) -> str:
    """The conf file of our server, whose panes are told that they are a *terminal* (a terminfo name)."""
    columns, rows = CELLS
    return SERVER.lstrip() + (
        f"set -s default-terminal {word(terminal)}\n"
        f"set -g history-limit {history_lines}\n"
        f"set -g default-size {columns}x{rows}\n"
        "set -g default-command ''\n"
    )
