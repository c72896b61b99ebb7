"""An agent's hooks leave notes: whatever they are given, they never disturb it, and only its own notes count."""

import itertools
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kasmon.backends.tmux.evidence.hook_setup import EMIT, hash_of, hooked, why_not
from kasmon.backends.tmux.evidence.hooks import FULL, HookNotes
from kasmon.model.commands import prompt_digest
from kasmon.model.permission import RequestKind
from tests.support.agents.real_agent import pinned_version

NONCE = "0123456789abcdef"
MINE = {"KASMON_GENERATION": "2", "KASMON_NONCE": NONCE}


def emit(
    file: Path, given: bytes = b"", *words: str, own: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(EMIT), str(file), *words],
        input=given,
        capture_output=True,
        env={"PATH": os.environ["PATH"], **(MINE if own is None else own)},
        timeout=20,
        check=False,
    )


def hook(event: str, **fields: str) -> bytes:
    return json.dumps({"hook_event_name": event, "session_id": "s", **fields}).encode()


def needs_input(message: str) -> bytes:
    return hook("Notification", notification_type="agent_needs_input", message=message)


def notes(file: Path, pid: int = 1) -> HookNotes:
    return HookNotes(file, 2, NONCE, pid)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "hooks.jsonl"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (hook("UserPromptSubmit", prompt="do it"), ("working", None)),
        (hook("PreToolUse", tool_name="Bash"), ("working", None)),
        (hook("PermissionRequest", tool_name="Bash"), ("asking", RequestKind.PERMISSION)),
        (hook("PermissionRequest", tool_name="AskUserQuestion"), ("asking", RequestKind.QUESTION)),
        (hook("PermissionRequest", tool_name="ExitPlanMode"), ("asking", RequestKind.PLAN)),
        (hook("Notification", notification_type="permission_prompt"), ("asking", RequestKind.PERMISSION)),
        (hook("Notification", notification_type="worker_permission_prompt"), ("asking", RequestKind.PERMISSION)),
        (hook("Notification", notification_type="elicitation_dialog"), ("asking", RequestKind.QUESTION)),
        (hook("Notification", notification_type="elicitation_url_dialog"), ("asking", RequestKind.QUESTION)),
        (needs_input("Teammate setup needs your input"), ("asking", RequestKind.QUESTION)),
        (needs_input("Your cloud session needs an answer before it can start"), ("asking", RequestKind.QUESTION)),
        (needs_input("fix the build needs your input"), None),
        (needs_input("fix the build needs your input: approve Bash: make"), None),
        (hook("Notification", notification_type="agent_completed", message="fix the build finished"), None),
        (hook("Notification", notification_type="auth_success"), None),
        (hook("Notification", notification_type="idle_prompt"), ("idle", None)),
        (hook("Stop"), ("idle", None)),
        (hook("StopFailure", error="API Error: 400"), ("idle|limited", None)),
        (hook("SubagentStop"), None),
        (hook("SessionEnd", reason="exit"), None),
        (hook("Surprise"), None),
    ],
)
def test_each_hook_event_is_a_signal(file: Path, given: bytes, said: tuple[str, RequestKind | None] | None) -> None:
    assert 0 == emit(file, given).returncode

    assert ([said] if said else []) == [(one.value, one.asking) for one in notes(file).new()]


def test_a_note_comes_as_an_argument_too(file: Path) -> None:
    emit(file, b"", json.dumps({"type": "agent-turn-complete", "thread-id": "t"}))

    assert ["idle"] == [one.value for one in notes(file).new()]


@pytest.mark.parametrize("given", [b"", b"no json", b"[1]", b'{"hook_event_name": 5}', b"\xff" * 100, b"{" * 100_000])
def test_a_hook_with_any_input_exits_with_0_and_prints_nothing(file: Path, given: bytes) -> None:
    done = emit(file, given)

    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)
    assert [] == notes(file).new()


