"""The log of what was decided and done about sessions that wait for a usage limit. Any kasmon process may append."""

import contextlib
from collections.abc import Mapping
from typing import Final

import msgspec

from kasmon.errors import LogMissingError, UnavailableError
from kasmon.model.limits.resume import ResumeFact, Resumption, apply_resume
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, private_folder
from kasmon.store.event_log import START, EventLog

_decoder: Final = msgspec.json.Decoder(ResumeFact)


class ResumeLog:
    """The resumptions, folded as far as they were read."""

    def __init__(self, paths: Paths) -> None:
        self.resumptions: Mapping[SessionId, Resumption] = {}
        self._paths = paths
        self._log = EventLog(paths.limits / "resume.jsonl")
        self._cursor = START

    def size(self) -> int:
        return self._log.size()

    def more(self) -> None:
        """Fold the events added since the last call; lines that this version cannot read are left out.

        Raises:
            OSError: if the log exists and cannot be read.
        """
        try:
            for line, cursor in self._log.lines(self._cursor):
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    self.resumptions = apply_resume(self.resumptions, _decoder.decode(line))
                self._cursor = cursor
        except LogMissingError:
            return

    def add(self, fact: ResumeFact) -> None:
        """Append *fact* durably, and fold it and all events that others wrote before it.

        Raises:
            UnavailableError: if it cannot be written.
        """
        try:
            private_folder(self._paths.limits)
            self._log.append(fact, durable=True)
            self.more()
        except OSError as error:
            raise UnavailableError(f"cannot write {str(self._log.path)!r}: {error.strerror or error}.") from error


def read_resumptions(paths: Paths) -> Mapping[SessionId, Resumption]:
    """Return what was decided and done about each session that waits for a limit.

    Raises:
        OSError: if the log exists and cannot be read.
    """
    resume_log = ResumeLog(paths)
    resume_log.more()
    return resume_log.resumptions
