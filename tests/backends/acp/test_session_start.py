"""An agent is opened or says why not: what failed, and what to do; nothing is left running then."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kasmon.backends.acp import backend
from kasmon.errors import ExtraMissingError, LaunchError, LogInRequiredError
from kasmon.model.commands import ConversationFork, Prompt
from kasmon.model.events import EntryImported, NoticeRaised, SessionStarted, SettingsChanged, ToolStarted, TurnEnded
from tests.support.acp.odd_session import ODD, OddSession, give, launch, messages, only
from tests.support.cli.fork_server import OURS
from tests.support.wait import auntil


@pytest.fixture
def stage(tmp_path: Path) -> OddSession:
    return OddSession(tmp_path)


def agents() -> list[psutil.Process]:
    """This process's children, without the server that forks the hosts of other tests."""
    return [each for each in psutil.Process().children() if each.pid != OURS.pid]


async def why_not(name: str, workdir: Path, **more: object) -> str:
    """Why the odd agent *name* cannot be opened; no process of ours is left then."""
    with pytest.raises(LaunchError) as caught:
        await backend.open(launch(name, workdir, **more))
    assert [] == agents()
    return str(caught.value)


async def test_an_agent_that_never_answers_is_ended_and_its_last_output_is_reported(tmp_path: Path) -> None:
    why = await why_not("silent", tmp_path, handshake_s=0.5)

    assert "did not respond to 'initialize' within 0.5 s. Its message: waiting for the moon" in why


async def test_an_agent_that_dies_reports_the_reason_without_its_key(tmp_path: Path) -> None:
    await asyncio.to_thread(give, ODD_KEY="very-secret-value")
    why = await why_not("dies", tmp_path)

    assert "ended before it responded to 'initialize' (exit code 3). Its message: no such model, and the key is" in why
    assert "very-secret-value" not in why


async def test_another_program_version_or_introduction_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert "It printed: usage: odd [--help]" in await why_not("other_program", tmp_path)

    assert "speaks version 2 of the Agent Client Protocol, kasmon version 1" in await why_not(
        "from_the_future", tmp_path
    )

    assert "did not initialise as an Agent Client Protocol agent" in await why_not("not_introduced", tmp_path)


async def test_a_missing_log_in_names_the_ways_to_log_in(tmp_path: Path) -> None:
    why = await why_not("logged_out", tmp_path)

    assert "requires a login: Authentication required Log in to it in a terminal" in why
    assert "It offers: Log in with a browser (Opens a page); API key (ODD_API_KEY)." in why


async def test_a_login_in_a_terminal_names_the_command_that_the_user_may_run(tmp_path: Path) -> None:
    why = await why_not("logged_out_for_terminals", tmp_path)

    own = shlex.join(launch("logged_out_for_terminals", tmp_path).argv)
    command = f"kasmon new login --env-public=ODD=1 -- {own} auth 'log in'"
    assert f"It offers: In a terminal: `{command}`; Elsewhere." in why


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("logged_out_for_terminals", (sys.executable, "-P", str(ODD), "logged_out_for_terminals", "auth", "log in")),
        ("logged_out_the_older_way", ("odd", "auth", "login")),
        ("logged_out", ()),
    ],
)
async def test_the_first_log_in_in_a_terminal_is_offered_with_its_variables(
    name: str, argv: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(LogInRequiredError) as caught:
        await backend.open(launch(name, tmp_path))

    assert (argv, {"ODD": "1"} if argv else {}) == (caught.value.argv, caught.value.variables)


async def test_a_log_in_that_a_turn_requires_is_offered_until_the_next_turn(stage: OddSession) -> None:
    heard = await stage.turn("is_logged_out_later")

    assert heard.session.log_in is not None
    assert (sys.executable, "-P", str(ODD), "is_logged_out_later", "log-in") == heard.session.log_in.argv
    assert ["error"] == [ended.reason for ended in only(heard, TurnEnded)]


async def test_a_conversation_without_an_id_is_none(tmp_path: Path) -> None:
    assert "without an id" in await why_not("nameless", tmp_path)


async def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="'/no/such/agent'"):
        await backend.open(launch("plain", tmp_path, argv=("/no/such/agent", "acp")))


