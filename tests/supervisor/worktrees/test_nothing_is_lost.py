"""Nothing of a person's is lost: random walks over new, work, commit, push, discard, and removal of worktrees."""

import contextlib
import random
import time
from pathlib import Path

import pytest

from kasmon.config.schema import WorktreeConfig
from kasmon.errors import KasmonError
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.supervisor.worktrees.inventory import remove_session_worktree
from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, discard, new_worktree
from tests.support.git_repo import Repo

STEPS = 25


class Walk:
    """One repository with a remote on disk, the worktrees of its sessions, and every content that was ever in them."""

    def __init__(self, repo: Repo, remote: Path, seed: int) -> None:
        self.repo, self.random, self.trees, self.count = repo, random.Random(seed), list[SessionWorktree](), 0
        self.written: dict[str, str] = {}
        """Content -> where it was written."""
        repo.git("clone", "--quiet", "--bare", str(repo.folder), str(remote))
        repo.git("remote", "add", "origin", str(remote))
        repo.git("fetch", "--quiet", "origin")
        self.write(repo.folder, "stashed.txt")
        repo.git("add", ".")
        repo.git("stash")
        self.write(repo.folder, "staged.txt")
        repo.git("add", "staged.txt")
        self.write(repo.folder, "untracked.txt")
        (repo.folder / ".git" / "info" / "exclude").write_text("*.ignored\n")
        self.write(repo.folder, "x.ignored")

    def write(self, folder: Path, name: str) -> None:
        self.count += 1
        content = f"content {self.count} of {name}"
        (folder / name).write_text(content)
        self.written[content] = str(folder / name)

    def of_checkout(self) -> tuple[str, ...]:
        """The user's own: status, index, stash and all refs but those of kasmon and of pushes, and the files."""
        refs = self.repo.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        files = sorted(path for path in self.repo.folder.iterdir() if path.is_file())
        return (
            self.repo.git("status", "--porcelain", "--ignored"),
            self.repo.git("ls-files", "--stage"),
            self.repo.git("stash", "list", "--format=%H"),
            repr([ref for ref in refs if not any(word in ref for word in ("kasmon/", "saved", "stash"))]),
            repr([(path.name, path.read_bytes()) for path in files]),
        )

    def step(self) -> None:
        tree = self.random.choice(self.trees) if self.trees else None
        act = self.random.choice(
            [
                "new",
                "write",
                "commit",
                "ignored",
                "stage",
                "stash",
                "detach",
                "push",
                "merge",
                "remove",
                "remove",
                "fail",
            ]
        )
        if act == "new" or tree is None:
            with contextlib.suppress(KasmonError):
                self.new(fails=False)
        elif act == "fail":
            with contextlib.suppress(KasmonError):
                self.new(fails=True)
        elif act == "remove":
            with contextlib.suppress(KasmonError):
                fleet = Fleet(at=time.time())
                remove_session_worktree(WorktreeConfig(), tree, fleet, lambda text: None)
                self.trees.remove(tree)
        else:
            self.work(tree, act)

    def new(self, *, fails: bool) -> None:
        base = self.random.choice(["", "main", "origin/main"])
        request = WorktreeRequest(base=base)
        with new_worktree(WorktreeConfig(), request, self.repo.folder, "walk") as (tree, _):
            if fails and self.random.random() < 0.5:
                self.write(Path(tree.path), "left.txt")
                self.trees.append(tree)
            if fails:
                raise KasmonError("it failed.")
            self.trees.append(tree)

    def work(self, tree: SessionWorktree, act: str) -> None:
        path = Path(tree.path)
        name = f"f{self.count}.{'ignored' if act == 'ignored' else 'txt'}"
        self.write(path, name)
        with contextlib.suppress(Exception):
            if act != "write" and act != "ignored":
                self.repo.git("add", "-A", at=path)
            if act in ("commit", "push", "merge", "detach"):
                self.repo.git("commit", "--quiet", "-m", "work", at=path)
            if act == "stash":
                self.repo.git("stash", at=path)
            if act == "push":
                self.repo.git("push", "--quiet", "origin", f"HEAD:refs/heads/saved-{self.count}", at=path)
            if act == "merge":
                self.repo.git("branch", f"saved-{self.count}", at=path)
            if act == "detach":
                self.repo.git("checkout", "--quiet", "--detach", "HEAD~1", at=path)

    def lost(self) -> dict[str, str]:
        """The contents that are neither in a file nor in an object that a ref or a stash reaches."""
        reached = self.repo.git("rev-list", "--objects", "--all", "--reflog").splitlines()
        folders = [self.repo.folder, *(Path(tree.path) for tree in self.trees)]
        files = {path.read_text() for folder in folders for path in folder.iterdir() if path.is_file()}
        blobs = {line.split()[0] for line in reached}
        return {
            content: where
            for content, where in self.written.items()
            if content not in files and self.blob(content) not in blobs
        }

    def blob(self, content: str) -> str:
        import hashlib

        return hashlib.sha1(f"blob {len(content)}\0{content}".encode(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("seed", range(4))
def test_every_content_stays_in_any_order_of_new_work_failure_and_removal(
    repo: Repo, tmp_path: Path, seed: int
) -> None:
    walk = Walk(repo, tmp_path / "remote.git", seed)
    before = walk.of_checkout()

    for _ in range(STEPS):
        walk.step()

    assert {} == walk.lost()
    assert before[:2] == walk.of_checkout()[:2]
    assert before[3:] == walk.of_checkout()[3:]
    assert before[2].splitlines()[-1] in walk.of_checkout()[2]
    for tree in walk.trees:
        discard(tree)
    assert {} == walk.lost() or all(not Path(tree.path).exists() for tree in walk.trees)
