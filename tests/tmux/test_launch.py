"""What a pane runs until it is the agent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kasmon import launch
from kasmon.tmux.launch_file import PaneLaunch, fresh_nonce, launch_argv, write_environment, write_spec
from kasmon.tmux.server import TmuxServer
from tests.support.tmux.hub_listener import Listener, python
from tests.support.tmux.sync_hub import panes_of

SAY = "import os, sys; print(os.getcwd(), sys.argv[1:], flush=True)\n"
SURROUNDINGS = {
    "PATH": os.environ["PATH"],
    "HOME": "/home/somebody",
    "LC_CTYPE": "C.UTF-8",
    "XDG_STATE_HOME": "/state",
    "TERM": "tmux-256color",
    "TMUX": "/tmp/t.sock,1,0",
    "TMUX_PANE": "%1",
    "KASMON_SESSION": "kother",
    "CLAUDECODE": "1",
    "ANTHROPIC_API_KEY": "not for you",
    "NO_COLOR": "1",
    "PYTHONPATH": "/elsewhere",
}


def run(folder: Path, spec: PaneLaunch, surroundings: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What comes of *spec* without any tmux."""
    write_spec(folder / "spec", spec)
    environment = SURROUNDINGS if surroundings is None else surroundings
    return subprocess.run(launch_argv(folder / "spec"), env=environment, capture_output=True, text=True, cwd="/")


def variables(folder: Path, **spec: object) -> dict[str, str]:
    """The environment that an agent finds."""
    show = python("import os; print('\\0'.join(f'{name}={value}' for name, value in os.environ.items()), end='')")
    answer = run(folder, PaneLaunch(argv=show, workdir=folder, **spec))  # type: ignore[arg-type]
    return dict(pair.split("=", 1) for pair in answer.stdout.split("\0"))


def test_the_agent_starts_in_its_directory_with_its_arguments(folder: Path) -> None:
    workdir = folder / "a dir#(touch x);"
    workdir.mkdir()
    answer = run(folder, PaneLaunch(argv=[*python(SAY), "two words", "", ";", "-x", "é\udcff"], workdir=workdir))

    assert f"{workdir} ['two words', '', ';', '-x', 'é\\udcff']\n" == answer.stdout
    assert not (folder / "x").exists()


def test_only_base_variables_are_passed_on(folder: Path) -> None:
    found = variables(folder)

    assert {"PATH", "HOME", "LC_CTYPE", "XDG_STATE_HOME", "TERM", "COLORTERM"} == set(found) - {"LANG"}
    assert "truecolor" == found["COLORTERM"]


def test_its_own_variables_override_them_with_any_content(folder: Path) -> None:
    own = {"HOME": "/elsewhere", "TOKEN": "a=b\nc é ;#()", "EMPTY": "", "TMUX": "/x,1,1"}
    write_environment(folder / "env", own)
    found = variables(folder, env_file=folder / "env")

    assert {**own, "TMUX": None} == {name: found.get(name) for name in own}


def test_the_caller_of_a_launch_may_pass_the_base(folder: Path) -> None:
    """The tmux server's own surroundings are as old as it is."""
    found = variables(folder, base={"PATH": "/new/bin:/bin", "OPENAI_API_KEY": "no", "TERM": "dumb"})

    assert ("/new/bin:/bin", "tmux-256color", None) == (found["PATH"], found["TERM"], found.get("HOME"))
    assert "OPENAI_API_KEY" not in found


def test_the_agent_has_its_own_umask_and_receives_signals_that_python_ignores(folder: Path) -> None:
    answer = run(
        folder,
        PaneLaunch(argv=["/bin/sh", "-c", "umask; kill -PIPE $$; echo not reached"], workdir=folder, umask=0o027),
    )

    assert "0027" == answer.stdout.strip()
    assert -signal.SIGPIPE == answer.returncode


@pytest.mark.parametrize(
    ("argv", "workdir", "code", "sentence"),
    [
        (["no-such-program"], "", 127, "kasmon: 'no-such-program' was not found. Nothing was started."),
        (["/no/such/program"], "", 127, "kasmon: '/no/such/program' was not found. Nothing was started."),
        (["./plain"], "", 126, "kasmon: './plain' is not executable. Nothing was started."),
        (["./broken"], "", 126, "kasmon: cannot run './broken': Exec format error. Nothing was started."),
        (["true"], "gone", 127, "gone': No such file or directory. Nothing was started."),
        (["true"], "plain", 126, "plain': Not a directory. Nothing was started."),
        (["\x1b]52;c;x\x07"], "", 127, "kasmon: '\\x1b]52;c;x\\x07' was not found. Nothing was started."),
    ],
    ids=["not found", "no such path", "not executable", "no program", "no directory", "a file", "hostile name"],
)
def test_a_failed_start_gives_the_reason_in_one_plain_sentence(
    folder: Path, argv: list[str], workdir: str, code: int, sentence: str
) -> None:
    (folder / "plain").write_text("just text")
    (folder / "broken").write_bytes(b"\x00\x01\x02")
    (folder / "broken").chmod(0o700)
    answer = run(folder, PaneLaunch(argv=argv, workdir=folder / workdir))

    assert code == answer.returncode
    assert "" == answer.stdout
    assert answer.stderr.endswith(f"{sentence}\n")
    assert 1 == answer.stderr.count("\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand a directory away")
