"""What peers tell an agent is bounded by the host that takes it, whoever sent it and whatever they counted."""

import asyncio
import time

import msgspec
import pytest

from kasmon.errors import RefusedError, UsageError
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.session.peer_limits import LONGEST, MOST, PREFACE, WINDOW_S, PeerMessageLimiter
from kasmon.model.commands import Prompt, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import ReceiptChanged, SessionStarted
from tests.support.agents.fake_agent import FakeAgent
from tests.support.host.env import ME, Env, do, prompt
from tests.support.host.tmux_env import TmuxEnv, prompted
from tests.support.wait import auntil

FROM_PEER = Prompt(text="look at the parser", when="idle", by="peer")


def moved(book: SessionLog, at: float, **more: object) -> ReceiptChanged:
    """A message of a peer that came at that time."""
    receipt = Receipt(id=book.session.next_receipt(), session=ME, state=ReceiptState.QUEUED, at=at)
    return ReceiptChanged(**({"at": at, "receipt": receipt, "prompt": "hello", "by": "peer"} | more))  # type: ignore[arg-type]


async def test_messages_too_long_or_too_many_in_a_minute_are_refused_by_the_host(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await auntil(lambda: env.only(SessionStarted))
        link = await env.linked()
        with pytest.raises(UsageError, match="has 8401 characters"):
            await do(link, msgspec.structs.replace(FROM_PEER, text="x" * (LONGEST + PREFACE + 1)))
        await do(link, Prompt(text="x" * (LONGEST + PREFACE + 1), when="idle"))
        assert 1 == len(env.session().receipts)
        for _ in range(MOST):
            await do(link, FROM_PEER)
        with pytest.raises(RefusedError, match=f"{MOST} peer messages within 60 s"):
            await do(link, FROM_PEER)
        assert "queued" == await prompt(link, "mine", when="idle")

    assert MOST + 2 == len(env.session().receipts)


async def test_a_message_waits_for_the_end_of_the_turn_even_if_its_sender_requests_now(
    env: Env, fake: FakeAgent
) -> None:
    async with env.hosting(fake):
        await auntil(lambda: env.only(SessionStarted))
        link = await env.linked()
        await prompt(link, "work", when="now")
        receipt = (await do(link, msgspec.structs.replace(FROM_PEER, when="interrupt"))).receipt

    assert receipt is not None
    assert "queued" == receipt.state
    assert ["work"] == [told.text for told in fake.told if isinstance(told, Prompt)]


async def test_the_next_host_counts_earlier_messages(env: Env) -> None:
    """Those that the log has, each once, however often it was changed or moved."""

    def kept() -> PeerMessageLimiter:
        env.wants()
        book = SessionLog(env.paths, ME)
        now = time.time()
        book.append(moved(book, now - WINDOW_S))
        for _ in range(MOST - 1):
            book.append(moved(book, now))
        last = ReceiptId(f"{ME}-r{MOST}")
        receipt = Receipt(id=last, session=ME, state=ReceiptState.QUEUED, at=now)
        book.append(moved(book, now, receipt=receipt, prompt="changed by a person"))
        book.append(moved(book, now, by="user"))
        return PeerMessageLimiter(SessionLog(env.paths, ME))

    mail = await asyncio.to_thread(kept)
    mail.admit(FROM_PEER, time.time())
    with pytest.raises(RefusedError, match="'docs' received 6 peer messages"):
        mail.admit(FROM_PEER, time.time())
    mail.admit(FROM_PEER, time.time() + WINDOW_S)


@pytest.mark.usefixtures("in_tmux_env")
async def test_the_host_of_a_shell_refuses_a_message_which_the_shell_would_execute(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, "sh", "-i")
        with pytest.raises(RefusedError, match="is no agent: a shell would execute the message"):
            await prompted(link, ME, FROM_PEER.text, by="peer")

    assert () == tmux.session(ME).receipts
