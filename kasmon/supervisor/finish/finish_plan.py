"""Plan what a person has done with a session's branch: what would be done, what is left to do. Calls block.

A plan has a digest of all commits and files that it was made for. Functions raise `GitError` or `TimedOutError` if git
fails.
"""

import contextlib
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from kasmon.config import load
from kasmon.config.profile import programs
from kasmon.errors import PushedCommitsError, RefusedError, UnableError, UsageError
from kasmon.model.commands import SessionWorktree
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import count_text
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.branch import BranchState, PullRequest
from kasmon.repository.git import git, git_folders, hooks_of, list_untracked
from kasmon.repository.git import head as head_of
from kasmon.supervisor.finish.branch_operations import (
    EVERY,
    HOOKS,
    BaseRemote,
    How,
    check_target,
    find_base_remote,
    find_remote,
    find_worktree_of,
)
from kasmon.supervisor.finish.discarded_work import check_discardable
from kasmon.supervisor.finish.pull_requests import (
    base_branch,
    find_program,
    find_pull_request,
    stored_pull_request,
)
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.worktrees.branch_state import HEADS, read_state
from kasmon.supervisor.worktrees.changes import digest_texts, state_digest
from kasmon.supervisor.worktrees.recognized_worktree import worktree_of
from kasmon.supervisor.worktrees.shared_checkout import describe_agents_in
from kasmon.supervisor.worktrees.turn_changes import check_resting
from kasmon.supervisor.worktrees.unsaved_files import list_files
from kasmon.supervisor.worktrees.worktree import source_top

SHOWN: Final = 12
"""How many digits of a commit are shown."""


class FinishRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants done, in the order of the fields."""

    commits: bool = False
    message: str = ""
    """Of the commit, and of a squashed one; empty for the session's name."""
    update: Literal["", "rebase", "merge"] = ""
    fetches: bool = False
    """Of an update: whether the base's remote is fetched first."""
    conflicts: Literal["abort", "keep", "send"] = "abort"
    """What an update does with conflicts: change nothing, leave them in the worktree, also send them to the agent."""
    pushes: bool = False
    proposes: bool = False
    """Whether a pull request is created; the branch is pushed first."""
    is_draft: bool = False
    merge: How | Literal[""] = ""
    takes_over: bool = False
    discards: bool = False
    ignored: tuple[str, ...] = ()
    """Patterns of git-ignored files that may be deleted with the worktree."""
    rewrites: bool = False
    """Whether commits that are pushed may be replaced, by an update and by a push."""
    during_turn: bool = False
    """Whether it is done while the agent works."""

    @property
    def only_discards(self) -> bool:
        """Whether nothing is done with the branch before it is discarded."""
        return not any((self.commits, self.update, self.pushes, self.proposes, self.merge, self.takes_over))

    @property
    def is_empty(self) -> bool:
        return self.only_discards and not self.discards

    @property
    def stays_on_branch(self) -> bool:
        """Whether it does no more than to commit and to update, which changes the session's own branch only."""
        return not any((self.pushes, self.proposes, self.merge, self.takes_over, self.discards))


