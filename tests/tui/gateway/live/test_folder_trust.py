"""The dashboard and what a folder brings along as its own config."""

import asyncio
from pathlib import Path

import pytest

from kasmon.config.folder_config import NAME, FolderConfig, read_folder_config
from kasmon.errors import RefusedError
from kasmon.paths import Paths, user_paths
from kasmon.store.trusted_folders import TrustedFolders
from kasmon.supervisor.sessions.create import NewSession
from kasmon.tui.gateway.live.gateway import LiveGateway

own = pytest.fixture(user_paths)


@pytest.fixture
def brings(tmp_path: Path) -> FolderConfig:
    (tmp_path / NAME).write_text('[agents.helper]\nprogram = "./helper"\n')
    local = read_folder_config(tmp_path)
    assert local is not None
    return local


async def test_only_trusted_agents_are_offered_and_started(own: Paths, brings: FolderConfig) -> None:
    gateway, folder = LiveGateway(own), brings.root
    operations = await gateway.operations()

    assert f"kasmon trust {folder}" in await gateway.folder_notice(folder)
    assert "helper" not in [offer.name for offer in await gateway.offers(folder)]
    with pytest.raises(RefusedError, match="is defined only in a config that is ignored"):
        await operations.create_session(NewSession(name="one", agent="helper", workdir=folder))
    assert not (await asyncio.to_thread(gateway.first)).sessions

    await asyncio.to_thread(TrustedFolders(own).add, brings, 1.0)
    assert "" == await gateway.folder_notice(folder)
    assert "helper" in [offer.name for offer in await gateway.offers(folder)]
    assert "helper" not in [offer.name for offer in await gateway.offers()]
    await asyncio.to_thread(gateway.close)
