"""A commit message from the agent itself, or from a prompt: what asks for one, what answers it, what is none."""

import re
from typing import Final

from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.model.commands import Mode
from kasmon.model.events import MessageWritten
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sanitize import clean_block
from kasmon.store.session_reader import read_events
from kasmon.supervisor.sessions.read import read

BEGIN, END = "BEGIN COMMIT MESSAGE", "END COMMIT MESSAGE"
PROMPT: Final = (
    "Write a commit message for all changes in this worktree that are not committed: a subject of at most 72 "
    f"characters, and a body only if it is needed. Commit nothing. Answer with the message between a "
    f"line {BEGIN} and a line {END}."
)
MARKED: Final = re.compile(rf"^[^\w\n]*{BEGIN}[ \t]*\n(.*?)^[^\w\n]*{END}[ \t]*$", re.MULTILINE | re.DOTALL)
"""Both lines stand alone, so the prompt itself is none; a terminal may draw a mark before them."""
OF_KASMON: Final = re.compile(
    r"Review comments on your changes\. |(Round \d+ of \d+\. )?Of your pull request #\d|"
    r"The (rebase|merge) of your branch |Write a commit message for all changes "
)
"""How the prompts begin that kasmon writes for the user: review comments, feedback, conflicts, `PROMPT`."""
MOST: Final = 4000


def parse_message(text: str) -> str:
    """Return the last marked message in *text*, without the indentation of a terminal; empty if there is none."""
    found = MARKED.findall(text)
    lines = [line.rstrip() for line in (found[-1] if found else "").splitlines()]
    indent = min((len(line) - len(line.lstrip()) for line in lines if line), default=0)
    return clean_block("\n".join(line[indent:] for line in lines)).strip()[:MOST]


def is_of_kasmon(prompt: str) -> bool:
    """Whether kasmon wrote *prompt* for the user, so that it does not describe the work."""
    return OF_KASMON.match(prompt) is not None


async def find_message(paths: Paths, session: Session) -> str:
    """Return the commit message that the agent of *session* proposed last; empty if there is none."""
    if session.mode is Mode.TMUX:
        return parse_message("\n".join(await read(paths, session, 0)))
    return await run_in_thread(_find_in_log, paths, session)


def _find_in_log(paths: Paths, session: Session) -> str:
    events = read_events(paths, session.id)
    return parse_message("\n".join(event.text for event in events if isinstance(event, MessageWritten)))
