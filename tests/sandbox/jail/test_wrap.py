"""An agent's program inside a jail of its own, on its caller's pipes or terminal."""

import contextlib
import fcntl
import json
import os
import platform
import pty
import select
import stat
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import NotFoundError, RefusedError, SandboxError
from kasmon.model.sandbox.policy import Mount
from kasmon.process_identity import started_at
from kasmon.sandbox.jail import seccomp
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.jail.probe import lacking
from kasmon.sandbox.shared.processes import tree
from tests.sandbox.conftest import command_of, open_to_others, policy
from tests.sandbox.jail.test_attack import NO_FILTER
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes

PYTHON = "/usr/bin/python3"
VARIABLES = {"PATH": os.environ["PATH"], "TERM": "xterm-256color"}

CATCHES = """
import time
try:
    print('ready')
    time.sleep(60)
except KeyboardInterrupt:
    print('interrupted')
print(input())
"""
TYPES = """
import fcntl
try:
    fcntl.ioctl(0, 0x5412, b'!')
    print('typed')
except OSError as error:
    print(error.strerror)
"""
LOOKS = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
while True:
    print('{}x{}'.format(*os.get_terminal_size()), flush=True)
    signal.sigwait({signal.SIGWINCH})
"""
NOTES = """
import os
print(os.getcwd())
open('made', 'w').write('x')
note = os.path.expanduser('~/.resume')
open(note, 'a').write('id ')
print(open(note).read())
"""
CLI = """#!/usr/bin/env node
console.log(require('helper'), process.argv.slice(2).join())
try { require('fs').writeFileSync(__filename, '') } catch (error) { console.log(error.code) }
"""


@pytest.fixture
def workdir(shared: Path) -> Path:
    return open_to_others(shared / "work")


def wrapped(jail: Jail, workdir: Path, *argv: str, variables: Mapping[str, str] = VARIABLES) -> list[str]:
    return jail.wrap(policy(), argv, str(workdir), variables)


def run(command: Sequence[str], said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=said, capture_output=True, text=True, timeout=20)


class Terminal:
    """A program on a terminal of its own, which it controls."""

    def __init__(self, command: Sequence[str]) -> None:
        self.ours, theirs = pty.openpty()
        self.size(40, 120)
        self.child = subprocess.Popen(["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.text = ""

    def size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def shows(self, text: str) -> bool:
        if select.select([self.ours], [], [], 0.01)[0]:
            with contextlib.suppress(OSError):
                self.text += os.read(self.ours, 65536).decode("utf-8", "replace")
        return text in self.text

    def until_shown(self, text: str) -> None:
        try:
            until(lambda: self.shows(text))
        except TimeoutError:
            raise AssertionError(f"{text!r} is not in {self.text!r}") from None

    def close(self) -> None:
        os.close(self.ours)
        self.child.kill()
        self.child.wait()


@pytest.fixture
def on_terminal() -> Iterator[type[Terminal]]:
    opened: list[Terminal] = []

    class Noted(Terminal):
        def __init__(self, command: Sequence[str]) -> None:
            super().__init__(command)
            opened.append(self)

    yield Noted
    for each in opened:
        each.close()


def test_it_prints_and_exits_as_it_would_without_a_jail(jail: Jail, workdir: Path) -> None:
    code = "import sys; print(sys.stdin.read().upper()); print('to stderr', file=sys.stderr); sys.exit(7)"
    did = run(wrapped(jail, workdir, PYTHON, "-c", code), "hello")

    assert (7, "HELLO\n", "to stderr\n") == (did.returncode, did.stdout, did.stderr)


def test_it_is_confined_and_not_root(jail: Jail, workdir: Path) -> None:
    child = subprocess.Popen(wrapped(jail, workdir, "sleep", "60"))
    try:
        until(lambda: len(tree(child.pid)) >= 3)
        uids = {os.stat(f"/proc/{pid}").st_uid for pid in tree(child.pid)}  # noqa: PTH116

        assert {jail.host_folders.owner[0]} == uids
        assert 0 not in uids
        assert (True, ()) == msgspec.structs.astuple(jail.prove(policy(), child.pid, workdir=str(workdir)))
    finally:
        child.kill()
        child.wait()
    assert jail.prove_inside(policy(), workdir=str(workdir)).ok


def test_its_folder_is_at_its_path_and_its_home_is_kept_for_the_next_run(jail: Jail, workdir: Path) -> None:
    code = NOTES
    first = run(wrapped(jail, workdir, PYTHON, "-c", code))
    second = run(wrapped(jail, workdir, PYTHON, "-c", code))

    assert f"{workdir}\nid \n" == first.stdout, first.stderr
    assert f"{workdir}\nid id \n" == second.stdout
    assert (workdir / "made").exists()
    assert "id id " == (jail.host_folders.home(policy().session) / ".resume").read_text()


def test_it_has_the_passed_variables_and_none_that_have_no_meaning_in_the_guest(jail: Jail, workdir: Path) -> None:
    given = {
        **VARIABLES,
        "AGENT_KEY": "value",
        "HOME": "/root",
        "XDG_STATE_HOME": "/x",
        "SSH_AUTH_SOCK": "/y",
        "HTTPS_PROXY": "http://z",
    }
    command = wrapped(
        jail, workdir, PYTHON, "-c", "import json, os; print(json.dumps(dict(os.environ)))", variables=given
    )
    did = run(command)
    assert 0 == did.returncode, did
    has = json.loads(did.stdout)

    assert "value" == has["AGENT_KEY"]
    assert "/home/sandbox" == has["HOME"]
    assert set() == {"XDG_STATE_HOME", "SSH_AUTH_SOCK", "KASMON_LISTEN_FD"} & has.keys()
    assert "http://127.0.0.1:3128" == has["HTTPS_PROXY"]
    assert "value" not in " ".join(command)
    (spec,) = jail.host_folders.of(policy().session).glob("enter-*.json")
    assert 0o600 == stat.S_IMODE(spec.stat().st_mode)
    assert os.geteuid() == spec.stat().st_uid


def test_it_ends_with_its_starter(jail: Jail, workdir: Path) -> None:
    """Killed without a chance to say so."""
    command = wrapped(jail, workdir, "sleep", "60")
    starts = f"import subprocess; print(subprocess.Popen({command!r}).pid, flush=True); input()"
    starter = subprocess.Popen([sys.executable, "-c", starts], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert starter.stdout is not None
    assert starter.stdin is not None
    outer = int(starter.stdout.readline())
    inner = until(lambda: tree(outer)[2:])
    starter.kill()
    starter.wait()
    starter.stdin.close()
    starter.stdout.close()

    until(lambda: started_at(inner[0]) is None)


def test_it_is_ended_with_its_session(jail: Jail, workdir: Path) -> None:
    child = subprocess.Popen(wrapped(jail, workdir, "sleep", "60"))
    until(lambda: len(tree(child.pid)) >= 3)
    jail.destroy(policy(), None)

    assert child.wait(60) != 0


def test_arguments_after_the_file_are_added_to_the_command(jail: Jail, workdir: Path) -> None:
    assert "one two --three\n" == run([*wrapped(jail, workdir, "echo", "one"), "two", "--three"]).stdout


def test_ctrl_c_reaches_the_program_and_not_the_jail(jail: Jail, workdir: Path, on_terminal: type[Terminal]) -> None:
    code = CATCHES
    terminal = on_terminal(wrapped(jail, workdir, PYTHON, "-c", code))
    terminal.until_shown("ready")
    terminal.type("\x03")
    terminal.until_shown("interrupted")
    terminal.type("goes on\r")
    terminal.until_shown("goes on\r\ngoes on")

    assert 0 == terminal.child.wait(60)


def test_it_is_notified_of_a_new_window_size(jail: Jail, workdir: Path, on_terminal: type[Terminal]) -> None:
    terminal = on_terminal(wrapped(jail, workdir, PYTHON, "-c", LOOKS))
    terminal.until_shown("120x40")
    terminal.size(24, 80)
    terminal.until_shown("80x24")


def test_a_shell_has_job_control(jail: Jail, workdir: Path, on_terminal: type[Terminal]) -> None:
    terminal = on_terminal(wrapped(jail, workdir, "/bin/bash", "--norc", "-i"))
    terminal.type("cat\r")
    until(lambda: b"cat\0" in [command_of(pid) for pid in tree(terminal.child.pid)])
    terminal.type("\x1a")
    terminal.until_shown("Stopped")
    terminal.type("fg\r")
    terminal.until_shown("l\rcat\r\n")
    terminal.type("again\r")
    terminal.until_shown("again\r\nagain")
    terminal.type("\x04exit 5\r")

    assert 5 == terminal.child.wait(60)


@pytest.mark.parametrize("guarded", [True, False])
def test_no_guest_process_types_into_the_terminal(
    jail: Jail, workdir: Path, on_terminal: type[Terminal], monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The terminal is a test's own: what is typed is read back by the program itself."""
    if not guarded:
        monkeypatch.setattr(seccomp, "build_filter", lambda machine: NO_FILTER)
    code = TYPES
    terminal = on_terminal(wrapped(jail, workdir, PYTHON, "-c", code))
    terminal.child.wait(60)
    if not guarded and terminal.shows("Input/output error"):
        pytest.skip("this kernel lets nobody type into a terminal")

    terminal.until_shown("Operation not permitted" if guarded else "typed")


