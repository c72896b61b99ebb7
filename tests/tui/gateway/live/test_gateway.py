"""The world of a real kasmon says what the system refuses; the dashboard goes on."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import cast

import pytest

from kasmon.agents.catalog import AgentCatalog, catalog
from kasmon.errors import KasmonError
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.gateway.protocol import DashboardSettings, MemoryUse


@pytest.fixture
def gateway() -> Iterator[LiveGateway]:
    gateway = LiveGateway(user_paths())
    yield gateway
    gateway.close()


@pytest.fixture
def read_only_config(tmp_path: Path) -> None:
    """As where the config is a link to somewhere that a person's system looks after."""
    file = user_paths().config_file
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
async def test_a_theme_that_cannot_be_saved_is_refused_with_a_message(gateway: LiveGateway) -> None:
    operations = await gateway.operations()
    with pytest.raises(KasmonError, match=r"cannot write '.*config\.toml': No such file"):
        await operations.save_theme("nord", "ui.theme")


async def test_settings_are_read_also_without_the_dashboards_own_folder(
    gateway: LiveGateway, folder_that_goes: Path
) -> None:
    await asyncio.to_thread(folder_that_goes.rmdir)
    read = cast(AsyncGenerator[DashboardSettings, None], gateway.settings())

    assert "" == (await anext(read)).workdir
    await read.aclose()


async def test_a_start_reads_the_folders_of_no_agents(gateway: LiveGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are many; only profiles of the config may write to the clipboard."""
    config = gateway.paths.config_file
    await asyncio.to_thread(config.parent.mkdir, parents=True)
    await asyncio.to_thread(config.write_text, '[agents.mine]\nprogram = "mine"\nclipboard = true\n')
    known = {"claude": catalog().load("claude")}  # the default agent of the config is looked up
    monkeypatch.setattr(AgentCatalog, "load", lambda self, name: known[name])
    read = cast(AsyncGenerator[DashboardSettings, None], gateway.settings())

    settings = await anext(read)
    await read.aclose()

    assert ("mine",) == settings.clipboard
    assert () == settings.problems


@pytest.mark.parametrize(
    ("now", "is_drawn"),
    [
        (MemoryUse(total_bytes=209, budget_bytes=230), False),
        (MemoryUse(total_bytes=191, budget_bytes=230), False),
        (MemoryUse(total_bytes=211, budget_bytes=230), True),
        (MemoryUse(total_bytes=189, budget_bytes=230), True),
        (MemoryUse(total_bytes=200, budget_bytes=240), True),
        (MemoryUse(total_bytes=200, budget_bytes=230, proposed=(SessionId("abcdefgh"),)), True),
    ],
)
def test_a_small_change_of_the_memory_is_not_rendered(now: MemoryUse, is_drawn: bool) -> None:
    assert is_drawn is not now.looks_like(MemoryUse(total_bytes=200, budget_bytes=230))


def test_a_small_change_that_crosses_the_budget_is_rendered() -> None:
    before, after = (MemoryUse(total_bytes=total, budget_bytes=200) for total in (199, 201))

    assert not after.looks_like(before)
    assert not before.looks_like(after)
