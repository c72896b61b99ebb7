"""Answers of several keys: each goes once the one before it was seen to do what it should, and the last one last."""

import time
from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from kasmon.backends.tmux.evidence import screen_requests
from kasmon.backends.tmux.evidence.screen_reader import ScreenObservation
from kasmon.backends.tmux.evidence.screen_requests import ScreenRequest
from kasmon.backends.tmux.input import answer_delivery
from kasmon.backends.tmux.input.answer_delivery import YOUNG_S, AnswerDelivery
from kasmon.backends.tmux.input.full_view import FullView
from kasmon.detection.reader import read
from kasmon.detection.terminal_screen import captured
from kasmon.errors import PromptChangedError, RefusedError
from kasmon.model.commands import Answer
from kasmon.model.events import RequestOpened
from kasmon.model.evidence import StateVerdict
from kasmon.model.permission import Decision, SessionId
from kasmon.model.session_state import SessionState
from tests.support.detection.golden import shipped_rules

ME: Final = SessionId("abcdefgh")
DOWN, TAB, ENTER = b"\x1b[B", b"\t", b"\r"
RULES: Final = shipped_rules("claude", "2.1.332")
PARTS: Final = ("core", "docs", "tools")


class Agent:
    """An agent of claude's screens: a question that takes several choices, then its review; or a permission."""

    def __init__(self, *, asks: str = "parts", chosen: str = "", deaf: str = "") -> None:
        self.asks, self.chosen, self.deaf = asks, set(chosen.split()), deaf.encode()
        self.question = "Which parts should be built?"
        self.mark = 0
        self.words: str | None = None
        self.keys: list[bytes] = []
        self.before_key: Callable[[bytes], object] = lambda key: None
        self.asked = ScreenRequest(ME)
        self.verdict = StateVerdict(state=SessionState.ASKING, source="screen")
        self.opened_at = 0.0
        """When its request was first seen, in seconds since the epoch."""
        self.looks = 0

    # What it shows.

    def rows(self) -> list[str]:
        if self.asks == "permission":
            no = "No" if self.words is None else f"No, {self.words or 'and tell Claude what to do differently'}"
            labels = ["Yes", "Yes, and always allow access to here from this project", no]
            choices = [f" {self._marked(at)} {at + 1}. {label}" for at, label in enumerate(labels)]
            foot = " Esc to cancel · Tab to amend" if self.words is None else " Esc to cancel"
            return [
                "─" * 40,
                " Bash command",
                "╌" * 40,
                " touch a.txt",
                "╌" * 40,
                " Do you want to proceed?",
                *choices,
                "",
                foot,
            ]
        if self.asks == "review":
            return ["←  ☒ Parts  ✔ Submit  →", "", "Review your answers", "", "❯ 1. Submit answers", "  2. Cancel"]
        if self.asks == "":
            return ["● done"]
        head = f"←  {'☒' if self.chosen else '☐'} Parts  ✔ Submit  →"
        rows = [head, "", self.question, ""]
        for at, part in enumerate(PARTS):
            rows += [
                f"{self._marked(at)} {at + 1}. [{'✔' if part in self.chosen else ' '}] {part}",
                f"         the {part}",
            ]
        return [
            *rows,
            "  4. [ ] Type something",
            "     Submit",
            "─" * 40,
            "  5. Chat about this",
            "",
            "Enter to select",
        ]

    def _marked(self, at: int) -> str:
        return "❯" if at == self.mark else " "

    async def see_now(self) -> ScreenObservation:
        assert RULES is not None
        self.looks += 1
        shot = captured("\n".join(self.rows()), cursor=(0, 0), cursor_visible=False)
        return ScreenObservation(shot, read(shot, RULES), None, (120, 40))

    # What it hears.

    async def press(self, key: bytes, unless: str = "") -> None:
        self.before_key(key)
        self.keys.append(key)
        if key == self.deaf:
            return
        if self.words is not None and key != ENTER:
            self.words += key.decode()
        elif key == DOWN:
            self.mark += 1
        elif key == TAB and self.asks == "permission":
            self.words = ""
        elif key == TAB:
            self.asks = "review"
        elif key.isdigit():
            self.chosen ^= {PARTS[int(key) - 1]}
        elif key == ENTER:
            self.asks = ""

    # What kasmon does.

    view: FullView | None = None

    def begin(self) -> None: ...
    def handle_answer(self) -> None: ...

    async def given(self, decision: Decision, **more: str | tuple[str, ...]) -> Answer:
        """An answer to what it asks now."""
        menu = (await self.see_now()).reading.menu
        opened = [
            fact
            for fact in self.asked.apply_screen(self.verdict, menu, "", self.opened_at)
            if isinstance(fact, RequestOpened)
        ]
        request = opened[-1].request
        return Answer(request=request.id, digest=request.digest, decision=decision, **more)  # type: ignore[arg-type]

    async def answer(self, decision: Decision, **more: str | tuple[str, ...]) -> None:
        await AnswerDelivery(self, self).deliver(await self.given(decision, **more))


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("YOUNG_S", "LOOK_S"):
        monkeypatch.setattr(answer_delivery, name, 0.0)
    monkeypatch.setattr(answer_delivery, "MOVED_S", 0.05)


