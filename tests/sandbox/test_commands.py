"""`kasmon sandbox ...` on real jails, by real processes: the exit codes, what is printed, what is left at the end."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import ContextReported
from kasmon.model.formatting import ending, state_label
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from kasmon.process_identity import is_running, started_at
from kasmon.sandbox.jail.jail import Jail
from kasmon.store.event_log import EventLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.notifications.alerts import alert
from kasmon.tui.action import FooterOffer
from kasmon.tui.notifications.toasts import toasts
from kasmon.tui.status_bars import offers_for
from tests.sandbox.conftest import open_to_others
from tests.support.cli.cli_runner import Cli, on_terminal
from tests.support.cli.fork_server import KASMON, ForkServer
from tests.support.other_version import OLDER, OtherVersion
from tests.support.sandbox.requirements import closed
from tests.support.sandbox.sandboxed_agents import host_of
from tests.support.wait import until

pytestmark = pytest.mark.sandboxes


@pytest.fixture
def kasmon(can_jail: None, fork_server: ForkServer) -> Iterator[Cli]:
    line = Cli(fork_server)
    yield line
    closed(line)


def made(kasmon: Cli, name: str = "lab", *more: str) -> SessionId:
    done = kasmon("sandbox", "create", name, *more)
    assert 0 == done.code, done.err
    return SessionId(done.out.strip())


def killed_host(kasmon: Cli, session: SessionId) -> None:
    pid = host_of(kasmon, session)
    born = started_at(pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_running(pid, born))


def state(kasmon: Cli, session: SessionId) -> str:
    [found] = [each for each in kasmon.json("ls")["sessions"] if each["id"] == session]
    return str(found["state"])


def test_a_run_keeps_its_variables_and_the_exit_code_is_that_of_the_code(kasmon: Cli) -> None:
    made(kasmon)

    first = kasmon("sandbox", "run", "lab", "--lang", "bash", "x=42; echo out; echo err >&2; (exit 7)")
    then = kasmon("sandbox", "run", "lab", "--lang", "bash", "-", given="echo $x")

    assert (7, "out\n", "err\n") == (first.code, first.out, first.err)
    assert (0, "42\n", "") == (then.code, then.out, then.err)


def test_a_host_of_an_older_version_leaves_its_sandbox_to_one_of_this_version(kasmon: Cli, tmp_path: Path) -> None:
    older = OtherVersion(tmp_path, OLDER)
    done = kasmon("sandbox", "create", "lab", **older.variables())
    assert 0 == done.code, done.err
    session = SessionId(done.out.strip())
    assert 0 == kasmon("sandbox", "run", "lab", "--lang", "bash", "x=42", **older.variables()).code
    before = host_of(kasmon, session)
    then = kasmon("sandbox", "run", "lab", "--lang", "bash", "echo $x")

    assert (0, "42\n", "") == (then.code, then.out, then.err)
    assert before != host_of(kasmon, session)
    assert 0 == kasmon("sandbox", "rm", "lab").code


def test_the_json_of_a_run_has_all_its_results(kasmon: Cli) -> None:
    made(kasmon)

    done = kasmon("sandbox", "run", "lab", "--env", "python", "print(1); 1/0", "--json")

    assert 1 == done.code
    ran = done.json["ran"]
    assert ("1\n", 1, True) == (ran["stdout"], ran["exit_code"], ran["session_preserved"])
    assert "ZeroDivisionError" in ran["stderr"]


def test_code_cannot_leave_the_sandbox(kasmon: Cli, tmp_path: Path) -> None:
    """The seed's own test: what is outside can neither be seen nor written to."""
    (tmp_path / "secret").write_text("mine")
    made(kasmon)

    seen = kasmon("sandbox", "run", "lab", f"cat {tmp_path}/secret; cat /etc/shadow; ls {kasmon.home}")
    wrote = kasmon("sandbox", "run", "lab", "echo x > /etc/passwd; echo x > /usr/x; id -u")

    assert "mine" not in seen.out
    assert "root:" not in seen.out
    assert 0 != seen.code
    assert "0" != wrote.out.strip()
    assert not Path("/usr/x").exists()


