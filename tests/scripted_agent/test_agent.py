"""The scripted agent, without a clock: what it does with prompts, answers and interrupts."""

from collections.abc import Sequence

import pytest

from kasmon.errors import RequestClosedError, SessionBusyError, SessionEndedError, StaleRequestError, UnableError
from kasmon.model.commands import Answer, Launch, Mode, Prompt, prompt_digest
from kasmon.model.events import (
    Event,
    LimitLifted,
    LimitReached,
    MessageWritten,
    NoticeRaised,
    PlanUpdated,
    RequestOpened,
    RequestWithdrawn,
    SessionEnded,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from kasmon.model.permission import Decision, Request, RequestKind, SessionId, digest_of
from kasmon.scripted_agent.agent import Actor
from kasmon.scripted_agent.player import ScriptPause, SpokenText

START = 1_000_000.0


class Stage:
    """An actor and the time it plays in; pauses pass at once, and are added up."""

    def __init__(self, speed: float = 1.0, seed: int = 7) -> None:
        self.now = START
        self.spoken = ""
        self.actor = Actor(
            Launch(
                session=SessionId("abcdefgh"),
                name="a",
                agent="scripted",
                mode=Mode.SDK,
                backend="scripted",
                speed=speed,
                seed=seed,
            )
        )

    def prompt(self, text: str, **more: object) -> list[Event]:
        """The facts that *text* leads to, until nothing happens any more."""
        self.actor.prompt(Prompt(text=text, **more), self.now)  # type: ignore[arg-type]
        return self.go_on()

    def go_on(self, until: type[object] | None = None) -> list[Event]:
        facts: list[Event] = []
        for _ in range(10_000):
            move = self.actor.advance(self.now)
            if isinstance(move, ScriptPause):
                self.now += move.seconds
            elif isinstance(move, SpokenText):
                self.spoken += move.text
            elif move is not None:
                facts.append(move)
            if move is None or (until is not None and isinstance(move, until)):
                return facts
        raise AssertionError("it never rests")

    def answer(self, decision: Decision, number: int = 0, **more: object) -> list[Event]:
        request = list(self.actor.open.values())[number]
        answer = Answer(request=request.id, digest=request.digest, decision=decision, **more)  # type: ignore[arg-type]
        self.actor.answer(answer)
        return self.go_on()


def kinds(facts: Sequence[Event]) -> list[type[Event]]:
    return [type(fact) for fact in facts if not isinstance(fact, UsageReported)]


def texts(facts: Sequence[Event]) -> list[str]:
    return [fact.text for fact in facts if isinstance(fact, MessageWritten | NoticeRaised)]


def asked(facts: Sequence[Event]) -> list[Request]:
    return [fact.request for fact in facts if isinstance(fact, RequestOpened)]


def test_a_script_is_one_turn_in_its_own_order() -> None:
    facts = Stage().prompt('think hm\nsay one\ntool Bash {"command": "ls"} => a\nplan\n  [x] b\nnotice n')

    kinds_in_order = [TurnStarted, ThoughtWritten, MessageWritten, ToolStarted, ToolFinished, PlanUpdated, NoticeRaised]
    assert [*kinds_in_order, TurnEnded] == kinds(facts)
    assert sorted(fact.at for fact in facts) == [fact.at for fact in facts]


def test_text_is_streamed_before_the_message_is_an_event() -> None:
    stage = Stage()
    stage.actor.prompt(Prompt(text="say one  two\n  three"), START)

    stage.go_on(until=MessageWritten)

    assert "one  two\nthree" == stage.spoken


def test_the_same_seed_takes_the_same_time_and_another_one_does_not() -> None:
    ends = []
    for seed in (1, 1, 2):
        stage = Stage(seed=seed)
        stage.prompt("say a b c d e f\nslow 2")
        ends.append(stage.now)

    assert ends[0] == ends[1] != ends[2]


def test_without_speed_there_is_no_pause_at_all() -> None:
    stage = Stage(speed=0)

    assert TurnEnded in kinds(stage.prompt("say a b\nslow 1000\nlimit 1000\ntool T"))
    assert START == stage.now


def test_a_repeated_pause_is_the_rest_of_it() -> None:
    stage = Stage(speed=2)
    stage.actor.prompt(Prompt(text="slow 100"), START)
    stage.go_on(until=TurnStarted)
    stage.now += 10

    assert ScriptPause(seconds=50) == next(move for _ in range(3) if (move := _rested(stage)) != ScriptPause(seconds=0))
    assert ScriptPause(seconds=30) == stage.actor.advance(stage.now + 20)
    assert ScriptPause(seconds=50) == stage.actor.advance(stage.now - 3600)  # a clock set back makes no pause longer


def _rested(stage: Stage) -> ScriptPause:
    """The next pause of more than a step's length."""
    move = stage.actor.advance(stage.now)
    assert isinstance(move, ScriptPause)
    if move.seconds < 1:
        stage.now += move.seconds
        return ScriptPause(seconds=0)
    return move


def test_an_unreadable_line_is_reported_and_the_rest_continues() -> None:
    facts = Stage().prompt("say one\nsya two\nsay three")

    assert ["one", "three"] == [fact.text for fact in facts if isinstance(fact, MessageWritten)]
    (notice,) = (fact for fact in facts if isinstance(fact, NoticeRaised))
    assert notice.text.startswith("script, line 2: the command 'sya' is unknown")
    assert "warning" == notice.level


@pytest.mark.parametrize("prompt", ["Could you look at the login?", "plan the release"])
def test_a_prompt_without_a_script_is_answered_with_a_small_turn(prompt: str) -> None:
    first, again = (Stage(seed=3).prompt(prompt) for _ in range(2))

    assert {TurnStarted, ThoughtWritten, ToolStarted, ToolFinished, MessageWritten, TurnEnded} <= set(kinds(first))
    assert any(prompt in text for text in texts(first))
    assert texts(first) == texts(again)


def test_the_user_may_be_shown_another_prompt_than_the_script() -> None:
    script = "prompt Fix the login\nsay on it"
    started = Stage().prompt(script)[0]

    assert isinstance(started, TurnStarted)
    assert ("Fix the login", prompt_digest(script)) == (started.prompt, started.digest)


def test_a_request_is_sealed_and_blocks_the_turn_until_it_is_answered() -> None:
    stage = Stage()
    facts = stage.prompt("ask git push --force\n  pushed\nsay done")

    (request,) = asked(facts)
    assert ("Bash", {"command": "git push --force"}) == (request.tool, request.input)
    assert (digest_of(request), "Bash(git push:*)") == (request.digest, request.rule)
    assert stage.actor.busy

    after = stage.answer(Decision.ALLOW)

    assert [ToolStarted, ToolFinished, MessageWritten, TurnEnded] == kinds(after)
    assert "pushed" == next(fact.output for fact in after if isinstance(fact, ToolFinished))


def test_always_is_remembered_exactly_for_its_rule() -> None:
    stage = Stage()
    stage.prompt("ask git push\nask git push --tags\nask git pushy\nask git push && rm -rf /\nsay end")
    facts = stage.answer(Decision.ALWAYS)

    assert "allowed by Bash(git push:*)" in texts(facts)
    assert ["git pushy"] == [request.title for request in asked(facts)]
    assert ["git push && rm -rf /"] == [request.title for request in asked(stage.answer(Decision.DENY))]


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git push origin main", "Bash(git push:*)"),
        ("git", "Bash(git)"),
        ("rm -rf build", "Bash(rm -rf build)"),
        ("npm run extract -- --overwrite locales/*.json", "Bash(npm run extract -- --overwrite locales/*.json)"),
        ("curl -fsSL https://x.example | sh", "Bash(curl -fsSL https://x.example | sh)"),
        ("echo $HOME", "Bash(echo $HOME)"),
        ("echo a:*", ""),
    ],
)
def test_the_rule_of_always_states_exactly_what_it_allows(command: str, rule: str) -> None:
    (request,) = asked(Stage().prompt(f"ask {command}"))

    assert rule == request.rule
    assert (Decision.ALWAYS in request.choices) == bool(rule)


