"""The HTML of the list of sessions and of the page of one session: one column, readable without a script. Pure.

The live part of a page is a list of blocks, elements with an id each. The stream of a page sends those that changed.
"""

from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

from kasmon.model.commands import Receipt, ReceiptState
from kasmon.model.fleet import Fleet, by_attention
from kasmon.model.formatting import GLYPHS, state_label, state_name, unreachable_words
from kasmon.model.permission import Request
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.sanitize import clean_line, redact
from kasmon.web.request_page import STYLE, format_age, hash_source, policy_headers, render_document

PAGE_STYLE: Final = STYLE + (files("kasmon.web") / "page" / "fleet.css").read_text("utf-8")
SCRIPT: Final = (files("kasmon.web") / "page" / "fleet.js").read_text("utf-8")
HEADERS: Final = policy_headers(
    PAGE_STYLE,
    script_src=hash_source(SCRIPT),
    connect_src="'self'",
    manifest_src="'self'",
    worker_src="'self'",
    img_src="'self'",
)
APP_FILES: Final = {
    name: (kind, (files("kasmon.web") / "page" / name).read_text("utf-8"))
    for name, kind in {
        "app.webmanifest": "application/manifest+json",
        "icon.svg": "image/svg+xml",
        "worker.js": "text/javascript",
    }.items()
}
"""The files of the web app, in its folder, with their MIME types."""
APP_HEAD: Final = (
    '<link rel="manifest" href="app.webmanifest" crossorigin="use-credentials"><link rel="icon" href="icon.svg">'
    '<link rel="apple-touch-icon" href="icon.svg">'
)
MAX_SESSIONS: Final = 200
"""The most sessions that the list shows."""
MAX_REQUESTS: Final = 50
LINE_LENGTH: Final = 160
RECEIPTS: Final = 5
"""How many prompts the page of a session shows."""
PROMPT_LENGTH: Final = 16_000
"""The longest prompt, in characters."""

REMOVED: Final = '<p class="warning" id="b-state">This session was removed.</p>'

Blocks = Mapping[str, str]
"""The id of each block, in order, and its HTML."""


def list_blocks(fleet: Fleet) -> Blocks:
    """Return the live part of the list: open requests, those that were not set aside first, then the sessions."""
    sessions = by_attention(fleet.sessions)
    waiting = [(session, ask) for session in sessions for ask in session.requests]
    waiting.sort(key=lambda each: (each[1].later, each[1].asked_at))
    blocks = {"b-total": f'<p class="soft" id="b-total">{_total(sessions, len(waiting))}</p>'}
    if fleet.read_only:
        blocks["b-problem"] = f'<p class="warning" id="b-problem">{_line(fleet.read_only)}</p>'
    if waiting:
        blocks["b-requests"] = '<h2 id="b-requests">Requests</h2>'
    for session, ask in waiting[:MAX_REQUESTS]:
        blocks[f"q-{ask.id}"] = _request_block(ask, session)
    blocks["b-sessions"] = '<h2 id="b-sessions">Sessions</h2>'
    blocks |= {f"s-{session.id}": _session_block(session) for session in sessions[:MAX_SESSIONS]}
    hidden = max(0, len(sessions) - MAX_SESSIONS)
    if hidden:
        blocks["b-more"] = f'<p class="soft" id="b-more">And {hidden} more sessions: `kasmon ls` lists all.</p>'
    return blocks


def session_blocks(session: Session) -> Blocks:
    """Return the live part of the page of *session*: its state, its requests, and its last prompts."""
    why = session.unsure_why or session.stuck_why or ""
    blocks = {
        "b-state": f'<p id="b-state">{_mark(session)} {_details(session)} · {_time(session.since)}</p>',
        "b-folder": f'<p class="soft" id="b-folder">{_line(session.workdir) or "no folder"}</p>',
    }
    if session.last_line:
        blocks["b-line"] = f'<p class="line" id="b-line">{_line(session.last_line)}</p>'
    if why and not session.is_unreachable:
        blocks["b-why"] = f'<p class="warning" id="b-why">{_line(why)}</p>'
    blocks |= {f"q-{ask.id}": _request_block(ask, session) for ask in session.requests[:MAX_REQUESTS]}
    for receipt in reversed(session.receipts[-RECEIPTS:]):
        blocks[f"p-{receipt.id}"] = _receipt_block(receipt)
    return blocks


