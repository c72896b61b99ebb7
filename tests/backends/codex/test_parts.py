"""What the translator is made of: flags, diffs, commands, settings, and the answers to what codex asks."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon import system
from kasmon.backends.codex import diff, items
from kasmon.backends.codex.cli_flags import parse_flags
from kasmon.backends.codex.notices import failure
from kasmon.backends.codex.program_path import find_program
from kasmon.backends.codex.request import CodexRequestContext
from kasmon.backends.codex.request_registry import ELICITATION, READERS, CodexAnswerOutcome, CodexRequests
from kasmon.backends.codex.settings import CodexSettings, change, planned, settings
from kasmon.errors import (
    AgentNotFoundError,
    LaunchError,
    RefusedError,
    RequestClosedError,
    StaleRequestError,
    UnableError,
    UsageError,
)
from kasmon.model.commands import Answer
from kasmon.model.events import RequestOpened, RequestWithdrawn
from kasmon.model.permission import Decision, Request, RequestKind, SessionId
from kasmon.system.linux import Linux

HERE = "/work/project"


class TestFlags:
    @pytest.mark.parametrize(
        ("flags", "thread"),
        [
            (("-m", "a"), {"model": "a"}),
            (("-ma",), {"model": "a"}),
            (("-m=a",), {"model": "a"}),
            (("--model", "a"), {"model": "a"}),
            (("--model=a",), {"model": "a"}),
            (("-a", "never", "-s", "read-only"), {"approvalPolicy": "never", "sandbox": "read-only"}),
            (("--ask-for-approval=untrusted",), {"approvalPolicy": "untrusted"}),
            (("--full-auto",), {"approvalPolicy": "on-request", "sandbox": "workspace-write"}),
            (("--yolo",), {"approvalPolicy": "never", "sandbox": "danger-full-access"}),
            (("--full-auto", "--sandbox", "read-only"), {"approvalPolicy": "on-request", "sandbox": "read-only"}),
            (("--no-alt-screen", "--no-daemon"), {}),
        ],
    )
    def test_some_flags_become_settings_of_the_thread(self, flags: tuple[str, ...], thread: dict[str, str]) -> None:
        assert ((), thread) == (parse_flags(flags).arguments, parse_flags(flags).thread)

    @pytest.mark.parametrize(
        ("flags", "arguments"),
        [
            (("-c", "a=1", "--config=b=2"), ("-c", "a=1", "--config", "b=2")),
            (("--enable", "x", "--disable=y"), ("--enable", "x", "--disable", "y")),
            (("--strict-config",), ("--strict-config",)),
            (("--search",), ("-c", 'web_search="live"')),
            (("--add-dir", "/a b", "--add-dir=/ü"), ("-c", 'sandbox_workspace_write.writable_roots=["/a b", "/ü"]')),
        ],
    )
    def test_some_flags_go_to_the_app_server(self, flags: tuple[str, ...], arguments: tuple[str, ...]) -> None:
        assert (arguments, {}) == (parse_flags(flags).arguments, parse_flags(flags).thread)

    def test_bypassing_is_no_approvals_or_sandbox_and_the_launchs_model_counts_without_a_flag(self) -> None:
        thread = parse_flags(("--dangerously-bypass-approvals-and-sandbox",)).thread
        assert {"approvalPolicy": "never", "sandbox": "danger-full-access"} == thread

        assert ("a", "b") == (parse_flags((), "a").thread["model"], parse_flags(("-m", "b"), "a").thread["model"])

    @pytest.mark.parametrize(
        ("flags", "named"),
        [
            (("--oss",), "--oss"),
            (("-p", "work"), "-p"),
            (("-pwork",), "-p"),
            (("--api-key=sk-secret",), "--api-key"),
            (("exec",), "exec"),
            (("--cd", "/x"), "--cd"),
            (("--strict-config=yes",), "--strict-config"),
        ],
    )
    def test_a_flag_that_is_not_supported_is_refused_by_name(self, flags: tuple[str, ...], named: str) -> None:
        with pytest.raises(LaunchError, match=f"with '{named}': its app-server") as caught:
            parse_flags(flags)
        assert "secret" not in str(caught.value)

    def test_a_flag_without_its_value_is_refused(self) -> None:
        with pytest.raises(LaunchError, match="'--model' requires a value"):
            parse_flags(("--model",))


class TestProgram:
    def test_a_missing_program_is_named(self) -> None:
        with pytest.raises(AgentNotFoundError, match="'codex-that-is-not' is not on PATH"):
            find_program("codex", "codex-that-is-not", {"PATH": "/usr/bin"})

    def test_the_program_is_searched_on_the_agents_path(self, tmp_path: Path) -> None:
        _executable(tmp_path / "codex")

        assert str(tmp_path / "codex") == find_program("codex", "codex", {"PATH": str(tmp_path)})

    @pytest.mark.parametrize("nested", [False, True], ids=["beside", "inside"])
    def test_the_npm_script_is_skipped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, nested: bool) -> None:
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        monkeypatch.setattr(system, "HERE", Linux())
        package = tmp_path / "@openai" / "codex"
        beside = package / "node_modules" / "@openai" if nested else package.parent
        for name in ("codex-linux-x64", "codex-linux-arm64", "codex-darwin-x64"):
            _executable(beside / name / "vendor" / "some-triple" / "bin" / "codex")
        _executable(package / "bin" / "codex.js")
        (tmp_path / "codex").symlink_to(package / "bin" / "codex.js")

        native = beside / "codex-linux-x64" / "vendor" / "some-triple" / "bin" / "codex"
        assert str(native) == find_program("codex", str(tmp_path / "codex"), {})

    def test_a_script_without_a_package_is_run_as_it_is(self, tmp_path: Path) -> None:
        _executable(tmp_path / "codex.js")

        assert str(tmp_path / "codex.js") == find_program("codex", str(tmp_path / "codex.js"), {})


class TestDiff:
    @pytest.mark.parametrize("before", ["", "a\n", "a", "a\nb\n", "a\nb", "\n", "a\n\n"])
    @pytest.mark.parametrize("kind", ["add", "delete"])
    def test_an_added_or_removed_file_is_one_hunk(self, tmp_path: Path, kind: str, before: str) -> None:
        """Git takes it for what it is."""
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        if kind == "delete":
            (tmp_path / "f").write_text(before)
        change = {"path": f"{HERE}/f", "kind": {"type": kind}, "diff": before}
        made = diff.unified([change], HERE)
        if not before:
            assert {"add": "--- /dev/null\n+++ b/f\n", "delete": "--- a/f\n+++ /dev/null\n"}[kind] == made
        else:
            subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=made.encode(), check=True)
            assert (kind == "add") is (tmp_path / "f").exists()
            assert kind == "delete" or before == (tmp_path / "f").read_text()

    def test_bare_hunks_get_their_files_and_a_moved_file_has_both_names(self) -> None:
        change = {"path": f"{HERE}/a/b", "kind": {"type": "update", "move_path": None}, "diff": "@@ -1 +1 @@\n-x\n+y"}
        assert "--- a/a/b\n+++ b/a/b\n@@ -1 +1 @@\n-x\n+y\n" == diff.unified([change], HERE)

        change = {"path": f"{HERE}/a", "kind": {"type": "update", "move_path": f"{HERE}/b"}, "diff": ""}
        assert "rename from a\nrename to b\n--- a/a\n+++ b/b\n" == diff.unified([change], HERE)

    @pytest.mark.parametrize("path", ["/etc/passwd", "/work/project-of-another/x"])
    def test_a_file_elsewhere_keeps_its_whole_name(self, path: str) -> None:
        assert path in diff.unified([{"path": path, "kind": {"type": "add"}, "diff": "x\n"}], HERE)

    @given(st.text(alphabet="a+- \n", max_size=30))
    def test_the_added_lines_are_the_content(self, content: str) -> None:
        made = diff.unified([{"path": "f", "kind": {"type": "add"}, "diff": content}], HERE)

        added = [line[1:] for line in made.split("\n")[2:] if line.startswith("+")]
        assert content.removesuffix("\n").split("\n") == added or not content


class TestCommand:
    @pytest.mark.parametrize(
        ("command", "script"),
        [
            ("/bin/bash -lc 'touch a'", "touch a"),
            ("bash -c ls", "ls"),
            ("/usr/bin/zsh -lc 'a && b'", "a && b"),
            ("touch a", "touch a"),
            ("/tmp/bash -lc 'ls'", "/tmp/bash -lc 'ls'"),
            ("./evilsh -c 'ls'", "./evilsh -c 'ls'"),
            ("bash -c ls more", "bash -c ls more"),
            ("bash -x ls", "bash -x ls"),
            ("bash -lc 'unfinished", "bash -lc 'unfinished"),
        ],
    )
    def test_only_a_shells_own_wrapping_is_removed(self, command: str, script: str) -> None:
        assert script == items.script(command)


class TestSettings:
    ASKING = CodexSettings(model="m", policy="untrusted", effort="high")
    PLANNING = CodexSettings(model="m", policy="untrusted", is_planning=True)

    def test_they_are_read_from_a_response_and_from_an_update(self) -> None:
        response = {"model": "m", "approvalPolicy": "untrusted", "reasoningEffort": "high"}
        update = {"model": "m", "approvalPolicy": "untrusted", "collaborationMode": {"mode": "plan"}}

        assert (self.ASKING, self.PLANNING) == (settings(response), settings(update))
        assert "plan" == settings(update).permission_mode
        assert "granular" == settings({"approvalPolicy": {"granular": {}}}).permission_mode

    def test_only_changed_settings_are_sent(self) -> None:
        assert {} == change(self.ASKING, None, None)
        assert {"model": "n"} == change(self.ASKING, "n", None)
        assert {"approvalPolicy": "never"} == change(self.ASKING, None, "never")

    def test_plan_mode_is_entered_with_the_model_and_left(self) -> None:
        entered = change(self.ASKING, "n", "plan")["collaborationMode"]
        left = change(self.PLANNING, None, "on-request")

        assert ("plan", "n", "high") == (
            entered["mode"],
            entered["settings"]["model"],
            entered["settings"]["reasoning_effort"],
        )
        assert ("default", "on-request") == (left["collaborationMode"]["mode"], left["approvalPolicy"])
        assert "default" == planned(self.PLANNING)["collaborationMode"]["mode"]

    def test_another_model_in_plan_mode_keeps_that_and_a_mode_of_another_agent_is_refused(self) -> None:
        """Codex lets the mode's own model win."""
        mode = change(self.PLANNING, "n", None)["collaborationMode"]
        assert ("plan", "n") == (mode["mode"], mode["settings"]["model"])

        with pytest.raises(RefusedError, match="Available: plan, untrusted, on-request, never"):
            change(self.ASKING, None, "acceptEdits")


