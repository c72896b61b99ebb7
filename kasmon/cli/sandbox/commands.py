"""Commands about interpreter sandboxes: `sandbox create`, `run`, `pause`, `restore`, `rm` and the others."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from kasmon.cli.output.console import note, print_json, say, say_block
from kasmon.cli.output.json_objects import answer
from kasmon.cli.sandbox.report import point_row, sandbox_object, works_in_words
from kasmon.cli.sandbox.run_output import RunOutput
from kasmon.cli.sandbox.snapshots import sandboxed, seen
from kasmon.config import load
from kasmon.errors import KasmonError, UsageError
from kasmon.model.commands import Allow, Checkpoint, Restore, Resume, SandboxCommand
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Tier
from kasmon.model.sandbox.state import CheckpointSummary
from kasmon.model.session import Session
from kasmon.paths import Paths, places
from kasmon.sandbox.network.port_forward import HERE
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import look_once
from kasmon.supervisor.sandboxes import operations
from kasmon.supervisor.sandboxes.create import swept
from kasmon.supervisor.sessions import operations as verb

FAILED: Final = 1


def wanted(
    name: str,
    *,
    tier: Tier | None,
    size: Literal["default", "build", "max"] | None,
    folder: str,
    project: str | None,
    writes_project: bool,
    hosts: Sequence[str] | None,
) -> operations.NewSandbox:
    """Return the command line's description of a new sandbox."""
    return operations.NewSandbox(
        name=name,
        tier=tier,
        size=size,
        folder=folder,
        project=project,
        project_writable=True if writes_project else None,
        hosts=hosts,
    )


def create(new: operations.NewSandbox, *, wants_json: bool) -> None:
    """Create a sandbox and print its session's id."""
    where = places()
    made = seen(where, asyncio.run(operations.create(where, load(where), new)))
    if wants_json:
        print_json(answer(session=sandbox_object(made)))
        return
    say(made.id)
    if new.folder and (words := works_in_words(made)):
        note(words)


def resume(name: str, *, wants_json: bool) -> None:
    """Resume a sandbox."""
    _execute(name, Resume(), "runs", wants_json=wants_json)


def restore(name: str, checkpoint: str, *, wants_json: bool) -> None:
    """Restore a sandbox to a checkpoint."""
    _execute(name, Restore(checkpoint=checkpoint), f"restored {checkpoint}", wants_json=wants_json)


def checkpoint(name: str, *, wants_json: bool) -> None:
    """Save a checkpoint, and print its id.

    Raises:
        KasmonError: if nothing could be saved.
    """
    where = places()
    session = find(look_once(where), name)
    kept = asyncio.run(operations.keep(where, session, Checkpoint()))
    if not kept:
        raise KasmonError(
            f"no checkpoint of {session.name!r} was created.", hint=f"`kasmon read {session.id}` shows the reason."
        )
    known = next((each for each in _points(where, session.id) if each.id == kept), None)
    if wants_json:
        print_json(answer(checkpoint=msgspec.to_builtins(known) if known else {"id": kept}))
        return
    say(kept)
    if known is not None and known.lost:
        note(f"Not saved: {', '.join(known.lost)}.")


def checkpoints(name: str, *, wants_json: bool) -> None:
    """List the checkpoints of a sandbox."""
    where = places()
    points = _points(where, find(look_once(where), name).id)
    if wants_json:
        print_json(answer(checkpoints=[msgspec.to_builtins(point) for point in points]))
        return
    for point in points:
        say(point_row(point))


def diff(name: str, turn: int | None, *, wants_json: bool) -> None:
    """Print what a turn changed in a sandbox's files."""
    where = places()
    session = find(look_once(where), name)
    text = operations.diff(where, session, turn)
    if wants_json:
        print_json(answer(diff=text))
    elif text:
        say_block(text.rstrip("\n"))


