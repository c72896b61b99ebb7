"""`kasmon attach`: this terminal becomes the session's, by the real tmux."""

import asyncio
import os
import shlex
import sys
from typing import NoReturn

from kasmon.commands.output import note
from kasmon.commands.screen import no_screen
from kasmon.errors import InteractiveOnlyError, UsageError
from kasmon.model.command import Mode
from kasmon.paths import places
from kasmon.supervisor import verb
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once


def attach(wanted: str) -> NoReturn:
    """Replace this process by `tmux attach`; it ends when the person detaches, and the session goes on.

    Raises:
        NotFoundError: if there is no such session.
        InteractiveOnlyError: if it is a structured one.
        UsageError: if this is no terminal that tmux could draw on.
        RefusedError, UnavailableError: if it has ended, or tmux is not there.
    """
    where = places()
    session = find(look_once(where), wanted)
    if session.mode is not Mode.TMUX:
        error = InteractiveOnlyError(session.name)
        error.hint = (
            f"`kasmon send {session.id}` writes to it; "
            f"`kasmon move {session.id} --to tmux` goes on with it in a terminal."
        )
        raise error
    argv = asyncio.run(verb.attach_argv(where, session))
    if why := no_screen(os.environ):
        raise UsageError(f"cannot attach to {session.name!r}: {why}.", hint=f"In a terminal: {shlex.join(argv)}")
    if os.environ.get("TMUX"):
        note("this is a tmux inside your tmux; Ctrl+] leaves it.")
    sys.stdout.flush()
    os.execvp(argv[0], argv)
