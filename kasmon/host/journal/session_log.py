"""Writes one session's events to its log, in order, and reads what an earlier host left; a full disk loses none.

The text of queued prompts that contain a secret is in a 0600 file of the runtime folder for as long as the prompt is
queued: the log has a mark in its place, and the next host needs the text. That folder does not outlive the machine's
boot: such a prompt is refused then, and never sent with the mark in it.
"""

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from kasmon import __version__
from kasmon.errors import KasmonError, LaunchError, LogMissingError, RefusedError, UsageError
from kasmon.host.journal.known_secrets import add_secrets
from kasmon.host.journal.redaction import Redactor
from kasmon.host.journal.secrets import secrets_of
from kasmon.model.commands import ReceiptId, ReceiptState
from kasmon.model.events import (
    EVENT_BYTES,
    EntryImported,
    Event,
    LogOpened,
    MessageWritten,
    NoticeRaised,
    ReceiptChanged,
    SessionEnded,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    encode,
)
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.paths import Paths, write_private
from kasmon.sanitize import HIDDEN_MARK
from kasmon.store.event_log import START, Cursor, EventLog
from kasmon.store.session_reader import load_initial_session, load_launch

FORGOTTEN: Final = "it contained a secret, so its text was not stored and was lost with the host; send it again"
"""Why a prompt is refused whose text is lost."""


class PendingPromptStore:
    """The text of *session*'s queued prompts that contain a secret. Blocks; the one writer holds the host's lock."""

    def __init__(self, paths: Paths, session: SessionId) -> None:
        self._paths = paths
        self._session = session
        self._texts: dict[ReceiptId, str] = {}
        with contextlib.suppress(OSError, KasmonError, msgspec.DecodeError, UnicodeDecodeError):
            self._texts = msgspec.json.decode(self._path.read_bytes(), type=dict[ReceiptId, str])

    def __getitem__(self, receipt: ReceiptId) -> str | None:
        return self._texts.get(receipt)

    def store_prompt_text(self, event: Event, written: Event) -> None:
        """Store the text of *event* if the log gets it only redacted, as *written*."""
        if isinstance(event, ReceiptChanged) and isinstance(written, ReceiptChanged) and event.prompt:
            texts = {name: text for name, text in self._texts.items() if name != event.receipt.id}
            if event.prompt != written.prompt and event.receipt.state is ReceiptState.QUEUED:
                texts[event.receipt.id] = event.prompt
            self._write(texts)

    def remove_prompt_texts(self, event: Event) -> None:
        """Remove the text of prompts that are no longer queued after *event*."""
        if isinstance(event, SessionEnded):
            self._write({})
        elif isinstance(event, ReceiptChanged) and event.receipt.state is not ReceiptState.QUEUED:
            self._write({name: text for name, text in self._texts.items() if name != event.receipt.id})

    def _write(self, texts: Mapping[ReceiptId, str]) -> None:
        if texts == self._texts:
            return
        self._texts = dict(texts)
        try:
            if texts:
                write_private(self._path, msgspec.json.encode(texts))
            else:
                self._path.unlink(missing_ok=True)
        except (OSError, KasmonError, UnicodeEncodeError) as error:
            import logging  # only here: the command line rarely logs, and it takes 4 ms to load

            logging.getLogger(__name__).warning("the words of a prompt that waits cannot be kept: %s", error)

    @property
    def _path(self) -> Path:
        return self._paths.waiting(self._session)


def has_mark(text: str) -> bool:
    """Whether *text* was redacted when it was written."""
    return re.search(HIDDEN_MARK, text) is not None


KEPT: Final = 16 * 1024
"""How many characters of each long text remain in the event itself: six bytes each at most, two texts at most."""


def fitted(event: Event, blobs: Path | None = None) -> Event:
    """Return *event* shortened to fit a line of the log. With *blobs*, its whole text is stored in that folder.

    Requests and queued prompts are never cut, however long: a user decides on the former, an agent gets the latter.

    Raises:
        OSError: if the folder cannot be written.
    """
    return event if len(encode(event)) <= EVENT_BYTES else _shorten(event, blobs)


def _shorten(event: Event, blobs: Path | None) -> Event:
    put = msgspec.structs.replace
    match event:
        case EntryImported():
            return put(event, entry=_shorten(event.entry, blobs))
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


UNWRITTEN = 10_000
"""How many events may be unwritten before the host should stop reading from its agent."""
INDEX_BYTES = 4 << 20
"""How much a log grows before the fleet's index is refreshed; indexing this much takes about 0.1 s."""
PEERS = 100
"""How many messages of peers are remembered, by their time."""


