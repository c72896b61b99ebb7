r"""Turn foreign text into `Clean` text: the only module that strips, shows or hides characters.

Everything that this user did not type into this process is foreign: output, names, titles, paths, errors. `clean_line`
and `clean_block` make it safe to display. `visible` shows it for a decision: two different texts never look equal.
`redact` is `visible` with secrets left out. In the other direction, `outgoing` prepares the user's own text for a
program. All of them take time linear in the text.

| in the text | line | block | visible | outgoing |
|---|---|---|---|---|
| escape sequence with its payload | removed | removed | each character shown | a whole one is removed |
| other control characters | removed | removed | `⟨U+0007⟩`, carriage return `␍` | removed |
| line break | space | `\n` | `\n`; at either end `␤` | `\n` |
| tab | space | `\t` | `␉` | `\t` |
| bidi control, zero-width, filler | U+FFFD | U+FFFD | `⟨U+202E⟩` | kept |
| ZWNJ, ZWJ, LRM, RLM where its script writes it; soft hyphen in a word | kept | kept | `⟨U+200C⟩` | kept |
| surrogate | U+FFFD | U+FFFD | `⟨U+D800⟩` | U+FFFD |
| ZWJ between emoji, VS15 and VS16 behind one | kept | kept | `⟨U+200D⟩` | kept |
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NewType

Clean = NewType("Clean", str)
"""Text that may go to a terminal or a widget: no control character but newline and tab, nothing invisible except what
the script of its letters uses."""

KNOWN_LENGTH: Final = 6
"""A known value shorter than this, in characters, is not hidden: it would match everywhere."""
HIDDEN: Final = "⟨hidden: "
"""The beginning of the mark that replaces a secret."""
HIDDEN_MARK: Final = f"{HIDDEN}[0-9]{{1,9}} characters⟩"
"""The pattern of a whole such mark."""

# Patterns are compiled by `re` on first use; plain ASCII, as in most of `kasmon ls`, needs none.
_EMOJI: Final = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_IGNORABLE: Final = (
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3"
    "\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
) + "".join(f"{chr(plane | 0xFFFE)}{chr(plane | 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
"""Format controls (the twelve Bidi_Control among them), default-ignorables, separators, fillers, tags, surrogates and
noncharacters, as the inside of a character class; ZWJ, VS15 and VS16 are judged by the characters beside them."""

_JOINERS: Final = (
    f"(?<![{_EMOJI}])(?<![{_EMOJI}]\ufe0f)\u200d|\u200d(?![{_EMOJI}])"
    f"|(?<![{_EMOJI}])(?<![0-9#*](?=\ufe0f\u20e3))[\ufe0e\ufe0f]"
)
_HIDING: Final = f"[{_IGNORABLE}]|{_JOINERS}"
_JOINING_SCRIPTS: Final = (
    "\u0600-\u109f\u1700-\u18af\u1900-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010d00-\U00010d3f"
    "\U00010e80-\U00010fff\U00011000-\U00011fff"
)
"""Scripts whose letters ZWNJ and ZWJ separate or join: Arabic, Syriac, Indic, South-East Asian, Mongolian."""
_RIGHT_TO_LEFT: Final = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
_SHOWN: Final = f"[^{_IGNORABLE}\u200d]"
_WRITTEN: Final = (
    f"(?<=[{_JOINING_SCRIPTS}])(?<={_SHOWN})[\u200c\u200d]"
    f"|(?<=\\S)(?<={_SHOWN})[\u200c\u200d](?=[{_JOINING_SCRIPTS}])(?={_SHOWN})"
)
"""Joiners in ordinary text: behind a letter of a script that has them, or between a visible character and such a letter
(Unicode Standard Annex 31)."""
_DIRECTION: Final = f"(?<![{_IGNORABLE}\u200d])[\u200e\u200f]"
"""A direction mark, which a line with a right-to-left letter may have anywhere (Unicode Standard Annex 9)."""
_CONTROL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_BREAK: Final = r"\r\n|[\n\v\f\r\x85\u2028\u2029]"
_LONE_BREAK: Final = r"\r(?!\n)|[\v\f\x85\u2028\u2029]"
_BLANK: Final = "\u2800"
"""The braille pattern without dots: a space that does not look like one in code, a space in a drawn graph."""
_HIDDEN: Final = f"[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f{_BLANK}]|\\r(?!\\n)|{_HIDING}"

_SEQUENCE: Final = (
    r"(?:\x1b\]|\x9d)[^\n\r\x07\x18\x1a\x1b\x9c]*+(?:\x1b\\|[\x07\x18\x1a\x9c])?"  # OSC
    r"|(?:\x1b[PX^_k]|[\x90\x98\x9e\x9f])[^\n\r\x18\x1a\x1b\x9c]*+(?:\x1b\\|[\x18\x1a\x9c])?"  # DCS SOS PM APC, title
    r"|(?:\x1b\[|\x9b)[\x00-\x09\x0b\x0c\x0e-\x17\x19\x1c-\x1f\x7f0-?]*+[ -/]*+[@-~]?"  # CSI
    r"|\x1b[ -/]*+[0-~]?"  # everything else that ESC begins
)
"""One escape sequence; an unterminated one extends to the end of its line."""

_WHOLE_SEQUENCE: Final = (
    r"\x1b\][^\n\r\x07\x18\x1a\x1b]*+(?:\x1b\\|\x07)"  # OSC
    r"|\x1b[PX^_k][^\n\r\x18\x1a\x1b]*+\x1b\\"  # DCS SOS PM APC, title
    r"|\x1b\[[0-?]*+[ -/]*+[@-~]"  # CSI
    r"|\x1b[ -/]++[0-~]"  # character sets
)
"""A complete escape sequence, as copied along with a coloured screen."""
_SPOKEN_BREAK: Final = r"\r\n|[\v\f\r\x85]"

_NOTABLE: Final = r"[^\x20-\x7e]| (?![^\r\n])"
_OUR_MARKS: Final = frozenset("⟨␤␍␉␠")

_TOKEN: Final = (
    r"\b[Bb]earer[ \t]{1,8}(?P<bearer>[A-Za-z0-9._~+/=-]{16,})"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?P<pem>(?:(?:\\r|\\n|\s){1,4}[A-Za-z0-9+/=]{40,80}(?![A-Za-z0-9+/=]))+)"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\bgh[opsur]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[A-Za-z0-9_-]{35}"
    r"|\bxox[abeprs]-[A-Za-z0-9-]{10,}|\bnpm_[A-Za-z0-9]{36}|\bpypi-[A-Za-z0-9_-]{16,}|\bhf_[A-Za-z0-9]{20,}"
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+"
)
"""Tokens by their shape. None contains a blank, a quote or a shell operator, so no command is hidden with it. Of a
private key, the full lines are hidden; a short last line is not."""
_TOKEN_SIGNS: Final = (
    "earer", "PRIVATE KEY", "sk-", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "AKIA", "ASIA",
    "AIza", "xox", "npm_", "pypi-", "hf_", "eyJ",
)  # fmt: skip
"""Every text with a token contains one of these."""


def clean_line(text: str) -> Clean:
    """Return *text* as one line: no line breaks, tabs or control characters, nothing invisible that no script uses."""
    if text.isascii() and text.isprintable():
        return Clean(text)
    return Clean(_strip(text, " ").replace("\t", " "))


def first_line(text: str) -> str:
    """Return the first line of *text* that is not blank, without the blanks around it; empty if there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def clean_block(text: str) -> Clean:
    """Return *text* with its lines and tabs, without other control characters or invisible ones that no script uses.

    Every kind of line break becomes a newline. So does a lone carriage return, so that nothing is overwritten.
    """
    if text.isascii() and text.isprintable():
        return Clean(text)
    return Clean(_strip(text, "\n"))


