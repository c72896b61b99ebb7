"""The contract of the command line: JSON, exit codes and errors, by real processes around a real structured session."""

import json
import os
import signal
import subprocess

import pytest

from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import KASMON
from tests.support.wait import until

FIELDS = {
    "id": str,
    "name": str,
    "agent": str,
    "mode": str,
    "backend": str,
    "parent": (str, None),
    "actor": (dict, None),
    "sandbox": (str, None),
    "phase": (str, None),
    "confined": (bool, None),
    "mismatches": list,
    "plan": (str, None),
    "fallback": (str, None),
    "unsure_why": (str, None),
    "last_line": (str, None),
    "resume_id": (str, None),
    "signal": (str, None),
    "freed_bytes": (int, None),
    "asking": (str, None),
    "state": str,
    "source": str,
    "since": float,
    "task": (int, None),
    "wave": (int, None),
    "peers": (int, None),
    "pid": (int, None),
    "exit_code": (int, None),
    "expires_at": (float, None),
    "pause_at": (float, None),
    "tokens": (dict, None),
    "cost_usd": (float, None),
    "queue": int,
    "generation": int,
    "stuck": bool,
    "workdir": str,
    "machine": str,
    "host": dict,
}
"""Every field that cli.md promises, and what it may be."""

REQUEST = {"id", "session", "kind", "tool", "title", "input", "shown", "digest", "choices", "rule", "asked_at"}
SHOWN = {"peer_sessions", "evidence", "receipts", "pane", "permissions", "events"}
RUNS = {"model", "models", "permission_mode", "permission_modes", "switches", "abilities", "proof", "last_words"} | {
    "closed"
}
"""What `show` says beyond the promise: how the agent runs, its last words, and how its requests ended."""


def fits(value: object, kind: object) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return any((value is None) if one is None else isinstance(value, one) for one in kinds)


def test_every_field_of_a_session_is_present_even_if_empty(kasmon: Cli) -> None:
    session = kasmon.new("fix-auth", "say hello", "--task", "1", "--wave", "2", "--peers", "3")
    kasmon.json("wait", "fix-auth", "--for", "idle", "--timeout", "20")

    [listed] = kasmon.json("ls")["sessions"]
    assert [] == [name for name, kind in FIELDS.items() if not fits(listed[name], kind)]
    assert (session, "fix-auth", "scripted", "sdk", 1, 2, 3) == tuple(
        listed[name] for name in ("id", "name", "agent", "mode", "task", "wave", "peers")
    )
    assert {"input", "output", "context", "limit"} == set(listed["tokens"])
    assert {"pid", "alive"} == set(listed["host"])
    assert listed["host"]["alive"]

    # A session goes by id, exact name and id prefix, never by the beginning of its name.
    for wanted in (session, "fix-auth", session[:3]):
        shown = kasmon.json("show", wanted)["session"]
        assert listed.keys() | SHOWN | RUNS == shown.keys()
        assert ("scripted", [], None, None) == tuple(shown[name] for name in ("model", "models", "proof", "last_words"))
    assert 3 == kasmon("show", "fix").code


