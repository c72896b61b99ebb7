"""Lists the panes of a foreign tmux server as candidates for adoption."""

from typing import Final

from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.sanitize import clean_line
from kasmon.tmux.foreign_server import ForeignServer
from kasmon.tmux.formats import split_texts
from kasmon.tmux.quoting import ID

TEXTS: Final = ("session_name", "window_name", "pane_title", "pane_current_path", "pane_current_command")
NUMBERS: Final = (
    "pane_id", "window_index", "pane_index", "pane_pid", "pane_width", "pane_height", "session_attached",
    "window_active", "pane_active", "pane_dead",
)  # fmt: skip
FORMAT: Final = (
    "|".join(f"#{{{name}}}" for name in NUMBERS) + "|" + ",".join(f"#{{n:{name}}}:#{{{name}}}" for name in TEXTS)
)
"""Numbers first, then each text, which a program or a person controls, prefixed with its length."""


def candidates(server: ForeignServer) -> list[AdoptablePane]:
    """Return every pane of *server*, by session and position. A pane in several sessions is listed under one of them.

    Raises:
        TmuxServerGoneError: if the server does not run.
    """
    by_id: dict[str, AdoptablePane] = {}
    for line in server.run("list-panes", "-a", "-F", FORMAT).split(b"\n"):
        candidate = read(line)
        if candidate is not None:
            by_id.setdefault(candidate.pane, candidate)
    return sorted(by_id.values(), key=lambda pane: (pane.session, pane.window_index, pane.pane_index))


def read(line: bytes) -> AdoptablePane | None:
    """Parse a line of `FORMAT`; return None if it is not one."""
    fields = line.split(b"|", len(NUMBERS))
    if len(fields) != len(NUMBERS) + 1:
        return None
    pane, *numbers = (field.decode("ascii", "replace") for field in fields[:-1])
    if not ID.fullmatch(pane) or not all(number.isdecimal() for number in numbers):
        return None
    texts = split_texts(fields[-1], len(TEXTS))
    if len(texts) < len(TEXTS):
        return None
    window, pane_number, pid, width, height, attached, active_window, active_pane, dead = map(int, numbers)
    return AdoptablePane(
        pane=pane,
        session=texts[0],
        window_index=window,
        pane_index=pane_number,
        window=clean_line(texts[1]),
        title=clean_line(texts[2]),
        workdir=texts[3],
        command=clean_line(texts[4]),
        pid=pid,
        width=width,
        height=height,
        attached=attached,
        is_active=bool(active_window and active_pane),
        is_shown=bool(active_pane),
        is_dead=bool(dead),
    )
