"""Recover lost sessions that belong to no plan: each resumes its own conversation, or is left.

A program that stores no conversation, such as a shell, is not restarted: its commands may not be safe to run twice.
"""

import asyncio
import glob
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from kasmon.backends.common.environment import inherited, load_variables, own_prefixes, program_of
from kasmon.config.agent_address import machine_of
from kasmon.errors import LaunchError, RefusedError
from kasmon.model.commands import Launch, Mode, ReceiptId, ReceiptState
from kasmon.model.events import Event, MessageWritten, ReceiptChanged, TurnStarted
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths, write_private
from kasmon.store.session_reader import load_launch, read_events
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.recovery import claude, codex, gemini, opencode
from kasmon.supervisor.recovery.conversation import LoggedConversation, RecoveryMatch, StoredConversation, find_match
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.conversation import home_of

ARRIVED = (ReceiptState.SUBMITTED, ReceiptState.STARTED, ReceiptState.FINISHED, ReceiptState.FAILED)


def read_conversation(paths: Paths, session: Session) -> LoggedConversation:
    """Return what the log of *session* has of its conversation; without a log, only the session's data. Blocks."""
    return collect_conversation(session, read_events(paths, session.id))


def collect_conversation(session: Session, events: Iterable[Event]) -> LoggedConversation:
    """Return what *events*, those of *session*, contain of its conversation."""
    by_turn: list[str] = []
    by_receipt: dict[ReceiptId, str] = {}
    typed: list[str] = []
    messages: list[str] = []
    for event in events:
        match event:
            case TurnStarted(by="agent"):
                pass
            case TurnStarted(prompt=prompt):
                by_turn.append(prompt)
            case ReceiptChanged(receipt=receipt, prompt=prompt):
                if prompt:
                    by_receipt[receipt.id] = prompt
                if receipt.state in ARRIVED and receipt.id in by_receipt:
                    typed.append(by_receipt.pop(receipt.id))
            case MessageWritten(within="", text=text) if text.strip():
                messages.append(text)
            case _:
                pass
    return LoggedConversation(
        directory=session.workdir,
        id=session.resume_id or "",
        since=session.created_at,
        prompts=tuple(text for text in by_turn or typed if text.strip()),
        is_whole=bool(by_turn),  # not in a terminal: users type into it too, which no event records
        last_messages=tuple(messages[-2:]),
    )


UNCERTAIN = (ReceiptState.TYPED, ReceiptState.UNSURE, ReceiptState.LOST)
"""States of prompts whose delivery is uncertain."""
RESTARTS = "`kasmon restart` starts it again"


class LostSession(msgspec.Struct, frozen=True, kw_only=True):
    """One lost session, and what recovery does about it."""

    session: Session
    action: Literal["resume", "ask", "leave"]
    why: str
    """What proves its conversation; what is uncertain; or why it is left."""
    resume: str = ""
    """The agent's own id of the conversation to resume."""
    candidates: tuple[StoredConversation, ...] = ()
    lost: tuple[str, ...] = ()
    """What cannot be recovered, as text."""


def find_lost_sessions(paths: Paths, fleet: Fleet) -> list[LostSession]:
    """Return what to do about each lost or handed-over session of *fleet*, oldest first. Blocks.

    Sessions of plans and of other machines are left out.
    """
    gone = [
        each
        for each in fleet.here
        if (each.state is SessionState.LOST or each.handed_over) and not (each.plan or each.mode is Mode.INTERPRETER)
    ]
    taken = {each.resume_id for each in fleet.sessions if each.resume_id}
    return [_case(paths, each, taken - {each.resume_id}) for each in sorted(gone, key=lambda each: each.created_at)]


def choose(case: LostSession, conversation: str) -> LostSession:
    """Return *case* with the *conversation* that the user chose. Raises `RefusedError` if it is no candidate."""
    kept = next((each for each in case.candidates if each.id == conversation), None)
    if kept is None:
        ids = ", ".join(each.id for each in case.candidates) or "none"
        raise RefusedError(
            f"{conversation!r} does not match session {case.session.name!r}.", hint=f"Matching conversations: {ids}."
        )
    return msgspec.structs.replace(case, action="resume", resume=kept.id, why="chosen by you")


async def bring_back(paths: Paths, case: LostSession) -> str:
    """Restart the session of *case* with its conversation; describe it with the proof. It stays lost if that fails."""
    before = case.session
    if before.resume_id != case.resume:
        launch = msgspec.structs.replace(await asyncio.to_thread(load_launch, paths, before.id), resume=case.resume)
        await asyncio.to_thread(write_private, paths.launch(before.id), msgspec.json.encode(launch))
        before = msgspec.structs.replace(before, resume_id=case.resume)
    await session_operations.restart(paths, before)
    now = (await asyncio.to_thread(read_fleet, paths)).get(before.id)
    proof = f"; {now.proof}" if now is not None and now.proof else ""
    return f"resumed conversation {case.resume}, {case.why}{proof}"


