"""The lines around a request on its card: whose it is, what to mind, which keys do what. Pure."""

from enum import Enum, auto
from typing import Final

import msgspec

from kasmon.clean import clean_line, redact
from kasmon.model.permission import AskKind, Decision
from kasmon.model.session import Session
from kasmon.tui.ask_text import Sheet
from kasmon.tui.keys import Keys
from kasmon.tui.lines import DrawnLine
from kasmon.tui.look import KIND_WORDS, Look, Span, age, mode_word, session_label, wave_place

BLANK: Final = DrawnLine()


class Doing(Enum):
    READING = auto()
    REASONING = auto()
    """Writing why not."""
    EDITING = auto()
    REVIEWING = auto()
    """Looking at the edited input before allowing it."""
    SPELLING = auto()
    """Typing the tool's first letters, since there are hidden characters."""
    OVER = auto()
    """Somebody else answered, or the agent took it back."""


class CardState(msgspec.Struct, frozen=True, kw_only=True):
    """What the card's lines are drawn from."""

    sheet: Sheet
    session: Session | None
    place: int
    waiting: int
    doing: Doing = Doing.READING
    armed: bool = False
    below: int = 0
    read: bool = False
    cursor: int = 0
    picked: frozenset[int] = frozenset()
    spelled: str = ""
    wrong: str = ""
    over: str = ""
    edited: bool = False


def head_lines(state: CardState, look: Look, now: float) -> list[DrawnLine]:
    """What is asked, by whom, since when, and how many wait."""
    request, session = state.sheet.request, state.session
    dot = f" {look.mark('dot')} "
    kind = f" {look.state_glyph('asking')} {KIND_WORDS[request.kind]} "
    many = f"{state.place} of {state.waiting} " if state.waiting > 1 else ""
    who: list[str] = []
    if session is not None:
        who = [session.agent, mode_word(session), wave_place(session), session.workdir]
    first = DrawnLine(
        ((kind, "state-asking.solid.bold"), ("  ", "text"), (session_label(session, request.session), "text.bold"),
         ("  " + dot.join(clean_line(part) for part in who if part), "soft")),
        ((many, "accent.bold"), (f"asked {age(now - request.asked_at)} ago ", "faint")),
    )  # fmt: skip
    title, tool = state.sheet.title(), state.sheet.tool()
    lead: list[Span] = [(" ", "text")]
    if tool:
        lead += [(tool, "says-tool.bold"), ("  ", "text")]
    if title and not (request.kind is AskKind.QUESTION and request.shown.startswith(request.title)):
        lead.append((title, "text" if tool else "text.bold"))
    return [first, BLANK, *([DrawnLine(tuple(lead)), BLANK] if len(lead) > 1 else [])]


def note_lines(state: CardState, look: Look, letters: str) -> list[DrawnLine]:
    """What to mind before deciding."""
    lines: list[list[Span]] = []
    if state.below and state.doing is not Doing.OVER:
        rows = "1 more line" if state.below == 1 else f"{state.below} more lines"
        why = "" if state.read else "  read to the end, then it can be approved"
        lines.append([(f" ({rows})", "warn"), (why, "soft")])
    if state.sheet.hidden and state.doing is not Doing.OVER:
        why = " what stands in ⟨ ⟩ cannot be seen where it runs"
        lines.append([(" ", "text"), (" hidden characters ", "warn.solid.bold"), (why, "soft")])
    if state.sheet.secrets:
        count = "1 secret is" if state.sheet.secrets == 1 else f"{state.sheet.secrets} secrets are"
        why = "  so no rule can be made of it"
        lines.append([(f" {count} not shown", "warn"), (why, "soft")])
    if state.edited and state.doing is Doing.REVIEWING:
        lines.append([(" ", "text"), (" edited ", "info.solid.bold"), (" this is what would run instead", "soft")])
    if state.wrong:
        lines.append([(f" {state.wrong}", "bad.bold")])
    if state.doing is Doing.SPELLING:
        typed = state.spelled + "_" * (len(letters) - len(state.spelled))
        lines.append([(f" Type {letters} to allow it: ", "warn.bold"), (typed, "text.bold")])
    if state.doing is Doing.OVER:
        lines.append([(f" {state.over}", "info.bold"), ("  Nothing is sent from here.", "soft")])
    return [BLANK, *(DrawnLine(tuple(line)) for line in lines), *([BLANK] if lines else [])]


