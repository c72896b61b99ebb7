"""`kasmon mcp`: serve tools to one agent until it disconnects."""

import gc
import sys
from importlib.util import find_spec
from typing import Annotated, Literal

from kasmon.cli.arguments import Arg
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.cli.output.console import note
from kasmon.config import load
from kasmon.errors import UnavailableError, UsageError
from kasmon.paths import user_paths
from kasmon.supervisor.sandboxes.create import NewSandbox

GET = "`pipx install --force '.[mcp]'` in kasmon's clone"
ADD = "claude mcp add kasmon -- kasmon mcp"


def mcp(
    *,
    tools: Annotated[
        Literal["code", "fleet"],
        Arg("`code` runs code in sandboxes; `fleet` drives other agents, for a session that may use it."),
    ] = "code",
    client: Annotated[str, Arg("Client name; its sessions are kept for the next start with this name.")] = "",
    size: Annotated[
        Literal["default", "build", "max"] | None, Arg("Limits of each sandbox: time, CPU and memory.")
    ] = None,
    project: Annotated[str | None, Arg("Folder mounted read-only as /project.")] = None,
    allow: Annotated[
        list[str] | None,
        Arg("Host that the sandboxes may reach, or npm, pypi, github (default: none). May be repeated."),
    ] = None,
) -> int:
    """Serve MCP tools that run code in sandboxes, or drive other agents. An agent's program starts this command.

    For example: claude mcp add kasmon -- kasmon mcp
    """
    gc.disable()  # the package makes many classes: garbage collection would take a quarter of the start
    try:
        from kasmon.mcp.server import serve, serve_fleet
    except ImportError as error:
        why = "another version is installed" if find_spec("mcp") else "it is not installed"
        raise UnavailableError(f"the package `mcp`, which speaks the protocol: {why}.", hint=f"{GET}") from error
    finally:
        gc.enable()
    if sys.stdin is not None and sys.stdin.isatty():
        note("an agent's program starts this command and uses it over stdin. Ctrl+C stops it.")
    where = user_paths()
    if tools == "fleet":
        if client or size or project or allow:
            raise UsageError("--client, --size, --project and --allow are for --tools code.", hint="Leave them out.")
        return serve_fleet(where, load(where))
    return serve(where, load(where), client, NewSandbox(name="mcp", size=size, project=project, hosts=allow))


def check() -> DoctorCheck:
    """Return the check for `kasmon doctor`."""
    if find_spec("mcp") is None:
        return DoctorCheck("mcp", "ok", f"`kasmon mcp` requires the package `mcp`: {GET}")
    return DoctorCheck("mcp", "ok", f"`kasmon mcp` serves tools to agents: {ADD}")