def test_nothing_runs_with_a_wrong_filter_or_file(jail: Jail, workdir: Path) -> None:
    *front, name = wrapped(jail, workdir, "touch", "ran")
    path = Path(name)
    good = json.loads(path.read_text())
    spoiled = {
        "no filter": {**good, "seccomp": ""},
        "no words": {key: value for key, value in good.items() if key != "words"},
    }
    if "user" in good:
        spoiled["root"] = {key: value for key, value in good.items() if key != "user"}
    for what, spec in spoiled.items():
        path.write_text(json.dumps(spec))
        did = run([*front, name])
        assert (125, True) == (did.returncode, "Nothing was started" in did.stderr), what
    path.write_text(json.dumps(good))
    path.chmod(0o644)
    assert 125 == run([*front, name]).returncode
    assert 125 == run([*front, str(path.with_name("none"))]).returncode
    assert not (workdir / "ran").exists()
    path.chmod(0o600)
    assert 0 == run([*front, name]).returncode
    assert (workdir / "ran").exists()


def test_without_a_filter_for_this_architecture_there_is_no_jail(
    jail: Jail, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxError, match="riscv64"):
        wrapped(jail, workdir, "true")
    assert lacking("bwrap") is not None


def test_the_files_of_an_npm_agent_are_visible_and_read_only(jail: Jail, workdir: Path, shared: Path) -> None:
    package = open_to_others(shared / "lib" / "node_modules") / "@maker" / "agent"
    other = package.parents[1] / "helper"
    for folder in (package, other, package.parents[1] / ".bin"):
        folder.mkdir(parents=True)
    (other / "index.js").write_text("module.exports = 'with its helper'")
    (package / "cli.js").write_text(CLI)
    (package / "cli.js").chmod(0o755)
    (package.parents[1] / ".bin" / "agent").symlink_to("../@maker/agent/cli.js")
    search = f"{package.parents[1] / '.bin'}:{os.environ['PATH']}"
    did = run(wrapped(jail, workdir, "agent", "a", "b", variables={"PATH": search}))

    assert ["with its helper a,b", "EROFS"] == did.stdout.splitlines(), did.stderr


