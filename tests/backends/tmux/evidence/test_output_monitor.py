"""What a pane's output says of its agent, byte by byte and second by second."""

import base64
import math

import pytest

from kasmon.backends.tmux.evidence.output_monitor import OutputMonitor
from kasmon.model.events import SignalSeen
from kasmon.model.evidence import Signal
from kasmon.model.permission import RequestKind


def report(state: str, kind: str = "", message: str = "") -> bytes:
    said = f"state={state}" + (f":kind={kind}" if kind else "")
    if message:
        said += f":msg={base64.b64encode(message.encode()).decode()}"
    return f"\x1b]7501;{said}\x07".encode()


def told(signals: list[SignalSeen]) -> list[tuple[str, str, str]]:
    return [(signal.source, signal.value, signal.text) for signal in signals]


def silence(output_monitor: OutputMonitor, now: float, line: str = "") -> list[tuple[str, str, str]]:
    """What it tells by *now* if nothing more is printed, and *line* stands on the screen."""
    signals, wants_line = output_monitor.due(now, now)
    return told(output_monitor.handle_line(line, now, now)) if wants_line else told(signals)


def test_the_first_output_means_working_and_is_reported_once() -> None:
    output_monitor = OutputMonitor(0.0)

    assert [("output", "printing", "")] == told(output_monitor.feed(b"a", 1.0, 1.0))
    assert [] == told(output_monitor.feed(b"b", 1.5, 1.5))


def test_two_silent_seconds_mean_idle_and_come_with_the_last_line() -> None:
    output_monitor = OutputMonitor(0.0)
    output_monitor.feed(b"a", 1.0, 1.0)

    assert 3.0 == output_monitor.next_at()
    assert [] == silence(output_monitor, 2.9)
    assert [("output", "quiet", "$ done")] == silence(output_monitor, 3.0, "$ done")
    assert math.inf == output_monitor.next_at()


def test_an_agent_that_prints_on_shows_its_last_line_every_five_seconds_if_that_changed() -> None:
    output_monitor = OutputMonitor(0.0)
    for tenth in range(100):
        output_monitor.feed(b".", tenth / 10, tenth / 10)

    assert [("output", "printing", "line 1")] == silence(output_monitor, 9.9, "line 1")
    output_monitor.feed(b".", 14.0, 14.0)
    assert [] == silence(output_monitor, 15.0, "line 1")


def test_an_echo_of_typed_text_is_no_output_of_the_agent() -> None:
    output_monitor = OutputMonitor(0.0)
    output_monitor.handle_line("", 0.0, 0.0)
    output_monitor.record_typing(10.0)

    assert [] == told(output_monitor.feed(b"l", 10.1, 10.1))
    assert [("output", "printing", "")] == told(output_monitor.feed(b"much more", 10.4, 10.4))


def test_the_last_line_is_also_read_after_an_echo() -> None:
    """A command may be answered within the time in which an echo is."""
    output_monitor = OutputMonitor(0.0)
    output_monitor.handle_line("$", 0.0, 0.0)
    output_monitor.record_typing(10.0)
    output_monitor.feed(b"ls\r\na b c\r\n$ ", 10.1, 10.1)

    assert [("output", "quiet", "a b c")] == silence(output_monitor, 12.2, "a b c")


def test_while_the_program_reports_its_state_its_output_is_not_a_signal() -> None:
    output_monitor = OutputMonitor(0.0)

    assert [("program", "working", "Tidying")] == told(output_monitor.feed(report("working", "", "Tidying"), 1.0, 1.0))
    assert [] == told(output_monitor.feed(b"text", 2.0, 2.0))
    assert math.inf == output_monitor.next_at()


def test_after_the_program_clears_its_state_its_output_is_a_signal_again() -> None:
    output_monitor = OutputMonitor(0.0)
    output_monitor.feed(report("idle"), 1.0, 1.0)

    assert [("program", "clear", ""), ("output", "printing", "")] == told(
        output_monitor.feed(report("clear"), 2.0, 2.0)
    )
    assert not output_monitor.reports_state


