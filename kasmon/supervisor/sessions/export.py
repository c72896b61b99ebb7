"""Export one session as text: Markdown for people, JSON for programs. Both are redacted."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kasmon.errors import KasmonError, RefusedError, UsageError
from kasmon.host.journal.redaction import Redactor
from kasmon.host.journal.secrets import secrets_of
from kasmon.model.commands import Mode
from kasmon.model.events import EntryImported, Event, MessageWritten, ToolFinished, encode
from kasmon.model.session import Session
from kasmon.model.transcript import export
from kasmon.paths import Paths
from kasmon.store import terminal_record
from kasmon.store.session_reader import read_events
from kasmon.supervisor.machines.copied_files import copy_record, read_blob

Format: TypeAlias = Literal["markdown", "json", "html"]
SUFFIXES: Final[dict[Format, str]] = {"markdown": "md", "json": "json", "html": "html"}
CUT: Final = re.compile(r"\n… [\d,]+ more characters, blob ([0-9a-f]{64})\Z")
NOT_THERE: Final = "\n… the rest no longer exists"
NOT_RECORDED: Final = "… (some output was missed here)"


def as_markdown(paths: Paths, session: Session, turn: int = 0) -> str:
    """Return the transcript of *session*, then its recorded terminal output, without truncation.

    With *turn*, only that turn, as `export.turn_events`. Raises `UsageError` if there is no such turn.
    """
    copy_record(paths, session)
    redactor = Redactor(secrets_of(paths, session.id))
    whole = _read_whole(paths, session, turn)
    parts = [export.export_header(session), *export.export_events(whole, session.mode is Mode.TMUX)]
    parts.append(export.export_output(_format_output(paths, session)) if not turn else "")
    return redactor.line("".join(parts))


def as_html(paths: Paths, session: Session, turn: int = 0) -> str:
    """Return the transcript of *session*, or one *turn* of it, as a page that needs no other file.

    Raises `UsageError` if there is no such turn.
    """
    from kasmon.model.transcript.html import html_page  # only to share

    copy_record(paths, session)
    redactor = Redactor(secrets_of(paths, session.id))
    whole = _read_whole(paths, session, turn)
    return "".join(html_page(session, (redactor.fact(event) for event in whole)))


def _read_whole(paths: Paths, session: Session, turn: int) -> Iterator[Event]:
    """Yield the events of *session*, or of one *turn*, with their texts in full."""
    events: Iterable[Event] = read_events(paths, session.id)
    if turn and not (events := export.turn_events(events, turn)):
        raise UsageError(f"session {session.id!r} has no turn {turn}.", hint="1 is the first turn, -1 the last one.")
    return (_with_full_texts(paths, session, event) for event in events)


def as_objects(paths: Paths, session: Session) -> dict[str, Any]:
    """Return `events`: each event as logged; `terminal`: each recorded line with its number and time."""
    copy_record(paths, session)
    redactor = Redactor(secrets_of(paths, session.id))
    events = [_redact(event, redactor) for event in read_events(paths, session.id)]
    lines = terminal_record.number_lines(terminal_record.everything(paths.record(session.id)))
    terminal = [{"n": number, "at": at, "line": redactor.line(line)} for number, at, line in lines]
    return {"events": events, "terminal": terminal}


def write(path: Path, text: str) -> None:
    """Write *text* to a new file at *path* that only its owner can read.

    Raises `RefusedError` if *path* already exists, `KasmonError` if it cannot be written.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
    except FileExistsError as error:
        raise RefusedError(
            f"{str(path)!r} already exists.", hint="Choose another file; kasmon overwrites none."
        ) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise KasmonError(
            f"{str(path)!r} cannot be written: {why}.", hint="Choose a file in a folder that you can write to."
        ) from error


def write_beside(folder: Path, session: Session, text: str, format_: Format = "markdown") -> Path:
    """Write *text* to a new file in *folder* that is named after *session*; return its path. Raises as `write`."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", session.name).strip("-")[:60]
    stem = "-".join(part for part in ("kasmon", name, session.id) if part)
    for number in range(1, 1000):
        path = folder / f"{stem}{f'-{number}' if number > 1 else ''}.{SUFFIXES[format_]}"
        try:
            write(path, text)
        except RefusedError:
            continue
        return path
    raise KasmonError(os.strerror(errno.EEXIST), hint=f"{str(folder)!r} already contains a thousand exports of it.")


def _with_full_texts(paths: Paths, session: Session, event: Event) -> Event:
    replace = msgspec.structs.replace
    if isinstance(event, EntryImported):
        return replace(event, entry=_with_full_texts(paths, session, event.entry))
    if isinstance(event, MessageWritten) and event.blob:
        return replace(event, text=_blob(paths, session, event.blob, event.text), blob="")
    if isinstance(event, ToolFinished) and event.blob:
        whole = _blob(paths, session, event.blob, event.output)
        return replace(event, output=whole, diff=event.diff if whole.endswith(NOT_THERE) else "", blob="")
    for name in ("text", "input", "prompt"):
        text = getattr(event, name, None)
        if isinstance(text, str) and (cut := CUT.search(text)) is not None:
            return replace(event, **{name: _blob(paths, session, cut[1], text[: cut.start()])})
    return event


def _blob(paths: Paths, session: Session, digest: str, beginning: str) -> str:
    """Return the text of a blob; if it no longer exists, its *beginning* with a remark."""
    try:
        return read_blob(paths, session, digest)
    except OSError:
        return f"{beginning}{NOT_THERE}"


def _format_output(paths: Paths, session: Session) -> Iterator[str]:
    for each in terminal_record.everything(paths.record(session.id)):
        if each.gap:
            yield NOT_RECORDED
        yield from each.lines


def _redact(event: Event, redactor: Redactor) -> Any:
    line = encode(event)
    try:
        return msgspec.json.decode(redactor.line(line.decode("utf-8", "replace")))
    except (msgspec.DecodeError, RecursionError):
        return {"kind": "unknown", "at": event.at}
