"""gemini over the Agent Client Protocol, against the model stub."""

import json
import time

import msgspec
import pytest

from kasmon.backends.acp import backend
from kasmon.errors import LaunchError, RefusedError, UnableError
from kasmon.model.commands import Configure
from kasmon.model.events import SessionStarted, UsageReported
from kasmon.model.permission import Decision
from tests.support.acp.real_contract import LIMIT_S, RealContract, started
from tests.support.agents.real_agent import RealAgent
from tests.support.model_stub import ModelStub
from tests.support.wait import auntil

pytestmark = pytest.mark.agents


class TestGemini(RealContract):
    mode = "autoEdit"

    @pytest.fixture
    def agent(self, gemini: RealAgent) -> RealAgent:
        return gemini

    async def test_its_figures_add_up_and_its_model_changes(self, agent: RealAgent) -> None:
        async with self.talk(agent) as talk:
            await talk.turn("go %% say one")
            await talk.turn("go %% say two")
            first, second = talk.only(UsageReported)
            assert 0 < first.input < second.input

            await talk.heard.agent.send(Configure(model="gemini-2.5-pro"))
            await auntil(lambda: talk.heard.session.model == "gemini-2.5-pro", LIMIT_S, "the model")

    async def test_it_lists_copies_and_deletes_no_conversations(self, agent: RealAgent, stub: ModelStub) -> None:
        stub.must_be_called = False
        with pytest.raises(UnableError, match="does not list its conversations"):
            await backend.list_conversations(await started(agent), {}, "")
        async with self.talk(agent) as talk:
            assert () == talk.only(SessionStarted)[0].abilities

    async def test_a_conversation_from_the_current_minute_continues(self, agent: RealAgent, stub: ModelStub) -> None:
        """Gemini would begin a file of the same name, and forget what is in there."""
        said = "go %% say remember me"
        async with self.talk(agent) as talk:
            name = talk.heard.session.resume_id or ""
            await talk.turn(said)
        (chat,) = (agent.home / ".gemini" / "tmp").glob(f"*/chats/session-*-{name[:8]}.jsonl")
        chat.rename(chat.with_name(f"session-{time.strftime('%Y-%m-%dT%H-%M', time.gmtime())}-{name[:8]}.jsonl"))
        async with self.talk(agent, generation=2, resume=name, remembers=said) as again:
            assert again.heard.session.proof.startswith("same id, and its own history contains our last prompt")
            await again.turn("go %% say here again")

        assert {said, "go %% say here again"} <= set(stub.turns[-1]["users"])

    async def test_without_a_key_it_names_the_ways_to_log_in(self, agent: RealAgent, stub: ModelStub) -> None:
        stub.must_be_called = False
        with pytest.raises(LaunchError, match=r"requires a login: .* GEMINI_API_KEY .*Log in with Google"):
            await backend.open(await started(agent, variables={"GEMINI_API_KEY": ""}))

    async def test_in_an_untrusted_folder_it_requests_permission_for_everything(self, agent: RealAgent) -> None:
        (agent.home / ".gemini" / "trustedFolders.json").write_text(json.dumps({str(agent.workdir): "DO_NOT_TRUST"}))
        launch = msgspec.structs.replace(await started(agent), argv=(str(agent.program), "--acp"))
        async with self.opened(launch) as heard:
            with pytest.raises(RefusedError, match="Cannot enable privileged approval modes in an untrusted folder"):
                await heard.agent.send(Configure(permission_mode="yolo"))
            await heard.prompt("go %% bash touch made.txt %% say done")
            await heard.answer(await heard.until_asked(), Decision.DENY)

        assert not (agent.workdir / "made.txt").exists()