def test_rm_rf_in_one_sandbox_leaves_the_other_whole(kasmon: Cli) -> None:
    one, other = made(kasmon, "one"), made(kasmon, "other")
    for session in (one, other):
        assert "1000\n" == kasmon("sandbox", "run", session, "echo kept > file; id -u").out

    kasmon(
        "sandbox", "run", one, "cd /; rm -rf /workspace/* /workspace/.[!.]* /home/* /tmp/* /run/* /etc/* /opt/* 2>&1"
    )

    assert "kept\n" == kasmon("sandbox", "run", other, "cat file").out
    assert (kasmon.paths.state / "sessions" / one / "events.jsonl").exists()


def test_a_sandbox_is_paused_and_any_run_resumes_it(kasmon: Cli) -> None:
    session = made(kasmon)
    kasmon("sandbox", "run", "lab", "x=42")

    assert 0 == kasmon("sandbox", "pause", "lab").code
    assert "standby" == state(kasmon, session)
    assert "42\n" == kasmon("sandbox", "run", "lab", "echo $x").out


def test_after_its_host_was_killed_it_is_unsure_and_the_next_run_finds_it_again(kasmon: Cli) -> None:
    session = made(kasmon)
    kasmon("sandbox", "run", "lab", "x=42")
    killed_host(kasmon, session)

    assert "unsure" == state(kasmon, session)
    assert "42\n" == kasmon("sandbox", "run", "lab", "echo $x").out
    assert "idle" == until(lambda: state(kasmon, session) == "idle" and "idle")


def test_a_pause_of_a_lost_sandbox_reports_the_loss_and_is_no_success(kasmon: Cli) -> None:
    """Its host and all in it were killed: the next host makes another sandbox, which sleeps without what was held."""
    session = made(kasmon)
    kasmon("sandbox", "run", "lab", "x=42")
    runtime = kasmon.json("sandbox", "show", "lab")["session"]["pid"]
    killed_host(kasmon, session)
    os.kill(runtime, signal.SIGKILL)
    until(lambda: started_at(runtime) is None)

    done = kasmon("sandbox", "pause", "lab")
    assert 0 != done.code
    assert "interpreter state lost" in done.err
    assert 0 == kasmon("sandbox", "pause", "lab").code  # nothing was lost since


def test_recover_gives_it_a_host_again_and_lets_it_be_paused(kasmon: Cli) -> None:
    session = made(kasmon)
    kasmon("sandbox", "run", "lab", "x=42")
    kasmon("sandbox", "pause", "lab")
    killed_host(kasmon, session)

    done = kasmon("recover")

    assert (0, "lab: reconnected to its sandbox\n") == (done.code, done.out)
    assert until(lambda: state(kasmon, session) == "standby")
    assert "42\n" == kasmon("sandbox", "run", "lab", "echo $x").out


def test_without_host_and_jail_it_is_lost_and_the_next_run_reports_the_rest(kasmon: Cli) -> None:
    session = made(kasmon)
    kasmon("sandbox", "run", "lab", "echo kept > file; x=42")
    [pid] = [each["pid"] for each in kasmon.json("ls")["sessions"]]
    killed_host(kasmon, session)
    os.kill(pid, signal.SIGKILL)
    until(lambda: state(kasmon, session) == "lost")

    after = kasmon("sandbox", "run", "lab", "cat file")

    assert ("kept\n", 0) == (after.out, after.code), after.err
    assert "interpreter state lost" in after.err


def test_a_checkpoint_is_restored_and_another_session_starts_from_one(kasmon: Cli) -> None:
    made(kasmon)
    kasmon("sandbox", "run", "lab", "x=1; echo one > file")
    point = kasmon("sandbox", "checkpoint", "lab").out.strip()
    kasmon("sandbox", "run", "lab", "x=2; echo two > file")

    assert 0 == kasmon("sandbox", "fork", "lab", "twin", "--at", point).code
    assert 0 == kasmon("sandbox", "restore", "lab", point).code
    kasmon("sandbox", "run", "twin", "echo three > file")

    assert "1 one\n" == kasmon("sandbox", "run", "lab", "echo $x $(cat file)").out
    assert "1 three\n" == kasmon("sandbox", "run", "twin", "echo $x $(cat file)").out


