"""A closed or full output, a linked folder, a log that is no file: one plain sentence each, and nothing is lost."""

import os
import stat
import subprocess
import sys

import pytest

from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON


def in_shell(kasmon: Cli, script: str) -> subprocess.CompletedProcess[str]:
    """*script* run by sh, with `$K` as kasmon."""
    command = " ".join(f"'{word}'" for word in KASMON)
    return subprocess.run(
        ["sh", "-c", f'K="{command}"; {script}'],
        capture_output=True,
        text=True,
        env=kasmon.environment,
        cwd=kasmon.home,
        timeout=40,
    )


@pytest.mark.parametrize("command", ["ls", "ls --json", "new one --agent scripted --mode sdk", "--help"])
def test_a_closed_standard_output_is_reported_in_one_sentence_and_nothing_is_done(kasmon: Cli, command: str) -> None:
    done = in_shell(kasmon, f'eval "$K" {command} >&-')

    assert 1 == done.returncode
    told = "cannot print: standard output is closed. Nothing was done; redirect it to a file or to /dev/null."
    assert f"kasmon: {told}\n" == done.stderr
    assert not list(kasmon.paths.sessions.glob("*"))


def test_no_file_of_kasmon_gets_the_number_of_a_closed_stream(kasmon: Cli) -> None:
    """What a started host inherits as its input is /dev/null then, and not a log or a socket."""
    done = in_shell(
        kasmon, 'eval "$K" new one --agent scripted --mode sdk <&- 2>&- && eval "$K" ls --state idle <&- 2>&-'
    )

    assert 0 == done.returncode
    assert "one" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/full")
@pytest.mark.parametrize("command", ["ls", "ls --json"])
def test_a_full_output_is_reported_in_one_sentence(kasmon: Cli, command: str) -> None:
    done = in_shell(kasmon, f'eval "$K" {command} >/dev/full')

    assert 1 == done.returncode
    assert "kasmon: a system call failed: No space left on device.\n" == done.stderr


def test_a_runtime_folder_that_is_a_link_is_refused_at_once(kasmon: Cli) -> None:
    kasmon("new", "one", "--agent", "scripted", "--mode", "sdk")
    elsewhere = kasmon.home / "other"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "kasmon").symlink_to(kasmon.paths.runtime)
    why = (
        f"kasmon: cannot use '{elsewhere}/kasmon': it is a symbolic link. Move it away: kasmon creates "
        "a folder there.\n"
    )

    for command in (("send", "one", "hello"), ("stop", "one"), ("new", "two", "--agent", "scripted", "--mode", "sdk")):
        done = kasmon(*command, XDG_RUNTIME_DIR=str(elsewhere))
        assert (1, why) == (done.code, done.err)
    doctor = kasmon("doctor", XDG_RUNTIME_DIR=str(elsewhere))
    assert f"'{elsewhere}/kasmon' is a symbolic link, which kasmon does not follow" in doctor.out


def test_a_log_that_is_a_fifo_makes_its_session_unsure_and_hides_no_other(kasmon: Cli) -> None:
    for name in ("one", "two"):
        kasmon("new", name, "--agent", "scripted", "--mode", "sdk")
    sessions = {session["name"]: session for session in kasmon("ls", "--json").json["sessions"]}
    log = kasmon.paths.log(sessions["one"]["id"])
    kept = log.rename(log.with_name("kept"))
    os.mkfifo(log)

    seen = {session["name"]: session for session in kasmon("ls", "--json").json["sessions"]}
    shown = kasmon("show", "one")
    searched = kasmon("grep", "nothing like it")
    recovered, as_json = kasmon("recover", "--dry-run"), kasmon.json("recover", "--dry-run")
    log.unlink()
    kept.rename(log)

    assert ("unsure", "its log cannot be read: it is not a regular file") == (
        seen["one"]["state"],
        seen["one"]["unsure_why"],
    )
    assert "unsure" != seen["two"]["state"]
    assert 1 == shown.code
    assert (
        f"kasmon: cannot use '{log}': it is not a regular file. Restore the original file, or move this one away.\n"
    ) == shown.err
    assert ("", "kasmon: unsure: one: its log cannot be read: it is not a regular file\n") == (
        recovered.out,
        recovered.err,
    )
    assert (["one"], []) == (as_json["unsure"], as_json["lost"])
    assert f"one could not be searched: '{log}': it is not a regular file" in searched.err
    assert sessions["one"]["id"] in kasmon("ls", "--state", "idle").out


def test_a_fleet_log_that_is_a_fifo_is_reported_in_one_sentence(kasmon: Cli) -> None:
    kasmon.paths.make()
    os.mkfifo(kasmon.paths.fleet_log)

    done = kasmon("ls")

    assert 69 == done.code
    assert (
        f"kasmon: cannot read '{kasmon.paths.fleet_log}': it is not a regular file. Run `kasmon "
        "doctor` for a diagnosis.\n" == done.err
    )


@pytest.mark.parametrize("name", ["config.toml", "rules.toml"])
def test_a_settings_file_that_is_a_fifo_is_reported_and_blocks_no_command(kasmon: Cli, name: str) -> None:
    kasmon.paths.config.mkdir(mode=0o700, exist_ok=True)
    os.mkfifo(kasmon.paths.config / name)

    done = kasmon("rules") if name == "rules.toml" else kasmon("config")

    assert 0 != done.code
    assert "it cannot be read (it is not a regular file)" in done.err


def test_an_index_that_is_a_fifo_is_read_by_no_command_and_written_by_none(kasmon: Cli) -> None:
    kasmon("new", "one", "--agent", "scripted", "--mode", "sdk", "--prompt", "say the word")
    for index in (kasmon.paths.index, kasmon.paths.search_index):
        index.unlink(missing_ok=True)
        os.mkfifo(index)

    assert "one" in kasmon("ls").out
    assert 0 == kasmon("grep", "say the word").code
    assert stat.S_ISFIFO(kasmon.paths.index.lstat().st_mode)


def test_a_runtime_folder_that_is_a_file_is_refused_at_once(kasmon: Cli) -> None:
    elsewhere = kasmon.home / "other"
    elsewhere.mkdir(mode=0o700)
    os.mkfifo(elsewhere / "kasmon", 0o700)

    done = kasmon("new", "one", "--agent", "scripted", "--mode", "sdk", XDG_RUNTIME_DIR=str(elsewhere))

    why = f"cannot write into '{elsewhere}/kasmon': a file is in the way. Run `kasmon doctor` for a diagnosis."
    assert (69, f"kasmon: {why}\n") == (done.code, done.err)
