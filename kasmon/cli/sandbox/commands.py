"""Commands about interpreter sandboxes, except `sandbox ls`, `show`, `run` and `image build`."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from kasmon.cli.arguments import Arg, Json, SandboxArgument
from kasmon.cli.output.console import note, print_json, say, say_block
from kasmon.cli.sandbox.report import point_row, sandbox_object, snapshot_words, works_in_words
from kasmon.cli.sandbox.run import RunOutput
from kasmon.cli.session_selection import (
    Everything,
    InStates,
    OfPlan,
    Outcome,
    Sandboxes,
    SessionSelection,
    WithTags,
    Yes,
    run_on_each,
)
from kasmon.config import load
from kasmon.errors import KasmonError, UsageError
from kasmon.model.commands import Allow, Checkpoint, Mode, Restore, Resume
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import REMEMBERING, SandboxPhase, Tier
from kasmon.model.sandbox.snapshot import describe_origin
from kasmon.model.sandbox.state import CheckpointSummary
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.paths import Paths, user_paths
from kasmon.sandbox.network.port_forward import HERE
from kasmon.supervisor.fleet.lookup import find, find_here
from kasmon.supervisor.fleet.snapshot import read_fleet, read_session
from kasmon.supervisor.sandboxes import sandbox_operations, use
from kasmon.supervisor.sandboxes.create import NewSandbox, remove_stray_jails
from kasmon.supervisor.sandboxes.history import SnapshotReader, StoredSnapshots
from kasmon.supervisor.sessions import list_entry

FAILED: Final = 1


def create(
    name: Annotated[str, Arg("Name of the sandbox's session.")],
    /,
    *,
    tier: Annotated[Tier | None, Arg("Sandbox tier (default: the config's, normally jail).")] = None,
    size: Annotated[
        Literal["default", "build", "max"] | None, Arg("Limits of the sandbox: time, CPU, memory and disk.")
    ] = None,
    folder: Annotated[str, Arg("Folder mounted as /workspace (default: a new folder).", ("--dir",))] = "",
    project: Annotated[str | None, Arg("Folder mounted read-only as /project.")] = None,
    write_project: Annotated[bool, Arg("Mount /project writable.")] = False,
    allow: Annotated[
        list[str] | None, Arg("Host that the sandbox may reach, or npm, pypi, github (default: none). May be repeated.")
    ] = None,
    wants_json: Json = False,
) -> None:
    """Create a sandbox with python, bash and node, and print its session id."""
    where = user_paths()
    new = NewSandbox(
        name=name,
        tier=tier,
        size=size,
        folder=folder,
        project=project,
        project_writable=True if write_project else None,
        hosts=allow,
    )
    made = read_session(where, asyncio.run(sandbox_operations.create(where, load(where), new)))
    if wants_json:
        print_json(session=sandbox_object(made))
        return
    say(made.id)
    if folder and (folder_note := works_in_words(made)):
        note(folder_note)


def pause(
    *names: Sandboxes,
    disk: Annotated[bool, Arg("Save memory to disk and stop the processes; fail if that is not possible.")] = False,
    hold: Annotated[bool, Arg("Keep memory in RAM: fast, but lost if the processes end.")] = False,
    state: InStates = None,
    with_tags: WithTags = None,
    plan: OfPlan = None,
    everything: Everything = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Pause sandboxes after their turn; the next use resumes them.

    Memory is saved to disk where the tier can (microvm; e2b at the service), else kept in RAM (jail).
    """
    if disk and hold:
        raise UsageError("--disk and --hold cannot be combined.", hint="Pass either --disk or --hold.")

    async def act(where: Paths, session: Session) -> Outcome:
        to_disk = disk or (not hold and session.sandbox in REMEMBERING)
        now = asyncio.run(sandbox_operations.pause(where, session, to_disk=to_disk))
        remembered = SnapshotReader(where).of(now)
        return Outcome(
            fields={"session": sandbox_object(now, remembered), "lost": None},
            text=", ".join(["paused", *_where_words(now, remembered)]),
        )

    selection = SessionSelection(
        names=names, states=state, tags=with_tags, plan=plan, everything=everything, yes=yes, only_sandboxed=True
    )
    return run_on_each(user_paths(), selection, ALIVE - {SessionState.PAUSED}, act, "paused", wants_json=wants_json)


def _where_words(session: Session, remembered: StoredSnapshots) -> list[str]:
    """Return where the memory of a sandbox is that was paused."""
    if session.sandbox_state is not None and session.sandbox_state.phase is not SandboxPhase.PAUSED:
        return ["and resumed since by another command"]
    held = session.sandbox_state is not None and session.sandbox_state.held
    kept = "at the service" if session.sandbox == "e2b" else "on disk"
    snapshots = [f"memory snapshot {kept} ({snapshot_words(each, time.time())})" for each in remembered.snapshots]
    return [*(["memory kept in RAM"] if held else []), *snapshots]


