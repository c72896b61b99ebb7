"""Which values of a session nobody may see: those of its own variables, and what its agent got beside them."""

import os
from collections.abc import Mapping, Sequence

from kasmon.backends.common.environment import given_secrets, inherited, own_prefixes, secret_values
from kasmon.model.permission import SessionId
from kasmon.paths import Paths


def secrets_of(
    places: Paths, session: str, argv: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The values of the variables of *session*, but for public ones, and what its agent inherits that is secret.

    Args:
        places: where the session's variables are kept.
        session: whose.
        argv: the command of its agent, which says what it inherits.
        variables: of whom; default `os.environ`.
    """
    try:
        given = given_secrets(places, SessionId(session))
    except OSError:
        given = ()
    passed = inherited(own_prefixes(argv), os.environ if variables is None else variables)
    return tuple(dict.fromkeys((*given, *secret_values(passed))))


def secrets_in(pid: int) -> tuple[str, ...]:
    """What is secret by its name among the variables of process *pid*; nothing where the system does not tell."""
    import psutil  # heavy, and only who finds an agent that another host started needs it

    try:
        return secret_values(psutil.Process(pid).environ())
    except (psutil.Error, OSError):
        return ()
