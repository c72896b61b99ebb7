"""Commands on a session of another machine, on two real kasmons joined by a link."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.cli.machines import delegation
from kasmon.errors import OtherMachineError, UnavailableError
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc import event_loop
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.events import LogOpened, MessageWritten, SessionCreated
from kasmon.model.permission import SessionId
from kasmon.store.event_log import EventLog
from kasmon.store.machines import ALL, Machine, write_machine
from kasmon.supervisor.fleet.snapshot import read_session
from kasmon.supervisor.machines.link_client import CommandOutput
from kasmon.supervisor.review import comments
from kasmon.supervisor.sessions.session_operations import send
from kasmon.tui.gateway.live.review import read_changes
from tests.support.bus.two_command_lines import MACHINE, TwoCommandLines
from tests.support.cli.fork_server import ForkServer
from tests.support.git_repo import Repo
from tests.support.supervisor.env import NOW, launch, started
from tests.support.wait import until

pytestmark = pytest.mark.story


@pytest.fixture(scope="module")
def joined(fork_server: ForkServer) -> Iterator[TwoCommandLines]:
    joined = TwoCommandLines(fork_server)
    yield joined
    joined.close()


def test_a_session_is_renamed_viewed_stopped_restarted_and_removed_on_its_machine(joined: TwoCommandLines) -> None:
    session, here = joined.new("fix"), joined.here

    assert here.json("rename", session, "fixed")["session"]["name"] == "fixed"
    assert here.json("tag", session, "--add", "api", "--add", "x")["session"]["tags"] == ["api", "x"]
    assert here.json("tag", session, "--remove", "x")["session"]["tags"] == ["api"]
    assert joined.there.json("show", session)["session"]["tags"] == ["api"]
    assert here.json("mark", f"{MACHINE}:fixed")["session"]["unviewed"] is False
    assert here.json("stop", session)["session"]["state"] == "ended"
    restarted = here.json("restart", session)["session"]
    assert (restarted["generation"], restarted["machine"]) == (2, MACHINE)
    assert here.json("send", session, "say again", "--wait", "idle")["receipt"]["state"] == "finished"
    here.json("stop", session)
    assert here.json("rm", session)["kept"] is None

    assert joined.session(session) is None
    assert joined.there.json("ls")["sessions"] == []


def test_a_session_is_hibernated_on_its_machine_and_a_prompt_from_here_resumes_it(joined: TwoCommandLines) -> None:
    session, here = joined.new("idle"), joined.here

    hibernated = here("hibernate", f"{MACHINE}:idle")
    assert hibernated.code == 0, hibernated.err
    assert "hibernated" == joined.there.json("show", session)["session"]["state"]
    joined.until(session, lambda known: known["state"] == "hibernated" and known["freed_bytes"])
    sent = here("send", session, "say back", "--wait", "idle", "--timeout", "60")
    assert sent.code == 0, sent.err

    now = joined.until(session, lambda known: known["state"] == "idle" and known["last_line"] == "back")
    assert now["generation"] == 2
    here.json("stop", session)
    here.json("rm", session)


def test_a_message_of_a_peer_to_a_hibernated_session_there_is_accepted_once_as_that_of_a_peer(
    joined: TwoCommandLines,
) -> None:
    session, here = joined.new("sleeper"), joined.here
    assert here("hibernate", f"{MACHINE}:sleeper").code == 0
    joined.until(session, lambda known: known["state"] == "hibernated")
    known = read_session(here.paths, SessionId(session))

    first, again = (
        event_loop.run(send(here.paths, known, "say back", "idle", "peer", key="plan.other.1")) for _ in range(2)
    )

    assert first.id == again.id
    joined.until(session, lambda known: known["state"] == "idle" and known["last_line"] == "back")
    receipts = [
        each for each in joined.there.json("show", session)["session"]["receipts"] if each["text"] == "say back"
    ]
    assert [("peer", first.id)] == [(each["by"], each["id"]) for each in receipts]
    assert here("stop", session).out.startswith(f"{MACHINE}:sleeper ({session}): ")
    here.json("rm", session)


def test_after_a_limit_a_session_is_resumed_by_its_machine_as_the_user_here_requests(joined: TwoCommandLines) -> None:
    here, there = joined.here, joined.there
    session = there.new("over", "window weekly 100 7200\nlimit")
    joined.until(session, lambda known: known is not None and known["state"] == "limited")

    unasked = here("limits", "resume", f"{MACHINE}:over")
    assert (unasked.code, "--yes" in unasked.err) == (4, True)
    resumed = here("limits", "resume", f"{MACHINE}:over", "--prompt", "say back", "--yes")
    assert resumed.code == 0, resumed.err
    known = there.json("limits")["resumptions"][session]
    assert (known["is_allowed"], known["prompt"]) == (True, "say back")
    assert here("limits", "cancel", session).code == 0
    assert there.json("limits")["resumptions"][session]["is_cancelled"]

    mine = here.new("mine", "window weekly 100 7200\nlimit")
    assert here("wait", mine, "--for", "limited", "--timeout", "30").code == 0
    both = here("limits", "resume", "mine", f"{MACHINE}:over", "--yes")
    assert both.code == 2, both.out
    assert "one at a time" in both.err
    assert not here.json("limits")["resumptions"][mine]
    here.json("stop", session)
    here.json("rm", session)
    here.json("stop", mine)


def test_machines_without_arguments_lists_them(joined: TwoCommandLines) -> None:
    assert joined.here("machines", "ls").out == joined.here("machines").out
    assert joined.here("machines", "--json").json["machines"][0]["name"] == MACHINE
    assert "Commands:" in joined.here("machines", "--help").out


def test_any_command_runs_on_a_machine_with_its_output_and_exit_code(joined: TwoCommandLines) -> None:
    session = joined.new("worker")

    listed = joined.here("machines", "run", MACHINE, "--", "ls", "--json")
    assert (listed.code, listed.out) == (0, joined.there("ls", "--json").out)
    recovered = joined.here("machines", "run", MACHINE, "--", "recover")
    assert (recovered.code, recovered.out) == (0, "Nothing is lost.\n")
    sent = joined.here("machines", "run", MACHINE, "--", "send", session, "-", given="say by stdin")
    assert sent.code == 0, sent.err
    missing = joined.here("machines", "run", MACHINE, "--", "show", "nosuch")
    assert missing.code == 3
    assert "nosuch" in missing.err
    assert joined.here("machines", "run", MACHINE).code == 2
    assert joined.here("machines", "run", "other", "--", "ls").code == 3
    joined.there("stop", session)
    joined.there("rm", session)


@pytest.mark.parametrize("command", ["rules", "worktrees", "top", "recover", "plan ls"])
def test_a_list_of_this_machine_alone_shows_how_to_list_the_others(joined: TwoCommandLines, command: str) -> None:
    here, there = joined.here(*command.split()), joined.there(*command.split())
    run = f"`kasmon {command} --machine {MACHINE}`, or all"

    assert (here.code, there.code, there.err) == (0, 0, "")
    assert f"kasmon: this is of this machine only. For {MACHINE}: {run}.\n" == here.err
    assert joined.here(*command.split(), "--machine=local").err == ""
    chosen = joined.here(*command.split(), "--machine", MACHINE)
    assert (chosen.code, chosen.out, chosen.err) == (0, there.out, "")
    assert joined.here(*command.split(), "--json").err == ""
    assert joined.here("machines", "run", MACHINE, "--", *command.split()).out == there.out


def test_a_list_of_all_machines_is_one_table_and_one_array_with_the_machine_of_each_row(
    joined: TwoCommandLines,
) -> None:
    there = joined.new("loud", "say hi")
    here = joined.here.new("own", "say hi")

    printed = joined.here("top", "--machine", "all")
    listed = joined.here.json("top", "--machine=all")
    sessions = joined.here("ls", "--machine", "all")

    assert printed.code == 0, printed.err
    head, *rows = (line.split() for line in printed.out.splitlines())
    assert ["MACHINE", "NAME", "ID"] == head[:3]
    assert {("local", "own", here), (MACHINE, "loud", there)} == {tuple(row[:3]) for row in rows}
    assert [("local", here), (MACHINE, there)] == [(each["machine"], each["id"]) for each in listed["sessions"]]
    assert [here] == [each["id"] for each in listed["machines"]["local"]["sessions"]]
    assert (sessions.code, sessions.err) == (0, "")
    assert {here, there} <= set(sessions.out.split())
    assert joined.here("doctor", "--machine", "nosuch").code == 3
    for each, session in ((joined.here, here), (joined.there, there)):
        each("stop", session)
        each("rm", session)


def test_output_that_is_not_a_list_is_printed_for_all_machines_under_the_name_of_each(joined: TwoCommandLines) -> None:
    checked = joined.here("doctor", "--machine", "all")
    lines = checked.out.splitlines()

    assert ["local:", f"{MACHINE}:"] == [line for line in lines if line in ("local:", f"{MACHINE}:")], checked.err
    assert 2 == sum(line.split()[1:2] == ["sqlite"] for line in lines)
    assert {"local", MACHINE} == joined.here.json("doctor", "--machine", "all")["machines"].keys()


def test_a_recovery_on_all_machines_is_one_table(joined: TwoCommandLines) -> None:
    assert "Nothing is lost.\n" == joined.here("recover", "--machine", "all").out
    session = joined.new("talk", "say one")
    lock = joined.there.paths.host_lock(SessionId(session))
    os.kill(until(lambda: lock_holder(lock)), signal.SIGKILL)
    until(lambda: lock_holder(lock) is None)

    would = joined.here("recover", "--dry-run", "--machine", "all")
    listed = joined.here.json("recover", "--dry-run", "--machine", "all")
    done = joined.here("recover", "--machine", "all")

    head, row = would.out.splitlines()
    assert (["MACHINE", "NAME", "RESULT"], [MACHINE, "talk"]) == (head.split(), row.split()[:2])
    assert f"would resume conversation script-{session}, matched by its id" in row
    assert [(MACHINE, "talk", session)] == [
        (each["machine"], each["name"], each["session"]) for each in listed["recovered"]
    ]
    assert f"resumed conversation script-{session}" in done.out
    assert "--choose names a session of one machine" in joined.here("recover", "--choose=a=b", "--machine=all").err
    joined.there("stop", session)
    joined.there("rm", session)


def test_an_unsure_session_on_another_machine_is_named_with_the_reason(joined: TwoCommandLines) -> None:
    there, me = joined.there.paths, SessionId("aaaaaaaa")
    orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    there.folder(me).mkdir(mode=0o700, parents=True)
    EventLog(there.fleet_log).append(SessionCreated(at=NOW, launch=launch(me, name="vague"), machine="there"))
    for event in (LogOpened(at=NOW, session=me), started(pid=orphan.pid)):
        EventLog(there.log(me)).append(event)

    unsure = joined.here("recover", "--dry-run", "--machine", "all")

    assert unsure.out == "", "something may be lost"
    why = f"its host is gone, its agent still runs (pid {orphan.pid})"
    assert [f"kasmon: {MACHINE}: unsure: vague: {why}"] == unsure.err.splitlines()
    joined.there("stop", me)
    orphan.communicate()
    joined.there("rm", me)


def test_a_recovered_session_on_another_machine_is_not_reported_as_unsure(joined: TwoCommandLines) -> None:
    there = joined.there.paths
    session = joined.there("new", "steady", "--", "sleep", "600").out.strip()
    os.kill(until(lambda: lock_holder(there.tmux_host_lock)), signal.SIGKILL)
    until(lambda: lock_holder(there.tmux_host_lock) is None)

    done = joined.here("recover", "--machine", "all")

    assert [MACHINE, "steady", "the"] == done.out.splitlines()[1].split()[:3]
    assert done.err == ""
    joined.there("stop", session)
    joined.there("rm", session)


def test_worktrees_rules_and_plans_of_all_machines_are_listed(joined: TwoCommandLines) -> None:
    there, repo = joined.there, Repo(joined.there.home / "listed")
    session = joined.new("listed", "say hi", "--dir", str(repo.folder), "--worktree")
    asking = there.new("asking", "ask git push")
    request = there.request()
    there.json("answer", request["id"], "always", "--digest", request["digest"])
    (there.home / "plan.toml").write_text('[[task]]\nid = "a"\nrun = "true"\n')
    there("plan", "run", str(there.home / "plan.toml"), "--yes", "--ci")
    [plan] = there.json("plan", "ls")["plans"]

    worktrees, rules, plans = (
        joined.here(*words, "--machine", "all") for words in (["worktrees"], ["rules"], ["plan", "ls"])
    )

    assert [0, 0, 0] == [each.code for each in (worktrees, rules, plans)], worktrees.err + rules.err + plans.err
    tree = there.json("show", session)["session"]["worktree"]["path"]
    assert any(line.startswith(f"{MACHINE} ") and line.endswith(tree) for line in worktrees.out.splitlines())
    assert f"Bash(git push:*)  session  {asking}" in rules.out
    assert [MACHINE, plan["id"]] == plans.out.splitlines()[1].split()[:2]
    assert (plan["tasks"], "/1 done" in plans.out) == (1, True)
    assert [MACHINE] == [each["machine"] for each in joined.here.json("rules", "--machine", "all")["rules"]]
    for each in (session, asking):
        there("stop", each)


def test_a_list_of_all_machines_names_those_that_are_unreachable(fork_server: ForkServer) -> None:
    joined = TwoCommandLines(fork_server)
    try:
        session = joined.new("shown", "say hi")
        write_machine(joined.here.paths, Machine(name=MACHINE, command=("false",)))
        joined.cut()

        printed, listed = joined.here("rules", "--machine", "all"), joined.here("rules", "--machine", "all", "--json")
        sessions = joined.here("ls", "--machine", "all")

        assert (printed.code, printed.out) == (69, ""), "of that machine it is not known"
        assert f"kasmon: {MACHINE}: " in printed.err
        assert (listed.code, listed.json["rules"], listed.json["machines"]["local"]["rules"]) == (69, [], [])
        assert listed.json["machines"][MACHINE]["error"]["code"] == "remote-unreachable"
        assert (sessions.code, session in sessions.out) == (69, True)
        assert f"kasmon: {MACHINE} is unreachable" in sessions.err
        assert joined.here("ls").code == 0
    finally:
        joined.close()


def test_a_machine_that_does_not_answer_is_named_and_the_others_answer(
    joined: TwoCommandLines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in joined.here.environment.items():
        monkeypatch.setenv(name, value)
    not_text = os.fsdecode(b"\xff")

    code = delegation.run_there(["doctor", "--machine=all", not_text], OtherMachineError("", "", ALL))

    printed = capsys.readouterr()
    assert (UnavailableError.exit_code, f"local:\n{MACHINE}:\n") == (code, printed.out)
    assert f"kasmon: {MACHINE}: it could not be asked: UnicodeEncodeError(" in printed.err


def test_a_byte_that_is_not_text_does_not_break_the_answer_of_a_machine() -> None:
    output = CommandOutput(exit_code=0, stdout=b'{"name": "a\xff"}', stderr=b"")

    assert {"name": "a\ufffd"} == delegation._read_answer(MACHINE, lambda: output).content


def test_how_to_attach_to_it_from_here_is_shown(joined: TwoCommandLines) -> None:
    folder = joined.there.home
    session = joined.there("new", "copy", "--dir", str(folder), "--", "cat").out.strip()
    joined.until(session, lambda known: known is not None and known["state"] != "starting")

    shown = joined.here("show", session).out
    assert f"  folder    {MACHINE}:{folder}\n  attach    kasmon attach {MACHINE}:copy\n" in shown
    joined.there("stop", session)
    joined.there("rm", session)


def test_a_command_refused_on_the_machine_is_refused_here_with_the_same_code(joined: TwoCommandLines) -> None:
    session = joined.new("busy")

    refused, restarted = joined.here("rm", session), joined.here("restart", session)

    assert (refused.code, restarted.code) == (4, 4)
    assert "it is idle" in refused.err
    assert f"{MACHINE}: session 'busy' is already running" in restarted.err


def test_a_command_on_its_files_runs_there_with_its_output_and_exit_code(joined: TwoCommandLines) -> None:
    repo = Repo(joined.there.home / "src")
    session = joined.new("fix-login", "say hi", "--dir", str(repo.folder), "--worktree")
    tree = Path(joined.there.json("show", session)["session"]["worktree"]["path"])
    repo.commit("new.txt", "one\n", at=tree)

    shown, noted = joined.here("diff", "fix-login"), joined.here("comment", session, "new.txt:1", "-", given="why?\n")
    listed, failed = joined.here.json("comments", session), joined.here("comments", session, "rm", "nothing")
    left = joined.here.json("finish", f"{MACHINE}:fix-login")

    assert (shown.code, shown.out) == (0, joined.there("diff", session).out)
    assert "+one" in shown.out
    assert (noted.code, [each["text"] for each in listed["comments"]]) == (0, ["why?"])
    assert (failed.code, failed.err) == (3, joined.there("comments", session, "rm", "nothing").err)
    assert left["session"] == session


def test_a_worktree_is_removed_on_the_machine_as_the_finish_requests(joined: TwoCommandLines) -> None:
    repo, here = Repo(joined.there.home / "unused"), joined.here
    session = joined.new("unused", "say hi", "--dir", str(repo.folder), "--worktree")
    tree = Path(joined.there.json("show", session)["session"]["worktree"]["path"])
    here.json("stop", session)
    local = here.new("local", "say hi")

    hint = here("finish", f"{MACHINE}:unused").out
    several = here("worktrees", "gc", f"{MACHINE}:unused", "local", "--yes")
    missing = here("worktrees", "gc", "local", "--yes")
    assert f"kasmon worktrees gc {session}" in hint
    assert (several.code, missing.code, tree.exists()) == (2, 3, True)
    assert "one at a time" in several.err
    removed = here("worktrees", "gc", session, "--yes")

    assert (removed.code, tree.exists()) == (0, False), removed.err
    here.json("stop", local)


def test_a_review_reads_the_diff_and_writes_comments_there(joined: TwoCommandLines) -> None:
    repo = Repo(joined.there.home / "reviewed")
    session = joined.new("reviewed", "say hi", "--dir", str(repo.folder), "--worktree")
    tree = Path(joined.there.json("show", session)["session"]["worktree"]["path"])
    repo.commit("new.txt", "one\ntwo\n", at=tree)
    paths, known = joined.here.paths, read_session(joined.here.paths, SessionId(session))

    changes = asyncio.run(read_changes(paths, known, None))
    written = comments.build_comment(known, "new.txt", 2, ["two"], "why?")
    event_loop.run(comments.write_comment(paths, known, written))
    [listed] = comments.list_comments(paths, known)
    event_loop.run(comments.edit_comment(paths, known, listed.comment.id, "why not?"))
    event_loop.run(comments.mark_comment(paths, known, listed.comment.id, is_resolved=True))
    [changed] = comments.list_comments(paths, known)
    event_loop.run(comments.mark_comment(paths, known, listed.comment.id, is_resolved=False))
    receipt, count = event_loop.run(comments.send_comments(paths, known))
    event_loop.run(comments.remove_comment(paths, known, listed.comment.id))
    gone = comments.build_comment(known, "new.txt", 3, ["\tthree"], "keep it", side="old", hunk="@@ -1,3 +1,2 @@")
    event_loop.run(comments.write_comment(paths, known, gone))
    [old] = comments.list_comments(paths, known)
    event_loop.run(comments.remove_comment(paths, known, old.comment.id))
    wrong = joined.there("comment", session, "new.txt:3-4", "why?", "--removed", given='{"lines": ["three"]}')

    assert old.comment == msgspec.structs.replace(gone, id=old.comment.id)
    assert (wrong.code, wrong.err) == (2, "kasmon: 1 lines are not the lines 3 to 4.\n")
    assert "+two" in changes.diff
    assert (listed.state, listed.place, listed.comment.text) == ("open", "new.txt:2", "why?")
    assert (changed.state, changed.comment.text) == ("resolved", "why not?")
    assert (receipt.session, count) == (session, 1)
    assert comments.list_comments(paths, known) == ()
    assert joined.there.json("comments", session)["comments"] == []


def test_a_name_means_the_session_here_unless_it_names_the_machine(joined: TwoCommandLines) -> None:
    there = joined.new("twin")
    here = joined.here.new("twin", "say hi")

    assert joined.here.json("show", "twin")["session"]["id"] == here
    assert joined.here.json("show", f"{MACHINE}:twin")["session"]["id"] == there


def test_without_the_link_nothing_is_done_and_the_reason_is_shown(fork_server: ForkServer) -> None:
    joined = TwoCommandLines(fork_server)
    try:
        session = joined.new("fix")
        joined.cut()

        refused = [joined.here(*words) for words in (("stop", session), ("rename", session, "x"), ("diff", session))]

        assert [each.code for each in refused] == [69] * 3
        assert all(f"`kasmon machines show {MACHINE}` shows" in each.err for each in refused)
        assert joined.there.json("show", session)["session"]["state"] == "idle"
        assert joined.there.json("show", session)["session"]["name"] == "fix"
    finally:
        joined.close()


def test_a_request_of_an_unreachable_machine_is_unknown_and_not_missing(fork_server: ForkServer) -> None:
    joined = TwoCommandLines(fork_server)
    try:
        session = joined.there.new("asks", "ask git push")
        joined.until(session, lambda known: known is not None and known["state"] == "asking")
        request = joined.here.request()
        joined.cut()
        joined.until(session, lambda known: known["state"] == "unsure")

        refused = joined.here("answer", request["id"], "allow", "--digest", request["digest"])

        assert 69 == refused.code
        assert f"whether the request '{request['id']}' of '{MACHINE}:asks' is open is unknown" in refused.err
        assert "asking" == joined.there.json("show", session)["session"]["state"]
    finally:
        joined.close()


def test_the_log_of_a_host_names_who_answered_through_the_bus(joined: TwoCommandLines) -> None:
    session = joined.there.new("asks", "ask git push\nsay done")
    asked = joined.until(session, lambda known: known is not None and known["state"] == "asking")
    request = next(each for each in joined.here.json("inbox")["requests"] if each["session"] == asked["id"])

    joined.here.json("answer", request["id"], "allow", "--digest", request["digest"])

    joined.until(session, lambda known: known["state"] == "idle")
    assert re.search(
        r"answered .*: allowed once by user at \S+@\S+ through the bus \(pid", joined.there("show", session).out
    )


def test_a_session_is_started_on_its_machine_by_the_options_and_the_folders_there(joined: TwoCommandLines) -> None:
    (joined.there.home / "work").mkdir()
    folder = str(joined.there.home / "work")
    options = ("--agent", "scripted", "--mode", "sdk", "--dir", folder, "--prompt", "say 'hi'", "--tag", "api")

    made = joined.here("new", "far", "--on", MACHINE, *options)
    taken = joined.here("new", "far", "--on", MACHINE, *options)
    unknown = joined.here("new", "far", "--on", "nowhere")
    failed = joined.here.json("new", "two", "--on", MACHINE, "--count", "2", *options)["results"]
    beside = joined.here("new", "more", "--in", f"{MACHINE}:far", "--agent", "none-here")

    session = joined.session(made.out.strip())
    assert (made.code, session["name"], session["workdir"]) == (0, "far", f"{MACHINE}:{folder}")
    assert session["tags"] == ["api"]
    assert (taken.code, unknown.code) == (4, 3)
    assert (beside.code, f"--in '{MACHINE}:far' is a session of {MACHINE}. Start it there" in beside.err) == (2, True)
    assert [each["session"]["name"] for each in failed] == ["two-1", "two-2"]


def test_a_machine_is_drained_and_used_again(joined: TwoCommandLines) -> None:
    drained = joined.here.json("machines", "drain", MACHINE)["machine"]["drained"]
    shown = joined.here("machines", "ls").out
    options = ("--on", MACHINE, "--agent", "scripted", "--mode", "sdk", "--dir", "/")
    refused = joined.here("new", "more", *options)

    assert joined.here.json("machines", "show", MACHINE)["machine"]["tasks"] == 0
    assert (drained, "drained" in shown, refused.code) == (True, True, 4)
    assert joined.here.json("machines", "drain", MACHINE, "--undo")["machine"]["drained"] is False
    own = joined.here.json("machines", "drain", "local")["machine"]
    assert (own["name"], own["drained"], own["state"]) == ("local", True, "connected")
    assert "local  drained: no more tasks" in joined.here("machines").out
    assert "local  tasks of plans are placed" in joined.here("machines", "drain", "local", "--undo").out
    assert joined.here("new", "more", *options).code == 0


def has_long_text(joined: TwoCommandLines, name: str, text: str) -> str:
    """An ended session there, whose log has only the beginning of *text*; its id."""
    session = joined.there.new(name, "say hi")
    joined.there("stop", session)
    assert SessionLog(joined.there.paths, SessionId(session)).append(MessageWritten(at=time.time(), text=text))
    size = joined.there.paths.log(session).stat().st_size
    log = joined.here.paths.log(session)
    until(lambda: log.exists() and log.stat().st_size == size, what="the copy of the log")
    return session


def test_long_texts_and_terminal_output_are_exported_and_searched_here(joined: TwoCommandLines) -> None:
    session = has_long_text(joined, "long", "x" * 2_000_000 + "\nend-of-text")
    program = ("sh", "-c", "echo recorded-words; sleep 600")
    there = joined.here("new", "shell", "--on", MACHINE, "--", *program).out.strip()
    joined.there("stop", there)
    joined.until(there, lambda known: known["state"] == "ended")

    assert session in joined.here("grep", "end-of-text", "--json").out
    assert there in joined.here("grep", "recorded-words", "--json").out
    assert "end-of-text" in joined.here("export", session).out
    assert "recorded-words" in joined.here("export", there).out


def test_a_blob_that_does_not_match_its_digest_is_refused(joined: TwoCommandLines) -> None:
    session = has_long_text(joined, "changed", "y" * 2_000_000 + "\nthe-true-end")
    [blob] = joined.there.paths.blobs(session).iterdir()
    blob.write_text("forged-text")

    exported = joined.here("export", session).out

    assert "the rest no longer exists" in exported
    assert "forged-text" not in exported
    assert not joined.here.paths.blobs(session).exists()


def test_a_bus_ends_quietly_with_its_input_and_refuses_an_invalid_stream() -> None:
    argv = [sys.executable, "-P", "-m", "kasmon", "bus", "--stdio"]
    ended = subprocess.run(argv, input=b"", capture_output=True, timeout=100, check=False)
    refused = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False)

    assert (0, b"") == (ended.returncode, ended.stderr)
    assert 2 == refused.returncode
    assert b"file descriptor 0, which is neither a pipe nor a socket" in refused.stderr
