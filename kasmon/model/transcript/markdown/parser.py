"""Read Markdown with markdown-it-py: its blocks as tokens, and the text of a line as styled pieces.

Switched off is what would hide text (definitions of links, entities), or what agents do not mean (HTML, a heading that
is underlined with dashes).
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from kasmon.model.transcript.markdown.links import links
from kasmon.model.transcript.text import Span, Token
from kasmon.sanitize import clean_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token as MarkdownToken

LONGEST: Final = 4000
"""A longer paragraph, in characters, is text without any style."""
DEEPEST: Final = 16
"""The deepest level of a token; a quote adds one, a list two. markdown-it-py drops what is below level 20."""
MARKS: Final = re.compile(r"[`*_~\[\]<\\$]|://")
"""A paragraph without any of these is plain text."""
SIMPLE: Final = re.compile(
    r"(?<!`)(?P<tick>`+)(?P<code>[^`\s](?:[^`\n]*[^`\s])?)(?P=tick)(?!`)|(?<!\*)\*\*(?P<bold>[^*`_\s](?:[^*`_\n]*[^*`_\s])?)\*\*(?!\*)"
)
MATH: Final = re.compile(
    r"\$\$[^$]{1,2000}\$\$|\$(?![\s\d$])[^$\n]{0,300}?(?<![\s\\])\$(?!\d)"
    r"|\\\([^\n]{1,500}?\\\)|\\\[(?:.|\n){1,2000}?\\\]"
)
STYLES: Final = {"em": Token.EMPHASIS, "strong": Token.STRONG, "s": Token.STRIKE, "link": Token.LINK}
"""The token types of markdown-it-py (`em_open`) -> how the text between is shown; of nested ones, the last in this list
counts."""


def parse_blocks(text: str) -> "list[MarkdownToken]":
    """Return the blocks of *text* as markdown-it-py's tokens; those of type `inline` are not parsed further."""
    return _parser().parse(text)


def parse_inline(text: str) -> tuple[list[Span], list[str]]:
    """Return *text*, with its line breaks, as styled pieces, and the addresses in it.

    The address of a link is in the pieces too, behind the link's text.
    """
    if len(text) > LONGEST or not MARKS.search(text):
        return [(text, Token.TEXT)], []
    if not MARKS.search(SIMPLE.sub("", text)):
        return _simple_pieces(text), []
    parser, tokens = _parser(), list["MarkdownToken"]()
    parser.inline.parse(text, parser, {}, tokens)
    return _pieces(tokens)


def _simple_pieces(text: str) -> list[Span]:
    """Return *text* as pieces, if its only marks are those of code and bold: most messages need no parser."""
    spans: list[Span] = []
    at = 0
    for found in SIMPLE.finditer(text):
        code = found["code"]
        piece = (code, Token.CODE) if code is not None else (found["bold"], Token.STRONG)
        spans += [(text[at : found.start()], Token.TEXT), piece]
        at = found.end()
    return [span for span in (*spans, (text[at:], Token.TEXT)) if span[0]]


def _pieces(tokens: "Sequence[MarkdownToken]") -> tuple[list[Span], list[str]]:
    spans: list[Span] = []
    addresses: list[str] = []
    open_styles: list[str] = []
    targets: list[tuple[int, str, str]] = []  # of each open link: where its text begins in *spans*, address, title
    for each in tokens:
        kind, _, end = each.type.rpartition("_")
        if end == "open":
            open_styles.append(kind)
            if kind == "link":
                targets.append((len(spans), str(each.attrs.get("href", "")), str(each.attrs.get("title", ""))))
        elif end == "close":
            open_styles.remove(kind)
            if kind == "link":
                start, address, title = targets.pop()
                spans += _target("".join(text for text, _ in spans[start:]), address, title)
                addresses.append(address)
        elif each.type == "image":
            spans += [("▣ ", Token.FAINT), (each.content, Token.LINK)]
            spans += _target("", str(each.attrs.get("src", "")), str(each.attrs.get("title", "")))
            addresses.append(str(each.attrs.get("src", "")))
        elif each.type in ("code_inline", "math"):
            spans.append((each.content, Token.CODE))
        elif each.type in ("hardbreak", "softbreak"):
            spans.append(("\n", Token.TEXT))
        else:
            token = next((STYLES[kind] for kind in reversed(STYLES) if kind in open_styles), Token.TEXT)
            plain = _bare_links(each.content, addresses) if token is Token.TEXT else [(each.content, token)]
            spans += plain
    return [(text, token) for text, token in spans if text] or [("", Token.TEXT)], addresses


def _target(shown: str, address: str, title: str) -> list[Span]:
    """Return what follows the text of a link: its address if that is not its text, and its title."""
    about: list[str] = [clean_line(address)] if address != shown.strip() else []
    about += [f'"{clean_line(title)}"'] if title else []
    return [(f" ({' '.join(about)})", Token.FAINT)] if about else []


def _bare_links(text: str, addresses: list[str]) -> list[Span]:
    """Return *text* with the addresses in it as links; add those to *addresses*."""
    spans: list[Span] = []
    at = 0
    for link in (link for line in [text] if "\n" not in text for link in links(line)):
        spans += [(text[at : link.start], Token.TEXT), (link.address, Token.LINK)]
        addresses.append(link.address)
        at = link.end
    return [*spans, (text[at:], Token.TEXT)]


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # 20 ms: only for text with marks

    class Parser(MarkdownIt):
        """Keeps addresses as they are written: each is shown, and `links.is_link` decides which can be opened."""

        def normalizeLink(self, url: str) -> str:  # noqa: N802 - the parent's name
            return url

        def normalizeLinkText(self, link: str) -> str:  # noqa: N802 - the parent's name
            return link

        def validateLink(self, url: str) -> bool:  # noqa: N802 - the parent's name
            return True

    parser = Parser("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
    parser.disable(["reference", "html_block", "lheading", "entity", "html_inline", "newline"])
    parser.core.ruler.enableOnly(["normalize", "block"])
    parser.inline.ruler.before("escape", "math", _math)
    return parser


def _math(state: "StateInline", silent: bool) -> bool:
    """Keep a formula in TeX as it is written."""
    if state.src[state.pos] not in "$\\" or (found := MATH.match(state.src, state.pos)) is None:
        return False
    if not silent:
        state.push("math", "", 0).content = found[0]
    state.pos = found.end()
    return True
