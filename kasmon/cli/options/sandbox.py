"""Commands about interpreter sandboxes: `kasmon sandbox ...`."""

from typing import Annotated, Literal

from cyclopts import App, Parameter, validators

from kasmon.cli.parameters import Json, SandboxArgument, sandboxes
from kasmon.errors import UsageError
from kasmon.model.sandbox.policy import Interpreter, Tier

Point = Annotated[str, Parameter(help="Checkpoint id, from `kasmon sandbox checkpoints`.")]

app = App(name="sandbox", help="Run code in persistent sandboxes that pause when idle.")


@app.command
def create(
    name: str,
    /,
    *,
    tier: Annotated[Tier | None, Parameter(help="Sandbox tier (default: the config's, normally jail).")] = None,
    size: Annotated[
        Literal["default", "build", "max"] | None, Parameter(help="Limits of the sandbox: time, CPU, memory and disk.")
    ] = None,
    dir: Annotated[  # noqa: A002 - its flag
        str, Parameter(help="Folder mounted as /workspace (default: a new folder).")
    ] = "",
    project: Annotated[str | None, Parameter(help="Folder mounted read-only as /project.")] = None,
    write_project: Annotated[bool, Parameter(negative=(), help="Mount /project writable.")] = False,
    allow: Annotated[
        list[str] | None,
        Parameter(
            negative=(), help="Host that the sandbox may reach, or npm, pypi, github (default: none). May be repeated."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create a sandbox with python, bash and node, and print its session id."""
    from kasmon.cli.sandbox import commands

    wanted = commands.wanted(
        name, tier=tier, size=size, folder=dir, project=project, writes_project=write_project, hosts=allow
    )
    commands.create(wanted, wants_json=json)


image = App(name="image", help="The image for virtual machines.")
app.command(image)


@image.command
def build(
    *,
    size: Annotated[
        list[Literal["default", "build", "max"]] | None,
        Parameter(negative=(), help="Only store a warm machine of this size, from the existing image."),
    ] = None,
    json: Json = False,
) -> None:
    """Build the image for virtual machines from Debian packages; takes some minutes, needs no root."""
    from kasmon.cli.sandbox import image as machine_image

    machine_image.build(size or (), wants_json=json)


@app.command
def run(
    session: SandboxArgument,
    code: Annotated[str, Parameter(allow_leading_hyphen=True, help="Code to run (`-`: from stdin).")],
    /,
    *,
    lang: Annotated[Interpreter | None, Parameter(help="Language of the code (default: bash).")] = None,
    env: Annotated[Interpreter | None, Parameter(show=False, help="The old name of --lang.")] = None,
    timeout: Annotated[
        float | None, Parameter(validator=validators.Number(gt=0), help="Interrupt the code after this many seconds.")
    ] = None,
    json: Json = False,
) -> int:
    """Run code in a sandbox, resuming it if needed. Output is streamed; exits with the code's exit code."""
    from kasmon.cli.sandbox.run import run as run_code

    if lang is not None and env is not None:
        raise UsageError("--env is the old name of --lang: only one of them can be given.", hint="Leave out --env.")
    return run_code(session, code, lang or env or "bash", timeout, wants_json=json)


@app.command(name="ls")
def list_all(*, json: Json = False) -> None:
    """List sandboxes with their phase, usage and memory snapshot."""
    from kasmon.cli.sandbox import snapshots

    snapshots.list_all(wants_json=json)


@app.command
def show(session: SandboxArgument, /, *, json: Json = False) -> None:
    """Show a sandbox: phase, memory snapshot (size, age, validity), checkpoints, lost state and fork origin."""
    from kasmon.cli.sandbox import snapshots

    snapshots.show(session, wants_json=json)


@app.command
def pause(
    session: SandboxArgument,
    /,
    *,
    disk: Annotated[
        bool, Parameter(negative=(), help="Save memory to disk and stop the processes; fail if that is not possible.")
    ] = False,
    hold: Annotated[
        bool, Parameter(negative=(), help="Keep memory in RAM: fast, but lost if the processes end.")
    ] = False,
    json: Json = False,
) -> None:
    """Pause a sandbox after its turn; the next use resumes it.

    Memory is saved to disk where the tier can (microvm; e2b at the service), else kept in RAM (jail).
    """
    from kasmon.cli.sandbox import snapshots

    snapshots.pause(session, to_disk=disk, to_hold=hold, wants_json=json)


@app.command
def resume(session: SandboxArgument, /, *, json: Json = False) -> None:
    """Resume a sandbox and verify its state."""
    from kasmon.cli.sandbox import commands

    commands.resume(session, wants_json=json)


@app.command
def checkpoint(session: SandboxArgument, /, *, json: Json = False) -> None:
    """Create a checkpoint of a sandbox, and print its id."""
    from kasmon.cli.sandbox import commands

    commands.checkpoint(session, wants_json=json)


@app.command
def checkpoints(session: SandboxArgument, /, *, json: Json = False) -> None:
    """List a sandbox's checkpoints, newest last."""
    from kasmon.cli.sandbox import commands

    commands.checkpoints(session, wants_json=json)


@app.command
def restore(session: SandboxArgument, checkpoint: Point, /, *, json: Json = False) -> None:
    """Restore a checkpoint: files and saved interpreter state."""
    from kasmon.cli.sandbox import commands

    commands.restore(session, checkpoint, wants_json=json)


@app.command
def fork(
    session: SandboxArgument,
    name: Annotated[str, Parameter(help="Name of the fork (default: the same name with a number).")] = "",
    /,
    *,
    at: Annotated[str, Parameter(help="Checkpoint to fork from, without memory (default: the current state).")] = "",
    json: Json = False,
) -> None:
    """Fork a sandbox, and print the fork's session id; both keep running independently.

    A fork of a running microvm has its files and all memory: the source is saved to disk, then resumed. Any other
    fork has the files and the saved interpreter state. The output says which.
    """
    from kasmon.cli.sandbox import snapshots

    snapshots.fork(session, name, at, wants_json=json)


@app.command
def diff(
    session: SandboxArgument,
    turn: Annotated[int | None, Parameter(help="Turn number (default: the last).")] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """Show the file changes of a turn in a sandbox."""
    from kasmon.cli.sandbox import commands

    commands.diff(session, turn, wants_json=json)


@app.command
def replay(
    session: SandboxArgument,
    into: Annotated[str, Parameter(completer=sandboxes, help="Sandbox to run in (id, exact name or id prefix).")],
    /,
    *,
    until: Annotated[str, Parameter(help="Replay up to this checkpoint (default: everything).")] = "",
    json: Json = False,
) -> int:
    """Replay everything that a sandbox ran in another sandbox. Side effects outside are repeated."""
    from kasmon.cli.sandbox import commands

    return commands.replay(session, into, until, wants_json=json)


@app.command
def allow(
    session: SandboxArgument,
    /,
    *hosts: Annotated[str, Parameter(help="example.org, *.example.org, example.org:8443, or npm, pypi, github.")],
    json: Json = False,
) -> None:
    """Allow a sandbox to reach more hosts."""
    from kasmon.cli.sandbox import commands

    commands.allow(session, hosts, wants_json=json)


@app.command
def forward(
    session: SandboxArgument,
    port: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=65535), help="Port in the sandbox.")],
    /,
    *,
    at: Annotated[
        int, Parameter(validator=validators.Number(gte=0, lte=65535), help="Local port (default: any free port).")
    ] = 0,
    json: Json = False,
) -> None:
    """Forward a port of a sandbox to 127.0.0.1 while this command runs."""
    from kasmon.cli.sandbox import commands

    commands.forward(session, port, at, wants_json=json)


@app.command
def rm(
    session: Annotated[str | None, Parameter(completer=sandboxes, help="Session id, exact name or id prefix.")] = None,
    /,
    *,
    all: Annotated[bool, Parameter(negative=(), help="Remove all sandboxes.")] = False,  # noqa: A002 - its flag
    json: Json = False,
) -> int:
    """Remove a sandbox with its own files and checkpoints. Folders of yours are kept, and changed copies of them."""
    from kasmon.cli.sandbox import commands

    return commands.rm(session, every=all, wants_json=json)