def test_an_inaccessible_directory_is_reported(folder: Path) -> None:
    """As a user without rights, since root may enter anything."""
    (folder / "closed").mkdir(mode=0o700)
    write_spec(folder / "spec", PaneLaunch(argv=["true"], workdir=folder / "closed"))
    os.chown(folder / "spec", 65534, 65534)
    folder.chmod(0o755)
    (folder / "launch.py").write_bytes(Path(launch.__file__).read_bytes())
    (folder / "launch.py").chmod(0o644)
    command = ["/usr/bin/python3", str(folder / "launch.py"), str(folder / "spec")]
    answer = subprocess.run(command, user=65534, group=65534, extra_groups=[], capture_output=True, text=True, cwd="/")

    assert 126 == answer.returncode
    assert "closed': Permission denied. Nothing was started." in answer.stderr


@pytest.mark.parametrize("flaw", ["missing", "open to others", "a link", "torn", "no pairs", "no command"])
def test_a_launch_file_that_is_not_private_and_complete_starts_nothing(folder: Path, flaw: str) -> None:
    path = folder / "spec"
    write_spec(path, PaneLaunch(argv=["touch", str(folder / "started")], workdir=folder))
    if flaw == "missing":
        path.unlink()
    elif flaw == "open to others":
        path.chmod(0o640)
    elif flaw == "a link":
        path.rename(folder / "real")
        path.symlink_to(folder / "real")
    else:
        path.write_bytes({"torn": path.read_bytes()[:-1], "no pairs": b"hello\0", "no command": b"workdir=/\0"}[flaw])
    answer = subprocess.run(launch_argv(path), capture_output=True, text=True)

    assert 125 == answer.returncode
    assert answer.stderr.endswith("Nothing was started.\n")
    assert not (folder / "started").exists()


def test_a_missing_environment_file_starts_nothing(folder: Path) -> None:
    assert 125 == run(folder, PaneLaunch(argv=["true"], workdir=folder, env_file=folder / "env")).returncode


@pytest.mark.parametrize("pair", [{"": "x"}, {"A=B": "x"}, {"A": "x\0y"}, {"A\0": "x"}], ids=repr)
def test_an_invalid_variable_is_not_written(folder: Path, pair: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be written to"):
        write_environment(folder / "env", pair)


def test_the_written_files_are_private(folder: Path) -> None:
    write_environment(folder / "env", {"A": "x"})
    write_spec(folder / "spec", PaneLaunch(argv=["true"], workdir=folder))

    assert [0o600, 0o600] == [(folder / name).stat().st_mode & 0o777 for name in ("env", "spec")]


def test_it_imports_nothing_slow() -> None:
    """It stands between a person and every agent, so it is as light as Python itself."""
    listed = "import os, stat, sys; print(*sys.modules)"
    bare = subprocess.run([sys.executable, "-I", "-S", "-c", listed], capture_output=True, text=True).stdout.split()
    code = f"import sys; sys.path.insert(0, {str(Path(launch.__file__).parent)!r}); import launch; {listed}"
    ours = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True).stdout.split()

    assert {"launch", "_signal"} >= set(ours) - set(bare)


def test_a_pane_sends_its_nonce_and_its_agent_has_no_tmux_variables(
    listener: Listener, server: TmuxServer, folder: Path
) -> None:
    nonce = fresh_nonce()
    spec = PaneLaunch(
        argv=["/bin/sh", "-c", "echo [$TMUX$TMUX_PANE] $TERM; cat"],
        workdir=folder,
        nonce=nonce,
        program=server.program,
        socket=server.socket,
    )
    write_spec(folder / "spec", spec)
    pane = server.create("agent", launch_argv(folder / "spec")).pane_id

    listener.until(lambda: nonce in [seen.ready for seen in panes_of(server) if seen.pane_id == pane])
    listener.until_shown(pane, "[] tmux-256color")


def test_a_server_that_cannot_be_notified_does_not_affect_the_agent(folder: Path) -> None:
    spec = PaneLaunch(argv=["echo", "started"], workdir=folder, nonce="ab", program="/no/tmux", socket=folder / "none")

    assert "started\n" == run(folder, spec).stdout
