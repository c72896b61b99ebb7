"""The small parts: diffs, errors in words, messages of a good shape, what is known of agents, and gemini's minute."""

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError

from kasmon.agents.catalog import UNKNOWN, find, find_other
from kasmon.agents.profile import Quirk
from kasmon.backends.acp import errors, gemini_quirks, translator
from kasmon.backends.acp.content import unified
from kasmon.backends.acp.transport import IncomingCall, understood
from kasmon.backends.common.environment import PROVIDERS, own_prefixes, program_of
from kasmon.errors import LaunchError
from kasmon.model.events import LimitReached, TurnEnded

# Diffs


def patched(old: str, diff: str) -> str:
    """What the hunks of *diff* make of *old*; each line of context and each that goes has to be there."""
    lines, new, at = old.splitlines(), [], 0
    for row in diff.splitlines()[2:]:
        if hunk := re.match(r"@@ -(\d+)(,0)?", row):
            start = int(hunk[1]) - (0 if hunk[2] else 1)
            new += lines[at:start]
            at = start
            continue
        if row[0] in " -":
            assert lines[at] == row[1:]
            at += 1
        if row[0] in " +":
            new.append(row[1:])
    return "\n".join([*new, *lines[at:], ""])


@pytest.mark.parametrize("lines", [10, 400, 9000])
def test_a_diff_applied_to_the_old_text_gives_the_new_text(lines: int) -> None:
    """Also of texts that are too long to be compared line by line."""
    source = random.Random(lines)
    old = [f"{source.randrange(50)}\n" for _ in range(lines)]
    new = [line for line in old if source.random() > 0.1]
    new[len(new) // 2 : len(new) // 2] = ["in\n", "between\n"]

    diff = unified("file", "".join(old), "".join(new))
    assert "".join(new) == patched("".join(old), diff)


def test_a_missing_newline_at_the_end_and_a_carriage_return_are_differences() -> None:
    diff = unified("f", "a\nb", "a\nb\n")
    assert "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n" == diff

    assert "-a\r\n+a\n" in unified("f", "a\r\n", "a\n")


def test_an_added_or_removed_file_has_a_diff() -> None:
    assert "--- /dev/null\n+++ b/f\n@@ -0,0 +1,1 @@\n+a\n" == unified("f", None, "a\n")
    assert "--- a/f\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n" == unified("f", "a\n", None)
    assert "--- /dev/null\n+++ b/f\n" == unified("f", None, "")
    assert "" == unified("f", "a", "a")


def test_large_texts_are_compared_quickly() -> None:
    """difflib would take minutes for these."""
    old = "".join(f"{number % 7}\n" for number in range(200_000))
    new = "".join(f"{number % 5}\n" for number in range(200_000))

    assert unified("f", old, new).startswith("--- a/f\n+++ b/f\n@@ -3,199998 +3,199998 @@\n 2\n 3\n 4\n-5\n")


# Errors


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RequestError(-32603, "Internal error", {"details": "no mode"}), "Internal error: no mode"),
        (
            RequestError(-32603, "Internal error: stub failure 400", {"service": "session"}),
            "Internal error: stub failure 400",
        ),
        (RequestError(400, '{"error":{"code":400,"message":"bad input"}}'), "bad input"),
        (RequestError(400, '{"error":{"message":"{\\"error\\":{\\"message\\":\\"inner\\"}}"}}'), "inner"),
        (RequestError(1, "{half"), "{half"),
        (RequestError(1, '{"error": 3}'), '{"error": 3}'),
        (RequestError(1, ""), "no reason given"),
        (RequestError(1, "x", "more"), "x: more"),
    ],
)
def test_an_error_includes_its_message(error: RequestError, words: str) -> None:
    assert words == errors.words(error, ())


def test_an_error_is_short_hides_secrets_and_is_known_as_a_limit_or_a_missing_log_in() -> None:
    said = errors.words(RequestError(1, f"the key my-own-secret is wrong {'x' * 9999}"), ["my-own-secret"])
    assert "my-own-secret" not in said
    assert len(said) < 2100

    limit, ended = translator.build_failure(RequestError(429, "slow down"), (), "", 1.0)
    assert (LimitReached, TurnEnded) == (type(limit), type(ended))

    (ended,) = translator.build_failure(RequestError(-32000, "Authentication required"), (), "Run `x login`.", 1.0)
    assert isinstance(ended, TurnEnded)
    assert "Authentication required Run `x login`." == ended.error


