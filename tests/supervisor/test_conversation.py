"""Which conversation an agent in a terminal has is read from what it says of its own process, and never guessed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kasmon.supervisor.conversation import Conversation, conversation_of, resuming
from tests.waiting import until

TALK = "0a1b2c3d-1111-4222-8333-0123456789ab"
OTHER = "ffffffff-1111-4222-8333-0123456789ab"


@contextmanager
def process(home: Path, holds: Path | None = None, child: bool = False) -> Iterator[int]:
    """An agent whose home is *home*, with the file *holds* open, or a child that has it open."""
    code = "import subprocess, sys\nfile = open(sys.argv[1]) if sys.argv[1] else None\nprint('up', flush=True)\ninput()"
    if child:
        code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[2], sys.argv[1]])"
    inner = "import sys\nfile = open(sys.argv[1])\nprint('up', flush=True)\ninput()"
    running = subprocess.Popen(
        [sys.executable, "-c", code, str(holds or ""), inner],
        env={"HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert running.stdout
    assert running.stdin
    assert running.stdout.readline() == b"up\n"
    try:
        yield running.pid
    finally:
        running.stdin.close()
        running.wait()
        running.stdout.close()


def register(home: Path, of: int, **fields: Any) -> None:
    folder = home / ".claude" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{of}.json").write_text(json.dumps({"pid": of, "sessionId": TALK} | fields))


@pytest.mark.parametrize(("status", "is_busy"), [("idle", False), ("busy", True), ("waiting", True), (None, None)])
def test_claude_registers_its_conversation_by_its_process(
    tmp_path: Path, status: str | None, is_busy: bool | None
) -> None:
    with process(tmp_path) as pid:
        register(tmp_path, pid, **({"status": status} if status else {}))

        assert Conversation(TALK, is_busy) == conversation_of("claude", pid)


@pytest.mark.parametrize(
    "fields", [{"pid": 1}, {"sessionId": "../../x"}, {"sessionId": 7}, {"sessionId": None}], ids=str
)
def test_an_entry_that_does_not_fit_its_process_is_none(tmp_path: Path, fields: dict[str, Any]) -> None:
    with process(tmp_path) as pid:
        register(tmp_path, pid, **fields)

        assert conversation_of("claude", pid) is None


def test_an_unreadable_entry_is_none(tmp_path: Path) -> None:
    with process(tmp_path) as pid:
        register(tmp_path, pid)
        (tmp_path / ".claude" / "sessions" / f"{pid}.json").write_bytes(b"{\xff")

        assert conversation_of("claude", pid) is None


@pytest.mark.parametrize("child", [False, True], ids=["itself", "its child"])
def test_codex_has_its_conversations_file_open(tmp_path: Path, child: bool) -> None:
    rollout = tmp_path / f"rollout-2026-11-22T01-02-03-{TALK}.jsonl"
    rollout.write_text("{}\n")
    (tmp_path / f"rollout-2026-11-22T01-02-03-{OTHER}.jsonl").write_text("{}\n")
    with process(tmp_path, rollout, child) as pid:
        assert Conversation(TALK, None) == until(lambda: conversation_of("codex", pid))


@pytest.mark.parametrize("program", ["claude", "codex", "opencode", "gemini", "vim"])
def test_who_does_not_say_has_none(tmp_path: Path, program: str) -> None:
    with process(tmp_path) as pid:
        assert conversation_of(program, pid) is None


def test_a_process_that_is_gone_has_none(tmp_path: Path) -> None:
    with process(tmp_path) as pid:
        register(tmp_path, pid)

    assert conversation_of("claude", pid) is None


@pytest.mark.parametrize(
    ("program", "argv"),
    [
        ("claude", ("claude", "--model", "opus", "--resume", TALK)),
        ("codex", ("codex", "resume", TALK, "--model", "opus")),
        ("opencode", ("opencode", "--model", "opus", "--session", TALK)),
        ("gemini", ("gemini", "--model", "opus", "--resume", TALK)),
    ],
)
def test_each_agent_goes_on_by_its_own_means(program: str, argv: tuple[str, ...]) -> None:
    assert argv == resuming(program, (program, "--model", "opus"), TALK)


def test_for_other_programs_nobody_knows_how() -> None:
    assert resuming("vim", ("vim",), TALK) is None
