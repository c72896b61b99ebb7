"""The stderr tail of a process: the end of what it wrote there, sanitized and without secrets."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from kasmon.sanitize import Clean, clean_block, redact

LINES: Final = 20
LINE_BYTES: Final = 2000
BLOCK_BYTES: Final = 1 << 16


class StderrTail:
    """The last stderr lines of a process; *secrets* are values that must not appear in them."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = _secret_forms(secrets)
        self._lines: deque[bytes] = deque(maxlen=LINES)

    @property
    def text(self) -> Clean:
        """The last lines, cleaned and without secrets."""
        return redact(clean_block(b"\n".join(self._lines).decode("utf-8", "replace")), self._secrets)[0]

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Read *reader* to its end; keep only the last lines, and of a long line its beginning."""
        kept = LINE_BYTES + max((len(secret.encode()) for secret in self._secrets), default=0)
        rest = b""
        while block := await reader.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            self._lines.extend(self._truncate(line[:kept]) for line in lines if line.strip())
            rest = rest[:kept]
        if rest.strip():
            self._lines.append(self._truncate(rest))

    def _truncate(self, line: bytes) -> bytes:
        """Return *line* truncated, at a position that splits no secret."""
        end = LINE_BYTES
        if len(line) <= end:
            return line
        for secret in (secret.encode() for secret in self._secrets):
            at = line.find(secret, max(0, end - len(secret) + 1))
            if 0 <= at < end:
                end = at + len(secret)
        return line[:end]


def _secret_forms(secrets: Sequence[str]) -> tuple[str, ...]:
    """Return *secrets* in the forms in which they may appear: cleaned, and each line of those with several."""
    forms = {form for secret in secrets for form in (secret, clean_block(secret), *clean_block(secret).splitlines())}
    return tuple(sorted(forms, key=len, reverse=True))
