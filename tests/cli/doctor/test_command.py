"""`kasmon doctor` names what is wrong, and what to do about it; it mends only what is harmless to mend."""

import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from kasmon.cli.doctor.agents import fallbacks, versions
from kasmon.cli.doctor.checks import judge_tmux
from kasmon.cli.doctor.command import mend
from kasmon.cli.doctor.result import DoctorCheck
from kasmon.cli.doctor.system import limits, sqlite
from kasmon.paths import user_paths
from kasmon.system.linux import Linux
from tests.support.cli.cli_runner import Cli, Done
from tests.support.wait import until


def fixed(done: Done) -> list[str]:
    """What was mended of this kasmon's; others of root may have left something on this machine, too."""
    return [name for name in done.json["fixed"] if name != "sandbox-left"]


def levels(done: Done) -> dict[str, str]:
    return {check["id"]: check["level"] for check in done.json["checks"]}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for a PATH with one tmux in it, which the test writes."""
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def fake_tmux(folder: Path, said: str) -> None:
    (folder / "tmux").write_text(f"#!/bin/sh\necho '{said}'\n")
    (folder / "tmux").chmod(0o755)


@pytest.mark.parametrize(
    ("said", "level", "why"),
    [
        ("tmux 2.6", "fail", "too old"),
        ("tmux 3.1c", "fail", "too old"),
        ("tmux 3.2a", "warn", "dead pane"),
        ("tmux 3.3a", "warn", "dead pane"),
        ("tmux 3.4", "ok", ""),
        ("tmux 3.5a", "ok", ""),
        ("tmux 3.6a", "warn", "copy mode"),
        ("tmux 3.7", "fail", "3.7a"),
        ("tmux 3.7a", "ok", ""),
        ("tmux next-3.8", "ok", ""),
        ("tmux master", "ok", ""),
        ("screen 4.9", "fail", "not tmux"),
        ("", "fail", "not tmux"),
    ],
)
def test_tmux_versions_with_known_crashes_are_named(said: str, level: str, why: str) -> None:
    assert (level, True) == (judge_tmux(said)[0], why in judge_tmux(said)[1])


def test_an_old_or_missing_tmux_is_reported_with_its_fix(kasmon: Cli, tools: Path) -> None:
    missing = kasmon("doctor", "--json", PATH=str(tools))
    fake_tmux(tools, "tmux 2.6")
    old = kasmon("doctor", PATH=str(tools))

    assert (1, "fail") == (missing.code, levels(missing)["tmux"])
    assert (1, True, True) == (old.code, "tmux 2.6" in old.out, "Install tmux 3.4" in old.out)


def test_each_check_has_all_its_fields_and_looking_changes_nothing(kasmon: Cli) -> None:
    done = kasmon("doctor", "--json")

    assert 0 == done.code
    assert {"id", "level", "text", "fix", "fixable"} == set().union(*done.json["checks"])
    assert {"python", "tmux", "terminal", "folder-state", "disk", "socket-path", "config", "agents", "hosts"} <= set(
        levels(done)
    )
    assert ["c", "r", "s"] == sorted(path.name for path in kasmon.home.rglob("*"))


def test_each_kind_of_sandbox_is_tried_and_an_unavailable_one_shows_how_to_get_it(kasmon: Cli) -> None:
    told = {check["id"]: check for check in kasmon("doctor", "--json", E2B_API_KEY="").json["checks"]}

    assert {"sandbox-jail", "sandbox-microvm", "sandbox-e2b"} <= told.keys()
    assert "unavailable" in told["sandbox-e2b"]["text"]
    assert "E2B_API_KEY" in told["sandbox-e2b"]["fix"]
    assert "tried in" in told["sandbox-jail"]["text"] or told["sandbox-jail"]["level"] == "warn"


def test_an_optional_or_inapplicable_check_is_information_and_ok_in_json(kasmon: Cli) -> None:
    rows = dict(
        row.split(maxsplit=2)[1::-1] for row in kasmon("doctor", E2B_API_KEY="").out.splitlines() if row[0] > " "
    )
    programs = levels(kasmon("doctor", "--json", E2B_API_KEY=""))

    assert ("info", "info", "ok") == (rows["sandbox-e2b"], rows["terminal"], rows["python"])
    assert ("ok", "ok") == (programs["sandbox-e2b"], programs["terminal"])


def test_doctor_lists_which_agents_get_hooks_and_why_others_get_none(kasmon: Cli, tmp_path: Path) -> None:
    for name in ("claude", "codex", "gemini"):
        (tmp_path / name).write_text("#!/bin/sh\necho codex-cli 0.1.0\n")
        (tmp_path / name).chmod(0o755)
    kasmon.environment["PATH"] = f"{tmp_path}:{kasmon.environment['PATH']}"
    told = {check["id"]: check["text"] for check in kasmon("doctor", "--json").json["checks"]}

    assert "fallback" not in told
    assert "claude: by an argument" in told["hooks"]
    assert "codex: none, hooks are untested with codex-cli 0.1.0; it reports its state itself" in told["hooks"]
    assert "claude: it reports its status (OSC 7501) only to a terminal that answers" in told["status"]
    assert "codex" not in told["status"]
    assert "gemini: none, it accepts them only from your own settings or from root's" in told["hooks"]


def test_a_folder_that_others_can_write_to_is_fixed(kasmon: Cli) -> None:
    kasmon.paths.make()
    kasmon.paths.state.chmod(0o777)

    told, mended = kasmon("doctor", "--json"), kasmon("doctor", "--fix", "--json")

    assert (1, "fail") == (told.code, levels(told)["folder-state"])
    assert (0, "ok", ["folder-state"]) == (mended.code, levels(mended)["folder-state"], fixed(mended))
    assert 0o700 == stat.S_IMODE(kasmon.paths.state.stat().st_mode)


def test_sockets_without_a_listener_are_removed_and_no_others(kasmon: Cli) -> None:
    session = kasmon.new("alive", "wait")
    stale = kasmon.paths.socket("goneaaaa")
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(stale))

    assert "warn" == levels(kasmon("doctor", "--json"))["sockets"]
    assert ["sockets"] == fixed(kasmon("doctor", "--fix", "--json"))

    assert not stale.exists()
    assert kasmon.paths.socket(session).exists()


def test_a_broken_config_and_a_long_path_are_reported(kasmon: Cli) -> None:
    kasmon.paths.config.mkdir(parents=True)
    kasmon.paths.config_file.write_text("[keys]\nfly = 'f'\n")
    broken = kasmon("doctor", "--json")
    assert (1, "fail") == (broken.code, levels(broken)["config"])

    kasmon.paths.config_file.write_text("[ui]\nbel = 1\n")
    assert "config.toml:2" in kasmon("doctor").out


def test_a_report_holds_no_secret_and_no_name(kasmon: Cli) -> None:
    token = "ghp" + "_" + "abcdefghijklmnopqrstuvwxyz0123456789"
    kasmon.paths.make()
    kasmon.paths.config.mkdir(parents=True, exist_ok=True)
    kasmon.paths.config_file.write_text(
        '[agents.claude]\nenv = { CANARY = "canary-in-config" }\nflags = ["--api-key", "canary-1", "--token=canary2"]\n'
        '[notify]\ncommand = ["curl", "-H", "Authorization: canary-3", "https://canary-4:canary-5@example.org"]\n'
    )
    session = kasmon.new("canary-client", "wait")
    os.kill(kasmon.json("show", session)["session"]["host"]["pid"], signal.SIGKILL)
    until(lambda: "lost" == kasmon.json("show", session)["session"]["state"])
    kasmon.paths.own_log.write_text(f"line with {token} and canary-in-config\n")

    done = kasmon("doctor", "--report", CANARY="canary-in-environment", USER="canary", LOGNAME="canary")

    assert "canary" not in done.out
    assert token not in done.out
    assert str(kasmon.home) not in done.out
    assert f"lost or unsure: {session}" in done.out
    assert "6 secrets are redacted" in done.out


def test_a_problem_that_cannot_be_fixed_is_reported_and_the_rest_is_fixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck = DoctorCheck(id="stuck", level="warn", text="", mend=(tmp_path / "not there").rmdir)
    stale = DoctorCheck(id="stale", level="warn", text="", mend=(tmp_path / "stale").touch)

    assert ["stale"] == mend([stuck, stale, DoctorCheck(id="fine", level="ok", text="")])
    assert f"kasmon: stuck was not fixed: a system call failed '{tmp_path}/not there'" in capsys.readouterr().err


def test_an_unwritable_state_folder_is_reported_with_the_doctor_command(kasmon: Cli) -> None:
    (kasmon.home / "s" / "kasmon").write_text("")

    done = kasmon("new", "x", "--agent", "scripted")

    assert 69 == done.code
    assert f"cannot write into '{kasmon.home}/s/kasmon': a file is in the way. Run `kasmon doctor`" in done.err
    assert "fail" == levels(kasmon("doctor", "--json"))["folder-state"]


def test_a_folder_whose_path_is_a_file_is_reported(kasmon: Cli) -> None:
    (kasmon.home / "file").write_text("")

    told = kasmon("doctor", "--json", XDG_CONFIG_HOME=str(kasmon.home / "file"))

    assert (1, "fail") == (told.code, levels(told)["folder-config"])


def test_a_terminal_is_described(kasmon: Cli) -> None:
    _, said = kasmon.terminal("doctor", COLORTERM="truecolor")

    assert "xterm-256color, 120x40, 16 million colours" in said
    assert "encoding is utf-8" in said


def test_doctor_names_sessions_that_were_to_run_structured_and_cannot(tmp_path: Path) -> None:
    for name in ("amp", "gemini"):
        (tmp_path / name).touch(0o755)
    (tmp_path / "kasmon").mkdir(0o700)
    wished = "".join(f'[agents.{name}]\nexecution_mode = "sdk"\n' for name in ("amp", "gemini", "codex"))
    (tmp_path / "kasmon" / "config.toml").write_text(wished)
    environment = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "PATH"), str(tmp_path))

    [check] = fallbacks(user_paths(environment), environment)

    assert ("fallback", "warn") == (check.id, check.level)
    assert check.text.endswith("asked for: amp: amp has no structured protocol")
    assert "execution_mode" in check.fix


def test_a_damaged_index_is_reported_and_that_nothing_is_lost(tmp_path: Path) -> None:
    where = user_paths({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})
    where.state.mkdir(mode=0o700)
    assert "the index" not in sqlite(where).text

    where.index.write_bytes(b"SQLite format 3\x00" + b"\x07" * 4096)

    check = sqlite(where)
    assert ("warn", True) == (check.level, "damaged" in check.text)
    assert "Nothing is lost" in check.fix


def test_limits_that_many_agents_reach_are_named_with_how_to_raise_them(tmp_path: Path) -> None:
    for name, value in {"kernel/pty/max": 64, "fs/inotify/max_user_watches": 65536}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f"{value}\n")

    (check,) = limits(Linux(str(tmp_path)))

    assert "warn" == check.level
    assert "terminals: 64 (50 agents need 128)" in check.text
    assert "watches" not in check.text
    assert "kernel.pty.max" in check.fix


@pytest.mark.parametrize(
    ("said", "level", "words"),
    [
        ("2.1.332 (Claude Code)", "ok", "claude 2.1.332 (tried; tmux and sdk)"),
        ("1.0.1", "warn", "claude 1.0.1 (tested with 2.1.332"),
        ("hello", "ok", "claude that does not report its version"),
    ],
)
def test_each_agents_version_is_shown_with_the_tested_one(tmp_path: Path, said: str, level: str, words: str) -> None:
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    where = user_paths({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})

    (check,) = versions(where, {"PATH": f"{tmp_path}:/bin"})

    assert (level, True) == (check.level, words in check.text), check.text
