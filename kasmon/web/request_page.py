"""The HTML of the page of one request: one column, plain forms, no script, nothing loaded from elsewhere. Pure."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Final

import msgspec

from kasmon.model.formatting import duration
from kasmon.model.permission import MAY_BE_CUT, ClosedRequest, Decision, Request, RequestKind
from kasmon.model.session import Session
from kasmon.model.transcript.request_text import RequestDocument, command_of, note_of
from kasmon.model.transcript.text import TextLine, Token
from kasmon.sanitize import clean_line, redact
from kasmon.store.request_links import Form
from kasmon.web.page import ALWAYS

STYLE: Final = (files("kasmon.web") / "page" / "request.css").read_text("utf-8")


def policy_headers(style: str, **sources: str) -> dict[str, str]:
    """Return the headers of a page with this *style*, which may only have these other *sources* (`script_src=...`)."""
    more = (f"{name.replace('_', '-')} {source}" for name, source in sources.items())
    parts = ("default-src 'none'", f"style-src {hash_source(style)}", *more)
    policy = "; ".join((*parts, "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"))
    return {**ALWAYS, "Content-Security-Policy": policy, "X-Robots-Tag": "noindex, nofollow"}


def hash_source(text: str) -> str:
    """Return the source of a policy that allows exactly this inline *text*."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS: Final = policy_headers(STYLE)
PART_BYTES: Final = 32 * 1024
"""The most bytes of a request on one page; a longer one has several."""
ROW_CELLS: Final = 2000
"""The longest row, in cells: the browser wraps at its own width, and a longer row is continued."""
LABEL_LENGTH: Final = 200
"""The longest heading and label, in characters; the request above has the whole text."""
MAX_OPTIONS: Final = 30
"""With more options, a question is not answered here."""
RULE_LENGTH: Final = 1000
"""A longer rule, in characters, is not offered here."""
_STYLED: Final = frozenset(
    {Token.WARNING, Token.STRONG, Token.FAINT, Token.ADDED, Token.REMOVED, Token.HUNK, Token.HEADING, Token.NUMBER}
)
_KINDS: Final = {
    RequestKind.PERMISSION: "Permission",
    RequestKind.QUESTION: "Question",
    RequestKind.PLAN: "Plan",
    RequestKind.AUTH: "Login",
}
_ALLOW: Final = {RequestKind.PLAN: "Approve the plan", RequestKind.AUTH: "I have signed in"}
_OUTCOMES: Final = {
    Decision.ALLOW: "Allowed",
    Decision.ALWAYS: "Allowed, with a rule",
    Decision.DENY: "Denied",
    Decision.NEVER: "Denied, with a rule",
    Decision.EDIT: "Allowed as edited",
    Decision.CHOOSE: "Answered",
    Decision.CANCEL: "Denied, and interrupted",
}


class RequestPage(msgspec.Struct, frozen=True, kw_only=True):
    """What the page of an open request is rendered from."""

    session: Session
    document: RequestDocument
    parts: Sequence[str]
    """The document as HTML, see `split`."""
    now: float
    expires_at: float = 0.0
    forms: Mapping[Form, str] = {}
    """The secret value that each kind of form sends back; empty for a page without forms."""
    part: int = 1
    """Which part of the request, from 1."""
    rules: bool = False
    """Whether *always* is offered."""
    reads_reasons: bool = True
    """Whether the agent receives the reason of a denial."""
    note: str = ""
    """What to read first, for example that the request changed."""
    back: str = ""
    """The path of the list of sessions; empty for none."""


def render_request(page: RequestPage) -> str:
    """Return the page of an open request, with the forms that it accepts."""
    request, parts = page.document.request, page.parts
    part = min(max(1, page.part), len(parts))
    body = [
        f'<p class="warning" role="alert">{escape(page.note)}</p>' if page.note else "",
        f'<p class="soft">{_origin(page)}</p>',
        f"<h1>{escape(_heading(page.document))}</h1>",
        *_warnings(page.document),
        f'<p class="soft">Part {part} of {len(parts)}</p>' if len(parts) > 1 else "",
        f'<pre class="{request.kind.value}">{parts[part - 1]}</pre>',
        *_part_links(part, len(parts), has_forms=bool(page.forms)),
        *(_forms(page, is_last=part == len(parts)) if page.forms else ()),
        f'<p class="soft">This link works for {format_age(page.expires_at - page.now)} more, for one answer.</p>'
        if page.forms
        else "",
        f'<p><small class="soft">{escape(request.id)} · digest {escape(request.digest)}</small></p>',
    ]
    return render_document(_KINDS[request.kind], body, back=page.back)


