"""Reads config and theme files again when one of them changes; a broken file keeps its last good content."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Final

from kasmon.config import Config, parse
from kasmon.config.parser import read
from kasmon.config.profile import configured, programs
from kasmon.errors import ConfigError, KasmonError
from kasmon.paths import Paths, read_json, read_stamp
from kasmon.tui.gateway.protocol import DashboardSettings, Split
from kasmon.tui.session_list.layout import ListLayout

RECONCILE_S: Final = 1.0
"""How often to check the files where the system reports no changes, in seconds."""


class LiveSettings:
    """The settings from the folders of one kasmon."""

    def __init__(self, paths: Paths) -> None:
        self.config = Config()
        """The config as read last."""
        self._paths = paths
        self._text = ""

    async def changes(self) -> AsyncIterator[DashboardSettings]:
        """Yield the settings now, then after each change of a file. Never ends by itself."""
        stamp_before: object = None
        async for _ in _watch_files(self._paths.config):
            stamp = await asyncio.to_thread(_read_stamps, self._paths)
            if stamp != stamp_before:
                stamp_before = stamp
                yield await asyncio.to_thread(self._read)

    def _read(self) -> DashboardSettings:
        """The settings now; if the config is broken, the last good ones with the problem."""
        file, problems = self._paths.config_file, list[str]()
        try:
            text = read(file)
            self.config, self._text = parse(text, str(file)), text
        except KasmonError as error:
            problems.append(str(error))
        config, ui = self.config, self.config.ui
        return DashboardSettings(
            theme=ui.theme,
            light_theme=ui.light_theme,
            bell=ui.bell,
            toasts=ui.toasts,
            finished_after_s=config.notify.finished_after_s,
            has_targets=bool(config.notify.targets),
            agents=programs(config),
            popup=config.attention.popup,
            preview=ui.preview,
            split=read_json(self._paths.split, Split, Split()),
            layout=read_json(self._paths.list_layout, ListLayout, ListLayout()),
            ascii=ui.ascii,
            workdir=_own_folder(),
            clipboard=tuple(name for name, profile in configured(config).items() if profile.clipboard),
            keys=dict(config.keys),
            theme_files=_theme_files(self._paths.themes, problems),
            config_path=str(file),
            config_text=self._text,
            problems=tuple(problems),
        )


def _own_folder() -> str:
    """The dashboard's working folder; empty if it no longer exists."""
    with contextlib.suppress(OSError):
        return str(Path.cwd())
    return ""


def _theme_files(folder: Path, problems: list[str]) -> tuple[tuple[str, str], ...]:
    """Path and text of the user's themes; unreadable ones are reported in *problems*."""
    files: list[tuple[str, str]] = []
    for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
        try:
            files.append((str(path), path.read_text("utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            problems.append(str(ConfigError(str(path), f"cannot be read ({error})")))
    return tuple(files)


def _read_stamps(paths: Paths) -> tuple[object, ...]:
    """Path and stamp of each config and theme file: differs after any change."""
    themes = paths.themes.glob("*.toml") if paths.themes.is_dir() else ()
    return tuple((path, read_stamp(path)) for path in (paths.config_file, *sorted(themes)))


async def _watch_files(folder: Path) -> AsyncIterator[None]:
    """Yield now, and whenever *folder* may have changed: at once if the system reports it, else once a second."""
    yield
    while True:
        if not await asyncio.to_thread(folder.is_dir):
            await asyncio.sleep(RECONCILE_S)
            yield
            continue
        await asyncio.to_thread(import_module, "watchfiles")
        from watchfiles import awatch  # 40 ms of imports that the first frame does not need

        with contextlib.suppress(OSError, RuntimeError):
            async for _ in awatch(folder, step=50, debounce=100, rust_timeout=1000, yield_on_timeout=True):
                yield
        await asyncio.sleep(RECONCILE_S)
