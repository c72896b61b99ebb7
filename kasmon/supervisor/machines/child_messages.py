"""Delivers what agents on a registered machine write to the agent here that started them, for the link to it.

As a message to a peer of a plan, each is an event in its sender's log there (`plans.peers.messages.hand_over`), and the
link finds it in its copy. The machine is not believed who started whom: `ChildRegister` has what the link itself
started there, and for which agent. How many agents are above a sender is counted from that, too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from kasmon.config.parser import load_or_default
from kasmon.errors import KasmonError, RefusedError, UsageError
from kasmon.host.rpc.actor import find_depth
from kasmon.model.commands import ActingAgent
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sanitize import clean_line
from kasmon.store.machines import ChildRegister
from kasmon.store.starters import Starters, find_ancestors, find_starter_elsewhere, read_starters
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.agents import find_limits
from kasmon.supervisor.machines.agent_requests import require_machine
from kasmon.supervisor.plans.peers import messages

log = logging.getLogger(__name__)

Refuse = Callable[[SessionId, SessionId, Sequence[str]], Awaitable[None]]
"""Tells the agent of the first session that the one of the second, here, did not get messages, and why, for each."""


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


def find_starter(paths: Paths, session: SessionId, starters: Starters) -> Starter | None:
    """Return the agent of another machine above *session*, also above removed ones; None if there is none. Blocks."""
    if (actor := find_starter_elsewhere(session, starters)) is None:
        return None
    limits = find_limits(paths, session)
    return Starter(actor.session, limits.starter if limits else "", actor.machine)


def forget_removed(paths: Paths, machine: str, register: ChildRegister, removed: Sequence[SessionId]) -> None:
    """Remove the sessions *removed* of *machine*'s list, and those above them, from *register*. Blocks.

    One stays while a session below it is listed: the messages of that are delivered by it.
    """
    starters = read_starters(paths)
    listed = [each.id for each in read_fleet(paths).sessions if each.via == machine]
    needed = {above for each in listed for above in find_ancestors(each, starters)}
    for each in dict.fromkeys(above for session in removed for above in find_ancestors(session, starters)):
        if each not in needed:
            register.remove(each)


class ChildMessages:
    """Delivers the messages of the sessions below those in *register*; *refuse* tells a sender what was not delivered.

    A link that is killed meanwhile repeats the last one; its recipient takes it once, by its key.
    """

    def __init__(self, paths: Paths, machine: str, register: ChildRegister, refuse: Refuse) -> None:
        self._paths, self._machine, self._register, self._refuse = paths, machine, register, refuse

    async def deliver(self) -> None:
        """Deliver what was written and is copied here by now, each sender's messages in their order. Raises `OSError`.

        After all that, each sender is told once what was not delivered, as it may take long.
        """
        fleet, starters = await asyncio.to_thread(lambda: (read_fleet(self._paths), read_starters(self._paths)))
        refused = list[tuple[SessionId, SessionId, list[str]]]()
        for sender in fleet.sessions:
            if sender.via == self._machine and sender.peer_messages > self._register.delivered(sender.id):
                line = self._line(sender, starters)
                if line and (reasons := await self._deliver(sender, line)):
                    log.info("%d messages of %s are not delivered: %s", len(reasons), sender.label, reasons[0])
                    refused.append((sender.id, line[-1], reasons))
        for session, starter, reasons in refused:
            await self._refuse(session, starter, reasons)

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

    async def _deliver(self, sender: Session, line: list[SessionId]) -> list[str]:
        """Deliver the new messages of *sender*, and return why some were not, one reason for each.

        Once its recipient takes none, the rest is not sent to it.
        """
        written = await asyncio.to_thread(messages.read_messages, self._paths, sender.id)
        reasons, takes_none = list[str](), ""
        for number, message in enumerate(written, 1):
            if number <= self._register.delivered(sender.id):
                continue
            why = takes_none
            if message.to != line[-1]:
                why = f"no agent of session {clean_line(message.to)[:64]!r} started yours."
            elif not takes_none:
                try:
                    await self._send(sender, line, message.text, number)
                except UsageError as error:  # the next message may be valid
                    why = error.message
                except (KasmonError, OSError) as error:
                    why = takes_none = error.message if isinstance(error, KasmonError) else str(error.strerror)
            if why:
                reasons.append(why)
            else:
                await asyncio.to_thread(self._register.note_delivered, sender.id, number)
        if reasons:
            await asyncio.to_thread(self._register.note_delivered, sender.id, len(written))
        return reasons

    async def _send(self, sender: Session, line: list[SessionId], text: str, number: int) -> None:
        recipient = await asyncio.to_thread(self._recipient, line[-1])
        depth = await asyncio.to_thread(find_depth, self._paths, recipient.id) + len(line) - 1
        actor = ActingAgent(session=sender.id, depth=depth, machine=self._machine)
        key = f"{self._machine}.{sender.id}.{number}"
        await messages.send(self._paths, sender, recipient, text, key, actor=actor, resumes=False)

    def _recipient(self, starter: SessionId) -> Session:
        """Return the session of *starter*. Blocks. Raises `KasmonError` if no agent may reach that machine."""
        require_machine(load_or_default(self._paths).fleet.machines, self._machine)
        return read_fleet(self._paths).require(starter)
