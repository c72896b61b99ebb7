"""A conversation is known to be the one of before by what the agent itself remembers of it."""

import json
import os
from pathlib import Path

import pytest

from kasmon.backends.claude.agent import LONGEST_BYTES, read_text
from kasmon.backends.claude.history import PromptPresence, conversation_of, memory, prompts, read_usage
from kasmon.backends.common.transcripts import claude_transcript
from kasmon.model.commands import ConversationUsage

CONVERSATION = "0b7c1f2e-0000-4000-8000-000000000001"


def user(content: object, **more: object) -> dict[str, object]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def written(config: Path, *entries: object) -> Path:
    file = config / "projects" / "-work" / f"{CONVERSATION}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"{json.dumps(entry, separators=(',', ':'))}\n" for entry in entries))
    return file


WAITED = {"type": "queue-operation", "operation": "enqueue", "content": "/cost"}
RESULT = [{"type": "tool_result", "content": "done"}]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([user("one"), user("two")], PromptPresence.ENDS_WITH_IT),
        ([user("two"), {"type": "assistant"}, user(RESULT)], PromptPresence.ENDS_WITH_IT),
        ([user([{"type": "text", "text": "two"}])], PromptPresence.ENDS_WITH_IT),
        ([user("two"), user("[Request interrupted by user]"), user("<command-name>/x")], PromptPresence.ENDS_WITH_IT),
        ([user("two"), user("meta", isMeta=True), user("summary", isCompactSummary=True)], PromptPresence.ENDS_WITH_IT),
        ([user("two"), user("three")], PromptPresence.HOLDS_IT),
        ([user("two"), WAITED], PromptPresence.HOLDS_IT),
        ([user("one")], PromptPresence.WITHOUT_IT),
        ([user("two", isSidechain=True)], PromptPresence.WITHOUT_IT),
        ([], PromptPresence.WITHOUT_IT),
    ],
)
def test_the_last_prompt_is_read(tmp_path: Path, entries: list[object], expected: PromptPresence) -> None:
    written(tmp_path, *entries)

    assert expected is memory(tmp_path, CONVERSATION, "two")


def test_a_slash_command_is_a_prompt_as_it_was_written(tmp_path: Path) -> None:
    file = written(tmp_path, WAITED, user("<command-name>/usage</command-name>"))

    assert ["/cost"] == list(prompts(file))


def test_malformed_lines_are_skipped(tmp_path: Path) -> None:
    file = written(tmp_path, user("one"))
    with file.open("ab") as end:
        end.write(b'{"type":"user", half\n"enqueue"\n\xff"type":"user"\n')

    assert PromptPresence.ENDS_WITH_IT is memory(tmp_path, CONVERSATION, "one")


@pytest.mark.parametrize("name", ["", "../x", "*", "0b7c1f2e-0000-4000-8000-00000000000?"])
def test_a_conversation_without_a_transcript_is_none(tmp_path: Path, name: str) -> None:
    written(tmp_path, user("one"))

    assert claude_transcript(tmp_path, name) is None
    assert PromptPresence.NO_TRANSCRIPT is memory(tmp_path, name, "one")


def figures(cost: float, read: int, conversation: str = CONVERSATION) -> dict[str, object]:
    model = {"inputTokens": read, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 1, "outputTokens": 7}
    return {"type": "cost-state", "sessionId": conversation, "totalCostUSD": cost, "modelUsage": {"opus": model}}


def test_a_process_continues_from_the_last_logged_figures(tmp_path: Path) -> None:
    written(tmp_path, figures(0.1, 10), user("one"), figures(0.2, 20), user("two"), figures(9.0, 90, "another"))

    assert ConversationUsage(input=26, output=7, cost_usd=0.2) == read_usage(tmp_path, CONVERSATION)


def test_without_logged_figures_the_count_starts_at_zero(tmp_path: Path) -> None:
    assert ConversationUsage() == read_usage(tmp_path, CONVERSATION)
    file = written(tmp_path, user("one"))
    with file.open("ab") as end:
        end.write(b'{"type":"cost-state", half\n')

    assert ConversationUsage() == read_usage(tmp_path, CONVERSATION)


def test_the_conversation_of_a_process_is_read_from_its_session_file(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "7.json").write_text('{"pid": 7, "sessionId": "abc"}')
    (tmp_path / "sessions" / "8.json").write_text("half {")

    assert ["abc", "", ""] == [conversation_of(tmp_path, pid) for pid in (7, 8, 9)]


def test_a_file_is_read_only_where_that_is_safe_and_short(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("one\n")
    (tmp_path / "bytes").write_bytes(b"\xff\x00")
    (tmp_path / "long").write_bytes(b"x" * (LONGEST_BYTES + 1))
    os.mkfifo(tmp_path / "pipe")

    assert "one\n" == read_text("text", str(tmp_path)) == read_text(str(tmp_path / "text"), "/")
    assert "" == read_text("nothing", str(tmp_path))
    assert [None] * 5 == [read_text(name, str(tmp_path)) for name in ("bytes", "long", "pipe", ".", "a\0b")]
