"""A pattern of a screen's file is fast on every row, or is refused with the reason."""

import pytest

from kasmon.detection.safe_regex import LONGEST, PatternError, compiled


@pytest.mark.parametrize(
    "source",
    [
        "",
        "Do you want to proceed",
        "a+b",
        r"^(?:❯ |  )(?P<key>[1-9])\. (?P<label>.+)$",
        "^.*esc to .*interrupt",
        r"^ ++\S++ ++(?P<text>.*)$",
        "^a{3}b{2,4}$",
        r"[\]+*?]{1,3}\+\*",
        "(?:yes|no)?",
    ],
)
def test_safe_patterns_are_accepted(source: str) -> None:
    assert source == compiled(source).pattern


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("(a+)+$", "repeats a group"),
        ("(a|a)*b", "repeats a group"),
        ("(?:(?:a?){8}){8}", "repeats a group"),
        ("^.*.*.*x", "3 of its parts"),
        (".*.*x", "3 of its parts"),
        ("^a|b+c+", "3 of its parts"),
        ("^a{0,99}b{0,99}c{1,}", "3 of its parts"),
        ("a?a?a?a?a?a?a?a?a?aaaaaaaaa", "are optional"),
        (r"(a)\1", "refers back"),
        ("(?P<x>a)(?P=x)", "is not allowed"),
        ("(?=a)", "is not allowed"),
        ("(?<!a)b", "is not allowed"),
        ("(?i)a", "is not allowed"),
        ("(?>a+)b", "is not allowed"),
        ("[a", "it is not a valid pattern"),
        ("a{99999999999999}", "it is not a valid pattern"),
        ("a" * (LONGEST + 1), "longer than"),
    ],
)
def test_unsafe_patterns_are_refused(source: str, why: str) -> None:
    with pytest.raises(PatternError, match=why):
        compiled(source)
