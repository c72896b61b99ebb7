"""One thing that codex asks, whatever its kind: what a person sees of it, and what codex is told for each decision."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from kasmon.backends.common.json_access import Table
from kasmon.model.permission import Decision, Request, RequestId, SessionId

Labels: TypeAlias = tuple[str, ...]
APPROVAL: Final = (Decision.ALLOW, Decision.DENY, Decision.CANCEL)
QUESTION: Final = (Decision.CHOOSE, Decision.DENY, Decision.CANCEL)


class CodexRequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where something is asked."""

    session: SessionId
    id: str
    """Begins the ids of its requests; no two things that are asked have the same."""
    workdir: str
    now: float
    changes: Sequence[Table] = ()
    """What the item that it is about would change in files."""

    def request_id(self, n: int = 0) -> RequestId:
        """The id of its *n*th request."""
        return RequestId(f"{self.id}.{n}")


class CodexRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What codex asks in one call: one request, or several questions that are answered together."""

    requests: tuple[Request, ...]
    deny: Table
    """The result of the call that denies it; the turn goes on."""
    cancel: Table
    """The result that denies it where the turn shall end."""
    ends_turn: bool = False
    """Whether `cancel` alone ends the turn; otherwise it must be interrupted."""
    allow: Table = {}
    """The result that allows it."""
    compose: Callable[[Sequence[Labels]], Table] | None = None
    """For questions: the result that carries the labels chosen for each of them, in their order."""
    check: Callable[[int, Labels], object] | None = None
    """For questions: raises `UsageError` if these labels are no answer to the question of this number."""
