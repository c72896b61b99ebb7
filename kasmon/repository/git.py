"""Run git in a folder. Calls block; use a thread.

It runs without the repository's hooks, file watchers and filters, and does not enter its submodules. So reading it, or
creating a worktree, runs no code of the repository; and no `GIT_` variable of our environment affects it. Functions
raise `GitError` if it ends with an error, as in a folder that is in no repository.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from kasmon.errors import GitError, TimedOutError
from kasmon.model.plan.plan import GIT_LOCAL

GIT_S: Final = 60.0
REQUESTED_S: Final = 600.0
"""How long a command may take that the user asked for and that may download, in seconds."""
SAFE: Final = (
    *("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false"),
    *("-c", "log.showSignature=false", "-c", "submodule.recurse=false"),
)
OURS: Final = {
    "LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1",
}  # fmt: skip
"""The last two: objects missing in a repository are not fetched from its configured remotes."""
ENTERS: Final = frozenset({"diff", "status"})
"""Commands that would run git within each submodule, with the submodule's config."""
REMOTE: Final = frozenset({"fetch", "push"})
"""Commands of a user that start ssh and credential helpers, which would ask on the terminal."""
FILTERS: Final = frozenset({"apply", "diff", "merge", "merge-tree", "status", "worktree"})
"""Commands that read or write files through filters that a config names."""
MERGE_DRIVER: Final = re.compile(r"merge\..*\.driver")
CONFLICTS: Final = "false"
"""The command of a merge driver that resolves nothing, so that the user resolves the conflict."""
OUTSIDE: Final = frozenset({"system", "global"})
"""The scopes of the user's own config: commands in it are run, as by the user's own git."""
NOT_INSTALLED: Final = "it is not installed"
NO_REPOSITORY: Final = ("not a git repository", "must be run in a work tree", NOT_INSTALLED)


def repository(folder: Path) -> Path | None:
    """Return the top folder of the git repository that *folder* is in; None if in none, or git is missing.

    Raises `GitError` if git refuses to open it: it is another user's, or broken.
    """
    try:
        top = git(folder, "rev-parse", "--show-toplevel")
    except GitError as error:
        if any(word in error.why for word in NO_REPOSITORY):
            return None
        raise
    return Path(top.removesuffix("\n"))


def git_folders(path: Path) -> tuple[Path, Path]:
    """Return the git folder of the worktree at *path*, and the one that all worktrees of its repository share.

    It runs no program: see gitrepository-layout(5). Raises `OSError` if *path* is no worktree.
    """
    own = path / ".git"
    if own.is_file():
        own = path / own.read_text("utf-8", "surrogateescape").removeprefix("gitdir: ").removesuffix("\n")
    common = own / "commondir"
    shared = own / common.read_text("utf-8", "surrogateescape").removesuffix("\n") if common.exists() else own
    return own.resolve(strict=True), shared.resolve(strict=True)


def shared_folder(folder: Path) -> Path:
    """Return the git folder that all worktrees of the repository share which *folder* is in, also a bare one."""
    return (folder / git(folder, "rev-parse", "--git-common-dir").removesuffix("\n")).resolve()


def where(folder: Path) -> tuple[str, str]:
    """Return the top of the worktree that *folder* is in, and the git folder that its repository's worktrees share."""
    queries = ("--show-toplevel", "--git-common-dir")
    values_read = git(folder, "rev-parse", *queries).split("\n")[:-1]
    if len(values_read) != len(queries):  # a folder's name has a line break, so query one by one
        values_read = [git(folder, "rev-parse", each).removesuffix("\n") for each in queries]
    top, shared = values_read
    return top, str((folder / shared).resolve())


def head(repo: Path) -> str:
    """Return the HEAD commit of *repo*; empty before the first commit."""
    return git(repo, "rev-parse", "HEAD").strip() if knows(repo, "HEAD") else ""


def first_commit(repo: Path) -> str:
    """Return the first commit in the history of HEAD, by first parents; empty before there is one.

    It identifies the repository: its clones have the same one.
    """
    return git(repo, "rev-list", "--first-parent", "--max-parents=0", "HEAD").strip() if knows(repo, "HEAD") else ""


def knows(repo: Path, name: str) -> bool:
    """Whether *name* resolves in *repo*: a commit, a branch."""
    return bool(git(repo, "rev-parse", "--verify", "--quiet", name, fails=True).strip())


