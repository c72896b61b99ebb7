"""Opens interpreter sessions: loads the policy, tier, checkpoints and lifetime terms of each."""

import asyncio
from collections.abc import Callable

import msgspec

from kasmon.backends.base import Abilities, Agent
from kasmon.backends.interpreter.agent import InterpreterAgent
from kasmon.backends.interpreter.run_history import RunHistory, past
from kasmon.backends.interpreter.turns import QUIET_S
from kasmon.config import load_or_default
from kasmon.errors import LaunchError, LogMissingError, SandboxError
from kasmon.model.commands import Launch
from kasmon.model.events import Event
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.paths import Paths, user_paths, write_private
from kasmon.sandbox import tiers
from kasmon.sandbox.base import SandboxTier
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.managed.checkpoints import SandboxCheckpoints
from kasmon.sandbox.managed.idle_policy import origin_of, terms_of
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.managed.sandbox import ManagedSandbox
from kasmon.store.event_log import EventLog


class SandboxParts(msgspec.Struct, frozen=True, kw_only=True):
    tier: Callable[[SandboxPolicy], SandboxTier] = tiers.tier_of
    reach: Callable[[SandboxRuntime, str], GuestChannel] = tiers.connect_guest
    points: Callable[[Paths, SessionId], CheckpointStore] = tiers.checkpoint_store


class InterpreterBackend:
    """Opens interpreter sessions, each in the sandbox that its `sandbox.json` describes."""

    name = "interpreter"
    abilities = Abilities(streams=True, steers=True, resumes=True, interrupts=True, runs_code=True)

    def __init__(self, parts: SandboxParts | None = None, quiet_s: float = QUIET_S) -> None:
        """*quiet_s*: how long nothing must run until a turn is over."""
        self._parts = parts or SandboxParts()
        self._quiet_s = quiet_s

    async def open(self, launch: Launch, /) -> Agent:
        """Return the session of *launch*; its sandbox is found or created while its events are read.

        Raises:
            LaunchError: if nothing describes its sandbox, or it is an incomplete copy.
            UnableError: if its tier is unavailable.
        """
        return await asyncio.to_thread(self._opened, launch, asyncio.get_running_loop())

    def _opened(self, launch: Launch, loop: asyncio.AbstractEventLoop) -> Agent:
        paths = user_paths()
        must_be_whole(paths, launch.session)
        try:
            policy = tiers.policy_of(paths, launch.session)
        except SandboxError as error:
            raise LaunchError(error.message) from error
        history = _load_history(paths, launch.session)
        terms = terms_of(load_or_default(paths).session)
        tier = self._parts.tier(policy)

        def create_sandbox(write: Callable[[Event], None]) -> ManagedSandbox:
            journal = SandboxJournal(
                history.sandbox_state, write, tier=policy.tier, keeps_memory=tier.keeps_memory, terms=terms
            )
            return ManagedSandbox(tier, policy, journal, lambda runtime: self._parts.reach(runtime, launch.name))

        def create_checkpoints(sandbox: ManagedSandbox) -> SandboxCheckpoints:
            points, inherited = self._parts.points(paths, launch.session), paths.inherited(launch.session)
            return SandboxCheckpoints(sandbox, points, inherited)

        def store_policy(changed: SandboxPolicy) -> None:
            write_private(paths.sandbox(launch.session), msgspec.json.encode(changed))

        return InterpreterAgent(
            paths, launch, create_sandbox, create_checkpoints, terms, loop, history, store_policy, self._quiet_s
        )


def must_be_whole(paths: Paths, session: SessionId) -> None:
    """Check that *session* can start. Raises `LaunchError` if it is an incomplete copy of another one."""
    origin = origin_of(paths, session)
    if origin is not None and not origin.is_whole:
        raise LaunchError(f"the copy of {origin.name!r} that it starts from is incomplete.")


def _load_history(paths: Paths, session: SessionId) -> RunHistory:
    try:
        return past(EventLog(paths.log(session)).events())
    except LogMissingError:
        return past(())
