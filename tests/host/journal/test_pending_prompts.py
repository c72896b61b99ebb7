"""A prompt that waits and holds a secret: the log never has it, the agent always gets it."""

import asyncio
import time
from pathlib import Path

import pytest

from kasmon.backends.common.environment import encoded
from kasmon.errors import UsageError
from kasmon.host.journal.session_log import FORGOTTEN, SessionLog
from kasmon.model.commands import Receipt, ReceiptId, ReceiptState, Requeue
from kasmon.model.events import ReceiptChanged, SessionEnded, SessionStarted, TurnEnded
from kasmon.paths import write_private
from tests.support.agents.fake_agent import FakeAgent
from tests.support.host.env import ME, Env, do, prompt
from tests.support.wait import auntil

SECRET = "planted-5ecr3t"
MARK = f"⟨hidden: {len(SECRET)} characters⟩"
R1 = ReceiptId(f"{ME}-r1")


def left_behind(env: Env, text: str) -> Path:
    """What a host leaves that was killed while *text* waited."""
    env.wants(backend="fake")
    write_private(env.paths.environment(ME), encoded({"PLANTED": SECRET}))
    book = SessionLog(env.paths, ME)
    book.append(SessionStarted(at=1.0, generation=1, resume_id="talk-1"))
    queued = Receipt(id=R1, session=ME, state=ReceiptState.QUEUED, text=text, at=1.0)
    book.append(ReceiptChanged(at=1.0, receipt=queued, prompt=text))
    return env.paths.waiting(ME)


def written(env: Env) -> bytes:
    """All that stands in the session's folder but for its variables."""
    files = [file for file in env.paths.folder(ME).rglob("*") if file.is_file() and file.name != "env"]
    return b"".join(file.read_bytes() for file in files)


async def test_the_next_host_sends_the_agent_the_real_text_and_no_other_process(env: Env, fake: FakeAgent) -> None:
    words = await asyncio.to_thread(left_behind, env, f"use {SECRET}")
    assert (0o600, True) == (words.stat().st_mode & 0o777, SECRET.encode() in words.read_bytes())

    async with env.hosting(fake, env.wanted()):
        await auntil(lambda: fake.prompts)
        await auntil(lambda: not words.exists(), what="the words forgotten")

    assert [f"use {SECRET}"] == fake.prompts
    assert SECRET.encode() not in written(env)
    assert f"use {MARK}".encode() in written(env)


async def test_a_pending_prompt_without_its_text_is_refused_and_never_sent_with_a_mark(
    env: Env, fake: FakeAgent
) -> None:
    (await asyncio.to_thread(left_behind, env, f"use {SECRET}")).unlink()

    async with env.hosting(fake, env.wanted()):
        await auntil(lambda: env.session().exists and not env.session().queue)
        await prompt(await env.linked(), "another", when="idle")
        await auntil(lambda: fake.prompts)

    assert ["another"] == fake.prompts
    [refused] = [receipt for receipt in env.session().receipts if receipt.id == R1]
    assert (ReceiptState.REFUSED, FORGOTTEN) == (refused.state, refused.reason)


def test_the_text_is_stored_only_while_a_prompt_with_a_secret_is_pending(env: Env) -> None:
    words = left_behind(env, f"use {SECRET}")
    book = SessionLog(env.paths, ME)
    [receipt] = book.session.receipts
    book.append(ReceiptChanged(at=2.0, receipt=receipt, prompt="use nothing"))
    assert not words.exists()
    book.append(ReceiptChanged(at=3.0, receipt=receipt, prompt=f"use {SECRET} again"))
    assert words.exists()
    book.append(SessionEnded(at=4.0, why="stopped"))
    assert not words.exists()


async def test_a_prompt_that_is_edited_while_pending_keeps_its_secret(env: Env, fake: FakeAgent) -> None:
    env.wants(backend="fake")
    write_private(env.paths.environment(ME), encoded({"PLANTED": SECRET}))
    async with env.hosting(fake, env.wanted()):
        await auntil(lambda: env.session().exists)
        link = await env.linked()
        await prompt(link, "first", when="idle")
        assert "queued" == await prompt(link, f"use {SECRET} now", when="idle")
        second = ReceiptId(f"{ME}-r2")
        with pytest.raises(UsageError, match="hidden"):
            await do(link, Requeue(receipt=second, text=f"take {MARK[:-1]} {MARK} {MARK}"))
        await do(link, Requeue(receipt=second, text=f"take {MARK} soon"))
        fake.say(TurnEnded(at=time.time()))
        await auntil(lambda: len(fake.prompts) == 2)

    assert f"take {SECRET} soon" == fake.prompts[-1]
    assert SECRET.encode() not in written(env)


async def test_a_mark_that_the_user_types_reaches_the_agent_unchanged(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await auntil(lambda: env.session().exists and not env.session().queue)
        assert "submitted" == await prompt(await env.linked(), f"what is {MARK}?", when="idle")

    assert [f"what is {MARK}?"] == fake.prompts
