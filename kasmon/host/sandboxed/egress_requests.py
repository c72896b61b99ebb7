"""Requests for hosts that a sandbox was refused: opened in the inbox, and executed as the user answers."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.errors import KasmonError, UsageError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.session.request_registry import RequestRegistry
from kasmon.model.commands import Answer
from kasmon.model.events import NoticeRaised
from kasmon.model.permission import Decision, Request, RequestId, SessionId
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths, write_private
from kasmon.sandbox import tiers
from kasmon.sandbox.base import EgressTier
from kasmon.sandbox.network.allowlist import PRESETS, allowlist, judge
from kasmon.sandbox.network.denials import Denial
from kasmon.sandbox.tiers import policy_of

LOOK_S: Final = 1.0
"""How often the refusals are read, in seconds."""
ONCE_S: Final = 600.0
"""How long "once" allows a host, in seconds: the refused attempt has failed and must be repeated."""
TOOL: Final = "Network"
MOST: Final = 10
"""The most such requests open at once, since sandboxed code chooses the hosts."""
AT_REST: Final = frozenset({SessionState.STARTING, SessionState.IDLE})
"""In other states, a preset's host (npm, pypi, github) is asked about although the policy refuses it silently:
the agent's work may need it, and not only its program."""
CHOICES: Final = (Decision.ALLOW, Decision.ALWAYS, Decision.DENY)

log = logging.getLogger(__name__)


class EgressRequests:
    """Opens requests for the hosts that one session's sandbox was refused; none while one is open or was denied."""

    def __init__(
        self,
        paths: Paths,
        session: SessionId,
        requests: RequestRegistry,
        log_writer: LogWriter,
        add_permanently: Callable[[str], Awaitable[None]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            add_permanently: adds an entry to the sandbox's list permanently; None: to its policy's file.
            now: a clock, in seconds, for the end of "once".
        """
        self._paths = paths
        self._session = session
        self._requests = requests
        self._log_writer = log_writer
        self._add_permanently = add_permanently or self._save_in_policy
        self._now = now
        self._entries: dict[RequestId, str] = {}
        self._denied: set[str] = set()
        self._once: dict[str, float] = {}
        """The entries that are allowed once -> until when, by the clock *now*."""
        self._since = time.time()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Watch the refusals from now on. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    async def aclose(self) -> None:
        """Stop that. Idempotent."""
        await cancel_and_wait(self._task)

    async def answer(self, answer: Answer, who: str) -> None:
        """Accept *answer* of the user at terminal *who* to one of these requests, and execute it.

        Raises:
            UsageError: if its scope exceeds this sandbox; nothing was done then.
            KasmonError: as `RequestRegistry.accept`; or if the sandbox's list cannot be changed, which is noted too.
        """
        if answer.decision is Decision.ALWAYS and answer.scope != "session":
            raise UsageError(
                f"a host can be allowed for one sandbox only, not for the {answer.scope}.", hint="Leave the scope out."
            )
        if self._requests.accept(answer, who=who) is None:
            return
        entry = self._entries.pop(answer.request)
        try:
            await self._execute(answer.decision, entry)
        except (KasmonError, OSError) as error:
            text = f"{entry} is not allowed: {error}"
            self._log_writer.note(NoticeRaised(at=time.time(), text=text, level="error"))
            raise

    async def _execute(self, decision: Decision, entry: str) -> None:
        if decision is Decision.DENY:
            self._denied.add(entry)
            return
        if decision is Decision.ALWAYS:
            await self._add_permanently(entry)
            self._once.pop(entry, None)
        else:
            self._once[entry] = self._now() + ONCE_S
        await asyncio.to_thread(self._apply, tuple(self._once))

    async def _watch(self) -> None:
        await self._try(asyncio.to_thread(self._apply, ()))  # what an earlier host allowed once has ended
        while True:
            await asyncio.sleep(LOOK_S)
            await self._try(self._check())

    async def _try(self, work: Awaitable[None]) -> None:
        try:
            await work
        except (KasmonError, OSError):  # it is paused or gone; the next look shows which
            log.debug("the refusals of sandbox %s cannot be read", self._session, exc_info=True)

    async def _check(self) -> None:
        now = self._now()
        if over := [entry for entry, until in self._once.items() if until <= now]:
            for entry in over:
                del self._once[entry]
            await asyncio.to_thread(self._apply, tuple(self._once))
        for denial in await asyncio.to_thread(self._refusals, self._since):
            self._open(denial)

    def _open(self, denial: Denial) -> None:
        still_open = {ask.id for ask in self._log_writer.session.requests}
        self._entries = {id_: entry for id_, entry in self._entries.items() if id_ in still_open}
        known = {*self._entries.values(), *self._denied, *self._once}
        if denial.entry in known or len(self._entries) >= MOST:
            return
        opened = self._requests.open_own(_request(self._session, denial))
        self._entries[opened] = denial.entry

    def _refusals(self, since: float) -> list[Denial]:
        """Return the refusals after *since* that need a request. Blocks."""
        policy = policy_of(self._paths, self._session)
        tier = tiers.load(policy.tier, self._paths)
        fresh = tier.denials(policy, since) if isinstance(tier, EgressTier) else ()
        self._since = max([since, *(each.at for each in fresh)])
        silent = allowlist(policy.refuse)
        if self._log_writer.session.state not in AT_REST:
            silent = tuple(entry for entry in silent if entry not in allowlist(PRESETS))
        return [
            each
            for each in fresh
            if each.entry and each.entry not in policy.hosts and not judge(silent, each.host, each.port).allowed
        ]

    def _apply(self, once: tuple[str, ...]) -> None:
        """Allow the hosts of its policy, and *once*. Blocks."""
        policy = policy_of(self._paths, self._session)
        tier = tiers.load(policy.tier, self._paths)
        if isinstance(tier, EgressTier):
            tier.allow(msgspec.structs.replace(policy, hosts=(*policy.hosts, *once)))

    async def _save_in_policy(self, entry: str) -> None:
        def add_to_policy() -> None:
            policy = policy_of(self._paths, self._session)
            wider = msgspec.structs.replace(policy, hosts=(*policy.hosts, entry))
            write_private(self._paths.sandbox(self._session), msgspec.json.encode(wider))

        await asyncio.to_thread(add_to_policy)


def _request(session: SessionId, denial: Denial) -> Request:
    where = f"{denial.host}:{denial.port}"
    return Request(
        id=RequestId(f"egress {denial.entry}"),
        session=session,
        tool=TOOL,
        title=f"reach {where}",
        input={"host": denial.host, "port": denial.port, "entry": denial.entry},
        shown=f"Code in the sandbox tried to reach {where} and was refused. Anything it sends there leaves "
        "the sandbox.\n"
        f"allow: {denial.entry} for {ONCE_S / 60:.0f} minutes; always: {denial.entry} for this sandbox, also after a "
        "restart; deny: you are not asked again until a restart.",
        why=denial.why,
        rule=f"reach {denial.entry} from this sandbox",
        choices=CHOICES,
    )
