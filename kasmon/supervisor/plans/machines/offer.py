"""What this machine offers to tasks of plans: of other machines', and of its own that may run on any."""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kasmon import __version__, system
from kasmon.agents.catalog import find
from kasmon.config import Config, offers
from kasmon.config.schema import Profile
from kasmon.model.plan.machine_choice import AgentOffer, MachineOffer
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, RESTING
from kasmon.paths import Paths
from kasmon.store.machines import is_drained
from kasmon.supervisor.fleet.snapshot import read_fleet

AT_WORK: Final = ALIVE - RESTING
"""States in which a task takes a slot."""


def read_offer(
    paths: Paths, config: Config, environment: Mapping[str, str], has_repository: bool | None = None
) -> MachineOffer:
    """Return what this machine offers now; no slot while it is drained. Blocks."""
    import psutil  # the other functions do without

    running = [each for each in read_fleet(paths).here if each.state in ALIVE]
    return MachineOffer(
        kasmon=__version__,
        labels=config.machine.labels,
        slots=0 if is_drained(paths) else config.machine.slots or config.plans.limit,
        tasks=tuple(each.id for each in running if takes_slot(each)),
        sessions=len(running),
        load=os.getloadavg()[0] / (os.cpu_count() or 1),
        memory_mb=psutil.virtual_memory().available >> 20,
        agents=tuple(
            AgentOffer(
                name=offer.name,
                problem=offer.problem,
                login=has_login(config.agents[offer.name], environment, Path.home()),
            )
            for offer in offers(config, environment)
        ),
        has_repository=has_repository,
    )


def count_tasks(paths: Paths) -> Mapping[str, int]:
    """Return machine -> how many tasks of any plan are at work there, by its copied logs. Blocks.

    A copy has the number of its task, and no plan.
    """
    sessions = read_fleet(paths).sessions
    return Counter(each.via for each in sessions if each.via and each.task is not None and each.state in AT_WORK)


def takes_slot(session: Session) -> bool:
    """Whether *session* is a plan's task at work."""
    return bool(session.plan) and session.state in AT_WORK


def has_login(profile: Profile, environment: Mapping[str, str], home: Path) -> bool | None:
    """Return whether the program of *profile* has a log-in, by its files and variables; None if unknown. Blocks."""
    program = Path(profile.program).name
    known = find(program).log_in
    if not known.file:
        return None
    variables = {**environment, **profile.env}
    folder = Path(variables.get(known.folder_variable) or home / known.folder)
    try:
        if (folder / known.file).exists() or any(variables.get(name) for name in known.variables):
            return True
        settings = folder / known.settings
        text = settings.read_text("utf-8", "replace") if known.settings and settings.exists() else ""
    except OSError:
        return None
    is_unknown = any(word in text for word in known.settings_words) or (known.keychain and system.HERE.has_keychain)
    return None if is_unknown else False
