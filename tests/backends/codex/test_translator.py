"""What codex said, as it was recorded, becomes the facts of a session."""

from typing import Any

import msgspec
import pytest

from kasmon.backends.base import Chunk
from kasmon.backends.codex.notices import QUIET, QUIET_AREAS
from kasmon.backends.common.unknown_messages import KINDS
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
from kasmon.model.permission import Decision, RequestKind, digest_of
from tests.support.codex.replay import Replay

MAIN, SUB = "main", "sub"


@pytest.fixture
def replay() -> Replay:
    """A conversation that has begun, in which a turn runs."""
    replay = Replay()
    replay.begin({"thread": {"id": MAIN}, "model": "gpt-5.5", "approvalPolicy": "untrusted"})
    hear(replay, "turn/started", turn={"id": "t1"})
    return replay


def hear(replay: Replay, method: str, thread: str = MAIN, **params: Any) -> list[Any]:
    return replay.hear(method, {"threadId": thread, **params})


def item(replay: Replay, how: str, thread: str = MAIN, **item: Any) -> list[Any]:
    return hear(replay, f"item/{how}", thread, item=item)


def ask(replay: Replay, call: int = 0, thread: str = MAIN, item: str = "i1", **params: Any) -> list[Any]:
    method = "item/commandExecution/requestApproval"
    return replay.hear(method, {"threadId": thread, "itemId": item, "command": "ls", **params}, call)


