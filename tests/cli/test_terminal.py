"""Sessions in tmux through the command line: what a terminal adds to the contract."""

import shutil
import sys

import pytest

from tests.support.cli.cli_runner import LIMIT_S, Cli
from tests.support.wait import until

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")


def test_any_program_is_started_prompted_read_and_stopped(kasmon: Cli) -> None:
    done = kasmon("new", "copy", "--", "cat")
    assert (0, "") == (done.code, done.err)
    wanted = done.out.strip()

    assert "submitted" == kasmon.json("send", "copy", "hello $(id)")["receipt"]["state"]
    until(lambda: 2 <= kasmon("read", "copy").out.count("hello $(id)"))
    assert ["hello $(id)"] == kasmon.json("read", "copy", "--range", "0:0")["lines"]

    shown = kasmon.json("show", "copy")["session"]
    assert (wanted, "cat", "tmux", "tmux") == tuple(shown[name] for name in ("id", "agent", "mode", "backend"))
    assert {"width", "height", "cursor", "title", "cwd", "window", "clients", "attach"} == set(shown["pane"])
    assert (120, 40, str(kasmon.home)) == (shown["pane"]["width"], shown["pane"]["height"], shown["pane"]["cwd"])

    assert "ended" == kasmon.json("stop", "copy")["session"]["state"]
    assert kasmon.json("show", "copy")["session"]["pane"] is None


def test_a_program_that_fails_at_once_is_reported_with_its_last_output(kasmon: Cli) -> None:
    done = kasmon("new", "made", "--", "sh", "-c", "echo oh no; exit 7")
    again = kasmon("restart", "made", "--json")

    session = done.out.strip()
    assert [1, 1] == [done.code, again.code]
    assert f"session 'made' exited immediately with exit code 7: oh no. `kasmon read {session}` shows" in done.err
    assert done.err.startswith("kasmon: ")
    assert ("ended", 7) == (again.json["session"]["state"], again.json["session"]["exit_code"])
    assert "launch" == again.json["error"]["code"]


def test_a_program_that_finishes_at_once_is_reported_and_no_failure(kasmon: Cli) -> None:
    done = kasmon("new", "made", "--", "sh", "-c", "echo all made")

    assert 0 == done.code
    assert "exited immediately with exit code 0: all made." in done.err


def test_a_command_works_until_it_exits_and_asks_where_it_prints_a_question(kasmon: Cli) -> None:
    kasmon("new", "train", "--", "sh", "-c", "read line; printf 'Go on? [y/N] '; read answer; exit 3")
    kasmon("new", "own", "--", "sh")

    assert 0 == kasmon("wait", "train", "--for", "working").code
    kasmon("send", "train", "start")
    assert 0 == kasmon("wait", "train", "--for", "asking").code
    kasmon("send", "own", "sleep 1000")
    assert 0 == kasmon("wait", "own", "--for", "working").code
    until(lambda: "process" == kasmon.json("show", "own")["session"]["source"])
    kasmon("stop", "own")


@pytest.mark.parametrize(
    "question",
    [
        "Password: ",
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
        "Overwrite results? ",
        "Press Enter to continue...",
    ],
)
def test_a_command_that_waits_after_its_question_asks(kasmon: Cli, question: str) -> None:
    kasmon("new", "train", "--", sys.executable, "-c", f"input({question!r})")

    assert 0 == kasmon("wait", "train", "--for", "asking").code
    kasmon("stop", "train")


SUSPENDED = """#!/bin/sh
trap 'clear; echo back' CONT
echo 'Claude Code is suspended. Run `fg` to bring it back.'
while :; do sleep 0.1; done
"""


def test_an_agent_stopped_by_ctrl_z_is_reported_and_fg_continues_it(kasmon: Cli) -> None:
    """tmux continues a pane's own program at once, so Claude only waits for SIGCONT, and its screen says so."""
    program = kasmon.home / "claude"
    program.write_text(SUSPENDED)
    program.chmod(0o755)
    kasmon("new", "plain", "--", "cat")
    kasmon("new", "job", "--", str(program))

    refused = kasmon("fg", "plain")
    assert (4, True) == (refused.code, "'plain' is not suspended" in refused.err)
    until(lambda: "stopped (SIGTSTP)" == kasmon.json("show", "job")["session"]["unsure_why"])
    assert 0 == kasmon("fg", "job").code
    until(lambda: "back" in kasmon("read", "job").out)
    until(lambda: "stopped (SIGTSTP)" != kasmon.json("show", "job")["session"]["unsure_why"])


def test_a_further_window_is_a_child(kasmon: Cli) -> None:
    parent = kasmon("new", "copy", "--", "cat").out.strip()
    child = kasmon("new", "beside", "--in", "copy", "--", "cat").out.strip()

    assert {parent: None, child: parent} == {one["id"]: one["parent"] for one in kasmon.json("ls")["sessions"]}


def test_a_program_without_a_protocol_falls_back_and_gives_the_reason(kasmon: Cli) -> None:
    done = kasmon("new", "sh", "--agent", "shell", "--mode", "sdk")

    assert 0 == done.code
    assert "has no structured protocol" in done.err
    assert "has no structured protocol" in kasmon.json("show", "sh")["session"]["fallback"]


def test_an_unknown_program_is_not_moved_and_the_alternative_is_named(kasmon: Cli) -> None:
    kasmon("new", "copy", "--", "cat")

    done = kasmon("move", "copy", "--to", "sdk")

    assert 4 == done.code
    assert "cannot move 'copy' to 'sdk': it runs 'cat', which has no profile" in done.err
    assert "[agents.cat]" in done.err


@pytest.mark.parametrize("outer", ["", "/tmp/other,1,0"], ids=["in a terminal", "inside a tmux"])
def test_attach_opens_the_real_terminal_until_the_user_detaches(kasmon: Cli, outer: str) -> None:
    kasmon("new", "copy", "--", "sh", "-c", "echo ready; exec cat")

    def has_arrived() -> bool:
        return "typed here" in kasmon("read", "copy").out

    code, said = kasmon.terminal("attach", "copy", typed=[("ready", "typed here\r"), (has_arrived, "\x1d")], TMUX=outer)

    assert (0, True) == (code, "detached" in said)
    assert bool(outer) == ("tmux inside your tmux" in said)


def test_attach_to_a_finished_session_shows_its_output(kasmon: Cli) -> None:
    session = kasmon("new", "it", "--agent", "scripted", "--mode", "tmux").out.strip()
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")
    kasmon.json("send", session, "say hello", "--wait", "idle", "--timeout", "20")
    until(lambda: kasmon.json("show", session)["session"]["unviewed"], LIMIT_S)

    kasmon.terminal("attach", session, typed=[("hello", "\x1d")])

    assert not kasmon.json("show", session)["session"]["unviewed"]


def test_without_a_terminal_attach_names_the_command_line(kasmon: Cli) -> None:
    kasmon("new", "copy", "--", "cat")

    done = kasmon("attach", "copy")

    assert 2 == done.code
    assert "attach-session -t '$" in done.err