COMMAND, FILES, PERMISSIONS, QUESTIONS = READERS
CHANGE = {"path": f"{HERE}/a", "kind": {"type": "update", "move_path": None}, "diff": "@@ -1 +1 @@\n-x\n+y\n"}


class Asking:
    """Calls of codex, and answers to them."""

    def __init__(self) -> None:
        self.requests = CodexRequests()

    def opened(self, call: int, method: str, params: dict[str, Any], *changes: dict[str, Any]) -> tuple[Request, ...]:
        setting = CodexRequestContext(session=SessionId("s"), id=f"1.{call}", workdir=HERE, now=1.0, changes=changes)
        events = self.requests.open(call, method, {"threadId": "t", "itemId": "i", **params}, setting)
        return tuple(event.request for event in events if isinstance(event, RequestOpened))

    def answer(self, request: Request, decision: Decision, **more: Any) -> CodexAnswerOutcome:
        return self.requests.answer(Answer(request=request.id, digest=request.digest, decision=decision, **more), 1.0)


@pytest.fixture
def asking() -> Asking:
    return Asking()


class TestAnswers:
    @pytest.mark.parametrize(
        ("method", "allow", "deny", "cancel", "interrupts"),
        [
            (COMMAND, {"decision": "accept"}, {"decision": "decline"}, {"decision": "cancel"}, False),
            (FILES, {"decision": "accept"}, {"decision": "decline"}, {"decision": "cancel"}, False),
            (
                PERMISSIONS,
                {"permissions": {"network": {"enabled": True}}, "scope": "turn"},
                {"permissions": {}, "scope": "turn"},
                {"permissions": {}, "scope": "turn"},
                True,
            ),
            (
                ELICITATION,
                {"action": "accept", "content": {}, "_meta": None},
                {"action": "decline", "content": None, "_meta": None},
                {"action": "cancel", "content": None, "_meta": None},
                True,
            ),
        ],
    )
    def test_each_decision_has_its_result(
        self, asking: Asking, method: str, allow: Any, deny: Any, cancel: Any, *, interrupts: bool
    ) -> None:
        wanted = {"network": {"enabled": True}, "fileSystem": None}
        params = {"command": "ls", "permissions": wanted, "mode": "form", "requestedSchema": {"properties": {}}}
        results = []
        for decision in (Decision.ALLOW, Decision.DENY, Decision.CANCEL):
            (request,) = asking.opened(1, method, params, CHANGE)
            outcome = asking.answer(request, decision)
            results.append(outcome.result)
            assert (1, "t", "i") == (outcome.call, outcome.thread, outcome.item)
            assert (decision is Decision.ALLOW) is outcome.allowed
            assert (decision is Decision.CANCEL and interrupts) is outcome.interrupt

        assert [allow, deny, cancel] == results

    def test_a_reason_is_sent_with_a_denial_only(self, asking: Asking) -> None:
        (first,) = asking.opened(1, COMMAND, {"command": "ls"})
        (second,) = asking.opened(2, COMMAND, {"command": "ls"})

        assert "" == asking.answer(first, Decision.ALLOW, reason="fine").reason
        assert "no" == asking.answer(second, Decision.DENY, reason=" no ").reason

    def test_it_is_answered_once(self, asking: Asking) -> None:
        (request,) = asking.opened(1, COMMAND, {"command": "ls"})
        asking.answer(request, Decision.ALLOW)

        with pytest.raises(RequestClosedError):
            asking.answer(request, Decision.ALLOW)

    def test_an_answer_to_another_text_is_refused_and_it_waits_on(self, asking: Asking) -> None:
        (request,) = asking.opened(1, COMMAND, {"command": "ls"})
        with pytest.raises(StaleRequestError):
            asking.requests.answer(Answer(request=request.id, digest="0", decision=Decision.ALLOW), 1.0)

        assert (request,) == asking.requests.waiting()

    @pytest.mark.parametrize("decision", [Decision.ALWAYS, Decision.EDIT, Decision.CHOOSE])
    def test_a_decision_that_codex_does_not_support_is_refused(self, asking: Asking, decision: Decision) -> None:
        (request,) = asking.opened(1, COMMAND, {"command": "ls"})
        with pytest.raises(UnableError):
            asking.answer(request, decision)

        assert (request,) == asking.requests.waiting()

    @pytest.mark.parametrize(
        ("method", "params"),
        [
            ("applyPatchApproval", {}),
            ("execCommandApproval", {"command": ["ls"]}),
            ("item/tool/call", {"tool": "x"}),
            ("account/chatgptAuthTokens/refresh", {}),
            ("attestation/generate", {}),
            (ELICITATION, {"mode": "openai/form", "message": "x"}),
            (ELICITATION, {"mode": "openai/userVerification", "challenge": "x"}),
            (QUESTIONS, {"questions": []}),
        ],
    )
    def test_an_unknown_call_opens_no_request(self, asking: Asking, method: str, params: Any) -> None:
        assert () == asking.opened(1, method, params)
        assert () == asking.requests.waiting()


