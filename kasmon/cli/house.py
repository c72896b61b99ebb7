"""The commands about kasmon itself: its dashboard, a real terminal, its settings, its health and its cost."""

from typing import Annotated, Literal

from cyclopts import Parameter

from kasmon.cli.parameter import Json, Session, settings, values
from kasmon.errors import UsageError


def dashboard() -> int:
    """Open the dashboard."""
    from kasmon.commands.screen import dashboard

    return dashboard()


def attach(session: Session, /) -> None:
    """Sit down at a session's real terminal; Ctrl+] leaves it."""
    from kasmon.commands.attaching import attach

    attach(session)


def demo(
    *,
    agents: int = 12,
    seed: int = 1,
    headless: Annotated[
        float | None, Parameter(help="Open no screen, run for so many seconds, print `ls --json`.")
    ] = None,
    svg: Annotated[str | None, Parameter(help="Save the dashboard's picture here.")] = None,
) -> int:
    """Show a live fleet of scripted agents; nothing is left behind."""
    from kasmon.commands.screen import demo

    return demo(agents, seed, headless, svg)


def config(
    key: Annotated[str | None, Parameter(completer=settings, help="A setting, such as ui.theme.")] = None,
    value: Annotated[
        str | None, Parameter(completer=values, allow_leading_hyphen=True, help="What to set it to.")
    ] = None,
    /,
    *,
    explain: Annotated[
        str | None, Parameter(completer=settings, help="Say what this setting means and where it comes from.")
    ] = None,
    json: Json = False,
) -> None:
    """Show or change settings; your comments stay."""
    from kasmon.commands.setting import config

    config(key, value, explain, wants_json=json)


def trust(
    folder: Annotated[str, Parameter(help="A folder whose repository brings a .kasmon.toml.")] = "",
    /,
    *,
    yes: Annotated[bool, Parameter(negative=(), help="Agree without being asked; takes --digest.")] = False,
    digest: Annotated[str, Parameter(help="The digest of what you looked at.")] = "",
    list_: Annotated[bool, Parameter(name="--list", negative=(), help="Say what is trusted.")] = False,
    remove: Annotated[bool, Parameter(negative=(), help="Let it count no more.")] = False,
    json: Json = False,
) -> None:
    """Let a folder's own config count, once you have seen what it would let run."""
    from kasmon.commands.trusting import show_all, trust, withdraw

    if list_ and (folder or yes or digest or remove):
        raise UsageError("--list takes nothing else.", hint="Say `kasmon trust --list`.")
    if list_:
        show_all(wants_json=json)
    elif not folder:
        raise UsageError("`kasmon trust` needs a folder.", hint="Say `kasmon trust .`, or `kasmon trust --list`.")
    elif remove:
        withdraw(folder, wants_json=json)
    else:
        trust(folder, digest=digest, agrees=yes, wants_json=json)


def doctor(
    *,
    fix: Annotated[bool, Parameter(negative=(), help="Mend what is harmless to mend.")] = False,
    report: Annotated[
        bool, Parameter(negative=(), help="Print all that helps others to help, without secrets.")
    ] = False,
    json: Json = False,
) -> int:
    """Look for what is wrong; exit code 1 if something fails."""
    from kasmon.commands.doctor import doctor

    return doctor(fix=fix, report=report, wants_json=json)


def bench(
    *names: Annotated[str, Parameter(help="What to measure; by default everything.")],
    rounds: Annotated[int, Parameter(help="How often each time is measured.")] = 9,
    seconds: Annotated[float, Parameter(help="How long each load is watched.")] = 10.0,
    json: Json = False,
) -> int:
    """Measure kasmon on this machine, as ratios."""
    from kasmon.bench.run import main

    if rounds < 1 or seconds <= 0:
        raise UsageError("nothing can be measured in no time.", hint="--rounds takes 1 or more, --seconds more than 0.")
    return main(names, rounds=rounds, seconds=seconds, json=json)


def mcp(
    *,
    client: Annotated[str, Parameter(help="The client's name: its sessions outlive this, and wait for its next.")] = "",
    size: Annotated[
        Literal["default", "build", "max"] | None, Parameter(help="How much time, processor and memory each has.")
    ] = None,
    project: Annotated[str | None, Parameter(help="A folder that they see as /project, to read.")] = None,
    allow: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Whom they may reach: a host, or npm, pypi, github; by default nobody."),
    ] = None,
) -> int:
    """Serve tools to an agent over MCP: code in sandboxes. An agent's own program starts this.

    For example: claude mcp add kasmon -- kasmon mcp
    """
    from kasmon.commands.serving import mcp

    return mcp(client, size, project, allow)


def web(
    *,
    port: Annotated[int, Parameter(help="The port to listen on; 0 takes a free one.")] = 0,
    address: Annotated[
        str, Parameter(help="The loopback address to listen on; there is no other way in.")
    ] = "127.0.0.1",
    json: Json = False,
) -> int:
    """Show the dashboard in a browser on this machine; Ctrl+C ends it, and the agents go on.

    It prints a link that lets one browser in, once; Enter prints another.
    """
    from kasmon.commands.browsing import web

    return web(port, address, wants_json=json)
