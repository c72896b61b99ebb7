"""One call of codex that waits for the user: the requests to show, and the result for each decision."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kasmon.backends.common.json_access import Table
from kasmon.backends.common.open_calls import Labels
from kasmon.model.permission import Decision, Request, RequestId, SessionId

APPROVAL: Final = (Decision.ALLOW, Decision.DENY, Decision.CANCEL)
QUESTION: Final = (Decision.CHOOSE, Decision.DENY, Decision.CANCEL)


class CodexRequestContext(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId
    id: str
    """Prefix of the ids of its requests; unique for each call."""
    workdir: str
    now: float
    changes: Sequence[Table] = ()
    """The file changes of the item that it is about."""

    def request_id(self, n: int = 0) -> RequestId:
        return RequestId(f"{self.id}.{n}")


class CodexRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What codex asks in one call: one request, or several questions that are answered together."""

    requests: tuple[Request, ...]
    deny: Table
    """The result that denies it; the turn continues."""
    cancel: Table
    """The result that denies it and is to end the turn."""
    ends_turn: bool = False
    """Whether `cancel` alone ends the turn; otherwise it must be interrupted."""
    allow: Table = {}
    """The result that allows it."""
    compose: Callable[[Sequence[Labels]], Table] | None = None
    """For questions: builds the result from the labels chosen for each of them, in their order."""
    check: Callable[[int, Labels], object] | None = None
    """For questions: raises `UsageError` if these labels are no answer to the question of this number."""
