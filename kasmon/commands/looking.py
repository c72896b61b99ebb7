"""Verbs that look once at one thing: `show` and `inbox`."""

import asyncio
import shlex
from collections import deque
from collections.abc import Collection
from typing import Any, Final

import msgspec

from kasmon.clean import clean_line, redact
from kasmon.commands.listing import is_utf8
from kasmon.commands.objects import answer, request_object, shown_object
from kasmon.commands.output import say, tell
from kasmon.commands.table import age, state_words, wave_words
from kasmon.errors import KasmonError, LogMissingError
from kasmon.host.secret import secrets_of
from kasmon.model.command import Mode
from kasmon.model.event import Event
from kasmon.model.figures import clock
from kasmon.model.fleet import peers_of, requests
from kasmon.model.permission import Request, SessionId
from kasmon.model.session import Session, Tokens
from kasmon.model.state import SessionState
from kasmon.paths import Places, places
from kasmon.store.log import Cursor, EventLog
from kasmon.supervisor import verb
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once

EVENTS: Final = 20
"""How many of its last events `show` shows."""
LAST_WORDS: Final = 5
"""How many of the last lines that its agent wrote to stderr `show` shows."""
TAIL_BYTES: Final = 256 * 1024


def show(wanted: str, *, wants_json: bool) -> None:
    """Print everything that is known of one session.

    Raises:
        NotFoundError: if there is none.
    """
    where = places()
    fleet = look_once(where)
    session = find(fleet, wanted)
    events, pane, peers = last_events(where, session.id), seen_pane(where, session), peers_of(fleet, session)
    if wants_json:
        tell(answer(session=shown_object(session, peers, events, pane)))
        return
    say(*described(session, fleet.at))
    say(*(f"  beside    {peer.name} ({peer.state})" for peer in peers))
    if pane:
        say(f"  terminal  {pane['width']}x{pane['height']}, {pane['clients']} attached, title {pane['title']!r}")
        say(f"  folder    {pane['cwd']}", f"  attach    {shlex.join(pane['attach'])}")
    for receipt in session.receipts[-5:]:
        code = "" if receipt.exit_code is None else f"exit code {receipt.exit_code}"
        why = ", ".join(part for part in (code, receipt.reason) if part)
        say(f"  prompt    {receipt.state}: {receipt.text}" + (f" ({why})" if why else ""))
    for ask in session.asks:
        say(f"  waits     {ask.id}: {ask.tool} {ask.title}".rstrip())
    for event in events[-8:]:
        say(f"  {clock(event.at)}  {type(event).__struct_config__.tag}")


def described(session: Session, now: float) -> list[str]:
    """The facts of a session as lines."""
    state, since = state_words(session, utf8=is_utf8()), age(now - session.since)
    tokens = session.tokens
    pid = None if session.state is SessionState.ENDED else session.pid
    lines = {
        "state": f"{state}, for {since}, says {session.source or 'nobody'}",
        "why": session.unsure_why or session.end_why or session.stuck_why,
        "waits": session.waits,
        "done": "" if session.done is None else session.done or "yes",
        "agent": f"{session.agent} in {session.mode} by {session.backend}"
        + (", bypassing" if session.bypassing else ""),
        "adopted": f"{session.adopted} of your own tmux" if session.adopted else "",
        "fallback": session.fallback or "",
        "model": session.model,
        "permits": session.permission_mode,
        "place": f"{session.workdir} on {session.machine or 'this machine'}",
        "wave": "" if session.wave is None else wave_words(session),
        "process": f"{pid or 'none'}, started {session.generation} times",
        "proof": session.proof,
        "tokens": "" if tokens is None else token_words(tokens),
        "cost": "" if session.cost_usd is None else f"{session.cost_usd:.2f} USD",
        "last": session.last_line,
    }
    told = [*lines.items(), *(("stderr", line) for line in session.last_words.splitlines()[-LAST_WORDS:])]
    return [f"{session.name} ({session.id})", *(f"  {name:<9} {text}" for name, text in told if text)]


def token_words(tokens: Tokens) -> str:
    """The figures that its agent tells, with a dash for the others."""
    is_counted = tokens.used is not None
    read, written = (f"{count}" if is_counted else "-" for count in (tokens.input, tokens.output))
    return f"{read} in, {written} out, {tokens.context or '-'} in context"


def inbox(*, wants_json: bool) -> None:
    """Print the requests that wait, oldest first."""
    where = places()
    fleet = look_once(where)
    waiting = requests(fleet)
    if wants_json:
        tell(answer(requests=[request_object(request) for request in waiting]))
        return
    names = {session.id: session.name for session in fleet.sessions}
    for request in waiting:
        known = secrets_of(where, request.session)
        text = redact(request.shown or request.title, known)[0].replace("\n", " ")
        set_aside = ", set aside" if request.later else ""
        say(
            f"{request.id}  {names[request.session]}  {request.kind}{set_aside}  {age(fleet.at - request.asked_at)}",
            f"    {clean_line(request.tool)} {text}".rstrip(),
            *(f"    {line}" for line in (*option_lines(request, known), *reason_lines(request, known))),
            f"    {answer_hint(request)}",
        )
    if not waiting:
        say("Nothing waits for you.")


def option_lines(request: Request, known: Collection[str]) -> list[str]:
    """The answers to choose of a question, each with its number and what it means; secrets hidden."""
    lines: list[str] = []
    for number, option in enumerate(request.options):
        note = request.option_notes[number] if number < len(request.option_notes) else ""
        lines.append(f"{number + 1}. {on_one_row(option, known)}" + (f": {on_one_row(note, known)}" if note else ""))
    return [*lines, "or your own words"] if request.free_text else lines


def reason_lines(request: Request, known: Collection[str]) -> list[str]:
    """Why the agent asks, by its own word, and what "always" and "never" would say."""
    reason = [f"its reason: {on_one_row(request.why, known)}"] if request.why else []
    return [*reason, f"its rule: {on_one_row(request.rule, known)}"] if request.rule else reason


def on_one_row(text: str, known: Collection[str]) -> str:
    """*text* without the secrets that are *known*, its line breaks shown as `␤`."""
    return redact(text, known)[0].replace("\n", "␤")


def answer_hint(request: Request) -> str:
    """The command that answers *request*."""
    if not request.answerable:
        return f"answer it in its terminal: kasmon attach {request.session}"
    return f"kasmon answer {request.id} {'|'.join((*request.choices, 'later'))} --digest {request.digest}"


def last_events(where: Places, session: SessionId) -> list[Event]:
    """The last events of the session's log; few where they are long."""
    log = EventLog(where.log(session))
    start = max(0, log.size() - TAIL_BYTES)
    try:
        return [event for event, _ in deque(log.read(Cursor(start)), maxlen=EVENTS)]
    except LogMissingError:
        return []


def seen_pane(where: Places, session: Session) -> dict[str, Any] | None:
    """What tmux says of the session's pane; None where it has none, or nobody can be asked without starting a host."""
    if session.mode is not Mode.TMUX or session.host is None or not session.host.alive:
        return None
    try:
        pane = asyncio.run(verb.pane(where, session))
    except KasmonError:
        return None
    seen: dict[str, Any] = msgspec.to_builtins(pane)
    names = ("width", "height", "cursor", "title", "cwd", "window", "clients", "attach")
    return {name: seen[name] for name in names}
