"""`kasmon move`: a conversation goes on in the other mode."""

import asyncio

from kasmon.commands.living import mode_of
from kasmon.commands.objects import answer, session_object
from kasmon.commands.output import note, say, tell
from kasmon.config import load
from kasmon.errors import UsageError
from kasmon.paths import places
from kasmon.supervisor.find import find
from kasmon.supervisor.local_config import for_session
from kasmon.supervisor.look import look_once
from kasmon.supervisor.move import move as moved


def move(wanted: str, to: str, *, wants_json: bool) -> None:
    """Go on with the session *wanted* in the mode *to*, and print what it is then.

    Raises:
        NotFoundError: if there is no such session.
        KasmonError: why it cannot be moved; it is where it was then, unless the message says otherwise.
    """
    mode = mode_of(to)
    if mode is None:
        raise UsageError("`kasmon move` needs a mode.", hint="--to tmux or --to sdk.")
    where = places()
    session = find(look_once(where), wanted)
    here = for_session(where, load(where), session.workdir, session.agent)
    if here.notice:
        note(here.notice)
    asyncio.run(moved(where, here.config, session, mode))
    now = find(look_once(where), session.id)
    if wants_json:
        tell(answer(session=session_object(now)))
    else:
        say(f"{now.id}: moved to {now.mode}")
