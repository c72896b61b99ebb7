"""A planted secret stays with its agent: no log, no picture, no report, no list of processes has it."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import psutil
import pytest

from kasmon.demo.screenshot import picture
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import MessageWritten
from kasmon.model.permission import SessionId
from kasmon.sanitize import redact
from kasmon.tui.permissions.request_edit import get_editable_text, parse_edit
from kasmon.tui.process.terminal_guard import DASH
from tests.support.claude_screen import message
from tests.support.cli.fork_server import KASMON
from tests.support.sample_fleet import command
from tests.support.tui.dashboard import Dashboard, Home
from tests.support.wait import until

pytestmark = pytest.mark.story

SECRET = "planted 5ecr3t & 'of' a test"
"""It looks like no token, and JSON, a shell, HTML and an address write it in other ways."""
KEY = "5ecr3t-key-of-claude"
PIECE = "5ecr3t"
SECRETS = {"PLANTED": SECRET, "ANTHROPIC_API_KEY": KEY, "HTTPS_PROXY": f"http://me:{KEY}@proxy:80"}
MARK = f"⟨hidden: {len(SECRET)} characters⟩"
SCRIPT = f"say it is {SECRET}\nthink of {SECRET}\nask echo {SECRET}\nwait"
SAYS = f"{message('it is $PLANTED, $ANTHROPIC_API_KEY')}; sleep 1000 & wait"


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def kasmon(home: Home, *words: str, given: str = "", code: int = 0, variables: Mapping[str, str] | None = None) -> str:
    """What a command that ends with *code* prints; its caller has *variables*."""
    around = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **home.variables, **(variables or {})}
    done = subprocess.run(
        [*KASMON, *words], input=given, capture_output=True, text=True, env=around, cwd=home.path, check=False
    )
    assert code == done.returncode, done.stderr
    return done.stdout + done.stderr


def in_a_terminal(home: Home) -> SessionId:
    """A session in a terminal, whose starter has secrets, and which shows them on its screen."""
    claude = home.path / "claude"
    claude.write_text(f"#!/bin/sh\n{SAYS}\n")
    claude.chmod(0o700)
    session = SessionId(kasmon(home, "new", "screen", "--env", "PLANTED", "--", str(claude), variables=SECRETS).strip())
    until(lambda: "it is" in home.session(session).last_line)
    return session


def planted(home: Home) -> tuple[SessionId, SessionId]:
    """A structured session that says its secrets wherever it can, and one in a terminal."""
    asks = ("--agent", "scripted", "--mode", "sdk", "--env", "PLANTED", "--prompt", "-")
    structured = kasmon(home, "new", "worker", *asks, given=SCRIPT, variables=SECRETS).strip()
    terminal = in_a_terminal(home)
    until(lambda: home.session(SessionId(structured)).requests)
    return SessionId(structured), terminal


@on_linux
def test_no_process_of_kasmon_shows_it_but_the_agent_that_got_it(home: Home) -> None:
    structured, terminal = planted(home)
    with Dashboard(home) as dashboard:
        dashboard.shows("worker", "screen")
        agent = psutil.Process(home.session(terminal).pid)
        may = {agent.pid, *(child.pid for child in agent.children(recursive=True))}
        hosts = {lock_holder(home.paths.host_lock(structured)), lock_holder(home.paths.tmux_host_lock)}
        ours = {dashboard.pid: dashboard.pid, **seen(home)}

        assert {*may, *hosts, dashboard.pid, dashboard.process.pid} <= ours.keys()
        assert [] == [pid for pid in ours if PIECE in read(pid, "cmdline")]
        assert may == {pid for pid in ours if PIECE in read(pid, "environ")}
        assert 0 == dashboard.quit()


@on_linux
@pytest.mark.skipif(not Path(DASH).exists(), reason="no shell that waits")
def test_a_terminal_guard_keeps_none_of_the_users_variables(home: Home) -> None:
    with Dashboard(home, environment=SECRETS) as dashboard:
        until(lambda: read(dashboard.pid, "cmdline").startswith("kasmon\0-c"), what="the guard's sleep")
        dashboard.shows("No sessions")

        assert [f"PATH={os.defpath}"] == read(dashboard.pid, "environ").strip("\0").split("\0")
        assert 0 == dashboard.quit()


def seen(home: Home) -> dict[int, int]:
    """The processes of this kasmon, and all that they started."""
    found: dict[int, int] = {}
    for process in psutil.process_iter():
        if str(home.path) in read(process.pid, "environ") + read(process.pid, "cmdline"):
            family = (process, *process.children(recursive=True))
            found |= {member.pid: process.pid for member in family}
    return found


def read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


@on_linux
def test_a_structured_agent_gets_its_keys_though_its_host_was_started_without_them(home: Home) -> None:
    (home.path / "bin").mkdir(mode=0o700)
    codex = home.path / "bin" / "codex"
    script = 'tr "\\0" "\\n" <"/proc/$PPID/environ" >"$HOME/hosts"\nenv >"$HOME/got"\nexit 7\n'
    codex.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit\n{script}')  # that is asked by a guard, not by its host
    codex.chmod(0o700)
    around = {"PATH": f"{codex.parent}:{os.environ['PATH']}", "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": "another"}

    kasmon(home, "new", "worker", "--agent", "codex", "--mode", "sdk", code=1, variables=around)

    got = (home.path / "got").read_text().splitlines()
    assert f"OPENAI_API_KEY={KEY}" in got
    assert not [line for line in got if line.startswith("ANTHROPIC_")]
    hosts = (home.path / "hosts").read_text()
    assert ("XDG_STATE_HOME=" in hosts, False) == (True, "_API_KEY" in hosts)


def test_no_file_no_command_and_no_picture_has_it(home: Home) -> None:
    structured, terminal = planted(home)
    kasmon(home, "send", "worker", "-", "--when", "idle", given=f"later {SECRET}")
    waiting = home.paths.waiting(structured)
    shown = picture(home.paths)
    printed = [
        kasmon(home, *words.split(), variables=SECRETS)
        for words in (
            "ls --json", "show worker", "show worker --json", "show screen --json", "inbox", "inbox --json",
            "read worker", "doctor --report",
        )
    ]  # fmt: skip
    own = {path for session in (structured, terminal) for path in own_files(home, session)} | {waiting}

    assert [] == [text for text in (shown, *printed) if PIECE in text]
    assert f"it is {MARK}" in [said.text for said in home.facts(MessageWritten, structured)]
    assert own >= {file for file in files(home.path) if PIECE in file.read_bytes().decode("utf-8", "replace")}
    assert {0o600} == {file.stat().st_mode & 0o777 for file in own if file.exists()}
    kasmon(home, "stop", "worker")
    assert not waiting.exists()


def own_files(home: Home, session: SessionId) -> set[Path]:
    """Where a session's secrets may stand: its variables, and the wish that made it."""
    return {home.paths.environment(session), home.paths.launch(session)}


