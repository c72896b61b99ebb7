"""The lines around a request on its card (origin, warnings, scopes of rules), and the card's state. Pure."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Final

import msgspec

from kasmon.model.commands import Mode
from kasmon.model.formatting import age, session_label
from kasmon.model.permission import MAY_BE_CUT, Decision, Request, RequestKind
from kasmon.model.rule import Scope
from kasmon.model.session import Session
from kasmon.model.transcript.request_text import RequestDocument
from kasmon.model.transcript.text import Token, wrap
from kasmon.sanitize import clean_line, visible
from kasmon.tui.action import KeyContext
from kasmon.tui.key_names import shown_key
from kasmon.tui.keymap import ACTIONS, KeyMap
from kasmon.tui.permissions.question_picks import QuestionPicks, row_count
from kasmon.tui.permissions.request_groups import GroupedRequest
from kasmon.tui.permissions.similar_requests import SimilarRequest
from kasmon.tui.session_meter import can
from kasmon.tui.theme.look import KIND_WORDS, LEAST_FOLDER, StyledSpan, ThemeStyles, mode_label, wave_place, width_of
from kasmon.tui.widgets.text_lines import DrawnLine


class ScopeReach(msgspec.Struct, frozen=True):
    """One scope, and whose requests it covers."""

    scope: Scope
    words: str
    """The session, the plan or the folder, in full."""

    @property
    def action(self) -> str:
        """The click action that chooses it."""
        return f"reach-{self.scope}"


THIS_SESSION = ScopeReach("session", "this session")


def reaches(session: Session | None, project: str) -> tuple[ScopeReach, ...]:
    """Return the scopes of a rule for a request of *session*, the narrowest first; *project* is its folder's project.

    None for a session in a terminal: there the agent's own menu defines what "always" means.
    """
    if session is not None and session.mode is Mode.TMUX:
        return ()
    plan = session.plan if session is not None else None
    return (
        THIS_SESSION,
        *([ScopeReach("plan", f"plan {visible(plan)}")] if plan else []),
        *([ScopeReach("project", f"project {visible(project)}")] if project else []),
    )


def find_next_scope(scope: Scope, among: Sequence[ScopeReach]) -> Scope:
    """Return the scope after *scope*; the first after the last."""
    scopes = [reach.scope for reach in among]
    return scopes[(scopes.index(scope) + 1) % len(scopes)] if scope in scopes else "session"


BLANK: Final = DrawnLine()
NARROW: Final = 56
"""With fewer cells the head shows the request's age as a number alone."""
BARE: Final = 3
"""Pieces of the head before the agent's name."""
CHOOSING: Final = ("up", "down", "space")
"""Keys that move among the options of a question, and mark one."""


class CardMode(Enum):
    """What the user does with the request on the card."""

    READING = auto()
    REASONING = auto()
    WORDING = auto()
    """Typing a custom answer."""
    EDITING = auto()
    REVIEWING = auto()
    """Reviewing the edited input before allowing it."""
    SPELLING = auto()
    """Typing the tool's first letters, since there are hidden characters."""
    TOGETHER = auto()
    """Reading all of several similar requests."""
    OVER = auto()
    """The request was answered elsewhere, or the agent withdrew it."""


