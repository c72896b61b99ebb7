"""Answers of several keys: each goes once the one before it was seen to do what it should, and the last one last."""

from collections.abc import Callable
from typing import Final

import pytest

from kasmon.backends.tmux import answering
from kasmon.backends.tmux.answering import Answering
from kasmon.backends.tmux.asked import Asked
from kasmon.backends.tmux.eyes import Seen
from kasmon.errors import PromptChangedError, RefusedError
from kasmon.model.command import Answer
from kasmon.model.event import RequestOpened
from kasmon.model.evidence import Verdict
from kasmon.model.permission import Decision, SessionId
from kasmon.model.state import SessionState
from kasmon.screens.menu import screen
from kasmon.screens.reading import read
from kasmon.screens.shot import captured

ME: Final = SessionId("abcdefgh")
DOWN, TAB, ENTER = b"\x1b[B", b"\t", b"\r"
RULES: Final = screen("claude", "2.1.330")
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
        self.asked = Asked(ME)
        self.verdict = Verdict(state=SessionState.ASKING, source="screen")

    # What it shows.

    def rows(self) -> list[str]:
        if self.asks == "permission":
            no = "No" if self.words is None else f"No, {self.words or 'and tell Claude what to do differently'}"
            labels = ["Yes", "Yes, and always allow access to here from this project", no]
            choices = [f" {self._marked(at)} {at + 1}. {label}" for at, label in enumerate(labels)]
            foot = " Esc to cancel · Tab to amend" if self.words is None else " Esc to cancel"
            return ["─" * 40, " Bash command", "", " touch a.txt", "", " Do you want to proceed?", *choices, "", foot]
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

    async def see_now(self) -> Seen:
        assert RULES is not None
        shot = captured("\n".join(self.rows()), cursor=(0, 0), cursor_visible=False)
        return Seen(shot, read(shot, RULES), None, (120, 40))

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

    def begin(self) -> None: ...
    def answered(self) -> None: ...

    async def answer(self, decision: Decision, **more: str | tuple[str, ...]) -> None:
        menu = (await self.see_now()).reading.menu
        opened = [fact for fact in self.asked.seen(self.verdict, menu, "", 0.0) if isinstance(fact, RequestOpened)]
        request = opened[-1].request
        answer = Answer(request=request.id, digest=request.digest, decision=decision, **more)  # type: ignore[arg-type]
        await Answering(self, self).carry(answer)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("YOUNG_S", "LOOK_S"):
        monkeypatch.setattr(answering, name, 0.0)
    monkeypatch.setattr(answering, "MOVED_S", 0.05)


async def test_what_is_wanted_is_chosen_and_then_it_goes_on() -> None:
    agent = Agent()
    await agent.answer(Decision.CHOOSE, labels=("tools", "core"))

    assert ([b"1", b"3", TAB], {"core", "tools"}, "review") == (agent.keys, agent.chosen, agent.asks)


async def test_what_was_chosen_before_and_is_not_wanted_is_taken_back() -> None:
    agent = Agent(chosen="core docs")
    await agent.answer(Decision.CHOOSE, labels=("docs",))

    assert ([b"1", TAB], {"docs"}) == (agent.keys, agent.chosen)


async def test_a_choice_that_does_not_react_ends_it_before_anything_is_sent() -> None:
    agent = Agent(deaf="3")
    with pytest.raises(RefusedError, match="does not react, and nothing was sent"):
        await agent.answer(Decision.CHOOSE, labels=("core", "tools"))

    assert [b"1", b"3"] == agent.keys


@pytest.mark.parametrize("key", [b"1", b"3"])
async def test_another_question_between_two_keys_gets_none_that_sends(key: bytes) -> None:
    agent = Agent()

    def swap(pressed: bytes) -> None:
        agent.question = "Which parts should be deleted?" if pressed == key else agent.question

    agent.before_key = swap
    with pytest.raises((PromptChangedError, RefusedError)):
        await agent.answer(Decision.CHOOSE, labels=("core", "tools"))

    assert TAB not in agent.keys


async def test_a_no_says_why_in_its_own_row_and_enter_comes_once_that_stands_there() -> None:
    agent = Agent(asks="permission")
    await agent.answer(Decision.DENY, reason="take b.txt")

    assert [DOWN, DOWN, TAB, b"take b.txt", ENTER] == agent.keys


async def test_where_the_reason_does_not_stand_there_no_enter_is_pressed() -> None:
    agent = Agent(asks="permission", deaf="take b.txt")
    with pytest.raises(RefusedError, match="does not show what was typed"):
        await agent.answer(Decision.DENY, reason="take b.txt")

    assert ENTER not in agent.keys


async def test_where_the_no_does_not_open_no_word_is_typed() -> None:
    agent = Agent(asks="permission", deaf="\t")
    with pytest.raises(RefusedError, match="does not open"):
        await agent.answer(Decision.DENY, reason="take b.txt")

    assert [DOWN, DOWN, TAB] == agent.keys
