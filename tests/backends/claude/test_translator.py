"""What the agent says becomes facts: on recordings of the real one."""

import json

import pytest

from kasmon.backends.claude.messages import UnparsedLine, read
from kasmon.backends.claude.settings import ClaudeSettings
from kasmon.backends.claude.usage import ClaudeUsage
from kasmon.backends.common.unknown_messages import KINDS, RAW_CHARACTERS
from kasmon.model.commands import ConversationUsage, Prompt
from kasmon.model.events import (
    LimitLifted,
    LimitReached,
    LimitsReported,
    MessageWritten,
    NoticeRaised,
    PlanItem,
    PlanUpdated,
    RequestOpened,
    RequestWithdrawn,
    SettingsChanged,
    SubtaskChanged,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UnknownMessageSeen,
    UsageReported,
    decode,
    encode,
)
from kasmon.model.permission import RequestKind
from kasmon.model.session_state import SessionState
from tests.support.claude.recording import FOLDER, Played, recorded, said

NAMES = sorted(file.stem for file in FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("name", NAMES)
def test_no_recorded_message_is_unknown(name: str) -> None:
    assert [] == Played().play(name).of(UnknownMessageSeen)


@pytest.mark.parametrize("name", NAMES)
def test_every_started_turn_has_ended(name: str) -> None:
    played = Played().play(name)

    assert not played.session.in_turn
    assert played.session.state in (SessionState.IDLE, SessionState.LIMITED, SessionState.STARTING)
    assert () == played.session.requests


@pytest.mark.parametrize("name", NAMES)
def test_every_event_can_be_logged(name: str) -> None:
    facts = Played().play(name).facts

    assert facts == [decode(encode(fact)) for fact in facts]


def test_a_turn_is_reported_from_its_prompt_to_its_end() -> None:
    played = Played().play("turn")

    (started,), (ended,) = played.of(TurnStarted), played.of(TurnEnded)
    assert ("go %% think hmm let me %% say hello there friend %% bash touch x.txt %% say done", "user") == (
        started.prompt,
        started.by,
    )
    assert ("done", "") == (ended.reason, ended.error)
    assert ["hello there friend", "done"] == [fact.text for fact in played.of(MessageWritten)]
    assert ["hmm let me"] == [fact.text for fact in played.of(ThoughtWritten)]


@pytest.mark.parametrize("missing", ["command_lifecycle", "session_state_changed"])
def test_an_older_agent_with_fewer_messages_also_has_turns(missing: str) -> None:
    played = Played()
    for to, message in recorded("turn"):
        if to and message["type"] == "user":
            played.translator.turns.record_prompt(message["uuid"], Prompt(text=message["message"]["content"]))
        elif not to and missing not in (message["type"], message.get("subtype")):
            played.hear(message)

    (started,), (ended,) = played.of(TurnStarted), played.of(TurnEnded)
    assert started.prompt.startswith("go %% think")
    assert "done" == ended.reason


def test_text_and_thinking_are_shown_while_they_are_written() -> None:
    played = Played().play("turn")

    assert "hello there frienddone" == played.written()
    assert "hmm let me" == played.written(thinking=True)


def test_a_tool_is_reported_with_its_input_and_result() -> None:
    played = Played().play("turn")

    (started,), (finished,) = played.of(ToolStarted), played.of(ToolFinished)
    assert ("Bash", "touch x.txt", "") == (started.tool, started.title, started.within)
    assert {"command": "touch x.txt", "description": "Run a scripted command"} == json.loads(started.input)
    assert (started.call, True, "(Bash completed with no output)") == (finished.call, finished.ok, finished.output)


def test_a_request_comes_after_the_text_before_it() -> None:
    kinds = Played().play("turn").kinds

    assert kinds.index("ToolStarted") < kinds.index("RequestOpened") < kinds.index("ToolFinished")


def test_usage_is_a_total_and_names_the_window() -> None:
    *_, last = Played().play("turn").of(UsageReported)

    assert (3000, 44, 1_000_000) == (last.input, last.output, last.limit)
    assert 1521 == last.context
    assert last.cost_usd == pytest.approx(0.00908)


def test_prompts_that_waited_for_a_text_join_one_turn() -> None:
    """The agent merges what came while it was writing."""
    played = Played().play("merged")

    assert ["TurnStarted", "TurnEnded", "TurnStarted", "TurnStarted", "TurnEnded"] == [
        kind for kind in played.kinds if kind.startswith("Turn")
    ]
    assert ["go %% slow 2 aa", "two %% say second one", "three %% say third one"] == [
        fact.prompt for fact in played.of(TurnStarted)
    ]


def test_a_prompt_joins_the_running_turn_at_its_next_tool() -> None:
    played = Played().play("steered")

    turns = [kind for kind in played.kinds if kind.startswith(("Turn", "ToolFinished", "MessageWritten"))]
    assert ["TurnStarted", "ToolFinished", "TurnStarted", "MessageWritten", "TurnEnded"] == turns
    assert "four %% say fourth one" == played.of(TurnStarted)[-1].prompt


def test_an_interrupted_turn_keeps_its_text() -> None:
    played = Played().play("interrupted_text")

    assert ["interrupted"] == [fact.reason for fact in played.of(TurnEnded)]
    assert ["aa0 aa1 aa2 aa3 "] == [fact.text for fact in played.of(MessageWritten)]


def test_an_interrupt_withdraws_open_requests() -> None:
    played = Played().play("interrupted_permission")

    (opened,) = played.of(RequestOpened)
    assert [opened.request.id] == [fact.request for fact in played.of(RequestWithdrawn)]
    assert ["interrupted"] == [fact.reason for fact in played.of(TurnEnded)]


def test_work_of_a_sub_agent_is_nested_in_the_call_that_started_it() -> None:
    played = Played().play("subagent")

    (agent,) = [fact for fact in played.of(ToolStarted) if fact.tool == "Agent"]
    inner = [fact for fact in played.of(ToolStarted) if fact.tool == "Bash"]
    assert [agent.call] == [fact.within for fact in inner]
    assert ["inner hello", "inner done"] == [
        fact.text for fact in played.of(MessageWritten) if fact.within == agent.call
    ]
    assert "inner" not in played.written()


def test_a_sub_agent_reports_its_state_and_usage() -> None:
    first, *between, last = Played().play("subagent").of(SubtaskChanged)

    assert ("agent", "stub task", "running", True) == (first.job, first.title, first.state, first.in_background)
    assert "Running Run a scripted command" in [fact.text for fact in between]
    assert (first.call, "done", 1522, 1) == (last.call, last.state, last.tokens, last.tools)


def test_a_background_command_ends_with_the_end_of_its_output() -> None:
    first, last = Played().play("background").of(SubtaskChanged)

    assert ("command", "bg", "running", True) == (first.job, first.title, first.state, first.in_background)
    assert ("done", 'Background command "bg" completed (exit code 0)') == (last.state, last.text)


def test_the_turn_lasts_as_long_as_its_sub_agents() -> None:
    """Its result comes before they are done; only then the agent says that it is idle."""
    played = Played().play("subagent")

    done = next(
        n for n, fact in enumerate(played.facts) if isinstance(fact, MessageWritten) and fact.text == "inner done"
    )
    assert done < next(n for n, fact in enumerate(played.facts) if isinstance(fact, TurnEnded))


def test_a_background_task_that_ends_starts_a_turn_of_its_own() -> None:
    played = Played().play("background")

    assert ["user", "agent"] == [fact.by for fact in played.of(TurnStarted)]
    assert ["done", "done"] == [fact.reason for fact in played.of(TurnEnded)]
    assert "In the background: bg: completed." in [fact.text for fact in played.of(NoticeRaised)]


def test_an_error_is_an_error_though_the_agent_calls_it_success() -> None:
    played = Played().play("overloaded")

    (ended,) = played.of(TurnEnded)
    assert "error" == ended.reason
    assert ended.error.startswith("API Error: 529")
    assert [] == played.of(MessageWritten)


def test_a_retried_request_is_a_notice_and_the_agent_keeps_working() -> None:
    played = Played()
    for to, message in recorded("overloaded"):
        if not to:
            played.hear(message)
        if message.get("subtype") == "api_retry":
            break

    assert SessionState.WORKING is played.session.state
    (notice,) = played.of(NoticeRaised)
    assert ("warning", "The provider returned 529 (overloaded); trying again in 0.5 s, 1 of 1.") == (
        notice.level,
        notice.text,
    )


def test_a_missing_login_names_the_fix() -> None:
    notices = [fact for fact in Played().play("no_login").of(NoticeRaised) if fact.level == "error"]

    assert len(notices) == 1
    assert "/login" in notices[0].text


def test_a_usage_limit_is_reached_and_lifted() -> None:
    played = Played()
    states = []
    for to, message in recorded("limits"):
        if not to:
            played.hear(message)
            states.append(played.session.state)

    (reached,), (lifted,) = played.of(LimitReached), played.of(LimitLifted)
    assert reached.until is not None
    assert (True, "The five-hour limit is reached.") == (reached.until > 1_790_000_000, reached.text)
    assert reached.at <= lifted.at
    assert ["done", "done", "limit", "done"] == [fact.reason for fact in played.of(TurnEnded)]
    assert SessionState.LIMITED in states


def test_a_limit_that_comes_near_is_a_warning_once() -> None:
    warnings = [fact.text for fact in Played().play("limits").of(NoticeRaised) if fact.level == "warning"]

    assert ["92% of the five-hour limit is used."] == warnings


def test_each_limit_that_the_agent_reports_is_logged_until_its_figures_change() -> None:
    near = said("limits", "rate_limit_event")
    played = Played().hear(near).hear(near)
    (reported,) = played.of(LimitsReported)

    assert [("five_hour", 0.92, 1795320976.0), ("weekly", 0.3, 1795385776.0)] == [
        (window.name, window.used, window.resets_at) for window in reported.windows
    ]
    assert {reported.at} == {window.at for window in played.session.limit_windows}
    whole = {window.name: window for window in Played().play("limits").session.limit_windows}
    assert (0.1, False) == (whole["five_hour"].used, whole["five_hour"].is_reached)
    assert any(window.is_reached for event in Played().play("limits").of(LimitsReported) for window in event.windows)


def test_odd_figures_of_a_limit_are_unknown_and_odd_names_are_text() -> None:
    odd = {"unifiedWindows": {"a\x1b[31m\nb": {"utilization": float("nan"), "resetsAt": 1e300}, "c": "no table"}}
    played = Played().hear({"type": "rate_limit_event", "rate_limit_info": odd})
    windows = played.session.limit_windows

    assert [(None, None, False)] * 2 == [(window.used, window.resets_at, window.is_reached) for window in windows]
    assert all(window.name.isprintable() for window in windows)


def test_the_same_warning_is_not_given_twice() -> None:
    near = said("limits", "rate_limit_event")

    assert 1 == len(Played().hear(near).hear(near).of(NoticeRaised))


def test_a_successful_answer_lifts_a_limit_of_unknown_length() -> None:
    refused = {"type": "assistant", "error": "rate_limit", "message": {"content": [{"type": "text", "text": "429"}]}}
    played = Played().hear(refused).hear(refused).hear(said("turn", "assistant"))

    assert [LimitReached, LimitLifted] == [type(fact) for fact in played.facts if "Limit" in type(fact).__name__]


@pytest.mark.parametrize("may_bypass", [True, False])
def test_a_mode_that_asks_nothing_is_offered_only_where_the_user_allowed_it(may_bypass: bool) -> None:
    offered = ClaudeSettings("", may_bypass=may_bypass).apply_initialize(said("turn", "control_response"), "", 0.0)

    assert may_bypass == ("bypassPermissions" in offered.permission_modes)


def test_the_to_do_list_is_kept_by_its_tasks_or_written_whole() -> None:
    *_, before, last = Played().play("tasks").of(PlanUpdated)
    assert (PlanItem(text="first", state="doing"),) == before.items
    assert (PlanItem(text="the first", state="done"),) == last.items

    (plan,) = Played().play("todos").of(PlanUpdated)
    assert (PlanItem(text="a"), PlanItem(text="b")) == plan.items


def test_a_changed_file_is_reported_as_a_diff() -> None:
    created, edited, overwritten = [fact.diff for fact in Played().play("edits").of(ToolFinished) if fact.diff]

    assert "--- /dev/null\n+++ f.txt\n@@ -0,0 +1,3 @@\n+one\n+two\n+three" == created
    assert "--- f.txt\n+++ f.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three" == edited
    assert "-three\n+3" in overwritten


def test_the_agents_own_slash_commands_report_their_output() -> None:
    played = Played().play("commands")

    assert any(fact.text.startswith("Estimated cost:") for fact in played.of(MessageWritten))
    assert ["The conversation was compacted: 1.5k → 2.6k tokens.", "Compacted"] == [
        fact.text for fact in played.of(NoticeRaised)
    ]


def test_a_cleared_conversation_continues_under_another_id_and_keeps_its_costs() -> None:
    played = Played().play("turn")
    before = played.of(UsageReported)[-1]
    played.translator.settings.conversation = "before"
    played.play("cleared")
    played.play("turn")

    renamed = [fact.resume_id for fact in played.of(SettingsChanged) if fact.resume_id]
    assert said("cleared", "result")["session_id"] in renamed
    last = played.of(UsageReported)[-1]
    assert 2 * before.input == last.input
    assert 2 * (before.cost_usd or 0) == pytest.approx(last.cost_usd)


@pytest.mark.parametrize(
    ("carried", "before"),
    [
        (ConversationUsage(), ConversationUsage(input=4000, output=100, cost_usd=0.5)),
        (
            ConversationUsage(input=2000, output=50, cost_usd=0.2),
            ConversationUsage(input=2000, output=50, cost_usd=0.3),
        ),
        (ConversationUsage(input=4000, output=100, cost_usd=0.5), ConversationUsage()),
    ],
    ids=["anew", "from a process before the last one", "from the last one"],
)
def test_a_resumed_process_adds_to_the_sessions_usage(carried: ConversationUsage, before: ConversationUsage) -> None:
    """The agent's own figures begin wherever the last of its processes ended that ended cleanly."""
    alone = Played().play("turn").of(UsageReported)
    played = Played(used=ConversationUsage(input=4000, output=100, cost_usd=0.5), carried=carried).play("turn")

    resumed = played.of(UsageReported)
    assert [4000 + report.input for report in alone[:-1]] == [report.input for report in resumed[:-1]]
    assert all(report.input > 4000 and report.output > 100 for report in resumed[:-1])
    last = resumed[-1]
    assert (before.input + alone[-1].input, before.output + alone[-1].output) == (last.input, last.output)
    assert (before.cost_usd or 0.0) + (alone[-1].cost_usd or 0.0) == pytest.approx(last.cost_usd)


def test_a_conversation_other_than_the_requested_one_is_reported() -> None:
    played = Played("another").play("turn")

    errors = [fact.text for fact in played.of(NoticeRaised) if fact.level == "error"]
    assert len(errors) == 1
    assert "'another'" not in errors[0]
    assert "another" in errors[0]


def test_the_plan_is_asked_for_as_markdown() -> None:
    played = Played()
    for to, message in recorded("plan"):
        if not to:
            played.hear(message)
        if played.of(RequestOpened):
            break

    request = played.session.requests[-1]
    assert RequestKind.PLAN is request.kind
    assert request.shown.startswith("# The plan\n\n1. do a")


def test_a_request_of_a_sub_agent_outlives_the_turn_in_which_it_was_asked() -> None:
    """A turn's end voids it for everybody, while the agent waits on: so it is told again."""
    asks = said("turn", "control_request")
    played = Played().hear(said("turn", "result") | {"type": "assistant", "message": {"content": []}})
    played.hear(asks)
    played.hear(said("turn", "result"))
    played.hear({"type": "system", "subtype": "session_state_changed", "state": "idle"})

    assert [asks["request_id"]] == [ask.id for ask in played.session.requests]


@pytest.mark.parametrize(
    "line",
    [
        b"[debug] this is no message",
        b'{"type": "assistant", "message": {"content": [{"type": "te',
        b"[1, 2, 3]",
        b"\xff\xfe\x00",
        b'{"type":' * 100_000,
    ],
    ids=["words", "half", "list", "bytes", "deep"],
)
def test_a_malformed_line_is_logged_and_reported_once(line: bytes) -> None:
    played = Played()
    for _ in range(3):
        message = read(line)
        assert isinstance(message, UnparsedLine)
        played.hear(message)
    played.play("turn")

    (foreign,), (notice,) = (
        played.of(UnknownMessageSeen),
        [fact for fact in played.of(NoticeRaised) if fact.level == "warning"],
    )
    assert foreign.raw == line.decode("utf-8", "replace")[:RAW_CHARACTERS]
    assert "not a protocol message" in notice.text
    assert 1 == len(played.of(TurnEnded))


def test_a_blank_line_is_ignored() -> None:
    assert read(b"") is read(b"  \r") is None


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ({"type": "news", "of": 1}, "news"),
        ({"type": "system", "subtype": "news"}, "system/news"),
        ({"type": 7}, "no type"),
        ({}, "no type"),
        ({"type": "assistant", "message": {"content": [{"type": "hologram", "x": 1}]}}, "assistant/hologram"),
    ],
)
def test_each_unknown_kind_is_logged_once(message: dict[str, object], what: str) -> None:
    played = Played()
    for _ in range(3):
        played.hear(dict(message))

    (foreign,) = played.of(UnknownMessageSeen)
    assert what == foreign.what
    assert "{" in foreign.raw


