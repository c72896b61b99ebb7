"""The commands about sandboxes of interpreters: `kasmon sandbox ...`."""

from typing import Annotated, Literal

from cyclopts import App, Parameter, validators

from kasmon.cli.parameter import Json, Sandboxed, sandboxes
from kasmon.model.sandbox import Interpreter, Tier

Point = Annotated[str, Parameter(help="The checkpoint's id, from `kasmon sandbox checkpoints`.")]

app = App(
    name="sandbox",
    help="Run code in sandboxes that keep what it holds, sleep when nobody uses them, and come back.",
    help_formatter="plain",
)


@app.command
def create(
    name: str,
    /,
    *,
    tier: Annotated[Tier | None, Parameter(help="What confines it; by default what the config says: jail.")] = None,
    size: Annotated[
        Literal["default", "build", "max"] | None, Parameter(help="How much time, processor, memory and disk it has.")
    ] = None,
    dir: Annotated[  # noqa: A002 - its flag
        str, Parameter(help="The folder that is /workspace inside; by default one of its own.")
    ] = "",
    project: Annotated[str | None, Parameter(help="A folder that it sees as /project, to read.")] = None,
    write_project: Annotated[bool, Parameter(negative=(), help="Let it write to /project too.")] = False,
    allow: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Whom it may reach: a host, or npm, pypi, github; by default nobody."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a sandbox of python, bash and node, and print its session's id."""
    from kasmon.commands import sandboxing

    wanted = sandboxing.wanted(
        name, tier=tier, size=size, folder=dir, project=project, writes_project=write_project, hosts=allow
    )
    sandboxing.create(wanted, wants_json=json)


image = App(name="image", help="What virtual machines start from.", help_formatter="plain")
app.command(image)


@image.command
def build(
    *,
    size: Annotated[
        list[Literal["default", "build", "max"]] | None,
        Parameter(negative=(), help="Put a warm machine of this size away, of the image that is there."),
    ] = None,
    json: Json = False,
) -> None:
    """Build what virtual machines start from, of Debian's packages; takes some minutes, and no root."""
    from kasmon.commands import machine_image

    machine_image.build(size or (), wants_json=json)


@app.command
def run(
    session: Sandboxed,
    code: Annotated[str, Parameter(allow_leading_hyphen=True, help="The code; `-` reads it from stdin.")],
    /,
    *,
    env: Annotated[Interpreter, Parameter(help="What runs it.")] = "bash",
    timeout: Annotated[
        float | None, Parameter(validator=validators.Number(gt=0), help="Interrupt it after so many seconds.")
    ] = None,
    json: Json = False,
) -> int:
    """Run code in a sandbox, waking it for that. What it prints is shown meanwhile; the exit code is the code's."""
    from kasmon.commands.sandbox_run import run as run_code

    return run_code(session, code, env, timeout, wants_json=json)


@app.command(name="ls")
def list_all(*, json: Json = False) -> None:
    """List the sandboxes, with their phase, what they use, and their memory on disk."""
    from kasmon.commands import sandbox_memory

    sandbox_memory.list_all(wants_json=json)


@app.command
def show(session: Sandboxed, /, *, json: Json = False) -> None:
    """Show a sandbox: its phase, its memory on disk with size, age and whether it can be used, its checkpoints, what it
    lost, and what it is a fork of."""
    from kasmon.commands import sandbox_memory

    sandbox_memory.show(session, wants_json=json)


@app.command
def pause(
    session: Sandboxed,
    /,
    *,
    disk: Annotated[
        bool, Parameter(negative=(), help="Keep its memory on disk and end its processes, or fail.")
    ] = False,
    hold: Annotated[
        bool, Parameter(negative=(), help="Let its processes hold its memory: quick, and gone with them.")
    ] = False,
    json: Json = False,
) -> None:
    """Put a sandbox to sleep, once its turn is over: its memory on disk where its tier keeps it there (microvm, gvisor;
    e2b at the service), else held by its processes (jail). The next use wakes it."""
    from kasmon.commands import sandbox_memory

    sandbox_memory.pause(session, to_disk=disk, to_hold=hold, wants_json=json)


@app.command
def resume(session: Sandboxed, /, *, json: Json = False) -> None:
    """Wake a sandbox, and look whether it is what it was."""
    from kasmon.commands import sandboxing

    sandboxing.resume(session, wants_json=json)


@app.command
def checkpoint(session: Sandboxed, /, *, json: Json = False) -> None:
    """Keep what can be kept of a sandbox as it is now, and print the checkpoint's id."""
    from kasmon.commands import sandboxing

    sandboxing.checkpoint(session, wants_json=json)


@app.command
def checkpoints(session: Sandboxed, /, *, json: Json = False) -> None:
    """List what was kept of a sandbox, before and after its turns, the newest last."""
    from kasmon.commands import sandboxing

    sandboxing.checkpoints(session, wants_json=json)


@app.command
def restore(session: Sandboxed, checkpoint: Point, /, *, json: Json = False) -> None:
    """Put a sandbox back to a checkpoint: its files, and of its interpreters what could be kept."""
    from kasmon.commands import sandboxing

    sandboxing.restore(session, checkpoint, wants_json=json)


@app.command
def fork(
    session: Sandboxed,
    name: Annotated[
        str, Parameter(help="What the new one is called; by default the same with a number behind it.")
    ] = "",
    /,
    *,
    at: Annotated[str, Parameter(help="The checkpoint that it begins with, without memory; by default now.")] = "",
    json: Json = False,
) -> None:
    """Make another sandbox that begins where this one is, and print its session's id; both go on, each as its own.

    Of a microvm or gvisor it has the files and all memory: the source is put on disk for that, and goes on at once. Of
    others, and of a checkpoint, it has the files and what could be saved of the interpreters. It says which."""
    from kasmon.commands import sandbox_memory

    sandbox_memory.fork(session, name, at, wants_json=json)


@app.command
def diff(
    session: Sandboxed,
    turn: Annotated[int | None, Parameter(help="Which turn; by default the last.")] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """Show what a turn changed in a sandbox's files."""
    from kasmon.commands import sandboxing

    sandboxing.diff(session, turn, wants_json=json)


@app.command
def replay(
    session: Sandboxed,
    into: Annotated[
        str, Parameter(completer=sandboxes, help="The sandbox that runs it: id, exact name, or the beginning of an id.")
    ],
    /,
    *,
    until: Annotated[str, Parameter(help="Only what led to this checkpoint; by default all.")] = "",
    json: Json = False,
) -> int:
    """Run in one sandbox all that another one ran, in the same order. What code did elsewhere it does again."""
    from kasmon.commands import sandboxing

    return sandboxing.replay(session, into, until, wants_json=json)


@app.command
def allow(
    session: Sandboxed,
    /,
    *hosts: Annotated[str, Parameter(help="example.org, *.example.org, example.org:8443, or npm, pypi, github.")],
    json: Json = False,
) -> None:
    """Let a sandbox reach these hosts too."""
    from kasmon.commands import sandboxing

    sandboxing.allow(session, hosts, wants_json=json)


@app.command
def forward(
    session: Sandboxed,
    port: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=65535), help="The port inside.")],
    /,
    *,
    at: Annotated[
        int, Parameter(validator=validators.Number(gte=0, lte=65535), help="The port here; by default any free one.")
    ] = 0,
    json: Json = False,
) -> None:
    """Reach a port inside from 127.0.0.1 of this machine, as long as this command runs."""
    from kasmon.commands import sandboxing

    sandboxing.forward(session, port, at, wants_json=json)


@app.command
def rm(
    session: Annotated[
        str | None, Parameter(completer=sandboxes, help="Id, exact name, or the beginning of an id.")
    ] = None,
    /,
    *,
    all: Annotated[bool, Parameter(negative=(), help="All of them.")] = False,  # noqa: A002 - its flag
    json: Json = False,
) -> int:
    """End a sandbox and forget it, with its own files and its checkpoints; a folder that it was given stays,
    and a copy of one in which something changed."""
    from kasmon.commands import sandboxing

    return sandboxing.rm(session, every=all, wants_json=json)
