"""Opens a session of interpreters: its policy, its tier, its checkpoints and its terms, from where they are kept."""

import asyncio
from collections.abc import Callable

import msgspec

from kasmon.backends.base import Abilities, Agent
from kasmon.backends.interpreter.agent import InterpreterAgent
from kasmon.backends.interpreter.described import must_be_whole, policy_of
from kasmon.backends.interpreter.past import Past, past
from kasmon.backends.interpreter.turn import QUIET_S
from kasmon.config import in_force
from kasmon.errors import LogMissingError
from kasmon.model.command import Launch
from kasmon.model.event import Event
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Policy, Runtime
from kasmon.paths import Places, places, write_private
from kasmon.sandbox import tiers
from kasmon.sandbox.base import Sandbox
from kasmon.sandbox.box import Box
from kasmon.sandbox.journal import Journal
from kasmon.sandbox.keeping import Keeping
from kasmon.sandbox.lifecycle import terms_of
from kasmon.sandbox.within import Points, Within
from kasmon.store.log import EventLog


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of a sandbox come from."""

    tier: Callable[[Policy], Sandbox] = tiers.tier_of
    reach: Callable[[Runtime, str], Within] = tiers.reach
    points: Callable[[Places, SessionId], Points] = tiers.points


class InterpreterBackend:
    """Opens sessions of interpreters, each in the sandbox that its `sandbox.json` describes."""

    name = "interpreter"
    abilities = Abilities(streams=True, steers=True, resumes=True, interrupts=True, runs_code=True)

    def __init__(self, parts: Parts | None = None, quiet_s: float = QUIET_S) -> None:
        """*quiet_s*: how long nothing has to run until a turn is over."""
        self._parts = parts or Parts()
        self._quiet_s = quiet_s

    async def open(self, launch: Launch, /) -> Agent:
        """The session of *launch*; its sandbox is found again or made while its events are read.

        Raises:
            LaunchError: if nothing says what its sandbox is, or it is a copy that is not whole.
            UnableError: if its tier is not there.
        """
        return await asyncio.to_thread(self._opened, launch, asyncio.get_running_loop())

    def _opened(self, launch: Launch, loop: asyncio.AbstractEventLoop) -> Agent:
        here = places()
        must_be_whole(here, launch.session)
        policy, known = policy_of(here, launch.session), _past(here, launch.session)
        terms = terms_of(in_force(here).session)
        tier = self._parts.tier(policy)

        def box(write: Callable[[Event], None]) -> Box:
            journal = Journal(known.housing, write, tier=policy.tier, keeps_memory=tier.keeps_memory, terms=terms)
            return Box(tier, policy, journal, lambda runtime: self._parts.reach(runtime, launch.name))

        def keeping(box: Box) -> Keeping:
            points, inherited = self._parts.points(here, launch.session), here.inherited(launch.session)
            return Keeping(box, points, inherited)

        def keep_policy(changed: Policy) -> None:
            write_private(here.sandbox(launch.session), msgspec.json.encode(changed))

        return InterpreterAgent(here, launch, box, keeping, terms, loop, known, keep_policy, self._quiet_s)


def _past(here: Places, session: SessionId) -> Past:
    """What the facts so far say of its sandbox and its runs."""
    try:
        return past(event for event, _ in EventLog(here.log(session)).read())
    except LogMissingError:
        return past(())
