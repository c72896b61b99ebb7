"""tmux format strings for panes and screens, with the parser and the value type of each answer.

Lists contain only what tmux itself decides. Text that a program or a directory controls (titles, paths, names) is
requested for one pane at a time, each text prefixed with its length.
"""

import re
from collections.abc import Sequence

import msgspec

from kasmon.tmux.quoting import ID
from kasmon.tmux.server_config import JOINS_SINCE, parse

SEPARATOR = "|"
OWN_ID = re.compile(r"[A-Za-z0-9_-]*")


class CreatedPane(msgspec.Struct, frozen=True, kw_only=True):
    """A pane of kasmon's server, as of its creation."""

    pane_id: str
    window_id: str
    session_id: str
    """tmux's session id (`$3`), which a child session's window shares with its parent."""
    pid: int


PANE_FORMAT = "#{session_id}|#{window_id}|#{pane_id}|#{pane_pid}"


class PaneFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of one pane."""

    pane_id: str
    window_id: str
    session_id: str
    pid: int
    is_dead: bool
    status: int | None
    """The exit code, if the program exited by itself."""
    signal: int | None
    """The signal that ended it. With neither, tmux has not waited for the dead program yet, or is older than 3.3."""
    in_mode: bool
    """In copy mode or another mode: keys go to tmux, not to the program."""
    width: int
    height: int
    attached: int
    activity_at: int
    """When its window last had output."""
    kasmon_id: str
    """The session id passed to `create`."""
    ready: str
    """The last nonce that its launch announced."""
    in_hub: bool = False
    """Whether this entry is from the hub session, into which every window is linked."""

    @property
    def has_exit_status(self) -> bool:
        """Whether its program has ended and tmux knows its exit code or signal."""
        return self.is_dead and (self.status is not None or self.signal is not None)


HUB = "_km"
"""The session that our control client is attached to; every window of our server is linked into it."""

PANE_FACTS_FORMAT = (
    f"#{{==:#{{session_name}},{HUB}}}|"
    "#{pane_id}|#{window_id}|#{session_id}|#{pane_pid}|#{pane_dead}|#{pane_dead_status}|"
    "#{pane_dead_signal}|#{pane_in_mode}|#{pane_width}|#{pane_height}|#{session_attached}|"
    "#{window_activity}|#{@kasmon_id}|#{@kasmon_ready}"
)


class ScreenFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Size, cursor and modes of a pane's screen: its state besides the cells."""

    width: int
    height: int
    cursor_x: int
    cursor_y: int
    cursor_visible: bool
    cursor_shape: str
    """`block`, `underline`, `bar`, `default`; empty where tmux does not report it (before 3.6)."""
    mouse_standard: bool
    mouse_button: bool
    mouse_all: bool
    mouse_sgr: bool
    application_cursor: bool
    application_keypad: bool
    alternate: bool
    """The program uses the alternate screen; there is no history to scroll through."""
    in_mode: bool
    is_dead: bool
    history: int
    """Lines above the screen."""
    bracketed_paste: bool | None
    """None where tmux does not report it (before 3.7); `paste` brackets exactly if the program asked for it."""
    joins: bool = False
    """Whether this tmux stores a combined character in one cell (since 3.4) instead of one cell per part."""


SCREEN_FORMAT = (
    "#{pane_width}|#{pane_height}|#{cursor_x}|#{cursor_y}|#{cursor_flag}|#{cursor_shape}|"
    "#{mouse_standard_flag}|#{mouse_button_flag}|#{mouse_all_flag}|#{mouse_sgr_flag}|"
    "#{keypad_cursor_flag}|#{keypad_flag}|#{alternate_on}|#{pane_in_mode}|"
    "#{pane_dead}|#{history_size}|#{bracket_paste_flag}|#{version}"
)


class PaneText(msgspec.Struct, frozen=True, kw_only=True):
    """Texts that a pane's program controls. Untrusted: sanitize them before display."""

    title: str
    workdir: str
    command: str


TEXT_FIELDS = ("pane_title", "pane_current_path", "pane_current_command")
TEXT_FORMAT = ",".join(f"#{{n:{name}}}:#{{{name}}}" for name in TEXT_FIELDS)


