"""Chooses the machine of each attempt that may run on several, and logs the choice before anything starts.

This machine makes an offer like the registered ones. What is placed here runs as a task that names no machine does.
"""

import asyncio
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from kasmon.config import Config
from kasmon.errors import GitError, KasmonError, RefusedError, RemoteUnreachableError, UsageError
from kasmon.model.plan.events import TaskPlaced
from kasmon.model.plan.machine_choice import MachineChoice, MachineOffer, MachineUse, choose
from kasmon.model.plan.placement import MachineRequirement, machine_requirement
from kasmon.model.plan.plan import LOCAL, Plan, Task, agent_of, host_of
from kasmon.model.plan.progress import PlanRun
from kasmon.model.plan.scheduler import ChooseMachines, counts_as_running
from kasmon.model.plan.shared_terminal import root_of
from kasmon.paths import Paths
from kasmon.repository.git import first_commit
from kasmon.sanitize import clean_line
from kasmon.store.machines import is_drained, is_own_name, machine_names, read_machine, read_presence
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.machines.link_client import error_of, run
from kasmon.supervisor.machines.registration import start_link, status
from kasmon.supervisor.plans.machines.offer import read_offer
from kasmon.supervisor.plans.machines.registered_tasks import may_have_started

CONNECT_S: Final = 5.0
"""How long a machine may take to connect, in seconds, before nothing is placed there."""
ANSWER_S: Final = 10.0
"""How long a machine may take to make an offer, in seconds."""
FRESH_S: Final = 5.0
"""How long an offer is used, in seconds;"""
FULL_S: Final = 30.0
"""while this plan's tasks take all slots of the machine, so long: the answer would change nothing."""
AGAIN_S: Final = 1.0
"""After this time, in seconds, a machine is looked for again; offers may be as old as `FRESH_S` then."""
DRAINED: Final = "it is drained"
TOO_OLD: Final = "its kasmon ({0}) does not run tasks of other machines' plans; update it"


class _OfferReply(msgspec.Struct, frozen=True):
    """What `kasmon task offer --json` prints."""

    offer: MachineOffer


class TaskPlacement:
    """Places the tasks of the plan of *plan_log*; used by its runner only."""

    def __init__(self, paths: Paths, plan_log: PlanLog, config: Config) -> None:
        self._paths = paths
        self._config = config
        self._plan_log = plan_log
        self._offers: dict[str, tuple[float, asyncio.Task[MachineOffer]]] = {}
        """Machine -> when it was asked last, on the monotonic clock, and its offer."""
        self._unreachable: dict[str, float] = {}
        """Machine -> since when this runner cannot reach it, on the monotonic clock."""
        self._choosing = asyncio.Lock()
        self._repository: str | None = None
        """The first commit of the plan's repository; None as long as it is unknown."""

    async def place(self, plan: Plan, step: ChooseMachines, limit: int) -> None:
        """Log the machine of each attempt of *step*, as far as there are free ones; else wait a moment.

        *limit*: how many tasks of the plan may run here at once.
        """
        wanted = await asyncio.to_thread(_with_own_name, self._paths, step.wanted)
        offers = [_limit_own(offer, limit) for offer in await self._ask(plan, wanted.machine)]
        async with self._choosing:  # or two groups of tasks could get the same slot
            for task, attempt, _ in step.tasks:
                current = self._plan_log.run
                choice = choose(wanted, step.agent, offers, count_uses(plan, current, offers), plan.per_machine)
                before = current.of(task.id).placement
                placed = TaskPlaced(
                    at=time.time(),
                    task=task.id,
                    attempt=attempt,
                    machine=choice.machine,
                    why=choice.why,
                    number=task.number,
                )
                if choice.machine or before is None or before.why != choice.why:
                    await asyncio.to_thread(self._plan_log.note, placed)
                if not choice.machine:
                    break
            else:
                return
        await asyncio.sleep(AGAIN_S)

    async def confirm(self, task: Task, attempt: int, lost: Collection[str] = ()) -> bool:
        """Whether *attempt* can start on its chosen machine; otherwise log that another one is needed.

        One that may have started there waits for its machine, unless that is among the *lost* ones.
        """
        at = self._plan_log.run.of(task.id)
        placement = at.placement
        if placement is None or not placement.machine:
            return False
        try:
            if placement.machine == LOCAL:
                await asyncio.to_thread(_require_undrained, self._paths)
            else:
                await asyncio.to_thread(require_machine, self._paths, placement.machine)
        except KasmonError as error:
            has_started = placement.machine != LOCAL and await asyncio.to_thread(
                may_have_started, self._plan_log, task, at.placements[-1]
            )
            if has_started and isinstance(error, RefusedError):
                return True
            if has_started and isinstance(error, RemoteUnreachableError) and placement.machine not in lost:
                await asyncio.sleep(AGAIN_S)
                return False
            self._offers.pop(placement.machine, None)  # it is asked again before it is chosen again
            why = f"{placement.machine}: {_describe(error)}"
            moved = TaskPlaced(at=time.time(), task=task.id, attempt=attempt, machine="", why=why)
            await asyncio.to_thread(self._plan_log.note, moved)
            return False
        return True

    def find_lost(self, machines: Collection[str], limit_s: float) -> Mapping[str, str]:
        """Return machine -> why its tasks are tried again, for those of *machines* unreachable for *limit_s* seconds.

        It also starts the links that do not run. Blocks.
        """
        known = set(machine_names(self._paths))
        gone = [name for name in machines if name not in known or self._is_unreachable(name)]
        now = time.monotonic()
        self._unreachable = {name: self._unreachable.get(name, now) for name in gone}
        return {
            name: f"its machine {name!r} was {'unreachable' if name in known else 'not registered'} for {limit_s:g} s"
            for name, since in self._unreachable.items()
            if now - since >= limit_s
        }

    def _is_unreachable(self, name: str) -> bool:
        try:
            start_link(self._paths, name)
            return status(self._paths, name).is_unreachable
        except KasmonError:  # it was removed meanwhile, or no link can be started
            return True

    async def _ask(self, plan: Plan, machine: str) -> Sequence[MachineOffer]:
        if self._repository is None:
            self._repository = await asyncio.to_thread(_identify_repository, Path(self._plan_log.run.folder))
        registered = await asyncio.to_thread(machine_names, self._paths)
        names = [name for name in (LOCAL, *registered) if machine in ("", name)]
        uses = count_uses(plan, self._plan_log.run, [MachineOffer(machine=name) for name in names])
        return await asyncio.gather(*(self._offer(name, uses[name].of_plan) for name in names))

    async def _offer(self, name: str, tasks: int) -> MachineOffer:
        """Return what the machine *name* offers, where this plan has so many *tasks*."""
        asked_at, asking = self._offers.get(name, (float("-inf"), None))
        is_full = asking is not None and asking.done() and 0 < asking.result().slots <= tasks
        if asking is None or (asking.done() and time.monotonic() > asked_at + (FULL_S if is_full else FRESH_S)):
            asking = asyncio.create_task(asyncio.to_thread(self._read_offer, name))
            self._offers[name] = time.monotonic(), asking
        return await asyncio.shield(asking)

    def _read_offer(self, name: str) -> MachineOffer:
        if name == LOCAL:
            return _read_own_offer(self._paths, self._config, self._repository or "")
        return ask_offer(self._paths, name, self._repository or "")


