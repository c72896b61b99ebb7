"""Any agent inside a jail, by kasmon's own command line: in a terminal and structured, its home, its sleep."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import ConnectionLost, NoticeRaised, SandboxPhaseChanged
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.process_identity import is_running, started_at
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.shared.host_folders import jail_owner, may_use
from kasmon.sandbox.shared.processes import is_inside, tree
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions import session_operations
from tests.support.cli.cli_runner import Cli
from tests.support.sandbox.sandboxed_agents import (
    ACP,
    LIMIT_S,
    facts,
    folder,
    killed_host,
    lined,
    seen,
    session_of,
    shows,
    standby_after,
    stands_still,
    started,
    until_state,
)
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes
kasmon, workdir = pytest.fixture(lined), pytest.fixture(folder)


def test_a_shell_in_a_jail_sees_only_its_folder_and_is_proven_to(kasmon: Cli, workdir: Path) -> None:
    (kasmon.home / "secret").write_text("mine")
    session = started(kasmon, workdir, "--env", "OWN=given")
    found = seen(kasmon, session)
    assert (True, ()) == (found.ok, found.mismatches)
    until_state(kasmon, session, SessionState.IDLE)

    row = kasmon.json("show", session)["session"]
    assert ("jail", True, [], found.pid) == (row["sandbox"], row["confined"], row["mismatches"], row["pid"])
    assert found.pid is not None
    assert is_inside(found.pid)
    assert 0 != os.stat(f"/proc/{found.pid}").st_uid  # noqa: PTH116

    kasmon(
        "send", session, f"clear; ls /; cat {kasmon.home}/secret; id -u; echo $OWN $HOME $KASMON_SESSION; pwd; touch x"
    )
    screen = shows(kasmon, session, str(workdir))
    assert "mine" not in screen
    assert "root" not in screen.split()
    assert f"given /home/sandbox {session}" in screen
    assert (workdir / "x").exists()
    kasmon("send", session, "clear; env | sort; echo th''en")
    assert "XDG_" not in shows(kasmon, session, "then")


def test_its_network_is_off(kasmon: Cli, workdir: Path) -> None:
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "clear; cat /proc/net/dev | wc -l; (echo > /dev/tcp/192.0.2.1/80) 2>&1; echo th''en")
    screen = shows(kasmon, session, "then")

    assert "3" == screen.split()[-3 if "unreachable" not in screen else 0] or "unreachable" in screen


def test_ctrl_c_resizing_and_exit_codes_are_as_without_a_jail(kasmon: Cli, workdir: Path) -> None:
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "clear; stty size; sleep 60")
    shows(kasmon, session, "40 120")
    until(
        lambda: any(b"sleep" in Path(f"/proc/{pid}/comm").read_bytes() for pid in tree(seen(kasmon, session).pid or 0))
    )
    assert 0 == kasmon("interrupt", session).code
    shows(kasmon, session, "^C")
    kasmon("send", session, "exit 7")
    until_state(kasmon, session, SessionState.ENDED)

    assert 7 == session_of(kasmon, session).exit_code
    until(lambda: not (Jail(kasmon.paths).host_folders.of(session) / "own").exists(), LIMIT_S, "all being cleared up")


def test_an_agent_is_found_again_after_its_host_was_killed_and_stopped_with_its_children(
    kasmon: Cli, workdir: Path
) -> None:
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "setsid sleep 300 & echo be''gun")
    shows(kasmon, session, "begun")
    front = seen(kasmon, session).runtime
    assert front is not None
    family = [(pid, started_at(pid)) for pid in tree(front.front)]
    killed_host(kasmon)

    assert 0 == kasmon("send", session, "echo ag''ain").code
    shows(kasmon, session, "again")
    assert seen(kasmon, session, 2).pid == session_of(kasmon, session).pid
    assert 1 == session_of(kasmon, session).generation
    assert 0 == kasmon("stop", session).code
    until(lambda: not any(is_running(pid, born) for pid, born in family), LIMIT_S, "the end of all of them")


def test_its_home_survives_a_restart_and_is_removed_with_the_session(kasmon: Cli, workdir: Path) -> None:
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "echo kept > ~/note; echo th''en")
    shows(kasmon, session, "then")
    assert 0 == kasmon("stop", session).code
    assert 0 == kasmon("restart", session).code
    seen(kasmon, session, 2)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "clear; cat ~/note; echo th''en")
    assert "kept" in shows(kasmon, session, "then").split()
    kasmon("stop", session)
    assert 0 == kasmon("rm", session).code

    assert not Jail(kasmon.paths).host_folders.of(session).exists()


def test_ctx_works_in_the_guest_and_reports_the_reason_of_waiting(kasmon: Cli, workdir: Path) -> None:
    session = started(kasmon, workdir, "--task", "3", "--wave", "2")
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "clear; kasmon ctx --json; kasmon ctx --waiting 'for tea'; kasmon ls; echo th''en")
    screen = shows(kasmon, session, "then")

    assert '"task":3' in screen.replace(" ", "").replace("\n", "")
    assert "only `kasmon ctx` is available" in screen
    until(lambda: session_of(kasmon, session).waits == "for tea", LIMIT_S)
    kasmon(
        "send",
        session,
        "clear; kasmon ctx --done 'all of it'; ln -sf /etc/passwd /opt/session/hooks.jsonl; echo th''en",
    )
    until(lambda: session_of(kasmon, session).done == "all of it", LIMIT_S)
    assert "Read-only file system" in shows(kasmon, session, "then")


def test_an_unused_agent_is_paused_and_a_prompt_resumes_it_first(kasmon: Cli, workdir: Path) -> None:
    standby_after(kasmon, 0.5)
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.STANDBY)
    assert stands_still(session_of(kasmon, session).pid)
    steps = [(move.phase.value, move.step) for move in facts(kasmon, session, SandboxPhaseChanged) if move.held]
    assert [("pausing", "intended"), ("paused", "confirmed")] == steps

    done = kasmon("send", session, "echo aw''ake")
    assert 0 == done.code, done.err
    shows(kasmon, session, "awake")
    assert "running" in [move.phase.value for move in facts(kasmon, session, SandboxPhaseChanged)]
    until(lambda: session_of(kasmon, session).receipts[-1].exit_code == 0, LIMIT_S)

    until_state(kasmon, session, SessionState.STANDBY)
    killed_host(kasmon)
    assert 0 == kasmon("send", session, "echo ag''ain").code
    shows(kasmon, session, "again")
    until_state(kasmon, session, SessionState.STANDBY)
    assert 0 == kasmon("stop", session).code


def test_an_agent_keeps_running_while_its_host_cannot_use_tmux(kasmon: Cli, workdir: Path) -> None:
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    agent = session_of(kasmon, session).pid
    born = started_at(agent)
    killed_host(kasmon)
    assert 0 != kasmon("send", session, "true", KASMON_TMUX="no-such-tmux").code
    until(lambda: facts(kasmon, session, ConnectionLost), LIMIT_S)
    killed_host(kasmon)

    assert 0 == kasmon("new", "other", "--dir", str(workdir), "--", "cat").code
    assert 0 == kasmon("send", session, "echo ag''ain").code
    shows(kasmon, session, "again")
    assert (agent, True) == (session_of(kasmon, session).pid, is_running(agent, born))


def test_a_working_agent_is_not_paused_and_a_paused_one_is_resumed_by_hand(kasmon: Cli, workdir: Path) -> None:
    standby_after(kasmon, 600, "auto_resume = false\n")
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "sleep 600")
    until_state(kasmon, session, SessionState.WORKING)
    assert "can be paused only when idle" in kasmon("sandbox", "pause", session).err
    kasmon("interrupt", session)
    until_state(kasmon, session, SessionState.IDLE)
    assert 0 == kasmon("sandbox", "pause", session).code
    assert "auto_resume" in kasmon("send", session, "true").err
    assert 0 == kasmon("sandbox", "resume", session).code
    until_state(kasmon, session, SessionState.IDLE)


@pytest.mark.skipif(
    not may_use(Path(sys.base_prefix), jail_owner(Path()), writable=False),
    reason="the Python that kasmon runs on here is not open to the user that jails run as",
)
def test_the_scripted_agent_runs_in_its_terminal_and_is_refused_structured(kasmon: Cli, workdir: Path) -> None:
    refused = kasmon("new", "mine", "--agent", "scripted", "--mode", "sdk", "--sandbox", "jail")
    assert (4, True) == (refused.code, "part of its host" in refused.err)
    session = started(kasmon, workdir, agent="scripted")
    assert seen(kasmon, session).ok
    until_state(kasmon, session, SessionState.IDLE)
    assert 0 == kasmon("send", session, "say hello from inside").code
    shows(kasmon, session, "hello from inside")


def test_any_program_runs_in_a_jail_and_a_missing_one_is_reported(kasmon: Cli, workdir: Path) -> None:
    done = kasmon(
        "new", "mine", "--sandbox", "jail", "--dir", str(workdir), "--", "/usr/bin/env", "sh", "-c", "id -u; exit 3"
    )
    session = SessionId(done.out.strip())
    until_state(kasmon, session, SessionState.ENDED)
    assert 3 == session_of(kasmon, session).exit_code
    assert "1000" in kasmon("read", session).out


def test_a_structured_agent_runs_in_the_jail_and_ends_with_its_host(kasmon: Cli, workdir: Path, shared: Path) -> None:
    agent = shared / "agent.py"
    agent.write_text(ACP)
    agent.chmod(0o644)
    profile = f"""