def test_a_hook_that_cannot_write_its_note_exits_with_0(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    for where in (tmp_path / "no" / "folder", tmp_path, tmp_path / "loop", tmp_path / "pipe", Path("/proc/x")):
        assert 0 == emit(where, hook("Stop")).returncode
    assert 0 == subprocess.run([sys.executable, "-I", "-S", str(EMIT)], timeout=20, check=False).returncode


@pytest.mark.parametrize("own", [{"KASMON_GENERATION": "1", "KASMON_NONCE": NONCE}, {**MINE, "KASMON_NONCE": "f" * 16}])
def test_a_note_of_another_start_or_another_session_is_ignored(file: Path, own: dict[str, str]) -> None:
    emit(file, hook("Stop"), own=own)

    assert [] == notes(file, os.getpid()).new()


def test_without_environment_variables_the_process_family_identifies_the_agent(file: Path) -> None:
    emit(file, hook("Stop"), own={})

    assert [] == notes(file, 999_999_999).new()
    assert ["idle"] == [one.value for one in notes(file, os.getpid()).new()]


def test_notes_are_read_once_and_in_order_and_a_partial_line_waits(file: Path) -> None:
    reading = notes(file)
    emit(file, hook("UserPromptSubmit"))
    assert ["working"] == [one.value for one in reading.new()]
    emit(file, hook("Stop"))
    line = file.read_bytes().splitlines(keepends=True)[-1]
    file.write_bytes(file.read_bytes() + line[:20])
    assert ["idle"] == [one.value for one in reading.new()]
    file.write_bytes(file.read_bytes() + line[20:])
    assert ["idle"] == [one.value for one in reading.new()]
    assert [] == reading.new()


def test_a_file_that_grew_too_large_is_restarted_without_loss(file: Path) -> None:
    reading = notes(file)
    file.write_bytes(b"{}\n" * (FULL // 3 + 1))
    while file.stat().st_size:
        assert [] == reading.new()
    emit(file, hook("Stop"))

    assert ["idle"] == [one.value for one in reading.new()]


def test_a_file_with_any_content_costs_a_bounded_read(file: Path) -> None:
    file.write_bytes(os.urandom(3_000_000))
    reading = notes(file)
    for _ in range(60):
        assert [] == reading.new()
    assert 0 == file.stat().st_size


def test_claude_gets_its_hooks_by_an_argument_and_the_users_settings_are_unchanged(tmp_path: Path) -> None:
    given = hooked("claude", ("/bin/claude", "--model", "x"), tmp_path / "it's", 2, NONCE)

    settings = json.loads(given.argv[2])
    command = settings["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert ("/bin/claude", "--settings", "--model", "x") == (given.argv[0], given.argv[1], *given.argv[3:])
    assert MINE == given.variables
    (tmp_path / "it's").mkdir()
    subprocess.run(["/bin/sh", "-c", command], input=hook("Stop"), env=MINE, check=True, timeout=20)
    assert ["idle"] == [one.value for one in notes(tmp_path / "it's" / "hooks.jsonl").new()]


def codex(folder: Path, version: str = "") -> str:
    """A program that says that it is Codex of this version, or of the pinned one."""
    program = folder / "codex"
    program.write_text(f"#!/bin/sh\necho codex-cli {version or pinned_version('codex')}\n")
    program.chmod(0o755)
    return str(program)


def test_codex_gets_its_hooks_by_arguments_and_trusts_them_by_their_hash(tmp_path: Path) -> None:
    given = hooked("codex", (codex(tmp_path), "resume", "x"), tmp_path / 'it"s', 2, NONCE)

    said = [word for flag, word in itertools.pairwise(given.argv) if flag == "-c"]
    assert ("resume", "x") == given.argv[-2:]
    assert MINE == given.variables
    config = tomllib.loads("\n".join(said))["hooks"]
    handler = config["Stop"][0]["hooks"][0]
    trusted = config["state"]["/<session-flags>/config.toml:stop:0:0"]["trusted_hash"]
    assert {"UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "Stop", "state"} == set(config)
    assert trusted == hash_of({"event_name": "stop", "hooks": [{**handler, "async": False}]})
    (tmp_path / 'it"s').mkdir()
    subprocess.run(["/bin/sh", "-c", handler["command"]], input=hook("Stop"), env=MINE, check=True, timeout=20)
    assert ["idle"] == [one.value for one in notes(tmp_path / 'it"s' / "hooks.jsonl").new()]


def test_the_hash_of_a_hook_is_the_one_that_codex_gave_it() -> None:
    """As `hooks/list` of its app server, 0.169.0 and 0.171.0, tells it."""
    handler = {"async": False, "command": "/bin/true", "timeout": 5, "type": "command"}
    told = "sha256:d5f47c3856be1be433ad2583d3e56a798eb16df5de5fe759a83ad48917f26813"

    assert told == hash_of({"event_name": "user_prompt_submit", "hooks": [handler]})


@pytest.mark.parametrize("flags", [("-c", "hooks.Stop=[]"), ("-chooks={}",), ("--config=features.hooks=false",)])
def test_the_users_own_hook_settings_of_codex_have_priority(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert "already" in why_not("codex", (codex(tmp_path), *flags))


def test_an_untested_codex_gets_no_hooks(tmp_path: Path) -> None:
    assert "hooks are untested with codex-cli 0.200.0" in why_not("codex", (codex(tmp_path, "0.200.0"),))


@pytest.mark.parametrize(
    ("program", "argv", "why"),
    [
        ("claude", ("/bin/claude", "--settings", "mine.json"), "--settings"),
        ("claude", ("/bin/claude", "--settings=mine.json"), "--settings"),
        ("claude", ("/usr/bin/env", "X=1", "claude"), "another program"),
        ("codex", ("/nowhere/codex",), "itself"),
        ("codex", ("node", "codex.js"), "another program"),
        ("gemini", ("/bin/gemini",), "root"),
        ("opencode", ("/bin/opencode",), "plugin"),
        ("vim", ("/bin/vim",), "no hooks are known for this program"),
    ],
)
def test_a_start_that_cannot_have_hooks_has_none_and_reports_it(program: str, argv: tuple[str, ...], why: str) -> None:
    given = hooked(program, argv, Path("/x"), 2, NONCE)

    assert argv == given.argv
    assert {} == given.variables
    assert why in why_not(program, argv)


def test_a_prompt_is_identified_by_its_id_and_not_by_its_text(file: Path) -> None:
    """The host compares it with the prompts that it typed; white space is the agent's own."""
    text = "  look at\tthe 漢字\r\n\nand the password hunter2\n"
    emit(file, hook("UserPromptSubmit", prompt=text))
    emit(
        file, hook("UserPromptSubmit", prompt=f'\n\n<pasted_content id="0875">\n{text}\n</pasted_content id="0875">\n')
    )
    emit(file, hook("Stop", prompt="no prompt at all"))

    named, pasted, stopped = notes(file).new()
    assert named.prompt == pasted.prompt
    assert prompt_digest("look at the 漢字\n  and the password hunter2") == named.prompt
    assert prompt_digest(text + "!") != named.prompt
    assert "" == stopped.prompt
    assert b"hunter2" not in file.read_bytes()


def test_an_error_that_ends_a_turn_is_reported_in_the_agents_words(file: Path) -> None:
    emit(file, hook("StopFailure", error="unknown", last_assistant_message="API Error: 529 overloaded"))
    emit(file, hook("Stop", last_assistant_message="all is well"))

    failed, stopped = notes(file).new()
    assert (True, "API Error: 529 overloaded") == (failed.failed, failed.text)
    assert (False, "") == (stopped.failed, stopped.text)
    assert b"all is well" not in file.read_bytes()
