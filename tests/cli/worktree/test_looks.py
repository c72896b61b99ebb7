"""What kasmon shows of a repository runs no program that the repository's own config names."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.worktree.test_finish import SCRIPTED
from tests.support.cli.cli_runner import Cli
from tests.support.cli.turns import turn
from tests.support.git_repo import Repo

pytestmark = pytest.mark.story

HOOKS = ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "pre-push", "post-merge")
PROGRAMS = (
    *("core.fsmonitor", "core.askPass", "core.sshCommand", "core.gitProxy", "core.pager", "core.editor"),
    *("core.alternateRefsCommand", "sequence.editor", "interactive.diffFilter", "gpg.program", "gpg.ssh.program"),
    *("diff.external", "diff.evil.command", "diff.evil.textconv", "merge.evil.driver"),
    *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process"),
    *("remote.origin.uploadpack", "remote.origin.receivepack", "uploadpack.packObjectsHook", "gc.recentObjectsHook"),
    *("trailer.x.command", "trailer.x.cmd", "mergetool.evil.cmd", "difftool.evil.cmd"),
    *(f"pager.{name}" for name in ("diff", "log", "status", "branch", "stash", "config", "show")),
)
SHELL = ("credential.helper", "submodule.sub.update", *(f"alias.{name}" for name in ("diff", "status", "log", "x")))
"""Settings whose value is a command only after a `!`."""
SWITCHES = {
    "commit.gpgSign": "true",
    "merge.verifySignatures": "true",
    "log.showSignature": "true",
    "submodule.recurse": "true",
    "status.submoduleSummary": "true",
    "diff.submodule": "log",
    "diff.ignoreSubmodules": "none",
    "protocol.ext.allow": "always",
    "gc.auto": "1",
}


class Trap:
    """Each setting of a repository that names a program names this one, which notes that it ran."""

    def __init__(self, folder: Path, repo: Repo) -> None:
        self._ran, self._program = folder / "ran", folder / "spy"
        self._program.write_text(f'#!/bin/sh\necho "$*" >>{self._ran}\nexit 1\n')
        self._program.chmod(0o755)
        included = folder / "included"
        included.write_text(f"[core]\n\tfsmonitor = {self._program} included\n")
        hooks = folder / "hooks"
        hooks.mkdir()
        for name in HOOKS:
            for file in (hooks / name, repo.folder / ".git" / "hooks" / name):
                file.parent.mkdir(exist_ok=True)
                file.symlink_to(self._program)
        commands = {name: f"{self._program} {name}" for name in PROGRAMS} | {
            name: f"!{self._program} {name}" for name in SHELL
        }
        commands[f"url.ext::{self._program} ext .insteadOf"] = "ssh://git@example.invalid/"
        settings = {**SWITCHES, **commands, "core.hooksPath": str(hooks)}
        for condition in ("gitdir:**", "onbranch:**"):
            settings[f"includeIf.{condition}.path"] = str(included)
        for name, value in settings.items():
            repo.git("config", name, value)

    @property
    def ran(self) -> str:
        return self._ran.read_text() if self._ran.exists() else ""


@pytest.fixture
def repo(kasmon: Cli) -> Repo:
    (kasmon.home / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
    repo = Repo(kasmon.home / "shop")
    part = Repo(kasmon.home / "part")
    repo.git("submodule", "--quiet", "add", str(part.folder), "sub")
    repo.commit(".gitattributes", "*.evil filter=evil diff=evil merge=evil\n")
    repo.commit("a.evil")
    repo.git("remote", "add", "origin", "ssh://git@example.invalid/shop.git")
    for name in ("one", "two"):
        assert 0 == kasmon("new", name, *SCRIPTED, "--prompt", "", "--worktree", "--dir", str(repo.folder)).code
        repo.commit("a.evil", f"by {name}\n", at=kasmon.home / "shop-worktrees" / name)
    return repo


def test_no_read_command_runs_a_program_of_the_repository(kasmon: Cli, repo: Repo) -> None:
    tree = kasmon.home / "shop-worktrees" / "one"
    repo.commit("a.evil", "base\n")
    trap = Trap(kasmon.home, repo)

    planned = kasmon("merge-plan", "one", "two", "--dry-run")
    turn(kasmon, lambda: (tree / "a.evil").write_text("changed\n"))
    (tree / "new.evil").write_text("new\n")
    finishes = (
        "--commit --update merge",
        "--commit --push",
        "--commit --merge",
        "--commit --squash",
        "--commit --take-over",
    )
    looks = [
        *("ls --json", "show one", "diff one", "diff one --stat", "diff one --last", "hunks one", "undo one --dry-run"),
        *("comment one a.evil:1 why", "comments one", "worktrees", "worktrees gc", "finish one"),
        *(f"finish one {options} --dry-run" for options in finishes),
    ]
    codes = {look: kasmon(*look.split()).code for look in looks}

    assert (0, "conflicts in 'a.evil'" in planned.out) == (planned.code, True), planned.err
    assert {0} == set(codes.values()), codes
    assert "" == trap.ran
    subprocess.run(["git", "diff", "main"], cwd=tree, capture_output=True, check=False, env=kasmon.environment)
    assert "included" in trap.ran, "the user's own git runs them"
