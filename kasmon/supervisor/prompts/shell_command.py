"""Runs a command of the person in a session's folder. Only the dashboard calls it: no agent can reach it."""

from collections.abc import Callable
from typing import Final

from kasmon.errors import HostUnreachableError, SessionEndedError, UnableError
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import CommandResult, FromHost, RunOutputChunk, RunShellCommand
from kasmon.host.session.shell_command import CHUNK_BYTES, OUTPUT_BYTES, printed_too_much, run_in_folder
from kasmon.model.session import Session
from kasmon.model.session_state import OVER, SessionState
from kasmon.paths import Paths
from kasmon.supervisor.machines.dispatch import dispatch

LONGEST_S: Final = 86400.0
"""How long a command may run on another machine, in seconds."""
MOST_CHARACTERS: Final = OUTPUT_BYTES + CHUNK_BYTES
"""How much output is accepted from another machine: no more comes from a host that counts."""


@dispatch
async def run_command(paths: Paths, session: Session, command: str, report: Callable[[str], None]) -> int:
    """Run *command* as `run_in_folder`, in the folder of *session*; elsewhere the session's host there runs it.

    *report* gets its output, uncleaned. Cancelling ends it with its child processes.

    Raises:
        UnableError: if it cannot be started, or prints too much.
        RefusedError: if the owner of the session's machine does not let this person run commands.
        SessionEndedError, HostUnreachableError: if no host of a session of another machine runs.
    """
    return await run_in_folder(session.workdir, command, report)


@run_command.elsewhere
async def _run_there(paths: Paths, session: Session, command: str, report: Callable[[str], None]) -> int:
    count = 0

    def handle_push(frame: FromHost) -> None:
        nonlocal count
        if not isinstance(frame, RunOutputChunk):
            return
        count += len(frame.stdout)
        if count > MOST_CHARACTERS:
            host.close()
        else:
            report(frame.stdout)

    if session.state in OVER:
        raise SessionEndedError(session.name, is_hibernated=session.state is SessionState.HIBERNATED)
    host = await open_link(paths, session.id, session.mode)
    host.on_push = handle_push
    try:
        answer = await host.ask(RunShellCommand(n=0, session=session.id, command=command), LONGEST_S)
    except HostUnreachableError:
        if count > MOST_CHARACTERS:
            raise printed_too_much(command) from None
        raise
    finally:
        host.close()  # it ends the command
    if not isinstance(answer, CommandResult) or answer.ran is None:
        raise UnableError(f"the host of {session.label!r} runs no commands.")
    return answer.ran.exit_code