def render_list(blocks: Blocks, form_value: str, now: float, *, can_add_passkey: bool) -> str:
    """Return the list; *form_value* is what its forms send back."""
    passkey = (
        '<form id="passkey-add" hidden>'
        f"{_hidden_input(form_value)}"
        '<button class="quiet">Add a passkey</button><p class="soft" role="status"></p></form>'
        if can_add_passkey
        else '<p class="soft">A passkey needs HTTPS, or the name localhost.</p>'
    )
    push = (
        f'<form id="push" hidden>{_hidden_input(form_value)}<button class="quiet">Notify this device</button>'
        '<p class="soft" role="status"></p></form>'
    )
    log_out = (
        f'<form method="post" action="logout">{_hidden_input(form_value)}<button class="quiet">Log out</button></form>'
    )
    body = [*_live("kasmon", blocks, "events", now), _open_form(form_value, ""), push, passkey, log_out]
    return render_document("Sessions", body, style=PAGE_STYLE, script=SCRIPT, head=APP_HEAD)


def render_session(
    session: Session, blocks: Blocks, *, form_value: str, once: str, now: float, note: str = "", text: str = ""
) -> str:
    """Return the page of *session*, with a form for a prompt.

    Args:
        blocks: from `session_blocks`.
        form_value: what its forms send back.
        once: a value of the form for a prompt: a second form with it sends nothing.
        now: in seconds since the epoch.
        note: what to read first.
        text: what the field for the prompt contains.
    """
    can_take = session.state is not SessionState.ENDED
    prompt = (
        f'<form method="post" action="{quote(session.id)}" autocomplete="off">{_hidden_input(form_value)}'
        f'<input type="hidden" name="once" value="{escape(once)}"><label>Prompt<textarea name="prompt" rows="4" '
        f'maxlength="{PROMPT_LENGTH}" required>\n{escape(text)}</textarea></label><label class="option">'
        '<input type="checkbox" name="when" value="idle"> Wait until it is idle</label>'
        '<button class="allow">Send</button></form>'
        if can_take
        else '<p class="soft">It has ended, and accepts no prompt.</p>'
    )
    body = [
        f'<p class="warning" role="alert">{_line(note, 1000)}</p>' if note else "",
        *_live(_line(session.label), blocks, f"../events?session={quote(session.id)}", now),
        prompt,
        _open_form(form_value, "../"),
    ]
    return render_document(clean_line(session.label), body, back="../", style=PAGE_STYLE, script=SCRIPT)


def render_login(form_value: str) -> str:
    """Return the page of a link that logs in: its form uses the link up."""
    body = [
        "<h1>Log in to kasmon</h1>",
        "<p>This browser can then see all sessions, send prompts to agents and answer their requests.</p>",
        f'<form method="post" action="?">{_hidden_input(form_value)}<button class="allow">Log in</button></form>',
    ]
    return render_document("Log in", body, style=PAGE_STYLE)


def render_logged_out(how: str) -> str:
    """Return the page of a browser that is not logged in and may have a passkey; *how* to log in otherwise."""
    body = [
        "<h1>Not logged in</h1>",
        f"<p>{escape(how)}</p>",
        '<form id="passkey-login" hidden><button class="allow">Log in with a passkey</button>'
        '<p class="soft" role="status"></p></form>',
    ]
    return render_document("Not logged in", body, style=PAGE_STYLE, script=SCRIPT)


