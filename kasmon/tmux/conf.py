"""How our tmux server is set up: everything in the file that it reads before it makes its first session."""

from kasmon.config.schema import Tmux
from kasmon.tmux.quote import word

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
