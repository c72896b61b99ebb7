"""Everything that says what one agent does, weighed: its screen and title here, the rest as it is told.

A source's word becomes a fact when it changes, and the newest of all of them are judged. The judgement decides how
often the screen is looked at, and whether what stands on it is a request.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from kasmon.backends.tmux.asked import Asked
from kasmon.backends.tmux.clues import Clues
from kasmon.backends.tmux.eyes import Eye, Eyes, Seen, title_word
from kasmon.backends.tmux.line import Line
from kasmon.backends.tmux.looking import Looking
from kasmon.backends.tmux.rounds import Rounds
from kasmon.backends.tmux.titles import TitleScanner
from kasmon.backends.tmux.weighing import OUTLASTED, Weighing
from kasmon.clean import clean_line
from kasmon.errors import KasmonError, SessionEndedError
from kasmon.model.event import Event, SettingsChanged, SignalSeen
from kasmon.model.evidence import HOOK_LAG_S, Signal, Verdict
from kasmon.model.permission import SessionId
from kasmon.model.state import SessionState
from kasmon.screens.choice import Menu
from kasmon.screens.file import Rules
from kasmon.screens.shot import LONGEST_TITLE
from kasmon.tmux import request as ask
from kasmon.tmux.facts import PaneText
from kasmon.tmux.request import Screen

BETTER: Final = frozenset({"process", "program", "registry", "hook", "title"})
"""Sources whose word makes a look at the screen less urgent."""
AFTER_S: Final = 0.1
UNCLEAR: Final = "unclear"
WORKING: Final = "working"


class Witness:
    """Of the agent of *session*, the program *program*, in *pane*; tells facts by *say*."""

    def __init__(
        self,
        session: SessionId,
        program: str,
        line: Line,
        pane: str,
        clues: Clues,
        eyes: Eyes,
        rounds: Rounds,
        say: Callable[[Event], None],
        known: tuple[Signal, ...] = (),
    ) -> None:
        """*known* are the signals in the log, for an agent that was there before us."""
        self.clues = clues
        self.stirred_at = -math.inf
        self._conversation = ""
        """As it was told last."""
        self.version = ""
        """What the agent's program says of its version; empty where nobody knows."""
        self.session = session
        self.asked = Asked(session)
        self._program, self._line, self._pane = program, line, pane
        self._eyes, self._rounds, self._say = eyes, rounds, say
        self._eye = Eye()
        self._looking = Looking()
        self._titles = TitleScanner()
        self._title = ""
        self._wants_title = True
        self._read_last = ("", "")
        """State and rule of the last look that could be taken."""
        self._words = Weighing(known)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        """When what asks without a menu is looked at again."""
        self._is_looking = self._is_over = self._was_unclear = False
        self._waiting: list[asyncio.Future[Seen]] = []
        rounds.add(self)

    @property
    def verdict(self) -> Verdict:
        """What all sources together say now."""
        return self._words.verdict

    @property
    def can_tell(self) -> bool:
        """Whether somebody says what it does, and not only whether it prints."""
        return self._words.can_tell

    # -- what it is told

    def printed(self, data: bytes) -> None:
        """The pane printed *data*; empty data says that some output was not heard."""
        now = self._loop.time()
        self.stirred_at = now
        self._rounds.stir()
        if not data:
            self._titles, self._wants_title = TitleScanner(), True
        elif (title := self._titles.feed(data)) is not None:
            self._titled(title.decode("utf-8", "replace"))
        self._looking.printed(now)
        self._arm()

    def flooded(self, is_off: bool) -> None:
        """It prints so much that it is not heard while *is_off*."""
        self._wants_title = True
        self.stirred_at = self._loop.time()
        self._looking.flooded(is_off, self.stirred_at)
        self._arm()

    def told(self, signals: Sequence[SignalSeen]) -> None:
        """What its files and processes say."""
        for signal in signals:
            self._hear(signal)
        if self.clues.version and self.version != self.clues.version:
            self.version = self.clues.version
        if self._conversation != self.clues.conversation:
            self._conversation = self.clues.conversation
            self._say(SettingsChanged(at=time.time(), resume_id=self._conversation))

    def noted(self, signal: SignalSeen) -> None:
        """*signal* became a fact; of whatever source."""
        self._words.noted(signal)
        verdict = self.verdict
        self._looking.is_decided = verdict.source in BETTER and verdict.state is not SessionState.UNSURE
        if signal.source in BETTER:
            self._looking.news(self._loop.time())
            self._arm()
        if signal.source in OUTLASTED:
            self._looking.again(self._loop.time() + HOOK_LAG_S + AFTER_S)
        for event in self.asked.judged(verdict, signal.at):
            self._say(event)

    def close(self) -> None:
        """Look no more. Idempotent."""
        self._is_over = True
        self._rounds.drop(self)
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.cancel()
        for waiting in (one for one in self._waiting if not one.done()):
            waiting.set_exception(SessionEndedError(self.session))

    # -- the screen

    async def see_now(self) -> Seen:
        """What stands on the screen, from a look that is taken now.

        Raises:
            SessionEndedError: if the agent ends before it is taken.
            TmuxError: if it cannot be looked at.
        """
        if self._is_over:
            raise SessionEndedError(self.session)
        waiting: asyncio.Future[Seen] = self._loop.create_future()
        self._waiting.append(waiting)
        if not self._is_looking:
            self._look()
        return await waiting

    def answered(self) -> None:
        """What was asked is answered: look soon what stands there now."""
        self.asked.forget(time.time())
        self.begin()

    def begin(self) -> None:
        """It runs: look soon, whatever it prints."""
        self._looking.news(self._loop.time())
        self._arm()

    def _rules(self) -> Rules | None:
        rules = self._eyes.rules(self._program, self.version)
        self._looking.is_wordless = rules is None
        return rules

    def _arm(self) -> None:
        """Look in time; a timer that is set already sets the next one itself."""
        if self._is_looking or self._is_over:
            return
        next_at = self._looking.next_at()
        if self._timer is not None and self._timer.when() > next_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and next_at < math.inf:
            self._timer = self._loop.call_at(next_at, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._loop.time() + 0.001 < self._looking.next_at():
            self._arm()
        elif not self._is_looking:
            self._rules()
            self._look()

    def _look(self) -> None:
        self._is_looking = True
        if self._wants_title:
            self._wants_title = False
            self._line.submit(ask.pane_text(self._pane), self._title_told)
        began_at, is_still = self._loop.time(), self._looking.is_still or self._looking.is_wordless
        taken_for, self._waiting = self._waiting, []
        self._looking.looked(began_at)  # what is printed from now on is not on it
        self._line.submit(
            ask.screen(self._pane), lambda screen: self._taken(screen, is_still=is_still, taken_for=taken_for)
        )

    def _title_told(self, text: PaneText | KasmonError) -> None:
        if not isinstance(text, KasmonError) and not self._wants_title:
            self._titled(text.title)

    def _taken(self, screen: Screen | KasmonError, *, is_still: bool, taken_for: list[asyncio.Future[Seen]]) -> None:
        if isinstance(screen, KasmonError):
            self._seen(screen, is_still=is_still, taken_for=taken_for)
            return
        self._eye.look(
            screen,
            self._title,
            self._rules(),
            is_still=is_still,
            done=lambda seen: self._seen(seen, is_still=is_still, taken_for=taken_for),
        )

    def _seen(self, seen: Seen | BaseException, *, is_still: bool, taken_for: list[asyncio.Future[Seen]]) -> None:
        self._is_looking = False
        for waiting in (one for one in taken_for if not one.done()):
            if isinstance(seen, Seen):
                waiting.set_result(seen)
            else:
                waiting.set_exception(seen)
        if self._is_over:
            return
        at = time.time()
        menu: Menu | None = None
        text = ""
        if not isinstance(seen, Seen):
            why = seen.message if isinstance(seen, KasmonError) else repr(seen)
            self._hear(SignalSeen(at=at, source="screen", value="unreadable", text=clean_line(why)[:200]))
        else:
            menu, text = seen.reading.menu, seen.reading.text or (seen.guess.text if seen.guess else "")
            self._read(seen, at, is_still=is_still)
        verdict = self.verdict
        if verdict.state is SessionState.ASKING and not text:
            deciding = self._words.last(verdict.source)
            text = deciding.text if deciding is not None else ""
        for event in self.asked.seen(verdict, menu, text, at):
            self._say(event)
        if self.asked.due_at is not None and (self._again is None or self._again.when() < self._loop.time()):
            self._again = self._loop.call_later(self.asked.due_at - at + AFTER_S, self.begin)
        if self._waiting:
            self._look()
        self._arm()

    def _read(self, seen: Seen, at: float, *, is_still: bool) -> None:
        reading, guess = seen.reading, seen.guess
        before, self._read_last = self._read_last, (reading.state, reading.rule)
        self._looking.is_steady = reading.state == WORKING and before == self._read_last
        says_nothing = reading.state == UNCLEAR
        is_first, self._was_unclear = says_nothing and not self._was_unclear, says_nothing
        if says_nothing and not is_still:
            self._looking.nothing_known()
        if is_first and not is_still:
            return  # half drawn, maybe: what it said before counts until the next look
        if not self._looking.is_wordless:
            self._hear(
                SignalSeen(
                    at=at,
                    source="screen",
                    value=reading.state,
                    asking=reading.asking,
                    text=clean_line(reading.text or reading.notice)[:200],
                    until=reading.until,
                    rule=reading.rule,
                )
            )
        if guess is not None:
            rule = f"wordless: {guess.sign}"
            text = clean_line(guess.text.partition("\n")[0])[:200]
            self._hear(SignalSeen(at=at, source="fallback", value="asking", text=text, rule=rule))
        elif self._words.last("fallback") is not None:
            self._hear(SignalSeen(at=at, source="fallback", value=UNCLEAR))

    def _titled(self, title: str) -> None:
        if title == self._title:
            return
        self._title = title
        rules = self._eyes.rules(self._program, self.version)
        if rules is None or not rules.titles:
            return
        word = title_word(rules, clean_line(title[: LONGEST_TITLE * 4])[:LONGEST_TITLE].strip())
        if word.value or self._words.last("title") is not None:
            value = word.value or UNCLEAR
            self._hear(SignalSeen(at=time.time(), source="title", value=value, asking=word.asking, rule=word.rule))

    def _hear(self, signal: SignalSeen) -> None:
        """Make *signal* a fact where it says something else than its source's last word."""
        if self._words.is_news(signal):
            self._say(signal)
