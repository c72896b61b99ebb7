"""How an agent's program is run in a sandbox at the service."""

from collections.abc import Mapping
from typing import Final

from kasmon.sandbox.e2b.service import Access
from kasmon.sandbox.far.quarters import BIN, Fitted
from kasmon.sandbox.jail.arguments import PATH
from kasmon.sandbox.jail.scenery import BASE, own_variables

NOT_THEIRS: Final = ("LC_", "E2B_")
"""Languages, of which a template mostly knows none; and how the service is reached."""


def fitted(access: Access, argv: tuple[str, ...], workdir: str, variables: Mapping[str, str]) -> Fitted:
    """How *argv* is run there, with *variables*; its front reaches the service by *access*."""
    own = {name: value for name, value in own_variables(variables).items() if not name.startswith(NOT_THEIRS)}
    return Fitted(
        argv=argv,
        workdir=workdir,
        variables={**BASE, **own, "PATH": f"{BIN}:{PATH}"},
        notices=(f"its program {argv[0]!r} is that of its template at the service",),
        front=access.variables(),
    )