class SessionLog:
    """The log of one session, and the session state of its events. One writer per log: hold the host's lock.

    No secret of the session is written; the state is computed from the unredacted events.

    `append` is all that a synchronous host needs. A host on a loop calls `note` there, which touches no file, and
    `flush` in a thread. An event takes effect when it is noted. If the log cannot be written, the event is retained in
    order, and the next `append` or `flush` tries again.
    """

    def __init__(self, paths: Paths, session: SessionId, secrets: Iterable[str] = ()) -> None:
        """*secrets*: redacted in addition to the values of the session's own variables.

        Raises:
            RefusedError: if the log is a copy of another machine's.
        """
        if paths.via(session).exists():
            raise RefusedError(f"the log of session {session!r} is a copy: the host on its machine writes it.")
        self.paths = paths
        self.trouble = ""
        """Why the log cannot be written at the moment; empty while it can."""
        self.written = 0
        """How many of the events noted here are in the log."""
        self.noted = 0
        self.prompts: dict[ReceiptId, ReceiptChanged] = {}
        """The first event, which holds the prompt, of each queued receipt, oldest first."""
        self.peers_at: deque[float] = deque(maxlen=PEERS)
        """When the last messages of its peers arrived."""
        self.last_prompt = ""
        """The last prompt not sent by an agent, which identifies the agent's conversation."""
        self.listeners: list[Callable[[], object]] = []
        """Each is called after each event that was noted."""
        self._log = EventLog(paths.log(session))
        self._blobs = paths.blobs(session)
        self.redactor = Redactor()
        argv: tuple[str, ...] = ()
        with contextlib.suppress(LaunchError):
            argv = load_launch(paths, session).argv
        self.add_secrets((*secrets, *secrets_of(paths, session, argv)))
        self._waiting = PendingPromptStore(paths, session)
        self._indexed_at = START
        self._indexing: threading.Thread | None = None
        self._unwritten: deque[tuple[Event, bool]] = deque()
        self._writing = threading.Lock()
        self._is_abandoned = False
        self.session = load_initial_session(paths, session)
        with contextlib.suppress(LogMissingError):
            for event, _ in self._log.read():
                self._fold(event)
        if self._log.size() == 0:
            self.append(LogOpened(at=time.time(), session=session, kasmon=__version__))
        self._recall()

    @property
    def unwritten(self) -> int:
        """How many events are noted but not written."""
        return self.noted - self.written

    def append(self, event: Event, *, durable: bool = False) -> bool:
        """Note *event* and write it; False if the log cannot be written now. *durable*: true means on disk."""
        self.note(event, durable=durable)
        return self.flush()

    def note(self, event: Event, *, durable: bool = False) -> None:
        """Apply *event* now, to be written by the next `flush`. Touches no file.

        Raises:
            ValueError: if it cannot be encoded; it is not applied then.
        """
        try:
            fit = fitted(event)
        except (TypeError, RecursionError) as error:
            raise ValueError(f"no line of a log: {error}") from error
        self._fold(fit)
        self.noted += 1
        self._unwritten.append((event, durable))
        for listener in self.listeners:
            listener()

    def flush(self) -> bool:
        """Write the noted events, in order; false, with `trouble`, if some remain unwritten. May run in a thread."""
        with self._writing:
            if self._is_abandoned:
                self._unwritten.clear()
                self.written = self.noted
            while self._unwritten:
                event, durable = self._unwritten[0]
                try:
                    hidden = self.redactor.fact(event)
                    self._waiting.store_prompt_text(event, hidden)
                    self._refresh_index(self._log.append(fitted(hidden, self._blobs), durable=durable))
                    self._waiting.remove_prompt_texts(event)
                except OSError as error:
                    self.trouble = error.strerror or str(error)
                    return False
                self._unwritten.popleft()
                self.written += 1
            self.trouble = ""
            return True

    def _refresh_index(self, end: Cursor) -> None:
        """Refresh the fleet's index if the log, now up to *end*, grew much: listing stays cheap without a dashboard."""
        if end - self._indexed_at >= INDEX_BYTES and (self._indexing is None or not self._indexing.is_alive()):
            self._indexed_at = end
            self._indexing = threading.Thread(target=_refresh_index, args=(self.paths,), name="refreshes the index")
            self._indexing.start()

    def abandon(self) -> None:
        """Discard pending events and write nothing more, counting all as written: the session's folder is removed."""
        self._is_abandoned = True

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Redact *secrets* from now on, here and in this process's own log."""
        secrets = tuple(secrets)
        self.redactor.add_secrets(secrets)
        add_secrets(secrets)

    def restored(self, receipt: ReceiptId, text: str) -> str:
        """Return *text*, an edit of a queued prompt as the log has it, with its secrets in place of their marks.

        Raises:
            UsageError: if a redacted part of it was changed.
        """
        try:
            return self.redactor.restored(text, self.prompts[receipt].prompt)
        except ValueError as error:
            hint = "Leave each ⟨hidden: …⟩ unchanged and in place, or write the whole prompt again."
            raise UsageError(f"the prompt {receipt!r} cannot be changed like this: {error}.", hint=hint) from error

    def _recall(self) -> None:
        """Restore the text of queued prompts; refuse those whose text is lost."""
        for receipt in self.session.receipts:
            fact = self.prompts.get(receipt.id)
            if receipt.state is not ReceiptState.QUEUED or fact is None or not has_mark(fact.prompt):
                continue
            text = self._waiting[receipt.id]
            if text is not None:
                self.prompts[receipt.id] = msgspec.structs.replace(fact, prompt=text)
                continue
            refused = msgspec.structs.replace(receipt, state=ReceiptState.REFUSED, reason=FORGOTTEN, at=time.time())
            self.append(ReceiptChanged(at=refused.at, receipt=refused))

    def _fold(self, event: Event) -> None:
        if isinstance(event, ReceiptChanged) and event.by == "peer" and event.receipt.id == self.session.next_receipt():
            self.peers_at.append(event.at)
        self.session = apply(self.session, event)
        if isinstance(event, TurnStarted) and event.by != "agent" and event.prompt:
            self.last_prompt = event.prompt
        if isinstance(event, ReceiptChanged):
            if event.prompt:
                self.prompts[event.receipt.id] = event
            if event.receipt.state is not ReceiptState.QUEUED:
                self.prompts.pop(event.receipt.id, None)


def _refresh_index(paths: Paths) -> None:
    from kasmon.host.journal.fleet_index import refresh_index  # loads SQLite, which few hosts ever need

    refresh_index(paths)