def read_pane(line: bytes) -> CreatedPane | None:
    """Parse an answer to `PANE_FORMAT`; return None if it is not one."""
    fields = line.decode("ascii", "replace").strip().split(SEPARATOR)
    if len(fields) != 4 or not all(ID.fullmatch(field) for field in fields[:3]) or not fields[3].isdecimal():
        return None
    return CreatedPane(session_id=fields[0], window_id=fields[1], pane_id=fields[2], pid=int(fields[3]))


def read_pane_facts(line: bytes) -> PaneFacts | None:
    """Parse a line of `PANE_FACTS_FORMAT`; return None if it is not one."""
    fields = line.decode("ascii", "replace").split(SEPARATOR)
    if len(fields) != 15 or not all(ID.fullmatch(field) for field in fields[1:4]):
        return None
    in_hub, pane, window, session, pid, dead, status, signal, mode, width, height, attached, activity, own_id, ready = (
        fields
    )
    return PaneFacts(
        pane_id=pane,
        window_id=window,
        session_id=session,
        pid=_parse_number(pid),
        is_dead=dead == "1",
        status=int(status) if status.isdecimal() else None,
        signal=_parse_signal(signal),
        in_mode=_parse_number(mode) > 0,
        width=_parse_number(width),
        height=_parse_number(height),
        attached=_parse_number(attached),
        activity_at=_parse_number(activity),
        kasmon_id=own_id if OWN_ID.fullmatch(own_id) else "",
        ready=ready,
        in_hub=in_hub == "1",
    )


def distinct(panes: Sequence[PaneFacts]) -> list[PaneFacts]:
    """Return each pane once, with the facts of its own session, oldest first; panes only in the hub are left out."""
    owned = {facts.pane_id: facts for facts in panes if not facts.in_hub}
    return sorted(owned.values(), key=lambda facts: int(facts.pane_id[1:]))


def orphans(panes: Sequence[PaneFacts], own_window: str) -> list[str]:
    """Return the windows that only the hub still holds, because their session ended; without the hub's *own_window*."""
    held = {facts.window_id for facts in panes if not facts.in_hub}
    return sorted({facts.window_id for facts in panes if facts.in_hub} - held - {own_window})


def read_screen(line: bytes) -> ScreenFacts | None:
    """Parse an answer to `SCREEN_FORMAT`; return None if there is no such pane."""
    fields = line.decode("ascii", "replace").split(SEPARATOR)
    if len(fields) != 18 or not fields[0].isdecimal():
        return None
    flags = [_parse_number(field) > 0 for field in fields]
    return ScreenFacts(
        width=_parse_number(fields[0]),
        height=_parse_number(fields[1]),
        cursor_x=_parse_number(fields[2]),
        cursor_y=_parse_number(fields[3]),
        cursor_visible=flags[4],
        cursor_shape=fields[5],
        mouse_standard=flags[6],
        mouse_button=flags[7],
        mouse_all=flags[8],
        mouse_sgr=flags[9],
        application_cursor=flags[10],
        application_keypad=flags[11],
        alternate=flags[12],
        in_mode=flags[13],
        is_dead=flags[14],
        history=_parse_number(fields[15]),
        bracketed_paste=flags[16] if fields[16] else None,
        joins=parse(f"tmux {fields[17]}") >= JOINS_SINCE,
    )


def read_text(answer: bytes) -> PaneText:
    """Parse an answer to `TEXT_FORMAT`. A text whose length does not match (tmux 3.4 escapes some) is left empty."""
    title, workdir, command = (*split_texts(answer, len(TEXT_FIELDS)), "", "", "")[:3]
    return PaneText(title=title, workdir=workdir, command=command)


def split_texts(rest: bytes, count: int) -> list[str]:
    """Return the *count* texts in *rest*, each prefixed with its length; fewer if a length does not match."""
    texts: list[str] = []
    for _ in range(count):
        size, colon, rest = rest.partition(b":")
        if not colon or not size.isdigit() or rest[int(size) : int(size) + 1] not in (b",", b""):
            break
        texts.append(rest[: int(size)].decode("utf-8", "replace"))
        rest = rest[int(size) + 1 :]
    return texts


def _parse_number(field: str) -> int:
    return int(field) if field.isdecimal() else 0


def _parse_signal(field: str) -> int | None:
    if field.isdecimal():
        return int(field)
    # BSD and macOS report the signal's name without its SIG prefix.
    import signal

    return getattr(signal, f"SIG{field}", None) if field.isalpha() else None
