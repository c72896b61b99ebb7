"""The scripted agent's terminal program: feeds keys to the actor and draws the actor's moves."""

import os
import time
from base64 import b64encode
from typing import Final, Literal, NamedTuple

from kasmon.errors import KasmonError
from kasmon.model import events
from kasmon.model.commands import Answer, Launch, Mode, Prompt
from kasmon.model.permission import RequestKind, SessionId
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.text import BLANK, TextLine, Token
from kasmon.sanitize import clean_line, first_line
from kasmon.scripted_agent.agent import Actor
from kasmon.scripted_agent.player import ScriptPause, SpokenText
from kasmon.scripted_agent.script import boot_s
from kasmon.scripted_agent.terminal.arguments import Arguments
from kasmon.scripted_agent.terminal.keyboard import Key, Keyboard
from kasmon.scripted_agent.terminal.menu import ScriptedMenu
from kasmon.scripted_agent.terminal.painter import BAR, Painter, paint
from kasmon.scripted_agent.terminal.prompt_box import ScriptedPromptBox
from kasmon.scripted_agent.terminal.tty import RawTerminal, kill_self

ProgramState = Literal["idle", "working", "done", "blocked", "error"]
ESCAPE_S: Final = 0.03
"""How long an ESC waits for more before it is the Escape key."""
MOVES: Final = 200
"""How many moves are made before keys are read and the screen is drawn."""
BOX_ROWS: Final = 6
AFTER: Final[dict[str, ProgramState]] = {"done": "done", "interrupted": "idle", "limit": "error", "error": "error"}
"""The state that is reported to the terminal after a turn, by its reason."""
WAITING: Final = {
    RequestKind.PERMISSION: ("asks", "permission"),
    RequestKind.QUESTION: ("asks", "question"),
    RequestKind.PLAN: ("plan", "permission"),
    RequestKind.AUTH: ("sign in", "auth"),
}
"""What the bar shows while a request is open, and the kind that is reported to the terminal."""
HINT: Final = "Enter sends · Alt+Enter new line · Esc interrupts · Ctrl+C twice ends"
SURE: Final = "Ctrl+C again ends the agent"
MESSAGE_CHARACTERS: Final = 200
TITLE_CHARACTERS: Final = 60
"""The most characters of a message and of a title."""
CLEAR_STATE: Final = "\x1b]7501;state=clear:app=scripted\x07"


class TerminalState(NamedTuple):
    """The state last reported to the terminal."""

    state: ProgramState
    asking: RequestKind | None = None
    message: str = ""


