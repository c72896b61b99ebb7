"""How values are displayed: glyph, word, colour, short number. Pure; every widget draws with this.

A drawn text is a sequence of spans, each with a role (`text`, `soft`, `state-asking`, ... and `.bold`); `ThemeStyles`
has the style of a role on each background. A state always has a shape and a word, never a colour alone.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kasmon.model.commands import Mode, ReceiptState
from kasmon.model.fleet import Wave
from kasmon.model.formatting import GLYPHS, age, ending, foremost, lost_why, mb, state_name, unreachable_words
from kasmon.model.permission import RequestKind
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.theme.theme import ThemeFile, diff_backgrounds, readable, variables

StyledSpan: TypeAlias = tuple[str, str]
"""Text, and its role."""
Background: TypeAlias = Literal[
    "background", "surface", "raised", "selected", "added", "removed", "added-words", "removed-words"
]
"""The last four are below the lines of a diff, and below the words that changed in them."""

MARKS: Final = {
    "cursor": ("▌", ">"),
    "bypass": ("▲", "^"),
    "fallback": ("↓", "v"),
    "open": ("▾", "-"),
    "shut": ("▸", "+"),
    "more": ("…", "~"),
    "dot": ("·", "-"),
    "times": ("×", "x"),
    "child": ("└", "`"),
    "rule": ("─", "-"),
    "bar": ("│", "|"),
    "pin": ("◉", "@"),
    "held": ("⏸", "="),
    "collides": ("⇄", "%"),
    "proposal": ("»", "f"),
    "proven": ("▣", "#"),
    "unproven": ("□", "?"),
    "breach": ("⊠", "X"),
    "walled": ("◈", "*"),
    "remote": ("◎", "@"),
}

RECEIPT_WORDS: Final = {
    ReceiptState.QUEUED: "queued",
    ReceiptState.TYPED: "typed",
    ReceiptState.SUBMITTED: "sent",
    ReceiptState.STARTED: "running",
    ReceiptState.FINISHED: "done",
    ReceiptState.FAILED: "failed",
    ReceiptState.UNSURE: "unverified",
    ReceiptState.REFUSED: "refused",
    ReceiptState.LOST: "lost",
}

KIND_WORDS: Final = {
    RequestKind.PERMISSION: "permission",
    RequestKind.QUESTION: "question",
    RequestKind.PLAN: "plan",
    RequestKind.AUTH: "login",
}
PLAIN_BACKGROUNDS: Final = frozenset({"background", "surface", "raised"})
"""A theme's texts are readable on these as they are."""
LEAST_FOLDER: Final = 8
"""A folder gets at least so many cells, or is left out."""


class ThemeStyles:
    """The styles of the current theme, and the shapes that the terminal can show. All widgets share it."""

    def __init__(self, theme: ThemeFile, *, utf8: bool = True) -> None:
        self.utf8 = utf8
        self.use(theme)

    def use(self, theme: ThemeFile) -> None:
        """Have the styles of *theme* from now on; what was drawn before has to be drawn again."""
        self.theme = theme
        self._colours = variables(theme) | diff_backgrounds(theme)
        self._styles: dict[tuple[str, Background], Style] = {}

    def colour(self, role: str) -> str:
        """Return the colour of *role*, as `#rrggbb`."""
        name = role.partition(".")[0]
        return self._colours.get(f"k-{name}") or self._colours.get(name) or self._colours["k-text"]

    def style(self, role: str, background: Background = "background") -> Style:
        """Return the style of *role* on *background*; readable there with any theme."""
        key = (role, background)
        if (known := self._styles.get(key)) is not None:
            return known
        back = self._colours[f"k-{background}"]
        front = self.colour(role)
        how = role.split(".")[1:]
        if "solid" in how:
            back, front = front, self._colours["k-background"]
        elif "line" not in role:
            front = readable(front, back, self.theme.contrast) if background not in PLAIN_BACKGROUNDS else front
        style = Style(
            color=front, bgcolor=back, bold="bold" in how or None, italic="italic" in how or None,
            underline="underline" in how or None, strike="strike" in how or None,
        )  # fmt: skip
        self._styles[key] = style
        return style

    def glyph(self, session: Session) -> str:
        return GLYPHS[state_name(session)][0 if self.utf8 else 1]

    def state_glyph(self, state: str) -> str:
        return GLYPHS[state][0 if self.utf8 else 1]

    def mark(self, name: str) -> str:
        return MARKS[name][0 if self.utf8 else 1]

    def cut(self, text: str, width: int) -> str:
        """Return *text* in at most *width* cells; a cut text ends in an ellipsis."""
        if cell_len(text) <= width:
            return text
        return set_cell_size(text, max(0, width - 1)) + self.mark("more") if width > 0 else ""

    def cut_left(self, text: str, width: int) -> str:
        """Return the end of *text* in at most *width* cells; a cut text begins with an ellipsis."""
        if cell_len(text) <= width:
            return text
        shown = text
        while shown and cell_len(shown) >= width:
            shown = shown[1:]
        return self.mark("more") + shown if width > 0 else ""

    def cut_folder(self, path: str, width: int) -> str:
        """Return the end of *path* in at most *width* cells, in whole names if one fits."""
        shown = self.cut_left(path, width)
        begins = shown.find("/", 1)
        return self.mark("more") + shown[begins:] if shown != path and 0 < begins < len(shown) - 1 else shown

    def fit(self, text: str, width: int, right: bool = False) -> str:
        shown = self.cut(text, width)
        blank = " " * (width - cell_len(shown))
        return blank + shown if right else shown + blank

    def strip(self, spans: Iterable[StyledSpan], width: int, background: Background = "background") -> Strip:
        """Return *spans* as one line of exactly *width* cells, in as few segments as possible: each costs time."""
        pieces: list[tuple[str, str]] = []
        left = width
        for text, role in spans:
            size = cell_len(text)
            if size > left:
                text, size = self.fit(text, left), left
            if pieces and (pieces[-1][1] == role or (text.isspace() and ".solid" not in f"{role}{pieces[-1][1]}")):
                pieces[-1] = (pieces[-1][0] + text, pieces[-1][1])
            elif text:
                pieces.append((text, role))
            left -= size
            if left <= 0:
                break
        if left > 0:
            blank = " " * left
            if pieces and ".solid" not in pieces[-1][1]:
                pieces[-1] = (pieces[-1][0] + blank, pieces[-1][1])
            else:
                pieces.append((blank, "text"))
        return Strip([Segment(text, self.style(role, background)) for text, role in pieces], width)

    def between(
        self, left: Sequence[StyledSpan], right: Sequence[StyledSpan], width: int, background: Background = "background"
    ) -> Strip:
        """Return one line of *width* cells with *left* and *right* at its ends; *left* is cut if needed."""
        space = max(0, width - width_of(right) - (1 if right else 0))
        shown: list[StyledSpan] = []
        for text, role in left:
            cut = self.cut(text, space)
            shown.append((cut, role))
            space -= cell_len(cut)
            if space <= 0:
                break
        blank = max(0, width - width_of(shown) - width_of(right))
        return self.strip([*shown, (" " * blank, "text"), *right], width, background)

    def token(self, token: Token, background: Background = "background") -> Style:
        """Return the style of a piece of a transcript or a request."""
        return self.style(TOKENS[token], background)


