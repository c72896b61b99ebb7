"""No setuid or setgid file is left outside by what ran in a sandbox, and git and tar work in a folder with setgid."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.paths import Paths
from kasmon.sandbox.jail.jail import Jail
from tests.sandbox.conftest import TINY, JailedAgent, open_to_others, policy
from tests.sandbox.jail.test_attack import unguarded

pytestmark = pytest.mark.sandboxes

STEPS = """
set -e
umask 022
git init -q plain && cd plain
git config user.email me@example.org && git config user.name me
echo one >file && git add file && git commit -qm one && git gc -q
cd .. && git clone -q plain copy && git init -q --shared shared
mkdir -p made/inner && echo two >made/inner/file && chmod 755 made
tar cf made.tar made && mkdir taken exact && tar xf made.tar -C taken && tar xpf made.tar -C exact
cp -a made like
cat copy/file taken/made/inner/file exact/made/inner/file like/inner/file
stat -c %a made made/inner copy/.git shared/.git taken/made/inner
"""
TRIES = """
import os
open("program", "w").close()
for mode in (0o4755, 0o2755, 0o6755):
    for change in (os.chmod, lambda path, mode: os.chmod(os.open(path, os.O_RDONLY), mode)):
        try:
            change("program", mode)
        except OSError:
            pass
for name, mode in (("deep", 0o6755), ("deep/er", 0o2755)):
    os.mkdir(name, mode)
"""


@pytest.fixture
def workspace(shared: Path) -> Path:
    """A folder of a group, which what is made in it inherits."""
    folder = shared / "workspace"
    folder.mkdir()
    folder.chmod(0o2777)
    return folder


def test_git_and_tar_work_in_a_folder_with_setgid_and_their_files_inherit_it(
    jailed_agent: Callable[..., JailedAgent], workspace: Path
) -> None:
    steps = f"import subprocess; subprocess.run(['bash', '-c', {STEPS!r}], check=True)"
    did = jailed_agent(workspace=str(workspace)).run(steps)

    assert ["one", "two", "two", "two", *["2755"] * 5] == did.out.split(), did.err
    assert not did.err


@pytest.mark.parametrize("guarded", [True, False])
def test_attacks_in_a_workspace_leave_no_setuid_or_setgid_there(
    jailed_agent: Callable[..., JailedAgent], shared: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    workspace = open_to_others(shared / "workspace")
    with contextlib.nullcontext() if guarded else unguarded(monkeypatch, filter_too=True):
        did = jailed_agent(workspace=str(workspace)).run(TRIES)

    assert "" == did.err
    assert {"program", "deep", "deep/er"} == {str(path.relative_to(workspace)) for path in workspace.rglob("*")}
    found = {str(path.relative_to(workspace)) for path in workspace.rglob("*") if path.stat().st_mode & 0o6000}
    assert (set() if guarded else {"program"}) == found


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has nobody to be instead")
def test_roots_jails_of_two_kasmons_run_as_two_users(can_jail: None) -> None:
    users = []
    with tempfile.TemporaryDirectory(prefix="ks-", dir="/tmp") as root, contextlib.ExitStack() as ends:
        for name in ("a", "b"):
            here = Path(root) / name
            jail = Jail(Paths(state=here / "s", config=here / "c", given_runtime=here / "r"), inside=TINY)
            ends.callback(jail.forget, policy(name))
            users.append(Path(f"/proc/{jail.create(policy(name)).pid}").stat().st_uid)

    assert 0 not in users
    assert 2 == len(set(users))
