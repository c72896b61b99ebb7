"""What a source's word adds to what is known, what of it becomes a request, and who has a terminal."""

import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from kasmon.backends.common.environment import program_of
from kasmon.backends.tmux.evidence.process_evidence import ProcessEvidence
from kasmon.backends.tmux.evidence.process_table import ProcessTable, table
from kasmon.backends.tmux.evidence.screen_requests import BARE_S, LATE_S, ScreenRequest
from kasmon.backends.tmux.evidence.signal_ledger import SignalLedger
from kasmon.detection.menus.choices import MenuChoice, ScreenMenu, completed
from kasmon.model.events import RequestOpened, RequestWithdrawn, SignalSeen
from kasmon.model.evidence import StateVerdict
from kasmon.model.permission import NO_PLAN, Decision, RequestKind, SessionId
from kasmon.model.session_state import SessionState
from kasmon.system.base import ProcessEntry
from tests.support.detection.expected import reading_of
from tests.support.detection.golden import FOLDER, load
from tests.support.wait import until

ASKING = StateVerdict(state=SessionState.ASKING, source="screen", asking=RequestKind.PERMISSION)
WORKING = StateVerdict(state=SessionState.WORKING, source="registry")


def seen(source: str, value: str, at: float, **more: object) -> SignalSeen:
    return SignalSeen(source=source, value=value, at=at, **more)  # type: ignore[arg-type]


def menu(command: str, *, third: Decision | None = None, is_whole: bool = True) -> ScreenMenu:
    labels = [("Yes", Decision.ALLOW), ("Yes, and switch to auto mode", third), ("No", Decision.DENY)]
    choices = tuple(
        MenuChoice(label=label, key=str(at), decision=decision, marked=at == 1)
        for at, (label, decision) in enumerate(labels, 1)
    )
    return ScreenMenu(
        name="permission",
        kind=RequestKind.PERMISSION,
        text=f"Run it?\n{command}",
        choices=choices,
        digest=command,
        is_whole=is_whole,
    )


def test_a_plan_without_a_text_is_reported_as_that() -> None:
    plan, empty = (reading_of(load(FOLDER / "claude/2.1.332" / name)).menu for name in ("plan", "plan-empty"))
    shown = [
        opened.request.shown
        for opened in (
            ScreenRequest(SessionId("abcdefgh")).apply_screen(ASKING, each, "", 1.0)[0] for each in (plan, empty)
        )
        if isinstance(opened, RequestOpened)
    ]

    assert ["Ready to code?", NO_PLAN] == [text.partition("\n")[0] for text in shown]
    assert "Claude wants to exit plan mode" in shown[1]


def test_a_repeated_signal_is_not_new_and_its_text_counts_only_for_a_request() -> None:
    words = SignalLedger()
    for first, second, is_news in (
        (seen("screen", "working", 1.0, text="a"), seen("screen", "working", 2.0, text="b"), False),
        (seen("screen", "asking", 3.0, text="a"), seen("screen", "asking", 4.0, text="b"), True),
        (seen("screen", "limited", 5.0, until=9.0), seen("screen", "limited", 6.0, until=10.0), True),
        (seen("title", "working", 7.0), seen("title", "idle|asking", 8.0), True),
    ):
        assert words.is_news(first)
        words.record(first)
        assert is_news is words.is_news(second)


def test_a_screen_that_matches_long_after_a_hook_confirms_it_again() -> None:
    words = SignalLedger()
    now = time.time()
    words.record(seen("screen", "idle", now - 9))
    words.record(seen("hook", "asking", now))

    assert "asking" == words.verdict.state
    assert not words.is_news(seen("screen", "idle", now + 1.0))
    assert words.is_news(seen("screen", "idle", now + 2.5))
    words.record(seen("screen", "idle", now + 2.5))
    assert "idle" == words.verdict.state
    assert not words.is_news(seen("screen", "idle", now + 10.0))


def test_a_dialog_shown_when_its_program_went_idle_is_a_request_once_it_stays() -> None:
    """Codex draws "Implement this plan?" and may say "done" a moment later."""
    words = SignalLedger()
    now = time.time()
    words.record(seen("screen", "asking", now))
    words.record(seen("program", "done", now + 0.1))

    assert "idle" == words.verdict.state
    assert not words.is_news(seen("screen", "asking", now + 1.0))
    assert words.is_news(seen("screen", "asking", now + 2.5))
    words.record(seen("screen", "asking", now + 2.5))
    assert "asking" == words.verdict.state