@pytest.mark.parametrize("answer", [{}, {"stopReason": "bliss"}, {"stopReason": ["end_turn"]}])
def test_an_unknown_stop_reason_is_no_end(answer: dict[str, Any]) -> None:
    assert translator.build_turn_end(answer, 1.0) is None


# Messages


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"x", b"[]", b"3", b'"id"', b"{}", b'{"id": 1, "resu', b"\xff\xfe", b"[" * 100_000),
        *(b'{"id": 1}', b'{"id": [1], "result": 1}', b'{"id": true, "result": 1}'),
        *(b'{"method": 3}', b'{"id": {}, "method": "x"}'),
    ],
)
def test_an_invalid_message_is_ignored(line: bytes) -> None:
    """Any of these would end the SDK's reading for good."""
    assert understood(line) is None


def test_a_request_carries_its_id_and_a_notice_none() -> None:
    assert {"id": "q", "method": "m", "params": IncomingCall("q", [1])} == understood(
        b'{"id":"q","method":"m","params":[1]}'
    )
    assert {"method": "m"} == understood(b'{"id":null,"method":"m"}')


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"code": 1, "message": "m", "data": 2}, {"code": 1, "message": "m", "data": 2}),
        ("broken", {"code": -32603, "message": "broken", "data": None}),
        ({"code": "x", "message": {"a": 1}}, {"code": -32603, "message": '{"a": 1}', "data": None}),
        ({}, {"code": -32603, "message": "no reason given", "data": None}),
    ],
)
def test_an_error_has_a_code_and_a_message(error: object, told: dict[str, Any]) -> None:
    line = json.dumps({"id": 1, "result": None, "error": error}).encode()

    assert {"id": 1, "error": told} == understood(line)


def test_half_a_character_is_replaced() -> None:
    """The SDK's models refuse it."""
    assert {"id": 1, "result": {"\ufffd": ["a\ufffd", 1]}} == understood(
        b'{"id":1,"result":{"\\ud800":["a\\uDfff",1]}}'
    )
    assert {"id": 1, "result": "\U0001f600"} == understood(b'{"id":1,"result":"\\ud83d\\ude00"}')
    assert {"id": 1, "result": "a\ufffd"} == understood(b'{"id":1,"result":"a\xff"}')


# What is known of agents


@pytest.mark.parametrize(
    ("argv", "log_in"),
    [
        (("/usr/bin/opencode", "acp"), "opencode auth login"),
        (("C:/x/gemini.exe", "--acp"), "GEMINI_API_KEY"),
        (("node", "--no-warnings", "/x/gemini.js", "--acp"), "GEMINI_API_KEY"),
        (("npx", "-y", "@google/gemini-cli", "--acp"), "GEMINI_API_KEY"),
    ],
)
def test_an_agent_is_identified_by_its_program(argv: tuple[str, ...], log_in: str) -> None:
    assert log_in in find(program_of(argv)).log_in.how


@pytest.mark.parametrize("argv", [(), ("mygoose", "acp"), ("mine", "gemini"), ("/gemini/mine",), ("npx",)])
def test_other_agents_get_only_keys_that_are_passed_to_them(argv: tuple[str, ...]) -> None:
    assert find(program_of(argv)) is UNKNOWN
    assert () == own_prefixes(argv)


def test_opencode_gets_its_providers_keys_and_gemini_its_own_known_by_introduction_too() -> None:
    assert set(PROVIDERS) < set(own_prefixes(("opencode",)))
    assert ("GEMINI_", "GOOGLE_") == own_prefixes(("gemini",))

    for name in ("OpenCode", "gemini-cli"):
        assert find_other(name) is not None
    assert find_other("mygoose") is None


# gemini's minute

ID = "0123abcd-1111-2222-3333-444444444444"


def chat(home: Path, name: str) -> None:
    folder = home / ".gemini" / "tmp" / "project" / "chats"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()


