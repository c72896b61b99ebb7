"""Which conversation an agent in a terminal has is read from what it says of its own process, and never guessed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kasmon.supervisor.conversation import Conversation, conversation_of

TALK = "0a1b2c3d-1111-4222-8333-0123456789ab"
OTHER = "ffffffff-1111-4222-8333-0123456789ab"


@contextmanager
def process(home: Path, *holds: Path, child: bool = False, apart: bool = False) -> Iterator[int]:
    """An agent whose home is *home*, with the files *holds* open, or a child, in a session *apart*, that has."""
    code = "import sys\nfiles = [open(path) for path in sys.argv[1:]]\nprint('up', flush=True)\ninput()"
    argv = [sys.executable, "-c", code, *map(str, holds)]
    if child:
        run = "import subprocess, sys\nsubprocess.run(sys.argv[2:], start_new_session=sys.argv[1] == 'True')"
        argv = [sys.executable, "-c", run, str(apart), *argv]
    running = subprocess.Popen(
        argv,
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
    with process(tmp_path, rollout, child=child) as pid:
        assert Conversation(TALK, None) == conversation_of("codex", pid)


def test_which_of_two_conversations_it_is_in_is_not_guessed(tmp_path: Path) -> None:
    rollouts = [tmp_path / f"rollout-2026-11-22T01-02-03-{talk}.jsonl" for talk in (TALK, OTHER)]
    for rollout in rollouts:
        rollout.write_text("{}\n")
    with process(tmp_path, *rollouts) as pid:
        assert conversation_of("codex", pid) is None


def test_a_server_that_it_started_may_have_the_conversation_of_another(tmp_path: Path) -> None:
    rollout = tmp_path / f"rollout-2026-11-22T01-02-03-{TALK}.jsonl"
    rollout.write_text("{}\n")
    with process(tmp_path, rollout, child=True, apart=True) as pid:
        assert conversation_of("codex", pid) is None


@pytest.mark.parametrize("program", ["claude", "codex", "opencode", "gemini", "vim"])
def test_who_does_not_say_has_none(tmp_path: Path, program: str) -> None:
    with process(tmp_path) as pid:
        assert conversation_of(program, pid) is None


def test_a_process_that_is_gone_has_none(tmp_path: Path) -> None:
    with process(tmp_path) as pid:
        register(tmp_path, pid)

    assert conversation_of("claude", pid) is None
