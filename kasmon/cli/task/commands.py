"""`kasmon task`: the commands that the runner of another machine's plan uses here."""

import os
from typing import Annotated

import msgspec

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import print_json, say
from kasmon.cli.output.json_objects import answer
from kasmon.config import load
from kasmon.paths import places
from kasmon.supervisor.plans.machines.offer import read_offer
from kasmon.supervisor.plans.machines.task_repository import has_repository


def offer(
    *,
    repository: Annotated[str, Arg("Also whether it has the git repository with this first commit.")] = "",
    wants_json: Json = False,
) -> None:
    """Show what this machine offers to tasks of other machines' plans."""
    where = places()
    config = load(where)
    has_it = has_repository(where, config, repository) if repository else None
    found = read_offer(where, config, os.environ, has_it)
    if wants_json:
        print_json(answer(offer=msgspec.to_builtins(found)))
        return
    say(
        f"{len(found.tasks)} of {found.slots} slots taken, {found.sessions} sessions, load {found.load:.1f}",
        f"  labels: {', '.join(found.labels) or 'none'}",
        *(
            f"  {each.name}: {each.problem or ('not logged in' if each.login is False else 'available')}"
            for each in found.agents
        ),
    )
