"""The usage line of a session: context, tokens, cost, model, permission mode."""

from typing import Final

from kasmon.model.commands import Mode
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.tui.theme.look import Span, ThemeStyles, count, money, width_of
from kasmon.tui.widgets.text_lines import DrawnLine

BAR: Final = 12
"""Cells of the bar that shows how full the context is."""
TIGHT: Final = 0.75
FULL: Final = 0.9
"""Shares of the context from which on the bar warns."""


def can(session: Session, ability: str) -> bool:
    """Whether the agent has this ability; an agent that never listed its abilities counts as able."""
    return not session.abilities or ability in session.abilities


def can_be_configured(session: Session) -> bool:
    """Whether its model or permission mode can be changed while it runs."""
    return session.mode is not Mode.TMUX and session.exists and bool(settable(session))


def settable(session: Session) -> tuple[str, ...]:
    """Return what can be changed while it runs: `model`, `permission_mode`."""
    model = "sets_model" in session.abilities and bool(session.models)
    mode = "sets_permission_mode" in session.abilities and bool(session.permission_modes)
    return (*(["model"] if model else []), *(["permission_mode"] if mode else []))


def meter(session: Session, look: ThemeStyles, key: str, width: int) -> DrawnLine | None:
    """Return the line above the prompt box; None if nothing is known. *key* opens the model settings."""
    left = _context(session, look)
    if session.cost_usd:
        left += [*_gap(left), (money(session.cost_usd), "text")]
    if session.tokens is not None and (used := session.tokens.input + session.tokens.output):
        left += [*_gap(left), (count(used), "text"), (" tokens", "faint")]
    right: list[Span] = [(" ".join(_settings(session, look)), "soft")]
    if can_be_configured(session) and key:
        right += [(f"  {key} ", "accent.bold"), ("change ", "soft")]
    if not left and not right[0][0]:
        return None
    for fewer in (_context(session, look), _context(session, look, bar=False)):
        if width_of(left) + width_of(right) + 4 > width:
            left = fewer
    if width_of(left) + width_of(right) + 4 > width:
        right = right[1:]
    return DrawnLine((((" "), "text"), *left), tuple(right), action="configure" if can_be_configured(session) else "")


def _context(session: Session, look: ThemeStyles, *, bar: bool = True) -> list[Span]:
    tokens = session.tokens
    if tokens is None or not tokens.context:
        return []
    if not tokens.limit:
        return [("context ", "faint"), (count(tokens.context), "text")]
    share = min(tokens.context / tokens.limit, 1.0)
    role = "bad" if share >= FULL else "warn" if share >= TIGHT else "info"
    full = max(round(share * BAR), 1)
    shapes = ("━", "─") if look.utf8 else ("#", "-")
    return [
        ("context", "faint"),
        *([(" ", "text"), (shapes[0] * full, role), (shapes[1] * (BAR - full), "line")] if bar else []),
        (f" {share:.0%}", f"{role}.bold" if share >= TIGHT else "text"),
        (f" of {count(tokens.limit)}", "faint"),
    ]


def _settings(session: Session, look: ThemeStyles) -> list[str]:
    labels = [clean_line(text) for text in (session.model, session.permission_mode) if text]
    return [f" {look.mark('dot')} ".join(labels)] if labels else []


def _gap(left: list[Span]) -> list[Span]:
    return [("   ", "text")] if left else []