def test_a_missing_program_and_a_forbidden_folder_are_refused(jail: Jail, workdir: Path) -> None:
    with pytest.raises(NotFoundError):
        wrapped(jail, workdir, "no-such-program")
    for folder in ("/", "/usr/lib", "/no/such/folder"):
        with pytest.raises(RefusedError):
            wrapped(jail, Path(folder), "true")
    with pytest.raises(RefusedError):
        jail.wrap(policy(mounts=(Mount(source="/no/such"),)), ["true"], str(workdir), VARIABLES)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that its jails may not use")
def test_root_is_notified_that_the_agent_works_on_a_copy(jail: Jail, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    outfit = jail.wrap_agent(policy(), ["cat", "file"], str(tmp_path), VARIABLES)

    assert "here" == run(outfit.command).stdout
    assert any(str(tmp_path) in notice and outfit.workdir in notice for notice in outfit.notices)
    assert Path(outfit.workdir) == jail.host_folders.of(policy().session) / "workspace"


def test_an_agent_is_stopped_and_continues(jail: Jail, workdir: Path, on_terminal: type[Terminal]) -> None:
    from kasmon.sandbox.jail import cgroup

    terminal = on_terminal(wrapped(jail, workdir, PYTHON, "-c", "print('ready'); print(input() * 2)"))
    terminal.until_shown("ready")
    assert cgroup.stop_tree(terminal.child.pid) is not None
    terminal.type("ab\r")
    assert not terminal.shows("abab")
    cgroup.continue_tree(terminal.child.pid)
    terminal.until_shown("abab")
    assert 0 == terminal.child.wait(60)
