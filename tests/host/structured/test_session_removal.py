"""A host whose session's folder was removed ends, and its agent with it: nobody would find it again."""

import asyncio
import shutil
from pathlib import Path

import pytest

from kasmon.host.structured import host as watch
from kasmon.host.structured.host import wait_for_removal
from kasmon.model.commands import Prompt, Stop
from kasmon.model.events import SessionStarted
from tests.support.agents.fake_agent import FakeAgent
from tests.support.host.env import ME, Env, do
from tests.support.wait import auntil


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "REMOVAL_CHECK_S", 0.01)


async def test_a_folder_that_is_missing_for_a_moment_was_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([True, False, True, False, True, True])
    monkeypatch.setattr(watch, "_is_missing", lambda _: next(looks))
    await wait_for_removal(tmp_path)

    assert [] == list(looks)


def test_a_folder_that_cannot_be_examined_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert not watch._is_missing(tmp_path)
    assert not watch._is_missing(tmp_path / "file" / "below")
    assert watch._is_missing(tmp_path / "none")


async def test_a_host_ends_its_agent_and_itself_when_its_sessions_folder_is_removed(env: Env, fake: FakeAgent) -> None:
    """Also with facts that wait to be written, and clients that wait for that."""
    async with env.hosting(fake):
        await auntil(lambda: env.only(SessionStarted))
        link = await env.linked()
        await asyncio.to_thread(shutil.rmtree, env.paths.folder(ME))
        await do(link, Prompt(text="go"))
        await auntil(lambda: not env.paths.socket(ME).exists())

        assert [Prompt, Stop] == [type(wish) for wish in fake.told]
        assert 1 == fake.closed
        assert not env.paths.folder(ME).exists()
        await link.aclose()