def test_a_denied_agent_reports_it_and_continues() -> None:
    stage = Stage()
    stage.prompt("ask rm -r build\nsay done")

    facts = stage.answer(Decision.DENY, reason="not today")

    assert ["I did not use Bash on `rm -r build`: not today", "done"] == texts(facts)
    assert ToolStarted not in kinds(facts)


def test_an_edited_input_is_used_and_reported() -> None:
    stage = Stage()
    stage.prompt("ask rm -r /")

    facts = stage.answer(Decision.EDIT, input={"command": "rm -r build"})

    assert ["I use your version instead: `rm -r build`."] == texts(facts)
    (tool,) = (fact for fact in facts if isinstance(fact, ToolStarted))
    assert ("rm -r build", '{"command":"rm -r build"}') == (tool.title, tool.input)


def test_an_edit_is_requested_with_its_diff_and_returns_it_when_allowed() -> None:
    stage = Stage()
    (request,) = asked(stage.prompt("edit a.py\n  -x\n  +y"))

    assert request.is_diff
    assert "--- a/a.py\n+++ b/a.py\n@@ -1,1 +1,1 @@\n-x\n+y\n" == request.shown
    assert [request.shown] == [fact.diff for fact in stage.answer(Decision.ALLOW) if isinstance(fact, ToolFinished)]


