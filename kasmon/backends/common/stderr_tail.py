"""The last words of a process: the end of what it wrote to its stderr, harmless to look at and without secrets."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from kasmon.sanitize import Clean, clean_block, redact

LINES: Final = 20
LINE_BYTES: Final = 2000
BLOCK_BYTES: Final = 1 << 16


class StderrTail:
    """What a process said last; *secrets* are values that must not be in there."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = _forms(secrets)
        self._said: deque[bytes] = deque(maxlen=LINES)

    @property
    def text(self) -> Clean:
        """The last lines, cleaned and without secrets."""
        return redact(clean_block(b"\n".join(self._said).decode("utf-8", "replace")), self._secrets)[0]

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Hear *reader* to its end; of a flood only the end is kept, of a long line the beginning."""
        kept = LINE_BYTES + max((len(secret.encode()) for secret in self._secrets), default=0)
        rest = b""
        while block := await reader.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            self._said.extend(self._short(line[:kept]) for line in lines if line.strip())
            rest = rest[:kept]
        if rest.strip():
            self._said.append(self._short(rest))

    def _short(self, line: bytes) -> bytes:
        """*line* without what is too long, cut where no secret is halved."""
        end = LINE_BYTES
        if len(line) <= end:
            return line
        for secret in (secret.encode() for secret in self._secrets):
            at = line.find(secret, max(0, end - len(secret) + 1))
            if 0 <= at < end:
                end = at + len(secret)
        return line[:end]


def _forms(secrets: Sequence[str]) -> tuple[str, ...]:
    """*secrets*, and how they look in last words: cleaned, and the lines of those that have several."""
    forms = {form for secret in secrets for form in (secret, clean_block(secret), *clean_block(secret).splitlines())}
    return tuple(sorted(forms, key=len, reverse=True))