async def test_no_command_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="has no program"):
        await backend.open(launch("plain", tmp_path, argv=()))


async def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)

    with pytest.raises(ExtraMissingError, match=r"install --force '\.\[acp\]"):
        await backend.open(launch("plain", tmp_path))


def test_the_sdk_is_not_imported_before_an_agent_is_opened() -> None:
    """It takes half a second and 25 MB."""
    look = "import sys, kasmon.backends.acp; print('acp' in sys.modules, 'pydantic' in sys.modules)"

    said = subprocess.run([sys.executable, "-P", "-c", look], capture_output=True, text=True, check=True).stdout

    assert "False False" == said.strip()


async def test_a_cancelled_start_ends_the_agent(tmp_path: Path) -> None:
    opening = asyncio.create_task(backend.open(launch("silent", tmp_path)))
    await auntil(agents)
    opening.cancel()
    await asyncio.wait([opening])

    assert opening.cancelled()
    assert [] == agents()


# Models


async def test_the_agent_runs_on_the_requested_model(stage: OddSession) -> None:
    async with stage.agent("choosy", model="small") as heard:
        started, settings = only(heard, SessionStarted)[0], only(heard, SettingsChanged)[0]

        assert ("small", "small", ("big", "small")) == (started.model, settings.model, settings.models)
        assert ("ask", ("ask", "plan")) == (settings.permission_mode, settings.permission_modes)


async def test_a_model_that_it_does_not_have_or_lets_nobody_choose_is_refused(tmp_path: Path) -> None:
    assert "has no model 'huge'. Available: big, small." in await why_not("choosy", tmp_path, model="huge")

    assert "does not support setting its model, so 'big' is unavailable" in await why_not(
        "plain", tmp_path, model="big"
    )


async def test_an_unknown_or_refused_permission_mode_is_an_error(tmp_path: Path) -> None:
    """A session that moves must not begin with another one in silence."""
    assert "has no permission mode 'yolo'. Available: ask, plan." in await why_not(
        "choosy", tmp_path, permission_mode="yolo"
    )
    assert "did not accept the permission mode 'plan'" in await why_not("choosy", tmp_path, permission_mode="plan")
    assert "does not support setting its permission mode" in await why_not("plain", tmp_path, permission_mode="ask")


# Conversations that go on


async def test_an_agent_that_lost_the_conversation_is_not_shown_as_the_earlier_one(tmp_path: Path) -> None:
    why = await why_not("forgetful", tmp_path, resume="talk-1", remembers="tidy up")

    assert "opened the conversation 'talk-1', but its history is empty. `kasmon new`" in why


async def test_a_history_without_the_last_prompt_is_reported(stage: OddSession) -> None:
    async with stage.agent("remembers_others", resume="talk-1", remembers="tidy up", generation=2) as heard:
        assert "same id, and its own history has 1 parts" == heard.session.proof
        assert ["warning"] == [notice.level for notice in only(heard, NoticeRaised)]


async def test_a_late_history_is_still_history(stage: OddSession) -> None:
    """gemini answers `session/load` before it has replayed."""
    async with stage.agent("replays_late", resume="talk-1", remembers="tidy up", generation=2) as heard:
        assert "same id, and its own history contains our last prompt" == heard.session.proof
        await heard.prompt("go on")
        assert ["go on"] == await messages(heard)

        assert [] == only(heard, ToolStarted)


