"""The dashboard and what a folder brings along as its own config."""

import asyncio
from pathlib import Path

import pytest

from kasmon.config.local import NAME, Local, look
from kasmon.errors import RefusedError
from kasmon.paths import Places, places
from kasmon.store.local_trust import LocalTrust
from kasmon.tui.live import LiveWorld
from kasmon.tui.world import Create


@pytest.fixture
def own() -> Places:
    return places()


@pytest.fixture
def brings(tmp_path: Path) -> Local:
    """What the test's folder brings along."""
    (tmp_path / NAME).write_text('[agents.helper]\nprogram = "./helper"\n')
    local = look(tmp_path)
    assert local is not None
    return local


async def test_only_what_is_trusted_is_offered_and_started(own: Places, brings: Local) -> None:
    world, folder = LiveWorld(own), brings.root
    wanted = Create(name="one", agent="helper", workdir=folder)

    assert f"kasmon trust {folder}" in await world.folder_notice(folder)
    assert "helper" not in [offer.name for offer in await world.offers(folder)]
    with pytest.raises(RefusedError, match="stands only in a config that does not count"):
        await world.wish(wanted)
    assert not (await asyncio.to_thread(world.first)).sessions

    await asyncio.to_thread(LocalTrust(own).add, brings, 1.0)
    assert "" == await world.folder_notice(folder)
    assert "helper" in [offer.name for offer in await world.offers(folder)]
    assert "helper" not in [offer.name for offer in await world.offers()]
    await asyncio.to_thread(world.close)