class Program:
    """One run, from the first prompt to the exit code."""

    def __init__(self, terminal: RawTerminal, arguments: Arguments) -> None:
        self._terminal, self._arguments = terminal, arguments
        launch = Launch(
            session=SessionId("scripted"),
            name="scripted",
            agent="scripted",
            mode=Mode.TMUX,
            backend="scripted",
            seed=arguments.seed,
            speed=arguments.speed,
        )
        self._actor = Actor(launch)
        self._transcript = Transcript()
        self._keyboard, self._box, self._painter = Keyboard(), ScriptedPromptBox(), Painter()
        self._menu: ScriptedMenu | None = None
        self._partial = ""
        self._last: TerminalState = TerminalState("idle")
        self._reported: TerminalState | None = None
        self._confirms_end = False
        self._above = 0
        self._exit: int | None = None
        self._colours = not os.environ.get("NO_COLOR")  # no-color.org

    def run(self) -> int:
        """Play until the agent ends; return the exit code. Raises `Hangup` if the terminal goes away."""
        self._terminal.write(build_title_report(""))
        self._boot()
        if self._arguments.script.strip():
            self._actor.prompt(Prompt(text=self._arguments.script), time.time())
        while self._exit is None:
            limit_s = self._move()
            if self._exit is None:
                self._show()
                self._listen(limit_s)
        return self._exit

    def _boot(self) -> None:
        """Wait as long as the script's `boot` says; typed input stays queued."""
        speed = self._arguments.speed
        until = time.monotonic() + (boot_s(self._arguments.script) / speed if speed > 0 else 0.0)
        while self._exit is None and (left := until - time.monotonic()) > 0:
            self._draw("starting")
            self._listen(left)

    def _move(self) -> float | None:
        """Perform the actor's next moves; return how long to wait for keys then."""
        for _ in range(MOVES):
            match self._actor.advance(time.time()):
                case None:
                    return None
                case ScriptPause(seconds=seconds):
                    return seconds
                case SpokenText(text=text, thinking=thinking):
                    self._partial += text
                    self._transcript.write(self._partial, thinking)
                case event:
                    self._handle_event(event)
                    if self._exit is not None:
                        return None
        return 0.0

    def _handle_event(self, event: events.Event) -> None:
        self._transcript.add(event)
        self._partial = ""
        if isinstance(event, events.TurnStarted):
            self._last = TerminalState("working")
            self._terminal.write(build_title_report(event.prompt))
        elif isinstance(event, events.MessageWritten):
            self._last = self._last._replace(message=event.text.split("\n", 1)[0])
        elif isinstance(event, events.TurnEnded):
            self._last = TerminalState(AFTER[event.reason], message=event.error or self._last.message)
        elif isinstance(event, events.SessionEnded):
            self._leave(event)

    def _leave(self, ended: events.SessionEnded) -> None:
        how = f"by {ended.signal}" if ended.signal else f"with exit code {ended.exit_code}"
        self._show()
        self._end(ended.exit_code or 0, f"The scripted agent ended {how}.")
        if ended.signal is not None:
            import signal

            self._terminal.give_back()
            kill_self(signal.Signals[ended.signal])

    def _end(self, code: int, message: str) -> None:
        self._terminal.write(CLEAR_STATE)
        self._terminal.last_words = message
        self._exit = code

    def _listen(self, limit_s: float | None) -> None:
        waits = self._keyboard.waits
        typed = self._terminal.read(min(ESCAPE_S, limit_s or ESCAPE_S) if waits else limit_s)
        keys = self._keyboard.feed(typed) if typed or not waits else self._keyboard.give_up_waiting()
        for key in keys:
            if self._exit is None:
                self._press(key)

    def _press(self, key: Key) -> None:
        confirmed, self._confirms_end = self._confirms_end, False
        now = time.time()
        menu = self._open_menu()
        match key.name:
            case "ctrl-c" if confirmed:
                self._end(0, "The scripted agent ended.")
            case "ctrl-c":
                self._confirms_end = True
                if not self._box.pop_text():
                    self._actor.interrupt(now)
            case "ctrl-d" if not self._box.text:
                self._end(0, "The scripted agent ended.")
            case "escape":
                self._actor.interrupt(now)
            case "page-up" | "page-down":
                self._scroll(up=key.name == "page-up")
            case "paste":
                self._box.press(key)
            case _ if menu is not None:
                self._answer(menu.press(key))
            case "enter":
                self._send(now)
            case _:
                self._box.press(key)

    def _send(self, now: float) -> None:
        text = self._box.pop_text()
        if text.strip():
            self._above = 0
            self._actor.prompt(Prompt(text=text), now)

    def _answer(self, answer: Answer | None) -> None:
        if answer is None:
            return
        now = time.time()
        try:
            self._actor.answer(answer)
        except KasmonError as error:
            self._transcript.add(events.NoticeRaised(at=now, text=str(error), level="warning"))
        else:
            answered = events.RequestAnswered(
                at=now, request=answer.request, decision=answer.decision, labels=answer.labels
            )
            self._transcript.add(answered)

    def _open_menu(self) -> ScriptedMenu | None:
        request = next(iter(self._actor.open.values()), None)
        if request is None:
            self._menu = None
        elif self._menu is None or self._menu.request.id != request.id:
            self._menu = ScriptedMenu(request)
        return self._menu

    def _scroll(self, *, up: bool) -> None:
        columns, rows = self._terminal.size()
        page = max(1, rows // 2)
        rows_above = len(self._transcript.tail(columns, page, self._above + page)) if up else 0
        self._above = self._above + rows_above if up else max(0, self._above - page)

    def _show(self) -> None:
        """Draw, then report a changed state to the terminal: a reader of the report finds that state on the screen."""
        menu = self._open_menu()
        now = self._last
        if menu is not None:
            now = TerminalState("blocked", menu.request.kind, f"{menu.request.tool} {menu.request.title}".strip())
        elif self._actor.busy:
            now = now._replace(state="working")
        self._draw(WAITING[now.asking][0] if now.asking is not None else now.state)
        if now != self._reported:
            self._reported = now
            self._terminal.write(build_state_report(now.state, now.asking, now.message))

    def _draw(self, state: str) -> None:
        """Draw the bar, as much of the transcript as fits, and the box or the menu below; overflow is cut."""
        columns, height = self._terminal.size()
        cursor: tuple[int, int] | None = None
        if self._menu is not None:
            below = self._menu.rows(columns, len(self._actor.open))[-height:]
        else:
            below, cursor = self._box.rows(columns, max(1, min(BOX_ROWS, height - 3)))
        if height > len(below) + 3:
            below = [*below, _line(SURE if self._confirms_end else HINT, Token.FAINT, columns)]
        rows_left = height - len(below)
        queued = f" · {self._actor.queued} waiting" if self._actor.queued else ""
        bar = [BAR + f" scripted agent · {state}{queued} "[:columns]] if rows_left > 1 else []
        rule = [_line("─" * columns, Token.BOUNDARY, columns)] if rows_left > 2 else []
        body = rows_left - len(bar) - len(rule)
        transcript_rows = self._transcript.tail(columns, body, self._above) if body > 0 else []
        lines = [*transcript_rows, *[BLANK] * (body - len(transcript_rows)), *rule, *below]
        rows = [*bar, *(paint(line, self._colours) for line in lines)]
        place = (height - len(below) + cursor[0], cursor[1]) if cursor is not None else None
        self._terminal.write(self._painter.changes(rows, (columns, height), place))


def _line(text: str, token: Token, columns: int) -> TextLine:
    return TextLine(((text[:columns], token),))


def build_state_report(state: ProgramState, asking: RequestKind | None = None, message: str = "") -> str:
    """Return the sequence that reports *state*, with a short *message*."""
    kind = f":kind={WAITING[asking][1]}" if asking is not None else ""
    text = clean_line(message)[:MESSAGE_CHARACTERS]
    encoded = f":msg={b64encode(text.encode('utf-8', 'replace')).decode()}" if text else ""
    return f"\x1b]7501;state={state}{kind}:app=scripted{encoded}\x07"


def build_title_report(prompt: str) -> str:
    """Return the sequence that sets the window's title to the agent's last prompt."""
    first = first_line(prompt)
    title = clean_line(f"scripted · {first}" if first else "scripted")
    return f"\x1b]2;{title[:TITLE_CHARACTERS]}\x07"
