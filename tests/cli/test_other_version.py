"""An upgrade under running sessions, from the command line: hosts of another version are named, and replaced."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kasmon import __version__
from kasmon.host.rpc import control
from kasmon.host.rpc.control import ControlKind, HostStatus
from kasmon.host.rpc.frames import VERSION
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.permission import SessionId
from tests.support.cli.cli_runner import LIMIT_S, Cli, Done
from tests.support.other_version import NEWER, OLDER, OTHER_KASMON, OtherVersion
from tests.support.wait import until

pytestmark = pytest.mark.story
Old = Callable[..., Done]


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> OtherVersion:
    return OtherVersion(tmp_path_factory.mktemp("older"), OLDER)


@pytest.fixture
def old(kasmon: Cli, older: OtherVersion) -> Old:
    """The command line of the version before."""
    return lambda *arguments: kasmon(*arguments, **older.variables())


def structured(run: Old, name: str, prompt: str) -> str:
    done = run("new", name, "--agent", "scripted", "--mode", "sdk", "--prompt", prompt)
    assert 0 == done.code, done.err
    return done.out.strip()


def status_of(kasmon: Cli, session: str) -> HostStatus | None:
    path = kasmon.paths.socket(SessionId(session)) if session else kasmon.paths.tmux_host_socket
    return control.request(path, ControlKind.STATUS)


def is_ours(kasmon: Cli, session: str) -> bool:
    status = status_of(kasmon, session)
    return status is not None and (VERSION, __version__) == (status.protocol, status.kasmon)


def shown(kasmon: Cli, session: str) -> Any:
    return kasmon.json("show", session)["session"]


def check(done: Done, name: str) -> Any:
    return next((each for each in done.json["checks"] if each["id"] == name), None)


def texts(kasmon: Cli, session: str) -> list[tuple[str, str]]:
    return [(each["text"], each["state"]) for each in shown(kasmon, session)["receipts"]]


def test_a_prompt_for_a_structured_agent_of_an_older_host_resumes_it_under_this_version(kasmon: Cli, old: Old) -> None:
    talk = structured(old, "talk", "say one")
    old("wait", "talk", "--for", "idle")
    assert OLDER == getattr(status_of(kasmon, talk), "protocol", None)
    sent = kasmon("send", "talk", "say two", "--wait", "idle")

    assert 0 == sent.code, sent.err
    assert is_ours(kasmon, talk)
    now = shown(kasmon, talk)
    assert (2, f"script-{talk}") == (now["generation"], now["resume_id"])
    read = kasmon("read", "talk").out
    assert [1, 1] == [read.count("say one"), read.count("say two")]


def test_a_prompt_for_a_structured_agent_that_a_host_handed_over_resumes_it(kasmon: Cli, old: Old) -> None:
    talk = structured(old, "talk", "say one")
    old("wait", "talk", "--for", "idle")
    control.request(kasmon.paths.socket(SessionId(talk)), ControlKind.HAND_OVER)
    until(lambda: "ended" == shown(kasmon, talk)["state"])
    sent = kasmon("send", "talk", "say two", "--wait", "idle")

    assert 0 == sent.code, sent.err
    assert 2 == shown(kasmon, talk)["generation"]


def test_restart_moves_a_structured_agent_and_keeps_its_queue(kasmon: Cli, old: Old) -> None:
    """It is in a turn, so the host finishes that first; the prompt that waits is given to the agent once, later."""
    talk = structured(old, "talk", "ask Bash\nsay one")
    until(lambda: "asking" == shown(kasmon, talk)["state"])
    assert 0 == old("send", "talk", "say two", "--when", "idle").code
    refused = kasmon("restart", "talk")
    assert 4 == refused.code
    assert f"has a pending request, which only kasmon {OTHER_KASMON} can answer" in refused.err
    assert "asking" == shown(kasmon, talk)["state"]
    [request] = kasmon.json("inbox")["requests"]
    assert 0 == old("answer", request["id"], "allow", "--digest", request["digest"]).code
    moved = kasmon("restart", "talk")

    assert 0 == moved.code, moved.err
    assert is_ours(kasmon, talk)
    until(lambda: ("say two", "finished") in texts(kasmon, talk), LIMIT_S)
    read = kasmon("read", "talk").out
    assert [1, 1] == [read.count("say one"), read.count("say two")]
    assert read.index("say one") < read.rindex("session started") < read.index("say two")
    assert 2 == shown(kasmon, talk)["generation"]


def test_stop_then_rm_end_a_structured_agent_of_an_older_host(kasmon: Cli, old: Old) -> None:
    talk = structured(old, "talk", "say one")
    old("wait", "talk", "--for", "idle")
    refused = kasmon("rm", "talk")
    stopped = kasmon("stop", "talk")

    assert (4, 0) == (refused.code, stopped.code), stopped.err
    assert f"kasmon stop {talk}" in refused.err
    assert "stopped" in stopped.out
    assert 0 == kasmon("rm", "talk").code
    assert lock_holder(kasmon.paths.host_lock(SessionId(talk))) is None


def test_new_terminals_start_and_ended_ones_are_removed_where_an_older_tmux_host_runs(kasmon: Cli, old: Old) -> None:
    one = old("new", "one", "--", "sleep", "600").out.strip()
    over = old("new", "over", "--", "sleep", "601").out.strip()
    assert 0 == old("stop", "over").code
    agent = shown(kasmon, one)["pid"]
    removed = kasmon("rm", "over")
    other = kasmon("new", "other", "--", "sleep", "602")

    assert (0, 0) == (removed.code, other.code), removed.err + other.err
    assert over not in [each["id"] for each in kasmon.json("ls")["sessions"]]
    assert is_ours(kasmon, "")
    now = shown(kasmon, one)
    assert (agent, 1) == (now["pid"], now["generation"])
    assert now["state"] not in ("lost", "ended")


def test_doctor_names_hosts_of_another_version_and_moves_them(kasmon: Cli, old: Old) -> None:
    talk = structured(old, "talk", "say one")
    one = old("new", "one", "--", "sleep", "600").out.strip()
    old("wait", "talk", "--for", "idle")
    [agent] = [each["pid"] for each in kasmon.json("ls")["sessions"] if each["id"] == one]
    tmux_host = lock_holder(kasmon.paths.tmux_host_lock)
    named = check(kasmon("doctor", "--json"), "host-versions")
    assert ("warn", True) == (named["level"], named["fixable"])
    assert f"the tmux host (pid {tmux_host}, kasmon {OTHER_KASMON}, protocol {OLDER})" in named["text"]
    assert "the host of talk (pid " in named["text"]
    assert not is_ours(kasmon, talk)  # it only looked
    fixed = kasmon("doctor", "--fix", "--json")

    assert "host-versions" in fixed.json["fixed"]
    assert check(fixed, "host-versions") is None
    assert is_ours(kasmon, talk)
    assert is_ours(kasmon, "")
    assert [(talk, 2), (one, 1)] == [(id_, shown(kasmon, id_)["generation"]) for id_ in (talk, one)]
    assert agent == shown(kasmon, one)["pid"]


def test_doctor_leaves_a_turn_to_its_end_and_recover_resumes_it_then(kasmon: Cli, old: Old) -> None:
    talk = structured(old, "talk", "ask Bash\nsay one")
    until(lambda: "asking" == shown(kasmon, talk)["state"])
    fixed = kasmon("doctor", "--fix", "--json")
    assert "host-versions" not in fixed.json["fixed"]
    assert "has a pending request" in fixed.err
    [request] = kasmon.json("inbox")["requests"]
    assert 0 == old("answer", request["id"], "allow", "--digest", request["digest"]).code
    until(lambda: "ended" == shown(kasmon, talk)["state"])
    would = kasmon.json("recover", "--dry-run")["recovered"]
    done = kasmon("recover")

    assert [talk] == [each["session"] for each in would]
    assert 0 == done.code, done.err
    assert is_ours(kasmon, talk)
    assert 1 == kasmon("read", "talk").out.count("say one")


def test_recover_names_hosts_of_another_version(kasmon: Cli, old: Old) -> None:
    talk = structured(old, "talk", "say one")
    pid = lock_holder(kasmon.paths.host_lock(SessionId(talk)))
    told = kasmon("recover")

    assert f"of another version: the host of talk (pid {pid}, kasmon {OTHER_KASMON}, protocol {OLDER})" in told.err
    assert "`kasmon doctor --fix` replaces it" in told.err
    [other] = kasmon.json("recover", "--dry-run")["other_hosts"]
    assert {"session": talk, "pid": pid, "kasmon": OTHER_KASMON, "protocol": OLDER} == other


def test_a_host_that_is_too_old_to_hand_over_is_named_with_how_to_end_it(kasmon: Cli, tmp_path: Path) -> None:
    silent = OtherVersion(tmp_path, OLDER, greets=False)
    done = kasmon("new", "talk", "--agent", "scripted", "--mode", "sdk", "--prompt", "say one", **silent.variables())
    talk = done.out.strip()
    pid = lock_holder(kasmon.paths.host_lock(SessionId(talk))) or 0
    named = check(kasmon("doctor", "--json"), "host-too-old")
    stopped = kasmon("stop", "talk")

    assert f"the host of talk (pid {pid}, an older kasmon)" in named["text"]
    assert f"`kill {pid}` ends it and its agent; `kasmon restart {talk}` then resumes" in named["fix"]
    assert not named["fixable"]
    assert 4 == stopped.code
    assert f"`kill {pid}` ends it" in stopped.err
    os.kill(pid, signal.SIGTERM)
    until(lambda: lock_holder(kasmon.paths.host_lock(SessionId(talk))) is None)
    assert 0 == kasmon("restart", "talk").code
    assert is_ours(kasmon, talk)


def test_doctor_offers_the_return_to_an_older_version(kasmon: Cli, tmp_path: Path) -> None:
    newer = OtherVersion(tmp_path, NEWER)
    one = kasmon("new", "one", "--", "sleep", "600", **newer.variables()).out.strip()
    refused = kasmon("new", "two", "--", "sleep", "600")
    assert 4 == refused.code
    assert f"kasmon {OTHER_KASMON} speaks protocol {NEWER}" in refused.err

    assert "host-versions" in kasmon("doctor", "--fix", "--json").json["fixed"]
    assert is_ours(kasmon, "")
    assert 1 == shown(kasmon, one)["generation"]
    assert 0 == kasmon("new", "three", "--", "sleep", "600").code


def test_a_plan_whose_runner_meets_a_newer_host_fails_no_task_and_continues_with_the_next_runner(
    kasmon: Cli, tmp_path: Path
) -> None:
    newer = OtherVersion(tmp_path, NEWER).variables()
    assert 0 == kasmon("new", "one", "--", "sleep", "600", **newer).code
    plan = 'advance = "auto"\nworktree = "folder"\n[[task]]\nid = "a"\nrun = "touch ran"\ncheck = "test -e ran"\n'
    (kasmon.home / "p.toml").write_text(plan)
    kasmon("plan", "run", "p.toml", "--yes")
    until(lambda: "speaks protocol" in (kasmon.paths.plan("p") / "host.log").read_text())
    until(lambda: lock_holder(kasmon.paths.plan("p") / "host.lock") is None)
    assert "failed" not in [task["state"] for task in kasmon.json("plan", "show", "p")["plan"]["tasks"]]
    assert not (kasmon.home / "ran").exists()
    recovered = kasmon("recover", **newer)

    assert 0 == recovered.code, recovered.err
    until(lambda: "done" == kasmon.json("plan", "show", "p")["plan"]["outcome"])
    [task] = kasmon.json("plan", "show", "p")["plan"]["tasks"]
    assert 1 == task["attempt"]
