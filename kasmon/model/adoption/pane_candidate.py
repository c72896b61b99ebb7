"""A pane of the user's own tmux that kasmon may adopt, and how a target selects one. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kasmon.errors import NotFoundError, UsageError
from kasmon.sanitize import clean_line


class AdoptablePane(msgspec.Struct, frozen=True, kw_only=True):
    """One pane of the user's own tmux. Its texts are cleaned."""

    pane: str
    session: str
    window_index: int
    pane_index: int
    window: str
    title: str
    workdir: str
    command: str
    pid: int
    width: int
    height: int
    attached: int
    is_active: bool
    """The pane that a client attached to its session shows."""
    is_shown: bool
    """The active pane of its window."""
    is_dead: bool
    agent: str = ""
    """The recognised agent in it; empty if it is none that kasmon knows."""
    adopted: str = ""
    """The kasmon session that has already adopted it."""

    @property
    def target(self) -> str:
        """Its tmux target: `session:window.pane`."""
        return f"{self.session}:{self.window_index}.{self.pane_index}"


def find_pane(target: str, among: Sequence[AdoptablePane]) -> AdoptablePane:
    """Return the pane that *target* means: `%5`, `session`, `session:window` or `session:window.pane`, in whole names.

    A session alone is its active pane; a window is given by its number or its name.

    Raises:
        UsageError: if several match.
        NotFoundError: if none matches.
    """
    session, _, window = target.partition(":")
    number, _, pane = window.rpartition(".") if window.rpartition(".")[2].isdecimal() else (window, "", "")
    number = number or window
    if target.startswith("%"):
        found = [one for one in among if one.pane == target]
    elif not window:
        found = [one for one in among if one.session == target and one.is_active]
    else:
        in_window = [one for one in among if one.session == session and window in (str(one.window_index), one.window)]
        found = [one for one in in_window if one.is_shown] or [
            one
            for one in among
            if one.session == session and number in (str(one.window_index), one.window) and pane == str(one.pane_index)
        ]
    if len(found) > 1:
        raise UsageError(
            f"{target!r} is ambiguous: it matches {len(found)} panes.",
            hint=(f"Use {found[0].pane} or {found[1].pane}."),
        )
    if not found:
        names = ", ".join(dict.fromkeys(clean_line(one.session) for one in among)) or "none"
        raise NotFoundError(
            f"there is no pane {target!r} in this tmux.",
            hint=f"Its sessions: {names}. `kasmon ls --tmux` lists the panes.",
        )
    return found[0]


def default_socket(variables: Mapping[str, str], uid: int, own: Path) -> Path:
    """Return the socket of the user's own tmux: the server this runs in, else the default; never kasmon's *own*."""
    socket = variables.get("TMUX", "").rpartition(",")[0].rpartition(",")[0]
    if socket and Path(socket) != own:
        return Path(socket)
    return Path(variables.get("TMUX_TMPDIR") or "/tmp") / f"tmux-{uid}" / "default"
