"""Dispatch tool calls: take a client's arguments and return a result, whatever fails.

This module does not know MCP's types.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from kasmon.errors import KasmonError
from kasmon.mcp import results, tool_schemas
from kasmon.mcp.sandbox_tools import SandboxTools, Show
from kasmon.mcp.session_tools import SessionTools
from kasmon.model.commands import Checkpoint, Restore
from kasmon.model.sandbox.policy import INTERPRETERS, Interpreter
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.supervisor.sandboxes import use

WRONG: Final = 2
"""The exit code for invalid arguments."""
assert get_args(Interpreter) == INTERPRETERS


class ToolResult(NamedTuple):
    content: dict[str, Any]
    is_error: bool = False


class _UnknownInterpreterError(Exception):
    """An unknown interpreter; the text is for the agent."""


class ToolDispatcher:
    def __init__(self, paths: Paths, sandbox_tools: SandboxTools, session_tools: SessionTools | None) -> None:
        """*session_tools*: the tools of the client as a kasmon session; None if it is none."""
        self._paths = paths
        self._sandbox_tools = sandbox_tools
        self._session_tools = session_tools
        tools = (tool_schemas.RUN, *tool_schemas.SESSIONS, *(tool_schemas.PLACE if session_tools else ()))
        self.tools: Final = {tool.name: tool for tool in tools}

    async def call(self, name: str, given: Mapping[str, Any], printed: Show) -> ToolResult:
        """Call the tool *name* with *given*; *printed* is called with the output of code as it arrives."""
        tool = self.tools.get(name)
        if tool is None:
            return _invalid_call(f"Unknown tool: {name!r}.")
        if why := tool.fault(dict(given)):
            return _invalid_call(why)
        arguments = {key: value for key, value in given.items() if value is not None}
        session = arguments.get("session", "")
        try:
            if name == tool_schemas.RUN.name:
                return await self._run(arguments["env"], arguments["code"], session, printed)
            return ToolResult(await self._other(name, arguments, session))
        except _UnknownInterpreterError as error:
            return ToolResult(results.refused(str(error), preserved=bool(session)), is_error=True)
        except KasmonError as error:
            return ToolResult(results.of_error(error, has_session=bool(session)), is_error=True)

    async def _run(self, env: str, code: str, session: str, printed: Show) -> ToolResult:
        result = await self._sandbox_tools.run(_parse_interpreter(env), code, session, printed)
        return ToolResult(result, is_error=result["exit_code"] != 0)

    async def _other(self, name: str, arguments: Mapping[str, str], session: str) -> dict[str, Any]:
        sandbox_tools, paths = self._sandbox_tools, self._paths
        match name, self._session_tools:
            case "list_sessions", _:
                return {"sessions": [self._row(known, each) for known, each in await sandbox_tools.sessions()]}
            case "end_session", _:
                await sandbox_tools.end(session)
                return {"session": session, "ended": True}
            case "interrupt", _:
                env = _parse_interpreter(arguments["env"]) if arguments.get("env") else None
                done, why_not = await sandbox_tools.interrupt(session, env, arguments.get("run", ""))
                return {"session": session, "interrupted": done} | ({"not_interrupted": why_not} if why_not else {})
            case "checkpoint", _:
                kept = await use.execute(paths, await sandbox_tools.find(session), Checkpoint())
                now = await sandbox_tools.find(session)
                known = [
                    point for point in (now.sandbox_state.checkpoints if now.sandbox_state else ()) if point.id == kept
                ]
                return {"session": session, "checkpoint": kept or None, "not_kept": [*known[0].lost] if known else []}
            case "restore", _:
                command = Restore(checkpoint=arguments["checkpoint"])
                lost = await use.execute(paths, await sandbox_tools.find(session), command)
                return {"session": session, "restored": arguments["checkpoint"], "lost": lost or None}
            case "my_task", SessionTools() as session_tools:
                return await asyncio.to_thread(session_tools.task)
            case "peers", SessionTools() as session_tools:
                return await asyncio.to_thread(session_tools.peers)
            case "done", SessionTools() as session_tools:
                return await session_tools.report_done(arguments.get("summary", ""))
            case _:
                raise AssertionError(name)

    def _row(self, name: str, session: Session) -> dict[str, Any]:
        sandbox_state = session.sandbox_state
        return {
            "session": name,
            "running": [{"run": each.id, "env": each.interpreter} for each in self._sandbox_tools.running(name)],
            "state": session.state.value,
            "failed": session.has_failed_to_start,
            "phase": sandbox_state.phase.value if sandbox_state else None,
            "checkpoints": [point.id for point in sandbox_state.checkpoints] if sandbox_state else [],
            "expires_at": session.expires_at,
            "lost": (sandbox_state.lost or None) if sandbox_state else None,
            "ended": session.end_why or None,
        }


def _parse_interpreter(env: str) -> Interpreter:
    for known in INTERPRETERS:
        if known == env:
            return known
    raise _UnknownInterpreterError(f"Unknown interpreter: {env}")


def _invalid_call(why: str) -> ToolResult:
    return ToolResult(results.refused(why, preserved=True, exit_code=WRONG), is_error=True)
