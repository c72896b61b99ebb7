"""A person at the dashboard, and a real agent behind it: every answer, setting and interrupt is a key they press."""

import os
import signal
from typing import cast

import psutil
import pytest

from kasmon.model.events import RequestAnswered, ToolStarted, TurnEnded
from tests.support.agents.full_stack import LIMIT_S, Stack, beside, gone, stacked
from tests.support.agents.real_agent import family
from tests.support.model_stub import ModelStub
from tests.support.tui.dashboard import Dashboard, Home
from tests.support.wait import until

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
BOTH = pytest.mark.parametrize("name", ["claude", "codex"])
WHERE = "the workspace is full, use the other one"
START, CUT, TAB, ENTER, ESCAPE, INTERRUPT, FURTHER = "\x01", "\x0b", "\t", "\r", "\x1b", "\x03", "l"
SLEEP = "python3 -c 'import time;time.sleep(61)'"
"""A command that lasts; claude refuses `sleep` alone."""
ASKS_ANYWHERE = ("-c features.default_mode_request_user_input=true",)
"""Codex asks questions outside of plan mode, too."""


class Person(Dashboard):
    """Who sits at the dashboard of *stack*."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(cast(Home, stack), columns=120, rows=36)

    def press(self, keys: str, *then: str) -> None:
        """Press *keys* one by one, and wait until the screen shows what they do."""
        self.type(keys)
        self.shows(*then)

    def at_card(self, *words: str) -> None:
        """Wait for the request, open its card, and wait until that shows *words* and takes an answer."""
        self.shows("pending request")
        self.press("i", *words, "ready")


def made(stack: Stack) -> list[str]:
    return sorted(file.name for file in stack.agent.workdir.iterdir())


def sleepers(stack: Stack) -> list[psutil.Process]:
    """The processes of the agent that run SLEEP."""
    return [process for process in family(stack.agent.home) if "import time;time.sleep(61)" in words(process)[-1:]]


def words(process: psutil.Process) -> list[str]:
    """What it was started with; nothing where it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def steps(offers: tuple[str, ...], here: str, there: str) -> int:
    """How many times to go further in a row of words that begins again behind its end."""
    return (offers.index(there) - offers.index(here)) % len(offers)


@BOTH
def test_a_permission_is_allowed_denied_with_a_reason_and_edited(name: str, stack: Stack, stub: ModelStub) -> None:
    """Denied, the agent hears why; edited, what runs is what the person wrote, where the agent can take that."""
    stack.configure(*stack.asking)
    session = stack.new("worker", "go %% bash touch once.txt %% say one")
    with Person(stack) as person:
        person.at_card("touch once.txt")
        assert [] == made(stack)
        person.press("a", "finished")
        stack.turned(session)
        assert ["once.txt"] == made(stack)

        stack("send", "worker", "go %% bash touch no.txt %% say two")
        person.at_card("touch no.txt")
        person.press("d", "Reason (optional, sent to the agent)")
        person.press(f"{WHERE}\r", "finished")
        stack.turned(session, 1)
        assert any(WHERE in f"{turn['user']}{turn['results']}" for turn in stub.turns)

        stack("send", "worker", "go %% bash touch its.txt %% say three")
        person.at_card("touch its.txt")
        assert (name == "claude") is ("Edit, then allow" in person.screen)
        if name == "claude":
            person.press("e", "▌ touch its.txt")
            person.type(f"{START}{CUT}")
            person.hides("▌ touch its.txt")
            person.press("touch mine.txt\x1b", "Allow as edited", "ready")
        person.press("a", "finished")
        stack.turned(session, 2)

    assert ["mine.txt" if name == "claude" else "its.txt", "once.txt"] == made(stack)
    assert 3 == len(stack.facts(session, RequestAnswered))


@BOTH
def test_a_question_is_answered_by_choice(name: str, stack: Stack, stub: ModelStub) -> None:
    stack.configure(*(ASKS_ANYWHERE if name == "codex" else ()))
    session = stack.new("worker", "go %% ask Which colour?|green|blue %% say done")
    with Person(stack) as person:
        person.at_card("Which colour?", "green", "blue")
        person.press("2", "◉ blue")
        person.press(ENTER, "finished")
        stack.turned(session)

    assert '"blue"' in stub.turns[-1]["results"][-1]
    assert '"green"' not in stub.turns[-1]["results"][-1]


@BOTH
def test_model_and_permission_mode_are_changed_and_a_prompt_is_written(
    name: str, stack: Stack, stub: ModelStub
) -> None:
    """With the keys of the dialog and of the prompt box; the model is asked for by the provider's own request."""
    model, mode = {"claude": ("sonnet", "plan"), "codex": ("gpt-6-sol", "never")}[name]
    session = stack.new("worker")
    until(lambda: stack.session(session).models, LIMIT_S, "what it offers")
    now = stack.session(session)
    models = now.models if now.model in now.models else (now.model, *now.models)
    with Person(stack) as person:
        person.shows("worker", "idle")
        person.press("C", "Model and permissions: worker", model, mode)
        person.type(FURTHER * steps(models, now.model, model))
        person.press(TAB, f"▌{model}")
        person.type(FURTHER * steps(now.permission_modes, now.permission_mode, mode))
        person.type(ENTER)
        until(lambda: mode == stack.session(session).permission_mode, LIMIT_S, "the mode")
        person.hides("Model and permissions: worker")

        person.press(ENTER, "Write to worker")
        person.press(f"go %% say hello there{ENTER}", "hello there", "done ·", mode)
        assert model in stack.turned(session).model

    assert model in stub.turns[-1]["model"]


@BOTH
def test_a_turn_is_interrupted_by_a_key_in_its_text_and_in_its_command(stack: Stack) -> None:
    stack.configure(*stack.asking)
    session = stack.new("worker")
    with Person(stack) as person:
        person.shows("worker", "idle")
        person.press(ENTER, "Write to worker")
        person.press(f"go %% slow 60 tick{ENTER}", "tick1")
        person.press(INTERRUPT, "interrupted ·")
        person.press(ESCAPE, "n new")

        stack("send", "worker", f"go %% bash {SLEEP} %% say after")
        person.at_card("time.sleep")
        person.press("a", "working")
        until(lambda: stack.facts(session, ToolStarted), LIMIT_S, "its command")
        asleep = until(lambda: sleepers(stack), LIMIT_S, "its sleep")
        person.type("c")
        gone(*asleep)
        stack.turned(session, 1)

    assert ["interrupted"] * 2 == [turn.reason for turn in stack.facts(session, TurnEnded)]


@BOTH
def test_a_dashboard_killed_at_a_card_shows_it_again_and_accepts_its_answer(stack: Stack) -> None:
    stack.configure(*stack.asking)
    session = stack.new("worker", "go %% bash touch once.txt %% say one")
    with Person(stack) as person:
        person.at_card("touch once.txt")
        os.kill(person.process.pid, signal.SIGKILL)
        person.ended()
    assert [] == made(stack)

    with Person(stack) as person:
        person.at_card("touch once.txt")
        person.press("a", "finished")
        stack.turned(session)

    assert ["once.txt"] == made(stack)
    assert 1 == len(stack.facts(session, RequestAnswered))