def test_the_empty_workspace_is_restored(kasmon: Cli) -> None:
    made(kasmon)
    point = kasmon("sandbox", "checkpoint", "lab").out.strip()
    kasmon("sandbox", "run", "lab", "echo one > file")

    assert 0 == kasmon("sandbox", "restore", "lab", point).code
    assert ("0\n", 0) == (lambda done: (done.out, done.code))(kasmon("sandbox", "run", "lab", "ls | wc -l"))


def test_the_runs_of_one_sandbox_are_repeated_in_another_on_request(kasmon: Cli) -> None:
    made(kasmon, "one")
    made(kasmon, "other")
    for code in ("x=1", "x=$((x+1)); echo $x > file", "cat file; (exit 3)"):
        kasmon("sandbox", "run", "one", code)
    assert "" == kasmon("sandbox", "run", "other", "cat file 2>/dev/null").out

    done = kasmon("sandbox", "replay", "one", "other")

    assert (3, "2\n") == (done.code, done.out)
    assert "2 2\n" == kasmon("sandbox", "run", "other", "echo $x $(cat file)").out


def test_a_turns_changes_can_be_read(kasmon: Cli) -> None:
    made(kasmon)
    kasmon("sandbox", "run", "lab", "echo one > file")
    until(lambda: "after turn 1" in kasmon("sandbox", "checkpoints", "lab").out)

    assert "+one" in kasmon("sandbox", "diff", "lab").out
    assert 3 == kasmon("sandbox", "diff", "lab", "99").code


def test_a_proof_of_its_confinement_and_its_usage_are_shown(kasmon: Cli) -> None:
    session = made(kasmon)
    kasmon("sandbox", "run", "lab", "true")

    def shown() -> object:
        [found] = kasmon.json("sandbox", "ls")["sandboxes"]
        return found if found["usage"] else None

    found = until(shown)
    assert isinstance(found, dict)
    assert (session, "jail", True, []) == (found["id"], found["sandbox"], found["confined"], found["mismatches"])
    assert 512 * 1024 * 1024 == found["usage"]["memory_allowed"]


def test_a_credential_reaches_each_run_and_is_in_no_file_of_kasmon(kasmon: Cli) -> None:
    canary = "canary-5d1f0a77b3"
    kasmon.paths.config.mkdir(mode=0o700)
    kasmon.paths.config_file.write_text('[[sandbox.credentials]]\nname = "TOKEN"\nvariable = "MINE"\n')
    done = kasmon("sandbox", "create", "lab", MINE=canary)
    assert 0 == done.code, done.err

    said = kasmon("sandbox", "run", "lab", "echo $TOKEN; mine=$TOKEN; sleep 0.3; echo $TOKEN")
    kasmon("sandbox", "checkpoint", "lab")

    assert f"{canary}\n{canary}\n" == said.out
    held = [path for path in kasmon.home.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]
    assert [] == held
    assert "\n" == kasmon("sandbox", "run", "lab", "echo $mine").out
    assert canary not in kasmon("read", "lab").out


def test_ctx_works_in_the_guest_and_its_report_is_logged(kasmon: Cli) -> None:
    session = made(kasmon)
    told = kasmon("sandbox", "run", "lab", "kasmon ctx --json; kasmon ctx --waiting 'for tea'; kasmon ls")
    before = json.loads(told.out.splitlines()[0])
    write_private(kasmon.paths.context(session), b'{"title": "Brew it"}')

    tried = kasmon("sandbox", "run", "lab", "echo $KASMON_SESSION; echo {} > $KASMON_CONTEXT || echo kept")
    until(lambda: "Brew it" in kasmon("sandbox", "run", "lab", "cat $KASMON_CONTEXT").out)
    killed_host(kasmon, session)
    write_private(kasmon.paths.context(session), b'{"title": "Drink it"}')
    until(lambda: "Drink it" in kasmon("sandbox", "run", "lab", "--env", "python", CAT).out)
    kasmon("sandbox", "run", "lab", "ln -sf /etc/passwd /opt/session/hooks.jsonl; kasmon ctx --done 'all of it'")
    shown = kasmon.json("show", "lab")["session"]

    assert ("lab", session, "jail") == (before["name"], before["id"], before["sandbox"])
    assert (2, True) == (told.code, "only `kasmon ctx` is available" in told.err)
    assert [session, "kept"] == tried.out.split()
    facts = [fact for fact in EventLog(kasmon.paths.log(session)).events() if isinstance(fact, ContextReported)]
    assert [("for tea", None), (None, "all of it")] == [(fact.waiting, fact.done) for fact in facts]
    assert "all of it" == shown["done"]
    [row] = kasmon.json("sandbox", "ls")["sandboxes"]
    assert (True, []) == (row["confined"], row["mismatches"])


