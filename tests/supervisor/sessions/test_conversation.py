"""Which conversation an agent in a terminal has is read from what it says of its own process, and never guessed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kasmon.backends.common.environment import encoded
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model import events
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.model.transcript import export
from kasmon.model.transcript.layout import Transcript
from kasmon.paths import write_private
from kasmon.store.event_log import EventLog
from kasmon.supervisor.sessions.conversation import TerminalConversation, conversation_of, import_turns
from tests.support.tui.dashboard import Home

ID = "01a208b2-ad32-7012-98b0-56a79064848a"
ME = SessionId("aaaaaaaa")


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as home:
        folder = home.paths.folder(ME)
        folder.mkdir(mode=0o700, parents=True)
        launch = Launch(session=ME, name="worker", agent="claude", mode=Mode.TMUX, backend="tmux")
        write_private(home.paths.launch(ME), json.dumps({**launch_fields(launch)}).encode())
        yield home


def launch_fields(launch: Launch) -> dict[str, Any]:
    return {name: getattr(launch, name) for name in ("session", "name", "agent", "mode", "backend")}


def runs(home: Home, at: float, mode: Mode, generation: int) -> None:
    SessionLog(home.paths, ME).append(events.SessionStarted(at=at, mode=mode, generation=generation))


def imported(home: Home) -> list[events.EntryImported]:
    return [event for event in EventLog(home.paths.log(ME)).events() if isinstance(event, events.EntryImported)]


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def claudes(folder: Path, *lines: tuple[float, str, object], to: str = ID) -> None:
    """Write a transcript of the conversation *to*: when, who, and what."""
    file = folder / "projects" / "-w" / f"{to}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    entries = ({"type": who, "timestamp": stamp(at), "message": {"content": what}} for at, who, what in lines)
    file.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in entries))


def codexs(folder: Path, *lines: tuple[float, dict[str, Any]]) -> None:
    file = folder / "sessions" / "2026" / "11" / "23" / f"rollout-2026-11-23T13-57-37-{ID}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    entries = ({"timestamp": stamp(at), "type": "event_msg", "payload": payload} for at, payload in lines)
    file.write_text("".join(json.dumps(each) + "\n" for each in entries))


def item(**what: Any) -> dict[str, Any]:
    return {"type": "item_completed", "item": what}


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def test_claudes_transcript_has_the_messages_and_tools_of_the_terminal(home: Home) -> None:
    runs(home, 10.0, Mode.SDK, 1)
    runs(home, 20.0, Mode.TMUX, 2)
    claudes(
        home.path,
        (12.0, "user", "structured"),
        (21.0, "user", "in the terminal"),
        (21.5, "user", "<command-name>/cost</command-name>"),
        (22.0, "assistant", [{"type": "thinking", "thinking": "hmm"}, *text("doing")]),
        (23.0, "assistant", [{"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "ls"}}]),
        (24.0, "user", [{"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": "none"}]),
        (25.0, "user", text("[Request interrupted by user]")),
    )
    assert 6 == import_turns(home.paths, ME, "claude", home.path, ID)

    assert [
        events.TurnStarted(at=21.0, prompt="in the terminal"),
        events.ThoughtWritten(at=22.0, text="hmm"),
        events.MessageWritten(at=22.0, text="doing"),
        events.ToolStarted(at=23.0, call="c", tool="Bash", title="ls", input='{"command": "ls"}'),
        events.ToolFinished(at=24.0, call="c", ok=False, output="none"),
        events.NoticeRaised(at=25.0, text="interrupted"),
    ] == [fact.entry for fact in imported(home)]
    assert {"claude"} == {fact.program for fact in imported(home)}


def test_codexs_rollout_has_them_too(home: Home) -> None:
    runs(home, 20.0, Mode.TMUX, 1)
    codexs(
        home.path,
        (19.0, item(type="UserMessage", content=text("before"))),
        (21.0, item(type="UserMessage", content=text("in the terminal"))),
        (
            22.0,
            item(
                type="CommandExecution",
                id="c",
                command=["/bin/bash", "-lc", "ls"],
                status="completed",
                aggregated_output="a\n",
            ),
        ),
        (23.0, item(type="AgentMessage", content=text("done"))),
        (24.0, {"type": "turn_aborted"}),
    )
    import_turns(home.paths, ME, "codex", home.path, ID)

    assert [
        events.TurnStarted(at=21.0, prompt="in the terminal"),
        events.ToolStarted(at=22.0, call="c", tool="shell", title="ls", input="ls"),
        events.ToolFinished(at=22.0, call="c", output="a\n"),
        events.MessageWritten(at=23.0, text="done"),
        events.NoticeRaised(at=24.0, text="interrupted"),
    ] == [fact.entry for fact in imported(home)]


def test_nothing_is_imported_twice_or_beside_the_protocol(home: Home) -> None:
    """Also where the other side did not start, so that the same stay in the terminal goes on."""
    runs(home, 20.0, Mode.TMUX, 1)
    one, two, three, four = ((at, "user", f"prompt {at}") for at in (21.0, 31.0, 41.0, 51.0))
    claudes(home.path, one)
    assert 1 == import_turns(home.paths, ME, "claude", home.path, ID)
    claudes(home.path, one, two)
    runs(home, 30.0, Mode.TMUX, 2)
    assert [1, 0] == [import_turns(home.paths, ME, "claude", home.path, ID) for _ in range(2)]

    runs(home, 40.0, Mode.SDK, 3)
    claudes(home.path, one, two, three)
    assert 0 == import_turns(home.paths, ME, "claude", home.path, ID)
    runs(home, 50.0, Mode.TMUX, 4)
    claudes(home.path, one, two, three, four)
    assert 1 == import_turns(home.paths, ME, "claude", home.path, ID)
    assert [21.0, 31.0, 51.0] == [fact.entry.at for fact in imported(home)]


def test_a_session_without_a_log_gets_none(home: Home) -> None:
    claudes(home.path, (21.0, "user", "in the terminal"))

    assert 0 == import_turns(home.paths, ME, "claude", home.path, ID)
    assert not home.paths.log(ME).exists()


def test_each_conversation_of_the_time_in_the_terminal_is_imported_in_the_order_of_time(home: Home) -> None:
    """`/clear` begins another conversation, and `/resume` goes back to one."""
    before, other = (f"{digit * 8}-ad32-7012-98b0-56a79064848a" for digit in "ab")
    log = SessionLog(home.paths, ME)
    log.append(events.SettingsChanged(at=9.0, resume_id=other))
    log.append(events.SessionStarted(at=10.0, mode=Mode.SDK, generation=1, resume_id=before))
    runs(home, 20.0, Mode.TMUX, 2)
    log.append(events.SettingsChanged(at=30.0, resume_id=ID))
    claudes(home.path, (19.0, "user", "structured"), (21.0, "user", "one"), (41.0, "user", "three"), to=before)
    claudes(home.path, (31.0, "user", "two"))
    claudes(home.path, (35.0, "user", "not of this session"), to=other)

    assert 3 == import_turns(home.paths, ME, "claude", home.path, ID)
    assert ["one", "two", "three"] == [
        one.entry.prompt for one in imported(home) if isinstance(one.entry, events.TurnStarted)
    ]


def test_an_import_hides_secrets_fits_its_line_and_changes_no_state_of_the_session(home: Home) -> None:
    write_private(home.paths.environment(ME), encoded({"API_KEY": "correct-horse-battery-staple"}))
    runs(home, 20.0, Mode.TMUX, 1)
    before = SessionLog(home.paths, ME).session
    claudes(
        home.path,
        (21.0, "user", "say correct-horse-battery-staple"),
        (22.0, "assistant", text("x" * events.EVENT_BYTES)),
    )
    import_turns(home.paths, ME, "claude", home.path, ID)

    assert b"horse" not in home.paths.log(ME).read_bytes()
    assert all(len(line) <= events.EVENT_BYTES for line in home.paths.log(ME).read_bytes().splitlines())
    assert before == SessionLog(home.paths, ME).session
    assert SessionState.IDLE is not before.state


def test_without_a_readable_file_or_a_writable_log_nothing_is_imported(home: Home) -> None:
    runs(home, 20.0, Mode.TMUX, 1)
    assert 0 == import_turns(home.paths, ME, "claude", home.path / "nowhere", ID)
    assert 0 == import_turns(home.paths, ME, "gemini", home.path, ID)
    claudes(home.path, (21.0, "user", "hello"))
    lock = HostLock(home.paths.host_lock(ME))
    assert lock.acquire()
    assert 0 == import_turns(home.paths, ME, "claude", home.path, ID)
    lock.let_go()


def test_imported_messages_are_marked_in_the_transcript_and_in_the_export() -> None:
    entries = (
        events.TurnStarted(at=1.0, prompt="hello"),
        events.ToolStarted(at=2.0, call="c", tool="Bash", title="ls"),
        events.ToolFinished(at=3.0, call="c", output="file.txt"),
        events.MessageWritten(at=4.0, text="done"),
    )
    facts = [events.EntryImported(at=9.0, entry=entry, program="claude") for entry in entries]
    assert facts == [events.decode(events.encode(fact)) for fact in facts]
    transcript = Transcript(zone=UTC)
    for fact in facts:
        transcript.add(fact)
    rows = [line.text for line in transcript.lines(80)[:]]
    assert all(row.startswith("┆ ") for row in rows)
    assert ["┆ ❯ hello", "┆   (in the terminal at 00:00:01; from claude's own transcript)"] == rows[1:3]
    assert 3 == len(transcript.blocks), "a result stands below its call"
    assert any("file.txt" in row for row in rows)

    written = "".join(export.export_events(facts, in_terminal=False, zone=UTC))
    assert "## Prompt in the terminal (from claude's own transcript), " in written
    assert "done" in written


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
    running = subprocess.Popen(argv, env={"HOME": str(home)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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

        assert TerminalConversation(TALK, is_busy) == conversation_of("claude", pid)


@pytest.mark.parametrize(
    "fields", [{"pid": 1}, {"sessionId": "../../x"}, {"sessionId": 7}, {"sessionId": None}], ids=str
)
def test_an_entry_of_another_process_is_ignored(tmp_path: Path, fields: dict[str, Any]) -> None:
    with process(tmp_path) as pid:
        register(tmp_path, pid, **fields)

        assert conversation_of("claude", pid) is None


def test_an_unreadable_entry_is_ignored(tmp_path: Path) -> None:
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
        assert TerminalConversation(TALK, None) == conversation_of("codex", pid)


def test_an_ambiguous_conversation_is_not_guessed(tmp_path: Path) -> None:
    rollouts = [tmp_path / f"rollout-2026-11-22T01-02-03-{talk}.jsonl" for talk in (TALK, OTHER)]
    for rollout in rollouts:
        rollout.write_text("{}\n")
    with process(tmp_path, *rollouts) as pid:
        assert conversation_of("codex", pid) is None


def test_a_child_server_may_have_the_conversation_of_another(tmp_path: Path) -> None:
    rollout = tmp_path / f"rollout-2026-11-22T01-02-03-{TALK}.jsonl"
    rollout.write_text("{}\n")
    with process(tmp_path, rollout, child=True, apart=True) as pid:
        assert conversation_of("codex", pid) is None


@pytest.mark.parametrize("program", ["claude", "codex", "opencode", "gemini", "vim"])
def test_an_agent_that_reports_no_conversation_has_none(tmp_path: Path, program: str) -> None:
    with process(tmp_path) as pid:
        assert conversation_of(program, pid) is None


def test_an_exited_process_has_none(tmp_path: Path) -> None:
    with process(tmp_path) as pid:
        register(tmp_path, pid)

    assert conversation_of("claude", pid) is None