def allow(name: str, hosts: Sequence[str], *, wants_json: bool) -> None:
    """Allow a sandbox to reach hosts.

    Raises:
        UsageError: if none is named.
    """
    if not hosts:
        raise UsageError(
            "`kasmon sandbox allow` requires a host.", hint="Pass a host, such as example.org, or npm, pypi, github."
        )
    where = places()
    session = find(look_once(where), name)
    later = asyncio.run(operations.keep(where, session, Allow(hosts=tuple(hosts))))
    if wants_json:
        print_json(answer(allowed=list(hosts), later=later or None))
        return
    say(f"{session.name} ({session.id}): may reach {', '.join(hosts)}")
    if later:
        note(f"{later[:1].upper()}{later[1:]}.")


def forward(name: str, port: int, here: int, *, wants_json: bool) -> None:
    """Forward the local port *here* to *port* inside, until interrupted.

    Raises:
        SandboxError: if the sandbox's network cannot be reached.
    """
    where = places()
    session = find(look_once(where), name)
    with contextlib.closing(asyncio.run(operations.forwarded(where, session, port, here))) as opened:
        if wants_json:
            print_json(answer(host=HERE, port=opened.port, to=port))
        else:
            say(f"{HERE}:{opened.port} is port {port} of {session.name}; Ctrl+C stops forwarding")
        opened.serve()


def replay(name: str, into: str, until: str, *, wants_json: bool) -> int:
    """Run another sandbox's code in one, in order; return the exit code of the last failed run, or 0."""
    where = places()
    source, target = find(look_once(where), name), find(look_once(where), into)
    code, ran = 0, []
    for interpreter, text in operations.history(where, source, until):
        if not wants_json:
            note(f"{interpreter}: {next(iter(text.splitlines()), '')}")
        shown = RunOutput(is_quiet=wants_json)
        done = asyncio.run(operations.run(where, target, interpreter, text, printed=shown.take))
        if not wants_json:
            shown.finish(done)
        ran.append(msgspec.to_builtins(done))
        code = done.exit_code or code
    if wants_json:
        print_json(answer(ran=ran))
    return code


def rm(name: str | None, *, every: bool, wants_json: bool) -> int:
    """End and remove sandboxes; return 1 if some of several failed.

    Raises:
        UsageError: if neither one nor all are named.
    """
    where = places()
    if (name is None) is not every:
        raise UsageError("`kasmon sandbox rm` requires a sandbox.", hint="Name one, or pass --all.")
    if name is not None:
        session = find(look_once(where), name)
        kept = asyncio.run(operations.remove(where, session))
        _print_removed([session], [kept], [], wants_json=wants_json)
        return 0
    gone, kept_of, left = asyncio.run(_remove_all(where))
    _print_removed(gone, kept_of, left, wants_json=wants_json)
    return FAILED if left else 0


async def _remove_all(where: Paths) -> tuple[list[Session], list[str], list[KasmonError]]:
    gone: list[Session] = []
    kept: list[str] = []
    left: list[KasmonError] = []
    for session in sandboxed(where):
        try:
            kept.append(await operations.remove(where, session))
        except KasmonError as error:
            left.append(error)
        else:
            gone.append(session)
    kept += await asyncio.to_thread(swept, where)
    return gone, kept, left


def _print_removed(
    gone: Sequence[Session], kept: Sequence[str], left: Sequence[KasmonError], *, wants_json: bool
) -> None:
    copies = [path for path in kept if path]
    if wants_json:
        ids, errors = [session.id for session in gone], [error.message for error in left]
        print_json(answer(gone=ids, left=errors, kept=copies))
        return
    for session in gone:
        say(f"{session.name} ({session.id}): gone")
    for path in copies:
        note(verb.copy_stays(path))
    for error in left:
        note(error.message)


def _execute(name: str, command: SandboxCommand, done: str, *, wants_json: bool) -> None:
    where = places()
    session = find(look_once(where), name)
    lost = asyncio.run(operations.keep(where, session, command))
    if wants_json:
        print_json(answer(session=sandbox_object(seen(where, session.id)), lost=lost or None))
        return
    say(f"{session.name} ({session.id}): {done}")
    if lost:
        note(f"{lost[:1].upper()}{lost[1:].rstrip('.')}.")


def _points(where: Paths, session: SessionId) -> tuple[CheckpointSummary, ...]:
    housing = seen(where, session).housing
    return housing.checkpoints if housing else ()