CAT = "import os; print(open(os.environ['KASMON_CONTEXT']).read())"


def test_interrupting_the_command_interrupts_the_run_and_keeps_the_state(kasmon: Cli) -> None:
    made(kasmon)
    kasmon("sandbox", "run", "lab", "--env", "python", "x = 42")

    code, _ = on_terminal(
        [*KASMON, "sandbox", "run", "lab", "--env", "python", "print('on', flush=True)\nwhile True: pass"],
        kasmon.environment | {"TERM": "xterm-256color"},
        kasmon.home,
        [("on", "\x03")],
    )

    assert 130 == code
    assert "42\n" == kasmon("sandbox", "run", "lab", "--env", "python", "print(x)").out


def test_a_run_whose_host_is_killed_ends_with_its_result_and_is_shown_once(kasmon: Cli) -> None:
    session = made(kasmon)
    code = "echo x >> runs; echo one; until [ -e go ]; do sleep 0.02; done; wc -l < runs"
    with subprocess.Popen(
        [*KASMON, "sandbox", "run", "lab", code], stdout=subprocess.PIPE, env=kasmon.environment, cwd=kasmon.home
    ) as running:
        assert running.stdout is not None
        assert b"one\n" == running.stdout.readline()
        killed_host(kasmon, session)
        assert 4 == kasmon("interrupt", "lab", "--run", "another").code
        kasmon("sandbox", "run", "lab", "--env", "python", "open('go', 'w').close()")

        assert [b"1\n"] == running.stdout.readlines()
        assert 0 == running.wait()


def test_a_stopped_sandbox_starts_again_over_its_files(kasmon: Cli) -> None:
    made(kasmon)
    kasmon("sandbox", "run", "lab", "x=42; echo kept > file")
    assert 0 == kasmon("stop", "lab").code
    assert 4 == kasmon("sandbox", "run", "lab", "true").code

    assert 0 == kasmon("restart", "lab").code

    assert "kept none\n" == kasmon("sandbox", "run", "lab", "echo $(cat file) ${x:-none}").out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "nobody", "true"], 3, "there is no session"),
        (["create", "x", "--dir", "/nowhere"], 2, "does not exist"),
        (["rm"], 2, "`kasmon sandbox rm` requires a sandbox"),
        (["rm", "x", "--all"], 2, "`kasmon sandbox rm` requires a sandbox"),
        (["allow", "x"], 2, "requires a host"),
    ],
)
def test_an_invalid_command_is_refused(kasmon: Cli, words: list[str], code: int, said: str) -> None:
    done = kasmon("sandbox", *words)

    assert code == done.code
    assert said in done.err


def test_another_kind_of_session_is_not_a_sandbox(kasmon: Cli) -> None:
    kasmon.new("talk")

    assert 4 == kasmon("sandbox", "run", "talk", "true").code
    assert 4 == kasmon("sandbox", "rm", "talk").code


def test_an_ended_sandbox_is_removed_like_every_session_and_leaves_no_files(kasmon: Cli) -> None:
    made(kasmon)
    kasmon("sandbox", "run", "lab", "echo kept > file")
    assert 4 == kasmon("rm", "lab").code
    kasmon("stop", "lab")

    assert 0 == kasmon("rm", "lab").code

    assert not Jail(kasmon.paths).host_folders.base.exists()


