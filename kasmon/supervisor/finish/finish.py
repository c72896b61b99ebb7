"""Do what a plan says with a session's branch, unless a commit or a file changed since the plan was made."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from kasmon.errors import RefusedError, StaleRequestError
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.model.commands import Receipt
from kasmon.model.session import Session
from kasmon.paths import Paths, private_folder
from kasmon.repository.branch import BranchState
from kasmon.repository.git import git
from kasmon.repository.git import head as head_of
from kasmon.store.file_lock import lock
from kasmon.supervisor.finish.branch_operations import (
    apply_changes,
    check_target,
    checkout_of,
    commit,
    fetch,
    fetched_base,
    merge,
    push,
    update,
)
from kasmon.supervisor.finish.discarded_work import discard
from kasmon.supervisor.finish.finish_plan import PlannedFinish, local_base, plan_finish, short
from kasmon.supervisor.finish.pull_requests import create_pull_request, stored_file
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.agents import check_is_person
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.sessions.session_operations import send
from kasmon.supervisor.worktrees.branch_state import HEADS


class FinishResult(msgspec.Struct, frozen=True, kw_only=True):
    done: tuple[str, ...]
    """A sentence for each step."""
    conflicts: tuple[str, ...] = ()
    """Files with conflicts that were left in the worktree: the later steps were not done."""
    receipt: Receipt | None = None
    """Of the prompt that has the agent resolve them."""
    kept: str = ""
    """The git bundle with the work of a discarded worktree that is nowhere else."""


@dispatch
async def finish(paths: Paths, session: Session, plan: PlannedFinish, report: Callable[[str], None]) -> FinishResult:
    """Do what *plan* says; *report* gets a sentence after each step.

    Raises:
        RefusedError: if an agent calls this, and *plan* does more than to commit and to update.
        StaleRequestError: if a commit or a file changed since the plan was made; nothing is done then.
        KasmonError: if a step fails; it changed nothing, and the steps after it are not done.
    """
    if not plan.request.stays_on_branch:
        await run_in_thread(check_is_person, paths, "push, merge, take over or discard a branch")
    result = await run_in_thread(lambda: _carry_out_alone(paths, session, plan, report))
    if result.conflicts and plan.request.conflicts == "send":
        receipt = await send(paths, session, _conflict_prompt(plan, result.conflicts), "idle")
        return msgspec.structs.replace(result, receipt=receipt)
    return result


@finish.elsewhere
async def _finish_there(
    paths: Paths, session: Session, plan: PlannedFinish, report: Callable[[str], None]
) -> FinishResult:
    from kasmon.supervisor.machines import finish as finish_there  # only for sessions of other machines

    result = await run_in_thread(finish_there.finish, paths, session, plan)
    for text in result.done:
        report(text)
    return result


def _carry_out_alone(
    paths: Paths, session: Session, plan: PlannedFinish, report: Callable[[str], None]
) -> FinishResult:
    """Do what *plan* says once no other branch of the repository is being finished."""
    file = stored_file(paths, Path(plan.tree.path))
    private_folder(file.parent)
    with lock(file):
        return _carry_out(paths, session, plan, report)


def _carry_out(paths: Paths, session: Session, plan: PlannedFinish, report: Callable[[str], None]) -> FinishResult:
    request, tree = plan.request, plan.tree
    if plan_finish(paths, session, request, read_fleet(paths)).digest != plan.digest:
        raise changed_since(session)
    path, state, done = Path(tree.path), plan.state, list[str]()

    def note(text: str) -> None:
        done.append(text)
        report(text)

    base, base_name, behind = state.base, state.base_name, state.behind
    if plan.source is not None:
        fetch(path, plan.source)
        note(f"fetched {plan.source.name} ({short(git(path, 'rev-parse', plan.source.ref).strip())})")
        base = fetched_base(path, state, plan.source)
        base_name = plan.source.name if base != state.base else base_name
        behind = int(git(path, "rev-list", "--count", base, f"^{state.head}"))
    if request.commits and state.uncommitted:
        commit(path, plan.message)
        note(f"committed {short(head_of(path))} {plan.message!r}")
    elif request.commits:
        note("nothing to commit")
    if request.update and behind:
        keeps = request.conflicts != "abort"
        message = f"Merge branch {base_name!r} into {state.name}"
        if files := update(path, base, request.update, message, keeps_conflicts=keeps):
            if not keeps:
                raise _conflicts_error(state, files)
            note(f"the {request.update} has conflicts, which are in {tree.path!r}")
            return FinishResult(done=tuple(done), conflicts=files)
        note(f"updated from {base_name} ({short(base)}) by a {request.update}")
    head = head_of(path)
    if plan.remote[0]:
        replaces = state.remote_head if request.rewrites else ""
        push(path, state.name, *plan.remote, replaces)
        note(f"pushed {short(head)} to {'/'.join(plan.remote)}")
    if plan.pull_request is not None and not plan.pull_request.number:
        subjects = git(path, "log", "--reverse", "--format=- %s", f"{base}..{head}")
        made = create_pull_request(paths, path, plan.remote[0], plan.pull_request, plan.message, subjects)
        note(f"created {made.words}: {made.url}")
    if request.merge:
        note(_merge(plan, head))
    elif request.takes_over:
        target = Path(plan.checkout)
        check_target(target, head_of(target), head)
        apply_changes(target, head)
        note(f"staged the changes of {short(head)} in {plan.checkout!r}")
    kept = ""
    if request.discards:
        kept, text = discard(paths, session, tree, lambda: read_fleet(paths), request.ignored)
        note(text)
    return FinishResult(done=tuple(done), kept=kept)


def changed_since(session: Session) -> StaleRequestError:
    what = f"the branch of {session.name!r}, its base, or files"
    return StaleRequestError.of_plan(session.id, what, f"`kasmon finish {session.id} --dry-run` with the same options")


def _conflict_prompt(plan: PlannedFinish, files: tuple[str, ...]) -> str:
    how = plan.request.update
    end = "`git rebase --continue`" if how == "rebase" else "`git commit --no-edit`"
    return (
        f"The {how} of your branch {plan.state.name} with {plan.state.base_name} has conflicts in:\n"
        + "".join(f"- {name}\n" for name in files)
        + f"Resolve them so that both changes are kept in meaning, stage the files, and finish with {end}. Do not push."
    )


def _merge(plan: PlannedFinish, head: str) -> str:
    """Merge the commit *head* into the base branch; return what was done."""
    path, state, how = Path(plan.tree.path), plan.state, plan.request.merge
    assert how
    base_ref = local_base(state)
    branch = base_ref.removeprefix(HEADS)
    if how == "ff" and not plan.checkout:
        if git(path, "merge-base", state.base, head, fails=True).strip() != state.base:
            raise RefusedError(
                f"{state.base_name!r} has commits that the branch does not have.", hint="Add --update rebase."
            )
        git(path, "update-ref", "-m", f"kasmon finish: fast-forward to {head}", base_ref, head, state.base)
        return f"moved {branch} from {short(state.base)} to {short(head)}"
    with checkout_of(path, base_ref) as target:
        check_target(target, state.base, head)
        merge(target, head, how, plan.message if how == "squash" else f"Merge branch '{state.name}'")
        now = head_of(target)
    where = f" in {plan.checkout!r}" if plan.checkout else ""
    return f"merged {short(head)} into {branch}{where}: {short(state.base)} -> {short(now)}"


def _conflicts_error(state: BranchState, files: tuple[str, ...]) -> RefusedError:
    return RefusedError(
        f"{state.name!r} and {state.base_name!r} conflict in {', '.join(map(repr, files))}. It was not updated.",
        hint="--conflicts keep leaves them for you in the worktree, --conflicts send also sends them to the agent.",
    )
