"""The secret values of a session: those of its own variables, and what its agent inherits."""

import os
from collections.abc import Mapping, Sequence

from kasmon import system
from kasmon.backends.common.environment import given_secrets, inherited, own_prefixes, secret_values
from kasmon.model.permission import SessionId
from kasmon.paths import Paths


def secrets_of(
    paths: Paths, session: str, argv: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the secret values among *session*'s own variables and those its agent inherits.

    Args:
        paths: where the session's variables are stored.
        session: the session's id.
        argv: its agent's command, which determines what it inherits.
        variables: the inherited environment; default `os.environ`.
    """
    try:
        given = given_secrets(paths, SessionId(session))
    except OSError:
        given = ()
    passed = inherited(own_prefixes(argv), os.environ if variables is None else variables)
    return tuple(dict.fromkeys((*given, *secret_values(passed))))


def secrets_in(pid: int) -> tuple[str, ...]:
    """Return values with secret names among the variables of process *pid*; empty if they are not readable."""
    return secret_values(system.HERE.read_variables(pid))