def test_from_the_first_prompt_to_the_end(kasmon: Cli) -> None:
    session = kasmon.new("fix-auth", "say hello")
    kasmon.json("wait", "fix-auth", "--for", "idle", "--timeout", "20")

    prompted = kasmon.json("send", "fix-auth", "-", "--wait", "idle", "--timeout", "20", given="say good morning")
    assert (session, "finished", None) == tuple(prompted["receipt"][name] for name in ("session", "state", "reason"))

    lines = kasmon.json("read", session)["lines"]
    assert [line for line in lines if "good morning" in line]
    assert lines[-2:] == kasmon.json("read", session, "--lines", "2")["lines"]
    assert lines[-3:-1] == kasmon.json("read", session, "--range", "-3:-2")["lines"]
    assert lines[:2] == kasmon.json("read", session, "--range=-:1")["lines"]
    assert "\n".join(lines) == kasmon("read", session).out.rstrip("\n")
    assert 2 == kasmon("read", session, "--range", "5").code

    assert 4 == kasmon("rm", session).code
    attached = kasmon("attach", session)
    assert (4, True) == (attached.code, "kasmon move" in attached.err)
    assert 5 == kasmon("wait", session, "--for", "limited", "--timeout", "0.2").code
    assert "fix auth" == kasmon.json("rename", session, "fix auth")["session"]["name"]

    assert "ended" == kasmon.json("stop", "fix auth")["session"]["state"]
    assert 4 == kasmon("send", session, "say more").code
    assert [session] == [one["id"] for one in kasmon.json("ls", "--state", "ended")["sessions"]]
    assert 2 == kasmon.json("restart", session)["session"]["generation"]
    assert "ended" == kasmon.json("stop", session)["session"]["state"]
    assert session == kasmon.json("rm", session)["session"]["id"]
    assert [] == kasmon.json("ls")["sessions"]
    assert 3 == kasmon("show", session).code


def test_a_turn_that_fails_is_a_failed_receipt_and_an_exit_code_until_the_next_turn(kasmon: Cli) -> None:
    session = kasmon.new("fix-auth", "say hello")
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")

    done = kasmon("send", session, "fail overloaded", "--wait", "idle", "--timeout", "20", "--json")
    receipt = done.json["receipt"]
    assert (1, "failed", "text") == (done.code, receipt["state"], receipt["carried_by"])
    assert receipt["reason"]
    assert f"failed: {receipt['reason']}" in kasmon("ls").out
    shown = kasmon.json("show", session)["session"]
    assert ("idle", "error", receipt["reason"]) == (shown["state"], shown["turn_ended"], shown["turn_error"])
    assert f"why       the last turn failed: {receipt['reason']}" in kasmon("show", session).out
    assert 1 == kasmon("send", "--to", "agent=scripted", "fail again", "--wait", "idle", "--timeout", "20").code
    again = kasmon.json("send", session, "say better", "--wait", "idle", "--timeout", "20")
    assert "finished" == again["receipt"]["state"]
    assert "failed: " not in kasmon("ls").out
    assert ("done", None) == ((now := kasmon.json("show", session)["session"])["turn_ended"], now["turn_error"])


def test_wait_has_an_exit_code_for_true_possible_and_impossible(kasmon: Cli) -> None:
    idle, asks = kasmon.new("idle", "say hello"), kasmon.new("asks", "ask rm -rf build")
    pid = kasmon.request() and kasmon.json("show", asks)["session"]["host"]["pid"]

    there = kasmon.json("wait", "idle", "asks", "--for", "idle,asking", "--timeout", "20")["sessions"]
    assert [(idle, "idle"), (asks, "asking")] == [(one["id"], one["state"]) for one in there]
    one = kasmon.json("wait", "idle", "asks", "--for", "asking", "--any", "--timeout", "0")["sessions"]
    assert [asks] == [session["id"] for session in one]
    late = kasmon("wait", "idle", "asks", "--for", "idle", "--timeout", "0.2", "--json")
    assert (5, "timeout") == (late.code, late.json["error"]["code"])
    assert 3 == kasmon("wait", "idle", "nobody", "--for", "idle").code
    assert 3 == kasmon("wait", "idle", "nobody", "--for", "idle", "--any").code

    kasmon("stop", "idle")
    ended = kasmon("wait", "idle", "--for", "idle", "--json")
    assert (4, "ended") == (ended.code, ended.json["error"]["code"])
    assert 0 == kasmon("wait", "idle", "--for", "ended,lost").code
    os.kill(pid, signal.SIGKILL)
    lost = kasmon("wait", "asks", "--for", "idle", "--json")
    assert (4, "refused") == (lost.code, lost.json["error"]["code"])
    assert "is lost" in lost.err


