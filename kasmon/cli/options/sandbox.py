"""Commands about interpreter sandboxes: `kasmon sandbox ...`."""

from typing import Annotated, Literal

from kasmon.cli.arguments import Arg, Json, SandboxArgument
from kasmon.errors import UsageError
from kasmon.model.sandbox.policy import Interpreter, Tier

Point = Annotated[str, Arg("Checkpoint id, from `kasmon sandbox checkpoints`.")]


def create(
    name: str,
    /,
    *,
    tier: Annotated[Tier | None, Arg("Sandbox tier (default: the config's, normally jail).")] = None,
    size: Annotated[
        Literal["default", "build", "max"] | None, Arg("Limits of the sandbox: time, CPU, memory and disk.")
    ] = None,
    dir: Annotated[  # noqa: A002 - its flag
        str, Arg("Folder mounted as /workspace (default: a new folder).")
    ] = "",
    project: Annotated[str | None, Arg("Folder mounted read-only as /project.")] = None,
    write_project: Annotated[bool, Arg("Mount /project writable.")] = False,
    allow: Annotated[
        list[str] | None,
        Arg("Host that the sandbox may reach, or npm, pypi, github (default: none). May be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Create a sandbox with python, bash and node, and print its session id."""
    from kasmon.cli.sandbox import commands

    wanted = commands.wanted(
        name, tier=tier, size=size, folder=dir, project=project, writes_project=write_project, hosts=allow
    )
    commands.create(wanted, wants_json=json)


def build(
    *,
    size: Annotated[
        list[Literal["default", "build", "max"]] | None,
        Arg("Only store a warm machine of this size, from the existing image."),
    ] = None,
    json: Json = False,
) -> None:
    """Build the image for virtual machines from Debian packages; takes some minutes, needs no root."""
    from kasmon.cli.sandbox import image as machine_image

    machine_image.build(size or (), wants_json=json)


def run(
    session: SandboxArgument,
    code: Annotated[str, Arg(hyphen=True, help="Code to run (`-`: from stdin).")],
    /,
    *,
    lang: Annotated[Interpreter | None, Arg("Language of the code (default: bash).")] = None,
    env: Annotated[Interpreter | None, Arg(is_shown=False, help="The old name of --lang.")] = None,
    timeout: Annotated[float | None, Arg(above=0, help="Interrupt the code after this many seconds.")] = None,
    json: Json = False,
) -> int:
    """Run code in a sandbox, resuming it if needed. Output is streamed; exits with the code's exit code."""
    from kasmon.cli.sandbox.run import run as run_code

    if lang is not None and env is not None:
        raise UsageError("--env is the old name of --lang: only one of them can be given.", hint="Leave out --env.")
    return run_code(session, code, lang or env or "bash", timeout, wants_json=json)


def list_all(*, json: Json = False) -> None:
    """List sandboxes with their phase, usage and memory snapshot."""
    from kasmon.cli.sandbox import snapshots

    snapshots.list_all(wants_json=json)


def show(session: SandboxArgument, /, *, json: Json = False) -> None:
    """Show a sandbox: phase, memory snapshot (size, age, validity), checkpoints, lost state and fork origin."""
    from kasmon.cli.sandbox import snapshots

    snapshots.show(session, wants_json=json)


def pause(
    session: SandboxArgument,
    /,
    *,
    disk: Annotated[bool, Arg("Save memory to disk and stop the processes; fail if that is not possible.")] = False,
    hold: Annotated[bool, Arg("Keep memory in RAM: fast, but lost if the processes end.")] = False,
    json: Json = False,
) -> None:
    """Pause a sandbox after its turn; the next use resumes it.

    Memory is saved to disk where the tier can (microvm; e2b at the service), else kept in RAM (jail).
    """
    from kasmon.cli.sandbox import snapshots

    snapshots.pause(session, to_disk=disk, to_hold=hold, wants_json=json)


def resume(session: SandboxArgument, /, *, json: Json = False) -> None:
    """Resume a sandbox and verify its state."""
    from kasmon.cli.sandbox import commands

    commands.resume(session, wants_json=json)


def checkpoint(session: SandboxArgument, /, *, json: Json = False) -> None:
    """Create a checkpoint of a sandbox, and print its id."""
    from kasmon.cli.sandbox import commands

    commands.checkpoint(session, wants_json=json)


def checkpoints(session: SandboxArgument, /, *, json: Json = False) -> None:
    """List a sandbox's checkpoints, newest last."""
    from kasmon.cli.sandbox import commands

    commands.checkpoints(session, wants_json=json)


def restore(session: SandboxArgument, checkpoint: Point, /, *, json: Json = False) -> None:
    """Restore a checkpoint: files and saved interpreter state."""
    from kasmon.cli.sandbox import commands

    commands.restore(session, checkpoint, wants_json=json)


def fork(
    session: SandboxArgument,
    name: Annotated[str, Arg("Name of the fork (default: the same name with a number).")] = "",
    /,
    *,
    at: Annotated[str, Arg("Checkpoint to fork from, without memory (default: the current state).")] = "",
    json: Json = False,
) -> None:
    """Fork a sandbox, and print the fork's session id; both keep running independently.

    A fork of a running microvm has its files and all memory: the source is saved to disk, then resumed. Any other
    fork has the files and the saved interpreter state. The output says which.
    """
    from kasmon.cli.sandbox import snapshots

    snapshots.fork(session, name, at, wants_json=json)


def diff(
    session: SandboxArgument,
    turn: Annotated[int | None, Arg("Turn number (default: the last).")] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """Show the file changes of a turn in a sandbox."""
    from kasmon.cli.sandbox import commands

    commands.diff(session, turn, wants_json=json)


def replay(
    session: SandboxArgument,
    into: Annotated[str, Arg(completer="sandboxes", help="Sandbox to run in (id, exact name or id prefix).")],
    /,
    *,
    until: Annotated[str, Arg("Replay up to this checkpoint (default: everything).")] = "",
    json: Json = False,
) -> int:
    """Replay everything that a sandbox ran in another sandbox. Side effects outside are repeated."""
    from kasmon.cli.sandbox import commands

    return commands.replay(session, into, until, wants_json=json)


def allow(
    session: SandboxArgument,
    /,
    *hosts: Annotated[str, Arg("example.org, *.example.org, example.org:8443, or npm, pypi, github.")],
    json: Json = False,
) -> None:
    """Allow a sandbox to reach more hosts."""
    from kasmon.cli.sandbox import commands

    commands.allow(session, hosts, wants_json=json)


def forward(
    session: SandboxArgument,
    port: Annotated[int, Arg(at_least=1, at_most=65535, help="Port in the sandbox.")],
    /,
    *,
    at: Annotated[int, Arg(at_most=65535, help="Local port (default: any free port).")] = 0,
    json: Json = False,
) -> None:
    """Forward a port of a sandbox to 127.0.0.1 while this command runs."""
    from kasmon.cli.sandbox import commands

    commands.forward(session, port, at, wants_json=json)


def rm(
    session: Annotated[str | None, Arg(completer="sandboxes", help="Session id, exact name or id prefix.")] = None,
    /,
    *,
    all: Annotated[bool, Arg("Remove all sandboxes.")] = False,  # noqa: A002 - its flag
    json: Json = False,
) -> int:
    """Remove a sandbox with its own files and checkpoints. Folders of yours are kept, and changed copies of them."""
    from kasmon.cli.sandbox import commands

    return commands.rm(session, every=all, wants_json=json)