[agents.acp]
program = "/usr/bin/python3"
acp = [{json.dumps(str(agent))}]
[agents.acp.confined]
mounts = [{{source = {json.dumps(str(agent))}}}]
[[agents.acp.confined.credentials]]
name = "CANARY"
variable = "OUTSIDE"
"""
    kasmon.paths.config.mkdir(mode=0o700, exist_ok=True)
    kasmon.paths.config_file.write_text(profile)
    kasmon.environment |= {"OUTSIDE": "canary-of-a-test-0123456789"}
    words = ("new", "mine", "--agent", "acp", "--mode", "sdk", "--sandbox", "jail", "--dir", str(workdir))
    refused = kasmon(*words)
    assert "CANARY" in refused.err
    assert "which has not been confirmed yet" in refused.err
    done = kasmon(*words, "--yes")
    assert 0 == done.code, done.err
    session = SessionId(done.out.strip())
    found = seen(kasmon, session)
    assert (True, ()) == (found.ok, found.mismatches)
    assert found.pid == session_of(kasmon, session).pid
    assert b"CANARY=canary-of-a-test-0123456789" in Path(f"/proc/{found.pid}/environ").read_bytes()
    assert 0 == kasmon("send", session, "hello").code
    ground = Jail(kasmon.paths).host_folders.of(session)
    assert not any("canary-of-a-test" in path.read_text() for path in ground.rglob("*") if path.is_file())

    host = lock_holder(kasmon.paths.host_lock(session))
    assert host
    assert found.runtime is not None
    family = [(pid, started_at(pid)) for pid in tree(found.runtime.front)]
    os.kill(host, signal.SIGKILL)
    until(lambda: not any(is_running(pid, born) for pid, born in family), LIMIT_S, "the end of all of them")
    assert not any(
        "canary-of-a-test" in path.read_text("utf-8", "replace")
        for path in kasmon.paths.folder(session).iterdir()
        if path.is_file()
    )
    assert not facts(kasmon, session, NoticeRaised) or all(
        "confined" not in each.text for each in facts(kasmon, session, NoticeRaised)
    )
    assert 0 == kasmon(*words[:1], "other", *words[2:]).code  # what was agreed to once is not asked for again


def test_its_credentials_are_a_copy_that_is_removed_at_its_end(kasmon: Cli, workdir: Path) -> None:
    """Of a log-in, what was renewed there is not lost with it."""
    (kasmon.home / "login").write_text("token-of-a-test")
    (kasmon.home / "tokens").write_text('{"refresh_token": "one"}')
    kasmon.paths.config.mkdir(mode=0o700, exist_ok=True)
    files = '[{source = "~/login"}, {source = "~/tokens", renews = true}]'
    kasmon.paths.config_file.write_text(f"[agents.shell.confined]\nfiles = {files}\n")
    assert "~/login" in kasmon("new", "mine", "--agent", "shell", "--sandbox", "jail", "--dir", str(workdir)).err
    session = started(kasmon, workdir, "--yes")
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "clear; cat ~/login; echo changed > ~/login; sed -i s/one/two/ ~/tokens; echo th''en")
    assert "token-of-a-test" in shows(kasmon, session, "then")
    assert 0 == kasmon("stop", session).code

    home = Jail(kasmon.paths).host_folders.home(session)
    until(lambda: not (home / "login").exists() and not (home / "tokens").exists(), LIMIT_S, "its copies being gone")
    assert "token-of-a-test" == (kasmon.home / "login").read_text()
    assert '{"refresh_token": "two"}' == (kasmon.home / "tokens").read_text()
    until(lambda: "which was copied back" in str(facts(kasmon, session, NoticeRaised)), LIMIT_S, "a word of that")


def test_hibernation_pauses_its_sandbox_unless_the_agent_works_and_a_prompt_resumes_it(
    kasmon: Cli, workdir: Path
) -> None:
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.IDLE)
    found = seen(kasmon, session)
    assert 0 == kasmon("send", session, "kept=held; sleep 300").code
    until_state(kasmon, session, SessionState.WORKING)

    refused = kasmon("hibernate", session)
    assert (4, True) == (refused.code, "cannot hibernate session" in refused.err)
    assert SessionState.WORKING is session_of(kasmon, session).state
    assert 0 == kasmon("interrupt", session).code
    until_state(kasmon, session, SessionState.IDLE)
    until(lambda: not session_of(kasmon, session).awaits_turn, LIMIT_S, "the receipt")
    done = kasmon("hibernate", session)
    assert 0 == done.code, done.err
    assert "its sandbox is paused" in done.out
    until_state(kasmon, session, SessionState.STANDBY)
    assert found.pid
    assert stands_still(found.pid)

    assert 0 == kasmon("send", session, "clear; echo still-$kept").code
    shows(kasmon, session, "still-held")
    now = session_of(kasmon, session)
    assert (found.pid, 1) == (now.pid, now.generation)
    assert seen(kasmon, session).ok


def test_attaching_to_a_paused_agent_resumes_it(kasmon: Cli, workdir: Path) -> None:
    standby_after(kasmon, 0.5)
    session = started(kasmon, workdir)
    until_state(kasmon, session, SessionState.STANDBY)
    kasmon("show", session)
    assert SessionState.STANDBY is session_of(kasmon, session).state
    asyncio.run(session_operations.attach_argv(kasmon.paths, session_of(kasmon, session)))
    assert SessionState.IDLE is session_of(kasmon, session).state


def test_a_plans_task_runs_in_its_jail(kasmon: Cli, workdir: Path, shared: Path) -> None:
    agent = shared / "agent.py"
    agent.write_text(ACP.replace('result = {"stopReason"', 'open("made", "w").close(); result = {"stopReason"'))
    agent.chmod(0o644)
    kasmon.paths.config.mkdir(mode=0o700, exist_ok=True)
    kasmon.paths.config_file.write_text(
        f'[agents.acp]\nprogram = "/usr/bin/python3"\nacp = ["{agent}"]\n'
        f'[agents.acp.confined]\nmounts = [{{source = "{agent}"}}]\n'
    )
    plan = workdir / "p.toml"
    plan.write_text(
        '[[task]]\ntitle = "one"\nprompt = "go"\nagent = "acp"\nsandbox = "jail"\nworktree = "folder"\n'
        'check = "test -f made"\n'
    )
    done = kasmon("plan", "run", str(plan), "--ci", "--yes")

    assert 0 == done.code, done.err
    [session] = read_fleet(kasmon.paths).sessions
    assert "jail" == session.sandbox
    assert seen(kasmon, session.id).ok


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that its jails may not use")
def test_rm_names_the_copy_with_the_work_and_leaves_nothing_else(kasmon: Cli, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir(mode=0o700)
    session = started(kasmon, tmp_path / "work")
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "clear; echo mine > made; echo th''en")
    shows(kasmon, session, "then")
    assert 0 == kasmon("stop", session).code
    ground = Jail(kasmon.paths).host_folders.of(session)
    until_state(kasmon, session, SessionState.ENDED)
    done = kasmon("rm", session)

    assert (0, f"{session}): removed" in done.out) == (done.code, True)
    assert f"which is kept: {ground}/workspace. `rm -r {ground}/workspace` deletes it." in done.err
    assert [ground / "workspace"] == list(ground.iterdir())
    assert "mine\n" == (ground / "workspace" / "made").read_text()
