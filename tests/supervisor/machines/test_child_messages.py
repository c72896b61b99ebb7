"""What agents on another machine wrote to the agent here that started them: delivered, or refused and told."""

import asyncio
import os
from collections.abc import Sequence

import msgspec
import pytest

from kasmon import __version__
from kasmon.config import Config
from kasmon.errors import RefusedError, SessionEndedError
from kasmon.host.rpc import codec
from kasmon.host.rpc.frames import ExecuteCommand, Hello, Welcome
from kasmon.host.session.peer_limits import MOST
from kasmon.model.commands import ActingAgent, Mode
from kasmon.model.events import LogOpened, PeerMessageWritten, SessionCreated, SessionForgotten
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from kasmon.store.machines import ChildRegister, Machine, write_machine
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.hibernation.hibernate import hibernate
from kasmon.supervisor.machines.agent_requests import REASON_LENGTH, refusal_of_messages
from kasmon.supervisor.machines.child_messages import ChildMessages, forget_removed
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from tests.support.supervisor.env import NOW, Env, becomes, launch, started

MACHINE = "gpu-1"
CHILD, LOW = SessionId("childaaa"), SessionId("lowaaaaa")
LEAD = SessionId("leadaaaa")
"""A session here that was removed."""
HIBERNATED = SessionState.HIBERNATED


class Delivery:
    """One run of what the link does, and what it told whom."""

    def __init__(self, env: Env) -> None:
        self.told: list[tuple[SessionId, SessionId, list[str]]] = []
        self.register = ChildRegister(env.paths, MACHINE)
        self._paths = env.paths

    async def deliver(self) -> None:
        await ChildMessages(self._paths, MACHINE, self.register, self._tell).deliver()

    async def _tell(self, sender: SessionId, recipient: SessionId, reasons: Sequence[str]) -> None:
        self.told.append((sender, recipient, [*reasons]))


@pytest.fixture
def delivery(env: Env) -> Delivery:
    write_machine(env.paths, Machine(name=MACHINE))
    env.paths.config.mkdir(parents=True, exist_ok=True)
    env.paths.config_file.write_text(f'[fleet]\nmachines = ["{MACHINE}"]\n')
    return Delivery(env)


async def lead(env: Env) -> Session:
    new = NewSession(name="lead", agent="scripted", mode=Mode.SDK, workdir="/", prompt="say one", speed=0.0)
    session = await session_operations.create(env.paths, Config(), new)
    return await becomes(env, session, lambda now: now.state is SessionState.IDLE and now.turns == 1)


async def hibernated(env: Env) -> Session:
    session = await lead(env)
    await hibernate(env.paths, session)
    return await becomes(env, session.id, lambda now: now.state is HIBERNATED)


def child(env: Env, session: SessionId, *messages: tuple[str, str], starter: SessionId | None = None) -> None:
    """A session there with *messages*, each a recipient and a text."""
    actor = ActingAgent(session=starter) if starter else None
    env.says(SessionCreated(at=NOW, launch=launch(session, actor=actor), machine=MACHINE, via=MACHINE))
    env.paths.folder(session).mkdir(mode=0o700)
    write_private(env.paths.via(session), f"{MACHINE}\n".encode())
    written = (PeerMessageWritten(at=NOW, to=to, name="lead", text=text) for to, text in messages)
    env.tells(session, LogOpened(at=NOW, session=session), *written)


def senders(session: Session) -> list[ActingAgent | None]:
    """Who sent the messages that a session got."""
    return [each.actor for each in session.receipts if each.by == "peer"]


def agent(session: SessionId, depth: int = 1) -> ActingAgent:
    return ActingAgent(session=session, depth=depth, machine=MACHINE)


async def now(env: Env, session: SessionId) -> Session:
    return (await asyncio.to_thread(read_fleet, env.paths)).require(session)


async def test_messages_over_the_limit_are_refused_once_together(env: Env, delivery: Delivery) -> None:
    to = await lead(env)
    await asyncio.to_thread(child, env, CHILD, *((to.id, f"text {number}") for number in range(MOST + 3)))
    await asyncio.to_thread(delivery.register.add, CHILD, to.id)

    await delivery.deliver()

    assert [(CHILD, to.id, [f"'lead' received {MOST} peer messages within 60 s."] * 3)] == delivery.told
    assert (
        MOST + 3
        == delivery.register.delivered(CHILD)
        == (await asyncio.to_thread(ChildRegister, env.paths, MACHINE)).delivered(CHILD)
    )
    await delivery.deliver()
    assert 1 == len(delivery.told)


async def test_no_more_is_sent_to_a_session_that_accepted_nothing(env: Env, delivery: Delivery) -> None:
    await asyncio.to_thread(lambda: env.has(LEAD, started(), name="lead"))
    await asyncio.to_thread(env.hosts, LEAD)
    await asyncio.to_thread(child, env, CHILD, *[(LEAD, "x")] * 3)
    await asyncio.to_thread(delivery.register.add, CHILD, LEAD)
    tried = list[str]()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        unpacker = codec.Unpacker()
        while data := await reader.read(1 << 16):
            for frame in map(codec.decode_client_frame, unpacker.feed(data)):
                if isinstance(frame, Hello):
                    writer.write(codec.pack(Welcome(n=frame.n, pid=os.getpid(), kasmon=__version__)))
                elif isinstance(frame, ExecuteCommand):
                    tried.append(frame.session)
                    writer.write(codec.pack(codec.failed(frame.n, RefusedError("too many."))))
        writer.close()

    async with await asyncio.start_unix_server(refuse, env.paths.socket(LEAD)):
        await delivery.deliver()

    assert [LEAD] == tried
    assert [(CHILD, LEAD, ["too many."] * 3)] == delivery.told