def find_offers(paths: Paths, config: Config, plan: Plan, folder: Path) -> Sequence[MachineOffer]:
    """Return what each machine offers now to *plan* in *folder*. Blocks."""
    names, repository = machine_names(paths), _identify_repository(folder)
    with ThreadPoolExecutor(max(len(names), 1)) as threads:
        offers = list(threads.map(partial(ask_offer, paths, repository=repository), names))
    return [*offers, _limit_own(_read_own_offer(paths, config, repository), plan.limit)]


def check_versions(paths: Paths, plan: Plan, offers: Sequence[MachineOffer]) -> list[str]:
    """Return a remark for each machine that gets no task of *plan* because its kasmon is too old.

    Raises `RefusedError` if a task of *plan* may run on no other machine.
    """
    too_old = {offer.machine: offer.problem for offer in offers if offer.is_too_old}
    wanted = _find_requirements(paths, plan)
    for id_, found in wanted.items():
        if found.machine in too_old:
            raise RefusedError(
                f"task {id_!r} cannot run on machine {found.machine!r}: {too_old[found.machine]}.",
                hint="Or name another machine.",
            )
    return [f"machine {name!r} gets no task: {why}" for name, why in too_old.items()] if wanted else []


def _find_requirements(paths: Paths, plan: Plan) -> Mapping[str, MachineRequirement]:
    """Return task -> which machines it may be placed on, for those that are."""
    return {
        task.id: _with_own_name(paths, found)
        for task in plan.tasks
        if (found := machine_requirement(plan, task)) is not None
    }


def propose(paths: Paths, plan: Plan, offers: Sequence[MachineOffer]) -> Mapping[str, MachineChoice]:
    """Return task -> the machine that it would get of *offers* if its wave were the next, for tasks that are placed."""
    wanted = _find_requirements(paths, plan)
    choices: dict[str, MachineChoice] = {}
    for wave in range(1, plan.waves + 1):
        taken = {offer.machine: 0 for offer in offers}
        taken[LOCAL] = sum(task.id not in wanted and not host_of(plan, task) for task in plan.wave(wave))
        for task in plan.wave(wave):
            if task.id not in wanted:
                continue
            root = choices.get(root_of(plan, task).id)
            uses = {
                each.machine: MachineUse(taken[each.machine], taken[each.machine] + len(each.tasks)) for each in offers
            }
            choice = choose(
                MachineRequirement(root.machine) if root and root.machine else wanted[task.id],
                agent_of(plan, task),
                offers,
                uses,
                plan.per_machine,
            )
            choices[task.id] = choice
            if choice.machine:
                taken[choice.machine] += 1
    return choices


