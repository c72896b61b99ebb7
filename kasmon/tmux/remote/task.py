"""A plan's remote operations beside its agents: create a task's result folder, read its result, run a check. Blocking.

Each function raises `RemoteUnreachableError` if there is no connection.

A check is a session of its own in the remote tmux: a lost connection does not end it, and a later query finds it.
"""

import re
from collections.abc import Mapping
from typing import Final

from kasmon.errors import RemoteLaunchError
from kasmon.tmux.remote import agent
from kasmon.tmux.remote.agent import RemoteOutcome, RemoteStart, quote_folder
from kasmon.tmux.remote.ssh import HEAD, RemoteMachine, run_script

KEPT_LINES: Final = 400
"""How many of a check's last output lines are stored."""

LAY_OUT: Final = """\
cd -- {folder} 2>/dev/null || say missing
[ -L .kasmon ] && say elsewhere
[ -L .kasmon/.gitignore ] && say elsewhere
mkdir -p .kasmon/task-{number} || say refused
[ -e .kasmon/.gitignore ] || echo '*' >.kasmon/.gitignore
: >.kasmon/task-{number}/began || say refused
say laid
"""
"""The mtime of `began` separates older files from the task's result: the clocks of two machines differ."""

RESULT: Final = """\
cd -- {folder} 2>/dev/null || say none
[ -e .kasmon/task-{number}/began ] || say none
for file in .kasmon/task-{number}/result.md result.md; do
    if [ -f "$file" ] && [ ! -L "$file" ] && [ "$file" -nt .kasmon/task-{number}/began ]; then
        show
        head -c {longest} -- "$file"
        say found
    fi
done
say none
"""

VERSION: Final = """\
command -v tmux >/dev/null 2>&1 || say missing
say has $(tmux -V)
"""


def lay_out(machine: RemoteMachine, folder: str, number: int, variables: Mapping[str, str]) -> None:
    """Create the folder for the result of task *number*, below *folder* on *machine*.

    Raises:
        RemoteLaunchError: if the folder cannot be created.
    """
    script = HEAD + LAY_OUT.format(folder=quote_folder(folder), number=int(number))
    match run_script(machine, script, variables).fields[:1]:
        case ["laid"]:
            return
        case ["missing"]:
            why = f"there is no folder {folder or '~'!r}"
        case ["elsewhere"]:
            why = "'.kasmon' is a symbolic link there: kasmon does not write through links"
        case _:
            why = f"its folder {folder or '~'!r} is not writable"
    raise RemoteLaunchError(machine.host, why)


def result(machine: RemoteMachine, folder: str, number: int, longest: int, variables: Mapping[str, str]) -> str:
    """Return `result.md` of task *number*, if written since `lay_out`, at most *longest* bytes; may be empty."""
    script = HEAD + RESULT.format(folder=quote_folder(folder), number=int(number), longest=int(longest))
    answer = run_script(machine, script, variables)
    return answer.shown.decode("utf-8", "replace") if answer.fields == ["found"] else ""


def check(machine: RemoteMachine, session: str, variables: Mapping[str, str]) -> tuple[RemoteOutcome, str]:
    """Return the state of the check of *session*, and its output once it ended; its files are deleted then."""
    answer, screen = agent.outcome(machine, _check_session(session), variables, tidy=True)
    return answer, re.sub(r"\n+\Z", "\n", screen.decode("utf-8", "replace"))


def begin_check(
    machine: RemoteMachine,
    session: str,
    command: str,
    folder: str,
    own: Mapping[str, str],
    variables: Mapping[str, str],
) -> None:
    """Start the check *command* of *session* on *machine*, unless it runs. *own*: the variables of the check.

    Raises:
        RemoteLaunchError: if it cannot be started there.
    """
    remote_start = RemoteStart(
        session=_check_session(session),
        argv=("sh", "-c", 'exec sh -c "$1" </dev/null', "sh", command),
        folder=folder,
        variables=own,
        history_lines=KEPT_LINES,
        keeps_lines=KEPT_LINES,
    )
    agent.start(machine, remote_start, variables)


def end_check(machine: RemoteMachine, session: str, variables: Mapping[str, str]) -> None:
    """Stop the check of *session* at once, if it runs."""
    agent.stop(machine, _check_session(session), 0.0, variables)


def version(machine: RemoteMachine, variables: Mapping[str, str]) -> str:
    """Return the version of the remote tmux; empty if there is none."""
    fields = run_script(machine, HEAD + VERSION, variables).fields
    return " ".join(fields[1:]) if fields[:1] == ["has"] else ""


def _check_session(session: str) -> str:
    return f"{session}-check"
