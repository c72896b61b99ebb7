"""`kasmon task offer`: what this machine offers to the plans of other machines. `work` has the other commands."""

import os
from typing import Annotated

import msgspec

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import print_answer
from kasmon.config import load
from kasmon.paths import user_paths
from kasmon.supervisor.plans.machines.offer import read_offer
from kasmon.supervisor.plans.machines.task_repository import has_repository


def offer(
    *,
    repository: Annotated[str, Arg("Also whether it has the git repository with this first commit.")] = "",
    wants_json: Json = False,
) -> None:
    """Show what this machine offers to tasks of other machines' plans."""
    where = user_paths()
    config = load(where)
    has_it = has_repository(where, config, repository) if repository else None
    found = read_offer(where, config, os.environ, has_it)
    print_answer(
        f"{len(found.tasks)} of {found.slots} slots taken, {found.sessions} sessions, load {found.load:.1f}",
        f"  labels: {', '.join(found.labels) or 'none'}",
        *(
            f"  {each.name}: {each.problem or ('not logged in' if each.login is False else 'available')}"
            for each in found.agents
        ),
        wants_json=wants_json,
        offer=msgspec.to_builtins(found),
    )