def test_exactly_one_request_is_answered_and_only_once(kasmon: Cli) -> None:
    session = kasmon.new("fix-auth", "ask rm -rf build")
    request = kasmon.request()
    wanted, digest = request["id"], request["digest"]

    assert request.keys() >= REQUEST
    assert ("Bash", "rm -rf build", session) == (request["tool"], request["shown"], request["session"])
    assert 4 == kasmon("send", session, "say no", "--when", "refuse").code
    assert "queued" == kasmon.json("send", session, "say later", "--when", "idle")["receipt"]["state"]
    assert 1 == kasmon.json("show", session)["session"]["queue"]

    unseen = kasmon("answer", wanted, "allow", "--json")
    assert (4, "refused") == (unseen.code, unseen.json["error"]["code"])
    stale = kasmon("answer", wanted, "allow", "--digest", "0" * 64, "--json")
    assert (4, "stale") == (stale.code, stale.json["error"]["code"])
    assert 4 == kasmon("answer", wanted, "choose", "--choice", "x", "--digest", digest).code
    assert 2 == kasmon("answer", wanted, "perhaps", "--digest", digest).code
    assert 2 == kasmon("answer", wanted, "edit", "--digest", digest).code

    assert kasmon.json("answer", wanted, "later", "--digest", digest)["request"]["id"] == wanted
    assert [(wanted, True)] == [(one["id"], one["later"]) for one in kasmon.json("inbox")["requests"]]
    assert "allow" == kasmon.json("answer", wanted, "allow", "--digest", digest)["decision"]
    closed = kasmon("answer", wanted, "deny", "--digest", digest, "--json")
    assert (4, "closed") == (closed.code, closed.json["error"]["code"])
    assert 3 == kasmon("answer", f"{session}-99", "allow", "--digest", "0").code
    until(lambda: "later" in kasmon("read", session).out and kasmon.json("ls", "--state", "idle")["sessions"])


def test_an_ended_turn_is_marked_until_it_is_viewed(kasmon: Cli) -> None:
    one, two = (kasmon.new(name, "say hello") for name in ("one", "two"))
    kasmon.json("wait", one, two, "--for", "idle", "--timeout", "20")
    until(lambda: all(session["unviewed"] for session in kasmon.json("ls")["sessions"]))
    assert "✦ finished" in kasmon("ls").out
    assert "2 finished, not yet viewed" in kasmon("ls").out

    first = kasmon.json("ls")["sessions"][0]["id"]
    marked = kasmon.json("mark", first)["session"]
    assert (False, "idle") == (marked["unviewed"], marked["state"])
    assert marked["viewed_at"] > marked["finished_at"]
    listed = kasmon.json("ls", "--state", "idle")["sessions"]
    assert [(True, first != two), (False, first == two)] == [(each["unviewed"], each["id"] == two) for each in listed]
    kasmon.json("mark", first)
    assert 1 == kasmon.paths.fleet_log.read_text().count("session.viewed")

    kasmon.json("send", first, "say more", "--wait", "idle", "--timeout", "20")
    until(lambda: kasmon.json("show", first)["session"]["unviewed"])


