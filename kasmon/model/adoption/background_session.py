"""A background session of Claude Code, which its own service runs, and how a word selects one. Pure."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kasmon.errors import NotFoundError, UsageError
from kasmon.sanitize import clean_line

KIND: Final = "background"
"""The kind of those in Claude Code's list; the others run in a terminal."""
LONGEST: Final = 200


class BackgroundSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session of `claude agents --json --all`. Its texts are cleaned."""

    id: str
    """By which `claude attach` opens it: the first eight characters of its conversation's id."""
    name: str = ""
    workdir: str = ""
    state: str = ""
    """In Claude Code's words: `working`, `blocked` (it needs input), `done`, `stopped`, `failed`."""
    status: str = ""
    """Of its process: `busy`, `waiting` or `idle`; empty if it has none."""
    waiting_for: str = ""
    conversation: str = ""
    pid: int | None = None
    """Its process; None if it has ended."""
    started_at: float = 0.0
    """In seconds since the epoch; 0 if unknown."""
    adopted: str = ""
    """The kasmon session that shows it already."""

    @property
    def label(self) -> str:
        return self.name or self.id

    @property
    def activity(self) -> str:
        """What it does, in a word or two. Its state stays `working` between turns."""
        if self.state == "blocked" or self.status == "waiting":
            return "needs input"
        return {"busy": "working"}.get(self.status, self.status) or self.state


class _Entry(msgspec.Struct, rename="camel"):
    """The fields that kasmon reads; all others are ignored."""

    id: str = ""
    kind: str = ""
    name: Any = ""
    cwd: Any = ""
    state: Any = ""
    status: Any = ""
    waiting_for: Any = ""
    session_id: Any = ""
    pid: Any = None
    started_at: Any = 0


def parse_list(output: bytes) -> tuple[BackgroundSession, ...]:
    """Return the background sessions in the *output* of `claude agents --json --all`, in its order.

    Raises:
        ValueError: if it is not such a list.
    """
    try:
        entries = msgspec.json.decode(output, type=list[_Entry])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("it is no list of sessions") from error
    return tuple(_session(entry) for entry in entries if entry.kind == KIND and _is_id(entry.id))


def _session(entry: _Entry) -> BackgroundSession:
    started_at = entry.started_at / 1000 if isinstance(entry.started_at, int | float) else 0.0
    return BackgroundSession(
        id=entry.id,
        name=_text(entry.name),
        workdir=entry.cwd if isinstance(entry.cwd, str) else "",
        state=_text(entry.state),
        status=_text(entry.status),
        waiting_for=_text(entry.waiting_for),
        conversation=_text(entry.session_id),
        pid=entry.pid if isinstance(entry.pid, int) and entry.pid > 0 else None,
        started_at=started_at,
    )


def _text(value: object) -> str:
    return clean_line(value)[:LONGEST] if isinstance(value, str) else ""


def _is_id(text: str) -> bool:
    """Whether *text* can be an id: it becomes an argument of a command."""
    return 0 < len(text) <= 64 and text[0].isalnum() and all(each.isalnum() or each in "-_" for each in text)


def find_background(target: str, among: Sequence[BackgroundSession]) -> BackgroundSession:
    """Return the session that *target* means: its id, its conversation's id, or its name.

    Raises:
        UsageError: if several have this name.
        NotFoundError: if none matches.
    """
    found = [one for one in among if target in (one.id, one.conversation)] or [
        one for one in among if one.name and one.name == clean_line(target)
    ]
    if len(found) > 1:
        raise UsageError(
            f"{target!r} is ambiguous: it matches {len(found)} background sessions.",
            hint=f"Use {found[0].id} or {found[1].id}.",
        )
    if not found:
        ids = ", ".join(one.id for one in among) or "none"
        raise NotFoundError(
            f"Claude Code has no background session {target!r}.",
            hint=f"It has: {ids}. `kasmon ls --background` lists them.",
        )
    return found[0]
