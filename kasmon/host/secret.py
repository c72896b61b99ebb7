"""Which values of a session nobody may see: those of its own variables, and what its agent got beside them."""

import os
from collections.abc import Mapping, Sequence

from kasmon.backends.surroundings import decoded, inherited, own_prefixes, secret_values
from kasmon.paths import Places


def secrets_of(
    places: Places, session: str, argv: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """All values of the variables that *session* was given, and what its agent inherits that is secret by its name.

    Args:
        places: where the session's variables are kept.
        session: whose.
        argv: the command of its agent, which says what it inherits.
        variables: of whom; default `os.environ`.
    """
    try:
        given = decoded(places.environment(session).read_bytes())
    except OSError:
        given = {}
    passed = inherited(own_prefixes(argv), os.environ if variables is None else variables)
    values = (*(value for value in given.values() if value), *secret_values(passed))
    return tuple(dict.fromkeys(values))


def secrets_in(pid: int) -> tuple[str, ...]:
    """What is secret by its name among the variables of process *pid*; nothing where the system does not tell."""
    import psutil  # heavy, and only who finds an agent that another host started needs it

    try:
        return secret_values(psutil.Process(pid).environ())
    except (psutil.Error, OSError):
        return ()
