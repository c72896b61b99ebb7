"""The marker by which a pane says that it is ready, where it can only print."""

import pytest

from kasmon.tmux.ready import marker_of, saw_marker


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        ([b"$ ", b"  KASMON_READY_0a1b  ", b""], True),
        ([b"$ printf KASMON_READY_0a1b"], False),
        ([b"KASMON_READY_0a1b2"], False),
        ([], False),
    ],
    ids=["on a line of its own", "in what is typed", "another's", "an empty screen"],
)
def test_a_marker_is_seen_on_a_line_of_its_own(rows: list[bytes], seen: bool) -> None:
    assert seen is saw_marker(rows, "0a1b")


@pytest.mark.parametrize("nonce", ["", "; rm -rf /", "0A"])
def test_only_hex_makes_a_marker(nonce: str) -> None:
    with pytest.raises(ValueError, match="no hex nonce"):
        marker_of(nonce)
