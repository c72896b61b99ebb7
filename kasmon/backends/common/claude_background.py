"""Claude Code's background sessions: its own service runs them, and `claude attach ID` shows one in a terminal.

`claude agents --json --all` lists them, without a terminal and without starting anything (claude 2.1.330).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kasmon.errors import UnavailableError
from kasmon.model.adoption.background_session import BackgroundSession, parse_list

CLAUDE: Final = "claude"
ATTACH: Final = "attach"
LIST: Final = ("agents", "--json", "--all")
LIST_S: Final = 20.0
LARGEST: Final = 4 * 1024 * 1024


def attached_id(program: str, argv: Sequence[str]) -> str:
    """Return the id of the background session that *argv* of *program* shows; empty if it shows none."""
    return argv[2] if program == CLAUDE and len(argv) > 2 and argv[1] == ATTACH else ""


def list_background(program: str, variables: Mapping[str, str]) -> tuple[BackgroundSession, ...]:
    """Return the background sessions that the claude at *program* knows, with the environment *variables*. Blocks.

    Raises:
        UnavailableError: if it does not list them; the message says why.
    """
    import subprocess  # most who ask for an id list none

    try:
        done = subprocess.run(
            [program, *LIST],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(variables),
            cwd="/",
            timeout=LIST_S,
            check=False,
        )
        return parse_list(done.stdout[:LARGEST])
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{program!r} did not list its background sessions within {LIST_S:g} s.") from error
    except OSError as error:
        raise UnavailableError(f"cannot start {program!r}: {error.strerror or error}.") from error
    except ValueError as error:
        hint = "`claude update` installs a version that lists them: kasmon was tested with 2.1.332."
        raise UnavailableError(f"{program!r} does not list its background sessions.", hint=hint) from error
