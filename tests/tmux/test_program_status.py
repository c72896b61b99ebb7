"""What a program says of itself is heard however its output is cut, and nothing else is taken for it."""

import base64
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kasmon.tmux.output_scanner import ProgramStatus, StatusScanner

WORKING = b"\x1b]7501;state=working\x07"
MESSAGE = base64.b64encode("rm -r build ✓".encode())
BLOCKED = b"\x1b]7501;state=blocked:kind=permission:msg=" + MESSAGE + b"\x1b\\"
BOTH = [ProgramStatus(state="working"), ProgramStatus(state="blocked", kind="permission", message="rm -r build ✓")]


@given(st.lists(st.integers(0, len(WORKING + BLOCKED) + 20), max_size=6))
def test_reports_are_read_at_any_cut_of_the_output(cuts: list[int]) -> None:
    stream = b"some \x1b[1mtext\x1b[0m " + WORKING + "naïve".encode() + BLOCKED + b" more"
    paths = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    scanner = StatusScanner()

    heard = [status for a, b in pairwise(paths) for status in scanner.feed(stream[a:b])]

    assert BOTH == heard


@given(st.binary(max_size=300))
def test_no_output_breaks_the_scanner(noise: bytes) -> None:
    scanner = StatusScanner()
    scanner.feed(noise)

    assert [ProgramStatus(state="working")] == scanner.feed(b"\x07\x1b\\" + WORKING)[-1:]


def test_an_unknown_state_is_no_report() -> None:
    assert [] == StatusScanner().feed(b"\x1b]7501;state=asleep\x07\x1b]7501;?\x07")


def test_a_report_without_an_end_is_dropped_when_it_grows_too_long() -> None:
    scanner = StatusScanner()
    scanner.feed(b"\x1b]7501;state=working:msg=" + b"A" * 5000)

    assert [ProgramStatus(state="working")] == scanner.feed(WORKING)