class TestShown:
    def test_a_command_elsewhere_says_where_and_a_host_is_named(self, asking: Asking) -> None:
        (here,) = asking.opened(1, COMMAND, {"command": "ls", "cwd": HERE})
        (there,) = asking.opened(2, COMMAND, {"command": "ls", "cwd": "/etc"})
        assert ({"command": "ls"}, "ls") == (here.input, here.shown)
        assert ({"command": "ls", "cwd": "/etc"}, "ls\nin /etc") == (there.input, there.shown)

        context = {"host": "example.org", "protocol": "https"}
        (request,) = asking.opened(1, COMMAND, {"command": "curl x", "networkApprovalContext": context})
        assert ("reach example.org", "curl x\nnetwork: https to example.org") == (request.title, request.shown)
        assert context == request.input["networkApprovalContext"]

    def test_typing_into_a_command_is_no_command(self, asking: Asking) -> None:
        """A rule for the command must not allow it."""
        (request,) = asking.opened(1, COMMAND, {"command": "y", "kind": "writeStdin"})

        assert ({"command": "y", "kind": "writeStdin"}, "y\ntypes into a running command") == (
            request.input,
            request.shown,
        )

    def test_a_command_of_an_unknown_shape_is_shown_as_it_came_and_a_hidden_change_so(self, asking: Asking) -> None:
        (request,) = asking.opened(1, COMMAND, {"riddle": "x"})
        assert '"riddle": "x"' in request.shown
        assert "shell" == request.title

        (request,) = asking.opened(1, FILES, {"reason": "r"})
        assert ("change files (codex did not list them)", False) == (request.title, request.is_diff)

    @pytest.mark.parametrize(
        ("change", "params"),
        [
            ({**CHANGE, "kind": {"type": "delete"}}, {}),
            ({**CHANGE, "kind": {"type": "update", "move_path": f"{HERE}/b"}}, {}),
            (CHANGE, {"grantRoot": "/"}),
        ],
        ids=["deleted", "moved", "and more"],
    )
    def test_only_an_edit_of_one_file_is_identified_by_its_path(self, asking: Asking, change: Any, params: Any) -> None:
        """So that a rule for edits of a file allows nothing else."""
        (edit,) = asking.opened(1, FILES, {}, CHANGE)
        (more,) = asking.opened(2, FILES, params, change)
        (two,) = asking.opened(3, FILES, {}, CHANGE, CHANGE)

        assert {"path": f"{HERE}/a"} == edit.input
        assert "path" not in more.input
        assert "path" not in two.input

    def test_a_root_to_write_is_told_and_an_address_is_shown_whole(self, asking: Asking) -> None:
        (request,) = asking.opened(1, FILES, {"grantRoot": "/srv", "reason": "it is full."}, CHANGE)
        assert "it is full. It also asks to write anything below /srv from now on." == request.why

        params = {"mode": "url", "serverName": "demo", "message": "Sign in", "url": "https://login.example/x"}
        (request,) = asking.opened(1, ELICITATION, params)
        assert (RequestKind.AUTH, "Sign in\n\nhttps://login.example/x") == (request.kind, request.shown)
        accepted = asking.answer(request, Decision.ALLOW).result
        assert {"action": "accept", "content": None, "_meta": None} == accepted

    def test_an_answer_that_codex_calls_a_secret_is_warned_of(self, asking: Asking) -> None:
        question = {"id": "k", "header": "Key", "question": "Which?", "isSecret": True, "options": None}
        (request,) = asking.opened(1, QUESTIONS, {"questions": [question]})

        assert (True, True) == (request.free_text, "log" in request.why)


