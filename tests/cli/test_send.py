"""After a prompt `send --wait` waits for what comes of it; a session moves only as a person has agreed."""

import json
import sys

import msgspec
import pytest

from kasmon.cli.send import has_moved
from kasmon.model.commands import Receipt, ReceiptId, ReceiptState
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from tests.model.prompts.test_image import png
from tests.supervisor.sessions.test_move import CODEX, TALK
from tests.support.cli.cli_runner import Cli
from tests.support.wait import until

BEFORE = Session(id=SessionId("aaaaaaaa"), state=SessionState.IDLE, since=10.0, turns=3, generation=1)
SENT = Receipt(id=ReceiptId("aaaaaaaa-r1"), session=BEFORE.id, state=ReceiptState.SUBMITTED)


def test_an_agent_that_stays_idle_has_not_become_idle_again() -> None:
    assert not has_moved(BEFORE, BEFORE, SENT)
    assert not has_moved(BEFORE, msgspec.structs.replace(BEFORE, last_line="typed"), SENT)


@pytest.mark.parametrize(
    "after",
    [{"state": SessionState.WORKING}, {"turns": 4}, {"since": 11.0}, {"generation": 2}],
    ids=["another state", "a turn later", "idle anew", "restarted"],
)
def test_any_event_after_the_prompt_counts(after: dict[str, object]) -> None:
    assert has_moved(BEFORE, msgspec.structs.replace(BEFORE, **after), SENT)


def test_a_finished_prompt_counts_even_if_its_turn_was_short() -> None:
    assert has_moved(BEFORE, BEFORE, msgspec.structs.replace(SENT, state=ReceiptState.FINISHED))


@pytest.fixture
def codex(kasmon: Cli) -> str:
    """A session of a codex in a terminal, whose approval policy comes from its config, and which has no app-server."""
    folder = kasmon.home / "codex-home" / "sessions" / "2026" / "11" / "22"
    folder.mkdir(parents=True)
    told = {"approval_policy": {"granular": {}}, "sandbox_policy": {"type": "read-only"}}
    line = json.dumps({"type": "turn_context", "payload": told}, separators=(",", ":"))
    (folder / f"rollout-2026-11-22T01-02-03-{TALK}.jsonl").write_text(f"{line}\n")
    program = kasmon.home / "codex"
    program.write_text(CODEX.format(python=sys.executable, folder=folder, begun=TALK, resumed=TALK))
    program.chmod(0o700)
    kasmon.paths.config.mkdir(mode=0o700, exist_ok=True)
    kasmon.paths.config_file.write_text(f'[agents.codex]\nprogram = "{program}"\n')
    variable = f"CODEX_HOME={folder.parents[3]}"
    session = kasmon("new", "worker", "--agent", "codex", "--mode", "tmux", "--env", variable).out.strip()
    until(lambda: "granular" == kasmon("show", session, "--json").json["session"]["permission_mode"])
    return session


def test_a_move_that_changes_the_permission_mode_needs_consent(kasmon: Cli, codex: str) -> None:
    """The yes is tried, and since nothing is there to move to, it goes on where it was."""
    done = kasmon("move", codex, "--to", "sdk", "--json")
    assert (4, "permission-mode") == (done.code, done.json["error"]["code"])
    assert "--change-permissions" in done.json["error"]["hint"]

    asked = "Move it anyway? [y/N]"
    code, said = kasmon.terminal("move", codex, "--to", "sdk", typed=[(asked, "n\n")])
    assert (4, True) == (code, "accepts the approval policy 'granular' only from its config" in said)
    assert 1 == kasmon("show", codex, "--json").json["session"]["generation"]

    code, said = kasmon.terminal("move", codex, "--to", "sdk", typed=[(asked, "y\n")])
    assert (1, True) == (code, "continues in its previous mode" in said), said


def test_a_picture_is_sent_only_to_an_agent_that_accepts_pictures(kasmon: Cli) -> None:
    session = kasmon("new", "worker", "--agent", "scripted", "--mode", "sdk").out.strip()
    until(lambda: "idle" == kasmon("show", session, "--json").json["session"]["state"])
    picture = kasmon.home / "cat.png"
    picture.write_bytes(png(4, 3))

    assert "accepts no pictures from kasmon" in kasmon("send", "--image", str(picture), session, "look").err
    picture.write_bytes(b"x" * 6_000_000)
    assert "has 6.0 MB; the limit is 5.0 MB" in kasmon("send", "--image", str(picture), session, "look").err
    assert "cannot be read" in kasmon("send", "--image", "missing.png", session, "look").err
