"""The panel beside the list: head line and content of the selected session."""

from collections.abc import Callable
from typing import Final

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.commands import Mode
from kasmon.model.formatting import age, state_label, state_name
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.repository.branch import BranchSummary
from kasmon.sanitize import clean_line
from kasmon.tui.clock import Clock
from kasmon.tui.sandbox.status import badge, is_broken, phase_label
from kasmon.tui.session_list.branch_marks import branch_fact
from kasmon.tui.session_list.row import moments
from kasmon.tui.status_bars import LineWidget
from kasmon.tui.textual_ext.strips import UniformLinesMixin
from kasmon.tui.theme.look import (
    LEAST_FOLDER,
    StyledSpan,
    ThemeStyles,
    count,
    evidence,
    mode_label,
    wave_place,
    wave_words,
    width_of,
)

ROOMY_WIDTH: Final = 100
"""From this width on the head uses whole words."""
PreviewContent = Callable[[Session], Widget | None]
"""Builds the widget that shows a session's content; None where there is none to show."""
Reuse = Callable[[Session], bool]
"""Lets the widget that is shown show another session's content; False if that needs a new widget."""


class TerminalPane(Widget):
    """Marks `view.FocusView`, the terminal content: identifies it without importing what draws it."""


class PreviewHead(LineWidget):
    """The head line: name, agent, mode, place, state, evidence."""

    session: reactive[Session | None] = reactive(None, repaint=False)
    pinned: reactive[bool] = reactive(False)
    branch: reactive[BranchSummary | None] = reactive(None, repaint=False)
    """That of the session's worktree."""

    def __init__(self, look: ThemeStyles, clock: Clock) -> None:
        super().__init__(look)
        self.clock = clock
        self._moments = ""

    def tick(self) -> None:
        """Redraw if a shown age has changed; called every second."""
        if self.session is not None and self._moments != moments(self.session, self.clock.now()):
            self.refresh()

    def watch_session(self) -> None:
        self.redraw()

    def watch_branch(self) -> None:
        self.redraw()

    def line(self, width: int) -> Strip:
        session = self.session
        if session is None:
            return self.look.strip([(self.look.mark("rule") * width, "line")], width)
        look, now = self.look, self.clock.now()
        self._moments = moments(session, now)
        dot = f" {look.mark('dot')} "
        name = state_name(session)
        pin = f"{look.mark('pin')} " if self.pinned else ""
        spans = (
            phase_label(session.sandbox_state).removeprefix(name).strip()
            if session.sandbox_state and not session.has_failed_to_start
            else ""
        )
        phase = f"{dot}{spans}" if spans else ""
        right: list[StyledSpan] = [
            (f"{look.state_glyph(name)} {state_label(session)} {age(now - session.since)}", f"state-{name}"),
            (phase, "soft"),
            (f"{dot}{'source: ' if width >= ROOMY_WIDTH else ''}{clean_line(evidence(session, now))} ", "faint"),
        ]
        left: list[StyledSpan] = [
            (f" {pin}", "accent"),
            (look.cut(clean_line(session.label), max(8, width // 3)), "text.bold"),
            *([("  ", "text"), *badge(session, look)] if session.sandbox else []),
            (" not confined" if is_broken(session) else "", "bad.bold"),
        ]
        wave = wave_words(session) if width >= ROOMY_WIDTH else wave_place(session)
        mode = session.mode.value if session.sandbox else clean_line(mode_label(session))
        mode = "" if session.mode is Mode.INTERPRETER else mode  # its agent's name implies it
        facts = [clean_line(session.agent), mode, wave, context_share(session)]
        facts += ["skips permissions"] if session.bypassing else []
        facts += [f"in tmux: {clean_line(session.fallback)}"] if session.fallback else []
        space = width - width_of(left) - width_of(right) - 1
        before = "  "
        used = sum(cell_len(dot + fact) for fact in facts if fact)
        facts.append(branch_fact(self.branch, look, space - used - cell_len(dot)))
        for fact in filter(None, facts):
            if cell_len(before + fact) > space:
                break
            left.append((before + fact, "soft"))
            space -= cell_len(before + fact)
            before = dot
        else:
            if session.workdir and space - len(dot) >= LEAST_FOLDER:
                left += [(dot, "soft"), (look.cut_folder(clean_line(session.workdir), space - len(dot)), "soft")]
        blank = max(1, width - width_of(left) - width_of(right))
        return look.strip([*left, (" " * blank, "text"), *right], width, "surface")


class Preview(UniformLinesMixin, Vertical):
    """The head, and below it one session's content. *make* builds the content, *reuse* changes it to another session's.

    A new widget costs several layouts of the whole screen, during which nothing else is drawn.
    """

    session: reactive[Session | None] = reactive(None, repaint=False)

    def __init__(self, look: ThemeStyles, clock: Clock, make: PreviewContent, reuse: Reuse) -> None:
        super().__init__(id="preview")
        self.head = PreviewHead(look, clock)
        self.look, self.make, self.reuse = look, make, reuse
        self._inside: Widget | None = None
        self._shown_key: tuple[SessionId, Mode] | None = None

    def compose(self) -> ComposeResult:
        yield self.head

    def watch_session(self, session: Session | None) -> None:
        self.head.session = session
        of = None if session is None else (session.id, session.mode)
        if of == self._shown_key:
            return
        self._shown_key = of
        if self._inside is not None:
            if session is not None and self.reuse(session):
                return
            self._inside.remove()
            self._inside = None
        self._build_soon()

    def on_mount(self) -> None:
        self._build_soon()

    def _build_soon(self) -> None:
        """Build after the head is drawn: the content may be slow, and the cursor may already be elsewhere."""
        if self.is_mounted:
            self.call_after_refresh(self.build)

    def build(self) -> None:
        """Build the content, unless it exists or the dashboard is closing."""
        if self._inside is None and self.session is not None and self.is_mounted and self.is_attached:
            self._inside = self.make(self.session)
            if self._inside is not None:
                self.mount(self._inside)

    @property
    def inside(self) -> Widget | None:
        """The content below the head, once it is built."""
        return self._inside


def context_share(session: Session) -> str:
    """Return how full the agent's context window is; empty if unknown."""
    tokens = session.tokens
    if tokens is None or not tokens.context:
        return ""
    if tokens.limit:
        return f"context {min(100, round(100 * tokens.context / tokens.limit))}%"
    return f"context {count(tokens.context)}"
