"""The prompts of an agent without hooks, read from the transcript that it keeps."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kasmon.backends.common import transcripts
from kasmon.backends.tmux.evidence.process_evidence import ProcessEvidence
from kasmon.backends.tmux.evidence.process_table import ProcessTable
from kasmon.model.commands import prompt_digest
from kasmon.system.base import ProcessEntry
from tests.backends.tmux.evidence.test_claude_registry import registered

ID = "0f6a1d0c-5a0f-4f3e-9d0a-2f5f0a1b2c3d"
BEFORE, AFTER = "2026-11-23T13:55:46.128Z", "2999-11-23T13:55:46.128Z"
ROLLOUT = f"rollout-2026-11-23T13-55-46-{ID}.jsonl"


def line(**entry: Any) -> str:
    return json.dumps(entry, separators=(",", ":")) + "\n"


def user_line(content: Any, at: str = AFTER, **more: Any) -> str:
    """A line of claude 2.1.330."""
    message = {"role": "user", "content": content}
    return line(parentUuid=None, isSidechain=False, type="user", message=message, timestamp=at, sessionId=ID, **more)


def codex_line(text: str, at: str = AFTER) -> str:
    """A line of codex 0.169."""
    item = {"type": "UserMessage", "id": "1", "content": [{"type": "text", "text": text, "text_elements": []}]}
    return line(timestamp=at, type="event_msg", payload={"type": "item_completed", "item": item})


def prompts(evidence: ProcessEvidence) -> list[str]:
    table = ProcessTable({evidence.agent: ProcessEntry(0, 1, 1, "python")})
    return [signal.prompt for signal in evidence.read(1.0, table) if signal.source == "transcript"]


@pytest.fixture
def claude(tmp_path: Path) -> Iterator[tuple[ProcessEvidence, Path]]:
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "CLAUDE_CONFIG_DIR": str(tmp_path)}) as agent:
        try:
            evidence = ProcessEvidence("claude", agent.pid, tmp_path, 1, "")
            evidence.reads_prompts = True
            registered(tmp_path / "sessions", agent.pid, "busy", sessionId=ID)
            file = tmp_path / "projects" / "-work" / f"{ID}.jsonl"
            file.parent.mkdir(parents=True)
            yield evidence, file
        finally:
            agent.kill()


def test_each_prompt_of_claude_since_the_start_is_named_once(claude: tuple[ProcessEvidence, Path]) -> None:
    evidence, file = claude
    file.write_text(
        user_line("an earlier one", BEFORE)
        + line(type="queue-operation", operation="enqueue", content="waits", timestamp=AFTER)
        + user_line("<command-name>/cost</command-name>")
        + user_line([{"type": "tool_result", "tool_use_id": "c", "content": "none"}])
        + user_line("by its own", isMeta=True)
        + user_line([{"type": "text", "text": "fix the\nbug"}])
        + "{"
    )
    assert [prompt_digest("fix the\nbug")] == prompts(evidence)
    assert [] == prompts(evidence)

    file.write_text(file.read_text()[:-1] + user_line("fix the\nbug") + user_line("and the tests"))
    assert [prompt_digest("fix the\nbug"), prompt_digest("and the tests")] == prompts(evidence)


def test_each_prompt_of_codex_since_the_start_is_named_once(tmp_path: Path) -> None:
    evidence = ProcessEvidence("codex", os.getpid(), tmp_path, 1, "")
    evidence.reads_prompts = True
    with (tmp_path / ROLLOUT).open("w") as file:
        file.write(codex_line("an earlier one", BEFORE) + codex_line("fix it"))
        file.flush()
        assert [prompt_digest("fix it")] == prompts(evidence)
        file.write(codex_line("fix it"))
        file.flush()
        assert [prompt_digest("fix it")] == prompts(evidence)
        assert [] == prompts(evidence)


def test_an_agent_whose_hooks_name_its_prompts_has_no_other_source(claude: tuple[ProcessEvidence, Path]) -> None:
    evidence, file = claude
    evidence.reads_prompts = False
    file.write_text(user_line("fix it"))

    assert [] == prompts(evidence)


def test_an_oversized_line_hides_no_later_prompt(
    claude: tuple[ProcessEvidence, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, file = claude
    monkeypatch.setattr(transcripts, "MOST_BYTES", 1000)
    file.write_text(user_line("one"))
    assert [prompt_digest("one")] == prompts(evidence)
    with file.open("a") as more:
        more.write(user_line("x" * 2500) + user_line("two"))

    assert [prompt_digest("two")] == [one for _ in range(5) for one in prompts(evidence)]