def test_output_and_a_rule_without_text_are_no_signal_of_activity() -> None:
    words = SignalLedger()
    words.record(seen("output", "printing", 1.0))
    words.record(seen("fallback", "asking", 1.0))
    assert not words.reports_agent_state
    words.record(seen("screen", "unclear", 1.0))
    assert not words.reports_agent_state
    words.record(seen("screen", "idle", 1.0))
    assert words.reports_agent_state


def test_a_menu_becomes_a_request_that_accepts_only_what_its_labels_state() -> None:
    (opened,) = ScreenRequest(SessionId("abcdefgh")).apply_screen(ASKING, menu("rm x"), "", 1.0)

    assert isinstance(opened, RequestOpened)
    assert (Decision.ALLOW, Decision.DENY) == opened.request.choices
    assert opened.request.answerable
    assert "rm x" in opened.request.shown


def test_a_request_that_is_not_shown_whole_cannot_be_allowed() -> None:
    """It is asked a moment later: until then its whole text may come from elsewhere."""
    asked, cut = ScreenRequest(SessionId("abcdefgh")), menu("rm x", is_whole=False)
    assert [] == asked.apply_screen(ASKING, cut, "", 1.0)
    (opened,) = asked.apply_screen(ASKING, cut, "", 1.0 + BARE_S)

    assert isinstance(opened, RequestOpened)
    assert (Decision.DENY,) == opened.request.choices
    assert opened.request.may_be_cut


def test_a_completed_menu_can_be_allowed_and_its_digest_covers_all_of_the_text() -> None:
    cut = menu("rm x", is_whole=False)
    (one,) = ScreenRequest(SessionId("abcdefgh")).apply_screen(ASKING, completed(cut, "rm x && ls"), "", 1.0)
    (other,) = ScreenRequest(SessionId("abcdefgh")).apply_screen(ASKING, completed(cut, "rm x && rm y"), "", 1.0)

    assert isinstance(one, RequestOpened)
    assert isinstance(other, RequestOpened)
    assert (Decision.ALLOW, Decision.DENY) == one.request.choices
    assert not one.request.may_be_cut
    assert "rm x && ls" in one.request.shown
    assert one.request.digest != other.request.digest


def test_always_is_offered_if_one_label_states_it_and_shows_what_it_covers() -> None:
    (opened,) = ScreenRequest(SessionId("abcdefgh")).apply_screen(ASKING, menu("rm x", third=Decision.ALWAYS), "", 1.0)
    (twice,) = ScreenRequest(SessionId("abcdefgh")).apply_screen(ASKING, menu("rm x", third=Decision.ALLOW), "", 1.0)

    assert isinstance(opened, RequestOpened)
    assert isinstance(twice, RequestOpened)
    assert Decision.ALWAYS in opened.request.choices
    assert "Yes, and switch to auto mode" == opened.request.rule
    assert ((), False) == (twice.request.choices, twice.request.answerable)


def test_a_changed_menu_withdraws_the_request_before() -> None:
    asked = ScreenRequest(SessionId("abcdefgh"))
    (first,) = asked.apply_screen(ASKING, menu("rm x"), "", 1.0)
    assert [] == asked.apply_screen(ASKING, menu("rm x"), "", 2.0)
    withdrawn, second = asked.apply_screen(ASKING, menu("rm y"), "", 3.0)

    assert isinstance(first, RequestOpened)
    assert isinstance(second, RequestOpened)
    assert isinstance(withdrawn, RequestWithdrawn)
    assert first.request.id == withdrawn.request != second.request.id


@pytest.mark.parametrize("verdict", [WORKING, StateVerdict(state=SessionState.UNSURE, source="title")])
def test_a_screen_that_does_not_ask_is_no_request_whatever_its_text(verdict: StateVerdict) -> None:
    asked = ScreenRequest(SessionId("abcdefgh"))
    assert [] == asked.apply_screen(verdict, menu("rm x"), "", 1.0)
    asked.apply_screen(ASKING, menu("rm x"), "", 2.0)
    assert [RequestWithdrawn] == [type(event) for event in asked.apply_state(verdict, 3.0)]


