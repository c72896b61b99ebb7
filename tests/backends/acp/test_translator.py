"""Updates as facts: each said once, in order, and what is not known is kept."""

from typing import Any

import pytest

from kasmon.agents.catalog import find
from kasmon.backends.acp.settings import AcpSettings, SettingOption, parse_offered, to_set
from kasmon.backends.acp.tool_calls import NO_END
from kasmon.backends.acp.translator import AcpTranslator
from kasmon.backends.base import Chunk
from kasmon.model.commands import ConversationUsage
from kasmon.model.events import (
    CommandsAnnounced,
    Event,
    MessageWritten,
    PlanItem,
    PlanUpdated,
    SettingsChanged,
    SlashCommand,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    UnknownMessageSeen,
    UsageReported,
)

AT = 1.0


NOTHING = ConversationUsage()


class Ear:
    """A translation, and what came of all that it was told."""

    def __init__(self, agent: str = "", remembers: str = "", used: ConversationUsage = NOTHING) -> None:
        self.translation = AcpTranslator("/project", remembers, used)
        if agent:
            self.translation.tools.habits = find(agent).quirks
        self.said: list[Event | Chunk] = []

    def hear(self, update_kind: str, /, **update: Any) -> list[Event | Chunk]:
        said = list(
            self.translation.translate({"sessionId": "s", "update": {"sessionUpdate": update_kind, **update}}, AT)
        )
        self.said += said
        return said

    def chunk(self, text: str, kind: str = "agent_message_chunk", **more: Any) -> list[Event | Chunk]:
        return self.hear(kind, content={"type": "text", "text": text}, **more)

    def call(self, call: str = "c", **more: Any) -> list[Event | Chunk]:
        return self.hear("tool_call_update", toolCallId=call, **more)

    def start(self, **more: Any) -> list[Event | Chunk]:
        return self.hear("tool_call", **({"toolCallId": "c", "title": "ls"} | more))

    def ends(self, answer: dict[str, Any] | None = None) -> list[Event | Chunk]:
        said = list(self.translation.ends(AT, answer))
        self.said += said
        return said

    @property
    def facts(self) -> list[Event]:
        return [said for said in self.said if not isinstance(said, Chunk)]


@pytest.fixture
def ear() -> Ear:
    return Ear()


