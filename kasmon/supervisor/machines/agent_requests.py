"""What an agent has done on a registered machine, by the link to it: within the table [fleet] here, and that there.

The link (`kasmon.bus.link`) refuses every other request of an agent. It finds the agent by the system's processes, and
runs kasmon's own commands there, which get the agent and the limits from here as `DeclaredAgent`.
"""

import contextlib
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from kasmon.config.parser import load_or_default
from kasmon.config.schema import Config
from kasmon.errors import RefusedError, UsageError
from kasmon.host.rpc.actor import LONGEST_MACHINE, find_depth, require_actor
from kasmon.model.commands import ActingAgent, StarterLimits
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.sanitize import clean_block, clean_line
from kasmon.store.starters import read_starters
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits import agents
from kasmon.supervisor.machines.delegation import require_undrained
from kasmon.supervisor.machines.link_client import AgentRequest
from kasmon.supervisor.plans.peers import messages
from kasmon.supervisor.sessions.names import check_name

_ID: Final = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
REASON_LENGTH: Final = 500
"""The longest reason that an agent there reads, in characters."""


class DeclaredAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of another machine, and what that machine allows it, as its kasmon says it."""

    actor: ActingAgent
    limits: StarterLimits
    name: str = ""
    """The name of its session."""


def parse_actor(text: str) -> DeclaredAgent:
    """Return the agent that *text*, a JSON object, declares. Raises `UsageError` if that is none of another machine."""
    try:
        declared = msgspec.json.decode(text, type=DeclaredAgent)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(f"--actor is no agent of another machine: {error}.") from error
    actor = declared.actor
    machine = clean_line(actor.machine).strip()[:LONGEST_MACHINE]
    if not machine or actor.depth < 0 or not _ID.fullmatch(actor.session):
        raise UsageError("--actor is no agent of another machine.", hint="Only kasmon itself passes it.")
    return msgspec.structs.replace(declared, actor=msgspec.structs.replace(actor, machine=machine))


class MachineCommand(NamedTuple):
    """A command of kasmon for a registered machine, and its stdin."""

    arguments: tuple[str, ...]
    stdin: bytes = b""
    starter: SessionId = SessionId("")
    """For a start: the session whose agent has it done."""


@contextlib.contextmanager
def command_for(paths: Paths, machine: str, pid: int, request: AgentRequest) -> Iterator[MachineCommand]:
    """Yield the command that has *request*, of process *pid*, done on *machine*. Blocks.

    Within the context of a start no other agent starts a session: it ends once the session is listed here.

    Raises:
        RefusedError: if that process is no agent's, it is not certain whose, or the person did not allow it; or if no
            more sessions start on *machine*.
        UsageError: if the request is not valid.
        UnavailableError: as `starting`.
    """
    actor = require_actor(paths, pid, f"reach sessions of {machine!r}")
    config, fleet = load_or_default(paths), read_fleet(paths)
    own = agents.require_tool(fleet, actor)
    require_machine(config.fleet.machines, machine)
    inherited = agents.find_limits(paths, own.id)
    by = _declare(config, actor, own.name, inherited)
    if request.act == "start":
        require_undrained(paths, machine)
        yield from _start(paths, actor, own.agent, inherited, request, by, agents.with_sender(own, request.text))
        return
    session, starters = fleet.require(request.session), read_starters(paths)
    if request.act != "message" or session.id not in agents.find_kin(actor.session, starters):
        agents.require_child(session, actor, starters, request.act)
    if session.via != machine:
        raise RefusedError(f"session {session.label!r} is not on {machine!r}.")
    match request.act:
        case "prompt" | "message":
            agents.require_prompt(config, fleet, session, actor, starters)
            mark = agents.with_sender if request.act == "prompt" else messages.mark_sender
            text = mark(own, request.text)
            yield MachineCommand(("send", session.id, "-", "--when=idle", "--by=peer", by, "--json"), text.encode())
        case "read":
            yield MachineCommand(("read", session.id, f"--lines={request.lines}", "--json"))
        case "diff":
            yield MachineCommand(("diff", session.id, "--json"))
        case "finish":
            yield MachineCommand(("finish", session.id, "--propose=-", by, "--json"), request.text.encode())


def refusal_of_messages(
    paths: Paths, sender: SessionId, recipient: SessionId, reasons: Sequence[str]
) -> MachineCommand:
    """Return the command that tells the agent of *sender* why *recipient*, whose agent started it, got no message.

    *reasons*: one for each message. *recipient* may be removed. Blocks.
    """
    known = read_fleet(paths).get(recipient)
    name = clean_line(known.name) if known else recipient
    actor = ActingAgent(session=recipient, depth=find_depth(paths, recipient))
    by = _declare(load_or_default(paths), actor, name, agents.find_limits(paths, recipient))
    reason = clean_block(" ".join(dict.fromkeys(reasons))).strip()[:REASON_LENGTH]
    which = f"{len(reasons)} of your messages to {name!r} were" if len(reasons) > 1 else f"Your message to {name!r} was"
    text = f"[From kasmon, not from the person you work for]\n{which} not delivered: {reason}"
    return MachineCommand(("send", sender, "-", "--when=idle", "--by=peer", by, "--json"), text.encode())


def _declare(config: Config, actor: ActingAgent, name: str, inherited: StarterLimits | None) -> str:
    """Return the option that says to kasmon there who *actor* is, the name of its session, and the limits here."""
    depth, minutes = config.fleet.depth, config.fleet.minutes
    if inherited is not None:
        depth, minutes = min(depth, inherited.depth), min(minutes, inherited.minutes)
    named = msgspec.structs.replace(actor, machine=socket.gethostname())
    limits = StarterLimits(depth=depth, minutes=minutes, starter=name)
    return f"--actor={msgspec.json.encode(DeclaredAgent(actor=named, limits=limits, name=name)).decode()}"


def _start(
    paths: Paths,
    actor: ActingAgent,
    own_agent: str,
    inherited: StarterLimits | None,
    request: AgentRequest,
    by: str,
    prompt: str,
) -> Iterator[MachineCommand]:
    """Yield the command that starts the requested session, within `starting`."""
    agent = request.agent or own_agent
    agents.require_choices(load_or_default(paths).fleet, own_agent, agent, request.sandbox)
    name = check_name(request.name)
    if name.startswith("-"):
        raise UsageError(f"{name!r} is not a valid session name.", hint="Begin it with a letter.")
    arguments = ["new", name, f"--agent={agent}", "--prompt=-", by, "--json"]
    arguments += [f"--dir={request.folder}"] if request.folder else []
    arguments += [] if request.worktree is None else ["--worktree" if request.worktree else "--no-worktree"]
    arguments += [] if request.sandbox is None else [f"--sandbox={request.sandbox}"]
    with agents.starting(paths, actor, inherited):
        yield MachineCommand(tuple(arguments), prompt.encode(), actor.session)


def require_machine(allowed: tuple[str, ...], machine: str) -> None:
    """Raise `RefusedError` unless *machine* is one of those *allowed*."""
    if machine not in allowed:
        names = ", ".join(map(repr, allowed)) or "none"
        raise RefusedError(
            f"an agent cannot reach sessions of {machine!r}: the machines that the person allows are {names}.",
            hint="The person can add it to fleet.machines in the config.",
        )