def test_a_broadcast_has_a_receipt_from_each(kasmon: Cli) -> None:
    ids = {kasmon.new(name, "say hello", "--wave", "2") for name in ("one", "two")}
    other = kasmon.new("three", "say hello")
    kasmon.json("wait", *ids, other, "--for", "idle", "--timeout", "20")

    receipts = kasmon.json("send", "--to", "state=idle,wave=2", "say on", "--yes", "--wait", "idle", "--timeout", "20")[
        "receipts"
    ]

    assert ids == {receipt["session"] for receipt in receipts}
    assert {"finished"} == {receipt["state"] for receipt in receipts}
    assert 2 == len(kasmon.json("send", "--to", "wave=2", "-", "--yes", given="say once more")["receipts"])
    assert 4 == kasmon("send", "--to", "wave=7", "say on").code
    assert 2 == kasmon("send", "--to", "colour=red", "say on").code
    assert 2 == kasmon("send", "one", "say on", "--to", "wave=2").code
    assert 2 == kasmon("send", "one", "say on", "--dry-run").code
    assert 2 == kasmon("send", "one", "say on", "--include", "shells").code
    assert [other] == [session["id"] for session in kasmon.json("ls")["sessions"] if session["wave"] is None]
    assert ids == {session["id"] for session in kasmon.json("ls", "--wave", "2")["sessions"]}
    assert ids == {peer["id"] for peer in kasmon.json("show", "one")["session"]["peer_sessions"]} | {
        kasmon.json("show", "one")["session"]["id"]
    }


def test_a_broadcast_to_several_needs_consent_and_a_dry_run_lists_them(kasmon: Cli) -> None:
    ids = {kasmon.new(name, "say hello") for name in ("one", "two")}
    kasmon.json("wait", *ids, "--for", "idle", "--timeout", "20")

    refused = kasmon("send", "--to", "state=idle", "say on", "--json")
    assert (4, "refused") == (refused.code, refused.json["error"]["code"])
    assert "--yes" in refused.json["error"]["hint"]
    assert 4 == kasmon("send", "--to", "state=idle", "say on").code
    told = kasmon.json("send", "--to", "state=idle", "say on", "--dry-run")
    assert (ids, []) == ({session["id"] for session in told["recipients"]}, told["left_out"])
    code, said = kasmon.terminal("send", "--to", "state=idle", "say on", typed=[("to cancel:", "y\n")])
    assert 4 == code
    assert all(name in said for name in ("NAME", "one", "two", "these 2"))
    assert [1, 1] == [len(kasmon.json("show", one)["session"]["receipts"]) for one in ids]

    code, said = kasmon.terminal("send", "--to", "state=idle", "say on", typed=[("to cancel:", "yes\n")])
    assert 0 == code
    assert 2 == said.count("-r2")


def test_a_broadcast_reaches_no_shell_unless_requested(kasmon: Cli) -> None:
    made = kasmon.home / "executed"
    agent, shell = kasmon.new("one", "say hello"), kasmon("new", "sh", "--agent", "shell").out.strip()
    kasmon.json("wait", agent, shell, "--for", "idle", "--timeout", "20")
    everybody = ("send", "--to", "state=idle", f"touch {made}")

    told = kasmon.json(*everybody, "--dry-run")
    assert ([agent], [shell]) == tuple([one["id"] for one in told[key]] for key in ("recipients", "left_out"))
    assert "skipped, not agents (--include shells sends to them too): sh" in kasmon(*everybody, "--dry-run").out
    assert [agent] == [receipt["session"] for receipt in kasmon.json(*everybody)["receipts"]]
    assert not kasmon.json("show", shell)["session"]["receipts"]
    refused = kasmon("send", "--to", "agent=shell", f"touch {made}")
    assert (4, True) == (refused.code, "--include shells" in refused.err)
    assert not made.exists()

    sent = kasmon.json("send", "--to", "agent=shell", f"touch {made}", "--include", "shells", "--wait", "idle")
    assert [shell] == [receipt["session"] for receipt in sent["receipts"]]
    until(made.exists, what="what the shell executed")


def test_an_edited_input_may_hold_numbers_of_any_size(kasmon: Cli) -> None:
    session = kasmon.new("asks", "ask rm -rf build")
    request = kasmon.request()
    edited = f'{{"command": "ls", "limit": 1{"0" * 40}}}'

    deep = kasmon("answer", request["id"], "edit", "--digest", request["digest"], "--input", "[" * 100_000)
    assert (2, True) == (deep.code, "not valid JSON" in deep.err)
    kasmon.json("answer", request["id"], "edit", "--digest", request["digest"], "--input", edited)
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")


