"""The config file of kasmon's tmux server, and the tmux versions that kasmon supports."""

import re

from kasmon.config.schema import Tmux
from kasmon.tmux.quoting import quote_text

MINIMUM = (3, 2)
"""Flow control, format subscriptions and pane options came with 3.2."""

JOINS_SINCE = (3, 4)
"""Since this version, a combined character (an emoji with variation, skin tone, joiners) occupies one cell."""

UNRELEASED = (99, 0)


def parse(answer: str) -> tuple[int, int]:
    """Return the version in the output of `tmux -V`: (3, 3) for `tmux 3.3a` and for `tmux next-3.3`.

    A tmux without a number (`tmux master`) counts as newer than any release; anything that is no tmux is (0, 0).
    """
    if number := re.search(r"(\d+)\.(\d+)", answer):
        return int(number[1]), int(number[2])
    return UNRELEASED if re.fullmatch(r"tmux (master|openbsd\S*)", answer.strip()) else (0, 0)


CELLS = (120, 40)
"""The size of a session without clients: columns and rows."""

HISTORY_LINES = Tmux().history_limit
"""The default length of a terminal's history, in lines."""

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
bind -n F12 detach-client
"""
"""The part that is the same on every machine. It unbinds the right-button menus, which can kill and split panes."""


def configuration(terminal: str, history_lines: int = HISTORY_LINES) -> str:
    """Return the conf file of our server; *terminal* is the terminfo name (`TERM`) of its panes."""
    columns, rows = CELLS
    return SERVER.lstrip() + (
        f"set -s default-terminal {quote_text(terminal)}\n"
        f"set -g history-limit {history_lines}\n"
        f"set -g default-size {columns}x{rows}\n"
        "set -g default-command ''\n"
    )
