"""A permission is shown whole, and never answered by more than a person said."""

from typing import Any

import pytest
from acp.schema import RequestPermissionRequest, ToolCallProgress
from pydantic import ValidationError

from kasmon.agents.catalog import find
from kasmon.agents.profile import Quirk
from kasmon.backends.acp.permission_requests import AcpPermission, ask, only_explains, understood
from kasmon.backends.acp.tool_calls import AcpToolCalls
from kasmon.model.commands import Answer
from kasmon.model.permission import Decision, RequestId, RequestKind, SessionId, digest_of
from kasmon.model.rule import draft_rule

ONCE = {"optionId": "once", "name": "Allow once", "kind": "allow_once"}
ALWAYS = {"optionId": "always", "name": "Always allow", "kind": "allow_always"}
NO = {"optionId": "no", "name": "Reject", "kind": "reject_once"}
NEVER = {"optionId": "never", "name": "Never", "kind": "reject_always"}
CANCELLED = {"outcome": {"outcome": "cancelled"}}


def asks(*options: Any, habits: frozenset[Quirk] = frozenset(), **call: Any) -> AcpPermission:
    tools = AcpToolCalls("/project", habits)
    request = understood(
        {"sessionId": "s", "toolCall": {"toolCallId": "c", **call}, "options": [*(options or (ONCE, NO))]}
    )
    tool = tools.record_request(request.tool_call)
    return ask(request, tool, tools, number=RequestId("1"), session=SessionId("s"), workdir="/project")


def told(asked: AcpPermission, decision: Decision, *labels: str) -> dict[str, Any]:
    return asked.outcome(Answer(request=asked.request.id, digest="", decision=decision, labels=labels))


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


def diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def text(words: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": words}}


def test_allowing_and_denying_choose_the_single_permission_and_never_a_lasting_one() -> None:
    asked = asks(ALWAYS, ONCE, NEVER, NO)
    assert selected("once") == told(asked, Decision.ALLOW)
    assert selected("no") == told(asked, Decision.DENY)
    assert CANCELLED == told(asked, Decision.CANCEL)

    assert CANCELLED == told(asks(ONCE, NEVER), Decision.DENY)


def test_neither_lasting_permissions_alone_nor_an_unknown_option_can_be_allowed() -> None:
    asked = asks(ALWAYS, NO)
    assert (Decision.DENY, Decision.CANCEL) == asked.request.choices
    assert "only lasting ones (“Always allow”)" in asked.request.why
    assert CANCELLED == told(asked, Decision.ALLOW)

    asked = asks(ONCE, {"optionId": "x", "name": "For an hour", "kind": "allow_hour"}, NO)
    assert selected("once") == told(asked, Decision.ALLOW)


@pytest.mark.parametrize("params", [None, {"options": 3}, {"sessionId": "s", "toolCall": {}, "options": []}])
def test_an_invalid_question_is_ignored(params: object) -> None:
    with pytest.raises(ValidationError):
        understood(params)


def test_several_single_permissions_are_a_choice() -> None:
    first, second = {**ONCE, "optionId": "1"}, {**ONCE, "optionId": "2"}
    asked = asks(first, second, NO)

    assert RequestKind.QUESTION is asked.request.kind
    assert ("Allow once", "Allow once (2)", "Reject") == asked.request.options
    assert selected("2") == told(asked, Decision.CHOOSE, "Allow once (2)")
    assert CANCELLED == told(asked, Decision.CHOOSE, "whatever")


def test_a_command_is_shown_with_all_that_changes_what_it_does() -> None:
    raw = {"command": "make", "description": "Build it", "cwd": "/elsewhere", "env": {"CC": "evil"}}
    request = asks(kind="execute", title="make", rawInput=raw).request

    assert "Build it" == request.why
    assert request.shown.startswith("make\n\n{")
    assert '"cwd": "/elsewhere"' in request.shown
    assert '"CC": "evil"' in request.shown
    assert raw == request.input


def test_a_command_in_its_own_folder_is_the_command_alone() -> None:
    assert "make" == asks(kind="execute", title="x", rawInput={"command": "make", "cwd": "/project"}).request.shown


def test_an_edit_is_shown_as_a_diff_of_all_its_files() -> None:
    request = asks(
        kind="edit", content=[text("why not"), diff("/project/a", "1\n", "2\n"), diff("/b", None, "3\n")]
    ).request

    assert request.is_diff
    assert "--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-1\n+2\n--- /dev/null\n+++ b//b\n@@ -0,0 +1,1 @@\n+3\n" == request.shown
    assert "why not" == request.why
    assert {"paths": ["/b", "/project/a"]} == request.input


def test_no_rule_is_made_from_an_input_that_names_another_file_than_the_diff() -> None:
    other = asks(kind="edit", rawInput={"path": "/project/a"}, content=[diff("/project/b", "1\n", "2\n")]).request
    two = asks(kind="edit", rawInput={"path": "a"}, content=[diff("a", "1", "2"), diff("b", "1", "2")]).request
    same = asks(kind="edit", rawInput={"path": "a"}, content=[diff("/project/a", "1\n", "2\n")]).request

    assert draft_rule(other, "/project") is None
    assert draft_rule(two, "/project") is None
    assert draft_rule(same, "/project") is not None


def test_anything_else_is_shown_with_its_whole_input_which_says_no_less_than_what_is_shown() -> None:
    """Rules are made of it."""
    request = asks(kind="fetch", title="Fetch a page", rawInput={"url": "https://example.org/", "deep": True}).request
    assert 'Fetch a page\n\n{\n  "url": "https://example.org/",\n  "deep": true\n}' == request.shown

    assert {"title": "Do it", "text": "to that"} == asks(title="Do it", content=[text("to that")]).request.input
    assert {"input": ["a"]} == asks(title="Do it", rawInput=["a"]).request.input


def test_a_plan_is_shown_as_it_was_written() -> None:
    request = asks(kind="switch_mode", title="Ready to code?", content=[text("# Plan\n1. this")]).request

    assert (RequestKind.PLAN, "# Plan\n1. this") == (request.kind, request.shown)


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ("[current working directory /project] (Lists)", {"cwd": "/project", "description": "(Lists)"}),
        ("[current working directory /project]", {"cwd": "/project"}),
        (
            "[current working directory /project] [background]",
            {"text": "[current working directory /project] [background]"},
        ),
        ("[in /project/x] (Lists)", {"text": "[in /project/x] (Lists)"}),
        ("[in /x] [current working directory /project]", {"text": "[in /x] [current working directory /project]"}),
    ],
)
def test_the_command_in_geminis_title_and_its_folder_are_read(words: str, data: dict[str, str]) -> None:
    habits = find("gemini").quirks
    request = asks(kind="execute", title="ls -l", content=[text(words)], habits=habits).request

    assert {"command": "ls -l", **data} == request.input
    assert ("ls -l", words) == (request.shown.split("\n")[0], request.why)