class CardState(msgspec.Struct, frozen=True, kw_only=True):
    """What the card's lines are drawn from."""

    sheet: RequestDocument
    session: Session | None
    place: int
    """Its position among the pending requests, from 1."""
    waiting: int
    doing: CardMode = CardMode.READING
    armed: bool = False
    """Whether keys count."""
    rows: int = 0
    """How many rows the request takes, as far as known."""
    ahead: int = 0
    """The rows from the first visible one on."""
    below: int = 0
    """The rows below the visible part; computed from the available space."""
    read: bool = False
    """Whether its end was visible."""
    picks: QuestionPicks = QuestionPicks()
    saying: Decision = Decision.DENY
    """The decision that the typed reason is for."""
    reaches: tuple[ScopeReach, ...] = (THIS_SESSION,)
    scope: Scope = "session"
    """The scope of a rule created here: one of `reaches`."""
    alike: tuple[Request, ...] = ()
    """This request and the pending ones similar to it; empty if there are none."""
    group: tuple[GroupedRequest, ...] = ()
    """The requests answered together, while their list is shown."""
    left_out: tuple[GroupedRequest, ...] = ()
    """Those of the list that changed meanwhile: they get no answer."""
    spelled: str = ""
    """The letters typed so far of the tool's first letters."""
    wrong: str = ""
    """What is wrong with the typed text, or that the prompt changed; empty for nothing."""
    ignored: str = ""
    """Why the last key did nothing; empty if it did something."""
    over: str = ""
    """How the request was closed, if it was meanwhile."""
    edited_input: dict[str, Any] | None = None
    """The input that would be allowed instead of the agent's; None for the agent's own."""
    here: Session | None = None
    """The session that the user had selected or opened when the card opened."""
    is_other: bool = False
    """Whether the request is of another session than that, or there was none."""
    is_listed: bool = True
    """Whether the request's session was in the list then."""
    similar: SimilarRequest | None = None
    """Another pending request that is easily mistaken for this one."""
    in_list: bool = False
    """Whether it is beside the list of all requests, which has keys of its own."""

    @property
    def edited(self) -> bool:
        """Whether another input than the agent's would be allowed."""
        return self.edited_input is not None

    @property
    def reach(self) -> str:
        return next((reach.words for reach in self.reaches if reach.scope == self.scope), "")

    @property
    def is_busy(self) -> bool:
        return self.doing not in (CardMode.READING, CardMode.TOGETHER, CardMode.OVER)

    @property
    def reads_reasons(self) -> bool:
        session = self.session
        if self.sheet.request.takes_reason:
            return True
        return session is None or (session.mode is not Mode.TMUX and can(session, "receives_reasons"))

    @property
    def is_elsewhere(self) -> bool:
        """Whether the user can answer in a terminal, so that Enter opens it instead of choosing an option."""
        return self.session is not None and self.session.mode is Mode.TMUX and not self.sheet.request.options

    @property
    def may_rule(self) -> bool:
        """Whether the shown request can become a rule."""
        return bool(self.sheet.request.rule) and not self.sheet.secrets and not self.edited and not self.group


def head_lines(state: CardState, look: ThemeStyles, now: float, width: int) -> list[DrawnLine]:
    """Return what is requested, by which agent, since when, and how many requests are pending."""
    request, session = state.sheet.request, state.session
    if state.group:
        return _list_head(state, look)
    dot = f" {look.mark('dot')} "
    kind = f" {look.state_glyph('asking')} {KIND_WORDS[request.kind]} "
    many = f"{state.place} of {state.waiting}  " if state.waiting > 1 else ""
    since = age(now - request.asked_at)
    left: list[StyledSpan] = [
        (kind, "state-asking.solid.bold"),
        ("  ", "text"),
        (session_label(session, request.session), "text.bold"),
    ]
    right: list[StyledSpan] = [
        (many, "accent.bold"),
        (f"asked {since} ago " if width >= NARROW else f"{since} ", "faint"),
    ]
    if session is not None:
        space = width - width_of(right) - 2
        known = (session.agent, mode_label(session), wave_place(session))
        for part in (clean_line(part) for part in known if part):
            text = f"{dot}{part}" if len(left) > BARE else f"  {part}"
            if width_of(left) + width_of([(text, "")]) > space:
                break
            left.append((text, "soft"))
        else:
            space -= width_of(left) + len(dot)
            folder = look.cut_folder(clean_line(session.workdir), space) if space >= LEAST_FOLDER else ""
            left += [(f"{dot}{folder}", "soft")] if folder else []
    first = DrawnLine(tuple(left), tuple(right))
    title, tool = state.sheet.title(), state.sheet.tool()
    lead: list[StyledSpan] = [(" ", "text")]
    if tool:
        lead += [(tool, "says-tool.bold"), ("  ", "text")]
    if title and not (request.kind is RequestKind.QUESTION and request.shown.startswith(request.title)):
        lead.append((title, "text" if tool else "text.bold"))
    marks = [*_other_session(state, look, width), *_similar(state, look, width)]
    return [first, *(marks or [BLANK]), *([DrawnLine(tuple(lead)), BLANK] if len(lead) > 1 else [])]


def _other_session(state: CardState, look: ThemeStyles, width: int) -> list[DrawnLine]:
    if not state.is_other:
        return []
    current_session = state.here
    mark = "another session" if current_session is not None or state.is_listed else "not in the list"
    return [
        _build_marked(
            mark,
            "warn",
            "" if current_session is None else f"not {session_label(current_session, current_session.id)}",
            look,
            width,
        )
    ]