def files(folder: Path) -> list[Path]:
    found = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    assert {"events.jsonl", "host.log", "fleet.jsonl"} <= {file.name for file in found}
    return found


def test_a_redacted_text_stays_unchanged_in_an_editor_and_is_counted() -> None:
    request = msgspec.structs.replace(
        command("a", f"echo {MARK} && 'x"), input={"command": f"echo {MARK} && 'x", "more": [MARK]}
    )

    assert f"echo {MARK} && 'x" == get_editable_text(request)
    assert request.input | {"command": f"printf {MARK}"} == parse_edit(request, f"printf {MARK}")
    assert 1 == redact(request.shown)[1]


def test_a_picture_has_none_of_what_a_terminal_shows(home: Home) -> None:
    in_a_terminal(home)
    svg = picture(home.paths)

    assert "it&#160;is&#160;⟨hidden" in svg
    assert PIECE not in svg
    gc.collect()  # a connection that was left open is an error here, not in a later test


def test_the_demos_picture_has_none_of_its_caller(home: Home) -> None:
    svg = home.path / "demo.svg"
    said = kasmon(home, "demo", "--agents", "2", "--headless", "0", "--svg", str(svg), variables=SECRETS)

    assert "</svg>" in svg.read_text()
    assert PIECE not in said + svg.read_text()


FAILING = """
import os, sys
from kasmon.cli.output.console import guarded
def fail():
    raise RuntimeError("cannot use " + os.environ["API_KEY"])
sys.exit(guarded(fail, wants_json=True))
"""


@pytest.mark.parametrize("works_on_kasmon", ["", "1"])
def test_an_error_on_the_command_line_does_not_contain_it(works_on_kasmon: str) -> None:
    around = {**os.environ, "API_KEY": KEY, "KASMON_DEV": works_on_kasmon}
    done = subprocess.run(
        [sys.executable, "-P", "-c", FAILING], capture_output=True, text=True, env=around, check=False
    )

    assert (1, True) == (done.returncode, "internal error in kasmon: RuntimeError: cannot use ⟨hidden" in done.stderr)
    assert PIECE not in done.stdout + done.stderr


BROKEN = """
import asyncio, sys, threading
from kasmon.__main__ import main
from kasmon.tui.app import Kasmon
planted = "5ecr3t nobody knows"
def fail():
    raise ValueError(planted)
async def fails():
    fail()
mounted = Kasmon.on_mount
def on_mount(self):
    mounted(self)
    threading.Thread(target=fail).start()
    self.call_later(lambda: asyncio.ensure_future(fails()) and None)
    self.set_timer(1.0, fail)
Kasmon.on_mount = on_mount
sys.argv = ["kasmon"]
sys.exit(main())
"""


def test_an_error_in_the_dashboard_is_logged_with_its_place_and_without_a_value(home: Home) -> None:
    """In a thread, in a task that nobody awaits, and so that it ends; the terminal has one line of it."""
    with Dashboard(home, argv=(sys.executable, "-P", "-c", BROKEN)) as dashboard:
        assert 1 == dashboard.ended()
        said = dashboard.seen.decode()
    log = home.paths.own_log.read_text()

    assert PIECE not in said + log
    assert "the dashboard crashed (ValueError)" in said
    assert "Traceback" not in said
    assert 3 == log.count("ValueError < <string>:")
    assert 3 <= len(log.splitlines())
    assert 0o600 == home.paths.own_log.stat().st_mode & 0o777
