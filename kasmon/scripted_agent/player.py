"""Plays single steps of a scripted agent as events, words and pauses. Sans-IO.

The player holds what outlives a step: open requests, rules from "always", counts of calls and tokens.
"""

import re
from collections import deque
from collections.abc import Generator
from random import Random
from typing import Final, Literal, TypeAlias

import msgspec

from kasmon.errors import RequestClosedError
from kasmon.model import events
from kasmon.model.commands import Answer, Launch
from kasmon.model.limits.window import LimitWindow
from kasmon.model.permission import Decision, Request, RequestId
from kasmon.scripted_agent import steps
from kasmon.scripted_agent.scripted_requests import (
    RequestStep,
    build_request,
    build_rule,
    check,
    find_covering_rule,
    outcome,
)

WORD_S: Final = (0.02, 0.09)
"""The range of the time for a word, in seconds at speed 1."""
TOOL_S: Final = (0.3, 1.2)
"""The range of the time for a tool call, likewise."""
WINDOW: Final = 200_000
"""The size of the context window in tokens, if the script names none."""
WORDS: Final = re.compile(r"\S+\s*|\s+")


class SpokenText(msgspec.Struct, frozen=True, kw_only=True):
    """One word of a message, before the event with the whole message."""

    text: str
    thinking: bool = False