def clean_lines(text: str) -> Clean:
    """Return *text* like `clean_block`, but other line breaks than a newline, with or without return, begin no line.

    For lines that a program counts, as those of a diff. Such a break is `␍`.
    """
    return clean_block(text if text.isascii() and text.isprintable() else re.sub(_LONE_BREAK, "␍", text))


def outgoing(text: str) -> str:
    """Return the user's own *text* for a program: unchanged except for what acts on a terminal.

    Every script arrives as written, with its joiners and direction marks. The only control characters that remain are
    newline and tab, so nothing can end a paste early. Of an unterminated escape sequence only the escape is removed.
    """
    if "\x1b" in text:
        text = re.sub(_WHOLE_SEQUENCE, "", text)
    text = re.sub(_CONTROL, "", re.sub(_SPOKEN_BREAK, "\n", text))
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def visible(text: str) -> Clean:
    """Return *text* for a decision by the user: two different texts never come out equal.

    Shown as `⟨U+202E⟩`: everything that is invisible or only looks like a space, combining marks on ASCII or outside
    their normal form, private characters, and kasmon's own marks. A space at the end of a line is `␠`.

    A whole `⟨hidden: 40 characters⟩` is kept as it is: a host wrote it (`host/journal/redaction.py`), and prevents an
    agent from imitating it.
    """
    return Clean(_format_character(text))