FORM = {
    "many": {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}},
    "number": {"type": "number"},
    "old": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
    "one": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]},
}


class TestForms:
    @pytest.fixture
    def fields(self, asking: Asking) -> tuple[Request, ...]:
        schema = {"type": "object", "properties": FORM, "required": list(FORM)}
        return asking.opened(
            1, ELICITATION, {"mode": "form", "serverName": "demo", "message": "Fill in", "requestedSchema": schema}
        )

    def test_text_values_become_typed_values(self, asking: Asking, fields: tuple[Request, ...]) -> None:
        labels = (("Red", "Blue"), ("2.5",), ("Large",), ("Red",))
        outcomes = [
            asking.answer(field, Decision.CHOOSE, labels=chosen) for field, chosen in zip(fields, labels, strict=True)
        ]

        assert [None, None, None, 1] == [outcome.call for outcome in outcomes]
        assert {"many": ["r", "b"], "number": 2.5, "old": "l", "one": "r"} == outcomes[-1].result["content"]
        assert [True, False, False, False] == [field.many for field in fields]

    def test_a_field_that_may_stay_empty_can_be_left_out(self, asking: Asking) -> None:
        schema = {"type": "object", "properties": {"note": {"type": "string"}, "sure": {"type": "boolean"}}}
        note, sure = asking.opened(1, ELICITATION, {"mode": "form", "requestedSchema": schema})
        assert (("(leave out)",), ("yes", "no", "(leave out)")) == (note.options, sure.options)

        asking.answer(note, Decision.CHOOSE, labels=("(leave out)",))
        assert {"sure": False} == asking.answer(sure, Decision.CHOOSE, labels=("no",)).result["content"]

    def test_no_answer_is_a_word_for_a_number_or_no_choice(self, asking: Asking, fields: tuple[Request, ...]) -> None:
        with pytest.raises(UsageError, match="'number' requires a number, and 'two' is not one"):
            asking.answer(fields[1], Decision.CHOOSE, labels=("two",))
        assert fields == asking.requests.waiting()

        with pytest.raises(UnableError, match="one answer or more, not 0"):
            asking.answer(fields[0], Decision.CHOOSE)

    def test_denying_one_withdraws_those_that_still_wait(self, asking: Asking, fields: tuple[Request, ...]) -> None:
        asking.answer(fields[0], Decision.CHOOSE, labels=("Red",))
        outcome = asking.answer(fields[1], Decision.DENY)

        assert [fields[2].id, fields[3].id] == [
            event.request for event in outcome.events if isinstance(event, RequestWithdrawn)
        ]
        assert ("decline", ()) == (outcome.result["action"], asking.requests.waiting())


def _executable(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("Missing environment variable: `OWN_KEY`. Set it.", "`--env OWN_KEY`"),
        ("Missing environment variable: `; rm`", ""),
        ("stream disconnected", ""),
    ],
)
def test_a_missing_variable_of_a_provider_is_named_with_how_to_set_it(said: str, fix: str) -> None:
    told = failure({"message": said})

    assert told.startswith(said)
    assert ("--env" in told, fix in told) == (bool(fix), True)
