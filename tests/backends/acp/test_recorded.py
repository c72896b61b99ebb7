"""What opencode 1.18.33 and gemini 0.61.0 said in one session each, and what kasmon makes of it."""

import pytest

from kasmon.model.events import (
    Event,
    MessageWritten,
    RequestOpened,
    SettingsChanged,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UnknownMessageSeen,
    UsageReported,
)
from kasmon.model.permission import Decision, Request
from tests.support.acp.recording import heard_again

OPENCODE, GEMINI = "opencode-1.18.33", "gemini-0.61.0"
CHOICES = (Decision.ALLOW, Decision.DENY, Decision.CANCEL)
MADE = "+a\n+b\n+c\n\\ No newline at end of file\n"


def brief(event: Event) -> str:
    match event:
        case TurnStarted():
            return f"> {event.prompt.split()[0]}"
        case MessageWritten() | ThoughtWritten():
            return event.text.replace("\n", " ")
        case RequestOpened():
            return f"? {event.request.tool}: {event.request.title}"
        case ToolStarted():
            return f"* {event.tool}: {event.title}"
        case ToolFinished():
            return f"{'ok' if event.ok else 'failed'}: {event.output.strip()}"
        case TurnEnded():
            return f"= {event.reason}"
        case _:
            return ""


def told(recording: str) -> list[str]:
    return [line for event in heard_again(recording) if (line := brief(event))]


def requests(recording: str) -> list[Request]:
    return [event.request for event in heard_again(recording) if isinstance(event, RequestOpened)]


def test_events_of_an_opencode_session_come_in_order() -> None:
    rejected = "failed: The user rejected permission to use this specific tool call."
    aborted = "failed: Tool execution aborted"
    command = "echo hi >made.txt"

    lines = ["> one", "hm", "hello there", f"* execute: {command}", f"? execute: {command}", "ok: (no output)", "done"]
    lines += ["= done"]
    lines += ["> two", "* edit: new.txt", "? edit: new.txt", "ok: Wrote file successfully.", "written", "= done"]
    lines += ["> three", "* edit: new.txt", "? edit: new.txt", "ok: Edit applied successfully.", "edited", "= done"]
    assert lines == told(OPENCODE)[: len(lines)]
    rest = told(OPENCODE)[len(lines) :]
    assert {"? execute: touch no.txt", "* execute: touch no.txt", rejected} < set(rest)
    assert {"? execute: touch never.txt", "* execute: touch never.txt", aborted} < set(rest)
    assert ["= done", "= interrupted", "= error"] == [line for line in rest if line.startswith("=")]


def test_events_of_a_gemini_session_come_in_order() -> None:
    command = "run_shell_command: echo hi >made.txt"
    edit = "replace: new.txt: b => B"

    assert [
        *("> one", "**Thinking** hm", "hello there", f"? {command}", f"* {command}", "ok: ", "done", "= done"),
        *("> two", "? write_file: Writing to new.txt", "* write_file: Writing to new.txt", "ok: ", "written", "= done"),
        *("> three", f"? {edit}", f"* {edit}", "ok: ", "edited", "= done"),
        *("> four", "? run_shell_command: touch no.txt", "after", "= done"),
        *("> five", "? run_shell_command: touch never.txt", "= interrupted"),
        *("> six", "= error"),
    ] == [line if line != "ok:" else "ok: " for line in told(GEMINI)]


@pytest.mark.parametrize("recording", [OPENCODE, GEMINI])
def test_no_recorded_message_is_unknown(recording: str) -> None:
    assert [] == [event for event in heard_again(recording) if isinstance(event, UnknownMessageSeen)]


@pytest.mark.parametrize("recording", [OPENCODE, GEMINI])
def test_a_command_is_shown_whole(recording: str) -> None:
    request = requests(recording)[0]

    assert ("echo hi >made.txt", False, CHOICES) == (request.shown, request.is_diff, request.choices)
    assert "echo hi >made.txt" == request.input["command"]


def test_gemini_says_where_a_command_runs() -> None:
    request = requests(GEMINI)[0]

    assert "[current working directory /project] (Run a scripted command)" == request.why
    assert "/project" == request.input["cwd"]


@pytest.mark.parametrize(("recording", "old"), [(OPENCODE, "a/new.txt"), (GEMINI, "/dev/null")])
def test_a_new_file_is_shown_as_a_diff(recording: str, old: str) -> None:
    request = requests(recording)[1]

    assert f"--- {old}\n+++ b/new.txt\n@@ -0,0 +1,3 @@\n{MADE}" == request.shown
    assert request.is_diff


@pytest.mark.parametrize("recording", [OPENCODE, GEMINI])
def test_a_written_file_is_shown_with_the_diff_of_its_request(recording: str) -> None:
    """opencode does not tell it a second time."""
    finished = [event for event in heard_again(recording) if isinstance(event, ToolFinished)][1]

    assert requests(recording)[1].shown == finished.diff


@pytest.mark.parametrize("recording", [OPENCODE, GEMINI])
def test_an_edit_is_shown_with_its_context_lines(recording: str) -> None:
    finished = [event for event in heard_again(recording) if isinstance(event, ToolFinished)][2]

    assert "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c" in finished.diff


@pytest.mark.parametrize(
    ("recording", "model", "modes"),
    [(OPENCODE, "stub/stub-model", ("build", "plan")), (GEMINI, "auto", ("default", "autoEdit", "yolo", "plan"))],
)
def test_the_available_options_are_reported(recording: str, model: str, modes: tuple[str, ...]) -> None:
    settings = next(event for event in heard_again(recording) if isinstance(event, SettingsChanged))

    assert (model, modes[0], modes) == (settings.model, settings.permission_mode, settings.permission_modes)
    assert model in settings.models


def test_gemini_adds_up_what_its_turns_took_and_opencode_tells_context_and_cost_alone() -> None:
    usage = [event for event in heard_again(GEMINI) if isinstance(event, UsageReported)]
    assert [2000, 4000, 6000, 8000] == [used.input for used in usage]

    usage = [event for event in heard_again(OPENCODE) if isinstance(event, UsageReported)]
    assert [(1000, 100_000, 0.0, 0)] == [(used.context, used.limit, used.cost_usd, used.input) for used in usage]
