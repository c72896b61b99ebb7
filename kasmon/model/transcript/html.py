"""A session as one HTML file, to share: no script, no link, no other resource. Pure.

Text of agents, tools and terminals is escaped; the page's own policy forbids everything but its style.
"""

from collections.abc import Iterable, Iterator
from datetime import tzinfo
from html import escape
from typing import Final

import msgspec

from kasmon.model.events import Event, SessionCreated
from kasmon.model.formatting import clock
from kasmon.model.session import Session
from kasmon.model.transcript.blocks import Block, draw, folds
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.style import TranscriptStyle
from kasmon.model.transcript.text import TextLine, Token
from kasmon.sanitize import clean_line

WIDTH: Final = 100
"""The width of the rows, in cells."""
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
COLOURS: Final = {
    "faint": ("#667", "#99a"),
    "good": ("#176b32", "#7bd88f"),
    "bad": ("#b3261e", "#ff8a80"),
    "warn": ("#8a5a00", "#f2c14e"),
    "info": ("#1558a8", "#8ab4f8"),
    "accent": ("#6b3fa0", "#c8a2ff"),
}
"""A colour on a light and on a dark ground, each readable there."""
ROLES: Final = {
    "faint": (Token.FAINT, Token.NUMBER, Token.BOUNDARY, Token.SESSION, Token.COMMENT, Token.OPEN, Token.STRIKE),
    "good": (Token.OK, Token.ADDED, Token.DONE, Token.LITERAL, Token.GREEN, Token.LOUD_GREEN),
    "bad": (Token.FAILED, Token.REMOVED, Token.ERROR, Token.RED, Token.LOUD_RED),
    "warn": (Token.WARNING, Token.FIGURE, Token.YELLOW, Token.LOUD_YELLOW, Token.LIMIT),
    "info": (Token.CODE, Token.CODE_BLOCK, Token.NAME, Token.ANSWER, Token.DOING, Token.BLUE, Token.CYAN, Token.HUNK),
    "accent": (Token.HEADING, Token.PROMPT, Token.TOOL, Token.KEYWORD, Token.BULLET, Token.LINK, Token.ASKS),
}
CLASSES: Final = {token: role for role, tokens in ROLES.items() for token in tokens}
BOLD: Final = frozenset({Token.STRONG, Token.HEADING, Token.PROMPT, Token.TOOL, Token.ASKS, Token.ERROR, Token.LOUD})
STYLE: Final = (
    ":root{color-scheme:light dark}body{margin:2rem auto;max-width:62rem;padding:0 1rem;background:#fff;color:#223}"
    "pre,summary{font:14px/1.45 monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:0}"
    "summary{cursor:pointer}details{margin-top:1.4em}b{font-weight:bold}i{font-style:italic}s{text-decoration:line-through}"
    + "".join(f".{name}{{color:{light}}}" for name, (light, _) in COLOURS.items())
    + "@media(prefers-color-scheme:dark){body{background:#15161c;color:#dde}"
    + "".join(f".{name}{{color:{dark}}}" for name, (_, dark) in COLOURS.items())
    + "}"
)
LEFT_OUT: Final = (SessionCreated,)


def html_page(session: Session, events: Iterable[Event], zone: tzinfo | None = None) -> Iterator[str]:
    """Yield the parts of the page; *events* are already without secrets."""
    transcript = Transcript(zone=zone)
    for event in events:
        if not isinstance(event, LEFT_OUT):
            transcript.add(event)
    title = escape(clean_line(session.name or session.id))
    began = clock(session.created_at, zone, day=True) if session.created_at else ""
    about = " · ".join(escape(clean_line(each)) for each in (session.agent, session.model, began) if each)
    yield (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<p>{about}</p>\n"
    )
    style = TranscriptStyle(width=WIDTH, fold=False, zone=zone, buttons=False)
    for block in transcript.blocks:
        yield _block(block, style)
    yield "</body></html>\n"


def _block(block: Block, style: TranscriptStyle) -> str:
    """Return a block; one that is folded in the dashboard can be opened here, too."""
    rows = draw(block, style)
    if not rows:
        return ""
    if not folds(block) or block.steps:
        return f"<pre>{_rows(rows)}</pre>\n"
    head = next((number for number, row in enumerate(rows) if row.text.strip()), 0)
    first = draw(block, msgspec.structs.replace(style, fold=True))[head : head + 1]
    return f"<details><summary>{_rows(first)}</summary><pre>{_rows(rows[head:])}</pre></details>\n"


def _rows(rows: Iterable[TextLine]) -> str:
    return "\n".join("".join(_span(text, token) for text, token in row.spans) for row in rows)


def _span(text: str, token: Token) -> str:
    shown, role = escape(text), CLASSES.get(token)
    tag = "b" if token in BOLD else {Token.EMPHASIS: "i", Token.THOUGHT: "i", Token.STRIKE: "s"}.get(token, "span")
    if tag == "span" and role is None:
        return shown
    return f'<{tag} class="{role}">{shown}</{tag}>' if role else f"<{tag}>{shown}</{tag}>"