def _case(paths: Paths, session: Session, taken: set[str]) -> LostSession:
    lost = tuple(_list_losses(session))
    if session.adopted:
        return LostSession(
            session=session, action="leave", why="it is in your own tmux: kasmon starts nothing there", lost=lost
        )
    if machine_of(session.agent):
        why = f"it may still run on its machine: `kasmon restart {session.id}` reconnects"
        return LostSession(session=session, action="leave", why=why)
    try:
        finding = find_conversation(paths, session, load_launch(paths, session.id), taken)
    except (LaunchError, OSError) as error:
        reason = error.message if isinstance(error, LaunchError) else error.strerror
        why = f"its log cannot be read: {reason}"
        return LostSession(session=session, action="leave", why=why, lost=lost)
    match finding:
        case RecoveryMatch(kind="proven", conversation=StoredConversation(id=id_), why=why):
            return LostSession(session=session, action="resume", why=why, resume=id_, lost=lost)
        case RecoveryMatch(kind="proven", why=why):
            return LostSession(session=session, action="resume", why=why, resume=session.resume_id or "", lost=lost)
        case RecoveryMatch(kind="ask", why=why, candidates=candidates):
            return LostSession(session=session, action="ask", why=why, candidates=candidates, lost=lost)
    return LostSession(
        session=session, action="leave", why=f"{finding.why}; {RESTARTS}", lost=("its conversation", *lost)
    )


def find_conversation(
    paths: Paths, session: Session, launch: Launch, taken: Collection[str], *, only: str = ""
) -> RecoveryMatch:
    """Return the conversation of *session* that its agent stores, with what proves it. Blocks.

    Args:
        taken: ids of other sessions' conversations, which are excluded.
        only: read no other conversation than the one with this id, where the agent's files are named by it.
    """
    stored = read_conversations(paths, launch, only)
    if stored is not None:
        return find_match(read_conversation(paths, session), stored, taken)
    if session.resume_id and launch.mode is not Mode.TMUX:  # its backend verifies it before the first prompt
        return RecoveryMatch(kind="proven", why="matched by its id")
    return RecoveryMatch(kind="none", why="kasmon knows of no conversation that its program stores")


def _list_losses(session: Session) -> list[str]:
    """Return what of *session* is lost even if its conversation is resumed."""
    lost = []
    if session.in_turn or any(receipt.state is ReceiptState.STARTED for receipt in session.receipts):
        lost.append("the rest of the interrupted turn")
    if session.mode is Mode.TMUX:
        lost.append("its screen and scrollback")
    if uncertain := sum(receipt.state in UNCERTAIN for receipt in session.receipts):
        lost.append(f"{uncertain} prompt{'s' * (uncertain > 1)} with unknown delivery")
    return lost


class _Store(NamedTuple):
    """Where a program stores conversations: in the folder of a variable, else below the home folder."""

    read: Callable[[Path, str], Iterator[StoredConversation]]
    """Gets the folder, and a pattern of their ids."""
    folder: str
    variable: str = ""
    within: str = ""
    """The folder within that one."""


STORES: Final = {
    "claude": _Store(claude.conversations, ".claude", "CLAUDE_CONFIG_DIR"),
    "codex": _Store(codex.conversations, ".codex", "CODEX_HOME"),
    "gemini": _Store(gemini.conversations, ".gemini"),
    "opencode": _Store(opencode.conversations, ".local/share", "XDG_DATA_HOME", "opencode"),
}


def read_conversations(
    paths: Paths, launch: Launch, only: str = "", own: Mapping[str, str] | None = None
) -> list[StoredConversation] | None:
    """Return all conversations that the agent of *launch* stores; None if their format is unknown. Blocks.

    Args:
        only: as `find_conversation`.
        own: its own variables; None for those of its session.
    """
    store = STORES.get(program_of(launch.argv)) or STORES.get(launch.agent)
    if store is None:
        return None
    guest_home = home_of(paths, launch)
    variables = load_variables(paths, launch.session) if own is None else dict(own)
    if guest_home is None:
        variables = inherited(own_prefixes(launch.argv), os.environ) | variables
    name = glob.escape(only).replace("/", "[/]") if only else "*"  # an agent reported it
    home = guest_home or Path(variables.get("HOME") or Path.home())
    folder = Path(variables.get(store.variable) or home / store.folder) / store.within
    return list(store.read(folder, name))