@pytest.mark.parametrize(("allowed", "kinds"), [(True, ["ToolStarted"]), (False, [])])
def test_a_call_with_a_request_starts_once_it_is_allowed(allowed: bool, kinds: list[str]) -> None:
    """opencode says that it is in progress while it asks."""
    tools = AcpToolCalls("/project")
    tools.record_request(understood({"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": []}).tool_call)
    running = ToolCallProgress(tool_call_id="c", session_update="tool_call_update", status="in_progress")

    assert [] == tools.apply(running, 1.0)
    assert kinds == [type(fact).__name__ for fact in tools.apply_answer("c", allowed, 2.0)]
    failed = ToolCallProgress(tool_call_id="c", session_update="tool_call_update", status="failed")
    assert "ToolFinished" == type(tools.apply(failed, 3.0)[-1]).__name__


def test_a_title_of_several_lines_is_one() -> None:
    assert (
        "cat <<E x E"
        == asks(kind="execute", title="cat <<E\nx\nE", rawInput={"command": "cat <<E\nx\nE"}).request.title
    )


def test_the_request_is_sealed_and_the_question_is_the_sdk_s_own() -> None:
    request = asks(kind="execute", title="ls", rawInput={"command": "ls"}).request
    assert digest_of(request) == request.digest

    assert isinstance(
        understood({"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": []}), RequestPermissionRequest
    )


SHOWN = {"command": "make", "timeout": 5}


@pytest.mark.parametrize(
    ("said", "more", "explains"),
    [
        ({**SHOWN, "description": "Builds it", "cwd": "/project"}, {}, True),
        ({**SHOWN, "description": "Builds it"}, {}, True),
        ({**SHOWN, "cwd": "/"}, {}, False),
        ({**SHOWN, "command": "make install"}, {}, False),
        ({**SHOWN, "timeout": 50}, {}, False),
        ({**SHOWN, "environment": {"PATH": "/tmp"}}, {}, False),
        ({"command": "make"}, {}, False),
        (SHOWN, {"title": "make install"}, False),
        (SHOWN, {"content": [text("runs make")]}, True),
        ({**SHOWN, "description": "Builds it"}, {"kind": "fetch"}, False),
    ],
)
def test_a_later_description_that_changes_nothing_keeps_the_request(
    said: dict[str, Any], more: dict[str, Any], explains: bool
) -> None:
    call: dict[str, Any] = {"title": "make", "kind": "execute"}
    before = asks(**call, rawInput=SHOWN).request
    tool = AcpToolCalls("/project").record_request(
        understood({"sessionId": "s", "toolCall": {"toolCallId": "c", **call, **more}, "options": [ONCE]}).tool_call
    )

    assert explains is only_explains(asks(**{**call, **more}, rawInput=said).request, before, tool, "/project")


def test_a_changed_description_makes_a_new_request() -> None:
    call: dict[str, Any] = {"title": "make", "kind": "execute"}
    before, after = (asks(**call, rawInput={"command": "make", "description": words}).request for words in "ab")
    tool = AcpToolCalls("/project").record_request(
        understood({"sessionId": "s", "toolCall": {"toolCallId": "c", **call}, "options": [ONCE]}).tool_call
    )

    assert not only_explains(after, before, tool, "/project")