def test_text_that_is_no_utf8_is_refused_before_it_is_sent(kasmon: Cli) -> None:
    session = kasmon.new("fix-auth", "say hello")
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")

    done = kasmon("send", session, os.fsdecode(b"caf\xe9"), "--json")
    assert (2, "usage") == (done.code, done.json["error"]["code"])
    assert "it is not UTF-8" in done.err
    assert 1 == len(kasmon.json("show", session)["session"]["receipts"])


def test_a_question_is_answered_by_its_labels(kasmon: Cli) -> None:
    kasmon.new("asks", "question Which one?|red|green")
    request = kasmon.request()

    assert ["red", "green"] == request["options"]
    assert 2 == kasmon("answer", request["id"], "choose", "--digest", request["digest"]).code
    assert 2 == kasmon("answer", request["id"], "choose", "--choice", "blue", "--digest", request["digest"]).code
    kasmon.json("answer", request["id"], "choose", "--choice", "green", "--digest", request["digest"])
    kasmon.json("wait", "asks", "--for", "idle", "--timeout", "20")
    assert "green" in kasmon("read", "asks").out


def test_on_a_terminal_the_request_is_shown_and_the_full_word_is_required(kasmon: Cli) -> None:
    """Enter alone approves nothing."""
    session = kasmon.new("asks", "ask rm -rf build")
    request = kasmon.request()["id"]

    code, said = kasmon.terminal("answer", request, "allow", typed=[("to cancel:", "\n")])
    assert (4, True) == (code, "rm -rf build" in said)
    code, said = kasmon.terminal("answer", request, "allow", typed=[("to cancel:", "allow\n")])
    assert 0 == code, said

    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")


def test_watching_prints_one_object_a_line(kasmon: Cli) -> None:
    kasmon.new("one", "say hello")

    code, said = kasmon.terminal("ls", "--watch", "--json", typed=[('"state":"idle"', "\x03")])

    assert 130 == code
    objects = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert "idle" == objects[-1]["sessions"][0]["state"]
    assert {1} == {one["schema"] for one in objects}


def test_watching_ends_when_its_output_is_closed(kasmon: Cli) -> None:
    """`kasmon ls --watch | head -1`: nothing changes here, so no write would tell."""
    piped, told = subprocess.PIPE, [*KASMON, "ls", "--watch"]
    with subprocess.Popen(told, stdout=piped, stderr=piped, env=kasmon.environment, cwd=kasmon.home) as watching:
        assert watching.stdout
        assert watching.stderr
        assert b"No sessions yet" in watching.stdout.readline()
        watching.stdout.close()

        assert (0, b"") == (watching.wait(20), watching.stderr.read())


