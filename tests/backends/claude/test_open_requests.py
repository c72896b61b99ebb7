"""What the agent asks becomes requests, and what a person answers becomes the one reply that it waits for."""

import pytest

from kasmon.backends.claude.open_requests import (
    AllowResult,
    ClaudeAnswerOutcome,
    ClaudeRequests,
    DenyResult,
    PermissionReply,
)
from kasmon.backends.claude.request_builder import ACCEPT_EDITS, ASK_EACH, KEEP_PLANNING, RequestContext, build_requests
from kasmon.backends.common.json_access import Table
from kasmon.errors import RequestClosedError, UnableError
from kasmon.model.answer import missing_fields
from kasmon.model.commands import Answer
from kasmon.model.events import Event, RequestOpened, RequestWithdrawn
from kasmon.model.permission import NO_PLAN, Decision, Request, RequestKind, SessionId
from tests.support.claude.recording import recorded

NOW = 1.0


def asked(tool: str, given: Table, before: str | None = None, said: str = "", **more: object) -> tuple[Request, ...]:
    context = RequestContext(session=SessionId("s"), at=NOW, before=before, said=said)
    return build_requests("call", {"subtype": "can_use_tool", "tool_name": tool, "input": given, **more}, context)


class Waiting:
    """An agent that waits for the answers to one call."""

    def __init__(self, tool: str, given: Table) -> None:
        self.calls = ClaudeRequests()
        self.open(tool, given)

    def open(self, tool: str, given: Table) -> tuple[Event, ...]:
        request = {"tool_name": tool, "input": given}
        events = self.calls.open("call", request, RequestContext(session=SessionId("s"), at=NOW))
        self.requests = [event.request for event in events if isinstance(event, RequestOpened)]
        return events

    def answer(self, decision: Decision, n: int = 0, **more: object) -> ClaudeAnswerOutcome:
        answer = Answer(request=self.requests[n].id, digest=self.requests[n].digest, decision=decision, **more)  # type: ignore[arg-type]
        return self.calls.answer(answer, NOW)


QUESTIONS = next(
    message["request"]["input"]
    for to, message in recorded("questions")
    if not to and message["type"] == "control_request"
)
COMMAND = {"command": "touch x", "description": "Make a file"}


def test_a_command_is_shown_whole_with_the_agents_reason() -> None:
    (request,) = asked("Bash", COMMAND, description="Make a file", decision_reason="It writes", blocked_path="/etc/x")

    assert ("Bash", "touch x", "touch x", False) == (request.tool, request.title, request.shown, request.is_diff)
    assert "Make a file · It writes · It reaches /etc/x" == request.why
    assert COMMAND == request.input
    assert {Decision.ALLOW, Decision.DENY, Decision.EDIT, Decision.CANCEL} == set(request.choices)


@pytest.mark.parametrize(
    ("flag", "words"),
    [("run_in_background", "in the background"), ("dangerouslyDisableSandbox", "OUTSIDE THE SANDBOX")],
)
def test_options_that_change_a_command_are_shown_before_it(flag: str, words: str) -> None:
    (request,) = asked("Bash", {"command": "touch x", flag: True})

    assert f"{words}: touch x" == request.title


def test_a_request_of_a_sub_agent_is_marked() -> None:
    (request,) = asked("Bash", COMMAND, agent_id="a1")

    assert request.why.startswith("Requested by a sub-agent")


def test_a_change_or_a_new_file_is_shown_as_a_diff_and_one_that_cannot_be_read_not_as_new() -> None:
    edit = {"file_path": "f.txt", "old_string": "two", "new_string": "TWO"}
    (request,) = asked("Edit", edit, before="one\ntwo\nthree\n")
    assert request.is_diff
    assert "--- f.txt\n+++ f.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three" == request.shown

    (request,) = asked("Write", {"file_path": "f.txt", "content": "one\ntwo\n"}, before="")
    assert "--- /dev/null\n+++ f.txt\n@@ -0,0 +1,2 @@\n+one\n+two" == request.shown

    (request,) = asked("Write", {"file_path": "f.txt", "content": "one\n"}, before=None)
    assert not request.is_diff
    assert "f.txt\n\none\n" == request.shown