def has_hidden(text: str) -> bool:
    """Whether *text* holds control, bidi or invisible characters; newlines, tabs and whole emoji do not count."""
    if text.isascii() and text.isprintable():
        return False
    return re.search(_HIDDEN, text) is not None


def redact(text: str, secret_values: Iterable[str] = ()) -> tuple[Clean, int]:
    """Return *text* as `visible` shows it, each secret as `⟨hidden: 40 characters⟩`, and the number of secrets.

    Secrets that were already hidden when the text was logged count too.

    Args:
        text: the original text; text from `visible` would be escaped twice.
        secret_values: those shorter than `KNOWN_LENGTH` are ignored. Tokens are recognised by their shape.
    """
    secrets = _secrets(text, secret_values)
    return Clean(_format_character(text, secrets)), len(secrets) + len(_marks(text, secrets))


def tokens(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the tokens in *text* that are recognised by their shape, in order."""
    if any(sign in text for sign in _TOKEN_SIGNS):
        for match in re.finditer(_TOKEN, text):
            yield match.span(match.lastgroup or 0)


def hidden_mark(characters: int) -> str:
    """Return the mark that replaces a secret of this many *characters*."""
    return f"{HIDDEN}{characters} characters⟩"


def _strip(text: str, line_break: str) -> str:
    if "\x1b" in text or re.search(_CONTROL, text):
        text = re.sub(_SEQUENCE, "", text)
    text = re.sub(_CONTROL, "", re.sub(_BREAK, line_break, text))
    if text.isascii():
        return text
    return "\n".join(map(_replace_hidden, text.replace(_BLANK, " ").split("\n")))


def _replace_hidden(line: str) -> str:
    """Return *line* with U+FFFD for each hidden character that its scripts do not use there."""
    is_right_to_left = re.search(f"(?={_SHOWN})[{_RIGHT_TO_LEFT}]", line) is not None
    written = re.compile(f"{_WRITTEN}|{_DIRECTION}" if is_right_to_left else _WRITTEN)

    def replace(match: re.Match[str]) -> str:
        is_written = written.match(line, match.start()) or (
            match[0] == "\u00ad" and _is_within_letters(line, match.start())
        )
        return match[0] if is_written else "\ufffd"

    return re.sub(_HIDING, replace, line)


def _is_within_letters(line: str, at: int) -> bool:
    """Whether the character at *at* is between two letters; the first may have combining marks."""
    from unicodedata import category

    def is_letter(place: int) -> bool:
        return line[place : place + 1].isalpha() and re.match(_SHOWN, line[place]) is not None

    before = at - 1
    while before > 0 and category(line[before])[0] == "M" and re.match(f"(?![\ufe0e\ufe0f]){_SHOWN}", line[before]):
        before -= 1
    return before >= 0 and is_letter(before) and is_letter(at + 1)


def _format_character(text: str, secrets: Sequence[tuple[int, int]] = ()) -> str:
    if not secrets and text.isascii() and text.isprintable() and not text.endswith(" "):
        return text
    first, last = len(text) - len(text.lstrip("\n")), len(text.rstrip("\n"))
    notable = re.compile(_NOTABLE)
    pieces: list[str] = []
    at = 0
    whole = {start: (end, hidden_mark(end - start)) for start, end in secrets}
    whole |= {start: (end, text[start:end]) for start, end in _marks(text, secrets)}
    for start, (end, shown) in (*sorted(whole.items()), (len(text), (len(text), ""))):
        for match in notable.finditer(text, at, start):
            position = match.start()
            at_end = not first <= position < last
            pieces += (
                text[at:position],
                _mark(match[0], text[position - 1 : position], text[position + 1 : position + 2], at_end),
            )
            at = match.end()
        pieces += (text[at:start], shown)
        at = end
    return "".join(pieces)


def _marks(text: str, secrets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans of existing marks in *text* that do not overlap its *secrets*."""
    if HIDDEN not in text:
        return []
    spans = [match.span() for match in re.finditer(HIDDEN_MARK, text)]
    return [(start, end) for start, end in spans if not any(begin < end and start < stop for begin, stop in secrets)]


def _mark(character: str, before: str, behind: str, at_end: bool) -> str:
    """Return the display form of a notable *character* between *before* and *behind*."""
    match character:
        case "\n":
            return "␤" if at_end else character
        case "\r":
            return "␍"
        case "\t":
            return "␉"
        case " ":
            return "␠" if behind in ("", "\n", "\r") else character
        case _ if _shows_itself(character, before):
            return character
        case _:
            return f"⟨U+{ord(character):04X}⟩"


def _shows_itself(character: str, before: str) -> bool:
    """Whether a non-ASCII *character* behind *before* can be displayed unchanged."""
    from unicodedata import category, normalize

    if character in _OUR_MARKS or character == _BLANK or not character.isprintable():
        return False
    if re.match(_HIDING, character) or normalize("NFC", character) != character:
        return False
    if category(character)[0] == "M":
        return not before.isascii() and normalize("NFC", before + character) == before + character
    return True


def _secrets(text: str, secret_values: Iterable[str]) -> list[tuple[int, int]]:
    """Return the spans of secrets in *text*, in order; overlapping ones are merged."""
    spans = list(tokens(text))
    for value in {value for value in secret_values if len(value) >= KNOWN_LENGTH}:
        at = text.find(value)
        while at >= 0:
            spans.append((at, at + len(value)))
            at = text.find(value, at + len(value))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


REPLACED: Final = re.compile(
    rb"\\u00(?:0[0-8bcefBCEF]|1[0-9a-fA-F]|7[fF]|[89][0-9a-fA-F])"  # the escapes of control characters
    rb"|\\u(?:200[bBeEfF]|202[a-eA-E]|206[0-9a-fA-F]|[fF][eE][fF]{2})"  # of what is invisible or changes the direction
    rb"|\xc2[\x80-\x9f]|\xe2\x80[\x8b\x8e\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf"  # the same in UTF-8
    rb"|[\x00-\x09\x0b-\x1f\x7f]"
)
"""What no log of kasmon holds, as hosts clean foreign text: a machine that sends it is hostile or damaged."""
SUBSTITUTES: Final = {1: b"?", 2: b"\xc2\xbf", 3: b"\xef\xbf\xbd", 6: rb"\ufffd"}
"""By length in bytes, what replaces it."""


def replace_controls(content: bytes) -> bytes:
    """Return *content*, JSON lines of another machine, with as many bytes, without what no file of kasmon's holds."""
    return REPLACED.sub(lambda match: SUBSTITUTES[len(match[0])], content)