BAD = {
    "no such command": (["lss"], 2, "usage", "'ls'"),
    "no such flag": (["ls", "--all"], 2, "usage", "--all"),
    "no such state": (["ls", "--state", "busy"], 2, "usage", "'busy'"),
    "no wave": (["ls", "--wave", "two"], 2, "usage", "two"),
    "nothing to send": (["send", "x"], 2, "usage", "prompt"),
    "nobody to send to": (["send", "nobody", "hello"], 3, "not-found", "'nobody'"),
    "nothing to wait for": (["wait", "nobody"], 2, "usage", "--for"),
    "nobody to wait for": (["wait", "--for", "idle"], 2, "usage", "requires a session"),
    "waiting for no state": (["wait", "nobody", "--for", "done"], 2, "usage", "'done'"),
    "no time to wait": (["wait", "nobody", "--for", "idle", "--timeout", "nan"], 2, "usage", "--timeout"),
    "nobody to show": (["show", "nobody"], 3, "not-found", "'nobody'"),
    "no such request": (["answer", "nobody-1", "allow", "--digest", "0"], 3, "not-found", "'nobody-1'"),
    "no such agent": (["new", "x", "--agent", "cloud"], 3, "not-found", "'cloud'"),
    "agent that is not there": (["new", "x", "--agent", "codex"], 1, "launch", "[agents.codex] program"),
    "no such mode": (["new", "x", "--mode", "SDK"], 2, "usage", "'SDK'"),
    "structured program": (["new", "x", "--mode", "sdk", "--", "true"], 2, "usage", "after --"),
    "no such folder": (["new", "x", "--agent", "scripted", "--dir", "/no/such"], 2, "usage", "/no/such"),
    "a file to work in": (
        ["new", "x", "--agent", "scripted", "--dir", "/etc/hosts"],
        2,
        "usage",
        "is not a folder. Give a",
    ),
    "no machine": (["new", "x", "--agent", "claude@-x"], 2, "usage", "'-x'"),
    "structured elsewhere": (["new", "x", "--agent", "claude@big", "--mode", "sdk"], 4, "unable", "--mode"),
    "sandboxed": (["new", "x", "--agent", "shell", "--sandbox", "microvm"], 69, "no-sandbox", "is unavailable here"),
    "claude structured": (["new", "x", "--agent", "claude", "--mode", "sdk"], 1, "launch", "[agents.claude] program"),
    "no such setting": (["config", "ui.colour"], 3, "not-found", "ui.theme"),
    "no such theme": (["config", "ui.theme", "nrd"], 2, "usage", "there is no theme 'nrd'. Allowed: catppuccin"),
    "no such plan": (["plan", "check", "no-such.toml"], 3, "not-found", "'no-such.toml': the file does not exist"),
    "folder for a plan": (["plan", "check", "/etc"], 3, "not-found", "'/etc': it is a folder"),
    "no such action": (["config", "keys.fly", "f"], 2, "usage", "no such action"),
    "key with two meanings": (["config", "keys.quit", "n"], 2, "usage", "new"),
    "no such value": (["config", "ui.bell", "loud"], 2, "usage", "true, false"),
    "nothing to measure": (["bench", "luck"], 2, "usage", "first-frame"),
    "no time to measure": (["bench", "--seconds", "0"], 2, "usage", "--seconds"),
    "demo of nobody": (["demo", "--agents", "0"], 2, "usage", "--agents"),
}


@pytest.mark.parametrize(("arguments", "code", "word", "told"), BAD.values(), ids=BAD)
def test_an_error_is_one_line_with_a_next_step(
    kasmon: Cli, arguments: list[str], code: int, word: str, told: str
) -> None:
    """With --json it is an object, too; where `--` ends the options, there is none."""
    in_json = "--" not in arguments and arguments[0] != "demo"
    done = kasmon(*arguments, *(["--json"] if in_json else []))

    assert in_json is bool(done.out)
    assert code == done.code
    assert 1 == len(done.err.splitlines())
    assert told in done.err
    assert "Traceback" not in done.err
    if in_json:
        assert (1, word) == (done.json["schema"], done.json["error"]["code"])
        assert {"code", "message", "hint"} == set(done.json["error"])


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "-h",
        "--version",
        "new --help",
        "rm --help",
        "answer --help",
        "config ui.bell false --help",
        "web --help",
    ],
)
def test_help_changes_nothing(kasmon: Cli, words: str) -> None:
    done = kasmon(*words.split())

    assert (0, "") == (done.code, done.err)
    assert done.out
    assert ["c", "r", "s"] == sorted(path.name for path in kasmon.home.rglob("*"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete(kasmon: Cli, shell: str) -> None:
    assert "doctor" in kasmon("completion", shell).out


def test_a_reader_that_leaves_is_no_error(kasmon: Cli) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody_reads:
        done = subprocess.run(
            [*KASMON, "completion", "bash"],
            stdout=nobody_reads,
            stderr=subprocess.PIPE,
            env=kasmon.environment,
            check=False,
        )

    assert (0, b"") == (done.returncode, done.stderr)