def _identify_repository(folder: Path) -> str:
    """Return the first commit of the repository that *folder* is in; empty if there is none."""
    try:
        return first_commit(folder)
    except GitError:
        return ""


def _with_own_name(paths: Paths, wanted: MachineRequirement) -> MachineRequirement:
    """Return *wanted* with `LOCAL` for a name of this machine's own. Blocks."""
    return MachineRequirement(LOCAL, wanted.labels) if is_own_name(paths, wanted.machine) else wanted


def _read_own_offer(paths: Paths, config: Config, repository: str) -> MachineOffer:
    """Return what this machine offers; with a problem if nothing can be placed here. Blocks."""
    if is_drained(paths):
        return MachineOffer(machine=LOCAL, problem=DRAINED)
    return msgspec.structs.replace(read_offer(paths, config, os.environ, bool(repository)), machine=LOCAL)


def _limit_own(offer: MachineOffer, limit: int) -> MachineOffer:
    """Return *offer*, for this machine with as many slots as tasks of the plan may run here, at most."""
    return msgspec.structs.replace(offer, slots=min(offer.slots, limit)) if offer.machine == LOCAL else offer


def _require_undrained(paths: Paths) -> None:
    if is_drained(paths):
        raise RefusedError(f"{DRAINED}.", hint=f"`kasmon machines drain {LOCAL} --undo` lets tasks be placed here.")


def ask_offer(paths: Paths, machine: str, repository: str = "") -> MachineOffer:
    """Return what *machine* offers; with a problem if nothing can be placed there. Blocks.

    *repository*: the first commit of the one that the machine may have already; empty if it makes no difference.
    """
    try:
        require_machine(paths, machine)
        arguments = ["task", "offer", "--json", *([f"--repository={repository}"] if repository else [])]
        output = run(paths, machine, arguments, limit_s=ANSWER_S)
        if output.exit_code:
            raise error_of(machine, output)
        offer = msgspec.json.decode(output.stdout, type=_OfferReply).offer
    except UsageError:  # it does not know the command
        version = read_presence(paths, machine).kasmon or "of unknown version"
        return MachineOffer(machine=machine, problem=TOO_OLD.format(version), is_too_old=True)
    except KasmonError as error:
        return MachineOffer(machine=machine, problem=_describe(error))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return MachineOffer(machine=machine, problem="its offer cannot be read")
    agents = tuple(msgspec.structs.replace(each, problem=clean_line(each.problem)) for each in offer.agents)
    return msgspec.structs.replace(offer, machine=machine, problem="", is_too_old=False, agents=agents)


def require_machine(paths: Paths, machine: str) -> None:
    """Raise unless tasks may begin on *machine*; wait until it is connected, at most `CONNECT_S` seconds. Blocks.

    Raises:
        NotFoundError: if it is not registered.
        RefusedError: if it is drained.
        RemoteUnreachableError: if it is not connected.
    """
    if read_machine(paths, machine).drained:
        raise RefusedError(f"{DRAINED}.", hint=f"`kasmon machines drain {machine} --undo` lets sessions start there.")
    deadline = time.monotonic() + CONNECT_S
    start_link(paths, machine)
    while (known := status(paths, machine)).is_unreachable:
        if known.state == "unreachable" or time.monotonic() > deadline:
            raise RemoteUnreachableError(
                machine, known.presence.why or "the link to it does not connect", is_registered=True
            )
        time.sleep(0.05)


def _describe(error: KasmonError) -> str:
    if isinstance(error, RemoteUnreachableError):
        return clean_line(error.why.rstrip("."))
    return clean_line(error.message.rstrip("."))


def count_uses(plan: Plan, current: PlanRun, offers: Iterable[MachineOffer]) -> Mapping[str, MachineUse]:
    """Return how many tasks each machine has: those of *plan* by its log, those of other plans by the offer."""
    own = {session for at in current.tasks.values() for session in (at.session, *at.earlier) if session}
    counts: dict[str, int] = {}
    for task in plan.tasks:
        at = current.of(task.id)
        machine = at.machine or ("" if host_of(plan, task, at.agent) else LOCAL)
        if counts_as_running(current, task) or (at.placement is not None and at.placement.machine):
            counts[machine] = counts.get(machine, 0) + 1
    return {
        offer.machine: MachineUse(
            counts.get(offer.machine, 0), counts.get(offer.machine, 0) + len(set(offer.tasks) - own)
        )
        for offer in offers
    }
