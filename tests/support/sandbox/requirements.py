"""Whether jails are available here: a test that needs one is skipped where they cannot, unless they must be there."""

import functools
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import Paths
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.shared.host_folders import HostFolders
from kasmon.sandbox.shared.processes import holder
from kasmon.sandbox.shared.safe_tree import remove_tree
from tests.support.cli.cli_runner import Cli


def need_jail() -> None:
    """Skip the test where no jail can be made; fail it where KASMON_REQUIRE_SANDBOXES (a list with commas) names it."""
    if not (why := _why_no_jail()):
        return
    required = {word.strip() for word in os.environ.get("KASMON_REQUIRE_SANDBOXES", "").split(",")}
    if required & {"jail", "all"}:
        pytest.fail(f"{why} (KASMON_REQUIRE_SANDBOXES asks for it)", pytrace=False)
    pytest.skip(why)


def closed(line: Cli) -> None:
    """Close *line*; fail the test if a jail of its kasmon outlived it."""
    host_folders = Jail(line.paths).host_folders
    host_folders.base  # noqa: B018 (it is remembered, as it is while the folders stand)
    line.close()
    nothing_is_left(line.paths, host_folders)


def nothing_is_left(where: Paths, host_folders: HostFolders | None = None) -> None:
    """End and remove what is left of the jails of *where*; fail the test if a process of one was left."""
    host_folders = host_folders or Jail(where).host_folders
    left = [lock.parent for lock in sorted(host_folders.base.glob("*/lock"))]
    alive = [f"{folder.name} (process {pid})" for folder in left if (pid := holder(folder / "lock"))]
    for folder in left:
        Jail(where).forget(SandboxPolicy(session=SessionId(folder.name)))
    remove_tree(host_folders.base)
    assert not alive, f"jails outlived their test: {', '.join(alive)}"


@functools.cache
def _why_no_jail() -> str:
    """Why no jail can be made here, once tried; empty where one was."""
    root = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp"))
    try:
        paths = Paths(state=root / "s", config=root / "c", given_runtime=root / "r")
        probe = Jail(paths).probe()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return "" if probe.ok else f"no jail is available here: {probe.why}. {probe.hint}".strip()
