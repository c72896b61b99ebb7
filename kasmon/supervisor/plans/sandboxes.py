"""In which sandboxes the tasks of a plan run, and whether they can: asked before any of them begins.

A plan runs unattended: a task that cannot have its sandbox is refused or fails, and is never run in a looser one.
"""

from pathlib import Path
from typing import Final

from kasmon.config import Config, ResolvedProfile, resolve
from kasmon.errors import KasmonError, UnableError
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import Plan, Task, agent_of
from kasmon.model.sandbox.policy import Tier
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import look_once

ASLEEP: Final = frozenset({SessionState.STANDBY, SessionState.PAUSED})


def usual_mode(config: Config, agent: str, sandbox: str | None) -> Mode | None:
    """A task's mode where nobody says one: its profile's (None), else structured where its program can be."""
    profile = config.agents.get(agent)
    if profile is None or profile.execution_mode is not None:
        return None
    try:
        return Mode.SDK if resolve(config, agent, Mode.SDK, sandbox=sandbox).mode is Mode.SDK else None
    except KasmonError:  # it cannot be started at all: whoever starts it says why
        return None


def confined_by(config: Config, plan: Plan, task: Task) -> ResolvedProfile | None:
    """How *task* is started, where a sandbox confines it; None where none does, or nobody can start its agent anyway.

    Raises:
        KasmonError: if it wants a sandbox that its kind of session cannot have.
    """
    agent, said, wanted = agent_of(plan, task), task.mode or plan.mode, task.sandbox or None
    try:
        resolve(config, agent, said, sandbox="")
    except KasmonError:
        return None  # whoever starts it says why
    mode = Mode(said) if said else usual_mode(config, agent, wanted)
    resolved = resolve(config, agent, mode, sandbox=wanted)
    return resolved if resolved.sandbox else None


def must_be_able(places: Paths, config: Config, plan: Plan, folder: Path) -> None:
    """Refuse *plan* in *folder* where one of its tasks cannot have its sandbox as things are.

    Raises:
        NoSandboxError: if none of its tier can be made here.
        RefusedError: if its agent cannot be in it, or nobody agreed to what it is handed.
        KasmonError: what else keeps it from there; the message names the task.
    """
    for task in plan.tasks:
        try:
            _check(places, config, plan, task, folder)
        except KasmonError as error:
            error.message = f"task {task.id!r} cannot run in its sandbox: {error.message}"
            error.args = (f"{error.message} {error.hint}".strip(),)
            raise


def unable(places: Paths, config: Config, plan: Plan, folder: Path) -> str:
    """The same as a sentence; empty where nothing speaks against it."""
    try:
        must_be_able(places, config, plan, folder)
    except KasmonError as error:
        return f"{error.message} {error.hint}".strip()
    return ""


def sandboxes(config: Config, plan: Plan) -> dict[Tier, list[str]]:
    """The tiers that confine tasks of *plan*, each with the ids of those."""
    found: dict[Tier, list[str]] = {}
    for task in plan.tasks:
        if (tier := _tier(config, plan, task)) is not None:
            found.setdefault(tier, []).append(task.id)
    return found


def goes_in(places: Paths, launch: Launch) -> None:
    """Note how the folder of *launch* is, where its sandbox is to work on a copy of that. Blocks.

    Raises:
        SandboxError: if it cannot be looked at, or is too much.
        OSError: if that cannot be noted.
    """
    if launch.sandbox is None:
        return
    from kasmon.sandbox.agent import launch as inmate
    from kasmon.sandbox.shared import copy_back

    if inmate.works_on_copy(places, launch.session, Path(launch.workdir)):
        copy_back.noted(Path(launch.workdir), places.fetched(launch.session))


def comes_back(places: Paths, session: SessionId, folder: Path) -> str:
    """Have in *folder* what *session* made in its sandbox, if it has one; in words what did not come. Blocks."""
    if not places.sandbox(session).exists():
        return ""
    from kasmon.sandbox.agent import launch as inmate
    from kasmon.sandbox.shared import copy_back

    told: list[str] = []
    try:
        known = look_once(places).get(session)
        if known is not None and known.exists and known.state not in ASLEEP:  # who sleeps on disk was level before
            inmate.sync_folders(places, session)
        told += copy_back.fetched(inmate.copy_of(places, session), folder, places.fetched(session))
    except (KasmonError, OSError) as error:
        told.append(f"Its changes are in {str(inmate.copy_of(places, session))!r} and were not fetched: {error}")
    return " ".join(told)


def _check(places: Paths, config: Config, plan: Plan, task: Task, folder: Path) -> None:
    if task.run and task.inherits and plan.task(task.inherits).run and task.sandbox:
        before = _tier(config, plan, plan.task(task.inherits))
        if before != task.sandbox:
            raise UnableError(
                f"it inherits the terminal of {task.inherits!r}, whose sandbox is {before or 'none'}, not "
                f"{task.sandbox}.",
                hint="Give both tasks the same sandbox, or leave out `inherits`.",
            )
    resolved = confined_by(config, plan, task)
    if resolved is None:
        return
    from kasmon.supervisor.sandboxes import agent_policy, availability  # only where there is a sandbox

    agent_policy.policy_of(resolved)
    availability.must_carry(places, resolved, str(folder))
    agent_policy.check_agreed(places, resolved, agrees=False)


def _tier(config: Config, plan: Plan, task: Task) -> Tier | None:
    """What confines *task*; None where nothing does, or it cannot be."""
    try:
        resolved = confined_by(config, plan, task)
    except KasmonError:
        return None
    return resolved.sandbox if resolved is not None else None