def test_a_flood_of_unknown_kinds_is_cut() -> None:
    played = Played()
    for number in range(2 * KINDS):
        played.hear({"type": f"{number}{'x' * 10_000}"})

    told = [fact.what for fact in played.of(UnknownMessageSeen)]
    assert (KINDS + 1, "something else") == (len(told), told[-1])
    assert max(map(len, told)) <= 200


def test_a_request_that_kasmon_cannot_show_is_reported() -> None:
    played = Played().hear({"type": "control_request", "request_id": "r", "request": {"subtype": "elicitation"}})

    (notice,) = played.of(NoticeRaised)
    assert "'elicitation'" in notice.text
    assert ["control_request/elicitation"] == [fact.what for fact in played.of(UnknownMessageSeen)]


@pytest.mark.parametrize("name", ["turn", "edits", "subagent", "questions", "limits"])
@pytest.mark.parametrize("broken", [None, 7, "text", [], {}, [None, 3, {"type": None}]], ids=repr)
def test_no_field_is_required(name: str, broken: object) -> None:
    """Every member of every message in turn is something else: what is made of it are facts that a log keeps."""
    for to, message in recorded(name):
        if to:
            continue
        for key in message:
            played = Played().hear({**message, key: broken})
            if isinstance(message[key], dict):
                for inner in message[key]:
                    played.hear({**message, key: {**message[key], inner: broken}})

            assert played.facts == [decode(encode(fact)) for fact in played.facts]


ACCOUNT = {
    "categories": [
        {"name": "System \x1b[2Jprompt", "tokens": 3000},
        {"name": "Messages", "tokens": 9000},
        {"name": "MCP tools (deferred)", "tokens": 700, "isDeferred": True},
        {"name": "Free space", "tokens": 188_000},
        {"name": "Skills", "tokens": 0},
    ],
    "totalTokens": 12_000,
    "rawMaxTokens": 200_000,
}


def test_the_usage_of_the_context_is_reported_largest_part_first() -> None:
    usage = ClaudeUsage(ConversationUsage(), ConversationUsage())
    filled = usage.fill(ACCOUNT, 1.0)

    assert filled is not None
    assert [("Messages", 9000), ("System prompt", 3000)] == [(part.name, part.tokens) for part in filled.filled_by]
    assert (12_000, 200_000) == (filled.context, filled.limit)
    assert usage.fill({}, 1.0) is None
    assert usage.fill({"categories": ["x", {"name": 5, "tokens": "y"}]}, 1.0) is None