async def test_messages_to_others_and_empty_ones_do_not_block_the_next(env: Env, delivery: Delivery) -> None:
    to = await lead(env)
    await asyncio.to_thread(child, env, CHILD, ("otheraaa", "x"), (to.id, " "), (to.id, "good"), ("otheraaa", "x"))
    await asyncio.to_thread(delivery.register.add, CHILD, to.id)

    await delivery.deliver()

    other = "no agent of session 'otheraaa' started yours."
    assert [(CHILD, to.id, [other, "missing message.", other])] == delivery.told
    assert [agent(CHILD)] == senders(await now(env, to.id))


async def test_a_repeated_message_is_accepted_once(env: Env, delivery: Delivery) -> None:
    to = await lead(env)
    await asyncio.to_thread(child, env, CHILD, (to.id, "good"))
    await asyncio.to_thread(delivery.register.add, CHILD, to.id)
    await delivery.deliver()
    await asyncio.to_thread(
        delivery.register.note_delivered, CHILD, 0
    )  # as it is after the end of a link that did not note it

    await delivery.deliver()

    assert [agent(CHILD)] == senders(await now(env, to.id))


async def test_a_hibernated_agent_is_not_resumed_by_a_message_from_the_machine(env: Env, delivery: Delivery) -> None:
    to = await hibernated(env)
    await asyncio.to_thread(child, env, CHILD, (to.id, "x"), (to.id, "y"))
    await asyncio.to_thread(delivery.register.add, CHILD, to.id)

    await delivery.deliver()

    assert [(CHILD, to.id, ["session 'lead' is hibernated."] * 2)] == delivery.told
    after = await now(env, to.id)
    assert (1, HIBERNATED) == (after.generation, after.state)


async def test_a_message_that_must_not_resume_an_agent_does_not_resume_one_hibernated_meanwhile(env: Env) -> None:
    after = await hibernated(env)
    before = msgspec.structs.replace(after, state=SessionState.IDLE, freed_bytes=None)

    for seen in (before, after):
        with pytest.raises(SessionEndedError):
            await session_operations.send(env.paths, seen, "x", resumes=False)
    again = await now(env, after.id)
    assert (1, HIBERNATED) == (again.generation, again.state)


async def test_a_message_to_a_removed_session_is_refused_and_reported(env: Env, delivery: Delivery) -> None:
    await asyncio.to_thread(child, env, CHILD, (LEAD, "x"))
    await asyncio.to_thread(delivery.register.add, CHILD, LEAD)

    await delivery.deliver()

    [(sender, recipient, [reason])] = delivery.told
    assert (CHILD, LEAD) == (sender, recipient)
    assert LEAD in reason
    command = await asyncio.to_thread(refusal_of_messages, env.paths, sender, recipient, [reason])
    assert f"Your message to {LEAD!r} was not delivered: {reason}" in command.stdin.decode()


async def test_sessions_below_a_removed_one_still_message_the_agent_at_the_top(env: Env, delivery: Delivery) -> None:
    to = await lead(env)
    await asyncio.to_thread(child, env, CHILD)
    await asyncio.to_thread(child, env, LOW, (to.id, "from below"), starter=CHILD)
    await asyncio.to_thread(delivery.register.add, CHILD, to.id)
    await asyncio.to_thread(env.says, SessionForgotten(at=NOW, session=CHILD))
    await asyncio.to_thread(forget_removed, env.paths, MACHINE, delivery.register, [CHILD])

    await delivery.deliver()

    assert [agent(LOW, depth=2)] == senders(await now(env, to.id))

    await asyncio.to_thread(env.says, SessionForgotten(at=NOW, session=LOW))
    await asyncio.to_thread(forget_removed, env.paths, MACHINE, delivery.register, [LOW])
    assert not delivery.register
    assert 0 == delivery.register.delivered(LOW)


def test_a_removed_session_is_dropped_and_listed_ones_are_kept(env: Env, delivery: Delivery) -> None:
    for session in (CHILD, LOW):
        child(env, session)
        delivery.register.add(session, LEAD)
    described = launch("startedb", actor=ActingAgent(session=LOW, machine=MACHINE))
    env.says(SessionCreated(at=NOW, launch=described))  # a session here does not need it
    new = SessionId("notlisted")
    delivery.register.add(new, LEAD)
    env.says(SessionForgotten(at=NOW, session=LOW))

    forget_removed(env.paths, MACHINE, delivery.register, [LOW])

    assert (LEAD, None, LEAD) == tuple(delivery.register.starter_of(each) for each in (CHILD, LOW, new))


def test_a_refusal_is_short_clean_and_names_each_reason_once(env: Env, delivery: Delivery) -> None:
    env.has(LEAD, name="le\x1b[31mad\nx")
    reasons = ["no \x1b[2J\x07agent.", "no \x1b[2J\x07agent.", "x" * 2 * REASON_LENGTH]

    text = refusal_of_messages(env.paths, CHILD, LEAD, reasons).stdin.decode()
    first, second = text.splitlines()

    assert "[From kasmon, not from the person you work for]" == first
    assert text.replace("\n", "").isprintable()
    assert second.startswith("3 of your messages to 'lead x' were not delivered: no agent. xxx")
    assert REASON_LENGTH == len(second.partition("delivered: ")[2])
