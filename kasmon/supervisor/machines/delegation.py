"""Has an operation on a session of another machine done there, or one started there, by kasmon's command there."""

import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from kasmon.errors import RefusedError
from kasmon.host.rpc.event_loop import run_in_thread, sleep
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.machines import read_machine
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.machines.link_client import CommandOutput, error_of, parse_reply, run, run_for
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.start import start_companions

COPIED_S: Final = 20.0
"""How long to wait until the copy here shows what was done there, in seconds: usually one, several between busy
machines. It was done all the same."""


async def run_there(
    paths: Paths, session: Session, *arguments: str, until: Callable[[Session | None], bool], stdin: bytes = b""
) -> bytes:
    """Run `kasmon ARGUMENTS --json` on the machine of *session*, and return its JSON.

    Args:
        arguments: the command; its session is named by id, which is the same there.
        until: whether the copy, None once the session is removed, shows that it was done; waited for a moment.

    Raises:
        RemoteUnreachableError: if the machine is not connected; or if it is unknown whether it was done.
        KasmonError: why it was not done, as the command there reports it.
    """
    output = await run_in_thread(lambda: run_for(paths, session, *arguments, stdin=stdin))
    await wait_for_copy(paths, session.id, until)
    return output


async def wait_for_copy(paths: Paths, session: SessionId, until: Callable[[Session | None], bool]) -> None:
    """Wait a moment until *until* is true of *session* as it is listed here; None if it is not.

    An unreachable machine sends nothing to wait for.
    """
    deadline = time.monotonic() + COPIED_S
    while time.monotonic() < deadline:
        now = (await run_in_thread(read_fleet, paths)).get(session)
        if until(now) or (now is not None and now.is_unreachable):
            break
        await sleep(0.05)


def require_undrained(paths: Paths, machine: str) -> None:
    """Raise `RefusedError` if no more sessions start on *machine*, `NotFoundError` if it is not registered. Blocks."""
    if read_machine(paths, machine).drained:
        raise RefusedError(
            f"machine {machine!r} is drained: no more sessions start there.",
            hint=f"`kasmon machines drain {machine} --undo` lets them.",
        )


async def start_there(paths: Paths, machine: str, new: NewSession) -> SessionId:
    """Start the requested session on *machine*, whose config and folders apply; return its id once it is listed here.

    Raises:
        NotFoundError: if the machine is not registered.
        RefusedError: if it is drained.
        RemoteUnreachableError: if it is not connected; or if it is unknown whether the session was started.
        KasmonError: why it was not started, as `kasmon new` reports it there.
    """
    await run_in_thread(require_undrained, paths, machine)
    arguments = ["new", new.name, *_options(new), "--json", *(["--", *new.argv] if new.argv else [])]
    output = await run_in_thread(run, paths, machine, arguments, new.prompt.encode())
    session = started_session(machine, output)
    await wait_for_copy(paths, session, lambda now: now is not None)
    await run_in_thread(start_companions, paths)
    return session


def _options(new: NewSession) -> Iterator[str]:
    """Yield the options of `kasmon new` that *new* stands for."""
    values = {
        "--agent": new.agent,
        "--account": new.account,
        "--mode": new.mode,
        "--dir": new.workdir,
        "--base": new.base,
        "--branch": new.branch,
        "--in": new.parent,
        "--resume": new.resume,
        "--task": new.task,
        "--wave": new.wave,
        "--peers": new.peers,
        "--prompt": "-" if new.prompt else None,
    }
    yield from (f"{option}={value}" for option, value in values.items() if value not in (None, ""))
    yield from (f"--env={each}" for each in new.environment)
    yield from (f"--env-public={each}" for each in new.public_environment)
    yield from (f"--tag={each}" for each in new.tags)
    if new.sandbox is not None:
        yield f"--sandbox={new.sandbox}"
    if new.worktree is not None:
        yield "--worktree" if new.worktree else "--no-worktree"
    if new.reuses_branch:
        yield "--reuse-branch"
    if new.agrees:
        yield "--yes"


class _SessionFields(msgspec.Struct, frozen=True):
    id: SessionId


class _StartReply(msgspec.Struct, frozen=True):
    """What `kasmon new --json` prints."""

    session: _SessionFields


def started_session(machine: str, output: CommandOutput) -> SessionId:
    """Return the id of the session that `kasmon new --json` created on *machine*, or raise why it created none."""
    if output.exit_code:
        raise error_of(machine, output)
    return parse_reply(machine, output.stdout, _StartReply).session.id
