"""What a source's word adds to what is known, what of it becomes a request, and who has a terminal."""

import os
import time

import pytest

from kasmon.backends.tmux.asked import BARE_S, LATE_S, Asked
from kasmon.backends.tmux.processes import Entry, Table, table
from kasmon.backends.tmux.program import program_of
from kasmon.backends.tmux.weighing import Weighing
from kasmon.model.event import RequestOpened, RequestWithdrawn, SignalSeen
from kasmon.model.evidence import Verdict
from kasmon.model.permission import AskKind, Decision, SessionId
from kasmon.model.state import SessionState
from kasmon.screens.choice import Choice, Menu

ASKING = Verdict(state=SessionState.ASKING, source="screen", asking=AskKind.PERMISSION)
WORKING = Verdict(state=SessionState.WORKING, source="registry")


def seen(source: str, value: str, at: float, **more: object) -> SignalSeen:
    return SignalSeen(source=source, value=value, at=at, **more)  # type: ignore[arg-type]


def menu(command: str, *, third: Decision | None = None, is_whole: bool = True) -> Menu:
    labels = [("Yes", Decision.ALLOW), ("Yes, and switch to auto mode", third), ("No", Decision.DENY)]
    choices = tuple(
        Choice(label=label, key=str(at), decision=decision, marked=at == 1)
        for at, (label, decision) in enumerate(labels, 1)
    )
    return Menu(
        name="permission",
        kind=AskKind.PERMISSION,
        text=f"Run it?\n{command}",
        choices=choices,
        digest=command,
        is_whole=is_whole,
    )


def test_the_same_word_again_is_no_news_and_its_text_counts_only_where_something_is_asked() -> None:
    words = Weighing()
    for first, second, is_news in (
        (seen("screen", "working", 1.0, text="a"), seen("screen", "working", 2.0, text="b"), False),
        (seen("screen", "asking", 3.0, text="a"), seen("screen", "asking", 4.0, text="b"), True),
        (seen("screen", "limited", 5.0, until=9.0), seen("screen", "limited", 6.0, until=10.0), True),
        (seen("title", "working", 7.0), seen("title", "idle|asking", 8.0), True),
    ):
        assert words.is_news(first)
        words.noted(first)
        assert is_news is words.is_news(second)


def test_a_screen_that_says_the_same_long_after_a_hook_says_it_again() -> None:
    words = Weighing()
    now = time.time()
    words.noted(seen("screen", "idle", now - 9))
    words.noted(seen("hook", "asking", now))

    assert "asking" == words.verdict.state
    assert not words.is_news(seen("screen", "idle", now + 1.0))
    assert words.is_news(seen("screen", "idle", now + 2.5))
    words.noted(seen("screen", "idle", now + 2.5))
    assert "idle" == words.verdict.state
    assert not words.is_news(seen("screen", "idle", now + 10.0))


def test_a_dialog_that_stood_there_when_its_program_came_to_rest_is_one_once_it_stands_there_on() -> None:
    """Codex draws "Implement this plan?" and may say "done" a moment later."""
    words = Weighing()
    now = time.time()
    words.noted(seen("screen", "asking", now))
    words.noted(seen("program", "done", now + 0.1))

    assert "idle" == words.verdict.state
    assert not words.is_news(seen("screen", "asking", now + 1.0))
    assert words.is_news(seen("screen", "asking", now + 2.5))
    words.noted(seen("screen", "asking", now + 2.5))
    assert "asking" == words.verdict.state


def test_output_and_the_rule_without_words_do_not_tell_what_an_agent_does() -> None:
    words = Weighing()
    words.noted(seen("output", "printing", 1.0))
    words.noted(seen("fallback", "asking", 1.0))
    assert not words.can_tell
    words.noted(seen("screen", "unclear", 1.0))
    assert not words.can_tell
    words.noted(seen("screen", "idle", 1.0))
    assert words.can_tell


def test_a_menu_becomes_a_request_that_takes_what_its_labels_say_and_nothing_else() -> None:
    (opened,) = Asked(SessionId("abcdefgh")).seen(ASKING, menu("rm x"), "", 1.0)

    assert isinstance(opened, RequestOpened)
    assert (Decision.ALLOW, Decision.DENY) == opened.request.choices
    assert opened.request.answerable
    assert "rm x" in opened.request.shown


def test_nobody_consents_to_what_is_not_shown_whole() -> None:
    (opened,) = Asked(SessionId("abcdefgh")).seen(ASKING, menu("rm x", is_whole=False), "", 1.0)

    assert isinstance(opened, RequestOpened)
    assert (Decision.DENY,) == opened.request.choices


def test_always_is_offered_where_one_label_means_it_and_says_what_it_covers() -> None:
    (opened,) = Asked(SessionId("abcdefgh")).seen(ASKING, menu("rm x", third=Decision.ALWAYS), "", 1.0)
    (twice,) = Asked(SessionId("abcdefgh")).seen(ASKING, menu("rm x", third=Decision.ALLOW), "", 1.0)

    assert isinstance(opened, RequestOpened)
    assert isinstance(twice, RequestOpened)
    assert Decision.ALWAYS in opened.request.choices
    assert "Yes, and switch to auto mode" == opened.request.rule
    assert ((), False) == (twice.request.choices, twice.request.answerable)