def choice_lines(state: CardState, look: Look, keys: Keys) -> list[DrawnLine]:
    """Which key does what; faint while it would do nothing."""
    ready: Span = (f"{look.state_glyph('working')} ready ", "good")
    deaf: Span = (f"{look.state_glyph('starting')} wait ", "faint")
    gauge = (ready if state.armed else deaf,)
    match state.doing:
        case Doing.REASONING:
            return [_offer(look, "⏎", "deny", True), DrawnLine(_offer(look, "esc", "go back", True).left)]
        case Doing.EDITING:
            return [DrawnLine(_offer(look, "esc", "look at it, then allow or drop it", True).left)]
        case Doing.SPELLING:
            return [DrawnLine(_offer(look, "esc", "go back; nothing is answered", True).left, gauge)]
        case Doing.OVER:
            more = "the next request" if state.waiting else "back to the list"
            line = _offer(look, keys.shown("request_on", look.utf8), more, state.armed, "request_on")
            return [line, DrawnLine(_offer(look, keys.shown("close"), "close", True).left, gauge, "close")]
    lines = [*_options(state, look), *_decisions(state, look, keys)]
    last: list[Span] = list(_offer(look, keys.shown("close", look.utf8), "not now", True).left)
    if state.waiting > 1:
        arrows = f"{keys.shown('request_back', look.utf8)} {keys.shown('request_on', look.utf8)}"
        last += [("    ", "text"), *_offer(look, arrows, "other requests", state.armed).left]
    return [*lines, DrawnLine(tuple(last), gauge, "close")]


def _decisions(state: CardState, look: Look, keys: Keys) -> list[DrawnLine]:
    request, sheet = state.sheet.request, state.sheet
    if not request.answerable:
        return [
            DrawnLine(((" kasmon cannot answer this one: the agent asks in its own terminal.", "soft"),)),
            _offer(look, "⏎" if look.utf8 else "enter", "go there", state.armed, "enter"),
        ]
    approve = state.armed and state.read
    words = {AskKind.PLAN: "Approve the plan", AskKind.AUTH: "I have signed in"}
    lines: list[DrawnLine] = []
    if Decision.ALLOW in request.choices or state.edited:
        once = "Allow it as edited" if state.edited else words.get(request.kind, "Allow once")
        lines.append(_offer(look, keys.shown("allow_once"), once, approve, "allow_once"))
    if Decision.ALWAYS in request.choices and request.rule and not sheet.secrets and not state.edited:
        lines.append(_offer(look, keys.shown("allow_always"), f"Always: {sheet.rule()}", approve, "allow_always"))
    row: list[Span] = []
    if Decision.DENY in request.choices:
        row += [*_offer(look, keys.shown("deny"), "Deny, with a reason", state.armed).left, ("    ", "text")]
    if Decision.EDIT in request.choices and request.input:
        row += [*_offer(look, keys.shown("edit"), "Edit, then allow", approve).left, ("    ", "text")]
    row += _offer(look, keys.shown("later"), "Later" if not request.later else "Stays set aside", state.armed).left
    return [*lines, DrawnLine(tuple(row), action="deny" if Decision.DENY in request.choices else "later")]


def _options(state: CardState, look: Look) -> list[DrawnLine]:
    request = state.sheet.request
    lines: list[DrawnLine] = []
    for number, option in enumerate(request.options):
        picked, here = number in state.picked, number == state.cursor
        box = ("[x]" if picked else "[ ]") if request.many else ("(x)" if picked else "( )")
        if look.utf8:
            box = ("◉" if picked else "○") if not request.many else ("■" if picked else "□")
        role = "accent.bold" if picked else "text"
        label = redact(option, state.sheet.known)[0].replace("\n", "␤")
        spans: tuple[Span, ...] = (
            (f" {look.mark('cursor') if here else ' '} ", "accent"),
            (f"{number + 1} ", "accent.bold" if state.armed else "faint"),
            (f"{box} ", role),
            (label, role if state.armed else "faint"),
        )
        lines.append(DrawnLine(spans, action=f"option-{number}"))
    if lines:
        what = "send what is marked" if request.many else "send the marked one"
        key = "⏎" if look.utf8 else "enter"
        lines += [BLANK, _offer(look, key, what, state.armed and bool(state.picked), "enter")]
    return lines


def _offer(look: Look, key: str, label: str, live: bool, action: str = "") -> DrawnLine:
    roles = ("accent.bold", "text") if live else ("faint", "faint")
    return DrawnLine(((f" {key} ", roles[0]), (f" {label}", roles[1])), action=action)
