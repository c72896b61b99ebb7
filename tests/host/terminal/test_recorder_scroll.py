"""Which lines left a screen since somebody looked: found by the last that were seen, whatever became of the rest."""

import pytest

from kasmon.host.terminal.recorder import RECALLED, ScrolledOffLines, behind, keyless

NUMBERS = [f"line {n}" for n in range(20)]
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
KEY = ["-----BEGIN RSA PRIVATE KEY-----", *[BODY] * 30, "c2hvcnQ=", "-----END RSA PRIVATE KEY-----"]


def test_what_is_new_begins_behind_what_was_seen_at_the_expected_of_several_places() -> None:
    assert 10 == behind(NUMBERS, NUMBERS[4:10], None)
    assert 20 == behind(NUMBERS, NUMBERS[14:20], None)

    assert behind(NUMBERS, ["line 9", "line 99"], None) is None
    assert behind(NUMBERS, [], None) is None
    assert behind([], ["line 1"], None) is None

    assert 40 == behind(["y"] * 40, ["y"] * 6, None)
    assert 30 == behind(["y"] * 40, ["y"] * 6, 30)
    assert 6 == behind(["y"] * 40, ["y"] * 6, -5)


@pytest.mark.parametrize(
    "lines",
    [KEY, KEY[:20], KEY[12:], ["before", *KEY[5:], "after"]],
    ids=["whole", "its end not there", "its beginning not there", "in the midst of others"],
)
def test_no_body_of_a_private_key_is_recorded_however_much_is_shown(lines: list[str]) -> None:
    kept = keyless(lines)

    assert len(lines) == len(kept)
    assert BODY not in "".join(kept)
    assert "c2hvcnQ=" not in kept
    assert [line for line in lines if line in ("before", "after") or "-----" in line] == [
        line for line in kept if "⟨hidden" not in line
    ]


def test_text_about_keys_is_recorded() -> None:
    lines = ["echo", "see -----END RSA PRIVATE KEY-----", KEY[0], "ok", "done", "words " * 20, "ok", "x", "y", "a" * 50]

    assert lines == keyless(lines)


def test_what_leaves_an_alternate_screen_is_told_once_and_a_line_that_counts_on_has_not_left() -> None:
    vanished = ScrolledOffLines()
    assert [] == vanished.since(["title", "first answer"])
    assert ["first answer"] == vanished.since(["title", "second answer"])
    assert ["second answer"] == vanished.since(["title", "first answer"])
    assert [] == vanished.since(["title"])

    vanished = ScrolledOffLines()
    vanished.since(["⠋ thinking 1s", "────", "42%"])
    assert [] == vanished.since(["⠙ thinking 2s"])


def test_the_memory_of_an_alternate_screen_is_bounded() -> None:
    vanished = ScrolledOffLines()
    for number in range(2 * RECALLED):
        vanished.since([f"word {chr(0x4E00 + number)}"])
    vanished.since(["word 一"])

    assert ["word 一"] == vanished.since([])