def fork(
    name: SandboxArgument,
    new_name: Annotated[str, Arg("Name of the fork (default: the same name with a number).", ("NAME",))] = "",
    /,
    *,
    at: Annotated[str, Arg("Checkpoint to fork from, without memory (default: the current state).")] = "",
    wants_json: Json = False,
) -> None:
    """Fork a sandbox, and print the fork's session id; both keep running independently.

    A fork of a running microvm has its files and all memory: the source is saved to disk, then resumed. Any other
    fork has the files and the saved interpreter state. The output says which.
    """
    where = user_paths()
    session = find_here(read_fleet(where), name)
    made = asyncio.run(sandbox_operations.fork(where, session, new_name, at))
    if wants_json:
        new = read_session(where, made.session)
        print_json(session=sandbox_object(new, SnapshotReader(where).of(new)), lost=made.lost or None)
        return
    say(made.session)
    note(f"{read_session(where, made.session).name} begins as {session.name}, {describe_origin(made.origin)}.")
    if made.lost:
        note(f"{session.name} lost state by the fork: {made.lost.rstrip('.')}.")


def resume(
    *names: Sandboxes,
    with_tags: WithTags = None,
    plan: OfPlan = None,
    everything: Everything = False,
    yes: Yes = False,
    wants_json: Json = False,
) -> int:
    """Resume sandboxes and verify their state."""

    async def act(where: Paths, session: Session) -> Outcome:
        lost = asyncio.run(use.execute(where, session, Resume()))
        fields = {"session": sandbox_object(read_session(where, session.id)), "lost": lost or None}
        return Outcome(fields=fields, notice=_sentence(lost))

    selection = SessionSelection(
        names=names, tags=with_tags, plan=plan, everything=everything, yes=yes, only_sandboxed=True
    )
    return run_on_each(user_paths(), selection, {SessionState.PAUSED}, act, "runs", wants_json=wants_json)


def restore(
    name: SandboxArgument,
    checkpoint: Annotated[str, Arg("Checkpoint id, from `kasmon sandbox checkpoints`.")],
    /,
    *,
    wants_json: Json = False,
) -> None:
    """Restore a checkpoint: files and saved interpreter state."""
    where = user_paths()
    session = find_here(read_fleet(where), name)
    lost = asyncio.run(use.execute(where, session, Restore(checkpoint=checkpoint)))
    if wants_json:
        print_json(session=sandbox_object(read_session(where, session.id)), lost=lost or None)
        return
    say(f"{session.label} ({session.id}): restored {checkpoint}")
    if lost:
        note(_sentence(lost))


def checkpoint(name: SandboxArgument, /, *, wants_json: Json = False) -> None:
    """Create a checkpoint of a sandbox, and print its id."""
    where = user_paths()
    session = find_here(read_fleet(where), name)
    kept = asyncio.run(use.execute(where, session, Checkpoint()))
    if not kept:
        raise KasmonError(
            f"no checkpoint of {session.name!r} was created.", hint=f"`kasmon read {session.id}` shows the reason."
        )
    known = next((each for each in _points(where, session.id) if each.id == kept), None)
    if wants_json:
        print_json(checkpoint=msgspec.to_builtins(known) if known else {"id": kept})
        return
    say(kept)
    if known is not None and known.lost:
        note(f"Not saved: {', '.join(known.lost)}.")


def checkpoints(name: SandboxArgument, /, *, wants_json: Json = False) -> None:
    """List a sandbox's checkpoints, newest last."""
    where = user_paths()
    points = _points(where, find_here(read_fleet(where), name).id)
    if wants_json:
        print_json(checkpoints=[msgspec.to_builtins(point) for point in points])
        return
    for point in points:
        say(point_row(point))


def diff(
    name: SandboxArgument,
    turn: Annotated[int | None, Arg("Turn number (default: the last).")] = None,
    /,
    *,
    wants_json: Json = False,
) -> None:
    """Show the file changes of a turn in a sandbox."""
    where = user_paths()
    session = find_here(read_fleet(where), name)
    text = sandbox_operations.diff(where, session, turn)
    if wants_json:
        print_json(diff=text)
    elif text:
        say_block(text.rstrip("\n"))


def allow(
    name: SandboxArgument,
    /,
    *hosts: Annotated[str, Arg("example.org, *.example.org, example.org:8443, or npm, pypi, github.")],
    wants_json: Json = False,
) -> None:
    """Allow a sandbox to reach more hosts."""
    if not hosts:
        raise UsageError(
            "`kasmon sandbox allow` requires a host.", hint="Pass a host, such as example.org, or npm, pypi, github."
        )
    where = user_paths()
    session = find_here(read_fleet(where), name)
    later = asyncio.run(use.execute(where, session, Allow(hosts=tuple(hosts))))
    if wants_json:
        print_json(allowed=list(hosts), later=later or None)
        return
    say(f"{session.label} ({session.id}): may reach {', '.join(hosts)}")
    if later:
        note(f"{later[:1].upper()}{later[1:]}.")