def render_outcome(closed: ClosedRequest, name: str, now: float, note: str = "", back: str = "") -> str:
    """Return the page of a request of session *name* that is closed: its outcome, and who answered; not its text.

    *back*: as `RequestPage.back`.
    """
    if closed.decision is None:
        heading, by = "Withdrawn", closed.by[:1].upper() + closed.by[1:]
    else:
        heading = _OUTCOMES.get(closed.decision, closed.decision.value)
        by = f"By {closed.by} at {closed.who}" if closed.who else f"By {closed.by}"
    ago = format_age(now - closed.at)
    return render_notice(heading, (note, f"{clean_line(name)} · {closed.id}", f"{clean_line(by)}, {ago} ago."), back)


def render_notice(heading: str, sentences: Sequence[str], back: str = "") -> str:
    """Return a page that has only text; *back* as `RequestPage.back`."""
    body = [f"<h1>{escape(heading)}</h1>", *(f"<p>{escape(each)}</p>" for each in sentences if each)]
    return render_document(heading, body, back=back)


def split(document: RequestDocument) -> list[str]:
    """Return the whole request as HTML, in parts of at most `PART_BYTES`; at least one."""
    rows = document.rows(ROW_CELLS, with_options=True)
    if len(document.title()) > LABEL_LENGTH and not _is_command(document):
        rows = [TextLine(((document.title(), Token.TEXT),)), *rows]
    parts, size = [list[str]()], 0
    for row in rows:
        for piece in _pieces(row):
            cost = len(piece.encode()) + 1
            if size + cost > PART_BYTES and parts[-1]:
                parts.append([])
                size = 0
            parts[-1].append(piece)
            size += cost
    return ["\n".join(part) for part in parts]


def _pieces(row: TextLine) -> list[str]:
    """Return *row* as HTML, in several pieces if it is very long."""
    pieces, html, length = [], "", 0
    for text, token in row.spans:
        for start in range(0, len(text), ROW_CELLS):
            cut = text[start : start + ROW_CELLS]
            if length and length + len(cut) > ROW_CELLS:
                pieces.append(html)
                html, length = "", 0
            shown = escape(cut)
            html += f'<span class="{token.value}">{shown}</span>' if token in _STYLED else shown
            length += len(cut)
    return [*pieces, html]


def _heading(document: RequestDocument) -> str:
    """Return the tool and the title; the tool alone if the title is the command, which is shown below."""
    tool, title = document.tool(), document.title()
    if tool and _is_command(document):
        return _shorten(tool)
    return _shorten(f"{tool}: {title}" if tool and title else tool or title or document.request.kind.value)


def _is_command(document: RequestDocument) -> bool:
    command = command_of(document.request)
    return command is not None and command[1] == document.request.title


def _origin(page: RequestPage) -> str:
    request, session = page.document.request, page.session
    age = format_age(page.now - request.asked_at)
    parts = (_KINDS[request.kind], clean_line(session.label), clean_line(session.agent), f"asked {age} ago")
    folder = f"<br>{escape(_shorten(clean_line(session.workdir)))}" if session.workdir else ""
    return escape(" · ".join(parts)) + folder


def _warnings(document: RequestDocument) -> list[str]:
    request = document.request
    warnings = []
    if document.hidden:
        warnings.append("It contains hidden characters; ⟨ ⟩ marks them.")
    if document.secrets:
        warnings.append("1 secret is redacted." if document.secrets == 1 else f"{document.secrets} secrets redacted.")
    if request.may_be_cut:
        warnings.append(f"{MAY_BE_CUT}.".capitalize())
    if not request.answerable:
        warnings.append("kasmon cannot answer this request. Answer it in the agent's terminal.")
    return [f'<p class="warning">{escape(each)}</p>' for each in warnings]


def _part_links(part: int, count: int, *, has_forms: bool) -> list[str]:
    links = [f'<a class="button" href="?part={part + 1}">Part {part + 1} of {count}</a>'] if part < count else []
    if links and has_forms:
        links.insert(0, "<p>It can be allowed at its end.</p>")
    return [*links, f'<p><a href="?part={part - 1}">Part {part - 1}</a></p>'] if part > 1 else links


