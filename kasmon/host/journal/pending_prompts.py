"""The text of queued prompts that contain a secret: the log has a mark in its place, and the next host needs the text.

They are in a 0600 file of the runtime folder, beside the sockets, for as long as the prompt is queued. That folder does
not outlive the machine's boot: such a prompt is refused then, and never sent with the mark in it.
"""

import contextlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import KasmonError
from kasmon.model.commands import ReceiptId, ReceiptState
from kasmon.model.events import Event, ReceiptChanged, SessionEnded
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, write_private
from kasmon.sanitize import HIDDEN_MARK

FORGOTTEN: Final = "it contained a secret, so its text was not stored and was lost with the host; send it again"
"""Why a prompt is refused whose text is lost."""

log = logging.getLogger(__name__)


class PendingPromptStore:
    """The text of *session*'s queued prompts that contain a secret. Blocks; the one writer holds the host's lock."""

    def __init__(self, places: Paths, session: SessionId) -> None:
        self._places = places
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
            log.warning("the words of a prompt that waits cannot be kept: %s", error)

    @property
    def _path(self) -> Path:
        return self._places.waiting(self._session)


def has_mark(text: str) -> bool:
    """Whether *text* was redacted when it was written."""
    return re.search(HIDDEN_MARK, text) is not None
