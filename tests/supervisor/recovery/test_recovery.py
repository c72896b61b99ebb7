"""After a crash: which kept conversation is a lost session's own."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kasmon.model.commands import Receipt, ReceiptId, ReceiptState
from kasmon.model.events import Event, MessageWritten, ReceiptChanged, TurnStarted
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.supervisor.recovery import claude, codex, gemini, opencode
from kasmon.supervisor.recovery.conversation import CUT, LoggedConversation, StoredConversation, find_match
from kasmon.supervisor.recovery.sessions import collect_conversation

ID = "77b5ba32-6465-44a1-9d8d-363508bac732"
OTHER = "2b5dd54d-cf7b-4ac3-a4b0-5a7227407766"


def kept(
    id_: str = ID, *prompts: str, said: str = "done", directory: str = "/work", at: float = 100.0
) -> StoredConversation:
    return StoredConversation(
        id=id_, directory=directory, prompts=prompts or ("fix it", "test it"), last_message=said, at=at
    )


def known(*prompts: str, **other: Any) -> LoggedConversation:
    return LoggedConversation(**{"directory": "/work", "since": 50.0, "prompts": prompts, **other})


# Which one it is


def test_id_folder_first_prompt_and_last_message_prove_a_conversation_also_if_it_went_on() -> None:
    it = find_match(known("fix it", "test it", id=ID, last_messages=("done",)), [kept(OTHER), kept()])
    assert ("proven", kept()) == (it.kind, it.conversation)
    assert "matched by its id, its folder, its first prompt, its last message" == it.why

    it = find_match(
        known("fix it", "test it", id=ID, last_messages=("half",)), [kept(ID, "fix it", "test it", "typed by hand")]
    )
    assert "matched by its id, its folder, its first prompt, our last prompt, followed by more" == it.why


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (kept(directory="/elsewhere"), "it was held in '/elsewhere'"),
        (kept(ID, "another", "test it"), "its first prompt differs"),
    ],
)
def test_a_conversation_with_the_right_id_and_contrary_evidence_needs_the_users_choice(
    there: StoredConversation, why: str
) -> None:
    it = find_match(known("fix it", "test it", id=ID), [there])

    assert ("ask", f"it has its id, but {why}", (there,)) == (it.kind, it.why, it.candidates)


def test_a_missing_id_has_no_conversation_and_no_other_replaces_it() -> None:
    it = find_match(known("fix it", id=ID), [kept(OTHER)])

    assert ("none", f"its agent no longer has the conversation {ID}") == (it.kind, it.why)


def test_without_an_id_the_only_conversation_with_the_same_messages_is_chosen() -> None:
    theirs = kept(OTHER, "something else")

    it = find_match(known("fix it", "test it"), [theirs, kept()])

    assert ("proven", ID) == (it.kind, it.conversation and it.conversation.id)


def test_ten_equal_conversations_in_one_folder_are_offered_newest_first() -> None:
    ten = [kept(f"{number:08}-0000-0000-0000-000000000000", at=100.0 + number) for number in range(10)]

    it = find_match(known("fix it"), ten)

    assert "ask" == it.kind
    assert ten[::-1] == list(it.candidates)
    assert "10 conversations of its folder match" in it.why


def test_where_nothing_said_is_known_the_only_one_is_asked_for_and_a_taken_or_older_one_is_none() -> None:
    it = find_match(known(is_whole=False), [kept()])
    assert ("ask", (kept(),)) == (it.kind, it.candidates)
    assert "no message proves it" in it.why

    assert "none" == find_match(known(is_whole=False), [kept(), kept(OTHER, at=10.0)], taken={ID}).kind


def test_a_prompt_with_a_hidden_secret_decides_nothing_and_of_a_cut_one_the_beginning_does() -> None:
    it = find_match(known("the key is ⟨hidden: 20 characters⟩", id=ID), [kept(ID, "the key is sk-12345678901234567")])
    assert ("proven", "matched by its id, its folder") == (it.kind, it.why)

    it = find_match(known("x" * CUT, id=ID), [kept(ID, "x" * CUT + "the rest")])
    assert "its first prompt" in it.why


@pytest.mark.parametrize(
    "ours", ["می\u200cخواهم", "می\ufffdخواهم"], ids=["as it is", "as earlier versions wrote it down"]
)
def test_a_joiner_in_a_prompt_identifies_its_conversation(ours: str) -> None:
    there = kept(ID, "می\u200cخواهم")

    assert "proven" == find_match(known(ours), [there]).kind
    assert "none" == find_match(known("می‌خواهد"), [there]).kind


def test_a_folder_reached_by_a_link_is_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    it = find_match(known(id=ID, directory=str(tmp_path / "link")), [kept(directory=str(tmp_path / "real"))])

    assert "proven" == it.kind


# What the log knows


def moved(state: ReceiptState, prompt: str = "", number: int = 1) -> Event:
    receipt = Receipt(id=ReceiptId(f"r{number}"), session=SessionId("s"), state=state, at=1.0)
    return ReceiptChanged(at=1.0, receipt=receipt, prompt=prompt)


def test_for_a_structured_session_the_log_has_every_prompt_of_the_user() -> None:
    events: list[Event] = [
        TurnStarted(at=1.0, prompt="fix it"),
        MessageWritten(at=2.0, text="a sub-agent's", within="call"),
        MessageWritten(at=2.0, text="done"),
        TurnStarted(at=3.0, prompt="by itself", by="agent"),
    ]

    it = collect_conversation(Session(id=SessionId("s"), workdir="/work", resume_id=ID), events)

    assert (("fix it",), ("done",), True, ID) == (it.prompts, it.last_messages, it.is_whole, it.id)


def test_for_a_terminal_the_log_has_the_delivered_prompts_and_perhaps_not_all() -> None:
    events: list[Event] = [
        moved(ReceiptState.QUEUED, "fix it"),
        moved(ReceiptState.SUBMITTED),
        moved(ReceiptState.QUEUED, "never sent", 2),
    ]

    it = collect_conversation(Session(id=SessionId("s"), workdir="/work"), events)

    assert (("fix it",), False) == (it.prompts, it.is_whole)


# What the agents keep, as the versions named in each reader write it


def lines(file: Path, *entries: object) -> Path:
    file.parent.mkdir(parents=True)
    text = [entry if isinstance(entry, str) else json.dumps(entry, separators=(",", ":")) for entry in entries]
    file.write_text("\n".join(text))
    os.utime(file, (100.0, 100.0))
    return file


def test_claudes_transcripts(tmp_path: Path) -> None:
    lines(
        tmp_path / "projects/-work" / f"{ID}.jsonl",
        {"type": "queue-operation", "operation": "enqueue", "content": "fix it"},
        {"type": "user", "cwd": "/work", "message": {"role": "user", "content": "fix it"}},
        {"type": "user", "cwd": "/work", "message": {"content": [{"type": "tool_result", "content": "no prompt"}]}},
        {"type": "assistant", "cwd": "/work", "message": {"content": [{"type": "text", "text": "do\u001b[31mne"}]}},
        {"type": "assistant", "cwd": "/work", "message": {"content": [{"type": "tool_use", "name": "Bash"}]}},
        {"type": "assistant", "isSidechain": True, "message": {"content": [{"type": "text", "text": "aside"}]}},
        '{"type":"assistant","mess',
    )
    lines(tmp_path / "projects/-empty" / f"{OTHER}.jsonl", {"type": "summary"})

    (it,) = claude.conversations(tmp_path)

    assert (ID, "/work", ("fix it",), 100.0) == (it.id, it.directory, it.prompts, it.at)
    assert "\x1b" not in it.last_message
    assert it.last_message.startswith("do")


def test_codexs_rollouts(tmp_path: Path) -> None:
    lines(
        tmp_path / "sessions/2026/11/22" / f"rollout-2026-11-22T06-32-32-{ID}.jsonl",
        {"type": "session_meta", "payload": {"id": ID, "cwd": "/work"}},
        {"type": "response_item", "payload": {"role": "user", "content": [{"text": "<environment_context>"}]}},
        {
            "type": "event_msg",
            "payload": {
                "type": "item_completed",
                "item": {"type": "UserMessage", "content": [{"type": "text", "text": "fix it"}]},
            },
        },
        {"type": "event_msg", "payload": {"type": "task_complete", "last_agent_message": "done"}},
        {"type": "event_msg", "payload": {"type": "user_message", "message": "test it"}},
        {"type": "event_msg", "payload": {"type": "task_complete", "last_agent_message": None}},
    )

    assert [kept()] == list(codex.conversations(tmp_path))


def test_geminis_chats(tmp_path: Path) -> None:
    lines(
        tmp_path / "tmp/work/chats/session-2026-11-22T06-50-77b5ba32.jsonl",
        {"sessionId": ID, "kind": "main"},
        {"$set": {"messages": [{"id": "0", "type": "user", "content": [{"text": "<session_context>\nThis is"}]}]}},
        {"id": "1", "type": "user", "content": [{"text": "fix it"}]},
        {"id": "1", "type": "user", "content": [{"text": "fix it"}]},
        {"id": "2", "type": "gemini", "content": "done"},
        {"id": "3", "type": "user", "content": [{"functionResponse": {"name": "x"}}]},
        {"id": "4", "type": "user", "content": "test it"},
        {"id": "5", "type": "gemini", "content": ""},
    )
    (tmp_path / "projects.json").write_text('{"projects": {"/work": "work", "/evil": "../../etc", "/n": 7}}')

    assert [kept()] == list(gemini.conversations(tmp_path))


def test_opencodes_database(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "opencode.db") as database:
        database.execute("CREATE TABLE session (id, directory, time_updated, parent_id)")
        database.execute("CREATE TABLE message (id, session_id, time_created, data)")
        database.execute("CREATE TABLE part (id, message_id, session_id, time_created, data)")
        database.execute("INSERT INTO session VALUES (?, '/work', 100000, NULL), ('sub', '/work', 1, ?)", (ID, ID))
        for at, (role, text) in enumerate([("user", "fix it"), ("assistant", "done"), ("user", "test it")]):
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (at, ID, at, json.dumps({"role": role})))
            part = json.dumps({"type": "text", "text": text})
            database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?)", (f"p{at}", at, ID, at, part))
    database.close()

    assert [kept()] == list(opencode.conversations(tmp_path))


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\x00 broken"])
def test_an_unreadable_store_has_no_conversations(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "opencode.db").write_bytes(content)
    (tmp_path / "projects.json").write_bytes(content)
    lines(tmp_path / "projects/-work" / f"{ID}.jsonl", '{"type":"user"', "\x00", "[1]")
    lines(tmp_path / "sessions/2026/11/22" / f"rollout-x-{ID}.jsonl", '{"session_meta"', "[]", '"session_meta"')

    assert [] == list(opencode.conversations(tmp_path))
    assert [] == list(gemini.conversations(tmp_path))
    assert [] == list(claude.conversations(tmp_path))
    assert [] == list(codex.conversations(tmp_path))