def _similar(state: CardState, look: ThemeStyles, width: int) -> list[DrawnLine]:
    if (similar := state.similar) is None or state.doing is CardMode.OVER:
        return []
    return [_build_marked(f"looks like {similar.place}, {similar.whose}", "info", similar.difference, look, width)]


def _build_marked(mark: str, role: str, text: str, look: ThemeStyles, width: int) -> DrawnLine:
    chip = look.cut(f" {mark} ", width)
    text = look.cut(f"  {text}", max(0, width - width_of([(chip, "")])))
    return DrawnLine(((chip, f"{role}.solid.bold"), (text, f"{role}.bold")))


def _list_head(state: CardState, look: ThemeStyles) -> list[DrawnLine]:
    kind = f" {look.state_glyph('asking')} {KIND_WORDS[state.sheet.request.kind]} "
    count = f"{len(state.group)} similar requests"
    first = DrawnLine(((kind, "state-asking.solid.bold"), ("  ", "text"), (count, "text.bold")))
    return [first, BLANK, DrawnLine(((" ", "text"), (state.sheet.tool(), "says-tool.bold"))), BLANK]


def list_keys(keys: KeyMap) -> tuple[str, ...]:
    """Return the keys of the inbox itself, which the card beside it must not use."""
    return tuple(key for row in ACTIONS if row.where is KeyContext.INBOX for key in keys.of(row.id))


def note_lines(state: CardState, look: ThemeStyles, keys: KeyMap, width: int) -> list[DrawnLine]:
    """Return all warnings and notes to read before deciding."""
    lines: list[list[StyledSpan]] = []
    if state.below and state.doing is not CardMode.OVER:
        rows = "1 more line" if state.below == 1 else f"{state.below} more lines"
        line: list[StyledSpan] = [(f" ({rows})", "warn")]
        if not state.read:
            taken = list_keys(keys) if state.in_list else CHOOSING if row_count(state.sheet.request) else ()
            key = next((shown_key(key, look.utf8) for key in keys.of("read_on") if key not in taken), "")
            line += [("  ", "text"), (key, "accent.bold"), (" scrolls; approve at the end", "soft")]
        lines.append(line)
    if state.sheet.request.may_be_cut and state.doing is not CardMode.OVER:
        lines.append([(" ", "text"), (f" {MAY_BE_CUT} ", "warn.solid.bold"), (" to allow it", "soft")])
    if state.sheet.hidden and state.doing is not CardMode.OVER:
        why = " text in ⟨ ⟩ is invisible in a terminal"
        lines.append([(" ", "text"), (" hidden characters ", "warn.solid.bold"), (why, "soft")])
    if state.sheet.secrets:
        count = "1 secret" if state.sheet.secrets == 1 else f"{state.sheet.secrets} secrets"
        why = "  no rule can be created"
        lines.append([(f" {count} redacted", "warn"), (why, "soft")])
    if state.edited and state.doing is CardMode.REVIEWING:
        lines.append([(" ", "text"), (" edited ", "info.solid.bold"), (" will run instead", "soft")])
    if state.left_out and state.doing is not CardMode.OVER:
        names = ", ".join(entry.name for entry in state.left_out)
        many = "1 of these was" if len(state.left_out) == 1 else f"{len(state.left_out)} of these were"
        lines.append([(f" {many} changed or withdrawn and will not be answered: {names}", "warn")])
    if state.wrong:
        lines.append([(f" {state.wrong}", "bad.bold")])
    if state.doing is CardMode.SPELLING:
        typed = state.spelled + "_" * (len(state.sheet.letters) - len(state.spelled))
        lines.append([(f" Type {state.sheet.letters} to allow it: ", "warn.bold"), (typed, "text.bold")])
    if state.doing is CardMode.OVER:
        lines.append([(f" {state.over}", "info.bold"), ("  No answer is sent from here.", "soft")])
    shown = (DrawnLine(tuple(row)) for line in lines for row in _split_if_too_long(line, width))
    return [BLANK, *shown, *([BLANK] if lines else [])]


def _split_if_too_long(line: list[StyledSpan], width: int) -> list[list[StyledSpan]]:
    """*line*, or if it is too long each piece of it in rows of its own."""
    if width_of(line) <= width:
        return [line]
    rows: list[list[StyledSpan]] = []
    for text, role in ((text, role) for text, role in line if text.strip()):
        is_chip = ".solid" in role
        wrapped = [text] if is_chip else [row.text for row in wrap([(text.strip(), Token.TEXT)], width - 2)]
        rows += [[(" ", "text"), (row, role)] for row in wrapped]
    return rows
