"""The sandboxes of a plan's tasks, and whether they are available: checked before any task begins.

A plan runs unattended: a task that cannot have its sandbox is refused or fails; it never runs in a weaker one.
"""

from pathlib import Path
from typing import Final

from kasmon.config import Config, ResolvedProfile, resolve
from kasmon.errors import KasmonError, UnableError
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.plan.placement import machine_requirement
from kasmon.model.plan.plan import Plan, Task, agent_of
from kasmon.model.sandbox.policy import Tier
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.start_limits import check_accounts

ASLEEP: Final = frozenset({SessionState.STANDBY, SessionState.PAUSED})


def usual_mode(config: Config, agent: str, sandbox: str | None) -> Mode | None:
    """Return the default mode of a task: None if its profile sets one, else structured if its program supports it."""
    profile = config.agents.get(agent)
    if profile is None or profile.execution_mode is not None:
        return None
    try:
        return Mode.SDK if resolve(config, agent, Mode.SDK, sandbox=sandbox).mode is Mode.SDK else None
    except KasmonError:  # it cannot be started at all; its start reports why
        return None


def resolve_confined(config: Config, plan: Plan, task: Task) -> ResolvedProfile | None:
    """Resolve the agent of *task* if a sandbox here confines it; None if none does, or its agent cannot be started.

    Raises `KasmonError` if it requires a sandbox that its kind of session cannot have.
    """
    if machine_requirement(plan, task) is not None:
        return None  # that machine's config decides
    agent, mode_name, requested = agent_of(plan, task), task.mode or plan.mode, task.sandbox or None
    try:
        resolve(config, agent, mode_name, sandbox="")
    except KasmonError:
        return None  # its start reports why
    mode = Mode(mode_name) if mode_name else usual_mode(config, agent, requested)
    resolved = resolve(config, agent, mode, sandbox=requested)
    return resolved if resolved.sandbox else None


def must_be_able(paths: Paths, config: Config, plan: Plan, folder: Path) -> None:
    """Refuse *plan* in *folder* if one of its tasks cannot have its sandbox or its account now.

    Raises:
        NoSandboxError: if no sandbox of its tier can be created here.
        RefusedError: if its agent cannot be in it, or the user has not confirmed what it is granted.
        KasmonError: for any other reason; the message names the task.
    """
    check_accounts(config, plan)
    for task in plan.tasks:
        try:
            _check(paths, config, plan, task, folder)
        except KasmonError as error:
            error.message = f"task {task.id!r} cannot run in its sandbox: {error.message}"
            raise


def find_problem(paths: Paths, config: Config, plan: Plan, folder: Path) -> str:
    """Return the error of `must_be_able` as a sentence; empty if there is none."""
    try:
        must_be_able(paths, config, plan, folder)
    except KasmonError as error:
        return str(error)
    return ""


def sandboxes(config: Config, plan: Plan) -> dict[Tier, list[str]]:
    """Return the sandbox tiers of *plan* -> the ids of the tasks that use each."""
    found: dict[Tier, list[str]] = {}
    for task in plan.tasks:
        if (tier := _tier(config, plan, task)) is not None:
            found.setdefault(tier, []).append(task.id)
    return found


def record_folder(paths: Paths, launch: Launch) -> None:
    """Record the state of the folder of *launch*, if its sandbox is to work on a copy. Blocks.

    Raises `SandboxError` if it is too large or cannot be read, `OSError` if the record cannot be written.
    """
    if launch.sandbox is None:
        return
    from kasmon.sandbox.agent import launch as agent_launch
    from kasmon.sandbox.shared import copy_back

    if agent_launch.works_on_copy(paths, launch.session, Path(launch.workdir)):
        copy_back.store_folder_state(Path(launch.workdir), paths.fetched(launch.session))


def fetch_changes(paths: Paths, session: SessionId, folder: Path) -> str:
    """Copy the changes of *session* from its sandbox, if any, to *folder*; describe what was not copied. Blocks."""
    if not paths.sandbox(session).exists():
        return ""
    from kasmon.sandbox.agent import launch as agent_launch
    from kasmon.sandbox.shared import copy_back

    problems: list[str] = []
    try:
        known = read_fleet(paths).get(session)
        if known is not None and known.exists and known.state not in ASLEEP:  # one suspended to disk was synced before
            agent_launch.sync_folders(paths, session)
        problems += copy_back.fetched(agent_launch.copy_of(paths, session), folder, paths.fetched(session))
    except (KasmonError, OSError) as error:
        problems.append(
            f"Its changes are in {str(agent_launch.copy_of(paths, session))!r} and were not fetched: {error}"
        )
    return " ".join(problems)


def _check(paths: Paths, config: Config, plan: Plan, task: Task, folder: Path) -> None:
    if task.run and task.inherits and plan.task(task.inherits).run and task.sandbox:
        before = _tier(config, plan, plan.task(task.inherits))
        if before != task.sandbox:
            raise UnableError(
                f"it inherits the terminal of {task.inherits!r}, whose sandbox is {before or 'none'}, not "
                f"{task.sandbox}.",
                hint="Give both tasks the same sandbox, or leave out `inherits`.",
            )
    resolved = resolve_confined(config, plan, task)
    if resolved is None:
        return
    from kasmon.supervisor.sandboxes import agent_policy, availability  # only where there is a sandbox

    agent_policy.policy_of(resolved)
    availability.must_confine(paths, resolved, str(folder))
    agent_policy.check_agreed(paths, resolved, agrees=False)


def _tier(config: Config, plan: Plan, task: Task) -> Tier | None:
    try:
        resolved = resolve_confined(config, plan, task)
    except KasmonError:
        return None
    return resolved.sandbox if resolved is not None else None
