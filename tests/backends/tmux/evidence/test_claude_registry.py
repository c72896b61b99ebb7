"""Claude Code's registry is believed only for a process that is there and wrote it."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon import system
from kasmon.backends.tmux.evidence import claude_registry
from kasmon.backends.tmux.evidence.process_evidence import ProcessEvidence
from kasmon.backends.tmux.evidence.process_table import table
from kasmon.model.permission import RequestKind
from tests.support.wait import until


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def started(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def registered(folder: Path, pid: int, status: str, born: str = "", **more: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"pid": pid, "procStart": born or started(pid), "status": status, "version": "2.1.330", **more}
    path = folder / f"{pid}.json"
    path.write_text(json.dumps(entry))
    return path


@pytest.mark.parametrize(
    ("status", "waiting_for", "value", "asking"),
    [
        ("busy", "", "working", None),
        ("idle", "", "idle|limited", None),
        ("waiting", "permission prompt", "asking", RequestKind.PERMISSION),
        ("waiting", "input needed", "asking", RequestKind.QUESTION),
        ("waiting", "something new", "asking", RequestKind.QUESTION),
        ("dreaming", "", "unclear", None),
    ],
)
def test_each_status_of_the_registry_is_a_state(
    agent: subprocess.Popen[bytes],
    tmp_path: Path,
    status: str,
    waiting_for: str,
    value: str,
    asking: RequestKind | None,
) -> None:
    path = registered(tmp_path, agent.pid, status, waitingFor=waiting_for)

    assert (value, asking, "2.1.330") == (*claude_registry.read(path)[:2], claude_registry.read(path).version)


def test_an_entry_of_a_killed_agent_is_ignored(agent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    path = registered(tmp_path, agent.pid, "busy")
    agent.kill()
    agent.wait()

    assert "unclear" == claude_registry.read(path).value


def test_an_entry_of_another_process_with_the_same_id_is_ignored(
    agent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert "unclear" == claude_registry.read(registered(tmp_path, agent.pid, "busy", born="17")).value


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": "x"}', b"[]", b"\xff\xfe", b'{"pid":1}' + b" " * 100_000])
def test_a_malformed_entry_is_ignored(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "1.json"
    path.write_bytes(content)
    assert "unclear" == claude_registry.read(path).value


def test_the_entry_is_found_by_the_agents_own_variables_and_reported_only_when_it_changed(tmp_path: Path) -> None:
    environment = {"CLAUDE_CONFIG_DIR": str(tmp_path / "mine"), "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "1000"], env=environment) as agent:
        try:
            evidence = ProcessEvidence("claude", agent.pid, tmp_path, 1, "")
            assert [] == evidence.read(1.0, None)
            path = registered(tmp_path / "mine" / "sessions", agent.pid, "busy")
            assert ["working"] == [signal.value for signal in evidence.read(2.0, None)]
            assert [] == evidence.read(3.0, None)
            registered(path.parent, agent.pid, "idle")
            os.utime(path, ns=(1, 1))
            assert ["idle|limited"] == [signal.value for signal in evidence.read(4.0, None)]
            path.unlink()
            assert ["unclear"] == [signal.value for signal in evidence.read(5.0, None)]
        finally:
            agent.kill()


def test_a_file_that_was_read_before_its_first_bytes_is_read_again_in_the_same_tick_of_the_clock(
    tmp_path: Path,
) -> None:
    environment = {"CLAUDE_CONFIG_DIR": str(tmp_path / "mine"), "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "1000"], env=environment) as agent:
        try:
            evidence = ProcessEvidence("claude", agent.pid, tmp_path, 1, "")
            path = registered(tmp_path / "mine" / "sessions", agent.pid, "busy")
            content = path.read_bytes()
            path.write_bytes(b"")
            os.utime(path, ns=(1, 1))
            assert ["unclear"] == [signal.value for signal in evidence.read(1.0, None)]
            path.write_bytes(content)
            os.utime(path, ns=(1, 1))
            assert ["working"] == [signal.value for signal in evidence.read(2.0, None)]
        finally:
            agent.kill()


def test_the_variable_of_a_wrapper_that_sets_it_late_counts(tmp_path: Path) -> None:
    config = tmp_path / "mine"
    script = f"read line; CLAUDE_CONFIG_DIR={config} exec sleep 1000"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with subprocess.Popen(["sh", "-c", script], env=environment, stdin=subprocess.PIPE) as agent:
        try:
            evidence = ProcessEvidence("claude", agent.pid, tmp_path, 1, "")
            assert [] == evidence.read(1.0, None)
            assert agent.stdin is not None
            agent.stdin.close()
            until(lambda: system.HERE.read_variables(agent.pid).get("CLAUDE_CONFIG_DIR"))
            registered(config / "sessions", agent.pid, "busy")
            assert ["working"] == [signal.value for signal in evidence.read(2.0, None)]
        finally:
            agent.kill()


def test_the_screen_of_a_background_session_has_the_status_of_that_sessions_process(
    agent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Its own process is not the session's, and the session's conversation is in use there."""
    folder = tmp_path / "sessions"
    conversation = "86f99758-1111-4222-8333-0123456789ab"
    registered(folder, os.getpid(), "idle", jobId="11111111")
    registered(folder, agent.pid, "busy", jobId="86f99758", sessionId=conversation)
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "CLAUDE_CONFIG_DIR": str(tmp_path)}) as screen:
        evidence = ProcessEvidence("claude", screen.pid, tmp_path, 1, "", background="86f99758")
        until(lambda: system.HERE.read_variables(screen.pid).get("CLAUDE_CONFIG_DIR"), what="its environment")
        signals = {(one.source, one.value) for one in evidence.read(1.0, None)}
        screen.kill()

    assert {("registry", "working")} == signals
    assert ("2.1.330", "") == (evidence.version, evidence.conversation)


def test_the_entry_of_a_killed_background_session_is_ignored(agent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    registered(tmp_path, agent.pid, "busy", born="1", jobId="86f99758")

    assert claude_registry.find_background(tmp_path, "86f99758") is None


def test_the_screen_of_a_background_session_follows_the_process_that_replaces_a_killed_one(
    agent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The killed one leaves its file as it was, and the screen may print nothing."""
    folder = tmp_path / "sessions"
    registered(folder, agent.pid, "busy", jobId="86f99758")
    with contextlib.ExitStack() as ends:
        screen = ends.enter_context(
            subprocess.Popen(["sleep", "1000"], env={**os.environ, "CLAUDE_CONFIG_DIR": str(tmp_path)})
        )
        ends.callback(screen.kill)
        evidence = ProcessEvidence("claude", screen.pid, tmp_path, 1, "", background="86f99758")
        until(lambda: system.HERE.read_variables(screen.pid).get("CLAUDE_CONFIG_DIR"), what="its environment")

        def values() -> list[str]:
            return [one.value for one in evidence.read(1.0, table()) if one.source == "registry"]

        assert (["working"], []) == (values(), values())
        assert not evidence.has_changed_silently(table())
        agent.kill()
        agent.wait()
        assert evidence.has_changed_silently(table())
        assert (["unclear"], []) == (values(), values())
        assert evidence.has_changed_silently(table())  # its replacement is looked for
        registered(folder, os.getpid(), "idle", jobId="86f99758")
        assert ["idle|limited"] == values()
        assert not evidence.has_changed_silently(table())
