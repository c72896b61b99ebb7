"""The single lines around the list: totals above, notices, and the keys that matter now below."""

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.cells import cell_len
from textual import events
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.fleet import Totals
from kasmon.model.state import ATTENTION, SessionState
from kasmon.tui.keys import Action
from kasmon.tui.look import Look, Span, count, money, width_of
from kasmon.tui.messages import ActionWanted

LOUD: Final = frozenset({"asking", "lost", "crashed"})
"""States whose names stand out."""


class LineWidget(Widget):
    """One line that draws itself from a value."""

    DEFAULT_CSS = "LineWidget { height: 1; width: 1fr; }"
    ALLOW_SELECT = False

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.look = look

    def dress(self, look: Look) -> None:
        """Draw with *look* from now on."""
        self.look = look
        self.refresh()

    def line(self, width: int) -> Strip:
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        return self.line(self.size.width)


class Counted(msgspec.Struct, frozen=True):
    """What the line at the top says."""

    totals: Totals
    sessions: int
    note: str = ""
    """A word on the list itself: its filter, its order held."""


class TopBar(LineWidget):
    """The fleet in one line: how many are in which state, tokens, cost."""

    counted: reactive[Counted | None] = reactive(None)

    def line(self, width: int) -> Strip:
        left: list[Span] = [(" kasmon ", "accent.bold"), (" ", "text")]
        right: list[Span] = []
        if self.counted is not None:
            totals = self.counted.totals
            left += [(f"{self.counted.sessions} ", "text.bold"), (_plural("session", self.counted.sessions), "soft")]
            cost: list[Span] = [(f"{money(totals.cost_usd)} ", "text.bold")]
            tokens: list[Span] = [(f"{count(totals.tokens)} ", "text"), ("tokens   ", "faint")]
            for right in ([*tokens, *cost], cost, []):
                room = width - width_of(left) - width_of(right) - 2
                if width_of(self._states(totals, 0)) <= room:
                    break
            left += self._states(totals, room)
        return self.look.between(left, right, width, "surface")

    def _states(self, totals: Totals, room: int) -> list[Span]:
        """Each state's shape and number, with its word as long as there is room; those that need a person first."""
        states = _by_attention(totals)
        gap = "   " if room >= 7 * len(states) else "  "
        spans: list[list[Span]] = []
        for name, number in states:
            loud = ".bold" if name in LOUD else ""
            spans.append([(gap, "faint"), (f"{self.look.state_glyph(name)} {number}", f"state-{name}{loud}")])
        left = room - sum(width_of(each) for each in spans)
        for each, (name, _) in zip(spans, states, strict=True):
            left -= len(name) + 1
            if left < 0:
                break
            each.append((f" {name}", f"state-{name}" if name in LOUD else "soft"))
        return [span for each in spans for span in each]


class Notice(msgspec.Struct, frozen=True):
    """One line that asks to be noticed."""

    text: str
    role: str = "warn"
    key: str = ""
    label: str = ""
    action: str = ""


class Banner(LineWidget):
    """Something that a person should know while doing something else. Hidden while there is nothing."""

    DEFAULT_CSS = "Banner { display: none; } Banner.-shown { display: block; }"
    notice: reactive[Notice | None] = reactive(None)

    def watch_notice(self, notice: Notice | None) -> None:
        self.set_class(notice is not None, "-shown")

    def line(self, width: int) -> Strip:
        notice = self.notice
        if notice is None:
            return Strip.blank(width)
        role = f"{notice.role}.solid"
        key: list[Span] = [(f"  {notice.key} ", f"{role}.bold"), (notice.label, role)] if notice.key else []
        text = self.look.cut(f" {notice.text}", width - width_of(key) - 1)
        blank = max(0, width - cell_len(text) - width_of(key) - 1)
        return self.look.strip([(text, f"{role}.bold"), *key, (" " * (blank + 1), role)], width)

    def on_click(self) -> None:
        if self.notice is not None and self.notice.action:
            self.post_message(ActionWanted(self.notice.action))


class Offer(msgspec.Struct, frozen=True):
    """One key in the line at the bottom."""

    action: str
    key: str
    label: str


def offers(actions: Sequence[Action], shown: Sequence[str]) -> tuple[Offer, ...]:
    """What the line at the bottom offers for *actions* whose first keys are *shown*."""
    return tuple(Offer(row.id, key, row.label) for row, key in zip(actions, shown, strict=True) if key)


class KeyBar(LineWidget):
    """The keys that matter now; a click on one does the same."""

    offered: reactive[tuple[Offer, ...]] = reactive(())

    def line(self, width: int) -> Strip:
        spans: list[Span] = [(" ", "text")]
        for offer, _, _ in self._placed(width):
            gap = "   " if len(spans) > 1 else ""
            spans += [(gap, "text"), (f"{offer.key} ", "accent.bold"), (offer.label, "soft")]
        return self.look.strip(spans, width, "surface")

    def _placed(self, width: int) -> list[tuple[Offer, int, int]]:
        """Where each key stands; those that do not fit are left out, but never the last one."""
        placed: list[tuple[Offer, int, int]] = []
        last = self.offered[-1:] if self.offered else ()
        keep = sum(_offer_width(offer) for offer in last)
        x = 1
        for offer in self.offered:
            size = _offer_width(offer)
            if x + size + (keep if offer not in last else 0) - 3 > width:
                continue
            placed.append((offer, x, x + size - 3))
            x += size
        return placed

    def on_click(self, event: events.Click) -> None:
        for offer, start, end in self._placed(self.size.width):
            if start <= event.x < end:
                self.post_message(ActionWanted(offer.action))


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def _offer_width(offer: Offer) -> int:
    return cell_len(offer.key) + 1 + cell_len(offer.label) + 3


def _by_attention(totals: Totals) -> list[tuple[str, int]]:
    """The states that some session is in, those that need a person first."""
    ended = totals.states.get(SessionState.ENDED, 0) - totals.crashed
    numbers = {state.value: totals.states.get(state, 0) for state in ATTENTION} | {"ended": ended}
    ordered = ["asking", "lost", "crashed", *(s.value for s in ATTENTION if s.value not in ("asking", "lost"))]
    numbers["crashed"] = totals.crashed
    return [(name, numbers[name]) for name in ordered if numbers.get(name, 0) > 0]