def text(words: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": words}}


# Messages


def test_chunks_are_shown_at_once_and_logged_at_the_boundary(ear: Ear) -> None:
    assert [Chunk(text="a ")] == ear.chunk("a ")
    assert [Chunk(text="b")] == ear.chunk("b")

    assert [MessageWritten(at=AT, text="a b")] == ear.ends()


def test_a_thought_and_a_message_are_two(ear: Ear) -> None:
    ear.chunk("hm", "agent_thought_chunk")
    ear.chunk("yes")
    ear.ends()

    assert [ThoughtWritten(at=AT, text="hm"), MessageWritten(at=AT, text="yes")] == ear.facts


def test_another_message_s_id_begins_another_message(ear: Ear) -> None:
    ear.chunk("one", messageId="1")
    ear.chunk("two", messageId="2")
    ear.ends()

    assert ["one", "two"] == [fact.text for fact in ear.facts if isinstance(fact, MessageWritten)]


def test_a_tool_ends_a_message_and_a_figure_does_not(ear: Ear) -> None:
    ear.chunk("one ")
    ear.hear("usage_update", used=5, size=10)
    ear.chunk("two")
    ear.start(status="in_progress")

    assert ["UsageReported", "MessageWritten", "ToolStarted"] == [type(fact).__name__ for fact in ear.facts]


def test_content_that_is_not_text_is_named(ear: Ear) -> None:
    ear.hear("agent_message_chunk", content={"type": "image", "mimeType": "image/png", "data": ""})
    ear.hear("agent_message_chunk", content={"type": "resource_link", "name": "a", "uri": "file:///a"})

    assert [MessageWritten(at=AT, text="[image: image/png][a](file:///a)")] == ear.ends()


def test_blanks_alone_are_no_message(ear: Ear) -> None:
    ear.chunk("\n")

    assert [] == ear.ends()


# Tools


def test_a_call_is_reported_once_it_runs_with_the_data_known_then(ear: Ear) -> None:
    ear.start(title="bash", kind="execute", status="pending", rawInput={})
    assert [] == ear.facts
    ear.call(status="in_progress", title="ls -l", rawInput={"command": "ls -l"})
    ear.call(status="in_progress", content=[text("a")])
    ear.call(status="completed", content=[text("a\nb\n")])
    ear.call(status="completed", content=[text("again")])

    assert [
        ToolStarted(at=AT, call="c", tool="execute", title="ls -l", input='{"command": "ls -l"}'),
        ToolFinished(at=AT, call="c", output="a\nb"),
    ] == ear.facts


def test_a_call_that_is_only_updated_is_reported(ear: Ear) -> None:
    """gemini does not begin calls that it asked for."""
    ear.call(status="completed", title="ls", kind="execute", content=[])

    assert ["ToolStarted", "ToolFinished"] == [type(fact).__name__ for fact in ear.facts]


def test_a_call_whose_input_comes_later_has_started(ear: Ear) -> None:
    ear.start(kind="read", status="pending")
    ear.call(rawInput={"path": "a"})

    assert ["ToolStarted"] == [type(fact).__name__ for fact in ear.facts]


@pytest.mark.parametrize(
    ("raw", "output"),
    [
        ({"output": "out"}, "out"),
        ({"error": "broken"}, "broken"),
        ("plain", "plain"),
        ({"n": 1}, '{\n  "n": 1\n}'),
        (None, ""),
    ],
)
def test_an_output_is_text_or_the_readable_part_of_it(ear: Ear, raw: object, output: str) -> None:
    ear.start(status="in_progress")
    ear.call(status="failed", rawOutput=raw)

    finished = ear.facts[-1]
    assert isinstance(finished, ToolFinished)
    assert (False, output) == (finished.ok, finished.output)


def test_an_unfinished_call_ends_with_the_turn(ear: Ear) -> None:
    ear.start(status="in_progress")

    assert [ToolFinished(at=AT, call="c", ok=False, output=NO_END)] == ear.ends()


def test_an_id_may_be_reused(ear: Ear) -> None:
    for _ in range(2):
        ear.start(status="in_progress")
        ear.call(status="completed")

    assert 4 == len(ear.facts)


def test_a_file_is_named_relative_to_the_project(ear: Ear) -> None:
    ear.start(title="edit", kind="edit", status="in_progress", locations=[{"path": "/project/src/a.py"}])

    assert "src/a.py" == ear.facts[0].title  # type: ignore[union-attr]


def test_gemini_s_calls_name_their_tool() -> None:
    ear = Ear("gemini")
    ear.call("write_file__write_file_1795312743410_0", status="completed", title="x", kind="edit")

    assert "write_file" == ear.facts[0].tool  # type: ignore[union-attr]


# Plans


def test_a_plan_is_reported_whole(ear: Ear) -> None:
    entries = [
        {"content": "a", "priority": "high", "status": "completed"},
        {"content": "b", "priority": "low", "status": "in_progress"},
        {"content": "c", "priority": "low", "status": "pending"},
    ]
    ear.hear("plan", entries=entries)

    items = (PlanItem(text="a", state="done"), PlanItem(text="b", state="doing"), PlanItem(text="c"))
    assert [PlanUpdated(at=AT, items=items)] == ear.facts


def test_opencode_s_to_do_list_is_a_plan(ear: Ear) -> None:
    ear.start(title="todowrite", kind="other", status="pending", rawInput={})
    ear.call(status="in_progress", rawInput={"todos": [{"content": "a", "status": "in_progress"}]})

    assert PlanUpdated(at=AT, items=(PlanItem(text="a", state="doing"),)) in ear.facts


# Figures


def test_an_empty_context_is_not_reported(ear: Ear) -> None:
    """opencode says so after a turn that failed."""
    ear.hear("usage_update", used=500, size=1000, cost={"amount": 0.5, "currency": "USD"})
    ear.hear("usage_update", used=0, size=1000, cost={"amount": 0.5, "currency": "USD"})

    assert [UsageReported(at=AT, context=500, limit=1000, cost_usd=0.5)] == ear.facts


def test_usage_in_an_answer_is_read_as_totals(ear: Ear) -> None:
    ear.ends({"usage": {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}})
    ear.ends({"usage": {"inputTokens": 30, "outputTokens": 5, "totalTokens": 35}})

    assert [(10, 2), (30, 5)] == [(fact.input, fact.output) for fact in ear.facts if isinstance(fact, UsageReported)]


@pytest.mark.parametrize("told", [[10, 30], [1010, 1030]], ids=["anew", "on"])
def test_totals_continue_whether_the_agents_own_restart_or_not(told: list[int]) -> None:
    ear = Ear(used=ConversationUsage(input=1000, output=1000, cost_usd=1000.0))
    for total in told:
        ear.hear("usage_update", used=5, size=10, cost={"amount": total, "currency": "USD"})
        ear.ends({"usage": {"inputTokens": total, "outputTokens": total, "totalTokens": 2 * total}})

    figures = [(fact.input, fact.output, fact.cost_usd) for fact in ear.facts if isinstance(fact, UsageReported)]
    assert [(1010, 1010, 1010.0), (1030, 1030, 1030.0)] == figures[1::2]


def test_geminis_usage_by_turn_is_added_to_the_sessions_usage() -> None:
    ear = Ear("gemini", used=ConversationUsage(input=1000, output=100))
    ear.ends({"_meta": {"quota": {"token_count": {"input_tokens": 5, "output_tokens": 3}}}})

    assert [(1005, 103)] == [(fact.input, fact.output) for fact in ear.facts if isinstance(fact, UsageReported)]


def test_opencodes_usage_is_not_added_up() -> None:
    assert [] == Ear("opencode").ends({"usage": {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}})


@pytest.mark.parametrize("answer", [{}, {"_meta": None}, {"_meta": {"quota": {"token_count": {"input_tokens": "x"}}}}])
def test_gemini_may_leave_its_quota_out(answer: dict[str, Any]) -> None:
    assert [] == Ear("gemini").ends(answer)


# Settings


MODES = {"availableModes": [{"id": "default", "name": "D"}, {"id": "plan", "name": "P"}], "currentModeId": "default"}


def test_a_changed_mode_is_reported_once(ear: Ear) -> None:
    ear.translation.now_set(parse_offered({"modes": MODES}), AT)
    ear.hear("current_mode_update", currentModeId="plan")
    ear.hear("current_mode_update", currentModeId="plan")

    assert [SettingsChanged(at=AT, permission_mode="plan")] == ear.facts


def test_gemini_reports_its_mode_in_a_message() -> None:
    ear = Ear("gemini")
    ear.translation.now_set(parse_offered({"modes": MODES}), AT)
    ear.chunk("[MODE_UPDATE] plan")
    ear.chunk("[MODE_UPDATE] heaven")
    ear.ends()

    assert [
        SettingsChanged(at=AT, permission_mode="plan"),
        MessageWritten(at=AT, text="[MODE_UPDATE] heaven"),
    ] == ear.facts


def test_the_same_text_of_another_agent_is_a_message(ear: Ear) -> None:
    ear.translation.now_set(parse_offered({"modes": MODES}), AT)
    ear.chunk("[MODE_UPDATE] plan")

    assert [MessageWritten(at=AT, text="[MODE_UPDATE] plan")] == ear.ends()


def test_options_in_groups_are_found() -> None:
    groups = [{"group": "g", "name": "G", "options": [{"value": "a", "name": "A"}]}]
    option = {"id": "m", "name": "M", "category": "model", "type": "select", "currentValue": "a", "options": groups}
    settings = parse_offered({"configOptions": [option, {"id": "odd"}]})

    assert AcpSettings(model=SettingOption("a", ("a",), "m")) == settings
    assert settings.model is not None
    assert ("session/set_config_option", {"sessionId": "s", "configId": "m", "value": "b"}) == to_set(
        "model", settings.model, "b", "s"
    )


@pytest.mark.parametrize(
    "odd", [{"models": 3}, {"models": {"currentModelId": 4}}, {"modes": []}, {"configOptions": "x"}]
)
def test_settings_of_another_form_are_ignored(odd: dict[str, Any]) -> None:
    assert AcpSettings() == parse_offered(odd)


def test_a_list_of_names_without_end_stays_small() -> None:
    names = [{"modelId": f"model-{number}"} for number in range(50_000)]
    settings = parse_offered({"models": {"availableModels": names, "currentModelId": "model-1"}})
    told = settings.diff_from(AcpSettings(), AT)

    assert told is not None
    assert 4000 < len(told.models) < 8000
    assert settings.model is not None
    assert 50_000 == len(settings.model.values)


# What is not known


def test_an_unknown_kind_is_logged_once(ear: Ear) -> None:
    ear.hear("hologram", shape="cube")
    ear.hear("hologram", shape="ball")

    (seen,) = ear.facts
    assert isinstance(seen, UnknownMessageSeen)
    assert "session/update hologram" == seen.what
    assert "cube" in seen.raw


def test_invented_names_do_not_fill_the_log(ear: Ear) -> None:
    for number in range(1000):
        ear.hear(f"hologram-{number}")

    assert 101 == len(ear.facts)


@pytest.mark.parametrize("params", [None, 3, [], {}, {"update": None}, {"update": {"sessionUpdate": 3}}])
def test_an_update_of_another_form_is_logged(ear: Ear, params: object) -> None:
    (seen,) = ear.translation.translate(params, AT)

    assert isinstance(seen, UnknownMessageSeen)


def test_the_slash_commands_of_the_agent_are_reported(ear: Ear) -> None:
    command = {"name": "web", "description": "Search the web", "input": {"hint": "query"}}
    ear.hear("available_commands_update", availableCommands=[command, {"name": "help", "description": ""}])

    expected = (SlashCommand(command="web", text="Search the web", hint="query"), SlashCommand(command="help"))
    assert [CommandsAnnounced(at=AT, slash_commands=expected)] == ear.said


def test_titles_are_read_and_not_reported(ear: Ear) -> None:
    ear.hear("session_info_update", title="x")
    ear.chunk("my own prompt", "user_message_chunk")

    assert [] == ear.said


# History


def test_replayed_messages_are_no_events_until_the_first_prompt() -> None:
    ear = Ear(remembers="tidy up")
    history = ear.translation.replays()
    ear.chunk("tidy", "user_message_chunk", messageId="1")
    ear.chunk(" up", "user_message_chunk", messageId="1")
    ear.chunk("I did.")
    ear.start(status="completed")
    ear.chunk("[Function Response: ls]", "user_message_chunk")

    assert [] == ear.said
    assert (True, 1) == (history.holds_it, history.goes_on)
    ear.translation.begins(AT)
    assert [Chunk(text="now")] == ear.chunk("now")


def test_a_figure_in_a_history_is_an_event() -> None:
    ear = Ear()
    ear.translation.replays()
    ear.hear("usage_update", used=5, size=10)

    assert 1 == len(ear.facts)


@pytest.mark.parametrize(
    ("said", "remembers", "holds"),
    [
        ("tidy up\n", "tidy up", True),
        ("please tidy up", "tidy up", False),
        ("<context>\nplease tidy up the whole house", "please tidy up the whole house", True),
        ("tidy up", "", False),
    ],
)
def test_a_prompt_in_the_history_is_found_as_it_was_sent(said: str, remembers: str, holds: bool) -> None:
    ear = Ear(remembers=remembers)
    history = ear.translation.replays()
    ear.chunk(said, "user_message_chunk")

    assert holds is history.holds_it
