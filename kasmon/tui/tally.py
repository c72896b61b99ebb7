"""The fleet's totals, kept as it changes: what forty sessions say anew among five thousand is forty sums."""

from collections import Counter
from collections.abc import Iterable

from kasmon.model.fleet import Totals
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.state import SessionState


class Tally:
    """Says what `kasmon.model.fleet.totals` says, of the sessions that it was told of."""

    def __init__(self) -> None:
        self._counted: dict[SessionId, Session] = {}
        self._states: Counter[SessionState] = Counter()
        self._crashed = self._requests = self._tokens = 0
        self._cost_usd = 0.0

    def __len__(self) -> int:
        return len(self._counted)

    def take(self, changed: Iterable[Session], gone: Iterable[SessionId]) -> None:
        """Count *changed* as they are now, and *gone* no more."""
        for session in changed:
            self._add(self._counted.pop(session.id, None), -1)
            self._add(session, 1)
            self._counted[session.id] = session
        for session_id in gone:
            self._add(self._counted.pop(session_id, None), -1)

    def totals(self) -> Totals:
        """What there is now."""
        return Totals(
            states=dict(self._states),
            crashed=self._crashed,
            requests=self._requests,
            tokens=self._tokens,
            cost_usd=max(0.0, self._cost_usd),
        )

    def _add(self, session: Session | None, sign: int) -> None:
        if session is None:
            return
        self._states[session.state] += sign
        self._crashed += sign * session.crashed
        self._requests += sign * len(session.asks)
        self._tokens += sign * (session.tokens.input + session.tokens.output if session.tokens else 0)
        self._cost_usd += sign * (session.cost_usd or 0.0)
