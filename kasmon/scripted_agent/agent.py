"""The scripted agent itself, sans-IO: it takes commands and yields events, spoken words and pauses.

The driver asks for the `next` move, shows or records it, and waits for pauses. The agent holds no clock, opens no file
and runs no command, so the structured backend and the terminal program use the same agent.
"""

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Final, Literal

from kasmon.errors import SessionBusyError, SessionEndedError
from kasmon.model.commands import Answer, Launch, Prompt, Sender, prompt_digest
from kasmon.model.events import Event, SessionEnded, TurnEnded, TurnStarted
from kasmon.model.permission import Request, RequestId
from kasmon.sanitize import first_line
from kasmon.scripted_agent.player import Move, Moves, Player, ScriptPause, TurnResult
from kasmon.scripted_agent.script import is_script, parse
from kasmon.scripted_agent.steps import BadStep, SayStep, Script, TextStep, ToolStep

THOUGHTS = (
    "They want {topic}. I should look at what is there before I say anything.",
    "{topic}: where would that be? Let me search for it first.",
    "First see how it is done today, then answer {topic}.",
)
LOOKS = (
    ToolStep(name="Read", input={"file_path": "README.md"}, output="# Example\n\nA small project.\n"),
    ToolStep(name="Grep", input={"pattern": "TODO"}, output="src/app.py:12: # see the issue\n1 match"),
    ToolStep(name="Bash", input={"command": "git status --short"}, output=" M src/app.py\n?? notes.md"),
    ToolStep(name="Bash", input={"command": "pytest -q"}, output="....................\n20 passed in 0.41s"),
)
ANSWERS = (
    "I looked around for {topic}. I am a **scripted** agent, so nothing was run or changed; a line such as "
    "`ask git push` would make me ask you something.",
    "About {topic}: I only play a part here. Give me lines that begin with a verb, e.g. `say hello` or "
    "`question Which one?|A|B`, and I do exactly that.",
    "Here is what I found on {topic}:\n\n- it is a small project\n- nothing is broken\n\n"
    "I am scripted: what you saw was words only.",
)
TOPIC_CHARACTERS = 60


def build_small_turn(prompt: str, random: Random) -> Script:
    """Return a thought, a tool call and an answer that names the prompt's first line; deterministic by *random*."""
    first = first_line(prompt)
    short = first if len(first) <= TOPIC_CHARACTERS else f"{first[:TOPIC_CHARACTERS].rstrip()}…"
    topic = f"“{short}”" if short else "an empty prompt"
    return (
        SayStep(text=random.choice(THOUGHTS).replace("{topic}", topic), thinking=True),
        random.choice(LOOKS),
        SayStep(text=random.choice(ANSWERS).replace("{topic}", topic)),
    )


STEP_S: Final = (0.05, 0.25)
"""The range of the pause before a step, in seconds at speed 1."""
LOOP_S: Final = (1.5, 4.0)
"""The range of the pause between the turns of a loop, likewise."""


class _Frame:
    """A script being played, and its position; a resting one waits at its beginning to be repeated."""

    def __init__(self, script: Script, prompt: str) -> None:
        first = script[0] if script else None
        self.script, self.at, self.resting = script, 0, False
        self.shown, self.digest = prompt, ""
        if isinstance(first, TextStep) and first.verb == "prompt":
            self.shown, self.digest = first.text, prompt_digest(prompt)


