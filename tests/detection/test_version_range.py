"""Which file is for which version of an agent."""

import pytest

from kasmon.detection.version_range import range_of, version_of


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.1.330", (2, 1, 330)),
        ("codex-cli 0.169.0", (0, 169, 0)),
        ("2.1.330 (Claude Code)", (2, 1, 330)),
        ("v1", (1,)),
        ("", None),
        ("nightly", None),
    ],
)
def test_a_version_is_found_in_the_output_of_an_agent(text: str, version: tuple[int, ...] | None) -> None:
    assert version == version_of(text)


@pytest.mark.parametrize(
    ("text", "version", "is_in"),
    [
        ("", (9,), True),
        (">=2.1.295", (2, 1, 295), True),
        (">=2.1.295", (2, 1, 294), False),
        (">=2.1.295", (2, 2), True),
        ("<2.1.295", (2, 1), True),
        (">=2.1, <3", (3, 0, 0), False),
        ("==2.1", (2, 1, 0), True),
        (">2", (2, 0, 1), True),
        ("<=2", (2, 0, 1), False),
    ],
)
def test_a_range_holds_what_lies_within_its_bounds(text: str, version: tuple[int, ...], is_in: bool) -> None:
    assert is_in == range_of(text).holds(version)


@pytest.mark.parametrize("text", ["2.1", "~=2", ">=x", ">=2,", ">=2 <3"])
def test_an_invalid_range_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version bound"):
        range_of(text)