async def test_without_a_history_the_conversation_list_is_read(stage: OddSession) -> None:
    async with stage.agent("resumes_only", resume="talk-1", remembers="tidy up", generation=2) as heard:
        assert "same id, which is in its own list of conversations" == heard.session.proof


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("knows_nothing", "did not resume the conversation 'talk-1': Internal error: No previous sessions found."),
        ("plain", "cannot resume an earlier conversation"),
    ],
)
async def test_a_conversation_that_cannot_be_resumed_gives_the_reason(name: str, why: str, tmp_path: Path) -> None:
    assert why in await why_not(name, tmp_path, resume="talk-1")


async def test_the_history_of_a_conversation_from_before_the_session_is_imported_without_its_times(
    stage: OddSession,
) -> None:
    async with stage.agent("lists", resume="talk-1") as heard:
        await auntil(lambda: only(heard, EntryImported), what="the history")
        entries = [each.entry for each in only(heard, EntryImported)]
        assert ["TurnStarted", "MessageWritten", "ToolStarted", "ToolFinished", "TurnStarted"] == [
            type(entry).__name__ for entry in entries
        ]
        assert ("tidy up", "I have tidied up.", "thanks") == (entries[0].prompt, entries[1].text, entries[4].prompt)
        assert {0.0} == {entry.at for entry in entries}
        assert 0 == heard.session.turns
        await heard.prompt("go on")
        assert ["go on"] == await messages(heard)


async def test_of_a_very_long_history_the_last_entries_are_imported(stage: OddSession) -> None:
    async with stage.agent("has_a_long_history", resume="talk-1") as heard:
        await auntil(lambda: only(heard, EntryImported), what="the history")
        first, *others = (each.entry for each in only(heard, EntryImported))

    assert "The beginning of this conversation is omitted here; the agent has it." == first.text
    assert (500, "prompt 200", "prompt 699") == (len(others), others[0].prompt, others[-1].prompt)


# Conversations that are copied


async def test_a_copy_of_a_conversation_has_its_own_id_and_its_history_is_not_repeated(
    stage: OddSession,
) -> None:
    async with stage.agent("forks", fork=ConversationFork(conversation="talk-1")) as heard:
        assert ("talk-1-copy", "") == (heard.session.resume_id, heard.session.proof)
        assert ("forks",) == only(heard, SessionStarted)[0].abilities
        await heard.prompt("go on")

        assert ["go on"] == await messages(heard)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("plain", "cannot copy a conversation"),
        ("forks_nothing", "opened the conversation 'talk-1' itself, not a copy of it"),
        ("refuses_to_fork", "did not copy the conversation 'talk-1': Internal error: disk full"),
    ],
)
async def test_a_conversation_that_cannot_be_copied_gives_the_reason(name: str, why: str, tmp_path: Path) -> None:
    assert why in await why_not(name, tmp_path, fork=ConversationFork(conversation="talk-1"))


# Surroundings


async def test_the_environment_is_set_by_kasmon(stage: OddSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-another-agent")
    monkeypatch.setenv("SOME_VARIABLE", "of-this-shell")
    await asyncio.to_thread(give, ODD_KEY="given")
    async with stage.agent("tells_its_environment") as heard:
        await heard.prompt("go")
        seen = json.loads((await messages(heard))[0])

    assert "given" == seen["ODD_KEY"]
    assert "odd" == seen["KASMON_SESSION"]
    assert {"ANTHROPIC_API_KEY", "SOME_VARIABLE", "GEMINI_CLI_NO_RELAUNCH"}.isdisjoint(seen)


async def test_the_agent_leads_its_own_process_group(stage: OddSession) -> None:
    async with stage.agent("plain") as heard:
        pid = heard.session.pid

        assert pid is not None
        assert pid == os.getpgid(pid) == os.getsid(pid)


async def test_an_agent_can_be_opened_and_closed_without_a_listener(tmp_path: Path) -> None:
    agent = await backend.open(launch("plain", tmp_path))
    await agent.send(Prompt(text="hello"))
    await agent.aclose()

    facts = [fact async for fact in agent.events()]
    assert TurnEnded not in {type(fact) for fact in facts[-1:]}
    assert [] == agents()