def test_any_other_tool_shows_its_whole_input() -> None:
    (request,) = asked("WebFetch", {"url": "https://example.org", "prompt": "line\nurl: https://other"})

    assert "https://example.org" == request.title
    assert '"prompt": "line\\nurl: https://other"' in request.shown


def test_each_question_of_a_call_is_a_request_of_its_own() -> None:
    colour, which = asked("AskUserQuestion", QUESTIONS)

    assert RequestKind.QUESTION is colour.kind is which.kind
    assert ("Colour?", ("red", "blue"), ("r d", "b d"), False) == (
        colour.shown,
        colour.options,
        colour.option_notes,
        colour.many,
    )
    assert which.many
    assert colour.free_text
    assert colour.id != which.id


def test_a_question_call_without_questions_is_a_permission_request() -> None:
    (request,) = asked("AskUserQuestion", {"questions": "none"})

    assert RequestKind.PERMISSION is request.kind


@pytest.mark.parametrize(
    ("given", "said", "shown"),
    [
        ({"plan": "# A"}, "what was said", "# A"),
        ({}, "what was said", f"{NO_PLAN} Its last message:\n\nwhat was said"),
        ({"plan": ""}, "", NO_PLAN),
    ],
)
def test_a_plan_is_shown_or_reported_as_missing(given: Table, said: str, shown: str) -> None:
    (request,) = asked("ExitPlanMode", given, said=said)

    assert (RequestKind.PLAN, shown) == (request.kind, request.shown)
    assert Decision.EDIT not in request.choices


def test_the_required_input_of_claudes_own_tools_is_known() -> None:
    (bash,), (other,) = asked("Bash", COMMAND), asked("mcp__db__query", {"sql": "select 1", "limit": 5})

    assert ("command",) == bash.required
    assert [] == missing_fields(bash, {"command": "ls"})
    assert ["sql", "limit"] == missing_fields(other, {})


def test_an_allowed_tool_runs_as_requested() -> None:
    assert AllowResult(COMMAND) == Waiting("Bash", COMMAND).answer(Decision.ALLOW).reply


def test_an_edited_change_is_applied_as_it_was_last_shown() -> None:
    """Under the same id: the SDK knows that of the first call only."""
    agent, changed = Waiting("Bash", COMMAND), {"command": "touch y"}
    withdrawn, _ = agent.open("Bash", changed)

    assert isinstance(withdrawn, RequestWithdrawn)
    assert AllowResult(changed) == agent.answer(Decision.ALLOW).reply


def test_an_edited_tool_runs_as_the_user_wrote_it() -> None:
    reply = Waiting("Bash", COMMAND).answer(Decision.EDIT, input={"command": "touch y"}).reply

    assert AllowResult({"command": "touch y"}) == reply


@pytest.mark.parametrize("kind", ["Bash", "ExitPlanMode"])
def test_a_denied_tool_gets_the_reason(kind: str) -> None:
    assert DenyResult("not now") == Waiting(kind, COMMAND).answer(Decision.DENY, reason="not now").reply


def test_denied_without_a_reason_it_is_told_one_and_cancelled_its_turn_ends() -> None:
    reply = Waiting("Bash", COMMAND).answer(Decision.DENY).reply
    assert isinstance(reply, DenyResult)
    assert reply.reason
    assert not reply.ends_turn

    reply = Waiting("Bash", COMMAND).answer(Decision.CANCEL).reply
    assert isinstance(reply, DenyResult)
    assert reply.ends_turn


def test_questions_are_answered_together_once_each_has_its_answer() -> None:
    waiting = Waiting("AskUserQuestion", QUESTIONS)

    assert waiting.answer(Decision.CHOOSE, 1, labels=("x", "y")).reply is None
    reply = waiting.answer(Decision.CHOOSE, 0, labels=("a colour of my own",)).reply
    assert AllowResult({**QUESTIONS, "answers": {"Colour?": "a colour of my own", "Which?": "x, y"}}) == reply