def test_a_menu_that_changes_withdraws_the_request_before() -> None:
    asked = Asked(SessionId("abcdefgh"))
    (first,) = asked.seen(ASKING, menu("rm x"), "", 1.0)
    assert [] == asked.seen(ASKING, menu("rm x"), "", 2.0)
    withdrawn, second = asked.seen(ASKING, menu("rm y"), "", 3.0)

    assert isinstance(first, RequestOpened)
    assert isinstance(second, RequestOpened)
    assert isinstance(withdrawn, RequestWithdrawn)
    assert first.request.id == withdrawn.request != second.request.id


@pytest.mark.parametrize("verdict", [WORKING, Verdict(state=SessionState.UNSURE, source="title")])
def test_what_is_not_judged_to_ask_is_no_request_whatever_stands_there(verdict: Verdict) -> None:
    asked = Asked(SessionId("abcdefgh"))
    assert [] == asked.seen(verdict, menu("rm x"), "", 1.0)
    asked.seen(ASKING, menu("rm x"), "", 2.0)
    assert [RequestWithdrawn] == [type(event) for event in asked.judged(verdict, 3.0)]


def test_what_asks_without_a_menu_that_is_known_can_only_be_gone_to() -> None:
    asked = Asked(SessionId("abcdefgh"))
    assert [] == asked.seen(ASKING, None, "Pick one", 1.0)  # its menu may be drawn yet
    (opened,) = asked.seen(ASKING, None, "Pick one\n1. a", 1.0 + BARE_S)
    assert [] == asked.seen(ASKING, None, "Pick one\n1. a", 9.0)

    assert isinstance(opened, RequestOpened)
    assert not opened.request.answerable
    assert ((), "Pick one") == (opened.request.choices, opened.request.title)


def test_what_was_answered_and_stands_there_again_is_another_request() -> None:
    asked = Asked(SessionId("abcdefgh"))
    asked.seen(ASKING, menu("rm x"), "", 1.0)
    asked.forget(1.5)

    assert [RequestOpened] == [type(event) for event in asked.seen(ASKING, menu("rm x"), "", 2.0)]


def test_what_other_sources_still_say_right_after_an_answer_is_no_request() -> None:
    asked = Asked(SessionId("abcdefgh"))
    asked.seen(ASKING, menu("rm x"), "", 1.0)
    asked.forget(1.5)

    assert [] == asked.seen(ASKING, None, "asks", 2.0)
    assert 1.5 + LATE_S == asked.due_at
    assert [RequestOpened] == [type(event) for event in asked.seen(ASKING, None, "asks", 1.5 + LATE_S)]


def test_while_an_answer_is_on_its_way_nothing_is_withdrawn_or_asked() -> None:
    asked = Asked(SessionId("abcdefgh"))
    asked.seen(ASKING, menu("rm x"), "", 1.0)
    asked.is_held = True

    assert [] == asked.judged(WORKING, 2.0)
    assert [] == asked.seen(WORKING, None, "", 2.0)
    assert [] == asked.seen(ASKING, menu("rm y"), "", 2.0)
    asked.is_held = False
    assert [RequestWithdrawn] == [type(event) for event in asked.judged(WORKING, 3.0)]


@pytest.mark.parametrize(
    ("entries", "is_back"),
    [
        ({1: Entry(0, 1, 1, "bash")}, True),
        ({1: Entry(0, 1, 2, "bash"), 2: Entry(1, 2, 2, "node")}, False),
        ({1: Entry(0, 1, 1, "-zsh"), 2: Entry(1, 2, 1, "daemon")}, True),
        ({1: Entry(0, 1, 1, "sh"), 2: Entry(1, 1, 1, "node")}, False),
        ({1: Entry(0, 1, 1, "node")}, None),
        ({}, None),
    ],
)
def test_a_shell_has_its_terminal_back_when_nothing_of_its_own_has_it(
    entries: dict[int, Entry], is_back: bool | None
) -> None:
    assert is_back is Table(entries).is_back_at_shell(1)


def test_parents_that_were_read_as_a_ring_have_each_other_below_them_once() -> None:
    """A table is read process by process, and a pid may belong to another one by then."""
    ring = {2: Entry(4, 2, 2, "bash"), 3: Entry(2, 2, 2, "a"), 4: Entry(3, 2, 2, "b"), 5: Entry(4, 2, 2, "c")}

    assert [3, 4, 5] == Table(ring).below(2)
    assert False is Table(ring).is_back_at_shell(2)


def test_this_machine_has_processes() -> None:
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
def test_which_agent_a_command_line_runs(argv: tuple[str, ...], agent: str, program: str) -> None:
    assert program == program_of(argv, agent)
