"""The single lines around the list: totals above, notices, and the key bar below."""

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.cells import cell_len
from textual import events
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.commands import Mode
from kasmon.model.fleet import FleetTotals
from kasmon.model.formatting import mb
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, ATTENTION, SessionState
from kasmon.tui.action import Action, FooterOffer
from kasmon.tui.messages import ActionRequested, StateClicked
from kasmon.tui.sandbox.status import can_pause, can_sleep
from kasmon.tui.session_meter import can
from kasmon.tui.textual_ext.repaint import ImmediatePainter
from kasmon.tui.textual_ext.strips import LinesOnlyMixin
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, count, money, width_of
from kasmon.tui.widgets.text_lines import GAP

LOUD: Final = frozenset({"asking", "finished", "lost", "crashed"})
"""States whose names are bold."""
NEAR: Final = 0.8
"""From this share on a usage limit is marked."""
KEPT: Final = 2
"""The last offers of the key bar are never dropped, however narrow it is: help and leaving."""


class LineWidget(LinesOnlyMixin, Widget):
    """One line that draws itself from a value."""

    DEFAULT_CSS = "LineWidget { height: 1; width: 1fr; }"
    ALLOW_SELECT = False

    def __init__(self, look: ThemeStyles, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.look = look
        self._brush = ImmediatePainter()

    def redraw(self) -> None:
        """Draw this line and nothing else: Textual's own refresh also draws everything between two changed lines."""
        if self.is_attached and self.size:
            self._brush.paint(self, [Region(0, 0, self.size.width, 1)])

    def line(self, width: int) -> Strip:
        """Return its content, exactly *width* cells wide."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        return self.line(self.size.width)


class TopBarContent(msgspec.Struct, frozen=True):
    totals: FleetTotals
    sessions: int
    machines: int = 0
    """How many other machines are registered."""
    unreachable: int = 0
    memory_bytes: int = 0
    """The memory of the sessions on this machine; 0 if it is not known yet."""
    budget_bytes: int = 0
    """The memory that they may use; 0 for no limit."""
    limits: tuple[tuple[str, float], ...] = ()
    """What is used of the limits of accounts: the fullest of each with its share, the fullest account first."""


class TopBar(LineWidget):
    """The fleet in one line: number of sessions in each state, tokens, cost."""

    counted: reactive[TopBarContent | None] = reactive(None, repaint=False)
    _first = 0
    """The cell where the states begin."""
    _placed: Sequence[tuple[str, int]] = ()
    """Each state with its width in cells."""

    def watch_counted(self) -> None:
        self.redraw()

    def line(self, width: int) -> Strip:
        left: list[StyledSpan] = [(" kasmon ", "accent.bold"), (" ", "text")]
        right: list[StyledSpan] = []
        if self.counted is not None:
            totals = self.counted.totals
            left += [(f"{self.counted.sessions} ", "text.bold"), (_plural("session", self.counted.sessions), "soft")]
            cost: list[StyledSpan] = [(f"{money(totals.cost_usd)} ", "text.bold")] if totals.cost_usd else []
            tokens: list[StyledSpan] = [(f"{count(totals.tokens)} ", "text"), ("tokens   ", "faint")]
            tokens = tokens if totals.tokens else []
            memory = self._memory(self.counted)
            states, machines = width_of(self._states(totals, 0)), self._machines(self.counted)
            limits = [span for label, used in self.counted.limits for span in _limit(label, used)]
            for right, position in (
                ([*limits, *memory, *tokens, *cost], machines),
                ([*limits[:2], *memory, *tokens, *cost], machines),
                ([*limits[:2], *memory, *cost], machines),
                ([*limits[:2], *cost], machines),
                ([*tokens, *cost], machines),
                (cost, machines),
                ([], machines),
                ([], machines[-1:] if self.counted.unreachable else []),
                ([], []),
            ):
                space = width - width_of(left) - width_of(position) - width_of(right) - 2
                if states <= space:
                    break
            left += position
            self._first = width_of(left)
            left += self._states(totals, space)
        return self.look.between(left, right, width, "surface")

    def _memory(self, counted: TopBarContent) -> list[StyledSpan]:
        if not counted.memory_bytes:
            return []
        is_over = 0 < counted.budget_bytes < counted.memory_bytes
        of_budget = f" of {mb(counted.budget_bytes)}" if is_over else ""
        return [(f"{mb(counted.memory_bytes)}{of_budget} ", "warn.bold" if is_over else "text"), ("memory   ", "faint")]

    def _machines(self, counted: TopBarContent) -> list[StyledSpan]:
        if not counted.machines:
            return []
        known: StyledSpan = (f"   {counted.machines} {_plural('machine', counted.machines)}", "soft")
        lost: StyledSpan = (f" {self.look.mark('dot')} {counted.unreachable} unreachable", "bad.bold")
        return [known, lost] if counted.unreachable else [known]

    def _states(self, totals: FleetTotals, space: int) -> list[StyledSpan]:
        """Each state's symbol and number, with its name if there is space; those that need attention first."""
        states = _by_attention(totals)
        gap = "   " if space >= 7 * len(states) else "  "
        spans: list[list[StyledSpan]] = []
        for name, number in states:
            loud = ".bold" if name in LOUD else ""
            spans.append([(gap, "faint"), (f"{self.look.state_glyph(name)} {number}", f"state-{name}{loud}")])
        left = space - sum(width_of(each) for each in spans)
        for each, (name, _) in zip(spans, states, strict=True):
            left -= len(name) + 1
            if left < 0:
                break
            each.append((f" {name}", f"state-{name}" if name in LOUD else "soft"))
        if space > 0:
            self._placed = list(zip((name for name, _ in states), map(width_of, spans), strict=True))
        return [span for each in spans for span in each]

    def on_click(self, event: events.Click) -> None:
        """Filter by the clicked state; the app clears the filter if it is already on."""
        x = self._first
        for name, size in self._placed:
            if x <= event.x < x + size:
                self.post_message(StateClicked(name))
            x += size


class BannerContent(msgspec.Struct, frozen=True):
    """The content of the notice line."""

    text: str
    role: str = "warn"
    key: str = ""
    label: str = ""
    action: str = ""


class Banner(LineWidget):
    """A notice that the user should see during other work. Hidden while there is none."""

    DEFAULT_CSS = "Banner { display: none; } Banner.-shown { display: block; }"
    notice: reactive[BannerContent | None] = reactive(None)

    def watch_notice(self, notice: BannerContent | None) -> None:
        self.set_class(notice is not None, "-shown")

    def line(self, width: int) -> Strip:
        notice = self.notice
        if notice is None:
            return Strip.blank(width)
        role = f"{notice.role}.solid"
        key: list[StyledSpan] = [(f"  {notice.key} ", f"{role}.bold"), (notice.label, role)] if notice.key else []
        text = self.look.cut(f" {notice.text}", width - width_of(key) - 1)
        blank = max(0, width - cell_len(text) - width_of(key) - 1)
        return self.look.strip([(text, f"{role}.bold"), *key, (" " * (blank + 1), role)], width)

    def on_click(self) -> None:
        if self.notice is not None and self.notice.action:
            self.post_message(ActionRequested(self.notice.action))


class KeyHint(msgspec.Struct, frozen=True):
    action: str
    key: str
    label: str


def offers_for(session: Session | None, is_somewhere: bool, has_sessions: bool) -> frozenset[FooterOffer]:
    """Return which actions the key bar offers while the cursor is on *session*, or on nothing."""
    holds = {
        FooterOffer.ALWAYS: True,
        FooterOffer.SOMEWHERE: is_somewhere,
        FooterOffer.SESSIONS: has_sessions,
    }
    if session is not None:
        sandbox, runs = session.sandbox_state, session.state in ALIVE
        holds |= {
            FooterOffer.RUNNING: runs,
            FooterOffer.ENDED: not runs,
            FooterOffer.LIVE_TERMINAL: runs and session.has_screen,
            FooterOffer.INTERRUPTIBLE: can(session, "interrupts"),
            FooterOffer.LOGGED_OUT: session.log_in is not None,
            FooterOffer.QUEUED: session.queue > 0,
            FooterOffer.AWAKE: can_sleep(session),
            FooterOffer.PAUSABLE: can_pause(session),
            FooterOffer.ASLEEP: session.is_stopped or (runs and sandbox is not None and sandbox.is_asleep),
            FooterOffer.KEEPING: runs and sandbox is not None and session.mode is Mode.INTERPRETER,
            FooterOffer.UNVIEWED: session.is_unviewed,
            FooterOffer.BRANCHED: session.worktree is not None,
            FooterOffer.SANDBOXED: sandbox is not None,
        }
    return frozenset(when for when, is_so in holds.items() if is_so)


def offers(actions: Sequence[Action], shown: Sequence[str]) -> tuple[KeyHint, ...]:
    """Return what the key bar offers for *actions* whose first keys are *shown*."""
    return tuple(KeyHint(row.id, key, row.label) for row, key in zip(actions, shown, strict=True) if key)


class KeyBar(LineWidget):
    """The keys that count now; clicking one triggers its action."""

    offered: reactive[tuple[KeyHint, ...]] = reactive(())

    def line(self, width: int) -> Strip:
        spans: list[StyledSpan] = [(" ", "text")]
        for offer, _, _ in self._placed(width):
            gap = " " * GAP if len(spans) > 1 else ""
            spans += [(gap, "text"), (f"{offer.key} ", "accent.bold"), (offer.label, "soft")]
        return self.look.strip(spans, width, "surface")

    def _placed(self, width: int) -> list[tuple[KeyHint, int, int]]:
        """The cells of each key; those that do not fit are left out, but never the last ones."""
        placed: list[tuple[KeyHint, int, int]] = []
        last = self.offered[-KEPT:]
        keep = sum(_offer_width(offer) for offer in last)
        x = 1
        for offer in self.offered:
            size = _offer_width(offer)
            if offer not in last and x + size + keep - GAP > width:
                continue
            placed.append((offer, x, x + size - GAP))
            x += size
        return placed

    def on_click(self, event: events.Click) -> None:
        for offer, start, end in self._placed(self.size.width):
            if start <= event.x < end:
                self.post_message(ActionRequested(offer.action))


def _limit(label: str, used: float) -> list[StyledSpan]:
    role = "bad.bold" if used >= 1 else "warn.bold" if used >= NEAR else "text"
    return [(f"{label} ", "faint"), (f"{used:.0%}   ", role)]


def _plural(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def _offer_width(offer: KeyHint) -> int:
    return cell_len(offer.key) + 1 + cell_len(offer.label) + GAP


def _by_attention(totals: FleetTotals) -> list[tuple[str, int]]:
    ended = totals.states.get(SessionState.ENDED, 0) - totals.crashed
    numbers = {state.value: totals.states.get(state, 0) for state in ATTENTION} | {"ended": ended}
    first = ("asking", "finished", "lost", "crashed")
    ordered = [*first, *(state.value for state in ATTENTION if state.value not in first)]
    numbers |= {"crashed": totals.crashed, "finished": totals.finished}
    return [(name, numbers[name]) for name in ordered if numbers.get(name, 0) > 0]