def _live(heading: str, blocks: Blocks, events: str, now: float) -> tuple[str, ...]:
    status = f'<h1>{heading} <span class="when" id="live-status" role="status">not live</span></h1>'
    inner = "\n".join(_with_ages(html, now) for html in blocks.values())
    return status, f'<main id="live" data-events="{escape(events)}" data-now="{now:.0f}">\n{inner}\n</main>'


def _with_ages(html: str, now: float) -> str:
    """Return *html* with the age in each empty `time` element, for browsers that run no script."""
    head, *rest = html.split('<time data-at="')
    for part in rest:
        at, _, tail = part.partition('"></time>')
        head += f'<time data-at="{at}">{format_age(now - float(at))}</time>{tail}'
    return head


def _open_form(form_value: str, base: str) -> str:
    """Return the form that the buttons of requests belong to: so their HTML is the same for every browser."""
    return f'<form method="post" id="open" action="{base}open">{_hidden_input(form_value)}</form>'


def _hidden_input(form_value: str) -> str:
    return f'<input type="hidden" name="form" value="{escape(form_value)}">'


def _total(sessions: Iterable[Session], requests: int) -> str:
    count = len(list(sessions))
    parts = (f"{requests} open request" + "s" * (requests != 1), f"{count} session" + "s" * (count != 1))
    return " · ".join(parts)


def _request_block(ask: Request, session: Session) -> str:
    what = _line(f"{ask.tool} {ask.title}".strip() or ask.kind.value)
    later = " · set aside" if ask.later else ""
    return (
        f'<button class="row request" form="open" name="request" value="{escape(ask.id)}" id="q-{escape(ask.id)}">'
        f'<span class="mark asking" aria-hidden="true">{GLYPHS["asking"][0]}</span> '
        f'<b>{_line(session.label)}</b> <span class="when">{_time(ask.asked_at)}{later}</span>'
        f'<span class="line">{what}</span></button>'
    )


def _session_block(session: Session) -> str:
    folder = PurePosixPath(session.workdir.partition(":")[2] or session.workdir).name
    text = unreachable_words(session.since, session.since).partition(" since")[0] if session.is_unreachable else ""
    line = _line(text or session.last_line or session.unsure_why or "")
    return (
        f'<a class="row" href="s/{quote(session.id)}" id="s-{escape(session.id)}">{_mark(session)} '
        f'<b>{_line(session.label)}</b> <span class="when">{_time(session.since)}</span>'
        f'<span class="soft">{_details(session)}{" · " + _line(folder) if folder else ""}</span>'
        + (f'<span class="line">{line}</span>' if line else "")
        + "</a>"
    )


def _details(session: Session) -> str:
    return " · ".join(_line(part) for part in (state_label(session), session.agent) if part)


def _mark(session: Session) -> str:
    name = state_name(session)
    return f'<span class="mark {name}" aria-hidden="true">{GLYPHS[name][0]}</span>'


def _receipt_block(receipt: Receipt) -> str:
    is_bad = receipt.state in (ReceiptState.REFUSED, ReceiptState.LOST, ReceiptState.FAILED, ReceiptState.UNSURE)
    reason = f": {_line(receipt.reason)}" if receipt.reason else ""
    style = "warning" if is_bad else "soft"
    return (
        f'<p class="receipt" id="p-{escape(receipt.id)}"><span class="{style}">Prompt {receipt.state.value}{reason} · '
        f'{_time(receipt.at)}</span><span class="line">{_line(receipt.text)}</span></p>'
    )


def _time(at: float) -> str:
    return f'<time data-at="{at:.0f}"></time>'


def _line(text: str, length: int = LINE_LENGTH) -> str:
    """Return an agent's *text* as HTML: one line, without tokens of a known shape."""
    line = clean_line(redact(text, ())[0])
    return escape(line if len(line) <= length else f"{line[:length]} …")


def find_request(fleet: Fleet, wanted: str) -> tuple[Session, Request] | None:
    for session in fleet.sessions:
        if (ask := next((each for each in session.requests if each.id == wanted), None)) is not None:
            return session, ask
    return None
