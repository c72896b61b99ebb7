"""`kasmon show`, `inbox`, `read` and `export`: commands that print one session or its requests."""

import contextlib
import re
import shlex
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from kasmon.cli.arguments import Arg, Json, SessionArgument
from kasmon.cli.ls import branches_of, is_utf8
from kasmon.cli.output.console import as_json, note, print_answer, print_json, say, say_block
from kasmon.cli.output.json_objects import answer, request_object, session_object, shown_object
from kasmon.cli.output.table import state_words, wave_words
from kasmon.errors import KasmonError, LogMissingError, UsageError
from kasmon.host.rpc import event_loop
from kasmon.host.rpc.frames import DescribePane, FromHost
from kasmon.model.commands import Mode
from kasmon.model.events import Event
from kasmon.model.fleet import peers_of, requests
from kasmon.model.formatting import age, clock
from kasmon.model.permission import MAY_BE_CUT, Request, SessionId
from kasmon.model.session import Session, Tokens
from kasmon.model.session_state import OVER, SessionState
from kasmon.model.transcript.request_blocks import TOLD
from kasmon.paths import Paths, expanded, user_paths
from kasmon.sanitize import clean_block, clean_line, redact, visible
from kasmon.store.event_log import Cursor, EventLog
from kasmon.supervisor.fleet.lookup import check_here, find
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.permission_mode import FLAGS as PERMISSION_FLAGS
from kasmon.terminal_text.styles import STYLE_CHANGE

_LINE: Final = re.compile(r"-?\d+")


def read(
    wanted: SessionArgument,
    /,
    *,
    span: Annotated[
        str | None, Arg("Lines A:B; -N counts from the end; empty or `-` means the end.", ("--range",), hyphen=True)
    ] = None,
    lines: Annotated[int | None, Arg("Number of lines from the end.")] = None,
    ansi: Annotated[bool, Arg("Keep colours.")] = False,
    wants_json: Json = False,
) -> None:
    """Print a session's screen and the 50 lines above it, or its transcript."""
    start, end = range_of(span)
    if lines is not None and lines < 1:
        raise UsageError(f"cannot read {lines} lines.")
    if span is not None and lines is not None:
        raise UsageError("--range and --lines cannot be combined.", hint="`--range -N:` is the last N lines.")
    where = user_paths()
    session = find(read_fleet(where), wanted)
    from kasmon.supervisor.sessions.read import read_lines  # not for the other commands here

    shown = read_lines(where, session, start, end, lines=lines, ansi=ansi)
    if wants_json:
        print_json(session=session.id, lines=list(shown))
        return
    for line in shown:
        print(with_colours(line) if ansi else clean_block(line))


def range_of(text: str | None) -> tuple[int | None, int | None]:
    """Return the ends of a range `A:B`; None is the buffer's beginning or end, negative counts from its end.

    Raises:
        UsageError: if it is invalid.
    """
    if text is None:
        return None, None
    start, colon, end = text.partition(":")
    if not colon or not all(part in ("", "-") or _LINE.fullmatch(part) for part in (start, end)):
        raise UsageError(
            f"{text!r} is not a range of lines.",
            hint="A range is A:B; each is a line number, -N from the end, `-`, or empty.",
        )
    first, last = (None if part in ("", "-") else int(part) for part in (start, end))
    return first, last


def with_colours(line: str) -> str:
    """Return *line*, cleaned except for its colours, with a reset at its end."""
    parts = STYLE_CHANGE.split(line)
    cleaned = "".join(part if at % 2 else clean_block(part) for at, part in enumerate(parts))
    return f"{cleaned}\x1b[0m" if len(parts) > 1 else cleaned


def export(
    wanted: SessionArgument,
    /,
    *,
    format_: Annotated[
        Literal["markdown", "json", "html"],
        Arg(
            "markdown: for people. html: one page to share. json: for programs, with every event as logged.",
            ("--format",),
        ),
    ] = "markdown",
    turn: Annotated[int, Arg("With markdown and html: only this turn. 1 is the first, -1 the last.")] = 0,
    out: Annotated[str | None, Arg("Output file (must not exist; default: stdout).", hyphen=True)] = None,
    wants_json: Json = False,
) -> None:
    """Export a session's transcript and terminal output."""
    from kasmon.supervisor.sessions.export import as_html, as_markdown, as_objects, write

    wants_json = wants_json or format_ == "json"
    if wants_json and turn:
        raise UsageError("--turn requires the format markdown or html.", hint="Filter the JSON by its events.")
    where = user_paths()
    session = find(read_fleet(where), wanted)
    if wants_json:
        text = as_json(answer(session=session_object(session), **as_objects(where, session)))
    else:
        text = (as_html if format_ == "html" else as_markdown)(where, session, turn)
    if out is None or out == "-":
        print(text, flush=True) if wants_json else say_block(text)
        return
    write(expanded(out), text if text.endswith("\n") else f"{text}\n")
    note(f"exported {session.label} to {out!r}.")


