"""An agent is timed alone until its conversation is open, and nothing of it is left."""

import os
import sys
from pathlib import Path

import psutil
import pytest

from kasmon.bench.agents import bare_agent
from kasmon.bench.agents.bare_agent import FLAGS, measure_opening_ms
from kasmon.errors import LaunchError

SPEAKER = """
import json, os, subprocess, sys
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("a banner", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    open(os.environ["HEARD"], "a").write(asked.get("method") or asked["request"]["subtype"])
    print(json.dumps({"method": "news"}), flush=True)
    if "request" in asked:
        answer = {"type": "control_response", "response": {"request_id": asked["request_id"], **ANSWER}}
    else:
        answer = {"id": asked["id"], **ANSWER}
    print(json.dumps(answer), flush=True)
"""


def speaker(folder: Path, answer: str) -> Path:
    program = folder / "agent"
    program.write_text(f"#!{sys.executable} -S\nANSWER = {answer}\n{SPEAKER}")
    program.chmod(0o755)
    return program


def left(folder: Path) -> list[psutil.Process]:
    """Who has the variable that was given to the agent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("HEARD") == str(folder / "heard"):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("agent", FLAGS)
def test_the_agent_is_prompted_until_its_conversation_is_open(agent: str, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    variables = {**os.environ, "HEARD": str(heard)}
    assert 0 < measure_opening_ms(agent, speaker(tmp_path, "{'result': {}}"), tmp_path, variables)

    opens = {"claude": "", "codex": "thread/start"}.get(agent, "session/new")
    assert f"initialize{opens}" == heard.read_text()
    assert [] == left(tmp_path)


@pytest.mark.parametrize("agent", ["claude", "gemini"])
def test_a_refusal_is_quoted(agent: str, tmp_path: Path) -> None:
    variables = {**os.environ, "HEARD": str(tmp_path / "heard")}
    with pytest.raises(LaunchError, match=f"'{agent}' does not open a conversation: not today"):
        measure_opening_ms(agent, speaker(tmp_path, "{'error': 'not today'}"), tmp_path, variables)

    assert [] == left(tmp_path)


def test_an_agent_that_does_not_exit_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bare_agent, "LAST_S", 0.1)
    program = speaker(tmp_path, "{'result': {}}")
    program.write_text(f"{program.read_text()}\nimport time; time.sleep(600)")
    measure_opening_ms("codex", program, tmp_path, {**os.environ, "HEARD": str(tmp_path / "heard")})

    assert [] == left(tmp_path)


def test_an_agent_that_exits_instead_is_reported(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "agent").chmod(0o755)
    with pytest.raises(LaunchError, match="ended before it had answered 'initialize'"):
        measure_opening_ms("codex", tmp_path / "agent", tmp_path, os.environ)
