"""`kasmon recover` after a crash of everything: real hosts, a real tmux, scripted agents."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial

import pytest

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import LogOpened, SessionCreated
from kasmon.model.permission import SessionId
from kasmon.store.event_log import EventLog
from kasmon.tmux.server import TmuxServer
from tests.support.cli.cli_runner import Cli
from tests.support.supervisor.env import NOW, launch, started
from tests.support.wait import until

pytestmark = pytest.mark.story
ONE = "77b5ba32-6465-44a1-9d8d-363508bac732"
OTHER = "2b5dd54d-cf7b-4ac3-a4b0-5a7227407766"


def test_recover_resumes_a_conversation_and_reports_the_loss_of_other_sessions(kasmon: Cli) -> None:
    talk = kasmon("new", "talk", "--agent", "scripted", "--mode", "sdk", "--prompt", "say one").out.strip()
    shell = kasmon("new", "shell", "--", "sleep", "600").out.strip()
    kasmon("wait", "talk", "--for", "idle")
    tmux = kasmon.json("show", "shell")["session"]
    for lock in (kasmon.paths.host_lock(SessionId(talk)), kasmon.paths.tmux_host_lock):
        os.kill(until(partial(lock_holder, lock)), signal.SIGKILL)
        until(lambda lock=lock: lock_holder(lock) is None)  # type: ignore[misc]  # one lock after the other
    os.kill(tmux["pid"], signal.SIGKILL)
    TmuxServer(kasmon.paths.tmux_socket).kill_server()
    shutil.rmtree(kasmon.paths.runtime)  # as after a reboot

    would = kasmon.json("recover", "--dry-run")["recovered"]
    done = kasmon("recover")

    assert {talk, shell} == {one["session"] for one in would}
    assert 0 == done.code, done.err
    assert f"talk: resumed conversation script-{talk}, matched by its id" in done.out
    assert "shell: unchanged: kasmon knows of no conversation that its program stores" in done.out
    assert "Lost: its conversation; its screen and scrollback" in done.out
    states = {one["id"]: (one["state"], one["generation"]) for one in kasmon.json("ls")["sessions"]}
    assert {talk: ("idle", 2), shell: ("lost", 1)} == states


def test_a_choice_that_names_no_session_is_refused_and_where_nothing_is_lost_it_says_so(kasmon: Cli) -> None:
    assert 2 == kasmon("recover", "--choose", "talk").code
    assert 3 == kasmon("recover", "--choose", "nobody=77b5ba32").code
    assert "Nothing is lost.\n" == kasmon("recover").out


def test_an_agent_that_runs_without_its_host_is_named_with_the_command_that_stops_it(kasmon: Cli) -> None:
    orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    where, me = kasmon.paths, SessionId("aaaaaaaa")
    where.folder(me).mkdir(mode=0o700, parents=True)
    EventLog(where.fleet_log).append(SessionCreated(at=NOW, launch=launch(me, name="docs"), machine="here"))
    for event in (LogOpened(at=NOW, session=me), started(pid=orphan.pid)):
        EventLog(where.log(me)).append(event)

    assert f"(pid {orphan.pid}); `kasmon stop {me}` stops it" in kasmon("recover", "--dry-run").err
    assert f"`kasmon stop {me}`" in kasmon("show", "docs").out
    assert 0 == kasmon("stop", me).code
    orphan.communicate()
    assert -signal.SIGTERM == orphan.returncode


def test_sessions_whose_tmux_host_was_killed_are_unsure_and_get_it_back(kasmon: Cli) -> None:
    one = kasmon("new", "one", "--", "sleep", "600").out.strip()
    other = kasmon("new", "other", "--", "sh", "-c", "until test -e go; do sleep 0.05; done; exit 7").out.strip()
    os.kill(until(lambda: lock_holder(kasmon.paths.tmux_host_lock)), signal.SIGKILL)
    until(lambda: lock_holder(kasmon.paths.tmux_host_lock) is None)

    would = kasmon.json("recover", "--dry-run")
    assert lock_holder(kasmon.paths.tmux_host_lock) is None
    assert (["one", "other"], []) == (sorted(would["unsure"]), would["lost"])
    assert {(one, "the tmux host would be restarted"), (other, "the tmux host would be restarted")} == {
        (each["session"], each["did"]) for each in would["recovered"]
    }
    (kasmon.home / "go").touch()
    until(lambda: "lost" in [each["state"] for each in kasmon.json("ls")["sessions"]])
    done = kasmon("recover")

    assert (0, ["1 session is unsure: host gone", "one: the tmux host was restarted"]) == (
        done.code,
        done.out.splitlines(),
    )
    now = {each["id"]: (each["state"], each["exit_code"]) for each in kasmon.json("ls")["sessions"]}
    assert {other: ("ended", 7)} == {id_: seen for id_, seen in now.items() if id_ == other}
    assert "Nothing is lost.\n" == kasmon("recover").out


def test_the_user_chooses_among_several_conversations_of_a_folder_and_nothing_is_started_before(kasmon: Cli) -> None:
    program = kasmon.home / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {kasmon.home}/started\nexec sleep 600\n')
    program.chmod(0o755)
    on_path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    kasmon("new", "worker", "--agent", "claude", "--mode", "tmux", **on_path)
    transcripts = kasmon.home / ".claude/projects/-work"
    transcripts.mkdir(parents=True)
    for id_ in (ONE, OTHER):
        line = {"type": "user", "cwd": str(kasmon.home), "message": {"role": "user", "content": f"hello {id_[:4]}"}}
        (transcripts / f"{id_}.jsonl").write_text(json.dumps(line, separators=(",", ":")))
    until(lambda: (kasmon.home / "started").exists())
    os.kill(until(lambda: lock_holder(kasmon.paths.tmux_host_lock)), signal.SIGKILL)
    TmuxServer(kasmon.paths.tmux_socket).kill_server()
    until(lambda: lock_holder(kasmon.paths.tmux_host_lock) is None)

    told = kasmon("recover", **on_path)
    code, screen = kasmon.terminal("recover", typed=[("Which conversation?", "2\n")], **on_path)

    assert 1 == told.code
    assert "2 conversations of its folder match: choose with --choose worker=ID" in told.out
    assert "first: 'hello 77b5'" in told.out
    assert 0 == code, screen
    chosen = next(id_ for id_ in (ONE, OTHER) if f"conversation {id_}, chosen by you" in screen)
    assert chosen in screen.split("  2  ")[1].splitlines()[0]
    until(lambda: f"--resume {chosen}" in (kasmon.home / "started").read_text())
    assert [("worker", 2)] == [(one["name"], one["generation"]) for one in kasmon.json("ls")["sessions"]]