def forward(
    name: SandboxArgument,
    port: Annotated[int, Arg(at_least=1, at_most=65535, help="Port in the sandbox.")],
    /,
    *,
    at: Annotated[int, Arg(at_most=65535, help="Local port (default: any free port).")] = 0,
    wants_json: Json = False,
) -> None:
    """Forward a port of a sandbox to 127.0.0.1 while this command runs."""
    where = user_paths()
    session = find(read_fleet(where), name)
    with contextlib.closing(asyncio.run(sandbox_operations.forward_port(where, session, port, at))) as opened:
        if wants_json:
            print_json(host=HERE, port=opened.port, to=port)
        else:
            say(f"{HERE}:{opened.port} is port {port} of {session.name}; Ctrl+C stops forwarding")
        opened.serve()


def replay(
    name: SandboxArgument,
    into: Annotated[str, Arg("Sandbox to run in (id, exact name or id prefix).", completer="sandboxes")],
    /,
    *,
    until: Annotated[str, Arg("Replay up to this checkpoint (default: everything).")] = "",
    create: Annotated[bool, Arg("Create the sandbox to run in, with this name, like the first one.")] = False,
    wants_json: Json = False,
) -> int:
    """Replay everything that a sandbox ran in another sandbox. Side effects outside are repeated."""
    where = user_paths()
    source = find_here(read_fleet(where), name)
    target = None if create else find(read_fleet(where), into)
    runs, code, ran = sandbox_operations.history(where, source, until), 0, []
    if target is None:
        target = asyncio.run(sandbox_operations.create_like(where, source, into))
    for interpreter, text in runs:
        if not wants_json:
            note(f"{interpreter}: {next(iter(text.splitlines()), '')}")
        shown = RunOutput(is_quiet=wants_json)
        done = asyncio.run(use.run(where, target, interpreter, text, printed=shown.print_chunk))
        if not wants_json:
            shown.finish(done)
        ran.append(msgspec.to_builtins(done))
        code = done.exit_code or code
    if wants_json:
        print_json(session=target.id, ran=ran)
    return code


def rm(
    name: Annotated[
        str | None, Arg("Session id, exact name or id prefix.", ("SESSION",), completer="sandboxes")
    ] = None,
    /,
    *,
    all_: Annotated[bool, Arg("Remove all sandboxes.", ("--all",))] = False,
    wants_json: Json = False,
) -> int:
    """Remove a sandbox with its own files and checkpoints. Folders of yours are kept, and changed copies of them."""
    where = user_paths()
    if (name is None) is not all_:
        raise UsageError("`kasmon sandbox rm` requires a sandbox.", hint="Name one, or pass --all.")
    if name is not None:
        session = find_here(read_fleet(where), name)
        kept = asyncio.run(sandbox_operations.remove(where, session))
        _print_removed([session], [kept], [], wants_json=wants_json)
        return 0
    gone, kept_of, left = asyncio.run(_remove_all(where))
    _print_removed(gone, kept_of, left, wants_json=wants_json)
    return FAILED if left else 0


async def _remove_all(where: Paths) -> tuple[list[Session], list[str], list[KasmonError]]:
    gone: list[Session] = []
    kept: list[str] = []
    left: list[KasmonError] = []
    for session in [each for each in read_fleet(where).here if each.mode is Mode.INTERPRETER]:
        try:
            kept.append(await sandbox_operations.remove(where, session))
        except KasmonError as error:
            left.append(error)
        else:
            gone.append(session)
    kept += await asyncio.to_thread(remove_stray_jails, where)
    return gone, kept, left


def _print_removed(
    gone: Sequence[Session], kept: Sequence[str], left: Sequence[KasmonError], *, wants_json: bool
) -> None:
    copies = [path for path in kept if path]
    if wants_json:
        ids, errors = [session.id for session in gone], [error.message for error in left]
        print_json(gone=ids, left=errors, kept=copies)
        return
    for session in gone:
        say(f"{session.label} ({session.id}): gone")
    for path in copies:
        note(list_entry.copy_stays(path))
    for error in left:
        note(error.message)


def _sentence(lost: str) -> str:
    return f"{lost[:1].upper()}{lost[1:].rstrip('.')}." if lost else ""


def _points(where: Paths, session: SessionId) -> tuple[CheckpointSummary, ...]:
    sandbox_state = read_session(where, session).sandbox_state
    return sandbox_state.checkpoints if sandbox_state else ()
