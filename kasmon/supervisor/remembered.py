"""The memories of sandboxes that lie on this machine's disk, and what a forked one began as: for whoever lists them.

Read from what lies there; no host need be alive. Blocks: use a thread.
"""

import functools

import msgspec

from kasmon.errors import KasmonError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import REMEMBERING, Policy, Tier
from kasmon.model.session import Session
from kasmon.model.snapshot import Judged, Origin
from kasmon.paths import Places
from kasmon.sandbox import tiers
from kasmon.sandbox.base import Recorded, Sandbox
from kasmon.sandbox.origin import origin_of
from kasmon.supervisor.housing import policy_of_session


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What of one session's sandbox lies on disk beside its files and its checkpoints."""

    snapshots: tuple[Judged, ...] = ()
    missing: str = ""
    """Why there is no memory though its facts say that it sleeps in one; empty where all is as it should be."""
    origin: Origin | None = None
    """What it began as, where it was forked."""


class Memory:
    """Looks at memories; what a tier needs for that is found out once."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._load = functools.cache(lambda tier: tiers.load(tier, places))

    def of(self, session: Session, *, whole: bool = False) -> Remembered:
        """What lies on disk of the sandbox of *session*; read through only where it is told of the *whole*."""
        origin = origin_of(self._places, session.id)
        tier = session.sandbox
        if session.housing is None or tier not in REMEMBERING:
            return Remembered(origin=origin)
        try:
            judged = self._judged(session.id, session.housing.tier, whole)
        except (KasmonError, OSError) as error:
            return Remembered(missing=_why(error), origin=origin)
        if judged is None:
            sleeps = session.housing.is_asleep and not session.housing.held
            return Remembered(missing="it is not there any more" if sleeps and tier != "e2b" else "", origin=origin)
        return Remembered(snapshots=(judged,), origin=origin)

    def _judged(self, session: SessionId, tier: Tier, whole: bool) -> Judged | None:
        sandbox: Sandbox = self._load(tier)
        policy: Policy = policy_of_session(self._places, session)
        return sandbox.judged(policy, whole=whole) if isinstance(sandbox, Recorded) else None


def _why(error: KasmonError | OSError) -> str:
    return (error.message if isinstance(error, KasmonError) else error.strerror or str(error)).rstrip(".")