def test_a_denied_question_denies_the_call_and_withdraws_the_others() -> None:
    waiting = Waiting("AskUserQuestion", QUESTIONS)
    outcome = waiting.answer(Decision.DENY, 0, reason="neither")

    assert DenyResult("neither") == outcome.reply
    assert [waiting.requests[1].id] == [
        event.request for event in outcome.events if isinstance(event, RequestWithdrawn)
    ]
    with pytest.raises(RequestClosedError):
        waiting.answer(Decision.CHOOSE, 1, labels=("x",))


@pytest.mark.parametrize(
    ("label", "reply"),
    [
        (ACCEPT_EDITS, AllowResult({"plan": "# A"}, "acceptEdits")),
        (ASK_EACH, AllowResult({"plan": "# A"}, "default")),
        (KEEP_PLANNING, DenyResult("The user does not approve this plan yet.")),
        ("use fewer files", DenyResult("use fewer files")),
    ],
)
def test_a_plan_is_approved_into_a_mode_or_continues_with_feedback(label: str, reply: PermissionReply) -> None:
    waiting = Waiting("ExitPlanMode", {"plan": "# A"})

    assert (ACCEPT_EDITS, ASK_EACH, KEEP_PLANNING) == waiting.requests[0].options
    assert reply == waiting.answer(Decision.CHOOSE, labels=(label,)).reply


@pytest.mark.parametrize("labels", [(), ("red", "blue")])
def test_a_question_accepts_the_number_of_answers_that_it_states(labels: tuple[str, ...]) -> None:
    with pytest.raises(UnableError):
        Waiting("AskUserQuestion", QUESTIONS).answer(Decision.CHOOSE, 0, labels=labels)


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_an_answer_never_answers_a_later_call_with_the_same_id(is_withdrawn: bool) -> None:
    waiting = Waiting("Bash", COMMAND)
    shown = waiting.requests
    if is_withdrawn:
        waiting.calls.withdraw("call", "it gave up", NOW)
    events = waiting.open("Bash", {"command": "rm -r x"})

    assert ([] if is_withdrawn else [shown[0].id]) == [e.request for e in events if isinstance(e, RequestWithdrawn)]
    later, waiting.requests = waiting.requests, shown
    with pytest.raises(RequestClosedError):
        waiting.answer(Decision.ALLOW)
    waiting.requests = later
    assert waiting.answer(Decision.ALLOW).reply


def test_a_request_is_answered_once() -> None:
    waiting = Waiting("Bash", COMMAND)
    waiting.answer(Decision.ALLOW)

    with pytest.raises(RequestClosedError):
        waiting.answer(Decision.ALLOW)


@pytest.mark.parametrize("decision", [Decision.ALWAYS, Decision.CHOOSE, Decision.LATER, Decision.NEVER])
def test_a_decision_that_was_not_offered_is_refused(decision: Decision) -> None:
    with pytest.raises(UnableError):
        Waiting("Bash", COMMAND).answer(decision)


def test_an_edit_without_an_input_is_refused() -> None:
    with pytest.raises(UnableError):
        Waiting("Bash", COMMAND).answer(Decision.EDIT)


def test_a_request_that_the_agent_withdrew_accepts_no_answer() -> None:
    waiting = Waiting("AskUserQuestion", QUESTIONS)
    withdrawn = waiting.calls.withdraw("call", "it went away", NOW)

    assert {request.id for request in waiting.requests} == {
        event.request for event in withdrawn if isinstance(event, RequestWithdrawn)
    }
    with pytest.raises(RequestClosedError):
        waiting.answer(Decision.CHOOSE, labels=("red",))
    assert () == waiting.calls.withdraw("call", "again", NOW)


def test_an_open_request_can_be_reported_again_and_stays_open() -> None:
    waiting = Waiting("Bash", COMMAND)
    again = waiting.calls.reopen_all(NOW)

    assert waiting.requests == [event.request for event in again if isinstance(event, RequestOpened)]