def test_rm_all_leaves_no_process_and_no_socket(kasmon: Cli) -> None:
    """Asleep, at work, with its host killed, ended, and with a folder of somebody's own, which stays."""
    mine = kasmon.home / "mine"
    mine.mkdir(mode=0o777)
    sessions = [made(kasmon, name) for name in ("asleep", "busy", "hostless", "over")]
    kasmon("sandbox", "pause", "asleep")
    kasmon("sandbox", "run", "busy", "sleep 1000 & echo $!")
    killed_host(kasmon, sessions[2])
    kasmon("stop", "over")
    pids = [each["pid"] for each in kasmon.json("ls")["sessions"] if each["pid"]]
    assert 3 == len(pids)
    born = {pid: started_at(pid) for pid in pids}

    done = kasmon("sandbox", "rm", "--all")

    assert (0, 4) == (done.code, len(done.out.splitlines())), done.err
    assert [] == kasmon.json("sandbox", "ls")["sandboxes"]
    assert not [pid for pid in pids if is_running(pid, born[pid])]
    assert until(lambda: all(lock_holder(kasmon.paths.host_lock(session)) is None for session in sessions))
    until(lambda: not any(kasmon.paths.runtime.iterdir()), what="the fork server's end")
    assert not Jail(kasmon.paths).host_folders.base.exists()


def test_create_reports_that_it_uses_the_folder_itself(kasmon: Cli, shared: Path) -> None:
    mine = open_to_others(shared / "mine")

    assert f"It works in {str(mine)!r} itself." in kasmon("sandbox", "create", "lab", "--dir", str(mine)).err
    assert {"folder": str(mine), "copy_of": None} == kasmon.json("sandbox", "show", "lab")["session"]["works_in"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that its jails may not use")
def test_create_reports_that_it_uses_a_copy_and_its_path(kasmon: Cli, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir(mode=0o700)
    done = kasmon("sandbox", "create", "lab", "--dir", str(tmp_path / "work"))
    session = SessionId(done.out.strip())
    copied = str(Jail(kasmon.paths).host_folders.of(session) / "workspace")

    assert f"It works on a copy of {str(tmp_path / 'work')!r}: {copied!r}. The original is not changed." in done.err
    where = kasmon.json("sandbox", "show", "lab")["session"]["works_in"]
    assert {"folder": copied, "copy_of": str(tmp_path / "work")} == where


def test_show_describes_every_session_also_without_a_sandbox(kasmon: Cli) -> None:
    session = kasmon("new", "plain", "--agent", "scripted", "--mode", "sdk", "--dir", str(kasmon.home)).out.strip()

    assert "no sandbox" in kasmon("sandbox", "show", session).out
    assert [] == kasmon.json("sandbox", "show", session)["session"]["checkpoints_kept"]
    kasmon("stop", session)


def test_a_failed_creation_is_shown_as_failed_everywhere_and_can_be_removed(kasmon: Cli) -> None:
    kasmon.paths.config.mkdir(mode=0o700)
    write_private(kasmon.paths.config_file, b'[[sandbox.mounts]]\nsource = "/nowhere/at/all"\n')
    assert 0 != kasmon("sandbox", "create", "lab").code
    [row] = [each for each in kasmon.json("ls")["sessions"] if each["name"] == "lab"]
    [seen] = [each for each in read_fleet(kasmon.paths).sessions if each.name == "lab"]

    for words in (["ls"], ["sandbox", "ls"], ["sandbox", "show", "lab"], ["show", "lab"], ["explain", "lab"]):
        shown = kasmon(*words).out
        assert "ended (failed)" in shown
        assert "creating" not in shown
    assert "/nowhere/at/all" in kasmon("sandbox", "show", "lab").out
    assert "failed" == ending(seen) == state_label(seen)
    [toast] = toasts({seen.id: replace(seen, state=SessionState.STARTING)}, [seen])
    called = alert(seen, "crashed")
    assert ["lab failed", "lab failed"] == [toast.title, called.title]
    assert "/nowhere/at/all" in toast.text
    assert "/nowhere/at/all" in called.text
    assert FooterOffer.ENDED in offers_for(seen, is_somewhere=True, has_sessions=True)
    assert 0 == kasmon("rm", row["id"]).code
    assert [] == kasmon.json("ls")["sessions"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that its jails may not use")
def test_rm_names_the_copy_of_a_folder_that_stays_and_how_to_remove_it(kasmon: Cli, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir(mode=0o700)
    session = made(kasmon, "lab", "--dir", str(tmp_path / "work"))
    kasmon("sandbox", "run", "lab", "--lang", "bash", "echo mine > made")
    copied = Jail(kasmon.paths).host_folders.of(session) / "workspace"
    done = kasmon("sandbox", "rm", "lab")

    assert (0, "mine\n") == (done.code, (copied / "made").read_text())
    assert f"which is kept: {copied}. `rm -r {copied}` deletes it." in done.err
