"""Nothing of a person's is lost: random walks over new, work, turns, undo, finish, kill, discard, and removal."""

import contextlib
import copy
import os
import random
import select
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import CalledProcessError

import pytest

from kasmon.config.schema import WorktreeConfig
from kasmon.errors import GitError, KasmonError
from kasmon.host.rpc.event_loop import run
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.paths import Paths, private_folder
from kasmon.repository.git import shared_folder
from kasmon.repository.turn_trees import TurnTrees
from kasmon.supervisor.finish.branch_operations import TEMPORARY
from kasmon.supervisor.finish.finish import finish
from kasmon.supervisor.finish.finish_plan import FinishRequest, plan_finish
from kasmon.supervisor.worktrees.inventory import remove_session_worktree
from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, discard, new_worktree
from kasmon.supervisor.worktrees.turn_changes import plan_redo, plan_undo, undo
from tests.support.git_repo import Repo
from tests.support.sample_fleet import session

pytestmark = pytest.mark.story

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
OTHERS = (
    "turn",
    "undo",
    "kill",
    "two",
    "edit shared",
    "edit shared",
    "hide",
    "tree rebase",
    "tag",
    "move back",
    "rebase",
)
"""Steps of a walk in which branches are finished, besides those that finish one."""
THEN = {
    "hide": ("edit shared", "finish merge"),
    "move back": ("discard",),
    "tree rebase": ("discard",),
    "rebase": ("ff",),
    "tag": ("finish push",),
    "merge": ("rebase",),
    "commit": ("finish merge",),
}
"""Steps that put something at risk -> those that often follow in the same worktree."""
HOOKS = ("pre-commit", "commit-msg", "pre-rebase", "pre-merge-commit", "post-merge", "post-checkout", "pre-push")
HOOKS_OF = {"finish merge": "pre-merge-commit", "squash": "commit-msg", "update": "pre-merge-commit"}
"""Steps -> the hook that fails behind the merge."""
CONFIG = """[user]
name = Ann
email = ann@example.org
[merge]
autoStash = true
[rebase]
autoStash = true
updateRefs = true
[push]
followTags = true
"""
"""What a person may have in the config and a finish must not do: stash changes, move other branches, push tags."""


def session_of(tree: SessionWorktree) -> Session:
    return session(Path(tree.path).name, worktree=tree, workdir=tree.path)