class Actor:
    """One scripted agent. The caller passes times (`now`) in seconds since the epoch."""

    def __init__(self, launch: Launch) -> None:
        self.busy = False
        self.ended = False
        self._launch = launch
        self._random = Random(launch.seed)
        self._player = Player(launch, self._random)
        self._queue: deque[Prompt] = deque()
        self._frames: list[_Frame] = []
        self._turn: Moves | None = None
        self._pause = (0.0, 0.0)
        self._pending_events: deque[Event] = deque()

    @property
    def open(self) -> Mapping[RequestId, Request]:
        """The open requests, oldest first."""
        return self._player.open

    @property
    def queued(self) -> int:
        return len(self._queue)

    def advance(self, now: float) -> Move | None:
        """Return the next move; None if nothing happens until a command arrives.

        If called before a `ScriptPause` is over, it returns a shorter one again.
        """
        self._player.now = now
        while not self._pending_events and self._ensure_turn():
            if (seconds := self._pause_left(now)) > 0:
                return ScriptPause(seconds=seconds)
            assert self._turn is not None
            try:
                move = next(self._turn)
            except StopIteration:
                self._turn = None
                continue
            if not isinstance(move, ScriptPause):
                if isinstance(move, SessionEnded):
                    self._mark_ended()
                return move
            if self._launch.speed > 0:
                seconds = move.seconds / self._launch.speed
                self._pause = (now + seconds, seconds)
        return self._pending_events.popleft() if self._pending_events else None

    def prompt(self, prompt: Prompt, now: float) -> None:
        """Take *prompt*; it queues behind earlier ones, unless it interrupts.

        Raises:
            SessionBusyError: if it must not queue and the agent is busy.
            SessionEndedError: if the agent has ended.
        """
        self._refuse_if_ended()
        if prompt.when == "refuse" and (self.busy or self._queue):
            raise SessionBusyError(self._launch.session, "working")
        if prompt.when == "interrupt":
            self.interrupt(now)
            self._queue.appendleft(prompt)
        else:
            self._queue.append(prompt)
        if not self.busy:
            self._turn, self._pause = None, (0.0, 0.0)

    def answer(self, answer: Answer) -> None:
        """Take *answer* to the request that it names.

        Raises:
            RequestClosedError: if that request is not open.
            StaleRequestError: if its text has changed.
            UnableError: if it does not accept such an answer.
            SessionEndedError: if the agent has ended.
        """
        self._refuse_if_ended()
        self._player.answer(answer)

    def interrupt(self, now: float) -> None:
        """End the running turn, if any, and drop the rest of its script; queued prompts stay."""
        if self.busy:
            self._player.now = now
            self._pending_events.extend(self._player.finish_interrupted())
            self._pending_events.extend(self._player.withdraw_requests("interrupted"))
            self._pending_events.append(TurnEnded(at=now, reason="interrupted"))
            self._frames.clear()
            self._turn, self._pause, self.busy = None, (0.0, 0.0), False

    def end(self, now: float, why: str) -> None:
        """End the agent with exit code 0; idempotent."""
        if not self.ended:
            self.interrupt(now)
            self._pending_events.append(SessionEnded(at=now, exit_code=0, why=why))
            self._mark_ended()

    def _refuse_if_ended(self) -> None:
        if self.ended:
            raise SessionEndedError(self._launch.session)

    def _mark_ended(self) -> None:
        self.ended, self.busy, self._turn = True, False, None
        self._player.open.clear()

    def _ensure_turn(self) -> bool:
        if self.ended:
            return False
        if self._turn is None and self._queue:
            self._turn = self._play_prompt(self._queue.popleft())
        elif self._turn is None and self._frames and self._frames[-1].resting:
            self._turn = self._play_again(self._frames[-1])
        return self._turn is not None

    def _pause_left(self, now: float) -> float:
        """Return the rest of the pause in seconds; never more than the whole pause, even if the clock is set back."""
        until, whole = self._pause
        return max(0.0, min(until - now, whole))

    def _play_prompt(self, prompt: Prompt) -> Moves:
        script = parse(prompt.text) if is_script(prompt.text) else ()
        waiting = bool(self._frames) and not self._frames[-1].resting
        if not waiting and all(isinstance(step, BadStep) for step in script):
            script = (*script, *build_small_turn(prompt.text, self._random))
        self._frames.append(_Frame(script, prompt.text))
        yield from self._play(prompt.by)
        return None

    def _play_again(self, frame: _Frame) -> Moves:
        yield self._player.between(LOOP_S)
        frame.resting = False
        yield from self._play("agent")
        return None

    def _play(self, by: Sender | Literal["agent"]) -> Moves:
        """Play one turn: steps of the newest script, then of older ones, until one ends the turn or a script rests."""
        self.busy = True
        frame = self._frames[-1]
        yield TurnStarted(at=self._player.now, prompt=frame.shown, digest=frame.digest, by=by)
        ending: TurnResult | None = None
        while ending is None and self._frames and not self._frames[-1].resting:
            frame = self._frames[-1]
            if frame.at == len(frame.script):
                self._frames.pop()
                continue
            frame.at += 1
            yield self._player.between(STEP_S)
            ending = yield from self._player.play(frame.script[frame.at - 1])
            if ending is not None and ending.again:
                frame.at, frame.resting = 0, True
        while self._frames and self._frames[-1].at == len(self._frames[-1].script):
            self._frames.pop()
        ending = ending or TurnResult()
        yield from self._player.finish(ending)
        self.busy = False
        yield TurnEnded(at=self._player.now, reason=ending.reason, error=ending.error)
        return None