class ScriptPause(msgspec.Struct, frozen=True, kw_only=True):
    """A pause of this length, which a command may end early."""

    seconds: float


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a step ended its turn."""

    reason: Literal["done", "limit", "error"] = "done"
    error: str = ""
    again: bool = False


Move: TypeAlias = events.Event | SpokenText | ScriptPause
Moves: TypeAlias = Generator[Move | None, None, TurnResult | None]
"""None means: nothing happens until a command arrives."""


class Player:
    """Plays the steps of one agent; the driver sets `now`, in seconds since the epoch."""

    def __init__(self, launch: Launch, random: Random) -> None:
        self.now = 0.0
        self.open: dict[RequestId, Request] = {}
        self._launch, self._random = launch, random
        self._asked: dict[RequestId, RequestStep] = {}
        self._answers: deque[tuple[RequestStep, Answer]] = deque()
        self._rules: list[str] = []
        self._requests = self._calls = 0
        self._usage, self._usage_reported = steps.UsageStep(input=0, output=0, limit=WINDOW, cost_usd=0.0), False
        self._unfinished: steps.SayStep | events.ToolStarted | events.LimitReached | None = None
        self._said = ""
        self._resets_at: float | None = None
        """When the last reported window resets."""

    def play(self, step: steps.AnyStep) -> Moves:
        """Play *step*; return how it ended the turn, None if the turn continues."""
        match step:
            case steps.SayStep():
                yield from self._speak(step)
            case steps.ToolStep():
                yield from self._use(step)
            case steps.AskStep() | steps.QuestionStep() | steps.TextStep(verb="approve") | steps.VerbStep(verb="login"):
                yield from self._ask(step)
            case steps.TodoStep():
                yield events.PlanUpdated(at=self.now, items=step.items)
            case steps.TextStep(verb="notice"):
                yield events.NoticeRaised(at=self.now, text=step.text)
            case steps.BadStep():
                yield events.NoticeRaised(at=self.now, text=f"script, line {step.line}: {step.why}", level="warning")
            case steps.UsageStep():
                self._usage, self._usage_reported = step, True
                yield self._report_usage()
            case steps.TimedStep(verb="slow"):
                yield ScriptPause(seconds=step.seconds or 0.0)
            case steps.TimedStep(verb="limit", seconds=None):
                yield events.LimitReached(at=self.now, until=self._resets_at, text="usage limit reached")
                return TurnResult(reason="limit")
            case steps.TimedStep(verb="limit", seconds=seconds):
                yield from self._play_limit(seconds or 0.0)
            case steps.WindowStep(name=name, used=used, seconds=seconds):
                self._resets_at = self.now + seconds
                window = LimitWindow(name=name, used=used, resets_at=self._resets_at, is_reached=used >= 1, at=self.now)
                yield events.LimitsReported(at=self.now, windows=(window,))
            case steps.TextStep(verb="fail"):
                return TurnResult(reason="error", error=step.text)
            case steps.CrashStep():
                yield events.SessionEnded(at=self.now, exit_code=step.code, signal=step.signal)
            case steps.VerbStep(verb="hang"):
                while True:
                    yield from self._play_answers()
                    yield None
            case steps.VerbStep():
                return TurnResult(again=step.verb == "loop")
            case steps.TextStep() | steps.TimedStep():
                pass
        return None

    def finish(self, ending: TurnResult) -> Moves:
        """Play the end of a turn: wait for or withdraw open requests, then report the tokens used."""
        if ending.reason == "done":
            yield from self._wait_for_answers()
        else:
            yield from self.withdraw_requests("the turn ended")
        if not self._usage_reported:
            self._usage = self._grow_usage()
            yield self._report_usage()
        self._usage_reported = False
        return None

    def answer(self, answer: Answer) -> None:
        """Take *answer*; its consequences are played later, in order.

        Raises:
            RequestClosedError, StaleRequestError, UnableError: if no open request accepts it.
        """
        request = self.open.get(answer.request)
        if request is None:
            raise RequestClosedError(answer.request, "the agent does not wait for it")
        if answer.decision is not Decision.LATER:
            check(answer, request)
            del self.open[answer.request]
            self._answers.append((self._asked.pop(answer.request), answer))

    def finish_interrupted(self) -> tuple[events.Event, ...]:
        """Return the events that finish the current step after an interrupt."""
        unfinished, spoken = self._unfinished, self._said
        self._unfinished, self._said, self._usage_reported = None, "", False
        self._answers.clear()
        match unfinished:
            case steps.SayStep(thinking=thinking) if spoken:
                return ((events.ThoughtWritten if thinking else events.MessageWritten)(at=self.now, text=spoken),)
            case events.ToolStarted(call=call):
                return (events.ToolFinished(at=self.now, call=call, ok=False, output="interrupted"),)
            case events.LimitReached():
                return (events.LimitLifted(at=self.now),)
        return ()

    def withdraw_requests(self, why: str) -> tuple[events.Event, ...]:
        requests = tuple(self.open)
        self.open.clear()
        self._asked.clear()
        return tuple(events.RequestWithdrawn(at=self.now, request=request, why=why) for request in requests)

    def between(self, span: tuple[float, float]) -> ScriptPause:
        """Return a pause of random length within *span*, in seconds at speed 1."""
        return ScriptPause(seconds=self._random.uniform(*span))

    def _speak(self, step: steps.SayStep) -> Moves:
        self._unfinished, self._said = step, ""
        for piece in WORDS.findall(step.text):
            self._said += piece
            yield SpokenText(text=piece, thinking=step.thinking)
            yield self.between(WORD_S)
        self._unfinished, self._said = None, ""
        yield (events.ThoughtWritten if step.thinking else events.MessageWritten)(at=self.now, text=step.text)
        return None

    def _use(self, tool: steps.ToolStep) -> Moves:
        self._calls += 1
        call = f"c{self._launch.generation}-{self._calls}"
        as_json = msgspec.json.encode(tool.input).decode()
        self._unfinished = events.ToolStarted(at=self.now, call=call, tool=tool.name, title=tool.title, input=as_json)
        yield self._unfinished
        yield self.between(TOOL_S)
        self._unfinished = None
        yield events.ToolFinished(at=self.now, call=call, ok=tool.ok, output=tool.output, diff=tool.diff)
        return None

    def _ask(self, step: RequestStep) -> Moves:
        rule = find_covering_rule(self._rules, step.tool) if isinstance(step, steps.AskStep) else ""
        if rule and isinstance(step, steps.AskStep):
            yield events.NoticeRaised(at=self.now, text=f"allowed by {rule}")
            yield from self._use(step.tool)
            return None
        self._requests += 1
        request = RequestId(f"q{self._launch.generation}-{self._requests}")
        self.open[request] = build_request(step, request, self._launch.session, self.now)
        self._asked[request] = step
        yield events.RequestOpened(at=self.now, request=self.open[request])
        if not (isinstance(step, steps.AskStep) and step.joined):
            yield from self._wait_for_answers()
        return None

    def _wait_for_answers(self) -> Moves:
        while self.open or self._answers:
            yield from self._play_answers()
            if self.open:
                yield None
        return None

    def _play_answers(self) -> Moves:
        while self._answers:
            step, answer = self._answers.popleft()
            if answer.decision is Decision.ALWAYS and isinstance(step, steps.AskStep):
                self._rules.append(build_rule(step.tool))
            for following in outcome(step, answer):
                yield from self.play(following)
        return None

    def _play_limit(self, seconds: float) -> Moves:
        pause = seconds / self._launch.speed if self._launch.speed > 0 else 0.0
        self._unfinished = events.LimitReached(at=self.now, until=self.now + pause, text="rate limit reached")
        yield self._unfinished
        yield ScriptPause(seconds=seconds)
        self._unfinished = None
        yield events.LimitLifted(at=self.now)
        return None

    def _grow_usage(self) -> steps.UsageStep:
        """Return the totals after one more turn, drawn from the seed."""
        old, read, written = self._usage, self._random.randint(900, 5200), self._random.randint(120, 1400)
        limit = old.limit or WINDOW
        return steps.UsageStep(
            input=old.input + read,
            output=old.output + written,
            context=min(limit, old.context + read // 2 + written),
            limit=limit,
            cost_usd=round((old.cost_usd or 0.0) + read * 3e-6 + written * 15e-6, 4),
        )

    def _report_usage(self) -> events.UsageReported:
        figures = msgspec.structs.asdict(self._usage)
        del figures["line"]
        return events.UsageReported(at=self.now, **figures)