class TestWork:
    def test_a_turn_has_a_beginning_with_its_prompt_and_an_end(self) -> None:
        replay = Replay.of("work")

        assert ["go %% think"] == [turn.prompt[:11] for turn in replay.of_kind(TurnStarted)]
        assert [("done", "")] == [(turn.reason, turn.error) for turn in replay.of_kind(TurnEnded)]
        assert "TurnEnded" == replay.kinds[-1]

    def test_messages_and_thoughts_come_whole_and_as_they_are_written(self) -> None:
        replay = Replay.of("work")

        assert ["I begin", "done"] == [said.text for said in replay.of_kind(MessageWritten)]
        assert ["hmm"] == [said.text for said in replay.of_kind(ThoughtWritten)]
        chunks = replay.of_kind(Chunk)
        assert "I begindone" == "".join(chunk.text for chunk in chunks if not chunk.thinking)
        assert "hmm" == "".join(chunk.text for chunk in chunks if chunk.thinking)

    def test_a_tool_that_needs_permission_starts_when_it_is_allowed(self) -> None:
        kinds = [kind for kind in Replay.of("work").kinds if kind.startswith(("Tool", "Request"))]

        assert ["RequestOpened", "ToolStarted", "ToolFinished"] * 3 == kinds

    def test_tools_have_their_input_output_and_diff(self) -> None:
        replay = Replay.of("work")
        command, made, changed = replay.of_kind(ToolStarted)
        ran, added, edited = replay.of_kind(ToolFinished)

        assert ("shell", "echo made", "") == (command.tool, command.title, command.within)
        assert {"command": "echo made", "cwd": "/work/project"} == msgspec.json.decode(command.input)
        assert (command.call, True, "made\n") == (ran.call, ran.ok, ran.output)
        assert ("apply_patch", "a.txt") == (made.tool, made.title) == (changed.tool, changed.title)
        assert "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,1 @@\n+one\n" == added.diff
        assert "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n" == edited.diff

    def test_a_request_shows_all_of_its_text_and_is_sealed(self) -> None:
        command, made, changed = [opened.request for opened in Replay.of("work").of_kind(RequestOpened)]

        assert ("echo made", "echo made", {"command": "echo made"}) == (command.shown, command.title, command.input)
        assert (Decision.ALLOW, Decision.DENY, Decision.CANCEL) == command.choices
        assert (True, {"path": "/work/project/a.txt"}) == (made.is_diff, made.input)
        assert "-one\n+two\n" in changed.shown
        assert 3 == len({request.id for request in (command, made, changed)})
        assert all(request.digest == digest_of(request) for request in (command, made, changed))

    def test_tokens_are_the_totals_of_the_conversation(self) -> None:
        usage = Replay.of("work").of_kind(UsageReported)

        assert sorted(report.input for report in usage) == [report.input for report in usage]
        assert (4, 258400) == (len(usage), usage[-1].limit)
        assert usage[-1].context < usage[-1].input

    def test_tokens_are_reported_when_they_change(self, replay: Replay) -> None:
        for _ in range(2):
            usage = {"total": {"inputTokens": 1, "outputTokens": 1}, "last": {"inputTokens": 1, "outputTokens": 1}}
            hear(replay, "thread/tokenUsage/updated", tokenUsage=usage)

        assert 1 == len(replay.of_kind(UsageReported))

    def test_a_resumed_process_adds_to_the_sessions_usage(self) -> None:
        """Codex counts on in the main thread; what sub-agents had used in the process before only the log knows."""
        replay = Replay(used=ConversationUsage(input=150, output=15))
        replay.begin({"thread": {"id": MAIN}})
        for read, last in ((100, 25), (130, 30), (170, 40)):
            usage = {
                "total": {"inputTokens": read, "outputTokens": read // 10},
                "last": {"inputTokens": last, "outputTokens": last // 10, "totalTokens": last},
            }
            hear(replay, "thread/tokenUsage/updated", tokenUsage=usage)
            hear(replay, "turn/started", turn={"id": "t"})

        told = [(report.input, report.output) for report in replay.of_kind(UsageReported)]
        assert [(150, 15), (180, 18), (220, 22)] == told

    def test_usage_that_only_codex_knows_of_is_counted_too(self) -> None:
        """A conversation that began in a terminal."""
        replay = Replay()
        replay.begin({"thread": {"id": MAIN}})
        usage = {
            "total": {"inputTokens": 130, "outputTokens": 13},
            "last": {"inputTokens": 30, "outputTokens": 3, "totalTokens": 33},
        }
        hear(replay, "thread/tokenUsage/updated", tokenUsage=usage)

        assert [(130, 13)] == [(report.input, report.output) for report in replay.of_kind(UsageReported)]

    def test_no_message_in_the_recordings_is_unknown(self) -> None:
        for name in (
            "work",
            "denied",
            "interrupted",
            "steered",
            "questions",
            "plan",
            "permissions",
            "server",
            "agents",
        ):
            assert not Replay.of(name).of_kind(UnknownMessageSeen)


class TestPrompts:
    """Whose words codex goes on from; it says each of them back."""

    def said_back(self, replay: Replay, words: str, thread: str = MAIN) -> list[str]:
        said = item(replay, "started", thread, type="userMessage", id="u", content=[{"type": "text", "text": words}])
        return [f"{turn.prompt} ({turn.by})" for turn in said if isinstance(turn, TurnStarted)]

    def test_a_turn_begins_once_with_its_own_prompt(self, replay: Replay) -> None:
        replay.talk.given.expect(Prompt(text="next", by="wave"))
        hear(replay, "turn/started", turn={"id": "t2"})

        assert [] == self.said_back(replay, "next")
        assert ["", "next"] == [turn.prompt for turn in replay.of_kind(TurnStarted)]

    def test_a_steered_prompt_is_reported_when_codex_accepts_it(self, replay: Replay) -> None:
        replay.talk.given.expect_in_turn(Prompt(text="hurry", by="peer"))
        assert 1 == len(replay.of_kind(TurnStarted))

        assert ["hurry (peer)"] == self.said_back(replay, "hurry\n")
        assert [] == self.said_back(replay, "hurry")

    def test_the_same_text_twice_is_two_prompts(self, replay: Replay) -> None:
        replay.talk.given.expect(Prompt(text="go on"))
        hear(replay, "turn/started", turn={"id": "t2"})
        replay.talk.given.expect_in_turn(Prompt(text="go on"))

        assert ([], ["go on (user)"], []) == tuple(self.said_back(replay, "go on") for _ in range(3))

    def test_a_prompt_that_started_no_turn_joined_the_running_one(self, replay: Replay) -> None:
        """Codex takes a second `turn/start` as if it were steered."""
        replay.talk.given.expect(Prompt(text="one"))
        replay.talk.given.expect(Prompt(text="two"))
        hear(replay, "turn/started", turn={"id": "t2"})

        assert [[], ["two (user)"]] == [self.said_back(replay, words) for words in ("one", "two")]
        hear(replay, "turn/started", turn={"id": "t3"})
        assert "agent" == replay.of_kind(TurnStarted)[-1].by

    def test_messages_of_sub_agents_and_of_codex_itself_are_no_prompts(self, replay: Replay) -> None:
        replay.talk.given.expect_in_turn(Prompt(text="hurry"))

        assert [] == self.said_back(replay, "I declined that: use pnpm")
        assert [] == self.said_back(replay, "hurry", SUB)

    def test_prompts_that_an_interrupted_turn_had_not_accepted_are_dropped_and_reported(self, replay: Replay) -> None:
        """Codex puts it into no history."""
        for words in ("one", "\ntwo", "three"):
            replay.talk.given.expect_in_turn(Prompt(text=words))
        self.said_back(replay, "one")
        replay.talk.given.expect(Prompt(text="next"))
        hear(replay, "turn/completed", turn={"id": "t1", "status": "interrupted"})

        assert [("two", "three")] == [turn.dropped for turn in replay.of_kind(TurnEnded)]
        hear(replay, "turn/started", turn={"id": "t2"})
        assert ([], []) == tuple(self.said_back(replay, words) for words in ("next", "two"))

    def test_a_prompt_that_codex_refused_is_forgotten(self, replay: Replay) -> None:
        replay.talk.given.expect_in_turn(Prompt(text="hurry"))
        replay.talk.given.forget(Prompt(text="hurry"))

        assert [] == self.said_back(replay, "hurry")


class TestEndings:
    def test_a_declined_call_never_started(self) -> None:
        replay = Replay.of("denied")

        assert [] == replay.of_kind(ToolStarted)
        assert [{"decision": "decline"}, {"decision": "decline"}, {"decision": "cancel"}] == replay.answers
        assert ["interrupted"] == [turn.reason for turn in replay.of_kind(TurnEnded)]

    def test_an_interrupt_withdraws_open_requests_once(self) -> None:
        replay = Replay.of("interrupted")
        (opened,) = replay.of_kind(RequestOpened)

        assert [opened.request.id] == [withdrawn.request for withdrawn in replay.of_kind(RequestWithdrawn)]
        assert ["interrupted", "interrupted"] == [turn.reason for turn in replay.of_kind(TurnEnded)]

    def test_text_before_an_interrupt_is_kept(self) -> None:
        replay = Replay.of("interrupted")
        written = "".join(chunk.text for chunk in replay.of_kind(Chunk))

        assert [written] == [said.text for said in replay.of_kind(MessageWritten)]
        assert written.startswith("w0 ")

    def test_text_before_a_steered_prompt_is_kept(self) -> None:
        messages = [said.text for said in Replay.of("steered").of_kind(MessageWritten)]

        assert messages[0].startswith("w0 ")
        assert "this" == messages[-1]

    def test_a_steered_prompt_is_placed_where_codex_accepted_it(self) -> None:
        replay = Replay.of("steered")
        kinds = [kind for kind in replay.kinds if kind in ("TurnStarted", "MessageWritten", "TurnEnded")]

        assert ["TurnStarted", "MessageWritten", "TurnStarted", "MessageWritten", "TurnEnded"] == kinds
        assert ["go %% slow 20 w", "no, this %% say this"] == [turn.prompt for turn in replay.of_kind(TurnStarted)]

    def test_a_message_without_text_is_left_out(self, replay: Replay) -> None:
        item(replay, "started", type="agentMessage", id="m")
        hear(replay, "item/agentMessage/delta", itemId="m", delta=" \n")
        hear(replay, "turn/completed", turn={"id": "t1", "status": "interrupted"})

        assert [] == replay.of_kind(MessageWritten)

    def test_a_tool_that_an_interrupt_left_without_a_result_has_ended(self, replay: Replay) -> None:
        item(replay, "started", type="mcpToolCall", id="m", server="s", tool="t", arguments={})
        hear(replay, "turn/completed", turn={"id": "t1", "status": "interrupted"})
        item(replay, "completed", type="mcpToolCall", id="m", server="s", tool="t", status="failed")

        assert [(False, "interrupted")] == [(tool.ok, tool.output) for tool in replay.of_kind(ToolFinished)]

    def test_a_command_may_continue_after_its_turn(self, replay: Replay) -> None:
        item(replay, "started", type="commandExecution", id="c", command="serve", processId="7")
        hear(replay, "turn/completed", turn={"id": "t1", "status": "completed"})
        assert [] == replay.of_kind(ToolFinished)

        item(replay, "completed", type="commandExecution", id="c", command="serve", exitCode=0)
        assert [True] == [tool.ok for tool in replay.of_kind(ToolFinished)]

    def test_a_turn_that_codex_started_is_marked_as_its_own(self, replay: Replay) -> None:
        assert [("", "agent")] == [(turn.prompt, turn.by) for turn in replay.of_kind(TurnStarted)]

    def test_a_turn_that_begins_ends_the_one_before(self, replay: Replay) -> None:
        replay.talk.given.expect(Prompt(text="next", by="wave"))
        said = hear(replay, "turn/started", turn={"id": "t2"})

        assert ["TurnEnded", "TurnStarted"] == [type(fact).__name__ for fact in said]
        assert ("next", "wave") == (said[1].prompt, said[1].by)

    def test_a_turn_ends_once(self, replay: Replay) -> None:
        for _ in range(2):
            hear(replay, "turn/completed", turn={"id": "t1", "status": "completed"})

        assert 1 == len(replay.of_kind(TurnEnded))


class TestForeground:
    """What an interrupt has to end itself: commands that codex waits for, and no others."""

    def test_the_running_command_is_the_foreground(self, replay: Replay) -> None:
        item(replay, "started", type="commandExecution", id="c", command="make", processId="7")

        assert {"c": MAIN} == replay.talk.tracker.foreground()

    @pytest.mark.parametrize("kind", ["agentMessage", "reasoning"])
    def test_once_codex_continues_the_command_runs_in_the_background(self, replay: Replay, kind: str) -> None:
        item(replay, "started", type="commandExecution", id="c", command="serve", processId="7")
        item(replay, "started", type=kind, id="m")

        assert {} == replay.talk.tracker.foreground()

    def test_a_command_that_codex_types_into_runs_in_the_background(self, replay: Replay) -> None:
        item(replay, "started", type="commandExecution", id="c", command="serve", processId="7")
        hear(replay, "item/commandExecution/terminalInteraction", itemId="c", stdin="")

        assert {} == replay.talk.tracker.foreground()

    def test_parallel_commands_are_all_in_the_foreground(self, replay: Replay) -> None:
        for call in ("c", "d"):
            item(replay, "started", type="commandExecution", id=call, command="make", processId=call)
        item(replay, "completed", type="commandExecution", id="c", command="make", exitCode=0)

        assert {"d": MAIN} == replay.talk.tracker.foreground()

    def test_a_command_that_needs_permission_does_not_run_yet(self, replay: Replay) -> None:
        item(replay, "started", type="commandExecution", id="c", command="make", source="agent", processId=None)

        assert {} == replay.talk.tracker.foreground()

    def test_a_command_with_output_runs_without_a_start_message(self, replay: Replay) -> None:
        """An older way to run commands gives them no process id."""
        item(replay, "started", type="commandExecution", id="c", command="make", source="agent", processId=None)
        hear(replay, "item/commandExecution/outputDelta", itemId="c", delta="x")

        assert [("c", "make")] == [(tool.call, tool.title) for tool in replay.of_kind(ToolStarted)]

    def test_a_command_that_codex_never_finished_is_given_up(self, replay: Replay) -> None:
        item(replay, "started", type="commandExecution", id="c", command="make", processId="7")

        assert [("c", False)] == [(tool.call, tool.ok) for tool in replay.talk.tracker.give_up("c", 1.0)]  # type: ignore[union-attr]
        assert [] == item(replay, "completed", type="commandExecution", id="c", command="make")


class TestRequests:
    def test_questions_of_one_call_come_together_and_are_answered_together(self) -> None:
        replay = Replay.of("questions")
        colour, size = [opened.request for opened in replay.of_kind(RequestOpened)]

        assert (RequestKind.QUESTION, "Colour", "Which one?") == (colour.kind, colour.title, colour.shown)
        assert (("red", "blue"), ("warm", "cold")) == (colour.options, colour.option_notes)
        assert (True, False) == (colour.free_text, colour.many)
        assert [{"answers": {"c": {"answers": ["blue"]}, "s": {"answers": ["L"]}}}] == replay.answers
        assert "Size" == size.title

    def test_permissions_are_listed(self) -> None:
        replay = Replay.of("permissions")
        more, command = [opened.request for opened in replay.of_kind(RequestOpened)]

        assert ("network access\nwrite access to /opt/x", "to fetch it") == (more.shown, more.why)
        assert "touch /opt/x/a\nwith network access\nwith write access to /opt/x" == command.shown
        assert "to keep it" == command.why
        assert {"command", "additionalPermissions"} == command.input.keys()

    def test_a_servers_tool_is_requested_and_then_its_form(self) -> None:
        replay = Replay.of("server")
        tool, *fields = [opened.request for opened in replay.of_kind(RequestOpened)]

        assert ("demo.greet", {"who": "me"}, RequestKind.PERMISSION) == (tool.tool, tool.input, tool.kind)
        assert "Greets somebody." in tool.shown
        assert ["demo: Colour", "demo: count", "demo: sure"] == [field.title for field in fields]
        assert [("red", "blue"), ("(leave out)",), ("yes", "no", "(leave out)")] == [field.options for field in fields]
        assert [False, True, False] == [field.free_text for field in fields]
        assert {"colour": "blue", "count": 3, "sure": True} == replay.answers[1]["content"]
        (done,) = replay.of_kind(ToolFinished)
        assert "blue" in done.output

    def test_a_plan_waits_for_the_user_once_its_turn_is_over(self) -> None:
        replay = Replay.of("plan")
        (opened,) = replay.of_kind(RequestOpened)

        assert (RequestKind.PLAN, "# Plan\n- first\n") == (opened.request.kind, opened.request.shown)
        assert replay.kinds.index("TurnEnded") < replay.kinds.index("RequestOpened")
        assert ["# Plan\n- first\n"] == [said.text for said in replay.of_kind(MessageWritten)]
        assert "plan" == replay.of_kind(SettingsChanged)[-1].permission_mode

    def test_the_next_turn_withdraws_a_plan(self) -> None:
        replay = Replay.of("plan")
        (opened,) = replay.of_kind(RequestOpened)
        replay.hear("turn/started", {"threadId": replay.talk.main, "turn": {"id": "t2"}})

        assert [opened.request.id] == [withdrawn.request for withdrawn in replay.of_kind(RequestWithdrawn)]
        assert replay.talk.plan is None

    def test_a_plan_outside_of_plan_mode_is_a_message(self, replay: Replay) -> None:
        item(replay, "completed", type="plan", id="p", text="# Plan")
        hear(replay, "turn/completed", turn={"id": "t1", "status": "completed"})

        assert (["# Plan"], []) == (
            [said.text for said in replay.of_kind(MessageWritten)],
            replay.of_kind(RequestOpened),
        )

    def test_the_end_of_a_turn_withdraws_its_requests(self, replay: Replay) -> None:
        ask(replay, 5)
        said = hear(replay, "turn/completed", turn={"id": "t1", "status": "completed"})

        assert ["RequestWithdrawn", "TurnEnded"] == [type(fact).__name__ for fact in said]

    def test_an_allowed_call_starts_when_codex_is_notified(self, replay: Replay) -> None:
        item(replay, "started", type="commandExecution", id="i1", command="ls", source="agent", processId=None)
        ask(replay, 5)
        replay.answer(5, {"decision": "accept"})
        assert [] == replay.of_kind(ToolStarted)

        said = hear(replay, "serverRequest/resolved", requestId=5)
        assert ["ToolStarted"] == [type(fact).__name__ for fact in said]
        assert {"i1": MAIN} == replay.talk.tracker.foreground()

    def test_a_changed_diff_makes_a_new_request_under_the_same_id(self, replay: Replay) -> None:
        change = {"path": "/work/project/a", "kind": {"type": "add"}, "diff": "one\n"}
        item(replay, "started", type="fileChange", id="f", changes=[change])
        replay.hear("item/fileChange/requestApproval", {"threadId": MAIN, "itemId": "f", "reason": "r"}, 0)
        hear(replay, "item/fileChange/patchUpdated", itemId="f", changes=[{**change, "diff": "two\n"}])
        before, after = [opened.request for opened in replay.of_kind(RequestOpened)]

        assert before.id == after.id
        assert ("+one" in before.shown, "+two" in after.shown, "r") == (True, True, after.why)
        assert before.digest != after.digest

    def test_a_request_that_codex_closes_is_withdrawn(self, replay: Replay) -> None:
        ask(replay, 5)
        hear(replay, "serverRequest/resolved", requestId=5)

        assert 1 == len(replay.of_kind(RequestWithdrawn))

    def test_an_open_request_of_an_idle_thread_is_withdrawn(self, replay: Replay) -> None:
        ask(replay, 5)
        hear(replay, "thread/status/changed", status={"type": "active", "activeFlags": ["waitingOnApproval"]})
        assert [] == replay.of_kind(RequestWithdrawn)

        hear(replay, "thread/status/changed", status={"type": "idle"})
        assert 1 == len(replay.of_kind(RequestWithdrawn))


class TestSubAgents:
    def test_messages_and_work_of_sub_agents_are_nested_in_their_call(self) -> None:
        replay = Replay.of("agents")
        (agent,) = [tool for tool in replay.of_kind(ToolStarted) if tool.tool == "agent"]

        assert "/root/helper" == agent.title
        assert {"", agent.call} == {tool.within for tool in replay.of_kind(ToolStarted) if tool.tool == "shell"}
        assert {"", agent.call} == {said.within for said in replay.of_kind(MessageWritten)}
        assert 1 == len(replay.of_kind(TurnStarted)) == len(replay.of_kind(TurnEnded))
        assert [True] == [tool.ok for tool in replay.of_kind(ToolFinished) if tool.call == agent.call]

    def test_text_of_sub_agents_is_not_streamed(self, replay: Replay) -> None:
        assert [] == hear(replay, "item/agentMessage/delta", SUB, itemId="m", delta="x")

    def test_a_request_of_a_sub_agent_is_repeated_after_the_turn_of_the_main_agent(self, replay: Replay) -> None:
        """The end of a turn voids every request of a session; theirs still waits."""
        hear(replay, "turn/started", SUB, turn={"id": "s1"})
        (before,) = ask(replay, 3, SUB)
        said = hear(replay, "turn/completed", turn={"id": "t1", "status": "completed"})

        assert [TurnEnded, RequestOpened] == [type(fact) for fact in said]
        assert before.request == said[1].request

    def test_requests_of_a_sub_agent_are_withdrawn_when_its_turn_ends(self, replay: Replay) -> None:
        hear(replay, "turn/started", SUB, turn={"id": "s1"})
        ask(replay, 3, SUB)

        assert [RequestWithdrawn] == [
            type(fact) for fact in hear(replay, "turn/completed", SUB, turn={"id": "s1", "status": "interrupted"})
        ]

    def test_turns_of_sub_agents_are_known_so_that_they_can_be_interrupted(self, replay: Replay) -> None:
        hear(replay, "turn/started", SUB, turn={"id": "s1"})

        assert {MAIN: "t1", SUB: "s1"} == replay.talk.turns

    def test_tokens_of_sub_agents_count_and_fill_their_own_window(self, replay: Replay) -> None:
        for thread, read in ((MAIN, 100), (SUB, 10)):
            usage = {"total": {"inputTokens": read, "outputTokens": 1}, "last": {"totalTokens": read}}
            hear(replay, "thread/tokenUsage/updated", thread, tokenUsage=usage)

        assert (110, 2, 100) == (
            replay.of_kind(UsageReported)[-1].input,
            replay.of_kind(UsageReported)[-1].output,
            replay.of_kind(UsageReported)[-1].context,
        )


class TestFailures:
    def test_a_retry_is_a_notice_and_a_failed_turn_has_a_reason(self) -> None:
        replay = Replay.of("failures")
        dropped, bad, many, key = replay.of_kind(TurnEnded)

        assert "Reconnecting... 1/1 (stream disconnected" in replay.of_kind(NoticeRaised)[1].text
        assert ("error", True) == (dropped.reason, dropped.error.startswith("stream disconnected"))
        assert ("error", "stub failure 400") == (bad.reason, bad.error)
        assert ("limit", True) == (many.reason, "429" in many.error)
        assert ("error", True) == (key.reason, key.error.endswith("log in with `codex login`."))

    def test_a_limit_is_reached_before_its_turn_ends(self) -> None:
        kinds = Replay.of("failures").kinds

        assert ["LimitReached", "TurnEnded"] == kinds[kinds.index("LimitReached") :][:2]

    def test_a_limit_lasts_until_its_window_ends(self, replay: Replay) -> None:
        full = {"usedPercent": 100, "resetsAt": 5000, "windowDurationMins": 300}
        hear(replay, "account/rateLimits/updated", rateLimits={"primary": full, "secondary": None})
        error = {"message": "You've hit your usage limit.", "codexErrorInfo": "usageLimitExceeded"}
        hear(replay, "turn/completed", turn={"id": "t1", "status": "failed", "error": error})

        assert [(5000.0, "You've hit your usage limit.")] == [
            (limit.until, limit.text) for limit in replay.of_kind(LimitReached)
        ]
        assert [LimitLifted] == [type(fact) for fact in replay.talk.lifted(5000.0)]
        assert [] == replay.talk.lifted(5001.0)

    def test_the_limits_of_its_account_are_logged_with_their_names(self, replay: Replay) -> None:
        windows = {
            "primary": {"usedPercent": 42.5, "resetsAt": 5000, "windowDurationMins": 300},
            "secondary": {"usedPercent": 100, "resetsAt": 9000, "windowDurationMins": 10080},
        }
        hear(replay, "account/rateLimits/updated", rateLimits={"limitId": "codex", **windows})
        hear(replay, "account/rateLimits/updated", rateLimits={"limitId": "spark", "primary": windows["primary"]})
        hear(replay, "account/rateLimits/updated", rateLimits={"limitId": "codex", **windows})

        assert [
            [("five_hour", 0.425, 5000.0, False), ("weekly", 1.0, 9000.0, True)],
            [("five_hour_spark", 0.425, 5000.0, False)],
        ] == [
            [(window.name, window.used, window.resets_at, window.is_reached) for window in event.windows]
            for event in replay.of_kind(LimitsReported)
        ]

    def test_codex_reports_a_reached_limit_and_its_end(self, replay: Replay) -> None:
        for reached, used in (("rate_limit_reached", 100), ("rate_limit_reached", 100), (None, 3)):
            window = {"usedPercent": used, "resetsAt": 5000}
            hear(replay, "account/rateLimits/updated", rateLimits={"primary": window, "rateLimitReachedType": reached})

        assert ["LimitReached", "LimitLifted"] == [
            kind for kind in replay.kinds if kind in ("LimitReached", "LimitLifted")
        ]

    def test_an_update_that_leaves_the_limit_out_does_not_lift_it(self, replay: Replay) -> None:
        hear(replay, "account/rateLimits/updated", rateLimits={"rateLimitReachedType": "rate_limit_reached"})
        hear(replay, "account/rateLimits/updated", rateLimits={"rateLimitReachedType": None, "primary": None})

        assert [] == replay.of_kind(LimitLifted)

    def test_a_successful_turn_lifts_the_limit(self, replay: Replay) -> None:
        hear(replay, "account/rateLimits/updated", rateLimits={"rateLimitReachedType": "rate_limit_reached"})
        said = hear(replay, "turn/completed", turn={"id": "t1", "status": "completed"})

        assert ["LimitLifted", "TurnEnded"] == [type(fact).__name__ for fact in said]

    def test_a_limit_may_be_reached_again_in_another_turn(self, replay: Replay) -> None:
        error = {"message": "limit", "codexErrorInfo": "usageLimitExceeded"}
        hear(replay, "turn/completed", turn={"id": "t1", "status": "failed", "error": error})
        hear(replay, "turn/started", turn={"id": "t2"})
        hear(replay, "turn/completed", turn={"id": "t2", "status": "failed", "error": error})

        assert 2 == len(replay.of_kind(LimitReached))

    def test_an_error_that_ends_a_turn_is_reported_with_its_end(self, replay: Replay) -> None:
        hear(replay, "error", error={"message": "over"}, willRetry=False)
        assert [] == replay.of_kind(NoticeRaised)

        hear(replay, "turn/completed", turn={"id": "t1", "status": "failed", "error": {"message": "over"}})
        hear(replay, "error", error={"message": "beside"}, willRetry=False)
        assert ["beside"] == [notice.text for notice in replay.of_kind(NoticeRaised)]

    def test_partial_text_is_not_repeated_when_it_is_sent_again(self, replay: Replay) -> None:
        item(replay, "started", type="agentMessage", id="m")
        hear(replay, "item/agentMessage/delta", itemId="m", delta="half")
        hear(replay, "error", error={"message": "Reconnecting... 1/5"}, willRetry=True)
        hear(replay, "turn/completed", turn={"id": "t1", "status": "completed"})

        assert [] == replay.of_kind(MessageWritten)

    def test_the_same_retry_is_reported_once_a_turn(self, replay: Replay) -> None:
        for _ in range(3):
            hear(replay, "error", error={"message": "Reconnecting... waiting for network"}, willRetry=True)
        assert 1 == len(replay.of_kind(NoticeRaised))

        hear(replay, "turn/completed", turn={"id": "t1", "status": "failed", "error": {}})
        hear(replay, "turn/started", turn={"id": "t2"})
        hear(replay, "error", error={"message": "Reconnecting... waiting for network"}, willRetry=True)
        assert 2 == len(replay.of_kind(NoticeRaised))


class TestTheRest:
    def test_a_to_do_list_replaces_the_one_before(self, replay: Replay) -> None:
        steps = [{"step": s, "status": n} for s, n in (("a", "completed"), ("b", "inProgress"), ("c", "pending"))]
        hear(replay, "turn/plan/updated", plan=steps, explanation=None)

        items = (PlanItem(text="a", state="done"), PlanItem(text="b", state="doing"), PlanItem(text="c", state="open"))
        assert [items] == [plan.items for plan in replay.of_kind(PlanUpdated)]

    def test_settings_are_reported_when_they_change(self, replay: Replay) -> None:
        for model in ("gpt-5.5", "gpt-6", "gpt-6"):
            hear(replay, "thread/settings/updated", threadSettings={"model": model, "approvalPolicy": "never"})

        told = [(settings.model, settings.permission_mode) for settings in replay.of_kind(SettingsChanged)]
        assert [("gpt-5.5", "untrusted"), ("gpt-5.5", "never"), ("gpt-6", "never")] == told

    def test_warnings_are_notices(self, replay: Replay) -> None:
        hear(replay, "warning", message="careful")
        hear(replay, "configWarning", summary="odd", details="line 3")
        hear(replay, "model/rerouted", fromModel="a", toModel="b")
        hear(replay, "mcpServer/startupStatus/updated", name="demo", status="failed", error="gone")
        hear(replay, "mcpServer/startupStatus/updated", name="demo", status="ready", error=None)

        assert [
            "careful",
            "odd line 3",
            "Codex uses b instead of a for this turn.",
            "The MCP server 'demo' did not start: gone",
        ] == [notice.text for notice in replay.of_kind(NoticeRaised)]

    def test_an_unknown_message_is_logged_once(self, replay: Replay) -> None:
        for number in range(3):
            hear(replay, "thread/danced", number=number)
        item(replay, "started", type="dance", id="d")

        first, second = replay.of_kind(UnknownMessageSeen)
        assert ("thread/danced", "item dance") == (first.what, second.what)
        assert {"threadId": MAIN, "number": 0} == msgspec.json.decode(first.raw)

    def test_a_flood_of_unknown_kinds_is_cut(self, replay: Replay) -> None:
        for number in range(KINDS * 2):
            hear(replay, f"odd/{number}", text="x" * 10_000)

        assert KINDS + 1 == len(replay.of_kind(UnknownMessageSeen))
        assert 4000 == max(len(foreign.raw) for foreign in replay.of_kind(UnknownMessageSeen))

    @pytest.mark.parametrize("method", sorted([*QUIET, *(f"{area}x" for area in QUIET_AREAS)]))
    def test_an_empty_message_is_skipped(self, replay: Replay, method: str) -> None:
        assert [] == hear(replay, method)

    @pytest.mark.parametrize("params", [{}, {"item": 3}, {"turn": "x"}, {"item": {"type": []}}, {"plan": [1, {}]}])
    def test_messages_of_another_form_do_no_harm(self, replay: Replay, params: dict[str, Any]) -> None:
        for method in replay.talk._handlers:
            replay.hear(method, params)
            replay.hear(method, {"threadId": 7, **params})

        facts = [said for said in replay.said if not isinstance(said, Chunk)]
        assert facts == [decode(encode(fact)) for fact in facts]
        item(replay, "completed", type="agentMessage", id="later", text="goes on")
        assert ["goes on"] == [message.text for message in replay.of_kind(MessageWritten)]
