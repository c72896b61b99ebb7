"""What of this machine a jail has to see so that an agent's program runs in it."""

import os
import shutil
from pathlib import Path

import pytest

from kasmon.errors import NotFoundError, RefusedError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import user_paths
from kasmon.sandbox.jail.probe import explain_failure, how_to_allow, lacking, read_version
from kasmon.sandbox.shared import host_folders, install_command
from kasmon.sandbox.shared.filesystem_view import own_variables, require_mountable
from kasmon.sandbox.shared.host_folders import HostFolders, covers, jail_owner, may_use
from kasmon.sandbox.shared.program_files import needed
from kasmon.sandbox.shared.safe_tree import remove_tree

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has nobody to be instead")


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_programs_in_usr_are_visible_anyway() -> None:
    need = needed("/usr/bin/env")

    assert ("/usr/bin/env", (), ()) == (str(Path(need.program)), need.folders, need.path)


def test_only_the_file_of_a_single_binary_is_visible(tmp_path: Path) -> None:
    binary = put(tmp_path / ".local" / "share" / "agent" / "1.2.3", "\x7fELF")
    (tmp_path / ".local" / "bin").mkdir()
    (tmp_path / ".local" / "bin" / "agent").symlink_to(binary)
    need = needed("agent", str(tmp_path / ".local" / "bin"))

    assert str(binary) == need.program
    assert (binary,) == need.folders


def test_the_whole_npm_package_and_its_node_are_visible(tmp_path: Path) -> None:
    prefix = tmp_path / "node"
    put(prefix / "bin" / "node", "\x7fELF")
    (prefix / "include" / "node").mkdir(parents=True)
    modules = tmp_path / "agents" / "node_modules"
    cli = put(modules / "@maker" / "agent" / "node_modules" / "x" / "cli.js", "#!/usr/bin/env -S node --flag\n")
    need = needed(str(cli), f"{prefix / 'bin'}:/usr/bin")

    assert str(cli) == need.program
    assert {modules, prefix} == set(need.folders)
    assert str(prefix / "bin") in need.path


def test_a_virtual_environment_and_its_python_are_visible(tmp_path: Path) -> None:
    base = tmp_path / "python"
    put(base / "bin" / "python3.12", "\x7fELF")
    put(base / "lib" / "python3.12" / "os.py")
    venv = tmp_path / "venv"
    put(venv / "pyvenv.cfg", "home = x")
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(base / "bin" / "python3.12")
    tool = put(venv / "bin" / "aider", f"#!{venv}/bin/python\n")

    assert {venv, base} == set(needed(str(tool)).folders)


def test_a_missing_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no-such"):
        needed("no-such", str(tmp_path))
    put(tmp_path / "loops", f"#!{tmp_path}/loops\n")
    assert str(tmp_path / "loops") == needed(str(tmp_path / "loops")).program


def test_no_folder_of_kasmon_is_visible_in_a_sandbox_but_a_plans_worktree(tmp_path: Path) -> None:
    ours = user_paths()
    on = HostFolders(ours)
    worktree = ours.plan("p") / "trees" / "task"
    worktree.mkdir(parents=True)
    require_mountable(on, str(worktree), "/workspace")
    require_mountable(on, str(tmp_path), "/project")

    for folder in (ours.state, ours.plans, ours.plan("p"), ours.sessions / "x", ours.runtime, ours.config, Path.home()):
        with pytest.raises(RefusedError):
            require_mountable(on, str(folder), "/project")


def test_variables_of_this_machine_are_not_in_the_guest() -> None:
    given = {
        "KEY": "v",
        "TERM": "x",
        "HOME": "/h",
        "XDG_DATA_HOME": "/d",
        "LD_PRELOAD": "/l",
        "ALL_PROXY": "p",
        "TMUX": "t",
    }

    assert {"KEY": "v", "TERM": "x"} == own_variables(given)


@as_root
def test_roots_jails_use_an_unused_user_id(tmp_path: Path) -> None:
    owner = jail_owner(tmp_path)

    assert owner[0] in host_folders.USERS or owner[0] in host_folders.FEW_USERS
    assert not may_use(Path("/root"), owner, writable=False)
    assert may_use(Path("/usr/bin/env"), owner, writable=False)
    assert not may_use(Path("/usr/bin/env"), owner, writable=True)
    os.chown(tmp_path, *owner)
    assert not may_use(tmp_path, owner, writable=True)  # it is theirs, but they may not come there


