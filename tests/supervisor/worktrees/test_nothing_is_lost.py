"""Nothing of a person's is lost: random walks over new, work, turns, undo, finish, kill, discard, and removal."""

import contextlib
import os
import random
import select
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from kasmon.config.schema import WorktreeConfig
from kasmon.errors import KasmonError
from kasmon.host.rpc.event_loop import run
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.paths import Paths, private_folder
from kasmon.repository.turn_trees import TurnTrees
from kasmon.supervisor.finish.finish import finish
from kasmon.supervisor.finish.finish_plan import FinishRequest, plan_finish
from kasmon.supervisor.worktrees.inventory import remove_session_worktree
from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, discard, new_worktree
from kasmon.supervisor.worktrees.turn_changes import plan_redo, plan_undo, undo
from tests.support.git_repo import Repo
from tests.support.sample_fleet import session

STEPS = 25
FINISHES = {
    "finish commit": FinishRequest(commits=True),
    "rebase": FinishRequest(commits=True, update="rebase"),
    "update": FinishRequest(update="merge"),
    "keep conflicts": FinishRequest(commits=True, update="merge", conflicts="keep"),
    "finish push": FinishRequest(pushes=True),
    "ff": FinishRequest(commits=True, update="rebase", merge="ff"),
    "finish merge": FinishRequest(commits=True, merge="merge"),
    "squash": FinishRequest(merge="squash"),
    "take over": FinishRequest(commits=True, takes_over=True),
    "discard": FinishRequest(discards=True),
    "squash and discard": FinishRequest(commits=True, merge="squash", discards=True),
}
"""Steps of a walk that finish a branch."""


def session_of(tree: SessionWorktree) -> Session:
    return session(Path(tree.path).name, worktree=tree, workdir=tree.path)


class Walk:
    """One repository with a remote on disk, the worktrees of its sessions, and every content that was ever in them."""

    def __init__(self, repo: Repo, remote: Path, seed: int, *, finishes: bool = False) -> None:
        """*finishes*: branches are finished too, so the branch of the checkout moves."""
        self.finishes, self.outcomes = finishes, Counter[str]()
        self.places = Paths(state=private_folder(remote.parent / "state"), config=remote.parent / "config")
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
                *((*FINISHES, "turn", "turn", "undo", "undo", "kill", "kill") if self.finishes else ()),
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
        elif act in FINISHES:
            self.finish(tree, act)
        elif act == "turn":
            self.take_turn(tree)
        elif act == "undo":
            self.undo(tree)
        elif act == "kill":
            self.kill(tree)
        else:
            self.work(tree, act)

    def finish(self, tree: SessionWorktree, act: str) -> None:
        """Finish the branch of *tree* as far as it is possible; sometimes its base or its checkout changes before."""
        change = self.random.random()
        if change < 0.2:
            name = f"f{self.random.randrange(self.count)}.txt"
            if not (self.repo.folder / name).exists():
                self.write(self.repo.folder, name)
        elif change < 0.4:
            with contextlib.suppress(Exception):
                self.repo.git("commit", "--quiet", "-m", "staged")
        try:
            self.carry_out(tree, act)
        except KasmonError:
            self.outcomes[f"{act} refused"] += 1
        else:
            self.outcomes[act] += 1
        if not Path(tree.path).exists():
            self.trees.remove(tree)

    def carry_out(self, tree: SessionWorktree, act: str) -> None:
        walker = session_of(tree)
        plan = plan_finish(self.places, walker, FINISHES[act], Fleet(at=time.time()))
        run(finish(self.places, walker, plan, lambda text: None))

    def take_turn(self, tree: SessionWorktree) -> None:
        """Let an agent work, with its files stored before and after."""
        turns = TurnTrees(self.places.turns(session_of(tree).id))
        number = turns.begin(Path(tree.path))
        self.write(Path(tree.path), f"f{self.count}.txt")
        if number is not None:
            turns.end(Path(tree.path), number)

    def undo(self, tree: SessionWorktree) -> None:
        """Undo the last turn, or the last undo, if that is possible."""
        with contextlib.suppress(KasmonError):
            undo(
                self.places, session_of(tree), self.random.choice((plan_undo, plan_redo))(self.places, session_of(tree))
            )
            self.outcomes["undo"] += 1

    def kill(self, tree: SessionWorktree) -> None:
        """Kill kasmon and its git while it finishes the branch, and remove git's locks, as git tells a person to do."""
        ended, ends = os.pipe()
        if not (pid := os.fork()):
            os.setpgid(0, 0)
            with contextlib.suppress(BaseException):
                self.carry_out(tree, self.random.choice([*FINISHES]))
            os._exit(0)
        os.close(ends)
        with contextlib.suppress(OSError):  # both do it: it is done before the next line
            os.setpgid(pid, pid)
        is_done = bool(select.select([ended], [], [], self.random.random() / 2)[0])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ended)
        self.outcomes["ended" if is_done else "killed"] += 1
        for lock in (self.repo.folder / ".git").rglob("*.lock"):
            lock.unlink(missing_ok=True)
        if not Path(tree.path).exists():
            self.trees.remove(tree)

    def fetch_discarded(self) -> None:
        """Fetch what discards stored, as a person would."""
        for number, bundle in enumerate(sorted(self.places.discarded.glob("*"))):
            self.repo.git("fetch", "--quiet", str(bundle), f"refs/*:refs/back/{number}/*")

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
        for store in self.places.state.glob("sessions/*/turns.git"):
            reached += self.repo.git("--git-dir", str(store), "rev-list", "--objects", "--all").splitlines()
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


@pytest.mark.parametrize("seed", range(4))
def test_every_content_stays_or_is_named_in_any_order_of_finishes_and_discards(
    repo: Repo, tmp_path: Path, seed: int
) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
    walk = Walk(repo, tmp_path / "remote.git", seed, finishes=True)
    stash = repo.git("stash", "list", "--format=%H").splitlines()[-1]

    for _ in range(STEPS * 2):
        walk.step()

    assert any(act in FINISHES for act in walk.outcomes), walk.outcomes
    walk.fetch_discarded()
    assert {} == walk.lost()
    assert stash in repo.git("stash", "list", "--format=%H")
    assert all((repo.folder / name).exists() for name in ("staged.txt", "untracked.txt", "x.ignored"))