class Walk:
    """One repository with a remote on disk, the worktrees of its sessions, and every content that was ever in them."""

    def __init__(self, repo: Repo, remote: Path, seed: int, *, finishes: bool = False, kind: str = "plain") -> None:
        """*finishes*: branches are finished too, so the branch of the checkout moves.

        *kind*: the repository is `plain`, `bare`, a `submodule`, or has a `sparse` checkout.
        """
        self.finishes, self.outcomes, self.kind = finishes, Counter[str](), kind
        self.paths = Paths(state=private_folder(remote.parent / "state"), config=remote.parent / "config")
        self.random, self.trees, self.count = random.Random(seed), list[SessionWorktree](), 0
        self.written: dict[str, str] = {}
        """Content -> where it was written."""
        self.kept: dict[Path, str] = {}
        """Files of the checkout with changes that are not committed -> their contents."""
        self.stashed: dict[Path, str] = {}
        """The same, while a rebase in the checkout stashed some of them."""
        self.next: tuple[SessionWorktree | None, list[str]] = (None, [])
        """The steps that come next in a worktree."""
        self.failed: list[str] = []
        """What git failed to do although no hook and no other process was in the way."""
        self.hidden = set[Path]()
        """The worktrees with changes that git does not show."""
        self.trail: list[str] = []
        """The steps that were taken."""
        self.hooks_ran = remote.parent / "hooks-ran"
        for name in ("shared.txt", "own.txt", "outside/o.txt"):
            repo.commit(name)
        self.repo = copy.copy(repo)
        if kind == "bare":
            self.repo.folder = remote.parent / "bare.git"
            repo.git("clone", "--quiet", "--bare", str(repo.folder), str(self.repo.folder))
        elif kind == "submodule":
            outer = Repo(remote.parent / "outer")
            outer.git("submodule", "--quiet", "add", str(repo.folder), "inner")
            self.repo.folder = outer.folder / "inner"
        self.git_folder = shared_folder(self.repo.folder)
        repo.git("clone", "--quiet", "--bare", str(repo.folder), str(remote))
        self.repo.git("config", "remote.origin.url", str(remote))
        self.repo.git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
        self.repo.git("fetch", "--quiet", "origin")
        self.exclude("*.ignored")
        if kind == "sparse":
            self.repo.git("sparse-checkout", "set", "--cone", "inside")
        if kind == "bare":
            return
        self.write(self.repo.folder, "stashed.txt")
        self.repo.git("add", ".")
        self.repo.git("stash")
        self.change("staged.txt")
        self.repo.git("add", "staged.txt")
        self.change("untracked.txt")
        self.change("x.ignored")
        if finishes:
            self.change("own.txt")

    def exclude(self, pattern: str) -> None:
        (self.git_folder / "info").mkdir(exist_ok=True)
        with (self.git_folder / "info" / "exclude").open("a") as file:
            file.write(f"{pattern}\n")

    def write(self, folder: Path, name: str) -> str:
        """Write a new content; that of before in this file, which the person replaces, no longer counts."""
        self.count += 1
        content = f"content {self.count} of {name}"
        file = folder / name
        if file.is_file():
            self.written.pop(file.read_text(), None)
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
        self.written[content] = str(file)
        return content

    def change(self, name: str) -> None:
        """Write a file of the checkout and do not commit it."""
        self.kept[self.repo.folder / name] = self.write(self.repo.folder, name)

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
                *((*FINISHES, *FINISHES, *OTHERS) if self.finishes else ()),
            ]
        )
        expected, steps = self.next
        if steps and expected in self.trees:
            tree, act = expected, steps.pop(0)
        elif self.finishes and act in THEN and self.random.random() < 0.7:
            self.next = (tree, [*THEN[act]])
        self.trail.append(f"{self.count} {act} {Path(tree.path).name if tree else ''}")
        if tree and Path(tree.path) in self.hidden and act in ("stash", "detach", "tree rebase"):
            return  # the person's git itself would overwrite the hidden changes
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
            with self.others_unchanged(tree):
                self.finish(tree, act)
        elif act == "turn":
            self.take_turn(tree)
        elif act == "undo":
            self.undo(tree)
        elif act in ("kill", "two"):
            with self.others_unchanged(tree, *(self.trees if act == "two" else ())):
                self.kill(tree) if act == "kill" else self.finish_two(tree)
        elif act == "hide":
            self.hide(self.random.choice([self.repo.folder, Path(tree.path)]))
        elif act == "rebase":
            self.rebase_checkout()
        elif act == "tree rebase":
            with contextlib.suppress(CalledProcessError):
                self.write(Path(tree.path), "own.txt")
                self.start_rebase(Path(tree.path))
        elif act == "move back":
            self.move_back(tree)
        else:
            self.work(tree, act)

    @contextlib.contextmanager
    def others_unchanged(self, *trees: SessionWorktree) -> Iterator[None]:
        """Assert that only the branches of *trees* and their base move, no tag is pushed, the checkout stays.

        A base that is being rebased does not move either.
        """
        before = self.other_refs(*trees)
        yield
        assert before == self.other_refs(*trees)
        assert "" == self.repo.git("ls-remote", "--tags", "origin")
        assert self.kept == {path: path.read_text() if path.exists() else "" for path in self.kept}

    def other_refs(self, *trees: SessionWorktree) -> list[str]:
        refs = self.repo.git(
            "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags"
        ).splitlines()
        moving = {f"refs/heads/{tree.branch}" for tree in trees}
        if not self.is_rebasing(self.git_folder):
            moving.add("refs/heads/main")
        return [ref for ref in refs if ref.split(" ")[0] not in moving]

    def is_rebasing(self, own: Path) -> bool:
        return (own / "rebase-merge").exists()

    def finish(self, tree: SessionWorktree, act: str) -> None:
        """Finish the branch of *tree* as far as it is possible; sometimes its base or its checkout changes before."""
        is_bare = self.kind == "bare"
        change = self.random.random()
        if change < 0.15 and not is_bare:
            name = f"f{self.random.randrange(self.count)}.txt"
            if not (self.repo.folder / name).exists():
                self.change(name)
        elif change < 0.3 and not is_bare:
            with contextlib.suppress(CalledProcessError):
                self.repo.git("commit", "--quiet", "-m", "staged")
        elif change < 0.4 and not is_bare:
            self.track_ignored(Path(tree.path))
        hook, fails = None, self.random.random() < 0.6
        if change > 0.5:
            hook = self.add_hook(HOOKS_OF.get(act) or self.random.choice(HOOKS), fails=fails)
        try:
            self.carry_out(tree, act)
        except KasmonError as error:
            self.outcomes[f"{act} refused"] += 1
            if isinstance(error, GitError) and not (hook and fails):
                self.failed.append(f"{act}: {error}")
        else:
            self.outcomes[act] += 1
        if hook is not None:
            hook.unlink()
        if not Path(tree.path).exists():
            self.trees.remove(tree)

    def add_hook(self, name: str, *, fails: bool) -> Path:
        """Add a hook that writes a file and stages it, or only writes it; what it wrote counts as the person's."""
        self.count += 1
        file, content = f"h{self.count}.txt", f"content {self.count} of a hook"
        stages = f"git add --sparse {file}" if self.random.random() < 0.7 else ":"
        ran = f"echo {shlex.quote(content)} >> {shlex.quote(str(self.hooks_ran))}"
        hook = self.git_folder / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(
            f"#!/bin/sh\ncase $PWD in */{TEMPORARY}*) exit 0;; esac\n"
            f"test -e {file} || {{ printf %s {shlex.quote(content)} > {file}; {ran}; }}\n{stages}\nexit {int(fails)}\n"
        )
        hook.chmod(0o755)
        return hook

    def track_ignored(self, path: Path) -> None:
        """Have the base track a file that the worktree at *path* has too, where git ignores it."""
        with contextlib.suppress(CalledProcessError):
            name = f"f{self.count}.ignored"
            self.write(path, name)
            self.write(self.repo.folder, name)
            self.repo.git("add", "--force", "--", name)
            self.repo.git("commit", "--quiet", "-m", "track", "--", name)

    def hide(self, folder: Path) -> None:
        """Change a file that branches change, in a way that git does not show."""
        if (folder / "shared.txt").is_file():
            how = self.random.choice(["--assume-unchanged", "--skip-worktree"])
            self.repo.git("update-index", how, "shared.txt", at=folder)
            self.hidden.add(folder)
            content = self.write(folder, "shared.txt")
            if folder == self.repo.folder:
                self.kept[folder / "shared.txt"] = content

    def start_rebase(self, folder: Path) -> None:
        """Leave a rebase unfinished in *folder*, whose changes are stashed."""
        self.count += 1
        name, other = f"r{self.count}.txt", self.repo.folder.parent / f"other-{self.count}"
        self.repo.git("worktree", "add", "--quiet", "-b", other.name, str(other), at=folder)
        self.repo.commit(name, "theirs", at=other)
        self.repo.git("worktree", "remove", str(other), at=folder)
        (folder / name).write_text("ours")
        self.repo.git("add", "--", name, at=folder)
        self.repo.git("commit", "--quiet", "-m", "ours", "--", name, at=folder)
        with contextlib.suppress(CalledProcessError):
            self.repo.git("rebase", "--autostash", other.name, at=folder)

    def rebase_checkout(self) -> None:
        """Start a rebase in the checkout, or abort the unfinished one: its work is as before then."""
        if self.kind == "bare":
            return
        if self.is_rebasing(self.git_folder):
            self.repo.git("rebase", "--abort")
            assert "main" == self.repo.git("branch", "--show-current")
            self.kept = self.stashed
        elif self.repo.folder not in self.hidden:
            self.stashed, self.kept = (
                self.kept,
                {path: text for path, text in self.kept.items() if path.name[0] in "ux"},
            )
            with contextlib.suppress(CalledProcessError):
                self.start_rebase(self.repo.folder)
            if not self.is_rebasing(self.git_folder):
                self.kept = self.stashed

    def move_back(self, tree: SessionWorktree) -> None:
        """Move the branch of *tree* to a new commit and back, from outside: only the log of the branch has it then."""
        self.count += 1
        branch, other = f"refs/heads/{tree.branch}", self.repo.folder.parent / f"moved-{self.count}"
        with contextlib.suppress(CalledProcessError):
            self.repo.git("worktree", "add", "--quiet", "--detach", str(other), branch)
            content = self.write(other, "moved.txt")
            self.repo.git("add", "moved.txt", at=other)
            self.repo.git("commit", "--quiet", "-m", "moved", at=other)
            moved, tip = self.repo.git("rev-parse", "HEAD", "HEAD~1", at=other).split()
            for to in (moved, tip):
                self.repo.git("update-ref", "--create-reflog", "-m", "moved", branch, to)
            self.written[content] = f"the log of {branch}"
            self.repo.git("worktree", "remove", str(other))

    def carry_out(self, tree: SessionWorktree, act: str) -> None:
        walker = session_of(tree)
        plan = plan_finish(self.paths, walker, FINISHES[act], Fleet(at=time.time()))
        run(finish(self.paths, walker, plan, lambda text: None))

    def take_turn(self, tree: SessionWorktree) -> None:
        """Let an agent work, with its files stored before and after."""
        turns = TurnTrees(self.paths.turns(session_of(tree).id))
        number = turns.begin(Path(tree.path))
        self.write(Path(tree.path), f"f{self.count}.txt")
        if number is not None:
            turns.end(Path(tree.path), number)

    def undo(self, tree: SessionWorktree) -> None:
        """Undo the last turn, or the last undo, if that is possible."""
        with contextlib.suppress(KasmonError):
            undo(self.paths, session_of(tree), self.random.choice((plan_undo, plan_redo))(self.paths, session_of(tree)))
            self.outcomes["undo"] += 1

    def kill(self, tree: SessionWorktree) -> None:
        """Kill kasmon and its git while it finishes the branch, and remove git's locks, as git tells a person to do."""
        with self.finishing(tree, self.random.choice([*FINISHES])) as (pid, ended):
            is_done = bool(select.select([ended], [], [], self.random.random() / 2)[0])
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.outcomes["ended" if is_done else "killed"] += 1
        for lock in self.git_folder.rglob("*.lock"):
            lock.unlink(missing_ok=True)

    def finish_two(self, tree: SessionWorktree) -> None:
        """Finish the branch of *tree* and another one at once."""
        other = self.random.choice(self.trees)
        with self.finishing(tree, self.random.choice([*FINISHES])), contextlib.suppress(KasmonError):
            self.carry_out(other, self.random.choice([*FINISHES]))
        self.outcomes["two"] += 1
        self.trees = [each for each in self.trees if Path(each.path).exists()]

    @contextlib.contextmanager
    def finishing(self, tree: SessionWorktree, act: str) -> Iterator[tuple[int, int]]:
        """Finish the branch of *tree* in another process; yield it, with what can be read when it ends."""
        ended, ends = os.pipe()
        if not (pid := os.fork()):
            os.setpgid(0, 0)
            with contextlib.suppress(BaseException):
                self.carry_out(tree, act)
            os._exit(0)
        os.close(ends)
        with contextlib.suppress(OSError):  # both do it: it is done before the next line
            os.setpgid(pid, pid)
        try:
            yield pid, ended
        finally:
            os.waitpid(pid, 0)
            os.close(ended)
        self.trees = [each for each in self.trees if Path(each.path).exists()]

    def fetch_discarded(self) -> None:
        """Fetch what discards stored, as a person would."""
        for number, bundle in enumerate(sorted(self.paths.discarded.glob("*"))):
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
        folder = "outside/" if self.kind == "sparse" and self.count % 2 else ""
        name = f"{folder}f{self.count}.{'ignored' if act == 'ignored' else 'txt'}"
        self.write(path, "shared.txt" if act == "edit shared" else name)
        with contextlib.suppress(Exception):
            if act not in ("write", "ignored", "edit shared"):
                self.repo.git("add", "-A", "--sparse", at=path)
            if act in ("commit", "push", "merge", "detach", "tag"):
                self.repo.git("commit", "--quiet", "-m", "work", at=path)
            if act == "stash":
                self.repo.git("stash", at=path)
            if act == "push":
                self.repo.git("push", "--quiet", "origin", f"HEAD:refs/heads/saved-{self.count}", at=path)
            if act == "merge":
                self.repo.git("branch", f"saved-{self.count}", at=path)
            if act == "tag":
                self.repo.git("tag", "-a", "-m", "tag", f"tag-{self.count}", at=path)
            if act == "detach":
                self.repo.git("checkout", "--quiet", "--detach", "HEAD~1", at=path)

    def lost(self) -> dict[str, str]:
        """The contents that are neither in a file nor in an object that a ref or a stash reaches."""
        stashed = [file.read_text().strip() for file in self.git_folder.rglob("rebase-merge/autostash")]
        reached = self.repo.git("rev-list", "--objects", "--all", "--reflog", *stashed).splitlines()
        for store in self.paths.state.glob("sessions/*/turns.git"):
            reached += self.repo.git("--git-dir", str(store), "rev-list", "--objects", "--all").splitlines()
        folders = [self.repo.folder, *(Path(tree.path) for tree in self.trees)]
        files = {
            file.read_text()
            for folder in folders
            for pattern in ("*.txt", "*.ignored", "outside/*")
            for file in folder.glob(pattern)
        }
        if self.hooks_ran.exists():
            self.written |= dict.fromkeys(self.hooks_ran.read_text().splitlines(), "a hook")
        blobs = {line.split()[0] for line in reached}
        return {
            content: where
            for content, where in self.written.items()
            if content not in files and self.blob(content) not in blobs
        }

    def blob(self, content: str) -> str:
        import hashlib

        return hashlib.sha1(f"blob {len(content)}\0{content}".encode(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
def test_all_content_stays_in_any_order_of_new_work_failure_and_removal(repo: Repo, tmp_path: Path, seed: int) -> None:
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


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("plain", 1),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in (("sparse", 2), ("bare", 3), ("submodule", 4))),
    ],
)
def test_all_content_stays_or_is_named_in_any_order_of_finishes_and_discards(
    repo: Repo, tmp_path: Path, kind: str, seed: int
) -> None:
    (tmp_path / ".gitconfig").write_text(CONFIG)
    walk = Walk(repo, tmp_path / "remote.git", seed, finishes=True, kind=kind)

    for _ in range(45):
        walk.step()

    assert any(act in FINISHES for act in walk.outcomes), walk.outcomes
    if walk.is_rebasing(walk.git_folder):
        walk.rebase_checkout()
    walk.fetch_discarded()
    assert {} == walk.lost(), "\n".join(walk.trail)
    assert walk.kept == {path: path.read_text() for path in walk.kept}
    assert [] == walk.failed
