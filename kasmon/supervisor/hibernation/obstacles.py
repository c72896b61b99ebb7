"""What an agent started that would end, or would be left alone, if the agent ended: processes and open ports. Blocks.

An agent's own helpers, such as MCP servers, are not counted: they run since before it could start anything for a
prompt, and it starts them again. It can do so from its first turn on; one that reports each of its tools, from its
first tool on: servers may start late (`npx` loads them first). What left the agent's family counts from its first turn
on, as a hook may have started it. A helper's open port does count, since others may use it; the agent's program has its
own (codex, opencode).
"""

import contextlib
import math
import os
from collections.abc import Iterable
from typing import Final

import psutil

from kasmon import system
from kasmon.backends.common.process_family import family_of
from kasmon.model.commands import ReceiptState
from kasmon.model.events import Event, ReceiptChanged, SessionStarted, SignalSeen, ToolStarted, TurnStarted
from kasmon.model.evidence import WORDS
from kasmon.model.session_state import SessionState
from kasmon.process_identity import started_at

GIVEN: Final = frozenset({ReceiptState.TYPED, ReceiptState.SUBMITTED, ReceiptState.STARTED})
"""Receipts of prompts that the agent has, or may have."""
WORKING: Final = frozenset({SessionState.WORKING, SessionState.ASKING})
KNOWING: Final = frozenset({"program", "registry", "hook", "title", "screen"})
"""Sources that know whether an agent works; others only see that it prints."""


REPORTS_TOOLS: Final = frozenset({"claude", "codex"})
"""Programs that report each tool before it runs, as structured agents."""
TOOL_LEAD_S: Final = 1.0
"""How long before the host logs a tool that may have started a process, in seconds: a busy host reads late."""


def find_first_tool(events: Iterable[Event]) -> float:
    """Return when a structured agent may first have run a tool since it was last started, as `find_first_work`."""
    at = math.inf
    for event in events:
        match event:
            case SessionStarted():
                at = math.inf
            case ToolStarted():
                at = min(at, event.at - TOOL_LEAD_S)
    return at


def find_first_work(events: Iterable[Event]) -> float:
    """Return when the agent may first have worked since it was last started, in seconds since the epoch.

    Infinity if it did not work since.
    """
    at = math.inf
    for event in events:
        match event:
            case SessionStarted():
                at = math.inf
            case TurnStarted():
                at = min(at, event.at)
            case ReceiptChanged(receipt=receipt) if receipt.state in GIVEN:
                at = min(at, event.at)
            case SignalSeen(source=source, value=value) if source in KNOWING:
                if value == "working" or WORKING.intersection(WORDS.get(word) for word in value.split("|")):
                    at = min(at, event.at)
    return at


def find_running(pid: int, worked_at: float, program: str = "", tool_at: float | None = None) -> str:
    """Return what runs that the agent in process *pid* started since *worked_at*, or a helper's open port; else empty.

    The calling process does not count: a host that plays its agent itself may have started it.

    Args:
        pid: the agent.
        worked_at: as from `find_first_work`.
        program: the name of the agent's program; it may run in several processes.
        tool_at: as from `find_first_tool`; None if the agent does not report each of its tools.
    """
    try:
        family = family_of(pid)
    except psutil.Error:
        return ""
    helpers: list[psutil.Process] = []
    started_for_prompts_at = worked_at if tool_at is None else max(worked_at, tool_at)
    since = dict.fromkeys(family.descendants, started_for_prompts_at) | dict.fromkeys(family.daemons, worked_at)
    for process, at in since.items():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            began = started_at(process.pid)
            if began is not None and system.HERE.convert_start(began) + system.HERE.start_resolution_s >= at:
                return f"its process {process.name()!r} ({process.pid}) runs"
            if process.name() != program:
                helpers.append(process)
    for process in helpers:
        with contextlib.suppress(psutil.NoSuchProcess):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    return f"port {connection.laddr.port} is open in its process {process.name()!r} ({process.pid})"
    return ""
