"""The screen `F`: what is left to do of a session's branch, the key for each, and what was done here."""

from typing import Final

from textual import events
from textual.app import ComposeResult

from kasmon.model.fleet import Fleet
from kasmon.model.formatting import state_label, state_name
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.transcript.text import BLANK, Margin, TextLine, Token, wrap
from kasmon.sanitize import clean_line
from kasmon.supervisor.finish.finish_plan import FinishStep, PlannedFinish
from kasmon.tui.action import Handlers, KeyContext
from kasmon.tui.keymap import KeyMap, Keys
from kasmon.tui.messages import DiffRequested
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import StyledSpan, ThemeStyles
from kasmon.tui.widgets.reader import Reader
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines, key_line, side_by_side

KEYS: Final = {
    "commit": "finish_commit",
    "update": "finish_update",
    "push": "finish_push",
    "propose": "finish_propose",
    "merge": "finish_merge",
    "fix": "finish_fix",
    "remove": "finish_discard",
    "overlap": "finish_merge_plan",
}
"""What is left to do -> the action that does it."""
FOOTER: Final = (
    ("finish_commit", "commit"),
    ("finish_update", "update"),
    ("finish_push", "push"),
    ("finish_propose", "pull request"),
    ("finish_merge", "merge"),
    ("finish_take_over", "take over"),
    ("finish_discard", "discard"),
    ("finish_message", "ask for a message"),
    ("finish_fix", "fix"),
    ("leave_finish", "back"),
)
INDENT: Final[Margin] = (("  ", Token.TEXT),)
KEY_CELLS: Final = 4
ACTION_CELLS: Final = 11

Note = tuple[str, Token]


class FinishScreen(Overlay):
    """The branch of *session*. Gets its values by `show` and `note`; *handlers* do what needs more than it."""

    contexts = (KeyContext.FINISH,)
    DEFAULT_CSS = """
    FinishScreen { align: left top; background: $background; }
    FinishScreen Reader { height: 1fr; max-height: 100%; width: 1fr; }
    """

    def __init__(self, look: ThemeStyles, keys: KeyMap, session: Session, handlers: Handlers) -> None:
        super().__init__()
        self.look, self.keys, self.session = look, keys, session
        self.plan: PlannedFinish | None = None
        self.notes: list[Note] = []
        """What was done here, and what failed; oldest first."""
        self.overlap = ""
        """Which other worktree changes the same files; empty for none."""
        self.running = ""
        """What is being done; empty for nothing."""
        self.head = TextLines(look, "surface")
        self.reader = Reader(look, self._rows, background="background")
        self.foot = TextLines(look, "surface")
        self.handlers = {
            Keys.FINISH_DOWN: lambda: self.reader.scroll_pages(1),
            Keys.FINISH_UP: lambda: self.reader.scroll_pages(-1),
            Keys.LEAVE_FINISH: self.dismiss,
            Keys.FINISH_DIFF: lambda: self.post_message(DiffRequested(self.session.id)),
            **handlers,
        }

    @property
    def session_here(self) -> SessionId:
        return self.session.id

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.reader
        yield self.foot

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def takes(self, key: events.Key) -> bool:
        row = self.keys.action_of(key.aliases, KeyContext.FINISH)
        return row is not None and self.do(row)

    def follow(self, fleet: Fleet) -> None:
        now = fleet.get(self.session.id)
        if now is None:
            self.dismiss()
        elif now != self.session:
            before, self.session = self.session, now
            self._draw()
            if (before.state, before.finished_at) != (now.state, now.finished_at):
                self.do(Keys.FINISH_REFRESH)

    def show(self, plan: PlannedFinish) -> None:
        self.plan = plan
        self._draw()

    def note(self, *notes: Note) -> None:
        """Add what was done, or what failed."""
        self.notes += notes
        self._draw()
        self.call_after_refresh(self.reader.scroll_end, animate=False, immediate=True)

    def set_running(self, text: str) -> None:
        """Show what is being done now; empty for nothing."""
        self.running = text
        self._draw()

    # Drawing.

    def _draw(self) -> None:
        name, look = state_name(self.session), self.look
        left: list[StyledSpan] = [(f" {clean_line(self.session.label)}", "text.bold")]
        if self.plan is not None:
            state = self.plan.state
            left += [
                (f"  {clean_line(state.name) or 'no branch'} from {clean_line(state.base_name)}", "text"),
                (f"  {clean_line(state.words)}", "soft"),
            ]
        self.head.say(
            DrawnLine(tuple(left), ((f"{look.state_glyph(name)} {state_label(self.session)} ", f"state-{name}"),))
        )
        self.reader.read(self._rows)
        keys = ((self.keys.shown(action, look.utf8), word, action) for action, word in FOOTER)
        lines = [DrawnLine(key_line([key], (" ", "text")).left, action=key[2]) for key in keys]
        self.foot.say(*side_by_side(lines, max(self.size.width, 1), gap=2))

    def _rows(self, width: int) -> list[TextLine]:
        rows = [BLANK]
        if self.plan is None:
            rows += [] if self.notes else wrap([("Reading the branch…", Token.NOTICE)], width)
        else:
            rows += wrap([("Left to do", Token.STRONG)], width)
            for step in self.plan.steps:
                rows += self._step_rows(step, width)
            if self.overlap:
                text = f"{self.overlap}: `kasmon merge-plan` with both sessions shows what conflicts"
                rows += self._step_rows(FinishStep(action="overlap", text=text, command="`kasmon merge-plan`"), width)
            if not self.plan.steps:
                rows += wrap([("Nothing that kasmon knows of.", Token.NOTICE)], width)
        if self.notes or self.running:
            rows += [BLANK, *wrap([("Done here", Token.STRONG)], width)]
        for text, token in self.notes:
            rows += wrap([(text, token)], width, INDENT, INDENT)
        if self.running:
            rows += wrap([(f"{self.running}…", Token.WARNING)], width, INDENT, INDENT)
        return rows

    def _step_rows(self, step: FinishStep, width: int) -> list[TextLine]:
        """Return a step with its key; below a width for columns, the text begins on the next row."""
        action = KEYS.get(step.action, "") if step.command else ""
        key = self.keys.shown(action, self.look.utf8) if action else ""
        first = ((f"{key:>{KEY_CELLS - 1}} ", Token.STRONG), (f"{step.action:<{ACTION_CELLS}}", Token.TEXT))
        rest = ((" " * (KEY_CELLS + ACTION_CELLS), Token.TEXT),)
        return list(wrap([(clean_line(step.text), Token.OUTPUT)], width, first, rest))


def plan_lines(plan: PlannedFinish) -> tuple[str, ...]:
    """Return the warnings of *plan*, its steps and the hooks that run, a line each."""
    lines = [f"Warning: {warning}." for warning in plan.warnings]
    for step in plan.steps:
        lines.append(f"{step.text[:1].upper()}{step.text[1:]}.")
        if step.hooks:
            lines.append(f"Your hooks run: {', '.join(step.hooks)}.")
    return tuple(lines)
