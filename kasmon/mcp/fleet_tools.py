"""The tools by which the agent of a session drives others: `kasmon mcp --tools fleet`.

Each call acts as the session of this process, which the system's processes show; a call cannot name another one. None
answers a request, sets trust, rules or settings, or changes a repository.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from kasmon.config import Config, load_or_default
from kasmon.config.profile import programs
from kasmon.errors import KasmonError, NotFoundError, RefusedError, UsageError
from kasmon.host.rpc.actor import find_actor, require_actor
from kasmon.mcp.dispatcher import ToolResult
from kasmon.mcp.sandbox_tools import Show
from kasmon.mcp.tool_schemas import FLEET, NEVER, REFUSED_NAMES, ToolSchema
from kasmon.model.commands import ActingAgent, Mode
from kasmon.model.review.file_changes import split
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState, states_of
from kasmon.paths import Paths, read_stamp
from kasmon.sanitize import clean_block
from kasmon.store.starters import StarterLog, find_descendants, read_starters
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import wait_for
from kasmon.supervisor.fleet.watch import FleetWatch
from kasmon.supervisor.limits.agents import find_kin, require_child, require_choices, require_tool, with_sender
from kasmon.supervisor.machines.agent_requests import require_machine
from kasmon.supervisor.machines.delegation import started_session
from kasmon.supervisor.machines.link_client import AgentRequest, ask_for_agent, parse_reply
from kasmon.supervisor.plans.peers.context import TaskPeer
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.names import check_name
from kasmon.supervisor.sessions.read import read_lines
from kasmon.supervisor.worktrees.changes import diff_of

Value = TypeVar("Value")
LINES: Final = 500
SECONDS: Final = 600
WAITED_FOR: Final = "idle,asking,limited,ended"
DIFF_CHARACTERS: Final = 100_000
"""The longest diff that is returned; the rest is cut."""


class _ReplyError(msgspec.Struct):
    message: str
    hint: str | None = None


class _Reply(msgspec.Struct):
    """What a command of kasmon prints with --json if it fails."""

    error: _ReplyError


class _Lines(msgspec.Struct):
    """What `kasmon read --json` prints."""

    lines: list[str]


class _Proposal(msgspec.Struct):
    """What `kasmon finish --propose --json` prints."""

    proposed: bool


class _Diff(msgspec.Struct):
    """What `kasmon diff --json` prints."""

    diff: str


class _SentPrompt(msgspec.Struct):
    """What `kasmon send --json` prints."""

    receipt: dict[str, Any]


class FleetTools:
    """The tools of the agent that this process belongs to."""

    def __init__(self, paths: Paths, config: Config) -> None:
        """Find out whose process this is. Blocks.

        Some agents start their servers before their session has begun: then the first call finds out.

        Raises:
            RefusedError: if it is no agent's, or the person did not allow that agent these.
        """
        self._paths = paths
        self._config, self._config_stamp = config, read_stamp(paths.config_file)
        self._watch, self._starter_log = FleetWatch(paths, writes=False), StarterLog(paths)
        self.tools: Final = {tool.name: tool for tool in FLEET}
        self.actor = find_actor(paths, os.getpid()) or self._require()
        if self.actor.is_identified:
            self._require()

    def _require(self) -> ActingAgent:
        """Return the agent that this process belongs to now. Blocks.

        Raises:
            RefusedError: as the class; or if it is not certain whose process this is.
        """
        actor = require_actor(self._paths, os.getpid(), "use the fleet tools")
        require_tool(read_fleet(self._paths), actor)
        return actor

    async def call(self, name: str, given: Mapping[str, Any], printed: Show) -> ToolResult:
        """Call the tool *name* with *given*; an error is a result with its sentence. *printed* is not used."""
        if (never := REFUSED_NAMES.get(name)) is not None:
            return _error(RefusedError(NEVER[never]))
        tool = self.tools.get(name)
        if tool is None:
            return _error(UsageError(f"unknown tool: {name!r}.", hint=f"There are {', '.join(self.tools)}."))
        if why := tool.fault(dict(given)):
            return _error(UsageError(why))
        arguments = {key: value for key, value in given.items() if value}
        if why := tool.fault(arguments) or _unknown_choice(tool, arguments):  # an empty one is missing
            return _error(UsageError(why))
        try:
            return ToolResult(await self._run(name, arguments))
        except KasmonError as error:
            return _error(error)

    async def _run(self, name: str, given: Mapping[str, str]) -> dict[str, Any]:
        if (stamp := await asyncio.to_thread(read_stamp, self._paths.config_file)) != self._config_stamp:
            self._config, self._config_stamp = await asyncio.to_thread(load_or_default, self._paths), stamp
        if name in ("start", "prompt", "message", "finish") or not self.actor.is_identified:
            self.actor = await asyncio.to_thread(self._require)
        match name:
            case "list":
                return await asyncio.to_thread(list_sessions, self._watch, self._starter_log, self._config, self.actor)
            case "read":
                return await asyncio.to_thread(self._read, given)
            case "start":
                return await self._start(given)
            case "prompt":
                return await self._prompt(given["session"], given["text"])
            case "wait":
                return await self._wait(given)
            case "diff":
                return await asyncio.to_thread(self._diff, given["session"])
            case "message":
                return await self._message(given["session"], given["text"])
            case "plan":
                return await asyncio.to_thread(self._plan, given.get("plan", ""))
            case "finish":
                return await self._finish(given["session"], given["summary"])
            case _:
                raise AssertionError(name)

    def _read(self, given: Mapping[str, str]) -> dict[str, Any]:
        lines = _number(given.get("lines", ""), "lines", 60, LINES)
        session = self._seen(given["session"])
        is_terminal = session.mode is Mode.TMUX
        answer = self._ask_elsewhere(session, _Lines, act="read", lines=lines) if is_terminal else None
        read = answer.lines if answer else read_lines(self._paths, session, lines=lines)
        return _row(session) | {"text": clean_block("\n".join(read))}

    def _ask_elsewhere(self, session: Session, kind: type[Value], **fields: Any) -> Value | None:
        """Have the machine of *session* do what *fields* of an `AgentRequest` say; return its JSON as a *kind*.

        None, and nothing is done, if that is this machine.
        """
        if not session.via:
            return None
        request = AgentRequest(n=1, session=session.id, **fields)
        return parse_reply(session.via, ask_for_agent(self._paths, session.via, request).stdout, kind)

    async def _start(self, given: Mapping[str, str]) -> dict[str, Any]:
        own = await asyncio.to_thread(self._own)
        agent, sandbox = given.get("agent", own.agent), given.get("sandbox")
        require_choices(self._config.fleet, own.agent, agent, sandbox)
        worktree = {"yes": True, "no": False, "": None}[given.get("worktree", "")]
        if machine := given.get("machine", ""):
            return await self._start_there(machine, given, worktree)
        if "folder" in given:
            raise UsageError("'folder' is one on another machine.", hint="A session of this machine gets yours.")
        arguments = [f"--agent={agent}", f"--dir={own.workdir}", "--prompt=-"]
        arguments += [] if worktree is None else ["--worktree" if worktree else "--no-worktree"]
        arguments += [] if sandbox is None else [f"--sandbox={sandbox}"]
        name = check_name(given["name"])
        if name.startswith("-"):
            raise UsageError(f"{name!r} is not a valid session name.", hint="Begin it with a letter.")
        await self._run_kasmon("new", name, *arguments, stdin=with_sender(own, given["prompt"]))
        return _row(find((await asyncio.to_thread(read_fleet, self._paths)), name))

    async def _start_there(self, machine: str, given: Mapping[str, str], worktree: bool | None) -> dict[str, Any]:
        """Start a session on a registered machine; the link to it decides whether the agent may."""
        require_machine(self._config.fleet.machines, machine)
        request = AgentRequest(
            n=1,
            act="start",
            name=check_name(given["name"]),
            text=given["prompt"],
            agent=given.get("agent", ""),
            folder=given.get("folder", ""),
            worktree=worktree,
            sandbox=given.get("sandbox"),
        )
        output = await asyncio.to_thread(ask_for_agent, self._paths, machine, request)
        session = started_session(machine, output)
        return _row((await asyncio.to_thread(read_fleet, self._paths)).require(session))

    async def _run_kasmon(self, *arguments: str, stdin: str = "") -> None:
        """Run `kasmon WORDS`. What it starts is then no child of this process, which ends with the agent.

        Raises:
            RefusedError: why it was not done, as that command says it.
        """
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "kasmon", *arguments, "--json"), stdin=pipe, stdout=pipe, stderr=pipe
        )
        output, _ = await process.communicate(stdin.encode())
        if process.returncode:
            try:
                error = msgspec.json.decode(output, type=_Reply).error
            except msgspec.DecodeError:
                error = _ReplyError(message=f"`kasmon {arguments[0]}` failed with exit code {process.returncode}.")
            raise RefusedError(error.message, hint=error.hint or "")

    async def _prompt(self, name: str, text: str) -> dict[str, Any]:
        session = await asyncio.to_thread(self._child, name, "prompt")
        if answer := await asyncio.to_thread(self._ask_elsewhere, session, _SentPrompt, act="prompt", text=text):
            return {"session": session.id, "receipt": answer.receipt}
        own = await asyncio.to_thread(self._own)
        if session.state is SessionState.HIBERNATED:
            await self._run_kasmon("restart", session.id)
            session = await asyncio.to_thread(self._child, session.id, "prompt")
        receipt = await session_operations.send(self._paths, session, with_sender(own, text), "idle", "peer")
        return {"session": session.id, "receipt": msgspec.to_builtins(receipt)}

    async def _wait(self, given: Mapping[str, str]) -> dict[str, Any]:
        seconds = _number(given.get("seconds", ""), "seconds", 60, SECONDS)
        states = states_of([each.strip() for each in given.get("states", WAITED_FOR).split(",")])
        session = await asyncio.to_thread(self._seen, given["session"])
        [now] = await wait_for(self._paths, [session.id], states, timeout_s=seconds)
        return _row(now)

    def _diff(self, name: str) -> dict[str, Any]:
        session = self._seen(name)
        answer = self._ask_elsewhere(session, _Diff, act="diff")
        text = answer.diff if answer else diff_of(session)
        files = [{"file": each.name, "added": each.added, "removed": each.removed} for each in split(text)]
        cut = len(text) > DIFF_CHARACTERS
        return {"session": session.id, "files": files, "diff": text[:DIFF_CHARACTERS], "cut": cut}

    async def _message(self, name: str, text: str) -> dict[str, Any]:
        from kasmon.supervisor.machines.child_messages import Starter, find_starter  # rarely needed
        from kasmon.supervisor.plans.peers import messages

        def find_recipient() -> tuple[Session, Session | TaskPeer | Starter, _SentPrompt | None]:
            fleet, starters = read_fleet(self._paths), read_starters(self._paths)
            own, kin = fleet.require(self.actor.session), find_kin(self.actor.session, starters)
            for each in fleet.sessions:
                if each.id in kin and name in (each.id, each.name):
                    return own, each, self._ask_elsewhere(each, _SentPrompt, act="message", text=text)
            above = find_starter(self._paths, own.id, starters)
            if above is not None and name in (above.id, above.name):
                return own, above, None
            return own, messages.find_recipients(self._paths, fleet, own, name, programs(self._config))[0], None

        own, recipient, machine = await asyncio.to_thread(find_recipient)
        if machine:
            return {"session": recipient.id, "receipt": machine.receipt}
        if isinstance(recipient, Starter):
            receipt = await messages.hand_over(
                self._paths, own, recipient.id, recipient.checked_name, text, f"{recipient.machine} delivers it"
            )
        else:
            receipt = await messages.send_to(self._paths, own, recipient, text)
        return {"session": recipient.id, "receipt": msgspec.to_builtins(receipt)}

    async def _finish(self, name: str, summary: str) -> dict[str, Any]:
        session = await asyncio.to_thread(self._child, name, "propose to finish")
        if not await asyncio.to_thread(self._ask_elsewhere, session, _Proposal, act="finish", text=summary):
            await session_operations.propose_finish(self._paths, session, summary)
        return {"session": session.id, "proposed": True, "by": msgspec.to_builtins(self.actor)}

    def _plan(self, plan: str) -> dict[str, Any]:
        from kasmon.model.plan.progress import PlanRun  # rarely needed
        from kasmon.supervisor.plans import start
        from kasmon.supervisor.plans.view import read_view

        requested = plan or self._own().plan
        if not requested or (requested != self._own().plan and self._config.fleet.sees != "all"):
            raise NotFoundError(
                f"there is no plan {requested!r} that you see." if requested else "your session belongs to no plan.",
                hint="The person can let agents see all: fleet.sees = 'all'.",
            )
        view = read_view(start.find_plan(self._paths, requested), read_fleet(self._paths), self._config)
        run: PlanRun = view.run
        tasks = [
            {"id": task.id, "title": task.title, "wave": task.wave, "state": run.of(task.id).state.value}
            | {"session": run.of(task.id).session or None, "why": run.of(task.id).why or None}
            for task in view.plan.tasks
        ]
        return {"plan": run.plan, "name": view.plan.name, "state": run.state, "tasks": tasks}

    def _own(self) -> Session:
        return read_fleet(self._paths).require(self.actor.session)

    def _seen(self, name: str) -> Session:
        """Return the session *name*, if the agent may see it. Raises `RefusedError` if not."""
        fleet = read_fleet(self._paths)
        session = find(fleet, name)
        if self._config.fleet.sees == "all" and session in fleet.here:
            return session
        is_own = session.id == self.actor.session
        if not is_own and session.id not in find_descendants(self.actor.session, read_starters(self._paths)):
            raise RefusedError(
                f"you do not see {session.label!r}: you did not start it.",
                hint="`list` names those that you see. The person can let agents see all: fleet.sees = 'all'.",
            )
        return session

    def _child(self, name: str, action: str) -> Session:
        """Return the session *name*, if the agent or one of its children started it. Raises `RefusedError` if not."""
        fleet = read_fleet(self._paths)
        session = find(fleet, name)
        require_child(session, self.actor, read_starters(self._paths), action)
        return session


def list_sessions(watch: FleetWatch, starter_log: StarterLog, config: Config, actor: ActingAgent) -> dict[str, Any]:
    """Return the sessions that *actor* sees, the oldest first, and itself. Blocks.

    *watch* and *starter_log* have read what did not change since the last call.
    """
    fleet = watch.refresh_all()
    below = {*find_descendants(actor.session, starter_log.read())}
    visible = {each.id for each in fleet.here} if config.fleet.sees == "all" else {actor.session}
    seen = [each for each in fleet.sessions if each.id in visible or each.id in below]
    seen.sort(key=lambda each: (each.created_at, each.id))
    rows = [_row(each) | {"yours": each.id in below} for each in seen]
    return {"you": msgspec.to_builtins(actor), "sessions": rows}


def _unknown_choice(tool: ToolSchema, given: Mapping[str, str]) -> str:
    """Return which of *given* is none of the values that *tool* has for it, as a sentence; empty if each is one."""
    for name, value in given.items():
        if value not in (choices := tool.properties[name].get("enum", [value])):
            return f"{name!r} must be one of {', '.join(choices)}, not {value!r}."
    return ""


def _row(session: Session) -> dict[str, Any]:
    """Return what the tools show of *session*. What agents wrote in it is data."""
    return {
        "session": session.id,
        "name": session.name,
        "agent": session.agent,
        "state": session.state.value,
        "machine": session.via or None,
        "parent": session.parent,
        "depth": 0 if session.actor is None else session.actor.depth + 1,
        "asking": session.asking.value if session.asking else None,
        "folder": session.workdir,
        "branch": session.worktree.branch if session.worktree else None,
        "cost_usd": session.cost_usd,
        "tokens": session.tokens.used if session.tokens is not None else None,
        "last_line": session.last_line or None,
        "ended": session.end_why or None,
    }


def _number(text: str, name: str, default: int, most: int) -> int:
    """Return the number in *text*. Raises `UsageError` unless it is 1 to *most*."""
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= most):
        raise UsageError(f"{name!r} must be a number from 1 to {most}, not {text!r}.")
    return int(text)


def _error(error: KasmonError) -> ToolResult:
    return ToolResult({"error": error.message, "hint": error.hint or None, "code": error.code}, is_error=True)