async def test_the_requested_choices_are_selected_and_then_the_menu_is_submitted() -> None:
    agent = Agent()
    await agent.answer(Decision.CHOOSE, labels=("tools", "core"))

    assert ([b"1", b"3", TAB], {"core", "tools"}, "review") == (agent.keys, agent.chosen, agent.asks)


async def test_a_selected_choice_that_is_not_requested_is_cleared() -> None:
    agent = Agent(chosen="core docs")
    await agent.answer(Decision.CHOOSE, labels=("docs",))

    assert ([b"1", TAB], {"docs"}) == (agent.keys, agent.chosen)


async def test_a_choice_that_does_not_react_stops_the_answer_before_anything_is_sent() -> None:
    agent = Agent(deaf="3")
    with pytest.raises(RefusedError, match="does not react, and nothing was sent"):
        await agent.answer(Decision.CHOOSE, labels=("core", "tools"))

    assert [b"1", b"3"] == agent.keys


@pytest.mark.parametrize("key", [b"1", b"3"])
async def test_another_question_between_two_keys_stops_the_answer_before_enter(key: bytes) -> None:
    agent = Agent()

    def swap(pressed: bytes) -> None:
        agent.question = "Which parts should be deleted?" if pressed == key else agent.question

    agent.before_key = swap
    with pytest.raises((PromptChangedError, RefusedError)):
        await agent.answer(Decision.CHOOSE, labels=("core", "tools"))

    assert TAB not in agent.keys


async def test_a_denial_types_its_reason_in_its_own_row_and_enter_follows_once_it_is_shown() -> None:
    agent = Agent(asks="permission")
    await agent.answer(Decision.DENY, reason="take b.txt")

    assert [DOWN, DOWN, TAB, b"take b.txt", ENTER] == agent.keys


async def test_if_the_reason_is_not_shown_enter_is_not_pressed() -> None:
    agent = Agent(asks="permission", deaf="take b.txt")
    with pytest.raises(RefusedError, match="does not show what was typed"):
        await agent.answer(Decision.DENY, reason="take b.txt")

    assert ENTER not in agent.keys


async def test_if_the_denial_row_does_not_open_no_text_is_typed() -> None:
    agent = Agent(asks="permission", deaf="\t")
    with pytest.raises(RefusedError, match="does not open"):
        await agent.answer(Decision.DENY, reason="take b.txt")

    assert [DOWN, DOWN, TAB] == agent.keys


async def test_if_a_better_source_reports_no_request_no_key_is_sent() -> None:
    """Its menu still stands there, word for word: printed by a program, or not yet drawn over."""
    agent = Agent(asks="permission")
    answer = await agent.given(Decision.ALLOW)
    agent.verdict = StateVerdict(state=SessionState.WORKING, source="hook")
    with pytest.raises(PromptChangedError):
        await AnswerDelivery(agent, agent).deliver(answer)

    assert [] == agent.keys


async def test_if_a_better_source_reports_no_request_between_two_keys_the_next_is_not_sent() -> None:
    agent = Agent(chosen="docs")

    def stop_asking(_: bytes) -> None:
        agent.verdict = StateVerdict(state=SessionState.WORKING, source="hook")

    agent.before_key = stop_asking
    with pytest.raises(PromptChangedError):
        await agent.answer(Decision.CHOOSE, labels=("core",))

    assert 1 == len(agent.keys)


async def test_an_answer_without_a_digest_reads_no_screen_and_sends_no_key() -> None:
    """A request that nobody could read has none; what stands there now was not what anybody saw."""
    agent = Agent(asks="permission")
    agent.asked.apply_screen(agent.verdict, None, "Allow?", 0.0)
    opened = agent.asked.apply_screen(agent.verdict, None, "Allow?", screen_requests.BARE_S)
    [request] = [fact.request for fact in opened if isinstance(fact, RequestOpened)]
    assert "" == request.digest
    with pytest.raises(PromptChangedError):
        await AnswerDelivery(agent, agent).deliver(Answer(request=request.id, digest="", decision=Decision.ALLOW))

    assert (0, []) == (agent.looks, agent.keys)


@pytest.mark.parametrize("digest", ["", "0" * 64])
async def test_an_answer_to_a_menu_with_another_digest_or_none_sends_no_key(digest: str) -> None:
    agent = Agent(asks="permission")
    answer = await agent.given(Decision.ALLOW)
    with pytest.raises(PromptChangedError):
        await AnswerDelivery(agent, agent).deliver(msgspec.structs.replace(answer, digest=digest))

    assert [] == agent.keys


async def test_a_new_request_gets_no_key_before_the_agent_reads_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents drop keys that come with their dialog; the key goes once, and not too early."""
    monkeypatch.setattr(answer_delivery, "YOUNG_S", 0.2)
    agent = Agent(asks="permission")
    pressed_at: list[float] = []
    agent.before_key = lambda _: pressed_at.append(time.time())
    agent.opened_at = time.time()
    await agent.answer(Decision.DENY)

    assert pressed_at[0] >= agent.opened_at + 0.2


def test_agents_do_not_read_input_right_after_a_request_appears() -> None:
    """claude and codex drop keys for up to half a second; a fake that hears at once sets this to none."""
    assert YOUNG_S >= 0.5
