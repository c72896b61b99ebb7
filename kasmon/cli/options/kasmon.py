"""Commands about kasmon itself: its dashboard, terminals, settings, diagnosis and benchmark."""

from typing import Annotated, Literal

from kasmon.cli.arguments import Arg, Json, Session
from kasmon.errors import UsageError


def dashboard() -> int:
    """Open the dashboard."""
    from kasmon.cli.dashboard import dashboard

    return dashboard()


def attach(session: Session, /) -> None:
    """Attach to a session's terminal (Ctrl+] or F12 detaches)."""
    from kasmon.cli.sessions import attach

    attach(session)


def demo(
    *,
    agents: int = 12,
    seed: int = 1,
    headless: Annotated[float | None, Arg("Open no screen; run for this many seconds, then print `ls --json`.")] = None,
    svg: Annotated[str | None, Arg("Save an SVG picture of the dashboard to this file.")] = None,
) -> int:
    """Run a live demo with simulated agents; cleans up on exit."""
    from kasmon.cli.dashboard import demo

    return demo(agents, seed, headless, svg)


def config(
    key: Annotated[str | None, Arg(completer="settings", help="Setting, such as ui.theme.")] = None,
    value: Annotated[str | None, Arg(completer="values", hyphen=True, help="New value.")] = None,
    /,
    *,
    explain: Annotated[
        str | None, Arg(completer="settings", help="Explain this setting and where its value comes from.")
    ] = None,
    json: Json = False,
) -> None:
    """Show or change settings; comments in the file are kept."""
    from kasmon.cli.config import config

    config(key, value, explain, wants_json=json)


def trust(
    folder: Annotated[str, Arg("Folder whose repository contains a .kasmon.toml.")] = "",
    /,
    *,
    yes: Annotated[bool, Arg("Agree without a prompt; requires --digest.")] = False,
    digest: Annotated[str, Arg("Digest of the config that you reviewed.")] = "",
    list_: Annotated[bool, Arg(flags=("--list",), help="List trusted folders.")] = False,
    remove: Annotated[bool, Arg("Revoke trust.")] = False,
    json: Json = False,
) -> None:
    """Review and trust a project's .kasmon.toml."""
    from kasmon.cli.trust import show_all, trust, withdraw

    if list_ and (folder or yes or digest or remove):
        raise UsageError(
            "--list cannot be combined with a folder or another option.", hint="Run `kasmon trust --list`."
        )
    if list_:
        show_all(wants_json=json)
    elif not folder:
        raise UsageError("`kasmon trust` requires a folder.", hint="Run `kasmon trust .` or `kasmon trust --list`.")
    elif remove:
        withdraw(folder, wants_json=json)
    else:
        trust(folder, digest=digest, agrees=yes, wants_json=json)


def doctor(
    *,
    fix: Annotated[bool, Arg("Apply the fixes that are safe.")] = False,
    report: Annotated[bool, Arg("Print a report for a bug report, without secrets.")] = False,
    json: Json = False,
) -> int:
    """Check the installation; exit code 1 if a check fails."""
    from kasmon.cli.doctor.command import doctor

    return doctor(fix=fix, report=report, wants_json=json)


def bench(
    *names: Annotated[str, Arg("Measurements to run (default: all).")],
    rounds: Annotated[int, Arg("Number of measurements of each time.")] = 9,
    seconds: Annotated[float, Arg("Seconds to measure each load.")] = 10.0,
    json: Json = False,
) -> int:
    """Measure kasmon on this machine, as ratios."""
    from kasmon.bench.run import main

    if rounds < 1 or seconds <= 0:
        raise UsageError(
            "cannot measure with --rounds {rounds} and --seconds {seconds:g}.",
            hint="--rounds must be at least 1 and --seconds greater than 0.",
        )
    return main(names, rounds=rounds, seconds=seconds, json=json)


def mcp(
    *,
    client: Annotated[str, Arg("Client name; its sessions are kept for the next start with this name.")] = "",
    size: Annotated[
        Literal["default", "build", "max"] | None, Arg("Limits of each sandbox: time, CPU and memory.")
    ] = None,
    project: Annotated[str | None, Arg("Folder mounted read-only as /project.")] = None,
    allow: Annotated[
        list[str] | None,
        Arg(
            "Host that the sandboxes may reach, or npm, pypi, github (default: none). May be repeated.",
        ),
    ] = None,
) -> int:
    """Serve MCP tools that run code in sandboxes. An agent's program starts this command.

    For example: claude mcp add kasmon -- kasmon mcp
    """
    from kasmon.cli.mcp import mcp

    return mcp(client, size, project, allow)


def web(
    *,
    port: Annotated[int, Arg("Port to listen on (0: any free port).")] = 0,
    address: Annotated[str, Arg("Loopback address to listen on.")] = "127.0.0.1",
    json: Json = False,
) -> int:
    """Show the dashboard in a browser on this machine. Ctrl+C stops the server; agents keep running.

    It prints a one-time link for one browser. Enter prints a new link; `r` and Enter first logs out every browser.
    """
    from kasmon.cli.web import web

    return web(port, address, wants_json=json)
