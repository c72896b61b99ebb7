"""What the facts of a session add up to."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model import events
from kasmon.model.attention import AttentionReason, need
from kasmon.model.commands import Launch, Mode, ReceiptState
from kasmon.model.permission import Decision, RequestId, RequestKind
from kasmon.model.reducers.apply import apply
from kasmon.model.reducers.lifecycle import KEPT_RECEIPTS
from kasmon.model.reducers.session_requests import KEPT_CLOSED
from kasmon.model.reducers.state import NEXT
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.session import Session, created
from kasmon.model.session_state import ALIVE, ATTENTION, CRASHED, SessionState
from tests.support.sample_events import ME, asks, ended, facts, fold, receipt, started, turn

S = SessionState
MODES = st.sampled_from(list(Mode))
HISTORIES = st.lists(facts(), max_size=30)


def answered(n: int = 1, decision: Decision = Decision.ALLOW) -> events.RequestAnswered:
    return events.RequestAnswered(at=5.0, request=RequestId(f"{ME}-{n}"), decision=decision)


def line_lost() -> events.ConnectionLost:
    return events.ConnectionLost(at=8.0, what="tmux server")


# Whatever happens


@given(mode=MODES, history=HISTORIES)
def test_no_sequence_of_events_is_refused(mode: Mode, history: list[events.Event]) -> None:
    assert isinstance(fold(*history, session=Session(id=ME, mode=mode)), Session)


@given(mode=MODES, history=HISTORIES)
def test_a_session_is_consistent_after_any_events(mode: Mode, history: list[events.Event]) -> None:
    session = fold(*history, session=Session(id=ME, mode=mode))

    assert (session.state is S.ASKING) == (session.asking is not None)
    assert (session.state is S.UNSURE) == (session.unsure_why is not None)
    assert not (session.state is S.ENDED and (session.requests or session.in_turn))
    assert session.limited_until is None or session.state is S.LIMITED
    assert len({ask.id for ask in session.requests}) == len(session.requests)
    assert {ask.id for ask in session.requests} & {session.next_request()} == set()
    assert {known.id for known in session.receipts} & {session.next_receipt()} == set()


def test_open_requests_of_a_sandbox_are_withdrawn_when_it_is_gone() -> None:
    gone = events.SandboxPhaseChanged(at=9.0, phase=SandboxPhase.EXPIRED, why="maximum lifetime of 24 h reached")
    session = fold(turn("x"), asks(), gone, session=Session(id=ME, mode=Mode.INTERPRETER))

    assert (S.ENDED, ()) == (session.state, session.requests)


@given(mode=MODES, history=HISTORIES, last=facts())
def test_a_state_holds_since_its_event(mode: Mode, history: list[events.Event], last: events.Event) -> None:
    before = fold(*history, session=Session(id=ME, mode=mode))
    after = apply(before, last)

    assert after.since == last.at if after.state is not before.state else after.since in (before.since, last.at)


def test_every_state_has_a_row_and_a_place_in_the_list_and_can_be_left_by_a_start() -> None:
    assert set(SessionState) == set(NEXT) == set(ATTENTION)
    assert all(type(started()) in row for row in NEXT.values())


@pytest.mark.parametrize("state", list(SessionState))
def test_the_end_ends_every_state(state: SessionState) -> None:
    assert S.ENDED is apply(Session(id=ME, mode=Mode.SDK, state=state), ended()).state


# An agent with a protocol


def test_a_session_starts_works_asks_while_a_request_is_open_and_rests() -> None:
    assert S.STARTING is fold().state
    assert S.IDLE is fold(started()).state
    assert S.WORKING is fold(started(), turn()).state
    assert S.IDLE is fold(started(), turn(), events.TurnEnded(at=4.0)).state

    session = fold(started(), turn(), asks())
    assert (S.ASKING, RequestKind.PERMISSION) == (session.state, session.asking)
    assert S.WORKING is apply(session, answered()).state


def test_of_two_requests_one_answer_leaves_it_asking_and_outside_a_turn_idle_again() -> None:
    """Otherwise a queue would wait for the end of a turn that never began."""
    session = fold(started(), turn(), asks(n=1), asks("make", n=2, kind=RequestKind.QUESTION), answered(1))
    assert (S.ASKING, RequestKind.QUESTION) == (session.state, session.asking)
    assert S.WORKING is apply(session, answered(2)).state

    assert S.ASKING is fold(started(), asks()).state
    assert S.IDLE is fold(started(), asks(), answered()).state


def test_a_login_request_before_the_start_is_shown() -> None:
    session = fold(asks(kind=RequestKind.AUTH))

    assert (S.ASKING, RequestKind.AUTH) == (session.state, session.asking)
    assert S.STARTING is apply(session, answered()).state


def test_what_was_set_aside_still_asks_and_a_second_answer_changes_nothing() -> None:
    session = fold(started(), turn(), asks(), events.RequestSetAside(at=4.0, request=RequestId(f"{ME}-1")))
    assert S.ASKING is session.state
    assert [True] == [ask.later for ask in session.requests]

    once = fold(started(), turn(), asks(), answered(decision=Decision.DENY))
    assert once == apply(once, answered(decision=Decision.ALLOW))


@pytest.mark.parametrize(
    "event", [ended(), ended(signal="SIGKILL"), events.TurnEnded(at=4.0), started(2)], ids=lambda e: type(e).__name__
)
def test_the_end_of_a_session_or_its_turn_withdraws_its_open_requests(event: events.Event) -> None:
    session = fold(started(), turn(), asks(n=1), asks(n=2), event)

    assert () == session.requests
    assert [None, None] == [closed.decision for closed in session.closed]


def test_a_request_after_the_end_does_not_open_and_a_withdrawn_one_says_why() -> None:
    session = fold(started(), ended(), asks())
    assert () == session.requests
    assert f"{ME}-2" == session.next_request()

    withdrawn = events.RequestWithdrawn(at=4.0, request=RequestId(f"{ME}-1"), why="interrupted")
    assert ["interrupted"] == [closed.by for closed in fold(started(), turn(), asks(), withdrawn).closed]


def test_only_the_last_closed_requests_are_kept() -> None:
    history = [event for n in range(1, KEPT_CLOSED + 11) for event in (asks(n=n), answered(n))]
    session = fold(started(), turn(), *history)

    assert f"{ME}-11" == session.closed[0].id
    assert KEPT_CLOSED == len(session.closed)
    assert f"{ME}-{KEPT_CLOSED + 11}" == session.next_request()


def test_a_limit_holds_until_it_is_lifted() -> None:
    limited = fold(started(), turn(), events.LimitReached(at=4.0, until=99.0))

    assert (S.LIMITED, 99.0) == (limited.state, limited.limited_until)
    assert (S.WORKING, None) == (
        fold(events.LimitLifted(at=5.0), session=limited).state,
        apply(limited, events.LimitLifted(at=5.0)).limited_until,
    )


def test_a_turn_that_the_limit_ended_leaves_it_limited_and_an_interrupt_there_ends_it() -> None:
    session = fold(started(), turn(), events.LimitReached(at=4.0, until=99.0), events.TurnEnded(at=5.0, reason="limit"))
    assert (S.LIMITED, 99.0) == (session.state, session.limited_until)
    assert S.IDLE is apply(session, events.LimitLifted(at=99.0)).state

    session = fold(
        started(), turn(), events.LimitReached(at=4.0, until=99.0), events.TurnEnded(at=5.0, reason="interrupted")
    )
    assert (S.IDLE, None) == (session.state, session.limited_until)


# Ends and starts


def test_an_ended_session_has_a_cause() -> None:
    session = fold(started(), turn(), ended(exit_code=None, signal="SIGKILL"))

    assert (S.ENDED, None, "SIGKILL", False) == (session.state, session.exit_code, session.signal, session.exists)


@pytest.mark.parametrize(
    ("end", "crashed"),
    [
        (ended(0), False),
        (ended(1), True),
        (ended(None, "SIGSEGV"), True),
        (ended(None, "SIGTERM", why="stopped"), False),
        (ended(None, why="cannot start 'claude'"), True),
        (ended(None), False),
    ],
    ids=["code 0", "code 1", "signal", "stopped", "never started", "nobody can say"],
)
def test_a_crash_is_an_end_without_a_request(end: events.Event, crashed: bool) -> None:
    session = fold(started(), end)

    assert crashed == session.crashed
    assert crashed == (session.attention == CRASHED)


@pytest.mark.parametrize(
    "before",
    [[], [turn()], [turn(), asks()], [turn(), events.LimitReached(at=4.0, until=9.0)], [ended(1)]],
    ids=["idle", "working", "asking", "limited", "ended"],
)
def test_a_restart_clears_the_earlier_state(before: list[events.Event]) -> None:
    """Also where the host was killed and nobody wrote down an end."""
    session = fold(started(1), *before, started(2, at=20.0))

    assert (S.IDLE, 20.0, 2, 102) == (session.state, session.since, session.generation, session.pid)
    assert (None, None, "", False) == (session.exit_code, session.signal, session.end_why, session.crashed)
    assert (None, ()) == (session.limited_until, session.requests)


def test_the_conversation_survives_a_restart_without_its_name_and_facts_after_the_end_revive_nothing() -> None:
    first = msgspec.structs.replace(started(1), resume_id="talk-1")
    assert "talk-1" == fold(first, ended(), started(2)).resume_id

    session = fold(started(), ended(), turn(), events.MessageWritten(at=9.5, text="one more"))
    assert (S.ENDED, False, "one more") == (session.state, session.in_turn, session.last_line)


# Receipts


@pytest.mark.parametrize(
    "state", [ReceiptState.QUEUED, ReceiptState.TYPED, ReceiptState.SUBMITTED, ReceiptState.STARTED]
)
def test_the_end_loses_every_undelivered_prompt(state: ReceiptState) -> None:
    session = fold(started(), receipt(1, state), ended())

    assert [ReceiptState.LOST] == [known.state for known in session.receipts]


def test_a_failed_start_loses_no_queued_prompt() -> None:
    failed = events.SessionEnded(at=30.0, why="no login", never_began=True)
    session = fold(started(), receipt(1, ReceiptState.QUEUED), failed)

    assert (S.ENDED, 30.0) == (session.state, session.since)
    assert [ReceiptState.QUEUED] == [known.state for known in apply(session, started(2, at=40.0)).receipts]


@pytest.mark.parametrize("state", [ReceiptState.FINISHED, ReceiptState.REFUSED])
def test_the_end_loses_no_finished_prompt(state: ReceiptState) -> None:
    assert [state] == [known.state for known in fold(started(), receipt(1, state), ended()).receipts]


def test_a_queue_survives_its_host_and_prompts_in_delivery_do_not() -> None:
    """Nobody knows whether the agent has it: it is not prompted twice."""
    session = fold(started(1), receipt(1, ReceiptState.QUEUED), receipt(2, ReceiptState.TYPED), started(2))

    assert [ReceiptState.QUEUED, ReceiptState.LOST] == [known.state for known in session.receipts]
    assert 1 == session.queue


def test_a_prompt_typed_into_a_terminal_has_arrived() -> None:
    session = fold(receipt(1, ReceiptState.SUBMITTED), ended(), session=Session(id=ME, mode=Mode.TMUX))

    assert [ReceiptState.SUBMITTED] == [known.state for known in session.receipts]


def test_queued_prompts_are_kept_after_any_number_of_others() -> None:
    waits = [receipt(n, ReceiptState.QUEUED) for n in range(1, KEPT_RECEIPTS + 6)]
    later = [receipt(n, ReceiptState.FINISHED) for n in range(100, 100 + 2 * KEPT_RECEIPTS)]
    session = fold(started(), *waits, *later)

    assert KEPT_RECEIPTS + 5 == session.queue
    assert 2 * KEPT_RECEIPTS + 5 == len(session.receipts)


def test_a_receipt_that_advances_is_counted_once() -> None:
    session = fold(started(), *(receipt(1, state) for state in ReceiptState))

    assert 1 == len(session.receipts)
    assert f"{ME}-r2" == session.next_receipt()


# An agent in a terminal


TERMINAL = Session(id=ME, mode=Mode.TMUX)


def signal(source: str, value: str, at: float = 3.0) -> events.SignalSeen:
    return msgspec.convert({"kind": "signal.seen", "at": at, "source": source, "value": value}, events.SignalSeen)


def test_a_terminal_agent_is_what_its_signals_say_and_a_restart_forgets_the_last_programs() -> None:
    ready: list[events.Event] = [started(mode=Mode.TMUX), signal("launch", "ready")]
    assert (S.UNSURE, "launch") == ((now := fold(*ready, session=TERMINAL)).state, now.source)
    assert S.WORKING is fold(*ready, signal("output", "printing"), session=TERMINAL).state
    assert S.IDLE is fold(*ready, signal("program", "idle"), session=TERMINAL).state

    session = fold(started(mode=Mode.TMUX), signal("program", "idle"), started(2, mode=Mode.TMUX), session=TERMINAL)
    assert (S.STARTING, ()) == (session.state, session.signals)


@pytest.mark.parametrize("over", [ended(), line_lost()], ids=["ended", "line lost"])
def test_no_signal_revives_an_ended_session(over: events.Event) -> None:
    session = fold(started(mode=Mode.TMUX), over, signal("program", "idle"), session=TERMINAL)

    assert session.state in (S.ENDED, S.LOST)


def test_an_agent_that_left_its_shell_has_ended_until_it_is_back_and_a_lost_line_until_it_is_found() -> None:
    left = fold(started(mode=Mode.TMUX), signal("screen", "idle"), signal("process", "shell"), session=TERMINAL)
    back = apply(left, signal("process", "agent", at=9.0))
    assert (S.ENDED, "back at the shell", False) == (left.state, left.end_why, left.exists)
    assert (S.IDLE, "", True) == (back.state, back.end_why, back.exists)

    lost = fold(started(mode=Mode.TMUX), signal("program", "idle"), line_lost(), session=TERMINAL)
    assert S.LOST is lost.state
    assert S.IDLE is apply(lost, events.ConnectionRestored(at=9.0)).state


def test_a_lost_connection_to_another_machine_has_a_reason_and_is_found_by_another_process() -> None:
    cut = events.ConnectionLost(at=8.0, what="remote line", why="Connection reset")
    lost = fold(started(mode=Mode.TMUX), signal("program", "idle"), cut, session=TERMINAL)
    found = apply(lost, events.ConnectionRestored(at=9.0, pid=77, pid_started=5.0, pid_boot="b"))

    assert (S.LOST, "Connection reset") == (lost.state, lost.end_why)
    assert (S.IDLE, "", 77, 5.0, "b") == (found.state, found.end_why, found.pid, found.pid_started, found.pid_boot)
    assert lost.generation == found.generation


def test_a_found_connection_to_a_structured_agent_leaves_it_unsure() -> None:
    session = fold(started(), turn(), line_lost(), events.ConnectionRestored(at=9.0))

    assert S.UNSURE is session.state
    assert session.unsure_why
    assert S.IDLE is apply(session, events.TurnEnded(at=10.0)).state


@pytest.mark.parametrize("mode", [Mode.TMUX, Mode.SDK])
@pytest.mark.parametrize(
    "event",
    [
        line_lost(),
        events.ConnectionRestored(at=9.0),
        events.ConnectionLost(at=8.0, what="remote line", why="w"),
        events.ConnectionRestored(at=9.0, pid=77),
    ],
    ids=["lost", "found", "cut", "found by another"],
)
def test_an_ended_session_cannot_be_lost_or_found(event: events.Event, mode: Mode) -> None:
    before = fold(started(mode=mode), ended(), session=Session(id=ME, mode=mode))
    session = apply(before, event)

    assert S.ENDED is session.state
    assert (before.pid, before.end_why) == (session.pid, session.end_why)


# What a row shows


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (events.MessageWritten(at=4, text="First.\n\nThe tests pass.\n"), "The tests pass."),
        (events.ToolStarted(at=4, call="1", tool="Bash", title="make test"), "Bash make test"),
        (events.NoticeRaised(at=4, text="trying again in 3 s"), "trying again in 3 s"),
        (events.TurnEnded(at=4, reason="error", error="no credit left"), "no credit left"),
        (ended(1, why="could not connect"), "could not connect"),
    ],
    ids=["message", "tool", "notice", "failed turn", "end"],
)
def test_the_last_line_is_the_latest_activity(event: events.Event, line: str) -> None:
    assert line == fold(started(), turn(), event).last_line


@pytest.mark.parametrize(
    "event",
    [events.MessageWritten(at=5, text=" \n"), events.TurnEnded(at=5), ended(None, why="stopped")],
    ids=["blank", "turn ended", "stopped"],
)
def test_an_empty_text_leaves_the_last_line_unchanged(event: events.Event) -> None:
    assert "Done." == fold(started(), turn(), events.MessageWritten(at=4, text="Done."), event).last_line


def test_usage_replaces_and_an_unreported_cost_stays() -> None:
    session = fold(
        started(), events.UsageReported(at=3, input=10, cost_usd=0.5), events.UsageReported(at=4, input=30, output=2)
    )

    assert session.tokens is not None
    assert (30, 2, 0.5) == (session.tokens.input, session.tokens.output, session.cost_usd)


def test_a_session_is_renamed_and_removed_by_the_fleet_log() -> None:
    session = fold(events.SessionRenamed(at=1, session=ME, name="docs"), events.SessionForgotten(at=2, session=ME))

    assert ("docs", True) == (session.name, session.forgotten)


def test_a_created_session_has_the_values_of_its_launch() -> None:
    launch = Launch(session=ME, name="docs", agent="scripted", mode=Mode.SDK, backend="scripted", wave=2, peers=3)
    session = created(launch, 7.0, "here")

    assert ("docs", Mode.SDK, 2, 3, 7.0, "here") == (
        session.name,
        session.mode,
        session.wave,
        session.peers,
        session.created_at,
        session.machine,
    )
    assert (S.STARTING, False) == (session.state, session.exists)


def test_lost_hibernated_and_ended_are_the_states_without_an_agent() -> None:
    assert {S.LOST, S.HIBERNATED, S.ENDED} == set(SessionState) - ALIVE


def test_a_request_of_its_host_is_no_state_of_its_agent_and_still_needs_the_user() -> None:
    """Its queue goes on, and its own request is the one that it waits for."""
    own = events.RequestOpened(at=2.0, request=msgspec.structs.replace(asks(n=7).request, by_host=True))
    idle = fold(started(), own)
    working = fold(turn(), session=idle)
    asking = fold(asks(n=8), session=working)

    assert [S.IDLE, S.WORKING, S.ASKING] == [session.state for session in (idle, working, asking)]
    assert [AttentionReason.ASKING] * 3 == [need(session) for session in (idle, working, asking)]
    assert {0} == {session.attention for session in (idle, working, asking)}
    aside = fold(events.RequestSetAside(at=5.0, request=own.request.id), session=idle)
    assert (None, S.IDLE) == (need(aside), aside.state)


def test_a_request_of_its_host_outlives_a_turn_and_ends_with_the_agent() -> None:
    own = msgspec.structs.replace(asks(n=2).request, by_host=True)
    session = fold(started(), turn(), asks(n=1), events.RequestOpened(at=4.0, request=own), events.TurnEnded(at=5.0))

    assert ([own], ()) == ([*session.requests], fold(events.SessionEnded(at=6.0), session=session).requests)
