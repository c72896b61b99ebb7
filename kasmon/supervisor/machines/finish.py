"""Finishing the branch of a session of another machine, by `kasmon finish` there. Calls block."""

from collections.abc import Iterator

import msgspec

from kasmon.errors import KasmonError, PushedCommitsError, RefusedError
from kasmon.model.commands import SessionWorktree
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.branch import BranchState, PullRequest
from kasmon.supervisor.finish.finish import FinishResult
from kasmon.supervisor.finish.finish_plan import FinishRequest, FinishStep, PlannedFinish
from kasmon.supervisor.machines.link_client import parse_receipt, parse_reply, run_for


class _Plan(msgspec.Struct, frozen=True):
    """What `kasmon finish --json` prints of a plan."""

    branch: BranchState
    steps: tuple[FinishStep, ...]
    message: str
    digest: str | None = None
    pull_request: PullRequest | None = None
    pull_request_why: str | None = None
    checkout: str | None = None
    warnings: tuple[str, ...] = ()


class _Result(msgspec.Struct, frozen=True):
    """What it prints of what was done."""

    done: tuple[str, ...] = ()
    left_conflicts: tuple[str, ...] = ()
    kept: str | None = None
    receipt: dict[str, object] | None = None


def plan_finish(paths: Paths, session: Session, request: FinishRequest) -> PlannedFinish:
    """Return how *request* is done there; its texts name paths of that machine. See `finish_plan.plan_finish`.

    Raises `PushedCommitsError` if only `rewrites` is missing; else as `run_for`.
    """
    try:
        return _plan(paths, session, request)
    except RefusedError as error:
        if (request.update == "rebase" or request.pushes or request.proposes) and not request.rewrites:
            _check_only_rewrite_lacks(paths, session, request, error)
        raise


def _check_only_rewrite_lacks(paths: Paths, session: Session, request: FinishRequest, error: RefusedError) -> None:
    """Raise `PushedCommitsError` if *request* could be done with `rewrites`: the command's errors do not say so."""
    try:
        _plan(paths, session, msgspec.structs.replace(request, rewrites=True))
    except KasmonError:
        return
    raise PushedCommitsError(error.message, hint=error.hint) from error


def _plan(paths: Paths, session: Session, request: FinishRequest) -> PlannedFinish:
    arguments = ("finish", session.id, *_options(request), *(() if request.is_empty else ("--dry-run",)))
    found = parse_reply(session.via, run_for(paths, session, *arguments), _Plan)
    state = found.branch
    tree = session.worktree or SessionWorktree(
        path=session.workdir.removeprefix(f"{session.via}:"), branch=state.name, base=state.base, source=""
    )
    return PlannedFinish(
        request=request,
        tree=msgspec.structs.replace(tree, path=f"{session.via}:{tree.path}"),
        state=state,
        message=found.message,
        steps=found.steps,
        digest=found.digest or "",
        pull_request=found.pull_request,
        pull_request_why=found.pull_request_why or "",
        checkout=found.checkout or "",
        warnings=found.warnings,
    )


def finish(paths: Paths, session: Session, plan: PlannedFinish) -> FinishResult:
    """Do what *plan* says there, if nothing changed since. See `finish.finish`.

    Raises:
        StaleRequestError: if a commit or a file changed since the plan was made; nothing is done then.
        RemoteUnreachableError: if the machine is not connected; or if it is unknown whether it was done.
        KasmonError: why it was not done, as the command reports it.
    """
    arguments = ["finish", session.id, *_options(plan.request), f"--digest={plan.digest}"]
    if plan.request.discards:
        arguments.append(f"--confirm-name={session.name or plan.state.name}")
    output = run_for(paths, session, *arguments, shows="left_conflicts")
    result = parse_reply(session.via, output, _Result)
    return FinishResult(
        done=result.done,
        conflicts=result.left_conflicts,
        receipt=parse_receipt(session.via, output) if result.receipt else None,
        kept=result.kept or "",
    )


def _options(request: FinishRequest) -> Iterator[str]:
    """Yield the options of `kasmon finish` that *request* stands for."""
    flags = {
        "--commit": request.commits,
        "--fetch": request.fetches,
        "--push": request.pushes,
        "--pr": request.proposes,
        "--draft": request.is_draft,
        f"--{request.merge}": request.merge,
        "--take-over": request.takes_over,
        "--discard": request.discards,
        "--rewrite": request.rewrites,
        "--during-turn": request.during_turn,
    }
    yield from (flag for flag, is_given in flags.items() if is_given)
    if request.message:
        yield f"--message={request.message}"
    if request.update:
        yield from (f"--update={request.update}", f"--conflicts={request.conflicts}")
    yield from (f"--ignored={each}" for each in request.ignored)
