"""Which tool calls wait, by what an agent's hooks and its own records say: the exact input, and nothing made up."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kasmon.backends.tmux.evidence import hooks, process_evidence
from kasmon.backends.tmux.evidence.hook_setup import EMIT
from kasmon.backends.tmux.evidence.process_evidence import ProcessEvidence, ToolCallEvidence, call_of
from kasmon.emit import CALL_BYTES, FILE_BYTES

COMMAND = "echo one &&\n\techo 'two  three' && rm -rf ~"


def noted(folder: Path, event: str, call: str = "", tool_input: Any = None, **more: Any) -> None:
    """Have the hook *event* leave its note in *folder*, as an agent runs it."""
    said = {"hook_event_name": event, **({"tool_use_id": call} if call else {}), **more}
    said |= {"tool_name": "Bash", "tool_input": tool_input} if tool_input is not None else {}
    argv = [sys.executable, "-I", "-S", str(EMIT), str(folder / hooks.FILE)]
    variables = {**os.environ, "KASMON_GENERATION": "1", "KASMON_NONCE": "n"}
    subprocess.run(argv, input=json.dumps(said).encode(), env=variables, check=True)


@pytest.fixture
def evidence(tmp_path: Path) -> ProcessEvidence:
    return ProcessEvidence("claude", os.getpid(), tmp_path, 1, "n")


def test_the_input_of_a_call_is_known_exactly_once_its_hook_ran(evidence: ProcessEvidence, tmp_path: Path) -> None:
    noted(tmp_path, "PreToolUse", "a", {"command": COMMAND, "description": "it lists"})

    assert [ToolCallEvidence(COMMAND, COMMAND)] == evidence.calls()


def test_parallel_calls_all_wait_until_each_has_finished(evidence: ProcessEvidence, tmp_path: Path) -> None:
    for call, command in (("a", "ls"), ("b", "rm x"), ("c", "ls")):
        noted(tmp_path, "PreToolUse", call, {"command": command})
    assert ["ls", "rm x"] == [call.text for call in evidence.calls()]

    noted(tmp_path, "PostToolUse", "b", {"command": "rm x"})
    assert ["ls"] == [call.text for call in evidence.calls()]


@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop", "StopFailure"])
def test_no_call_waits_after_the_end_of_its_turn(evidence: ProcessEvidence, tmp_path: Path, event: str) -> None:
    noted(tmp_path, "PreToolUse", "a", {"command": "ls"})
    noted(tmp_path, event)

    assert [] == evidence.calls()


def test_the_input_of_a_call_is_deleted_from_disk_once_it_is_read(evidence: ProcessEvidence, tmp_path: Path) -> None:
    noted(tmp_path, "PreToolUse", "a", {"command": "curl -H 'Authorization: Bearer sesame'"})
    evidence.calls()

    assert b"" == (tmp_path / hooks.FILE).read_bytes()
    noted(tmp_path, "PreToolUse", "b", {"command": "ls"})
    assert ["ls"] == [call.text for call in evidence.calls()][1:]


def test_hooks_still_report_the_state_while_calls_are_requested(evidence: ProcessEvidence, tmp_path: Path) -> None:
    noted(tmp_path, "PreToolUse", "a", {"command": "ls"})
    evidence.calls()

    assert ["working"] == [signal.value for signal in evidence.read(1.0, None) if signal.source == "hook"]


def test_a_call_that_is_too_long_for_a_note_is_unknown_and_its_event_is_logged(
    evidence: ProcessEvidence, tmp_path: Path
) -> None:
    noted(tmp_path, "PreToolUse", "a", {"command": "x" * CALL_BYTES})

    assert [] == evidence.calls()
    assert ["working"] == [signal.value for signal in evidence.read(1.0, None) if signal.source == "hook"]


@pytest.mark.parametrize(
    "lost", ["x" * (hooks.LONGEST + 1), '{"event": "PreToolUse", "call": "b"'], ids=["too long", "no note"]
)
def test_a_lost_note_makes_all_calls_unknown_until_the_end_of_the_turn(
    evidence: ProcessEvidence, tmp_path: Path, lost: str
) -> None:
    """The lost one may be the call that the agent asks about, and another would be taken for it."""
    noted(tmp_path, "PreToolUse", "a", {"command": "ls"})
    with (tmp_path / hooks.FILE).open("a") as file:
        file.write(f"{lost}\n")
    assert [] == evidence.calls()

    noted(tmp_path, "PostToolUse", "a")
    noted(tmp_path, "PreToolUse", "c", {"command": "ls"})
    assert [] == evidence.calls()

    noted(tmp_path, "Stop")
    noted(tmp_path, "PreToolUse", "d", {"command": "ls"})
    assert ["ls"] == [call.text for call in evidence.calls()]


def test_a_full_file_of_notes_reports_no_call_until_the_end_of_the_turn(
    evidence: ProcessEvidence, tmp_path: Path
) -> None:
    assert hooks.DROPPING == FILE_BYTES - CALL_BYTES
    (tmp_path / hooks.FILE).write_text(f"{json.dumps({'event': 'Stop', 'text': 'x' * 9000})}\n" * (FILE_BYTES // 9100))
    noted(tmp_path, "PreToolUse", "a", {"command": "ls"})
    noted(tmp_path, "PreToolUse", "b", {"command": "x" * (CALL_BYTES - 9000)})
    assert [] == evidence.calls()

    noted(tmp_path, "Stop")
    noted(tmp_path, "PreToolUse", "c", {"command": "ls"})
    assert ["ls"] == [call.text for call in evidence.calls()]


def test_beside_a_call_with_unknown_input_no_call_is_known(evidence: ProcessEvidence, tmp_path: Path) -> None:
    noted(tmp_path, "PreToolUse", "a", {"command": "ls"})
    noted(tmp_path, "PreToolUse", "b", {"command": "ls" * CALL_BYTES})
    assert [] == evidence.calls()

    noted(tmp_path, "PostToolUse", "b")
    assert ["ls"] == [call.text for call in evidence.calls()]


def test_a_note_of_another_agent_is_ignored(evidence: ProcessEvidence, tmp_path: Path) -> None:
    note = {"event": "PreToolUse", "call": "a", "input": {"command": "ls"}, "generation": "1", "nonce": "other"}
    (tmp_path / hooks.FILE).write_text(json.dumps(note) + "\n")

    assert [] == evidence.calls()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"command": "ls"}, {"command": "ls "}),
        ({"command": "ls"}, {"command": "ls", "workdir": "/"}),
        ({"command": "ls", "timeout": 1}, {"command": "ls", "timeout": 2}),
        ({"path": "a", "text": "b"}, {"path": "a", "text": "c"}),
        ({"command": ["ls"]}, {"command": ["rm"]}),
        ("ls", "rm"),
    ],
)
def test_calls_that_differ_in_any_part_are_different_requests(one: object, other: object) -> None:
    assert call_of(one) is not None
    assert call_of(one) != call_of(other)


@pytest.mark.parametrize("given", [None, 7, [], {}, ""])
def test_a_note_without_content_is_no_call(given: object) -> None:
    assert call_of(given) is None


def recorded(folder: Path, *states: dict[str, Any]) -> dict[str, str]:
    """A database as opencode makes it, with tool parts of these *states*; the variables by which it is found."""
    file = folder / "opencode" / "opencode.db"
    file.parent.mkdir(parents=True)
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE session (id text, time_updated integer)")
        database.execute("CREATE TABLE part (id text, session_id text, time_created integer, data text)")
        database.execute("INSERT INTO session VALUES ('s', 1)")
        for at, state in enumerate(states):
            data = json.dumps({"type": "tool", "tool": "bash", "state": state}, separators=(",", ":"))
            database.execute("INSERT INTO part VALUES (?, 's', ?, ?)", (str(at), at, data))
    return {"XDG_DATA_HOME": str(folder)}


def test_the_call_that_opencode_is_about_to_run_is_in_its_database(tmp_path: Path) -> None:
    done = {"status": "completed", "input": {"command": "ls"}}
    waits = {"status": "running", "input": {"command": COMMAND}}

    assert [waits["input"]] == process_evidence.read_opencode_calls(recorded(tmp_path, done, waits))


@pytest.mark.parametrize("count", [1, process_evidence.OPENCODE_PARTS])
def test_either_all_calls_of_opencode_are_known_or_none(tmp_path: Path, count: int) -> None:
    """Another call would be taken for the one that is left out."""
    waits = {"status": "running", "input": {"filePath": "a.txt"}}
    long = {"status": "running", "input": {"filePath": "a.txt", "content": "x" * process_evidence.OPENCODE_PART_BYTES}}
    others = [waits] * count

    assert [one["input"] for one in others] == process_evidence.read_opencode_calls(recorded(tmp_path / "all", *others))
    one_more = long if count == 1 else waits
    assert [] == process_evidence.read_opencode_calls(recorded(tmp_path / "more", *others, one_more))


@pytest.mark.parametrize("what", ["nothing", "no database", "another schema", "a link"])
def test_without_a_readable_database_no_call_is_known(tmp_path: Path, what: str) -> None:
    file = tmp_path / "opencode" / "opencode.db"
    file.parent.mkdir()
    if what == "no database":
        file.write_text("this is none" * 99)
    elif what == "another schema":
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE part (id text)")
    elif what == "a link":
        file.symlink_to("/dev/zero")

    assert [] == process_evidence.read_opencode_calls({"XDG_DATA_HOME": str(tmp_path)})
