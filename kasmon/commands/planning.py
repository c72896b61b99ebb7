"""`kasmon plan`: look at a plan, agree to it, run it, and decide on what it asks."""

import asyncio
import sys
from pathlib import Path
from typing import Literal

import msgspec

from kasmon.commands.listing import is_utf8
from kasmon.commands.objects import answer, error_object
from kasmon.commands.output import note, say, tell
from kasmon.commands.plan_objects import plan_object, run_object
from kasmon.commands.plan_report import follow, report
from kasmon.config import Config, load
from kasmon.errors import PlanFaultyError, RefusedError, UsageError
from kasmon.model.plan import drawing
from kasmon.model.plan.change import changes
from kasmon.model.plan.fact import Deed
from kasmon.model.plan.next import Ahead
from kasmon.model.plan.read import look_at, read
from kasmon.model.plan.run import PlanRun
from kasmon.model.plan.spec import Plan, placed
from kasmon.paths import expanded, places
from kasmon.store.plan import plans
from kasmon.supervisor.look import look_once
from kasmon.supervisor.plans import acts, agreement, start, worktrees
from kasmon.supervisor.plans.confinement import must_be_able
from kasmon.supervisor.plans.folders import PlanFolders
from kasmon.supervisor.plans.see import agreed, see

OUTCOMES = {"done": 0, "claimed": 0, "failed": 1, "aborted": 1}
"""How a plan ended -> the exit code of whoever waited for it."""


def check(file: str, *, wants_json: bool) -> int:
    """Say whether a plan holds together, and its tasks can have their sandboxes here; 2 where it does not hold, for
    programs with all that is wrong in one object.

    Raises:
        PlanFaultyError: if it does not; each fault was printed.
        KasmonError: if a task cannot have its sandbox.
    """
    where, text = places(), start.text_of(Path(file))
    config = load(where)
    plan, faults = look_at(text, file, tuple(config.agents))
    if not faults:
        must_be_able(where, config, plan, Path(file).absolute().parent)
    if wants_json:
        found = [{"file": file, "line": fault.line, "why": fault.why} for fault in faults]
        error = error_object(PlanFaultyError([placed(file, fault) for fault in faults])) if faults else {}
        tell(error | answer(plan=plan_object(plan), faults=found))
        return UsageError.exit_code if faults else 0
    if faults:
        say(*(placed(file, fault) for fault in faults))
        raise PlanFaultyError([placed(file, fault) for fault in faults])
    tasks = "1 task" if len(plan.tasks) == 1 else f"{len(plan.tasks)} tasks"
    say(f"{file}: {tasks} in {plan.waves} {'wave' if plan.waves == 1 else 'waves'}, nothing is wrong")
    return 0


def show(wanted: str, *, wave: int | None, wants_json: bool) -> None:
    """Draw a plan: a file, or one that was run, with the state of its tasks."""
    where = places()
    if wanted in plans(where) or not Path(wanted).exists():
        seen = see(start.found(where, wanted), look_once(where), load(where))
        plan, run, ahead = seen.plan, seen.run, seen.ahead
    else:
        plan, run, ahead = read(start.text_of(Path(wanted)), wanted, tuple(load(where).agents)), None, Ahead((), {})
    if wave is not None:
        plan = _only(plan, wave)
    if wants_json:
        tell(answer(plan=plan_object(plan, run, ahead)))
        return
    states = {} if run is None else {task.id: _state_words(run, task.id, ahead) for task in plan.tasks}
    say(*drawing.text(plan, states, utf8=is_utf8()))
    if run is not None:
        say(f"{run.plan}: {run.outcome or run.state}" + (f" ({run.why})" if run.why else ""))
        if ahead.asks:
            say(f"asks: {ahead.asks}")


def run(
    file: str,
    *,
    wave: int | None,
    yes: bool,
    ci: bool,
    folder: str,
    form: Literal["text", "json", "junit"],
    output: str,
    wants_json: bool,
) -> int:
    """Run a plan after showing what it would start; with *ci* wait for its end, and report.

    Raises:
        PlanFaultyError: if something is wrong with it.
        RefusedError: if nobody agreed to it.
        KasmonError: if a task of it cannot have its sandbox.
    """
    where, path = places(), Path(file).absolute()
    config, text = load(where), start.text_of(path)
    plan = read(text, file, tuple(config.agents))
    at = expanded(folder or str(path.parent)).absolute()
    if not at.is_dir():
        raise UsageError(f"the folder {str(at)!r} does not exist.", hint="Make it first, or give another --dir.")
    must_be_able(where, config, plan, at)
    if wave is not None:
        _only(plan, wave)
    _agree(plan, config, at, yes=yes, quiet=wants_json or ci)
    book = start.agree(where, plan, text, path, at, headless=ci)
    for task in plan.tasks:
        if wave is not None and task.wave < wave:
            book.steer("skip", task.id)
    for _ in range(1, wave or 1):
        book.steer("advance")
    start.run(where, book)
    if ci:
        finished = asyncio.run(follow(book, quiet=wants_json or (form != "text" and not output)))
        report(plan, finished, "json" if wants_json else form, output)
        return OUTCOMES.get(finished.outcome, 1)
    if wants_json:
        tell(answer(plan=plan_object(plan, book.run)))
    else:
        say(book.plan)
    return 0