@as_root
def test_each_kasmon_of_roots_has_a_user_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    owners = [jail_owner(tmp_path / name) for name in ("a", "b", "c")]
    jail_owner.cache_clear()

    assert 3 == len(set(owners))
    assert owners == [jail_owner(tmp_path / name) for name in ("a", "b", "c")]
    assert all(user == group for user, group in owners)


def test_in_a_container_with_few_users_the_id_is_one_of_these() -> None:
    whole, few = "         0          0 4294967295\n", "0 100000 65536\n70000 300000 10\n"

    assert [True, True] == [covers(whole, numbers) for numbers in (host_folders.USERS, host_folders.FEW_USERS)]
    assert [False, True] == [covers(few, numbers) for numbers in (host_folders.USERS, host_folders.FEW_USERS)]
    assert not covers("", host_folders.FEW_USERS)


@as_root
def test_files_of_an_earlier_version_with_a_shared_id_get_the_id_of_this_kasmon(tmp_path: Path) -> None:
    on, precious = HostFolders(user_paths()), tmp_path / "precious"
    precious.write_text("kept")
    session = SandboxPolicy(session=SessionId("x" * 8)).session
    home = on.make(session) / "home"
    (home / "deep").mkdir()
    (home / "deep" / "program").write_text("#!/bin/sh")
    (home / "link").symlink_to(precious)
    for path in (home / "deep" / "program", home / "deep", home / "link", home):
        os.chown(path, 61_003, 61_003, follow_symlinks=False)
    (home / "deep" / "program").chmod(0o6755)

    on.make(session)

    everything = [home, *home.rglob("*")]
    assert {on.owner} == {(path.lstat().st_uid, path.lstat().st_gid) for path in everything}
    assert 0o755 == (home / "deep" / "program").stat().st_mode & 0o7777
    assert 0 == precious.stat().st_uid
    remove_tree(on.base)


def test_a_socket_with_too_long_a_path_is_reported_before_anything_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kasmon.errors import SandboxError

    on = HostFolders(user_paths())
    with pytest.raises(SandboxError, match="103 bytes"):
        on.socket(SandboxPolicy(session="x" * 99).session)  # type: ignore[arg-type]


def test_a_machine_without_bubblewrap_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_command, "MANAGERS", {"env": "env install {}"})
    found = lacking("no-bwrap-here")

    assert found is not None
    assert ("bubblewrap is not installed", "Install it: `env install bubblewrap`.") == found


@pytest.mark.parametrize(
    ("said", "version"), [("bubblewrap 0.7.9", "0.7.9"), ("what", "unknown"), ("bubblewrap 0.8.0", "")]
)
def test_a_bubblewrap_that_is_too_old_is_reported(tmp_path: Path, said: str, version: str) -> None:
    old = put(tmp_path / "bwrap", f"#!/bin/sh\necho {said}\n")
    found = lacking(str(old))

    assert (found is None) is (not version)
    assert found is None or version in found.why
    assert found is None or "0.8.0" in found.hint


def test_an_error_of_bubblewrap_is_reported_with_a_next_step(tmp_path: Path) -> None:
    def settings(name: str, value: str) -> Path:
        put(tmp_path / name / name, value)
        return tmp_path / name

    forbidden = explain_failure("bwrap: setting up uid map: Permission denied\n")
    assert "namespaces" in forbidden.why
    assert forbidden.hint
    assert "seccomp" in explain_failure("bwrap: prctl(PR_SET_SECCOMP): Invalid argument").why
    assert "Can't find source path /x" in explain_failure("bwrap: Can't find source path /x: No such file").why
    for name, value, word in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
        ("kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "max_user_namespaces="),
    ):
        folder = tmp_path / word
        put(folder / name, value)
        assert word in how_to_allow(folder)
    assert "container" in how_to_allow(tmp_path / "none")
    assert read_version(shutil.which("true") or "true") is None
