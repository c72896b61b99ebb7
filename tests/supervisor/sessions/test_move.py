"""A session moves only where nothing is lost by it; where it cannot, it stays as it is and says why."""

import asyncio
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime

import msgspec
import psutil
import pytest

from kasmon import system
from kasmon.config import Config, parse
from kasmon.config.schema import AccountConfig
from kasmon.errors import KasmonError, LaunchError, PermissionModeError, RefusedError, SessionBusyError, UnableError
from kasmon.model.commands import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import EntryImported, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.store.event_log import EventLog
from kasmon.supervisor.limits.account import copy_conversation
from kasmon.supervisor.sessions.conversation import TerminalConversation, conversation_of
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.move import move
from kasmon.supervisor.sessions.session_operations import create, restart, stop
from tests.support.tui.dashboard import Home
from tests.support.wait import until


def moved(home: Home, session: SessionId, to: Mode, config: Config | None = None) -> None:
    asyncio.run(move(home.paths, config or Config(), home.session(session), to))


def test_a_session_in_the_requested_mode_does_not_move(home: Home) -> None:
    session = home.start("worker")
    with pytest.raises(RefusedError, match="already runs in mode 'sdk'"):
        moved(home, session, Mode.SDK)


def test_a_running_turn_is_never_interrupted(home: Home) -> None:
    session = home.start("worker", "hang")
    until(lambda: home.session(session).state is SessionState.WORKING)
    with pytest.raises(SessionBusyError, match="working") as refusal:
        moved(home, session, Mode.TMUX)
    assert "Wait until its turn ends, or interrupt it." == refusal.value.hint

    assert SessionState.WORKING is home.session(session).state


def test_queued_prompts_are_not_lost(home: Home) -> None:
    session = home.start("worker", "hang")
    until(lambda: home.session(session).state is SessionState.WORKING)
    asyncio.run(_queue(home, session))
    with pytest.raises(RefusedError, match="1 queued prompts"):
        moved(home, session, Mode.TMUX)


async def _queue(home: Home, session: SessionId) -> None:
    from kasmon.supervisor.sessions import session_operations

    await session_operations.send(home.paths, home.session(session), "say later", "idle")


def test_a_prompt_in_delivery_is_not_lost(home: Home) -> None:
    """Its turn may begin any moment; one that never began is not waited for."""
    session = home.session(home.start("worker"))
    receipt = Receipt(id=ReceiptId("x-r1"), session=session.id, state=ReceiptState.SUBMITTED, text="go", at=time.time())
    given = msgspec.structs.replace(session, receipts=(receipt,))
    with pytest.raises(RefusedError, match="a prompt is being sent"):
        asyncio.run(move(home.paths, Config(), given, Mode.TMUX))

    stale = msgspec.structs.replace(session, receipts=(msgspec.structs.replace(receipt, at=time.time() - 11),))
    with pytest.raises(UnableError):
        asyncio.run(move(home.paths, Config(), stale, Mode.TMUX))


def test_a_turn_that_ended_at_its_limit_is_not_waited_for(home: Home) -> None:
    """It would be for as long as the limit lasts, of which nobody may know."""
    session = home.start("worker", "say hello\nlimit")
    until(lambda: home.session(session).state is SessionState.LIMITED and not home.session(session).in_turn)
    with pytest.raises(UnableError, match="does not know how"):
        moved(home, session, Mode.TMUX)


def test_a_program_that_cannot_be_resumed_in_a_terminal_stays(home: Home) -> None:
    """The scripted agent remembers nothing."""
    session = home.start("worker", "say hello")
    until(lambda: home.session(session).turns == 1 and home.session(session).state is SessionState.IDLE)
    with pytest.raises(UnableError, match="does not know how"):
        moved(home, session, Mode.TMUX)

    assert home.session(session).exists


def test_a_terminal_that_reports_no_conversation_stays(home: Home) -> None:
    session = home.start("worker", "say hello", mode=Mode.TMUX)
    until(lambda: [ReceiptState.FINISHED] == [receipt.state for receipt in home.session(session).receipts])
    until(lambda: home.session(session).state is SessionState.IDLE)
    with pytest.raises(UnableError, match="does not report which conversation"):
        moved(home, session, Mode.SDK)

    assert home.session(session).exists


def test_a_terminal_in_an_unknown_state_stays(home: Home) -> None:
    session = home.start("worker", agent="shell", mode=Mode.TMUX, argv=("cat",))
    config = parse('[agents.shell]\nprogram = "cat"\nprotocol = "codex"')
    until(lambda: home.session(session).state is SessionState.UNSURE)
    with pytest.raises(RefusedError, match="it is unknown whether"):
        moved(home, session, Mode.SDK, config)


