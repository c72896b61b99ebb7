"""What is sent to another machine says what it should whatever stands in it; a shell of this machine plays that one."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.errors import RemoteLaunchError, RemoteUnreachableError
from kasmon.tmux.process_identity import identify
from kasmon.tmux.remote import agent
from kasmon.tmux.remote.agent import RemoteOutcome, RemoteStart, build_marker, saw_marker
from kasmon.tmux.remote.ssh import RemoteMachine
from tests.support.wait import until

SSH = """#!/bin/sh
echo "$*" >>"$HOME/ssh-calls"
while [ "$1" != -- ]; do shift; done
shift 2
exec sh -c "$*"
"""
"""Runs here what ssh would have run there, as its login shell would: one text."""
HOSTILE = 'it\'s "$(touch $HOME/ran)" `touch $HOME/ran` $HOME\\ *\n;touch $HOME/ran #{pane_id} é'
SAYS = 'for word; do printf "<%s>" "$word"; done >"$HOME/said"; printf "%s" "$WORD" >"$HOME/word"; pwd >"$HOME/pwd"; '


class There:
    """The machine, and what its ssh gets of variables."""

    def __init__(self, home: Path) -> None:
        self.home = home
        program = home / "ssh"
        program.write_text(SSH)
        program.chmod(0o755)
        self.machine = RemoteMachine("box", (str(program),))
        self.variables = {**os.environ, "HOME": str(home), "TMUX_TMPDIR": str(home), "SHELL": "/bin/sh"}
        self.variables.pop("XDG_STATE_HOME", None)

    def start(self, *argv: str, folder: str = "", variables: dict[str, str] | None = None) -> bool:
        wanted = RemoteStart(session="abcdefgh", argv=argv, folder=folder, variables=variables or {}, history_lines=100)
        return agent.start(self.machine, wanted, self.variables)

    def state(self, *, tidy: bool = False) -> RemoteOutcome:
        return agent.state(self.machine, "abcdefgh", self.variables, tidy=tidy)

    @property
    def files(self) -> Path:
        return self.home / ".local/state/kasmon-remote/abcdefgh"


@pytest.fixture
def there() -> Iterator[There]:
    home = Path(tempfile.mkdtemp(prefix="kr-", dir="/tmp"))
    yield There(home)
    tmux = [os.environ.get("KASMON_TMUX", "tmux"), "-L", agent.SOCKET, "kill-server"]
    subprocess.run(tmux, env={**os.environ, "TMUX_TMPDIR": str(home)}, capture_output=True, check=False)
    shutil.rmtree(home)


def test_arguments_variables_and_folder_arrive_unchanged_and_no_shell_runs_them(there: There) -> None:
    folder = there.home / "it's a $(touch ran)"
    folder.mkdir()

    there.start("sh", "-c", SAYS, "sh", HOSTILE, "", "-x", folder=folder.name, variables={"WORD": HOSTILE})
    until(lambda: there.state().state == "ended")

    assert f"<{HOSTILE}><><-x>" == (there.home / "said").read_text()
    assert HOSTILE == (there.home / "word").read_text()
    assert f"{folder}\n" == (there.home / "pwd").read_text()
    assert not list(there.home.rglob("ran"))


def test_no_variable_is_on_a_command_line_or_stays_in_a_file(there: There) -> None:
    there.start("sh", "-c", "exec cat", variables={"TOKEN": "open-sesame"})
    until(lambda: (there.files / "pid").exists())

    assert "open-sesame" not in (there.home / "ssh-calls").read_text()
    assert not [path for path in there.files.iterdir() if "open-sesame" in path.read_text()]
    assert 0o600 == (there.files / "pid").stat().st_mode & 0o777
    assert 0o700 == there.files.stat().st_mode & 0o777
    with pytest.raises(ValueError, match="not a valid shell variable name"):
        there.start("true", variables={"A-B": "x"})


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("exit 0", RemoteOutcome("ended", 0)),
        ("exit 7", RemoteOutcome("ended", 7)),
        ("exit 255", RemoteOutcome("ended", 255)),
        ("kill -9 $$", RemoteOutcome("ended", None, 9)),
    ],
)
def test_its_end_is_known_until_it_is_deleted(there: There, script: str, answer: RemoteOutcome) -> None:
    there.start("sh", "-c", script)
    until(lambda: there.state().state == "ended")

    assert [answer, answer, RemoteOutcome("gone")] == [there.state(), there.state(tidy=True), there.state()]
    assert not there.files.exists()


def test_a_running_agent_is_not_started_twice_and_an_ended_one_is(there: There) -> None:
    count = 'echo x >>"$HOME/count"; '

    assert [True, False] == [there.start("sh", "-c", f"{count}read x"), there.start("sh", "-c", f"{count}read x")]
    until((there.home / "count").exists)
    agent.stop(there.machine, "abcdefgh", 0, there.variables)
    until(lambda: there.state().state == "ended")
    assert there.start("sh", "-c", f"{count}read x")
    until(lambda: (there.home / "count").read_text() == "x\nx\n")


def test_an_agent_that_ignores_signals_is_killed(there: There) -> None:
    there.start("sh", "-c", "trap '' HUP TERM; touch $HOME/deaf; while :; do sleep 0.05; done")
    until((there.home / "deaf").exists)

    agent.stop(there.machine, "abcdefgh", 0.2, there.variables)

    until(lambda: there.state() == RemoteOutcome("ended", None, 9))


def test_an_agent_does_not_outlive_its_tmux(there: There) -> None:
    there.start("sh", "-c", "while :; do sleep 0.05; done")
    until((there.files / "pid").exists)
    pid = int(until(lambda: (there.files / "pid").read_text()))

    tmux = [os.environ.get("KASMON_TMUX", "tmux"), "-L", agent.SOCKET, "kill-server"]
    subprocess.run(tmux, env=there.variables, check=True)

    until(lambda: identify(pid) is None)


def test_a_failed_start_gives_the_reason(there: There) -> None:
    for argv, folder, why in [(("not-there",), "", "no program 'not-there'"), (("sh",), "no", "no folder 'no'")]:
        with pytest.raises(RemoteLaunchError, match=why):
            there.start(*argv, folder=folder)
    there.variables["PATH"] = "/no/such"
    with pytest.raises(RemoteUnreachableError):
        there.start("sh")
    with pytest.raises(RemoteUnreachableError, match="cannot be run"):
        agent.state(RemoteMachine("box", ("/no/such",)), "abcdefgh", {})


def test_attaching_puts_the_machine_after_all_options_and_only_if_valid() -> None:
    argv = agent.attach_argv(RemoteMachine("me@box", ("ssh", "-F", "x")), "abcdefgh", "0123abcd")

    assert ["ssh", "-F", "x"] == argv[:3]
    assert ["--", "me@box"] == argv[-3:-1]
    assert 1 == argv[-1].count("KASMON_READY_0123abcd")
    for session, nonce in [("a b", "00"), ("abcdefgh", "0; reboot")]:
        with pytest.raises(ValueError, match=r"."):
            agent.attach_argv(RemoteMachine("box"), session, nonce)


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        ([b"$ ", b"  KASMON_READY_0a1b  ", b""], True),
        ([b"$ printf KASMON_READY_0a1b"], False),
        ([b"KASMON_READY_0a1b2"], False),
        ([], False),
    ],
    ids=["on a line of its own", "in what is typed", "another's", "an empty screen"],
)
def test_a_marker_must_be_on_a_line_of_its_own(rows: list[bytes], seen: bool) -> None:
    assert seen is saw_marker(rows, "0a1b")


@pytest.mark.parametrize("nonce", ["", "; rm -rf /", "0A"])
def test_only_hex_makes_a_marker(nonce: str) -> None:
    with pytest.raises(ValueError, match="no hex nonce"):
        build_marker(nonce)
