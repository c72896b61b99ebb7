"""Whether a restore that failed did so before anything ran: by what runsc itself says of it, and by nothing else.

It makes the sandbox, hands it the memory, and only when all of that is loaded lets its programs go on; whatever fails
before that, it tells in words of its own, and ends with a status. Where its line to the sandbox broke, it was killed,
or took too long, nobody knows: then something may have run.
"""

import re
from typing import Final

from kasmon.errors import SandboxError

MAKING: Final = re.compile(r"(?:running container: )?creating container: ")
"""It made the sandbox, and had not handed it the memory."""
LOADING: Final = re.compile(r'(?:running container: )?starting container: restoring container "[^"]*": (.+)')
"""What the sandbox answered when it was to load the memory: after that it only lets go."""
NOBODY_KNOWS: Final = re.compile(r"EOF|connection|broken pipe|closed|signal|starting|time(d )?out", re.IGNORECASE)
"""In such an answer: it is not the sandbox's, or one of its last step."""


class NeverRanError(SandboxError):
    """Nothing was begun, and nothing ran meanwhile."""


def never_ran(status: int, said: str) -> bool:
    """Whether a runsc that ended with *status*, negative for a signal, and *said* that last, let nothing run. Pure."""
    if status <= 0:
        return False
    loading = LOADING.match(said)
    return bool(MAKING.match(said)) or (loading is not None and not NOBODY_KNOWS.search(loading[1]))