def test_a_conversation_from_the_current_minute_is_renamed_before_it_is_loaded(tmp_path: Path) -> None:
    now = 1_795_312_743.0
    minute, before, earlier = (time.strftime("%Y-%m-%dT%H-%M", time.gmtime(now - 60 * back)) for back in range(3))
    folder = tmp_path / ".gemini" / "tmp" / "project" / "chats"
    its, other, another = (f"session-{at}.jsonl" for at in (f"{minute}-0123abcd", f"{before}-0123abcd", f"{minute}-x"))
    for name in (its, other, another):
        chat(tmp_path, name)
    (folder / its).write_text("what was said")

    for conversation in ("fedcba98-1111", "../*"):
        gemini_quirks.leave_minute(conversation, {"HOME": str(tmp_path)}, now)
    gemini_quirks.leave_minute(ID, {"HOME": str(tmp_path)}, now + 60)
    gemini_quirks.leave_minute(ID, {}, now)
    assert (folder / its).exists()

    gemini_quirks.leave_minute(ID, {"HOME": str(tmp_path)}, now)
    renamed = f"session-{earlier}-0123abcd.jsonl"
    assert "what was said" == (folder / renamed).read_text()
    assert {renamed, other, another} == {file.name for file in folder.iterdir()}


def test_a_conversation_from_the_current_minute_that_cannot_be_renamed_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_795_312_743.0
    monkeypatch.setattr(gemini_quirks, "BACK", 1)
    chat(tmp_path, f"session-{time.strftime('%Y-%m-%dT%H-%M', time.gmtime(now))}-0123abcd.jsonl")

    with pytest.raises(LaunchError, match="Try again in 57 s"):
        gemini_quirks.leave_minute(ID, {"HOME": str(tmp_path)}, now)


BEGINNING: list[dict[str, Any]] = [
    {"sessionId": ID, "startTime": "2026-11-22T02:05:20.348Z"},
    {"$set": {"messages": [{"type": "user", "content": [{"text": "<session_context>\nThis is the Gemini CLI."}]}]}},
]
SAID = {"id": "1", "type": "user", "content": [{"text": "hello"}]}


def records(home: Path, name: str, *lines: Any) -> Path:
    chat(home, name)
    file = home / ".gemini" / "tmp" / "project" / "chats" / name
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def test_an_empty_duplicate_of_a_conversation_is_removed(tmp_path: Path) -> None:
    """gemini would delete both when it starts the next time."""
    old = records(tmp_path, "session-2026-11-01T00-00-0123abcd.jsonl", *BEGINNING, *BEGINNING, SAID)
    twin = records(tmp_path, "session-2026-11-02T00-00-0123abcd.jsonl", *BEGINNING, *BEGINNING)
    gemini_quirks.remove_twins(ID, {"HOME": str(tmp_path)})

    assert (True, False) == (old.exists(), twin.exists())


@pytest.mark.parametrize(
    "lines",
    [
        (*BEGINNING, SAID),
        (BEGINNING[0], {"$set": {"messages": [SAID]}}),
        (BEGINNING[0], {"$set": {"messages": "many"}}),
        ({**BEGINNING[0], "messages": [SAID]},),
        ({**BEGINNING[0], "sessionId": "0123abcd-of-another"}, BEGINNING[1]),
        (BEGINNING[0], 3),
        (),
    ],
)
def test_a_file_that_may_have_content_is_kept(lines: tuple[Any, ...], tmp_path: Path) -> None:
    records(tmp_path, "session-2026-11-01T00-00-0123abcd.jsonl", *BEGINNING, SAID)
    other = records(tmp_path, "session-2026-11-02T00-00-0123abcd.jsonl", *lines)
    gemini_quirks.remove_twins(ID, {"HOME": str(tmp_path)})

    assert other.exists()


def test_an_empty_conversation_without_a_duplicate_is_kept(tmp_path: Path) -> None:
    alone = records(tmp_path, "session-2026-11-02T00-00-0123abcd.jsonl", *BEGINNING)
    gemini_quirks.remove_twins(ID, {"HOME": str(tmp_path)})

    assert alone.exists()


def test_only_gemini_has_the_duplicate_file_quirk() -> None:
    assert Quirk.TWIN_FILES in find("gemini").quirks
    assert Quirk.TWIN_FILES not in find("opencode").quirks
