"""When a limit ends, from an agent's words."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from kasmon.detection.limit_reset import parse_reset_time
from kasmon.detection.reader import lasting, read
from kasmon.detection.rules.catalog import shipped
from kasmon.detection.terminal_screen import captured
from kasmon.model.permission import RequestKind

NOW = datetime(2026, 11, 22, 14, 30, tzinfo=UTC)


def at(text: str, zone: timezone = UTC) -> datetime | None:
    found = parse_reset_time(text, NOW.timestamp(), zone)
    return None if found is None else datetime.fromtimestamp(found, UTC)


def utc(day: int, hour: int, minute: int = 0, month: int = 11, year: int = 2026) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("3pm", utc(22, 15)),
        ("resets 3pm (UTC)", utc(22, 15)),
        ("8am (UTC)", utc(23, 8)),
        ("12am", utc(23, 0)),
        ("12:05 p.m.", utc(23, 12, 5)),
        ("8:05am (UTC)", utc(23, 8, 5)),
        ("17:45", utc(22, 17, 45)),
        ("8:22 AM.", utc(23, 8, 22)),
        ("Nov 24, 6pm (UTC)", utc(24, 18)),
        ("Nov 24 at 6:05pm", utc(24, 18, 5)),
        ("Nov 24th, 2026 6:11 PM.", utc(24, 18, 11)),
        ("Jan 3, 9am", utc(3, 9, month=1, year=2027)),
        ("December 1", utc(1, 0, month=12)),
        ("in 2 hours 5 minutes", utc(22, 16, 35)),
        ("2h 5m", utc(22, 16, 35)),
        ("in 45s", NOW + timedelta(seconds=45)),
        ("1 day 3 hrs", utc(23, 17, 30)),
        ("2026-11-22T18:00:00Z", utc(22, 18)),
        ("2026-11-22 18:00+02:00", utc(22, 16)),
        ("3pm (America/New_York)", utc(22, 20)),
        ("7:25:40", None),
        ("", None),
        ("soon", None),
        ("25:00", None),
        ("13pm", None),
        ("Feb 30, 3pm", None),
        ("3pm (Mars/Olympus)", None),
        ("in 99999 days", None),
        ("2026-13-45T18:00:00Z", None),
        ("9" * 500, None),
    ],
)
def test_the_time_in_an_agents_message_is_parsed(text: str, when: datetime | None) -> None:
    found = at(text)
    if text == "7:25:40":  # the next one
        when = utc(23, 7, 25) + timedelta(seconds=40)

    assert when == found


def test_a_time_without_a_zone_is_this_machines_and_the_clocks_may_change_until_then() -> None:
    assert utc(22, 19) == at("12pm", timezone(timedelta(hours=-7)))

    before = datetime(2026, 10, 31, 12, tzinfo=ZoneInfo("America/New_York")).timestamp()
    found = parse_reset_time("Nov 2, 9am (America/New_York)", before, UTC)
    assert found is not None
    assert datetime(2026, 11, 2, 14, tzinfo=UTC).timestamp() == found


def limited(hour: int, words: str = "8am (UTC)") -> tuple[float, str]:
    rule = "─" * 40
    text = f"  ⎿ \u00a0You've hit your limit · resets {words}\n\n{rule}\n❯\u00a0\n{rule}\n  ⏵⏵ auto mode on\n"
    return utc(22, hour).timestamp(), text


def test_a_limit_ends_at_the_time_that_was_first_reported() -> None:
    """`8am` read again at nine is no other day."""
    chosen = shipped().rules("claude", "2.1.332")
    assert chosen is not None
    early, text = limited(6)
    late, _ = limited(9)
    first = read(captured(text), chosen.rules, early, zone=UTC)

    assert ("limited", utc(22, 8).timestamp()) == (first.state, first.until)
    assert "limited" == lasting(first, read(captured(text), chosen.rules, early + 60, zone=UTC), early + 60).state
    over = lasting(first, read(captured(text), chosen.rules, late, zone=UTC), late)
    assert ("idle", "the limit is over") == (over.state, over.notice)


def test_another_limit_has_a_time_of_its_own() -> None:
    chosen = shipped().rules("claude", "2.1.332")
    assert chosen is not None
    early, text = limited(6)
    late, other = limited(9, "11am (UTC)")
    first = read(captured(text), chosen.rules, early, zone=UTC)

    assert "limited" == lasting(first, read(captured(other), chosen.rules, late, zone=UTC), late).state


def test_a_limit_whose_menu_is_still_shown_asks_when_it_is_over() -> None:
    from tests.support.detection.expected import reading_of
    from tests.support.detection.golden import FOLDER, load

    reading = reading_of(load(FOLDER / "claude" / "2.1.332" / "limit-week"))
    assert reading.until is not None

    over = lasting(reading, reading, reading.until + 1)

    assert ("asking", RequestKind.QUESTION) == (over.state, over.asking)