def git(
    folder: Path,
    *arguments: str,
    fails: bool = False,
    settings: Mapping[str, str] | None = None,
    new_objects: tuple[Path, Path] | None = None,
) -> str:
    """Return git's output in *folder*, which is in a repository.

    Args:
        arguments: a command of git with its own arguments.
        fails: return the output also if git exits with an error.
        settings: they override git's config.
        new_objects: the folder that git writes new objects to, and the one that the repository's objects are in.

    Raises:
        GitError: if it ends with an error, or is not installed.
        TimedOutError: if it takes longer than `GIT_S`.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables |= OURS
    verb, *command_arguments = arguments
    if new_objects is not None:
        written, read = new_objects
        quoted = str(read).replace("\\", "\\\\").replace('"', '\\"')
        variables |= {"GIT_OBJECT_DIRECTORY": str(written), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}
    if verb in FILTERS:
        variables |= _disable_filters(folder, variables)
    if verb in ENTERS:
        command_arguments.insert(0, "--ignore-submodules=dirty")
    own = [word for key, value in (settings or {}).items() for word in ("-c", f"{key}={value}")]
    return _run_git(folder, (verb, *command_arguments), variables, fails, own)


def list_names(folder: Path, *arguments: str) -> list[str]:
    """Return the entries that `git` prints for *arguments*, which include `-z`: each ends with a zero byte."""
    return [name for name in git(folder, *arguments).split("\0") if name]


def list_untracked(folder: Path) -> list[str]:
    """Return the files in *folder*, relative to it, that git neither tracks nor ignores."""
    return list_names(folder, "ls-files", "--others", "--exclude-standard", "-z")


def current_branch(folder: Path) -> str:
    """Return the branch that is checked out in the worktree of *folder*; empty if its HEAD is detached."""
    return git(folder, "symbolic-ref", "--quiet", "HEAD", fails=True).strip().removeprefix("refs/heads/")


def git_as_user(folder: Path, *arguments: str, limit_s: float = REQUESTED_S) -> str:
    """Return the output of git in *folder*, run as the user's own git: with hooks, filters and remotes.

    For what the user asked for only. It asks for no password: what fetches or pushes has no terminal. Raises as `git`.
    """
    variables = {name: value for name, value in os.environ.items() if name not in GIT_LOCAL}
    variables |= {"LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0"}
    import tempfile  # only here: it takes 3 ms to load

    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        files = (output, errors)  # no pipes: what a hook leaves running would keep them open
        return _run_git(folder, arguments, variables, fails=False, safe=(), limit_s=limit_s, files=files)


def hooks_of(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the hooks *names* that the user's own git runs in *folder*."""
    hooks = folder / git_as_user(folder, "rev-parse", "--git-path", "hooks").removesuffix("\n")
    return tuple(name for name in names if (hooks / name).is_file() and os.access(hooks / name, os.X_OK))


def _disable_filters(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables that replace each filter and merge driver named by the repository itself by the user's own
    config, or else by none; a merge without its driver has a conflict."""
    wanted = r"^filter\.|^merge\..*\.driver$"
    output = _run_git(folder, ("config", "--null", "--show-scope", "--get-regexp", wanted), variables, fails=True)
    values: dict[str, str] = {}
    own: set[str] = set()
    pieces = output.split("\0")
    for scope, entry in zip(pieces[::2], pieces[1::2], strict=False):
        key, _, value = entry.partition("\n")
        if scope in OUTSIDE:
            values[key] = value
        else:
            own.add(key)
    keys = sorted(own)
    settings = {"GIT_CONFIG_COUNT": str(len(keys))} if keys else {}
    for number, key in enumerate(keys):
        none = CONFLICTS if MERGE_DRIVER.fullmatch(key) else ""
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": values.get(key, none)}
    return settings


def _run_git(
    folder: Path,
    arguments: tuple[str, ...],
    variables: Mapping[str, str],
    fails: bool,
    settings: Sequence[str] = (),
    *,
    safe: Sequence[str] = SAFE,
    limit_s: float = GIT_S,
    files: tuple[IO[bytes], IO[bytes]] | tuple[()] = (),
) -> str:
    import subprocess  # only here: to find a folder of git needs none, and it takes 4 ms to load

    stdout, stderr = files or (subprocess.PIPE, subprocess.PIPE)
    try:
        process = subprocess.Popen(
            ["git", *safe, *settings, *arguments],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=(is_remote := arguments[0] in REMOTE),
        )
    except FileNotFoundError as error:
        raise GitError(f"look at {str(folder)!r}", _explain_missing(folder, error)) from error
    with process:
        try:
            output, errors = process.communicate(timeout=limit_s)
        except BaseException as error:
            if is_remote:  # its ssh too
                import signal

                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise TimedOutError(f"git {arguments[0]} took longer than {limit_s:g} s in {str(folder)!r}.") from error
    if files:
        output, errors = (os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in files)
    if process.returncode and not fails:
        error_lines = errors.decode("utf-8", "replace").strip().splitlines()
        raise GitError(
            f"do {arguments[0]!r} in {str(folder)!r}",
            error_lines[-1].rstrip(".") if error_lines else "it gave no reason",
        )
    return output.decode("utf-8", "surrogateescape")


def _explain_missing(folder: Path, error: FileNotFoundError) -> str:
    return NOT_INSTALLED if folder.is_dir() else f"{str(folder)!r} is gone ({error.strerror})"