def test_a_request_without_a_known_menu_can_only_be_opened_in_its_terminal() -> None:
    asked = ScreenRequest(SessionId("abcdefgh"))
    assert [] == asked.apply_screen(ASKING, None, "Pick one", 1.0)  # its menu may be drawn yet
    (opened,) = asked.apply_screen(ASKING, None, "Pick one\n1. a", 1.0 + BARE_S)
    assert [] == asked.apply_screen(ASKING, None, "Pick one\n1. a", 9.0)

    assert isinstance(opened, RequestOpened)
    assert not opened.request.answerable
    assert ((), "Pick one") == (opened.request.choices, opened.request.title)


def test_an_answered_request_that_appears_again_is_another_request() -> None:
    asked = ScreenRequest(SessionId("abcdefgh"))
    asked.apply_screen(ASKING, menu("rm x"), "", 1.0)
    asked.forget(1.5)

    assert [RequestOpened] == [type(event) for event in asked.apply_screen(ASKING, menu("rm x"), "", 2.0)]


def test_signals_of_other_sources_right_after_an_answer_make_no_request() -> None:
    asked = ScreenRequest(SessionId("abcdefgh"))
    asked.apply_screen(ASKING, menu("rm x"), "", 1.0)
    asked.forget(1.5)

    assert [] == asked.apply_screen(ASKING, None, "asks", 2.0)
    assert 1.5 + LATE_S == asked.due_at
    assert [RequestOpened] == [type(event) for event in asked.apply_screen(ASKING, None, "asks", 1.5 + LATE_S)]


def test_during_an_answer_no_request_is_opened_or_withdrawn() -> None:
    asked = ScreenRequest(SessionId("abcdefgh"))
    asked.apply_screen(ASKING, menu("rm x"), "", 1.0)
    asked.is_held = True

    assert [] == asked.apply_state(WORKING, 2.0)
    assert [] == asked.apply_screen(WORKING, None, "", 2.0)
    assert [] == asked.apply_screen(ASKING, menu("rm y"), "", 2.0)
    asked.is_held = False
    assert [RequestWithdrawn] == [type(event) for event in asked.apply_state(WORKING, 3.0)]


@pytest.mark.parametrize(
    ("entries", "is_back"),
    [
        ({1: ProcessEntry(0, 1, 1, "bash")}, True),
        ({1: ProcessEntry(0, 1, 2, "bash"), 2: ProcessEntry(1, 2, 2, "node")}, False),
        ({1: ProcessEntry(0, 1, 1, "-zsh"), 2: ProcessEntry(1, 2, 1, "daemon")}, True),
        ({1: ProcessEntry(0, 1, 1, "sh"), 2: ProcessEntry(1, 1, 1, "node")}, False),
        ({1: ProcessEntry(0, 1, 1, "node")}, None),
        ({}, None),
    ],
)
def test_a_shell_has_its_terminal_back_when_no_child_has_it(
    entries: dict[int, ProcessEntry], is_back: bool | None
) -> None:
    assert is_back is ProcessTable(entries).is_back_at_shell(1)


def test_parents_that_form_a_loop_are_each_listed_once() -> None:
    """A table is read process by process, and a pid may belong to another one by then."""
    ring = {
        2: ProcessEntry(4, 2, 2, "bash"),
        3: ProcessEntry(2, 2, 2, "a"),
        4: ProcessEntry(3, 2, 2, "b"),
        5: ProcessEntry(4, 2, 2, "c"),
    }

    assert [3, 4, 5] == ProcessTable(ring).below(2)
    assert False is ProcessTable(ring).is_back_at_shell(2)


def test_the_process_list_of_this_machine_is_not_empty() -> None:
    assert os.getpid() in table().below(os.getppid())


@pytest.mark.parametrize(
    ("argv", "agent", "program"),
    [
        (("/x/claude", "--model", "m"), "mine", "claude"),
        (("env", "A=1", "node", "/x/gemini.js"), "mine", "gemini"),
        (("bash", "-c", "claude; exec bash"), "claude", "claude"),
        (("/bin/bash",), "shell", "bash"),
        (("python", "-P", "-m", "kasmon.scripted"), "scripted", "scripted"),
        ((), "codex", "codex"),
        ((), "shell@box", "shell"),
        (("bash", "-c", "claude; exec bash"), "claude@box", "claude"),
    ],
)
def test_a_command_line_is_matched_to_its_agent(argv: tuple[str, ...], agent: str, program: str) -> None:
    assert program == program_of(argv, agent)


