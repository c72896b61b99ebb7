"""`kasmon acp`: serve sessions to an editor until it disconnects."""

import sys
from typing import Annotated

from kasmon.cli.arguments import NAMED, Arg
from kasmon.cli.output.console import note
from kasmon.config import load
from kasmon.errors import UnavailableError, UsageError
from kasmon.paths import user_paths


def acp(
    session: Annotated[str, Arg(f"{NAMED} Without it: all sessions, and new ones.", completer="sessions")] = "",
    /,
    *,
    agent: Annotated[str, Arg("Profile of new sessions (default: that of the config).", completer="agents")] = "",
) -> int:
    """Serve sessions to an editor that speaks the Agent Client Protocol. The editor starts this command."""
    if session and agent:
        raise UsageError("SESSION and --agent exclude each other.", hint="--agent is for new sessions.")
    try:
        from kasmon.acp.server import serve
    except ImportError as error:
        why = "the package `agent-client-protocol`, which speaks the protocol, is not installed."
        raise UnavailableError(why, hint="`pipx install --force '.[acp]'` in kasmon's clone") from error
    if sys.stdin is not None and sys.stdin.isatty():
        note("an editor starts this command and uses it over stdin. Ctrl+C stops it.")
    where = user_paths()
    return serve(where, load(where), session, agent)
