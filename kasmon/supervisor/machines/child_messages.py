"""Delivers what agents on a registered machine write to the agent here that started them, for the link to it.

As a message to a peer of a plan, each is an event in its sender's log there (`plans.peers.messages.hand_over`), and the
link finds it in its copy. The machine is not believed who started whom: `ChildRegister` has what the link itself
started there, and for which agent. How many agents are above a sender is counted from that, too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from kasmon.config.parser import load_or_default
from kasmon.errors import KasmonError, RefusedError, SessionEndedError
from kasmon.host.rpc.actor import find_depth
from kasmon.model.commands import ActingAgent
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import OVER, SessionState
from kasmon.paths import Paths
from kasmon.sanitize import clean_line
from kasmon.store.machines import ChildRegister
from kasmon.store.starters import Starters, find_ancestors, find_starter_elsewhere, read_starters
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.agents import find_limits
from kasmon.supervisor.machines.agent_requests import require_machine
from kasmon.supervisor.plans.peers import messages

log = logging.getLogger(__name__)

Refuse = Callable[[SessionId, Session, str], Awaitable[None]]
"""Tells a sender's agent that the agent of that session here did not get its message, and why."""


class Starter(NamedTuple):
    """The agent of another machine that started a session here, or the one above it."""

    id: SessionId
    name: str
    """Of its session; empty if its kasmon takes no messages."""
    machine: str
    """Its host name."""

    @property
    def checked_name(self) -> str:
        """Its name. Raises `RefusedError` if it gets no messages."""
        if not self.name:
            raise RefusedError(
                f"kasmon on {self.machine!r} delivers no messages to the agent that started yours.",
                hint="It is of an older version. Write it as your answer: that agent can read it.",
            )
        return self.name


def find_starter(places: Paths, session: SessionId, starters: Starters) -> Starter | None:
    """Return the agent of another machine above *session*, also above removed ones; None if there is none. Blocks."""
    if (actor := find_starter_elsewhere(session, starters)) is None:
        return None
    limits = find_limits(places, session)
    return Starter(actor.session, limits.starter if limits else "", actor.machine)


class ChildMessages:
    """Delivers the messages of the sessions below those in *register*; *refuse* tells a sender what was not delivered.

    A link that is killed meanwhile repeats the last one; its recipient takes it once, by its key.
    """

    def __init__(self, places: Paths, machine: str, register: ChildRegister, refuse: Refuse) -> None:
        self._places, self._machine, self._register, self._refuse = places, machine, register, refuse

    async def deliver(self) -> None:
        """Deliver what was written and is copied here by now, each sender's messages in their order.

        Raises:
            OSError: if what was delivered cannot be recorded.
        """
        fleet, starters = await asyncio.to_thread(lambda: (read_fleet(self._places), read_starters(self._places)))
        for sender in fleet.sessions:
            if sender.via == self._machine and sender.peer_messages > self._register.delivered(sender.id):
                line = self._line(sender, starters)
                if line:
                    await self._deliver(fleet, sender, line)

    def _line(self, sender: Session, starters: Starters) -> list[SessionId]:
        """Return *sender*, the sessions there above it, and the one here that had the last of them started.

        Empty if none had: the machine may say of any session there that an agent here started it.
        """
        line = list[SessionId]()
        for each in find_ancestors(sender.id, starters):
            line.append(each)
            if (starter := self._register.starter_of(each)) is not None:
                return [*line, starter]
        return []

    async def _deliver(self, fleet: Fleet, sender: Session, line: list[SessionId]) -> None:
        written = await asyncio.to_thread(messages.read_messages, self._places, sender.id)
        for number, message in enumerate(written, 1):
            if number <= self._register.delivered(sender.id):
                continue
            why, to = "", fleet.get(line[-1])
            try:
                recipient = await asyncio.to_thread(self._recipient, fleet, line[-1], message.to)
                depth = await asyncio.to_thread(find_depth, self._places, recipient.id) + len(line) - 1
                actor = ActingAgent(session=sender.id, depth=depth, machine=self._machine)
                key = f"{self._machine}.{sender.id}.{number}"
                await messages.send(self._places, sender, recipient, message.text, key, actor=actor)
            except (KasmonError, OSError) as error:
                why = error.message if isinstance(error, KasmonError) else str(error.strerror)
            await asyncio.to_thread(self._register.note_delivered, sender.id, number)
            if why:
                log.info("message %d of %s is not delivered: %s", number, sender.label, why)
            if why and to is not None:
                await self._refuse(sender.id, to, why)

    def _recipient(self, fleet: Fleet, starter: SessionId, to: str) -> Session:
        """Return the session of *starter*, if *to* is it and the person allows agents that machine. Blocks.

        Raises:
            RefusedError: if not.
            SessionEndedError: if it does not run: a link starts no agent.
            NotFoundError: if it was removed.
        """
        if to != starter:
            raise RefusedError(f"no agent of session {clean_line(to)[:64]!r} started yours.")
        require_machine(load_or_default(self._places).fleet.machines, self._machine)
        recipient = fleet.require(starter)
        if recipient.state in OVER:
            raise SessionEndedError(recipient.name, is_hibernated=recipient.state is SessionState.HIBERNATED)
        return recipient
