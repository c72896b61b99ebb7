"""`ctx`: what the agent inside may know of its place, and what it says of itself. It answers no request, ever."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from kasmon.commands.listing import is_utf8
from kasmon.commands.objects import answer, peers_of, session_object
from kasmon.commands.output import say, tell
from kasmon.commands.table import state_words, wave_words
from kasmon.errors import UsageError
from kasmon.model.session import Session
from kasmon.paths import places
from kasmon.supervisor import verb
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once

OWN_ID = ("KASMON_SESSION", "KASMOS_SESSION")


def ctx(wanted: str | None, *, done: str | None, waiting: str | None, wants_json: bool) -> None:
    """Print the session's task, wave and peers; before that note what it says of itself.

    Args:
        wanted: which session; None is the one that this command runs in.
        done: its task is done, with a word on it; None says nothing.
        waiting: what it waits for on purpose; empty takes that back, None says nothing.

    Raises:
        UsageError: if *wanted* is None and no session's agent runs this.
        KasmonError: why it could not be noted.
    """
    where = places()
    session = find(look_once(where), wanted or own_id(os.environ))
    if done is not None or waiting is not None:
        asyncio.run(verb.declare(where, session, waiting=waiting, done=done))
    fleet = look_once(where)
    session = fleet.get(session.id) or session
    peers = peers_of(fleet, session)
    if wants_json:
        tell(answer(session=session_object(session) | {"peer_sessions": [_peer(peer) for peer in peers]}))
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
    say(*(f"  beside  {peer.name} ({peer.id}): {state_words(peer, utf8=is_utf8())}" for peer in peers))


def own_id(variables: Mapping[str, str]) -> str:
    """The session whose agent's environment this is.

    Raises:
        UsageError: if it is none's.
    """
    for name in OWN_ID:
        if variables.get(name):
            return variables[name]
    raise UsageError(
        "this is not run by a session's agent: KASMON_SESSION is not set.", hint="Say `kasmon ctx SESSION`."
    )


def with_word(arguments: Sequence[str]) -> list[str]:
    """*arguments* of `ctx` in which a `--done` without a word says that it has none."""
    told: list[str] = []
    for at, word in enumerate(arguments):
        told.append(word)
        if word == "--done" and (at + 1 == len(arguments) or arguments[at + 1].startswith("--")):
            told.append("")
    return told


def _peer(peer: Session) -> dict[str, Any]:
    return {
        "id": peer.id,
        "name": peer.name,
        "task": peer.task,
        "state": peer.state.value,
        "waits": peer.waits or None,
        "done": peer.done,
    }