def offered(page: RequestPage) -> frozenset[Decision]:
    request = page.document.request
    found = {Decision.LATER}
    if not request.answerable:
        return frozenset(found)
    found |= {Decision.DENY} & {*request.choices}
    if not request.may_be_cut:
        found |= {Decision.ALLOW} & {*request.choices}
        if len(request.options) <= MAX_OPTIONS:
            found |= {Decision.CHOOSE} & {*request.choices}
        may_rule = page.rules and bool(request.rule) and len(request.rule) <= RULE_LENGTH and not page.document.secrets
        found |= {Decision.ALWAYS} & {*request.choices} if may_rule else set()
    return frozenset(found)


def _forms(page: RequestPage, *, is_last: bool) -> list[str]:
    """Return a form for each decision: in a form with several buttons, Enter in a field would press the first."""
    document, request, accepted = page.document, page.document.request, offered(page)
    forms = []
    if Decision.CHOOSE in accepted and is_last:
        fields = _option_fields(request, document.secret_values)
        forms.append(_form(page, "consent", Decision.CHOOSE, "Send the answer", _letters(document) + fields))
    if Decision.ALLOW in accepted and is_last:
        label = _ALLOW.get(request.kind, "Allow once")
        forms.append(_form(page, "consent", Decision.ALLOW, label, _letters(document)))
    if Decision.DENY in accepted:
        label = "Reject the plan" if request.kind is RequestKind.PLAN else "Deny"
        hint = "Reason (optional, sent to the agent)"
        reason = f'<label>{hint}<textarea name="reason" rows="2"></textarea></label>' if page.reads_reasons else ""
        forms.append(_form(page, "other", Decision.DENY, label, reason))
    if Decision.ALWAYS in accepted and is_last:
        text = f"<p>Always, in this session: <b>{escape(document.rule())}</b></p>"
        forms.append(_form(page, "consent", Decision.ALWAYS, "Always allow this", text + _letters(document)))
    if not request.later:
        forms.append(_form(page, "other", Decision.LATER, "Later", ""))
    return forms


def _form(page: RequestPage, form: Form, decision: Decision, label: str, fields: str) -> str:
    hidden = {"form": page.forms[form], "digest": page.document.request.digest, "decision": decision.value}
    inputs = "".join(f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in hidden.items())
    kind = {Decision.DENY: "deny", Decision.LATER: "", Decision.ALWAYS: "always"}.get(decision, "allow")
    button = f'<button class="{kind}">{label}</button>'
    return f'<form method="post" action="?" autocomplete="off">{inputs}{fields}{button}</form>'


def _letters(document: RequestDocument) -> str:
    """Return the field for the tool's first letters, where there are hidden characters."""
    if not document.hidden:
        return ""
    return f'<label>Type {escape(document.letters)} to allow it<input type="text" name="letters"></label>'


def _option_fields(request: Request, secret_values: Sequence[str]) -> str:
    kind = "checkbox" if request.many else "radio"
    fields = ""
    for number, option in enumerate(request.options):
        label = escape(_shorten(redact(option, secret_values)[0].replace("\n", "␤")))
        note = escape(_shorten(note_of(request, number, secret_values)))
        fields += f'<label class="option"><input type="{kind}" name="option" value="{number}"> {label}'
        fields += f"<span>{note}</span></label>" if note else "</label>"
    if request.free_text or not request.options:
        fields += '<label>Custom answer<textarea name="text" rows="2"></textarea></label>'
    return fields


def format_age(seconds: float) -> str:
    """Return an age as text, in whole seconds."""
    return f"{max(0, round(seconds))} s" if seconds < 60 else duration(seconds)


def _shorten(text: str) -> str:
    return text if len(text) <= LABEL_LENGTH else f"{text[:LABEL_LENGTH]} …"


def render_document(
    title: str, body: Sequence[str], *, back: str = "", style: str = STYLE, script: str = "", head: str = ""
) -> str:
    """Return a whole page; *back* as `RequestPage.back`. Its headers have to allow *style*, *script* and *head*."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="robots" content="noindex"><title>{escape(title)} · kasmon</title><style>{style}</style>{head}'
    )
    link = [f'<p><a class="back" href="{escape(back)}">‹ All sessions</a></p>'] if back else []
    inner = "\n".join(each for each in (*link, *body) if each)
    tail = f"<script>{script}</script>\n" if script else ""
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{inner}\n{tail}</body></html>\n'
