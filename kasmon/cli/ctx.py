"""`kasmon ctx` and `kasmon tell`: what an agent reads about its own session, and reports about itself.

Neither answers a permission request.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from kasmon.cli.arguments import Arg, Json, Text
from kasmon.cli.ls import is_utf8
from kasmon.cli.output.console import print_json, say
from kasmon.cli.output.json_objects import receipt_object, session_object
from kasmon.cli.output.table import state_words, wave_words
from kasmon.config.parser import load_or_default
from kasmon.config.profile import programs
from kasmon.errors import KasmonError, UsageError
from kasmon.model.commands import Receipt, ReceiptId, ReceiptState
from kasmon.model.fleet import Fleet, peers_of
from kasmon.model.formatting import clock
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.fleet.lookup import find, own_id
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.peers import messages
from kasmon.supervisor.plans.peers.context import TaskContext, context_of, now_of
from kasmon.supervisor.sessions import session_operations

NOTES = "notes"


def send_to_peer(
    wanted: Annotated[str, Arg("Peer name, id or task number; `wave` means all peers.", ("PEER",))],
    text: Text = None,
    /,
    *,
    wants_json: Json = False,
) -> None:
    """Message a peer from a plan's session (delivered after its current turn)."""
    where = user_paths()
    fleet = read_fleet(where)
    teller = find(fleet, own_session(os.environ))
    message = sys.stdin.read() if text == "-" else text or ""
    if not message.strip():
        raise UsageError("missing message.", hint="Usage: `kasmon tell PEER TEXT`, or `-` to read it from stdin.")
    context = context_of(where, teller.id)
    if wanted == NOTES and context is not None and context.machine:
        asyncio.run(messages.hand_over(where, teller, NOTES, NOTES, message))
        say(f"noted; {context.notes} shows it once the plan's runner has added it")
        return
    if wanted == NOTES:
        if teller.plan is None:
            raise UsageError(f"{teller.name!r} does not belong to a plan, so it has no notes.")
        path = PlanLog(where, teller.plan).notes
        messages.write_note(path, teller, message, clock(time.time()))
        say(f"noted in {path}")
        return
    recipients = messages.find_recipients(where, fleet, teller, wanted, programs(load_or_default(where)))
    receipts = []
    for peer in recipients:
        try:
            receipts.append(asyncio.run(messages.send_to(where, teller, peer, message)))
        except KasmonError as error:
            if len(recipients) == 1 or isinstance(error, UsageError):
                raise
            session, why = SessionId(peer.id or ""), error.message
            receipts.append(Receipt(id=ReceiptId(""), session=session, state=ReceiptState.REFUSED, reason=why))
    if wants_json:
        print_json(receipts=[receipt_object(receipt) for receipt in receipts])
        return
    for peer, receipt in zip(recipients, receipts, strict=True):
        say(f"{peer.name}: {receipt.state}{f', {receipt.reason}' if receipt.reason else ''}")


def ctx(
    wanted: Annotated[
        str | None,
        Arg("Session id or name (default: the session that runs this command).", ("SESSION",), completer="sessions"),
    ] = None,
    /,
    *,
    done: Annotated[str | None, Arg("Report the task as done, with an optional note.", hyphen=True)] = None,
    waiting: Annotated[
        str | None, Arg("Report what the agent waits for on purpose ('' clears it).", hyphen=True)
    ] = None,
    wants_json: Json = False,
) -> None:
    """Show an agent its task, wave and peers; report that the task is done or that the agent waits."""
    where = user_paths()
    session = find(read_fleet(where), wanted or own_session(os.environ))
    if done is not None or waiting is not None:
        asyncio.run(session_operations.declare(where, session, waiting=waiting, done=done))
    fleet = read_fleet(where)
    session = fleet.get(session.id) or session
    context = context_of(where, session.id)
    peers = [now_of(peer) for peer in peers_of(fleet, session)] if context is None else peers_of_plan(context, fleet)
    if wants_json:
        more = {"peer_sessions": peers, "notes": None if context is None else context.notes}
        print_json(session=session_object(session) | more)
        return
    say(f"{session.name} ({session.id}): {state_words(session, utf8=is_utf8())}")
    for name, text in {
        "wave": "" if session.wave is None else wave_words(session),
        "plan": session.plan or "",
        "waits": session.waits,
        "done": "" if session.done is None else session.done or "yes",
    }.items():
        if text:
            say(f"  {name:<7} {text}")
    if context is not None:
        say(f"  task    {context.task} {context.title}", f"  notes   {context.notes}")
    say(*(f"  peer    {_describe_peer(peer, fleet)}" for peer in peers))


def own_session(variables: Mapping[str, str]) -> str:
    """Return the session whose agent has this environment. Raises `UsageError` if there is none."""
    if session := own_id(variables):
        return session
    raise UsageError(
        "no session given, and KASMON_SESSION is not set: this command was not run by a session's agent.",
        hint="Run `kasmon ctx SESSION`.",
    )


def with_subcommand(arguments: Sequence[str]) -> list[str]:
    """Return *arguments* of `ctx`, with an empty remark added to a `--done` without one."""
    result: list[str] = []
    for at, argument in enumerate(arguments):
        result.append(argument)
        if argument == "--done" and (at + 1 == len(arguments) or arguments[at + 1].startswith("--")):
            result.append("")
    return result


def peers_of_plan(context: TaskContext, fleet: Fleet) -> list[dict[str, Any]]:
    """Return the peers in the context written by the plan's runner, with their current state."""
    result = []
    for peer in context.peer_sessions:
        session = fleet.get(SessionId(peer.id or ""))
        now = {} if session is None else now_of(session)
        shown = msgspec.to_builtins(peer) | now | {"machine": peer.machine or None}
        result.append({name: value for name, value in shown.items() if name != "is_agent"})
    return result


def _describe_peer(peer: Mapping[str, Any], fleet: Fleet) -> str:
    """Return one peer as a line of text: its name, its state, its branch and files."""
    session = fleet.get(SessionId(peer["id"] or ""))
    state = (peer["state"] or peer["task_state"]) if session is None else state_words(session, utf8=is_utf8())
    task = f"task {peer['task']}"
    text = f"{peer['name'] or peer.get('title')} ({peer['id'] or task}): {state}"
    if peer.get("machine"):
        text += f" on {peer['machine']}"
    if peer.get("branch"):
        text += f" on {peer['branch']}"
    files = peer.get("files") or []
    more = f" and {len(files) - 5} more" if len(files) > 5 else ""
    return f"{text}: {', '.join(files[:5])}{more}" if files else text