EVENTS: Final = 20
"""How many of the latest events `show` prints."""
ANSWERED: Final = 5
"""How many of the requests answered last `show` prints."""
LAST_WORDS: Final = 5
"""How many of the last stderr lines of its agent `show` prints."""
TAIL_BYTES: Final = 256 * 1024


def show(
    wanted: SessionArgument,
    /,
    *,
    files: Annotated[bool, Arg("Only the files and folders in its folder, as many as are listed quickly.")] = False,
    symbols: Annotated[bool, Arg("Only the names that the code in its folder defines, with their places.")] = False,
    wants_json: Json = False,
) -> None:
    """Show the details of a session."""
    where = user_paths()
    fleet = read_fleet(where)
    session = find(fleet, wanted)
    if files:
        _list_files(session, wants_json=wants_json)
        return
    if symbols:
        _list_symbols(session, wants_json=wants_json)
        return
    events, pane, peers = last_events(where, session.id), seen_pane(where, session), peers_of(fleet, session)
    branch = branches_of([session]).get(session.id)
    if wants_json:
        print_json(session=shown_object(session, peers, events, pane, branch))
        return
    say(*described(session, fleet.at))
    if branch is not None:
        say(f"  branch    {branch.name or 'none checked out'}: {branch.words}")
    say(*(f"  peer      {peer.name} ({peer.state})" for peer in peers))
    if pane:
        say(f"  terminal  {pane['width']}x{pane['height']}, {pane['clients']} attached, title {pane['title']!r}")
        attach = ["kasmon", "attach", session.label] if session.via else pane["attach"]
        say(f"  folder    {session.locate(pane['cwd'])}", f"  attach    {shlex.join(attach)}")
    for receipt in session.receipts[-5:]:
        code = "" if receipt.exit_code is None else f"exit code {receipt.exit_code}"
        why = ", ".join(part for part in (code, receipt.reason) if part)
        say(f"  prompt    {receipt.state}: {receipt.text}" + (f" ({why})" if why else ""))
    for ask in session.requests:
        say(f"  request   {ask.id}: {ask.tool} {ask.title}".rstrip())
    for closed in session.closed[-ANSWERED:]:
        if closed.decision is not None:
            who = f" at {closed.who}" if closed.who else ""
            say(f"  answered  {closed.id}: {TOLD[closed.decision]} by {closed.by}{who}")
            say(*(f"            {line}" for line in visible(closed.diff).split("\n") if closed.diff))
    for event in events[-8:]:
        say(f"  {clock(event.at)}  {type(event).__struct_config__.tag}")


def _list_files(session: Session, *, wants_json: bool) -> None:
    from kasmon.supervisor.worktrees.file_listing import MOST_SENT, listed  # rarely needed

    check_here(session)
    names = listed(Path(session.workdir or "."), MOST_SENT)
    if wants_json:
        print_json(session=session.id, files=names)
    elif names:
        say(*names)


def _list_symbols(session: Session, *, wants_json: bool) -> None:
    from kasmon.supervisor.worktrees.code_symbols import find_symbols  # rarely needed
    from kasmon.supervisor.worktrees.file_listing import MOST_SENT

    check_here(session)
    symbols = find_symbols(Path(session.workdir or "."), MOST_SENT)
    lines = (f"{each.name}  {each.file}:{each.line}" for each in symbols)
    print_answer(*lines, wants_json=wants_json, session=session.id, symbols=msgspec.to_builtins(symbols))


def _turn_failure(session: Session) -> str:
    is_failed = session.state is SessionState.IDLE and session.turn_ended == "error"
    return f"the last turn failed: {session.turn_error}" if is_failed else ""


def _end_why(session: Session) -> str:
    return "" if session.state is SessionState.HIBERNATED else session.end_why


def described(session: Session, now: float) -> list[str]:
    """Return the details of a session as lines."""
    state, since = state_words(session, utf8=is_utf8()), age(now - session.since)
    tokens = session.tokens
    pid = None if session.state in OVER else session.pid
    has_modes = session.exists and session.program in PERMISSION_FLAGS
    lines = {
        "state": f"{state}, for {since} (source: {session.source or 'none'})",
        "why": session.unsure_why or _end_why(session) or session.stuck_why or _turn_failure(session),
        "to end": f"`kasmon stop {session.id}`" if session.is_orphaned else "",
        "waits": session.waits,
        "done": "" if session.done is None else session.done or "yes",
        "agent": f"{session.agent} in {session.mode} by {session.backend}"
        + (", bypassing" if session.bypassing else ""),
        "adopted": f"{session.adopted} in your own tmux" if session.adopted else "",
        "fallback": session.fallback or "",
        "model": session.model,
        "permits": session.permission_mode or ("not reported by the agent" if has_modes else ""),
        "place": session.workdir if session.via else f"{session.workdir} on {session.machine or 'this machine'}",
        "worktree": worktree_words(session),
        "tags": ", ".join(session.tags),
        "wave": "" if session.wave is None else wave_words(session),
        "process": f"{pid or 'none'}, started {session.generation} times",
        "proof": session.proof,
        "tokens": "" if tokens is None else token_words(tokens),
        "cost": "" if session.cost_usd is None else f"{session.cost_usd:.2f} USD",
        "last": session.last_line,
    }
    shown = [*lines.items(), *(("stderr", line) for line in session.last_words.splitlines()[-LAST_WORDS:])]
    return [f"{session.label} ({session.id})", *(f"  {name:<9} {text}" for name, text in shown if text)]


