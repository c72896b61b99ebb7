"""The world of a real kasmon says what the system refuses; the dashboard goes on."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import cast

import pytest

from kasmon.errors import KasmonError
from kasmon.paths import places
from kasmon.tui.gateway.live import LiveGateway
from kasmon.tui.gateway.protocol import DashboardSettings


@pytest.fixture
def gateway() -> Iterator[LiveGateway]:
    gateway = LiveGateway(places())
    yield gateway
    gateway.close()


@pytest.fixture
def read_only_config(tmp_path: Path) -> None:
    """As where the config is a link to somewhere that a person's system looks after."""
    file = places().config_file
    file.parent.mkdir(parents=True)
    file.symlink_to(tmp_path / "elsewhere" / "config.toml")


@pytest.fixture
def folder_that_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The dashboard's own folder, which somebody will remove."""
    folder = tmp_path / "worktree"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("read_only_config")
async def test_a_theme_that_cannot_be_written_down_is_refused_in_words(gateway: LiveGateway) -> None:
    operations = await gateway.operations()
    with pytest.raises(KasmonError, match=r"cannot write '.*config\.toml': No such file"):
        await operations.save_theme("nord")


async def test_settings_are_read_also_where_the_dashboards_own_folder_is_gone(
    gateway: LiveGateway, folder_that_goes: Path
) -> None:
    await asyncio.to_thread(folder_that_goes.rmdir)
    read = cast(AsyncGenerator[DashboardSettings, None], gateway.settings())

    assert "" == (await anext(read)).workdir
    await read.aclose()