HUES: Final = {
    "red": "bad",
    "green": "good",
    "yellow": "warn",
    "blue": "accent",
    "magenta": "says-heading",
    "cyan": "info",
}
"""A hue of a program's output -> its role."""

TOKENS: Final = {
    Token.TEXT: "text",
    Token.FAINT: "faint",
    Token.HEADING: "says-heading.bold",
    Token.STRONG: "text.bold",
    Token.EMPHASIS: "text.italic",
    Token.STRIKE: "faint.strike",
    Token.LINK: "accent.underline",
    Token.CODE: "says-code",
    Token.CODE_BLOCK: "says-code",
    Token.BULLET: "accent",
    Token.PROMPT: "says-person.bold",
    Token.THOUGHT: "says-thought.italic",
    Token.TOOL: "says-tool.bold",
    Token.SUBJECT: "text",
    Token.OUTPUT: "soft",
    Token.OK: "good",
    Token.FAILED: "bad",
    Token.ADDED: "diff-added",
    Token.REMOVED: "diff-removed",
    Token.SAME: "soft",
    Token.HUNK: "diff-hunk",
    Token.NUMBER: "faint",
    Token.DONE: "good",
    Token.DOING: "info.bold",
    Token.OPEN: "faint",
    Token.ASKS: "state-asking.bold",
    Token.ANSWER: "info",
    Token.NOTICE: "soft",
    Token.WARNING: "warn.bold",
    Token.ERROR: "bad.bold",
    Token.LIMIT: "state-limited",
    Token.BOUNDARY: "faint",
    Token.SESSION: "faint",
    Token.FOUND: "accent.solid.bold",
    Token.KEYWORD: "says-heading",
    Token.NAME: "info",
    Token.LITERAL: "good",
    Token.FIGURE: "warn",
    Token.COMMENT: "faint.italic",
    Token.LOUD: "text.bold",
    **{
        token: f"{role}{how}"
        for loud, how in (("", ""), ("loud-", ".bold"))
        for hue, role in HUES.items()
        if (token := Token(f"{loud}{hue}"))
    },
}
"""The kind of a piece of text -> its role."""


def width_of(spans: Iterable[StyledSpan]) -> int:
    """Return how many cells *spans* take."""
    return sum(cell_len(text) for text, _ in spans)


def count(number: int) -> str:
    """Return a number in at most five characters: 950, 1.2k, 48k, 1.2M."""
    if number < 1000:
        return str(number)
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if number >= size * 0.9995:
            value = number / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(number)


def money(usd: float) -> str:
    """Return an amount of US dollars, from a hundred on without cents: $0.42, $1,204."""
    return f"${usd:.2f}" if usd < 99.995 else f"${usd:,.0f}"