def test_a_program_without_a_protocol_stays(home: Home) -> None:
    session = home.start("worker", agent="", mode=Mode.TMUX, argv=("cat",))
    with pytest.raises(KasmonError, match="cat"):
        moved(home, session, Mode.SDK, parse('[agents.cat]\nprogram = "cat"'))

    assert home.session(session).exists


def test_a_move_to_a_less_strict_permission_mode_is_refused_before_anything_ends(home: Home) -> None:
    """And done where a person agreed; here nothing is there to move to, so it goes on where it was."""
    config, session = codex(home, TALK, policy="granular")
    before = home.session(session)
    with pytest.raises(PermissionModeError, match=r"'granular' only from its config.*--change-permissions"):
        moved(home, session, Mode.SDK, config)
    now = home.session(session)
    assert (before.pid, before.generation, True) == (now.pid, now.generation, now.exists)

    with pytest.raises(LaunchError, match="continues in its previous mode"):
        asyncio.run(move(home.paths, config, now, Mode.SDK, changes_permissions=True))


def test_an_agent_cannot_confirm_a_move_that_changes_the_permission_mode(home: Home) -> None:
    config, session = codex(home, TALK, policy="granular")
    home.paths.config.mkdir(mode=0o700, exist_ok=True)
    home.paths.config_file.write_text(f'[agents.codex]\nprogram = "{config.agents["codex"].program}"\n')
    before = home.session(session)
    command = [sys.executable, "-P", "-m", "kasmon", "move", "worker", "--to", "sdk", "--change-permissions"]
    variables = {**os.environ, **home.variables, "KASMON_SESSION": "someones"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)

    assert "an agent cannot change a permission mode" in done.stderr
    assert before.generation == home.session(session).generation


def test_a_move_back_keeps_the_permission_mode(home: Home) -> None:
    """The terminal that begins again has the flags of what was in force, and not of the profile."""
    config, session = codex(home, TALK, flags="-a never")
    with pytest.raises(LaunchError, match="continues in its previous mode"):
        moved(home, session, Mode.SDK, config)

    command = psutil.Process(home.session(session).pid or 0).cmdline()
    assert ["-a", "on-request", "-s", "read-only"] == command[-4:]
    assert "never" not in command


def test_a_restarted_terminal_keeps_the_permission_mode(home: Home) -> None:
    _, session = codex(home, TALK, flags="-a never")
    for _ in range(2):
        until(lambda: home.session(session).permission_mode == "on-request")
        asyncio.run(stop(home.paths, home.session(session)))
        asyncio.run(restart(home.paths, home.session(session)))

        until(lambda: home.session(session).state is SessionState.IDLE)
        command = psutil.Process(home.session(session).pid or 0).cmdline()
        assert ["resume", TALK] == command[command.index("resume") :][:2]
        assert 1 == command.count(TALK)
        assert ["-a", "on-request", "-s", "read-only"] == command[-4:]


KEY = "sk-test-0123456789abcdef0123"
TALK, OTHER = (f"{digit * 8}-1111-4222-8333-0123456789ab" for digit in "0f")
CODEX = """\
#!{python}
import os, sys
if "app-server" in sys.argv:
    sys.exit("there is none here")
folder = os.environ["CODEX_HOME"] + "/sessions/2026/11/22"
file = open(folder + "/rollout-2026-11-22T01-02-03-%s.jsonl" % ("{resumed}" if "resume" in sys.argv else "{begun}"))
sys.stdout.write("\\033]7501;state=idle:app=codex\\033\\\\")
sys.stdout.flush()
sys.stdin.read()
"""


def codex(home: Home, resumed: str, *, policy: str = "on-request", flags: str = "") -> tuple[Config, SessionId]:
    """A terminal with a `codex` that has no protocol; told to go on, it opens the conversation *resumed*."""
    folder = home.path / "codex-home" / "sessions" / "2026" / "11" / "22"
    folder.mkdir(parents=True)
    for talk in (TALK, OTHER):
        told = {"approval_policy": policy, "sandbox_policy": {"type": "read-only"}}
        line = json.dumps({"type": "turn_context", "payload": told}, separators=(",", ":"))
        (folder / f"rollout-2026-11-22T01-02-03-{talk}.jsonl").write_text(f"{line}\n")
    program = home.path / "codex"
    program.write_text(CODEX.format(python=sys.executable, begun=TALK, resumed=resumed))
    program.chmod(0o700)
    config = parse(f'[agents.codex]\nprogram = "{program}"\nflags = ["{flags}"]')
    wanted = NewSession(
        name="worker", agent="codex", mode=Mode.TMUX, workdir="/", environment=(f"CODEX_HOME={folder.parents[3]}",)
    )
    session = asyncio.run(create(home.paths, config, wanted))
    until(lambda: home.session(session).state is SessionState.IDLE)
    return config, session