def steer(wanted: str, deed: Deed, task: str = "", agent: str = "", *, wants_json: bool) -> None:
    """Decide something on a plan that runs; `resume` also starts its runner again.

    Raises:
        PlanNotFoundError: if there is no such plan.
        RefusedError: if it is over, or has nothing of that kind to decide.
        UsageError: if it has no such task, or there is no such agent.
    """
    where = places()
    seen = acts.steer(where, load(where), look_once(where), wanted, deed, task, agent)
    if wants_json:
        tell(answer(plan=plan_object(seen.plan, seen.run)))
    else:
        say(f"{seen.run.plan}: {deed}{f' {task}' if task else ''}")


def edit(wanted: str, *, apply: bool, yes: bool, wants_json: bool) -> None:
    """Show how a plan's file differs from what runs, and with *apply* take it over.

    Raises:
        PlanFaultyError: if something is wrong with the file.
        RefusedError: if the edit takes away what has begun, or nobody agreed to it.
    """
    where = places()
    book = start.found(where, wanted)
    file = Path(book.run.file)
    text, config = start.text_of(file), load(where)
    new = read(text, str(file), tuple(config.agents))
    old = agreed(book)
    edited = changes(old, new, book.run)
    if apply and book.run.state == "ended":
        raise RefusedError(f"plan {book.plan!r} is over: {book.run.outcome}.", hint="Run its file again.")
    if wants_json and (not apply or not edited.lines):
        tell(answer(changes=list(edited.lines), refused=list(edited.refused)))
        return
    if not edited.lines:
        say(f"{book.plan}: its file says what runs")
        return
    if not wants_json:
        say(*edited.lines)
    if edited.refused:
        raise RefusedError(f"the edit of {book.plan!r} is not taken over: {'; '.join(edited.refused)}.")
    if apply:
        must_be_able(where, config, new, Path(book.run.folder))
        _agree(new, config, Path(book.run.folder), yes=yes, quiet=wants_json)
        acts.take_edit(where, config, book.plan, start.digest(text))
        if wants_json:
            tell(answer(changes=list(edited.lines), refused=[]))


def list_all(*, wants_json: bool) -> None:
    """List the plans that were run, the newest last."""
    where = places()
    books = sorted((start.found(where, id_) for id_ in plans(where)), key=lambda book: book.run.began_at)
    if wants_json:
        tell(answer(plans=[run_object(book, is_run=start.is_run(book)) for book in books]))
        return
    for book in books:
        run_ = book.run
        held = "" if run_.state == "ended" or start.is_run(book) else ", nobody runs it (`kasmon recover`)"
        done = sum(task.state.value in ("done", "skipped") for task in run_.tasks.values())
        say(f"{book.plan}  {run_.outcome or run_.state}{held}  {done} done  {run_.file}")
    for found in PlanFolders(load(where).plans.folders).look():
        wrong = f", {len(found.faults)} faults (`kasmon plan check`)" if found.faults else ""
        say(f"-  not run: {len(found.plan.tasks)} tasks in {found.plan.waves} waves{wrong}  {found.file}")
    if not books:
        say("No plan was run yet.")


def clean(wanted: str, *, wants_json: bool) -> None:
    """Remove the worktrees of a plan in which nothing could be lost; the others stay, and are named.

    Raises:
        RefusedError: if one of them has to stay, or the plan is not over.
    """
    where = places()
    removed, kept = worktrees.clean(start.found(where, wanted), look_once(where))
    if wants_json:
        tell(answer(removed=removed, kept=kept))
    else:
        say(*(f"removed {path}" for path in removed))
    if kept:
        raise RefusedError(" ".join(kept), hint="Commit and push or merge them first.")


def _state_words(run: PlanRun, id_: str, ahead: Ahead) -> str:
    at = run.of(id_)
    words = at.state.value
    if at.attempt > 1:
        words += f" (attempt {at.attempt})"
    if at.state.value == "claimed" and at.changed == 0:
        words += ", nothing changed"
    why = ahead.blocked.get(id_) or (at.why if at.state.value in ("failed", "claimed") else "")
    return f"{words}: {why}" if why else words


def _only(plan: Plan, wave: int) -> Plan:
    if not plan.wave(wave):
        raise UsageError(f"there is no wave {wave}.", hint=f"The plan has {plan.waves}.")
    return msgspec.structs.replace(plan, tasks=plan.wave(wave))


def _agree(plan: Plan, config: Config, folder: Path, *, yes: bool, quiet: bool) -> None:
    """Show every command that *plan* would run, and have a person agree to it.

    Raises:
        RefusedError: if nobody does.
        UsageError, GitError: if there is no git repository for the worktrees that it wants.
    """
    remarks = [f"  but {remark}" for remark in agreement.grounds(plan, folder)]
    lines = [*agreement.shown(plan, config, folder), *remarks]
    if yes and quiet:
        for remark in remarks:
            note(remark.strip())
    else:
        for line in lines:
            note(line) if quiet else say(line)
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or quiet:
        raise RefusedError("nobody agreed to what this plan runs.", hint="Look at it, then say --yes.")
    try:
        said = input("Run this? [y/N] ")
    except EOFError:
        said = ""
    if said.strip().lower() not in ("y", "yes"):
        raise RefusedError("nothing was run.")