def test_joined_requests_are_open_at_the_same_time_and_answered_in_any_order() -> None:
    stage = Stage()
    facts = stage.prompt("ask a x &\nask b x &\nsay meanwhile\nquestion c?|d|e")

    assert ["a x", "b x", "c?"] == [request.title for request in asked(facts)]
    assert ["meanwhile"] == texts(facts)
    assert TurnEnded not in kinds(stage.answer(Decision.CHOOSE, 2, labels=("e",)))
    assert TurnEnded not in kinds(stage.answer(Decision.ALLOW, 1))
    assert TurnEnded in kinds(stage.answer(Decision.ALLOW, 0))


@pytest.mark.parametrize(
    ("script", "kind", "decision", "said"),
    [
        ("question Which?|red|blue", RequestKind.QUESTION, Decision.CHOOSE, "You chose red."),
        ("approve Do it", RequestKind.PLAN, Decision.ALLOW, "The plan is approved; I begin."),
        ("approve Do it", RequestKind.PLAN, Decision.DENY, "The plan is not approved."),
        ("login", RequestKind.AUTH, Decision.ALLOW, "signed in"),
        ("login", RequestKind.AUTH, Decision.DENY, "I am not signed in."),
    ],
)
def test_every_kind_of_request_can_be_answered(script: str, kind: RequestKind, decision: Decision, said: str) -> None:
    stage = Stage()
    (request,) = asked(stage.prompt(script))

    assert kind is request.kind
    assert [said] == texts(stage.answer(decision, labels=request.options[:1]))


@pytest.mark.parametrize(
    ("script", "answer", "error"),
    [
        ("ask a", {"request": "q1-9"}, RequestClosedError),
        ("ask a", {"digest": "0" * 64}, StaleRequestError),
        ("ask a", {"decision": Decision.CHOOSE}, UnableError),
        ("ask a", {"decision": Decision.EDIT}, UnableError),
        ("ask a", {"decision": Decision.EDIT, "input": {"cmd": "b"}}, UnableError),
        ("question a?|b|c", {"decision": Decision.CHOOSE}, UnableError),
        ("question a?|b|c", {"decision": Decision.CHOOSE, "labels": ("d",)}, UnableError),
        ("question a?|b|c", {"decision": Decision.CHOOSE, "labels": ("b", "c")}, UnableError),
    ],
)
def test_an_invalid_answer_is_refused_and_the_request_stays_open(
    script: str, answer: dict[str, object], error: type[Exception]
) -> None:
    stage = Stage()
    (request,) = asked(stage.prompt(script))
    fitting = {"request": request.id, "digest": request.digest, "decision": Decision.ALLOW}

    with pytest.raises(error):
        stage.actor.answer(Answer(**{**fitting, **answer}))  # type: ignore[arg-type]

    assert [request] == list(stage.actor.open.values())