def worktree_words(session: Session) -> str:
    """Return the branch and the base of the worktree that *session* works in; empty if in none."""
    from kasmon.supervisor.worktrees.recognized_worktree import worktree_of

    tree = worktree_of(session)
    return "" if tree is None else f"branch {tree.branch}, from {tree.base_name} ({tree.base[:12]}), of {tree.source}"


def token_words(tokens: Tokens) -> str:
    """Return the figures that its agent reports, with a dash for the others."""
    is_counted = tokens.used is not None
    read, written = (f"{count}" if is_counted else "-" for count in (tokens.input, tokens.output))
    return f"{read} in, {written} out, {tokens.context or '-'} in context"


def inbox(
    *,
    alike: Annotated[str, Arg("List only this request and similar ones, with one digest for all.")] = "",
    wants_json: Json = False,
) -> None:
    """List pending requests, oldest first."""
    if alike:
        from kasmon.cli.answer_alike import list_alike

        return list_alike(alike, wants_json=wants_json)
    where = user_paths()
    fleet = read_fleet(where)
    waiting = requests(fleet)
    if wants_json:
        print_json(requests=[request_object(request) for request in waiting])
        return None
    if not waiting:
        say("No pending requests.")
        return None
    from kasmon.host.journal.secrets import secrets_of  # only for requests: it loads what is known of agents

    names = {session.id: session.label for session in fleet.sessions}
    for request in waiting:
        known = secrets_of(where, request.session)
        text = redact(request.shown or request.title, known)[0].replace("\n", " ")
        set_aside = ", set aside" if request.later else ""
        say(
            f"{request.id}  {names[request.session]}  {request.kind}{set_aside}  {age(fleet.at - request.asked_at)}",
            f"    {clean_line(request.tool)} {text}".rstrip(),
            *((f"    {MAY_BE_CUT} (kasmon attach {request.session})",) if request.may_be_cut else ()),
            *(f"    {line}" for line in (*option_lines(request, known), *reason_lines(request, known))),
            f"    {answer_hint(request)}",
        )
    return None


def option_lines(request: Request, secrets: Collection[str]) -> list[str]:
    """Return the options of a question, each with its number and description; secrets hidden."""
    lines: list[str] = []
    for number, option in enumerate(request.options):
        note = request.option_notes[number] if number < len(request.option_notes) else ""
        lines.append(
            f"{number + 1}. {on_one_row(option, secrets)}" + (f": {on_one_row(note, secrets)}" if note else "")
        )
    return [*lines, "or a custom answer (--text)"] if request.free_text else lines


def reason_lines(request: Request, secrets: Collection[str]) -> list[str]:
    """Return the agent's own reason, and what "always" and "never" would cover."""
    reason = [f"reason: {on_one_row(request.why, secrets)}"] if request.why else []
    return [*reason, f"rule: {on_one_row(request.rule, secrets)}"] if request.rule else reason


def on_one_row(text: str, secrets: Collection[str]) -> str:
    """Return *text* without the *secrets* secrets, its line breaks shown as `␤`."""
    return redact(text, secrets)[0].replace("\n", "␤")


def answer_hint(request: Request) -> str:
    if not request.answerable:
        return f"answer in its terminal: kasmon attach {request.session}"
    return f"kasmon answer {request.id} {'|'.join((*request.choices, 'later'))} --digest {request.digest}"


def last_events(where: Paths, session: SessionId) -> list[Event]:
    """Return the last events of the session's log; fewer if they are long."""
    log = EventLog(where.log(session))
    start = max(0, log.size() - TAIL_BYTES)
    try:
        return [event for event, _ in deque(log.read(Cursor(start)), maxlen=EVENTS)]
    except LogMissingError:
        return []


def seen_pane(where: Paths, session: Session) -> dict[str, Any] | None:
    """Return tmux's details of the session's pane; None if it has none, or no host of this version runs."""
    if session.mode is not Mode.TMUX or session.host is None or not session.host.alive:
        return None
    try:
        pane = event_loop.run(_describe_pane(where, session))
    except KasmonError:
        return None
    seen: dict[str, Any] = msgspec.to_builtins(pane)
    names = ("width", "height", "cursor", "title", "cwd", "window", "clients", "attach")
    return {name: seen[name] for name in names}


async def _describe_pane(where: Paths, session: Session) -> FromHost:
    """Ask the running tmux host, which is neither started nor replaced for this."""
    from kasmon.host.rpc.blocking_client import BlockingLink  # only for a terminal whose host runs

    socket = where.socket(session.id) if session.via else where.tmux_host_socket
    async with contextlib.aclosing(await BlockingLink.open(socket)) as host:
        return await host.ask(DescribePane(n=0, session=session.id))
