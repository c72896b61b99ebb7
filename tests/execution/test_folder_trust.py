"""A session from Python in a folder that brings a config along."""

import asyncio

import pytest

from kasmon import ExecutionSession, LaunchSpec
from kasmon.config.folder_config import NAME, read_folder_config
from kasmon.errors import RefusedError
from kasmon.store.trusted_folders import TrustedFolders
from tests.support.tui.dashboard import Home


async def test_an_agent_that_only_a_folder_config_defines_starts_once_that_is_trusted(home: Home) -> None:
    repo = home.path / "repo"
    repo.mkdir()
    (repo / NAME).write_text('[agents.mine]\nprogram = "scripted"\n')
    one = ExecutionSession(LaunchSpec(name="one", agent="mine", mode="sdk"), where=home.paths)

    with pytest.raises(RefusedError, match="a config that is ignored"):
        await one.start(repo)
    assert "" == one.id

    local = await asyncio.to_thread(read_folder_config, repo)
    assert local is not None
    await asyncio.to_thread(TrustedFolders(home.paths).add, local, 1.0)
    await one.start(repo)
    assert await one.exists()
    await one.close()
