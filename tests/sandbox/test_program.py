"""What of this machine a jail has to see so that an agent's program runs in it."""

import os
import shutil
from pathlib import Path

import pytest

from kasmon.errors import NotFoundError, RefusedError
from kasmon.model.sandbox import Policy
from kasmon.paths import places
from kasmon.sandbox.jail import ground, probing
from kasmon.sandbox.jail.ground import Ground, jail_user, may_use
from kasmon.sandbox.jail.probing import how_to_allow, lacking, reason, version_of
from kasmon.sandbox.jail.program import needed
from kasmon.sandbox.jail.scenery import fit, own_variables


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_what_is_in_usr_is_seen_anyway() -> None:
    need = needed("/usr/bin/env")

    assert ("/usr/bin/env", (), ()) == (str(Path(need.program)), need.folders, need.path)


def test_of_a_single_binary_the_file_alone_is_seen(tmp_path: Path) -> None:
    binary = put(tmp_path / ".local" / "share" / "agent" / "1.2.3", "\x7fELF")
    (tmp_path / ".local" / "bin").mkdir()
    (tmp_path / ".local" / "bin" / "agent").symlink_to(binary)
    need = needed("agent", str(tmp_path / ".local" / "bin"))

    assert str(binary) == need.program
    assert (binary,) == need.folders


def test_of_a_package_of_npm_all_that_lies_beside_it_is_seen_and_the_node_that_runs_it(tmp_path: Path) -> None:
    prefix = tmp_path / "node"
    put(prefix / "bin" / "node", "\x7fELF")
    (prefix / "include" / "node").mkdir(parents=True)
    modules = tmp_path / "agents" / "node_modules"
    cli = put(modules / "@maker" / "agent" / "node_modules" / "x" / "cli.js", "#!/usr/bin/env -S node --flag\n")
    need = needed(str(cli), f"{prefix / 'bin'}:/usr/bin")

    assert str(cli) == need.program
    assert {modules, prefix} == set(need.folders)
    assert str(prefix / "bin") in need.path


def test_of_a_virtual_environment_the_whole_and_its_python_are_seen(tmp_path: Path) -> None:
    base = tmp_path / "python"
    put(base / "bin" / "python3.12", "\x7fELF")
    put(base / "lib" / "python3.12" / "os.py")
    venv = tmp_path / "venv"
    put(venv / "pyvenv.cfg", "home = x")
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(base / "bin" / "python3.12")
    tool = put(venv / "bin" / "aider", f"#!{venv}/bin/python\n")
    need = needed(str(tool))

    assert {venv, base} == set(need.folders)


def test_a_program_that_is_not_there_or_leads_nowhere(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no-such"):
        needed("no-such", str(tmp_path))
    put(tmp_path / "loops", f"#!{tmp_path}/loops\n")
    assert str(tmp_path / "loops") == needed(str(tmp_path / "loops")).program


def test_no_folder_of_kasmons_is_given_to_a_sandbox_but_a_plans_worktree(tmp_path: Path) -> None:
    ours = places()
    on = Ground(ours)
    worktree = ours.plan("p") / "trees" / "task"
    worktree.mkdir(parents=True)
    fit(on, str(worktree), "/workspace")
    fit(on, str(tmp_path), "/project")

    for folder in (ours.state, ours.plans, ours.plan("p"), ours.sessions / "x", ours.runtime, ours.config, Path.home()):
        with pytest.raises(RefusedError):
            fit(on, str(folder), "/project")


def test_variables_of_this_machine_stay_outside() -> None:
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


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has nobody to be instead")
def test_roots_jails_belong_to_a_user_that_nobody_is(tmp_path: Path) -> None:
    owner = (jail_user(), jail_user())

    assert owner[0] in ground.USERS
    assert not may_use(Path("/root"), owner, writable=False)
    assert may_use(Path("/usr/bin/env"), owner, writable=False)
    assert not may_use(Path("/usr/bin/env"), owner, writable=True)
    os.chown(tmp_path, *owner)
    assert not may_use(tmp_path, owner, writable=True)  # it is theirs, but they may not come there


def test_a_socket_whose_path_is_too_long_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kasmon.errors import SandboxError

    on = Ground(places())
    with pytest.raises(SandboxError, match="103 bytes"):
        on.socket(Policy(session="x" * 99).session)  # type: ignore[arg-type]


def test_a_machine_without_bubblewrap_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "MANAGERS", {"env": "env install {}"})
    found = lacking("no-bwrap-here")

    assert found is not None
    assert ("bubblewrap is not installed", "Install it: `env install bubblewrap`.") == found


@pytest.mark.parametrize(
    ("said", "version"), [("bubblewrap 0.7.9", "0.7.9"), ("what", "unknown"), ("bubblewrap 0.8.0", "")]
)
def test_one_that_is_too_old_is_told(tmp_path: Path, said: str, version: str) -> None:
    old = put(tmp_path / "bwrap", f"#!/bin/sh\necho {said}\n")
    found = lacking(str(old))

    assert (found is None) is (not version)
    assert found is None or version in found.why
    assert found is None or "0.8.0" in found.hint


def test_what_bubblewrap_says_is_told_with_what_helps(tmp_path: Path) -> None:
    def settings(name: str, value: str) -> Path:
        put(tmp_path / name / name, value)
        return tmp_path / name

    forbidden = reason("bwrap: setting up uid map: Permission denied\n")
    assert "namespaces" in forbidden.why
    assert forbidden.hint
    assert "seccomp" in reason("bwrap: prctl(PR_SET_SECCOMP): Invalid argument").why
    assert "Can't find source path /x" in reason("bwrap: Can't find source path /x: No such file").why
    for name, value, word in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
        ("kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "max_user_namespaces="),
    ):
        folder = tmp_path / word
        put(folder / name, value)
        assert word in how_to_allow(folder)
    assert "container" in how_to_allow(tmp_path / "none")
    assert version_of(shutil.which("true") or "true") is None
