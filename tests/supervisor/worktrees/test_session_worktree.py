"""A session's own worktree, on real repositories: where it begins, what it is called, and what is left of a failure."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kasmon.config.schema import WorktreeConfig
from kasmon.errors import GitError, NotFoundError, RefusedError, UnavailableError, UsageError
from kasmon.model.commands import SessionWorktree
from kasmon.supervisor.worktrees import session_worktree
from kasmon.supervisor.worktrees.session_worktree import WorktreeRequest, locate, new_worktree, slug
from tests.support.git_repo import Repo

pytestmark = pytest.mark.usefixtures("no_git_config")


SHIPPED = WorktreeConfig()


def create(folder: Path, name: str = "fix login", config: WorktreeConfig = SHIPPED, **request: object) -> Path:
    """Create a worktree as a session of this name gets it; return the folder where that session starts."""
    with new_worktree(config, WorktreeRequest(**request), folder, name) as (tree, workdir):  # type: ignore[arg-type]  # fields by name
        TREES[workdir] = tree
        return Path(workdir)


TREES: dict[str, SessionWorktree] = {}


def tree_of(workdir: Path) -> SessionWorktree:
    return TREES[str(workdir)]


def snapshot(repo: Repo) -> tuple[str, ...]:
    """What must not change: status, refs, stash, config, and the content of the checkout."""
    files = sorted(path for path in repo.folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return (
        repo.git("status", "--porcelain", "--ignored"),
        repo.git("for-each-ref"),
        repo.git("stash", "list"),
        (repo.folder / ".git" / "config").read_text(),
        repo.git("ls-files", "--stage"),
        repr([(str(path), path.read_bytes()) for path in files]),
    )


# Where it begins


def test_a_worktree_is_beside_the_repository_on_a_new_branch_from_the_current_one(repo: Repo, tmp_path: Path) -> None:
    work = create(repo.folder)

    assert tmp_path / "repo-worktrees" / "fix-login" == work
    assert "kasmon/fix-login" == repo.git("branch", "--show-current", at=work)
    assert ("main", repo.head) == (tree_of(work).base_name, tree_of(work).base)
    assert 0o700 == work.parent.stat().st_mode & 0o777


def test_only_a_branch_is_added_to_the_users_repository(repo: Repo) -> None:
    (repo.folder / "file0.txt").write_text("staged\n")
    repo.git("add", "file0.txt")
    repo.git("stash")
    (repo.folder / "file0.txt").write_text("changed\n")
    (repo.folder / "new.txt").write_text("new\n")
    before = snapshot(repo)

    work = create(repo.folder)
    repo.git("worktree", "remove", str(work))
    repo.git("branch", "-D", "kasmon/fix-login")

    assert before == snapshot(repo)


@pytest.mark.parametrize("base", ["v1", "origin/topic", "topic", "first"])
def test_a_tag_a_remote_branch_a_branch_and_a_commit_are_bases(repo: Repo, tmp_path: Path, base: str) -> None:
    first = repo.head
    repo.git("branch", "topic")
    repo.git("tag", "--annotate", "-m", "one", "v1")
    repo.git("update-ref", "refs/remotes/origin/topic", first)
    repo.commit("second.txt")

    work = create(repo.folder, base=first if base == "first" else base)

    assert first == tree_of(work).base == repo.git("rev-parse", "HEAD", at=work)


@pytest.mark.parametrize("base", ["nothing", "--all", "HEAD:file0.txt", "a b", "-b"])
def test_a_base_that_names_no_commit_is_an_error_and_leaves_nothing(repo: Repo, tmp_path: Path, base: str) -> None:
    before = snapshot(repo)

    with pytest.raises(UsageError, match="names no commit"):
        create(repo.folder, base=base)

    assert before == snapshot(repo)
    assert not (tmp_path / "repo-worktrees").exists()


def test_a_repository_without_a_commit_says_what_to_do_and_outside_of_one_it_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="has no commit yet"):
        create(Repo(tmp_path / "r", commits=0).folder)

    with pytest.raises(UsageError, match="requires a git repository"):
        create(tmp_path)


def test_a_session_starts_in_the_same_subfolder(repo: Repo) -> None:
    repo.commit("a/b/c.txt")

    work = create(repo.folder / "a" / "b")

    assert ("b", True) == (work.name, (work / "c.txt").exists())


def test_a_subfolder_that_the_base_lacks_is_named_and_the_session_starts_at_the_top(repo: Repo) -> None:
    (repo.folder / "new").mkdir()

    work = create(repo.folder / "new")

    assert "fix-login" == work.name
    assert "it has no folder 'new', so the session starts at its top" in tree_of(work).remarks


def test_a_subfolder_that_is_a_link_out_of_the_worktree_is_not_entered(repo: Repo, tmp_path: Path) -> None:
    (repo.folder / "out").symlink_to(tmp_path)
    repo.git("add", "out")
    repo.git("commit", "--quiet", "-m", "link")
    (repo.folder / "out").unlink()
    (repo.folder / "out").mkdir()

    assert "fix-login" == create(repo.folder / "out").name


def test_a_worktree_of_a_worktree_is_beside_the_repository_and_begins_at_its_branch(repo: Repo, tree: Path) -> None:
    commit = repo.commit("more.txt", at=tree)

    work = create(tree)

    assert repo.folder.parent / "repo-worktrees" / "fix-login" == work
    assert ("plan/t", commit) == (tree_of(work).base_name, tree_of(work).base)


@pytest.mark.parametrize("layout", ["shop.git", "shop/.bare"])
def test_a_bare_repository_has_worktrees_beside_it(repo: Repo, tmp_path: Path, layout: str) -> None:
    bare = tmp_path / layout
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(bare))
    if bare.name == ".bare":
        (bare.parent / ".git").write_text("gitdir: ./.bare\n")

    work = create(bare if bare.name != ".bare" else bare.parent)

    assert tmp_path / "shop-worktrees" / "fix-login" == work
    assert (work / "file0.txt").exists()


def test_a_submodule_has_worktrees_beside_the_repository_around_it(repo: Repo, tmp_path: Path) -> None:
    library = Repo(tmp_path / "lib")
    repo.git("submodule", "--quiet", "add", str(library.folder), "lib")
    repo.git("commit", "--quiet", "-m", "lib")

    assert tmp_path / "repo-lib-worktrees" / "fix-login" == create(repo.folder / "lib")
    assert any("submodule update --init" in remark for remark in tree_of(create(repo.folder, "other")).remarks)


def test_a_sparse_checkout_stays_sparse(repo: Repo) -> None:
    repo.commit("in/a.txt")
    repo.commit("out/b.txt")
    repo.git("sparse-checkout", "set", "in")

    work = create(repo.folder)

    assert ([True, False], "") == (
        [(work / "in").exists(), (work / "out").exists()],
        repo.git("status", "--porcelain", at=work),
    )


# Names


def test_names_are_unique(repo: Repo) -> None:
    create(repo.folder)
    repo.git("branch", "kasmon/fix-login-2")

    work = create(repo.folder, "fix/login")

    assert ("fix-login-3", "kasmon/fix-login-3") == (work.name, tree_of(work).branch)


def test_an_existing_folder_is_left_alone(repo: Repo, tmp_path: Path) -> None:
    taken = tmp_path / "repo-worktrees" / "fix-login"
    taken.mkdir(parents=True)

    assert "fix-login-2" == create(repo.folder).name
    assert [] == list(taken.iterdir())


def test_a_branch_may_be_named_and_an_existing_one_is_used_only_on_request(repo: Repo) -> None:
    repo.git("branch", "topic")
    repo.commit("second.txt")

    with pytest.raises(RefusedError, match="the branch 'topic' already exists") as told:
        create(repo.folder, branch="topic")
    work = create(repo.folder, branch="topic", reuses_branch=True)

    assert "--reuse-branch" in told.value.hint
    assert ("topic", False) == (repo.git("branch", "--show-current", at=work), tree_of(work).is_new_branch)
    assert "mine" == tree_of(create(repo.folder, "another", branch="mine")).branch


def test_a_branch_that_is_checked_out_is_refused_and_leaves_nothing(repo: Repo, tmp_path: Path) -> None:
    before = snapshot(repo)

    with pytest.raises(GitError, match=r"already (checked out|used by worktree)") as told:
        create(repo.folder, branch="main", reuses_branch=True)

    assert f"pass `--dir {repo.folder}`" in told.value.hint
    assert before == snapshot(repo)
    assert not (tmp_path / "repo-worktrees").exists()


def test_a_branch_that_git_refuses_beside_another_is_refused_with_the_reason(repo: Repo) -> None:
    repo.git("branch", "kasmon")

    with pytest.raises(RefusedError, match="git cannot create 'kasmon/fix-login' next to it"):
        create(repo.folder)


@pytest.mark.parametrize(
    "branch", ["-d", "a b", "a..b", "a\nb", "\x1b[31m", "a/", "@", "HEAD", "x.lock", "@{-1}", "a\\b", "\udcff", "a~1"]
)
def test_a_branch_name_that_git_does_not_accept_is_refused(repo: Repo, branch: str) -> None:
    before = snapshot(repo)

    with pytest.raises(UsageError, match="is not a valid branch name"):
        create(repo.folder, branch=branch)

    assert before == snapshot(repo)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("../../etc", "etc"), ("$(touch x)", "touch-x"), ("-rf /", "rf"), ("日本", "日本"), ("a" * 90, "a" * 60)],
)
def test_a_session_name_becomes_a_harmless_part_of_a_path(name: str, expected: str) -> None:
    assert expected == slug(name)


def test_a_session_name_without_letters_is_refused() -> None:
    with pytest.raises(UsageError, match="no letter and no digit"):
        slug("💥--")


def test_template_and_folder_come_from_the_config(repo: Repo, tmp_path: Path) -> None:
    config = WorktreeConfig(branch="me/{name}-wip", folder="trees/{repository}")

    work = create(repo.folder, config=config)

    assert (tmp_path / "trees" / "repo" / "fix-login", "me/fix-login-wip") == (work, tree_of(work).branch)


def test_a_template_without_a_name_gives_unique_branches_too(repo: Repo) -> None:
    config = WorktreeConfig(branch="wip")

    assert ["wip", "wip-2"] == [tree_of(create(repo.folder, name, config)).branch for name in ("a", "b")]


def test_a_folder_in_the_repository_is_refused_unless_git_ignores_it(repo: Repo) -> None:
    config = WorktreeConfig(folder="repo/.trees")
    with pytest.raises(RefusedError, match="is in the repository"):
        create(repo.folder, config=config)
    with pytest.raises(RefusedError, match="is in the repository"):
        create(repo.folder, config=WorktreeConfig(folder="repo/.git/trees"))
    repo.commit(".gitignore", ".trees\n")

    assert repo.folder / ".trees" / "fix-login" == create(repo.folder, config=config)


# What runs


def test_the_hook_runs_as_with_the_users_own_git_and_is_named(repo: Repo, tmp_path: Path) -> None:
    hook = repo.folder / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\npwd >{tmp_path / 'ran'}\n")
    hook.chmod(0o755)

    work = create(repo.folder)

    assert str(work) == (tmp_path / "ran").read_text().strip()
    assert "the repository's hook 'post-checkout' ran, as with `git worktree add`" in tree_of(work).remarks


def test_a_hook_that_fails_leaves_no_worktree_and_no_branch(repo: Repo, tmp_path: Path) -> None:
    hook = repo.folder / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\necho no >&2; exit 1\n")
    hook.chmod(0o755)
    before = snapshot(repo)

    with pytest.raises(GitError):
        create(repo.folder)

    assert before == snapshot(repo)
    assert not (tmp_path / "repo-worktrees").exists()


def test_a_failed_start_leaves_nothing(repo: Repo, tmp_path: Path) -> None:
    before = snapshot(repo)

    with (
        pytest.raises(RefusedError) as told,
        new_worktree(WorktreeConfig(), WorktreeRequest(), repo.folder, "x") as (tree, _),
    ):
        raise RefusedError("no.")

    assert ("", before) == (told.value.hint, snapshot(repo))
    assert not Path(tree.path).exists()


def test_a_failed_start_keeps_and_names_the_files_in_the_worktree(repo: Repo) -> None:
    hook = repo.folder / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\necho mine >work.txt\n")
    hook.chmod(0o755)

    with (
        pytest.raises(RefusedError) as told,
        new_worktree(WorktreeConfig(), WorktreeRequest(), repo.folder, "x") as (tree, _),
    ):
        raise RefusedError("no.")

    assert f"The worktree {tree.path!r} stays: 1 file is not committed." == told.value.hint
    assert "mine\n" == (Path(tree.path) / "work.txt").read_text()


def test_a_worktree_discarded_before_its_session_started_is_created_again(repo: Repo) -> None:
    work = create(repo.folder)
    assert "" == session_worktree.discard(tree_of(work))

    session_worktree.create_again(tree_of(work), has_begun=False)

    assert tree_of(work).base == repo.git("rev-parse", "HEAD", at=work)


def test_a_worktree_deleted_later_is_not_created_again(repo: Repo) -> None:
    work = create(repo.folder)
    subprocess.run(["rm", "-r", str(work)], check=True)

    with pytest.raises(RefusedError, match="is gone") as told:
        session_worktree.create_again(tree_of(work), has_begun=True)

    assert f"worktree add --force {work} kasmon/fix-login" in told.value.hint


def test_uncommitted_work_of_the_checkout_is_reported_as_missing(repo: Repo) -> None:
    (repo.folder / "file0.txt").write_text("changed\n")

    assert any("will be missing" in remark for remark in tree_of(create(repo.folder)).remarks)


# Pull requests


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Path]:
    """A `gh` that prints a recorded answer and notes its arguments."""

    def write(answer: str, code: int = 0) -> Path:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "answer").write_text(answer)
        program = tmp_path / "bin" / "gh"
        program.write_text(
            f'#!/bin/sh\necho "$@" >{tmp_path}/asked\ncat {tmp_path}/answer {">&2" if code else ""}\nexit {code}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        return tmp_path / "asked"

    return write


@pytest.fixture
def proposed(repo: Repo, tmp_path: Path) -> str:
    """The head of pull request 7 of the remote `origin`, which *repo* does not have."""
    remote = tmp_path / "host" / "me" / "shop.git"
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(remote))
    other = tmp_path / "other"
    repo.git("clone", "--quiet", str(remote), str(other))
    commit = repo.commit("proposal.txt", at=other)
    repo.git("push", "--quiet", "origin", "HEAD:refs/pull/7/head", at=other)
    repo.git("remote", "add", "origin", str(remote))
    return commit


def recorded(commit: str) -> str:
    return json.dumps({"headRefOid": commit, "url": "https://github.com/Me/shop/pull/7"})


def test_a_pull_request_is_fetched_and_no_ref_changes(
    repo: Repo, proposed: str, gh: Callable[[str], Path], tmp_path: Path
) -> None:
    asked = gh(recorded(proposed))
    repo.git("config", "remote.origin.fetch", "+refs/*:refs/remotes/origin/*")
    before = snapshot(repo)

    work = create(repo.folder, base="pr:7")

    assert ("pr:7", proposed) == (tree_of(work).base_name, repo.git("rev-parse", "HEAD", at=work))
    assert "pr view 7 --json headRefOid,url" == asked.read_text().strip()
    assert not (repo.folder / ".git" / "FETCH_HEAD").exists()
    assert "" == session_worktree.discard(tree_of(work))
    assert before == snapshot(repo)


def test_without_gh_it_is_reported_as_missing(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    git = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "git").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path / "only"))

    with pytest.raises(UnavailableError, match="`gh` is not on PATH") as told:
        create(repo.folder, base="pr:7")

    assert "gh auth login" in told.value.hint


def test_the_reason_of_gh_is_shown(repo: Repo, gh: Callable[[str, int], Path]) -> None:
    gh("\x1b[31mno pull requests found\x1b[0m", 1)

    with pytest.raises(UnavailableError, match="failed: no pull requests found"):
        create(repo.folder, base="pr:7")


@pytest.mark.parametrize("answer", ["", "[]", '{"headRefOid": "--all", "url": ""}'])
def test_an_answer_of_gh_that_never_comes_is_an_error(repo: Repo, gh: Callable[[str], Path], answer: str) -> None:
    gh(answer)

    with pytest.raises(UnavailableError, match="7"):
        create(repo.folder, base="pr:7")


def test_a_pull_request_of_another_repository_or_no_address_is_refused(repo: Repo, gh: Callable[[str], Path]) -> None:
    gh(recorded("a" * 40))
    with pytest.raises(NotFoundError, match=r"no remote of .* is the repository 'me/shop'"):
        create(repo.folder, base="pr:7")

    gh(json.dumps({"headRefOid": "a" * 40, "url": "https://[x"}))
    with pytest.raises(NotFoundError, match="no remote of"):
        create(repo.folder, base="pr:7")


@pytest.mark.parametrize("number", ["", "x", "7/head", "--web"])
def test_a_pull_request_is_named_by_its_number(repo: Repo, number: str) -> None:
    with pytest.raises(UsageError, match="names no pull request"):
        create(repo.folder, base=f"pr:{number}")


def test_a_folder_is_located_in_its_repository(repo: Repo, tmp_path: Path) -> None:
    location = locate(repo.folder)
    assert location is not None
    assert (repo.folder / ".git", repo.folder, "repo", "", repo.folder) == location
    assert locate(tmp_path) is None
