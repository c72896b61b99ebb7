"""Events longer than a log line may be: their whole text is stored in a separate file named by its SHA-256."""

from pathlib import Path
from typing import Final

import msgspec

from kasmon.model.events import (
    EVENT_BYTES,
    EntryImported,
    Event,
    MessageWritten,
    NoticeRaised,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    encode,
)
from kasmon.paths import write_private

KEPT: Final = 16 * 1024
"""How many characters of each long text remain in the event itself: six bytes each at most, two texts at most."""


def fitted(event: Event, blobs: Path | None = None) -> Event:
    """Return *event* shortened to fit a line of the log. With *blobs*, its whole text is stored in that folder.

    Requests and queued prompts are never cut, however long: a user decides on the former, an agent gets the latter.

    Raises:
        OSError: if the folder cannot be written.
    """
    return event if len(encode(event)) <= EVENT_BYTES else _shortened(event, blobs)


def _shortened(event: Event, blobs: Path | None) -> Event:
    put = msgspec.structs.replace
    match event:
        case EntryImported():
            return put(event, entry=_shortened(event.entry, blobs))
        case MessageWritten():
            return put(event, text=event.text[:KEPT], blob=_store(event.text, blobs))
        case ToolFinished():
            whole = event.output + ("\n" + event.diff if event.diff else "")
            return put(event, output=event.output[:KEPT], diff=event.diff[:KEPT], blob=_store(whole, blobs))
        case ThoughtWritten() | NoticeRaised():
            return put(event, text=_cut(event.text, blobs))
        case ToolStarted():
            return put(event, title=event.title[:KEPT], input=_cut(event.input, blobs))
        case TurnStarted():
            return put(event, prompt=_cut(event.prompt, blobs))
        case _:
            return event


def _store(text: str, blobs: Path | None) -> str:
    import hashlib  # only here: few events are so long, and the library takes 4 ms to load

    content = text.encode("utf-8", "replace")
    digest = hashlib.sha256(content).hexdigest()
    if blobs is not None and not (blobs / digest).exists():
        blobs.mkdir(mode=0o700, exist_ok=True)
        write_private(blobs / digest, content)
    return digest


def _cut(text: str, blobs: Path | None) -> str:
    if len(text) <= KEPT:
        return text
    return f"{text[:KEPT]}\n… {len(text) - KEPT:,} more characters, blob {_store(text, blobs)}"