def test_an_agent_that_does_not_start_after_the_move_resumes_in_the_old_mode(home: Home) -> None:
    config, session = codex(home, TALK)
    with pytest.raises(LaunchError, match=r"continues in its previous mode: .*there is none here"):
        moved(home, session, Mode.SDK, config)

    now = home.session(session)
    assert (True, Mode.TMUX, 3) == (now.exists, now.mode, now.generation)
    assert TerminalConversation(TALK, None) == conversation_of("codex", now.pid or 0)


def test_a_move_to_structured_imports_the_messages_of_the_terminal(home: Home) -> None:
    config, session = codex(home, TALK)
    item = {"type": "UserMessage", "content": [{"type": "text", "text": "in the terminal"}]}
    at = datetime.now(UTC).isoformat()
    line = {"timestamp": at, "type": "event_msg", "payload": {"type": "item_completed", "item": item}}
    [rollout] = home.path.glob(f"codex-home/sessions/*/*/*/rollout-*-{TALK}.jsonl")
    with rollout.open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(LaunchError, match="continues in its previous mode"):
        moved(home, session, Mode.SDK, config)

    log = [*EventLog(home.paths.log(session)).events()]
    [imported] = [event.entry for event in log if isinstance(event, EntryImported)]
    assert isinstance(imported, TurnStarted)
    assert "in the terminal" == imported.prompt


def test_a_terminal_that_opens_another_conversation_has_not_resumed(home: Home) -> None:
    config, session = codex(home, OTHER)
    with pytest.raises(LaunchError, match=f"It also did not restart in its previous mode: .*{OTHER}"):
        moved(home, session, Mode.SDK, config)


def with_accounts(home: Home, config: Config) -> Config:
    """*config* with two accounts of codex, with folders of their own; `broken` holds no conversation."""
    for name in ("work", "broken"):
        (home.path / name).mkdir(mode=0o700)
    (home.path / "broken" / "sessions").write_text("")
    accounts = {
        name: AccountConfig(agent="codex", directory=str(home.path / name), env={"OPENAI_API_KEY": "$KASMO_TEST_KEY"})
        for name in ("work", "broken")
    }
    return msgspec.structs.replace(config, accounts=accounts)


def test_a_conversation_moves_to_another_account_and_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KASMO_TEST_KEY", KEY)
    config, session = codex(home, TALK)
    config = with_accounts(home, config)
    before = home.session(session)
    asyncio.run(move(home.paths, config, before, Mode.TMUX, "work"))

    until(lambda: (TALK, SessionState.IDLE) == (home.session(session).resume_id, home.session(session).state))
    now = home.session(session)
    assert (True, "work", 2) == (now.exists, now.account, now.generation)
    variables = system.HERE.read_variables(now.pid or 0)
    assert (str(home.path / "work"), KEY) == (variables["CODEX_HOME"], variables["OPENAI_API_KEY"])
    [copy] = (home.path / "work").glob(f"sessions/*/*/*/rollout-*-{TALK}.jsonl")
    [original] = home.path.glob(f"codex-home/sessions/*/*/*/rollout-*-{TALK}.jsonl")
    assert (original.read_bytes(), 0o600) == (copy.read_bytes(), copy.stat().st_mode & 0o777)
    for file in (home.paths.log(session), home.paths.fleet_log, home.paths.launch(session)):
        assert KEY not in file.read_text()
    assert KEY not in " ".join(psutil.Process(now.pid or 0).cmdline())
    with pytest.raises(RefusedError, match="uses that account"):
        asyncio.run(move(home.paths, config, now, Mode.TMUX, "work"))

    with pytest.raises(LaunchError, match="'broken', so it continues with its previous account: cannot copy"):
        asyncio.run(move(home.paths, config, now, Mode.TMUX, "broken"))
    back = home.session(session)
    assert (True, "work", str(home.path / "work")) == (
        back.exists,
        back.account,
        system.HERE.read_variables(back.pid or 0)["CODEX_HOME"],
    )


def test_another_continuation_of_a_conversation_is_not_overwritten(home: Home) -> None:
    ours, theirs = home.path / "ours", home.path / "theirs"
    for folder, text in ((ours, "a\nb\n"), (theirs, "a\nc\n")):
        (folder / "projects" / "-x").mkdir(parents=True)
        (folder / "projects" / "-x" / f"{TALK}.jsonl").write_text(text)
    with pytest.raises(RefusedError, match="another continuation"):
        copy_conversation("claude", TALK, ours, theirs)

    (theirs / "projects" / "-x" / f"{TALK}.jsonl").write_text("a\n")
    copy_conversation("claude", TALK, ours, theirs)
    assert "a\nb\n" == (theirs / "projects" / "-x" / f"{TALK}.jsonl").read_text()
    with pytest.raises(UnableError, match="cannot be moved"):
        copy_conversation("gemini", TALK, ours, theirs)
