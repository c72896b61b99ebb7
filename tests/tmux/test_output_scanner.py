"""Window titles are heard in what a pane prints, however that is cut."""

import pytest

from kasmon.tmux.output_scanner import TitleScanner

TITLES = [b"\x1b]0;a title\x07", b"\x1b]2;a title\x1b\\", b"\x1bka title\x1b\\"]


@pytest.mark.parametrize("printed", TITLES)
def test_a_title_is_read(printed: bytes) -> None:
    assert b"a title" == TitleScanner().feed(b"before" + printed + b"after")


@pytest.mark.parametrize("printed", TITLES)
def test_a_title_in_pieces_is_read_when_it_is_whole(printed: bytes) -> None:
    for cut in range(1, len(printed)):
        scanner = TitleScanner()
        assert scanner.feed(b"x" + printed[:cut]) is None, cut
        assert b"a title" == scanner.feed(printed[cut:] + b"y"), cut


def test_the_last_of_several_counts() -> None:
    assert b"two" == TitleScanner().feed(b"\x1b]0;one\x07\x1b[1m\x1b]0;two\x07")


@pytest.mark.parametrize("printed", [b"\x1b]52;c;eHl6\x07", b"\x1b]8;;http://x\x07", b"\x1b[0;1m", b"]0;no\x07"])
def test_other_sequences_are_no_titles(printed: bytes) -> None:
    assert TitleScanner().feed(printed) is None


def test_a_title_without_an_end_is_ignored_and_takes_no_memory() -> None:
    scanner = TitleScanner()
    for _ in range(100):
        assert scanner.feed(b"\x1b]0;" + b"x" * 5000) is None
    assert len(scanner._scanner.rest) < 2000
    assert b"ok" == scanner.feed(b"\x1b]0;ok\x07")
