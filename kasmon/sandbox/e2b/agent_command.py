"""Builds the command of an agent's program in a sandbox at the service."""

from collections.abc import Mapping
from typing import Final

from kasmon.sandbox.e2b.service import ServiceAccess
from kasmon.sandbox.jail.bwrap_arguments import PATH
from kasmon.sandbox.remote_guest.launch_spec import BIN, FittedProgram
from kasmon.sandbox.shared.filesystem_view import BASE, own_variables

DROPPED_PREFIXES: Final = ("LC_", "E2B_")
"""Prefixes of variables left out: locales, which a template mostly lacks, and those for reaching the service."""


def fitted(access: ServiceAccess, argv: tuple[str, ...], workdir: str, variables: Mapping[str, str]) -> FittedProgram:
    """Return how *argv* is run there, with *variables*; its front reaches the service by *access*."""
    own = {name: value for name, value in own_variables(variables).items() if not name.startswith(DROPPED_PREFIXES)}
    return FittedProgram(
        argv=argv,
        workdir=workdir,
        variables={**BASE, **own, "PATH": f"{BIN}:{PATH}"},
        notices=(f"its program {argv[0]!r} comes from its template at the service",),
        front=access.variables(),
    )