def session_tokens(session: Session) -> str:
    """Return how many tokens it used, in the format of `count`; empty if unknown."""
    return count(session.tokens.used) if session.tokens and session.tokens.used else ""


def wave_place(session: Session) -> str:
    """Return the wave, and the task's number of how many: `w2 3/4`."""
    if session.wave is None:
        return ""
    task = "" if session.task is None else f" {session.task}"
    return f"w{session.wave}{task}" + (f"/{session.peers}" if _of_wave(session) else "")


def wave_words(session: Session) -> str:
    """Return the same in words: `wave 2, task 3 of 4`."""
    if session.wave is None:
        return ""
    task = "" if session.task is None else f", task {session.task}"
    return f"wave {session.wave}{task}" + (f" of {session.peers}" if task and _of_wave(session) else "")


def _of_wave(session: Session) -> bool:
    """Whether its task's number is one within its wave: a plan may number its tasks throughout."""
    return session.peers is not None and (session.task or 0) <= session.peers


def mode_label(session: Session) -> str:
    """Return where it runs: `adopted` is the user's own tmux; in a terminal with the permission mode: `tmux auto`."""
    where = "adopted" if session.adopted else session.mode.value
    reported = session.permission_mode if session.mode is Mode.TMUX else ""
    return session.sandbox or f"{where} {reported}".strip()


def news(session: Session, now: float) -> list[StyledSpan]:
    """Return the current activity of *session*, in one line."""
    text = clean_line(session.last_line)
    state = SessionState.ASKING if session.has_host_request else session.state
    match state:
        case SessionState.ASKING if ask := foremost(session):
            what = clean_line(ask.tool) or KIND_WORDS[ask.kind]
            aside = [("snoozed ", "faint")] if ask.later else []
            return [*aside, (what, "state-asking.bold"), ("  ", "text"), (clean_line(ask.title or ask.shown), "text")]
        case SessionState.ASKING:
            kind = KIND_WORDS[session.asking or RequestKind.QUESTION]
            return [(kind, "state-asking.bold"), ("  ", "text"), (text, "text")]
        case SessionState.UNSURE if session.is_unreachable:
            return [
                (unreachable_words(session.since, now), "soft"),
                *_after(clean_line((session.unsure_why or "").partition(": ")[2])),
            ]
        case SessionState.UNSURE:
            return [(clean_line(session.unsure_why or "no reliable status signal"), "state-unsure"), *_after(text)]
        case SessionState.LOST:
            return [(lost_why(session), "state-lost"), *_after(text)]
        case SessionState.LIMITED:
            until = session.limited_until
            wait = "until the limit resets" if until is None else f"for {age(until - now)} more"
            return [(wait, "state-limited"), *_after(text)]
        case SessionState.HIBERNATED:
            return [(f"hibernated, {mb(session.freed_bytes or 0)} freed", "state-hibernated"), *_after(text)]
        case SessionState.ENDED:
            role = "state-crashed" if session.crashed else "faint"
            return [(ending(session), role), *_after(text if text != ending(session) else "")]
        case SessionState.IDLE if session.turn_ended == "error":
            error = clean_line(session.turn_error)
            return [("failed: ", "bad.bold"), (error, "bad"), *_after("" if text in error or error in text else text)]
        case SessionState.IDLE if session.finish_proposed:
            who = clean_line(session.finish_proposed_by) or "an agent"
            at = f"{age(now - session.finish_proposed_at)} ago"
            return [(f"{who} proposes to finish, {at}:", "info"), *_after(clean_line(session.finish_proposed))]
        case SessionState.WORKING if session.stuck:
            why = f"stuck? {clean_line(session.stuck_why)}".strip()
            return [(why, "state-unsure.bold"), *_after(text)]
        case SessionState.WORKING | SessionState.IDLE if session.waits:
            return [(f"waiting: {clean_line(session.waits)}", "info"), *_after(text)]
    return [(text, "soft" if session.state is not SessionState.WORKING else "text")]


def evidence(session: Session, now: float) -> str:
    """Return the source of the state, and the age of its last signal."""
    signal = next((s for s in session.signals if s.source == session.source), None)
    source = "kasmon" if session.source == "fleet" else session.source
    return f"{source} {age(now - signal.at)}" if signal else source


def wave_progress(wave: Wave, look: ThemeStyles) -> list[StyledSpan]:
    """Return one shape for each session of a wave, and how many of them are done."""
    shapes: list[StyledSpan] = [(look.glyph(s), f"state-{state_name(s)}") for s in wave.sessions[:24]]
    more = [(look.mark("more"), "faint")] if len(wave.sessions) > 24 else []
    missing = wave.peers - len(wave.sessions)
    waiting: list[StyledSpan] = [(look.state_glyph("starting") * min(missing, 24), "faint")] if missing > 0 else []
    return [*shapes, *more, *waiting, (f"  {wave.done}/{wave.peers}", "text.bold")]


def _after(text: str) -> list[StyledSpan]:
    return [("  ", "text"), (text, "faint")] if text else []
