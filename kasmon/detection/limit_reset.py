"""Parses the time at which a usage limit ends: `3pm`, `Nov 24, 6pm (UTC)`, `in 2 hours 5 minutes`. Pure.

A time without a day means its next occurrence after *now*, when the text was first seen. Later readings of the same
screen must keep the time of the first one (`reader.lasting`).
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
LONGEST: Final = 200
FURTHEST_S: Final = 400 * 86400.0

_SPAN: Final = re.compile(
    r"(\d{1,6})\s?(seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)(?![A-Za-z])", re.IGNORECASE
)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_ISO: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})[T ](\d{2}):(\d{2})(?::(\d{2}))?(?:\.\d{1,9})?(Z|[+-]\d{2}:?\d{2})?")
_CLOCK: Final = re.compile(r"(?<![\d:])(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?\s?(a\.?m|p\.?m)?(?![\d:])", re.IGNORECASE)
_DAY: Final = re.compile(
    rf"\b({'|'.join(MONTHS)})[a-z]{{0,6}}\.?\s(\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s(\d{{4}}))?", re.IGNORECASE
)
_ZONE: Final = re.compile(r"\(([A-Za-z_]{1,20}(?:[/+-][A-Za-z_0-9+-]{1,30}){0,2})\)|\b(UTC|GMT)\b")


def parse_reset_time(text: str, now: float, zone: tzinfo | None = None) -> float | None:
    """Return when the limit in *text* ends, in seconds since the epoch; None if *text* does not contain it.

    Args:
        now: when *text* was first seen, in seconds since the epoch.
        zone: the time zone of times that name none; None is this machine's.
    """
    text = text[:LONGEST]
    if match := _ISO.search(text):
        at = _parse_iso(match, zone)
    elif (match := _ZONE.search(text)) and (named := _find_zone(match[1] or match[2])) is None:
        return None
    else:
        at = _parse_words(text, now, named if match else zone)
    return at if at is not None and now - 86400 <= at <= now + FURTHEST_S else None


def _parse_words(text: str, now: float, zone: tzinfo | None) -> float | None:
    day = _DAY.search(text)
    rest = text if day is None else text[: day.start()] + text[day.end() :]
    clock = next((match for match in _CLOCK.finditer(rest) if match[2] or match[4]), None)
    if clock is None and day is None:
        spans = _SPAN.findall(text)
        return now + sum(int(count) * _SECONDS[unit[0].lower()] for count, unit in spans) if spans else None
    local_time = datetime.fromtimestamp(now, UTC).astimezone(zone)
    try:
        moment = local_time.replace(hour=0, minute=0, second=0, microsecond=0)
        if clock is not None:
            moment = moment.replace(hour=_parse_hour(clock), minute=int(clock[2] or 0), second=int(clock[3] or 0))
        if day is None:
            return _to_timestamp(moment if moment > local_time else moment + timedelta(days=1), zone)
        month = MONTHS.index(day[1].lower()) + 1
        moment = moment.replace(year=int(day[3] or local_time.year), month=month, day=int(day[2]))
        if day[3] is None and moment < local_time - timedelta(days=2):
            moment = moment.replace(year=local_time.year + 1)
        return _to_timestamp(moment, zone)
    except ValueError:
        return None


def _to_timestamp(wall: datetime, zone: tzinfo | None) -> float:
    """Return the timestamp of the wall-clock time *wall* in *zone*, with that date's UTC offset."""
    return wall.replace(tzinfo=zone).timestamp()


def _parse_hour(clock: re.Match[str]) -> int:
    hour = int(clock[1])
    if clock[4] is None:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(hour)
    return hour % 12 + (12 if clock[4][0] in "pP" else 0)


def _parse_iso(match: re.Match[str], zone: tzinfo | None) -> float | None:
    text = f"{match[1]}-{match[2]}-{match[3]}T{match[4]}:{match[5]}:{match[6] or '00'}{match[7] or ''}"
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()


def _find_zone(name: str) -> tzinfo | None:
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # no such zone, or no time zone database on this machine
        return None