def stopped_or(name: str, evidence: ProcessEvidence, entries: dict[int, ProcessEntry]) -> list[str]:
    return [word.value for word in evidence.read(1.0, ProcessTable(entries)) if word.source == name]


def test_an_agent_is_stopped_with_its_process_and_an_agent_again_once_continued(tmp_path: Path) -> None:
    evidence = ProcessEvidence("node", 1, tmp_path, 1, "")
    stopped, runs = ProcessEntry(0, 1, 1, "node", is_stopped=True), ProcessEntry(0, 1, 1, "node")

    assert [] == stopped_or("process", evidence, {1: runs})
    assert ["stopped"] == stopped_or("process", evidence, {1: stopped})
    assert evidence.is_stopped
    assert ["agent"] == stopped_or("process", evidence, {1: runs})
    assert not evidence.is_stopped


def test_an_agent_that_its_shell_stopped_has_not_ended_and_another_job_of_the_shell_is_not_the_agent(
    tmp_path: Path,
) -> None:
    evidence = ProcessEvidence("claude", 1, tmp_path, 1, "")
    in_front = {1: ProcessEntry(0, 1, 2, "bash"), 2: ProcessEntry(1, 2, 2, "claude")}
    shell = ProcessEntry(0, 1, 1, "bash")

    assert ["agent"] == stopped_or("process", evidence, in_front)
    assert ["stopped"] == stopped_or(
        "process", evidence, {1: shell, 2: ProcessEntry(1, 2, 1, "claude", is_stopped=True)}
    )
    assert ["shell"] == stopped_or("process", evidence, {1: shell, 3: ProcessEntry(1, 3, 1, "vim", is_stopped=True)})


def test_an_agent_stopped_while_its_terminal_is_not_in_the_foreground_was_stopped_by_sigstop(tmp_path: Path) -> None:
    """Ctrl-Z leaves a shell with jobs in front."""
    evidence = ProcessEvidence("gemini", 1, tmp_path, 1, "")
    shell, agent = ProcessEntry(0, 1, 1, "sh"), ProcessEntry(1, 1, 1, "node")
    stopped = ProcessEntry(1, 1, 1, "node", is_stopped=True)

    def said(entries: dict[int, ProcessEntry]) -> list[tuple[str, str]]:
        assert evidence.has_changed_silently(ProcessTable(entries)) is ProcessTable(entries).is_stopped_in_front(1)
        return [
            (word.value, word.text) for word in evidence.read(1.0, ProcessTable(entries)) if word.value == "stopped"
        ]

    assert [] == said({1: shell, 2: agent})
    assert [] == said({1: shell, 2: agent, 3: ProcessEntry(2, 1, 1, "mcp", is_stopped=True)})
    assert [] == said({1: shell, 2: agent, 3: ProcessEntry(1, 3, 1, "vim", is_stopped=True)})
    assert [("stopped", "SIGSTOP")] == said({1: shell, 2: stopped})
    assert not evidence.has_changed_silently(ProcessTable({1: shell, 2: stopped}))


def test_a_job_in_the_background_of_its_shell_is_not_in_the_foreground_of_its_terminal() -> None:
    job = ProcessEntry(1, 2, 1, "claude", is_stopped=True)

    assert not ProcessTable({1: ProcessEntry(0, 1, 1, "bash"), 2: job}).is_stopped_in_front(1)
    assert ProcessTable(
        {1: ProcessEntry(0, 1, 2, "bash"), 2: ProcessEntry(1, 2, 2, "claude", is_stopped=True)}
    ).is_stopped_in_front(1)
    assert not ProcessTable({1: ProcessEntry(0, 1, -1, "bash")}).is_stopped_in_front(1)
    assert not ProcessTable({}).is_stopped_in_front(1)


def _is_seen(pid: int, is_stopped: bool) -> bool:
    return table().is_stopped({pid}) is is_stopped


def test_a_stopped_process_is_reported_as_stopped_until_it_is_continued() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        for number, is_stopped in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
            process.send_signal(number)
            until(partial(_is_seen, process.pid, is_stopped))
    finally:
        process.kill()
        process.wait()