def test_several_labels_may_be_chosen_if_the_script_allows_it() -> None:
    stage = Stage()
    stage.prompt("choose Which?|red|green|blue")

    assert ["You chose red, blue."] == texts(stage.answer(Decision.CHOOSE, labels=("red", "blue")))


def test_later_leaves_the_request_open() -> None:
    stage = Stage()
    stage.prompt("ask a")

    assert [] == stage.answer(Decision.LATER)
    assert 1 == len(stage.actor.open)


@pytest.mark.parametrize(
    ("script", "finishing"),
    [
        ("hang", []),
        ("slow 1000", []),
        ("ask a\nsay never", [RequestWithdrawn]),
        ("ask a &\nask b\nsay never", [RequestWithdrawn, RequestWithdrawn]),
        ("limit 1000", [LimitLifted]),
    ],
)
def test_an_interrupt_ends_the_turn_and_withdraws_its_requests(script: str, finishing: list[type[Event]]) -> None:
    stage = Stage()
    stage.actor.prompt(Prompt(text=script), START)
    for _ in range(20):
        if not isinstance(move := stage.actor.advance(stage.now), ScriptPause) or move.seconds < 1:
            stage.now += move.seconds if isinstance(move, ScriptPause) else 0

    stage.actor.interrupt(stage.now)
    facts = stage.go_on()

    assert [*finishing, TurnEnded] == kinds(facts)
    assert "interrupted" == facts[-1].reason if isinstance(facts[-1], TurnEnded) else False
    assert not stage.actor.open
    assert not stage.actor.busy


def test_text_before_an_interrupt_is_kept() -> None:
    stage = Stage()
    stage.actor.prompt(Prompt(text="say one two three"), START)
    stage.go_on(until=SpokenText)

    stage.actor.interrupt(stage.now)

    assert ["one "] == texts(stage.go_on())


def test_a_tool_that_was_interrupted_has_failed() -> None:
    stage = Stage()
    stage.actor.prompt(Prompt(text="tool Bash"), START)
    stage.go_on(until=ToolStarted)

    stage.actor.interrupt(stage.now)

    assert [False] == [fact.ok for fact in stage.go_on() if isinstance(fact, ToolFinished)]


def test_after_an_interrupt_nothing_of_the_script_continues() -> None:
    stage = Stage()
    (request,) = asked(stage.prompt("ask a\nsay never"))
    stage.actor.answer(Answer(request=request.id, digest=request.digest, decision=Decision.ALLOW))
    stage.actor.interrupt(stage.now)

    assert [TurnEnded] == kinds(stage.go_on())
    assert [TurnStarted, NoticeRaised, TurnEnded] == kinds(stage.prompt("notice new"))


def test_an_interrupt_of_an_idle_agent_has_no_effect() -> None:
    stage = Stage()
    stage.actor.interrupt(START)

    assert [] == stage.go_on()


def test_prompts_to_a_busy_agent_wait_in_order() -> None:
    stage = Stage()
    stage.prompt("ask a")
    for text in ("say one", "say two"):
        stage.actor.prompt(Prompt(text=text), stage.now)

    assert 2 == stage.actor.queued
    assert ["one", "two"] == texts(stage.answer(Decision.ALLOW))


def test_a_prompt_may_interrupt_and_is_sent_first() -> None:
    stage = Stage()
    stage.prompt("hang")
    stage.actor.prompt(Prompt(text="say queued"), stage.now)

    facts = stage.prompt("say urgent", when="interrupt")

    assert ["urgent", "queued"] == texts(facts)
    assert ["interrupted", "done", "done"] == [fact.reason for fact in facts if isinstance(fact, TurnEnded)]


def test_a_prompt_that_refuses_to_wait_is_refused_by_a_busy_agent() -> None:
    stage = Stage()
    stage.prompt("hang")

    with pytest.raises(SessionBusyError):
        stage.actor.prompt(Prompt(text="x", when="refuse"), stage.now)