def test_the_reported_reason_of_waiting_is_kept() -> None:
    output_monitor = OutputMonitor(0.0)
    (signal,) = output_monitor.feed(report("blocked", "permission", "rm -r build"), 1.0, 1.0)

    assert (RequestKind.PERMISSION, "rm -r build") == (signal.asking, signal.text)
    assert output_monitor.is_asking


@pytest.mark.parametrize("kind", ["", "nonsense", "PERMISSION"])
def test_the_reason_of_waiting_is_unknown_unless_it_is_reported(kind: str) -> None:
    (signal,) = OutputMonitor(0.0).feed(report("blocked", kind), 1.0, 1.0)

    assert signal.asking is None


def test_a_message_is_cleaned_and_cut() -> None:
    output_monitor = OutputMonitor(0.0)
    (signal,) = output_monitor.feed(report("working", "", "\x1b[31ma\nb\x07\u202e" + "c" * 500), 1.0, 1.0)

    assert signal.text.startswith("a b\ufffdcc")
    assert 200 == len(signal.text)


def test_a_repeated_report_is_ignored() -> None:
    output_monitor = OutputMonitor(0.0)

    assert [("program", "idle", "")] == told(output_monitor.feed(report("idle") * 3, 1.0, 1.0))
    assert [] == told(output_monitor.feed(report("idle"), 9.0, 9.0))


def test_the_newest_of_several_reports_is_sent() -> None:
    """A program that changes its mind a thousand times a second does not fill the log."""
    output_monitor = OutputMonitor(0.0)
    first = output_monitor.feed(b"".join(report("working", "", str(number)) for number in range(1000)), 1.0, 1.0)
    at = output_monitor.next_at()

    assert [("program", "working", "0")] == told(first)
    assert 2.0 == at
    assert [("program", "working", "999")] == silence(output_monitor, at)


def test_a_new_state_is_sent_sooner_than_a_new_text() -> None:
    output_monitor = OutputMonitor(0.0)
    output_monitor.feed(report("working") + report("idle"), 1.0, 1.0)

    assert 1.1 == pytest.approx(output_monitor.next_at())
    assert [("program", "idle", "")] == silence(output_monitor, 1.2)


def test_a_report_may_come_in_pieces() -> None:
    output_monitor = OutputMonitor(0.0)
    output_monitor.feed(report("idle")[:9], 1.0, 1.0)

    assert ("program", "idle", "") in told(output_monitor.feed(report("idle")[9:], 1.1, 1.1))


def test_skipped_output_voids_the_reported_state() -> None:
    """It may have said something else meanwhile: unsure is better than wrong."""
    output_monitor = OutputMonitor(0.0)
    output_monitor.feed(report("idle"), 1.0, 1.0)

    assert [("program", "clear", "")] == told(output_monitor.handle_missed_output(2.0, 2.0))
    assert [] == told(output_monitor.handle_missed_output(3.0, 3.0))


def test_a_flood_counts_as_output_while_it_lasts() -> None:
    output_monitor = OutputMonitor(0.0)

    assert [("output", "printing", "")] == told(output_monitor.handle_flood(True, 1.0, 1.0))
    assert math.inf == output_monitor.next_at()
    output_monitor.handle_flood(False, 31.0, 31.0)
    assert [("output", "quiet", "y")] == silence(output_monitor, 33.0, "y")


def test_a_state_that_is_in_the_log_is_not_sent_again() -> None:
    known = (Signal(source="program", value="idle", at=1.0), Signal(source="output", value="printing", at=1.0))

    assert OutputMonitor(5.0, known).reports_state
    assert [] == told(OutputMonitor(5.0, known).feed(report("idle"), 6.0, 6.0))
    assert [] == told(OutputMonitor(5.0, known[1:]).feed(b"x", 6.0, 6.0))
