"""The acp backend keeps every promise of its abilities, with the scripted agent behind the protocol."""

import sys
from pathlib import Path

import msgspec
import pytest

from kasmon.backends import load
from kasmon.backends.acp import backend
from kasmon.errors import SessionBusyError
from kasmon.model.commands import Launch
from kasmon.model.events import MessageWritten, PlanUpdated, SessionStarted, ToolFinished, ToolStarted, TurnEnded
from kasmon.model.permission import Decision, RequestKind
from kasmon.model.session_state import SessionState
from tests.support.agents.backend_contract import (
    AskingContract,
    BackendContract,
    InterruptingContract,
    ResumingContract,
    StreamingContract,
)

AGENT = Path(__file__).parents[2] / "support" / "acp" / "scripted_agent.py"


class TestAcp(BackendContract, StreamingContract, AskingContract, InterruptingContract, ResumingContract):
    backend = backend

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def launch(self, generation: int = 1, resume: str | None = None) -> Launch:
        argv = (sys.executable, "-P", str(AGENT), str(self.folder))
        launch = super().launch(generation, resume)
        return msgspec.structs.replace(launch, argv=argv, workdir=str(self.folder), agent="stranger")

    def test_the_backend_is_found_by_its_name(self) -> None:
        assert backend is load("acp")

    async def test_a_request_without_an_answer_stays_open(self) -> None:
        """ACP has one prompt at a time, so the next one is refused meanwhile."""
        async with self.opened() as heard:
            await heard.prompt("ask git push")
            await heard.until_asked()
            with pytest.raises(SessionBusyError):
                await heard.prompt("say I am next")

            await heard.until(SessionState.ASKING)
            assert not [fact for fact in heard.facts if isinstance(fact, ToolStarted | MessageWritten)]

    async def test_a_question_with_choices_is_answered_with_one_of_them(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("question Which colour?|red|blue\nsay after")
            request = await heard.until_asked()
            assert (RequestKind.QUESTION, ("red", "blue", "Reject")) == (request.kind, request.options)
            await heard.answer(request, Decision.CHOOSE, labels=("blue",))

            await heard.until_said(MessageWritten)

    async def test_cancelling_a_request_ends_the_turn(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push\nsay after")
            await heard.answer(await heard.until_asked(), Decision.CANCEL)
            await heard.until(SessionState.IDLE)

            assert not [fact for fact in heard.facts if isinstance(fact, ToolStarted | MessageWritten)]

    async def test_events_of_a_turn_come_in_order(self) -> None:
        async with self.opened() as heard:
            await heard.prompt('think hm\nsay a\ntool Bash {"command": "ls"} => b\nplan\n  [~] c\nsay d')
            await heard.until_said(TurnEnded)

            kinds = [type(fact).__name__ for fact in heard.facts]
            turn = "TurnStarted ThoughtWritten MessageWritten ToolStarted ToolFinished PlanUpdated MessageWritten"
            expected = [*turn.split(), "TurnEnded"]
            assert expected == [kind for kind in kinds if kind in expected]
            tool, plan = await heard.until_said(ToolFinished), await heard.until_said(PlanUpdated)
            assert isinstance(tool, ToolFinished)
            assert isinstance(plan, PlanUpdated)
            assert ("b", [("c", "doing")]) == (tool.output, [(item.text, item.state) for item in plan.items])

    async def test_the_history_of_a_conversation_identifies_it_and_is_not_repeated(self) -> None:
        async with self.opened() as heard:
            name = heard.session.resume_id
            await heard.prompt("say hello")
            await heard.until_said(MessageWritten)
        launch = msgspec.structs.replace(self.launch(2, name), remembers="say hello")
        async with self.opened(launch) as again:
            started = again.facts[0]

            assert isinstance(started, SessionStarted)
            assert "same id, and its own history contains our last prompt" == started.proof
            assert [] == [fact for fact in again.facts if isinstance(fact, MessageWritten)]