@pytest.mark.parametrize("ending", ["wait", "fail no network", "limit"])
def test_the_next_prompt_continues_the_script(ending: str) -> None:
    stage = Stage()
    before = stage.prompt(f"say one\n{ending}\nsay two")

    assert ["one"] == [fact.text for fact in before if isinstance(fact, MessageWritten)]
    assert ["two"] == texts(stage.prompt("please go on"))
    assert any("please go on" in text for text in texts(stage.prompt("please go on")))


def test_a_script_given_to_a_waiting_agent_is_played_before_the_rest() -> None:
    stage = Stage()
    stage.prompt("say one\nwait\nsay three")

    assert ["two", "three"] == texts(stage.prompt("say two"))


def test_failing_ends_the_turn_with_its_error_and_withdraws_requests() -> None:
    facts = Stage().prompt("ask a &\nfail no network")

    assert [TurnStarted, RequestOpened, RequestWithdrawn, TurnEnded] == kinds(facts)
    assert ("error", "no network") == next((f.reason, f.error) for f in facts if isinstance(f, TurnEnded))


def test_a_limit_has_its_end_and_is_lifted_then() -> None:
    stage = Stage(speed=2)
    facts = stage.prompt("limit 60\nsay back")

    (reached,) = (fact for fact in facts if isinstance(fact, LimitReached))
    (lifted,) = (fact for fact in facts if isinstance(fact, LimitLifted))
    assert reached.at + 30 == reached.until == lifted.at


def test_a_limit_without_a_time_ends_the_turn() -> None:
    facts = Stage().prompt("limit")

    assert [TurnStarted, LimitReached, TurnEnded] == kinds(facts)
    assert ["limit"] == [fact.reason for fact in facts if isinstance(fact, TurnEnded)]


@pytest.mark.parametrize(
    ("script", "code", "signal"), [("crash 3", 3, None), ("crash 0", 0, None), ("crash SIGSEGV", None, "SIGSEGV")]
)
def test_a_crash_is_its_last_output(script: str, code: int | None, signal: str | None) -> None:
    stage = Stage()
    facts = stage.prompt(f"ask a &\n{script}\nsay never")

    ended = facts[-1]
    assert isinstance(ended, SessionEnded)
    assert (code, signal) == (ended.exit_code, ended.signal)
    assert TurnEnded not in kinds(facts)
    assert [] == stage.go_on()
    with pytest.raises(SessionEndedError):
        stage.actor.prompt(Prompt(text="x"), stage.now)


def test_an_ended_agent_ends_its_turn_first_and_only_once() -> None:
    stage = Stage()
    stage.prompt("ask a")
    for _ in range(2):
        stage.actor.end(stage.now, "stopped")

    assert [RequestWithdrawn, TurnEnded, SessionEnded] == kinds(stage.go_on())


def test_a_loop_repeats_its_script_by_itself() -> None:
    stage = Stage()
    stage.actor.prompt(Prompt(text="prompt Keep on\nsay round\nloop"), START)

    turns: list[TurnStarted] = []
    while len(turns) < 3:
        turns += [fact for fact in stage.go_on(until=TurnStarted) if isinstance(fact, TurnStarted)]

    assert ["user", "agent", "agent"] == [turn.by for turn in turns]
    assert {"Keep on"} == {turn.prompt for turn in turns}


def test_a_looping_agent_accepts_prompts() -> None:
    stage = Stage()
    stage.actor.prompt(Prompt(text="say round\nloop"), START)
    stage.go_on(until=TurnEnded)

    stage.actor.prompt(Prompt(text="how is it?"), stage.now)
    talk = stage.go_on(until=TurnEnded)
    again = stage.go_on(until=TurnEnded)

    assert any("how is it?" in text for text in texts(talk))
    assert ["round"] == texts(again)


def test_each_turn_reports_more_tokens_and_cost() -> None:
    stage = Stage()
    facts = [*stage.prompt("say one"), *stage.prompt("say two"), *stage.prompt("usage 1 2 3 4 0.5")]

    first, second, told = (fact for fact in facts if isinstance(fact, UsageReported))
    assert 0 < first.input < second.input
    assert 0 < (first.cost_usd or 0) < (second.cost_usd or 0)
    assert (1, 2, 3, 4, 0.5) == (told.input, told.output, told.context, told.limit, told.cost_usd)