class FinishStep(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is to be done, or left to do."""

    action: str
    text: str
    command: str = ""
    """Of what is left to do: the options of `kasmon finish` that do it, or another command."""
    hooks: tuple[str, ...] = ()
    """The person's hooks that git may run."""


class PlannedFinish(msgspec.Struct, frozen=True, kw_only=True):
    """What will be done, or without a request, what is left to do."""

    request: FinishRequest
    tree: SessionWorktree
    state: BranchState
    message: str
    steps: tuple[FinishStep, ...]
    digest: str
    """Of the request, and of the commits and files that it concerns."""
    remote: tuple[str, str] = ("", "")
    """The remote and its branch, where the branch is pushed to."""
    pull_request: PullRequest | None = None
    """The one that exists, as last read; or the one that is to be created, with the number 0."""
    pull_request_why: str = ""
    """Why pull requests are unknown, where the repository has a remote."""
    checkout: str = ""
    """The checkout whose files a merge changes; empty for none."""
    warnings: tuple[str, ...] = ()
    """A clause for each agent that works in that checkout, and for what a commit leaves out."""
    source: BaseRemote | None = None
    """What is fetched before an update."""

    @property
    def updates(self) -> bool:
        """Whether an update may bring in commits."""
        return bool(self.request.update and (self.state.behind or self.source is not None))


@dispatch
def plan_finish(paths: Paths, session: Session, request: FinishRequest, fleet: Fleet) -> PlannedFinish:
    """Return how *request* is done; without a request, what is left to do.

    Raises:
        UnableError: if *session* works in no git worktree, or is a task of a plan.
        UsageError: if parts of the request contradict each other.
        SessionBusyError: if a turn runs.
        RefusedError: if a step cannot be done; it says why.
    """
    tree = worktree_of(session)
    if tree is None:
        raise UnableError(f"{session.name!r} works in no git worktree.", hint="Use git in its folder.")
    if session.plan is not None:
        raise UnableError(
            f"{session.name!r} is a task of the plan {session.plan!r}, whose tasks build on its branch.",
            hint=f"`kasmon plan show {session.plan}` shows the branches.",
        )
    if not Path(tree.path).is_dir():
        raise RefusedError(f"the worktree {tree.path!r} is gone.", hint="`kasmon worktrees` lists the others.")
    if request.merge and request.takes_over:
        raise UsageError("a branch is either merged or taken over.", hint="Pass one of them.")
    if not request.is_empty and not request.during_turn:
        check_resting(session)
    state = read_state(tree)
    if not (request.is_empty or state.head):
        raise _branch_gone_error(tree, state)
    message = request.message or session.name
    plan = PlannedFinish(request=request, tree=tree, state=state, message=message, steps=(), digest="")
    path = Path(tree.path)
    if request.is_empty:
        if state.name and git(path, "remote"):
            remote, branch = _push_target(path, state)
            found, why = find_pull_request(paths, path, remote, branch, time.time())
            plan = msgspec.structs.replace(plan, pull_request=found, pull_request_why=why)
        return msgspec.structs.replace(plan, steps=tuple(_list_open_steps(session, plan)))
    _check_state(plan)
    if request.update and request.fetches:
        plan = msgspec.structs.replace(plan, source=find_base_remote(path, state.base_ref))
    if request.pushes or request.proposes:
        plan = msgspec.structs.replace(plan, remote=_push_target(path, state))
        _check_push(plan)
    if request.proposes:
        plan = msgspec.structs.replace(plan, pull_request=_proposal(paths, plan))
    if request.merge:
        target = find_worktree_of(path, local_base(state))
        plan = msgspec.structs.replace(plan, checkout=str(target or ""))
    elif request.takes_over:
        plan = msgspec.structs.replace(plan, checkout=_source(tree))
    if plan.checkout:
        warnings = describe_agents_in(plan.checkout, fleet.sessions, programs(load(paths)))
        plan = msgspec.structs.replace(plan, warnings=warnings)
    nested = [name for name in list_untracked(path) if name.endswith("/")] if request.commits else []  # repositories
    if nested:
        names = ", ".join(map(repr, nested))
        text = f"the commit would contain only a link to each repository in the worktree: {names}"
        plan = msgspec.structs.replace(plan, warnings=(*plan.warnings, text))
    if request.discards:
        check_discardable(tree, fleet, request.ignored)
    return msgspec.structs.replace(plan, steps=tuple(_steps(plan)), digest=_digest(plan))


@plan_finish.elsewhere
def _plan_finish_there(paths: Paths, session: Session, request: FinishRequest, fleet: Fleet) -> PlannedFinish:
    from kasmon.supervisor.machines import finish  # only for sessions of other machines

    return finish.plan_finish(paths, session, request)


def _check_state(plan: PlannedFinish) -> None:
    """Raise if a step of the plan cannot be done in the state of the branch."""
    request, state = plan.request, plan.state
    if request.only_discards:
        return
    if state.operation:
        hint = f"Finish or abort it with git in {plan.tree.path!r}."
        raise RefusedError(f"{state.operation} in the worktree is unfinished.", hint=hint)
    if not state.name:
        raise RefusedError(
            "no branch is checked out in the worktree.",
            hint=f"`git -C {shlex.quote(plan.tree.path)} switch -c NAME` creates one.",
        )
    if request.commits and state.untracked and (links := _list_setup_links(plan.tree)):
        raise RefusedError(
            f"the commit would contain links to your checkout, which git does not ignore: {list_files(links)}.",
            hint="Add their names to .gitignore, without a `/` at the end: that matches folders only.",
        )
    tracked = state.staged + state.unstaged + state.unmerged
    if request.update and tracked and not request.commits:
        raise RefusedError(
            f"the worktree has {count_text(tracked, 'uncommitted change')}, so its branch cannot be updated.",
            hint="Add --commit.",
        )
    if request.update and not state.base_ref:
        raise _no_base_branch(state)
    if request.update == "rebase" and state.remote and (state.behind or request.fetches) and not request.rewrites:
        raise PushedCommitsError(
            f"the branch is pushed to {state.remote}, and a rebase would replace those commits.",
            hint="Use --update merge; or --rewrite, if you alone work on it.",
        )
    if (request.merge or request.takes_over) and state.uncommitted and not request.commits:
        raise RefusedError(
            f"the worktree has {count_text(state.uncommitted, 'uncommitted change')}, which would be left behind.",
            hint="Add --commit.",
        )
    if request.merge or request.takes_over:
        if not state.ahead and not request.commits:
            raise RefusedError(f"the branch has no commit that {state.base_name!r} does not have.")
        if request.merge == "ff" and state.behind and not request.update:
            raise RefusedError(
                f"{state.base_name!r} has {count_text(state.behind, 'commit')} that the branch does not have.",
                hint="Add --update rebase.",
            )
    if request.merge:
        local_base(state)


def _list_setup_links(tree: SessionWorktree) -> list[str]:
    """Return the untracked links of *tree* to the same path in the checkout that it came from, as its setup makes."""
    path, top = Path(tree.path), source_top(tree)
    links = [name for name in list_untracked(path) if (path / name).is_symlink()] if top is not None else []
    return [name for name in links if top is not None and (path / name).readlink() == top / name]


def _check_push(plan: PlannedFinish) -> None:
    """Raise `PushedCommitsError` if the remote branch, as last fetched, has commits that a push would remove."""
    state = plan.state
    if plan.request.rewrites or not state.remote_head:
        return
    replaced = int(git(Path(plan.tree.path), "rev-list", "--count", state.remote_head, f"^{state.head}"))
    if replaced:
        raise PushedCommitsError(
            f"{state.remote} has {count_text(replaced, 'commit')} that the branch does not have, which a push would"
            " replace.",
            hint="Bring them in with git; or use --rewrite, if they are older forms of its own commits.",
        )


def _steps(plan: PlannedFinish) -> Iterator[FinishStep]:
    """Yield what the plan does. Raises `RefusedError` if a merge could not be done now."""
    request, state, path = plan.request, plan.state, Path(plan.tree.path)
    if plan.source is not None:
        text = f"fetch {plan.source.branch} from {plan.source.remote}, with your credentials"
        yield FinishStep(action="fetch", text=text)
    if request.commits and state.uncommitted:
        text = f"commit {count_text(state.uncommitted, 'change')} as {plan.message!r}"
        yield _step(path, "commit", text, HOOKS["commit"])
    elif request.commits:
        yield FinishStep(action="commit", text="nothing to commit")
    if request.update and not plan.updates:
        yield FinishStep(action="update", text="nothing to update")
    elif request.update:
        on = "on conflicts nothing is changed" if request.conflicts == "abort" else "conflicts stay in the worktree"
        conflicts = f", which conflicts in {', '.join(map(repr, state.conflicts))}" if state.conflicts else ""
        commits = f"{count_text(state.behind, 'commit')} of {state.base_name} ({short(state.base)})"
        if plan.source is not None:
            fetched = f"what is fetched of {plan.source.name}"
            commits = f"{commits} and {fetched}" if state.behind else fetched
        text = f"bring in {commits} by a {request.update}{conflicts}; {on}"
        yield _step(path, "update", text, HOOKS[request.update])
    if plan.remote[0]:
        over = f", replacing {short(state.remote_head)}" if request.rewrites and state.remote_head else ""
        yield _step(path, "push", f"push {state.name} to {'/'.join(plan.remote)}{over}", HOOKS["push"])
    if plan.pull_request is not None:
        new = plan.pull_request
        draft = "draft " if new.is_draft else ""
        text = f"create a {draft}pull request of {new.branch} against {new.base}, titled {plan.message!r}"
        yield FinishStep(action="propose", text=f"{new.words} exists: {new.url}" if new.number else text)
    changed_first = bool(request.commits and state.uncommitted) or plan.updates
    if plan.checkout and not changed_first:
        target = Path(plan.checkout)
        check_target(target, state.base if request.merge else head_of(target), state.head)
    if request.merge:
        base = local_base(state).removeprefix(HEADS)
        where = f", and change the files in {plan.checkout!r}" if plan.checkout else ""
        names = {
            "ff": "fast-forward {base} to {name}",
            "merge": "merge {name} into {base}",
            "squash": "squash {name} into one commit on {base}",
        }
        hooks = (*HOOKS["merge"], *HOOKS["commit"]) if request.merge == "squash" else HOOKS["merge"]
        hooks = hooks if plan.checkout else ("post-checkout", *hooks)
        text = names[request.merge].format(base=base, name=state.name) + where
        yield _step(path, "merge", text, hooks if plan.checkout or request.merge != "ff" else ())
    if request.takes_over:
        text = f"stage the changes of {state.name} in {plan.checkout!r}, without a commit"
        yield _step(path, "take-over", text, HOOKS["merge"][-1:])
    if request.discards:
        branch = f" and the branch {state.name}" if plan.tree.is_new_branch and state.name == plan.tree.branch else ""
        text = f"remove the worktree {plan.tree.path!r}{branch}; store what is nowhere else"
        yield FinishStep(action="discard", text=text)


def _list_open_steps(session: Session, plan: PlannedFinish) -> Iterator[FinishStep]:
    """Yield what is left to do of a branch, each with the option that does it."""
    state, pull_request = plan.state, plan.pull_request
    start = f"kasmon finish {session.id}"
    if state.operation:
        yield FinishStep(action="resolve", text=f"{state.operation} is unfinished: finish or abort it with git")
    if state.uncommitted:
        text = f"{count_text(state.uncommitted, 'change')}, not committed"
        yield FinishStep(action="commit", text=text, command=f"`{start} --commit`")
    if state.behind and state.base_ref:
        files = f", with conflicts in {', '.join(map(repr, state.conflicts))}" if state.conflicts else ""
        text = f"{count_text(state.behind, 'commit')} behind {state.base_name}{files}"
        yield FinishStep(action="update", text=text, command=f"`{start} --update rebase|merge`")
    if state.ahead and state.unpushed != 0:
        count = state.ahead if state.unpushed is None else state.unpushed
        yield FinishStep(action="push", text=f"{count_text(count, 'commit')}, not pushed", command=f"`{start} --push`")
    if pull_request is not None:
        yield FinishStep(action="propose", text=f"{pull_request.words}: {pull_request.url}")
        if pull_request.needs_work:
            yield FinishStep(action="fix", text=pull_request.note, command=f"`{start} --fix` sends it to the agent")
    elif plan.pull_request_why:
        yield FinishStep(action="propose", text=plan.pull_request_why)
    elif state.ahead and state.remote:
        yield FinishStep(action="propose", text="no pull request", command=f"`{start} --pr`")
    if state.ahead and state.base_ref.startswith(HEADS):
        text = f"{count_text(state.ahead, 'commit')}, not in {state.base_name}"
        yield FinishStep(action="merge", text=text, command=f"`{start} --merge`, `--squash` or `--ff`")
    if not state.uncommitted and not state.ahead:
        remove = f"{start} --discard" if session.worktree is None else f"kasmon worktrees gc {session.id}"
        yield FinishStep(action="remove", text="nothing is left to do", command=f"`{remove}` removes the worktree")


def _step(path: Path, action: str, text: str, hooks: tuple[str, ...]) -> FinishStep:
    found = hooks_of(path, (*hooks, *EVERY)) if hooks else ()
    return FinishStep(action=action, text=text, hooks=tuple(dict.fromkeys(found)))


def _digest(plan: PlannedFinish) -> str:
    path, state = Path(plan.tree.path), plan.state
    parts = [msgspec.json.encode(plan.request).decode(), plan.message, state_digest(path), *plan.remote, plan.checkout]
    parts += plan.warnings
    parts += [state.name, state.head, state.base_ref, state.base, state.remote, state.remote_head, *(plan.source or ())]
    if plan.pull_request is not None:
        parts.append(msgspec.json.encode(plan.pull_request).decode())
    if plan.checkout:
        parts.append(state_digest(Path(plan.checkout)))
    return digest_texts(parts)


def local_base(state: BranchState) -> str:
    """Return the ref of the base branch. Raises `RefusedError` if the base is no local branch."""
    if not state.base_ref.startswith(HEADS):
        raise _no_base_branch(state)
    return state.base_ref


def _branch_gone_error(tree: SessionWorktree, state: BranchState) -> RefusedError:
    """Return the error that the branch of *tree* was deleted; it names the last commit of the worktree."""
    last = ""
    with contextlib.suppress(OSError, IndexError):
        log = git_folders(Path(tree.path))[0] / "logs" / "HEAD"
        last = log.read_text("utf-8", "replace").splitlines()[-1].split(" ")[1]
    command = shlex.join(("git", "-C", tree.path, "update-ref", f"refs/heads/{state.name}", last or "COMMIT"))
    return RefusedError(f"the branch {state.name!r} does not exist any more.", hint=f"`{command}` creates it again.")


def _no_base_branch(state: BranchState) -> RefusedError:
    return RefusedError(
        f"the branch {state.name!r} began from {state.base_name!r}, which is not a branch of this repository.",
        hint="Push it, or merge it with git where you want it.",
    )


def _push_target(path: Path, state: BranchState) -> tuple[str, str]:
    """Return the remote and the branch there, which the branch is pushed to."""
    for remote in git(path, "remote").split():
        if state.remote.startswith(f"{remote}/"):
            return remote, state.remote.removeprefix(f"{remote}/")
    return find_remote(path, state.base_ref), state.name


def _proposal(paths: Paths, plan: PlannedFinish) -> PullRequest:
    """Return the open pull request of the branch, as last read, or the one to create.

    Raises:
        UnavailableError: as `find_program`.
        RefusedError: if the base is no branch of the remote, or there is nothing to propose.
    """
    path, state, (remote, branch) = Path(plan.tree.path), plan.state, plan.remote
    find_program(path, remote)
    base = base_branch(path, state, remote)
    known = stored_pull_request(paths, path, branch)
    if known is not None and known.state == "open":
        return known
    if not state.ahead and not plan.request.commits:
        raise RefusedError(f"the branch has no commit that {state.base_name!r} does not have.")
    return PullRequest(number=0, url="", branch=branch, base=base, is_draft=plan.request.is_draft)


def _source(tree: SessionWorktree) -> str:
    """Return the checkout that *tree* was requested in. Raises `RefusedError` if there is none."""
    top = source_top(tree)
    if top is None or top.resolve() == Path(tree.path).resolve():
        raise RefusedError(f"there is no checkout at {tree.source!r} that could take the changes.", hint="Use --merge.")
    return str(top)


def short(commit: str) -> str:
    return commit[:SHOWN]
