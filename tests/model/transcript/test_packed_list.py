"""A long transcript is compressed, and reads as if it were not."""

import random
from typing import Any

import pytest

from kasmon.model import events
from kasmon.model.transcript import layout
from kasmon.model.transcript.blocks import Block
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.packed_list import CHUNK, RECENT, PackedList

COUNT = (RECENT + 12) * CHUNK + 7


def block(number: int, text: str = "line") -> Block:
    return Block(events.MessageWritten(at=float(number), text=f"{text} {number}"), depth=number % 3)


def test_items_are_read_replaced_and_counted_wherever_they_are() -> None:
    rng = random.Random(1)
    packed, plain = PackedList(Block), [block(number) for number in range(COUNT)]
    for item in plain:
        packed.append(item)
    for at in (*rng.sample(range(COUNT), 200), 0, COUNT - 1, -1, -COUNT):
        plain[at] = packed[at] = block(at, "replaced")

    assert COUNT == len(packed)
    assert plain == list(packed)
    assert [plain[at] for at in (-1, -COUNT, 3)] == [packed[at] for at in (-1, -COUNT, 3)]
    assert plain[100:900:7] == packed[100:900:7]
    assert plain[::-1] == list(reversed(packed))
    for at in (COUNT, -COUNT - 1):
        with pytest.raises(IndexError):
            packed[at]


def test_a_text_that_is_not_unicode_is_unchanged() -> None:
    packed = PackedList(Block)
    odd = Block(events.UnknownEvent(at=1.0, raw="\udcff"))
    packed.append(odd)
    for number in range(COUNT):
        packed.append(block(number))

    assert odd == packed[0]
    packed[0] = block(7)
    assert block(7) == packed[0]


def test_a_long_transcript_has_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> list[Any]:
        transcript = Transcript()
        for number in range(COUNT // 4):
            call = f"c{number % 40 if number % 3 else number}"
            transcript.add(events.TurnStarted(at=number, prompt=f"do {number}", by="user"))
            transcript.add(
                events.ToolStarted(at=number, call=call, tool="Bash", within="c0" if number % 5 == 4 else "")
            )
            transcript.add(events.ToolFinished(at=number, call=call, output=f"ok {number}\n"))
            transcript.add(events.TurnEnded(at=number))
        transcript.add(events.ToolFinished(at=COUNT, call="c3", output="late\n"))
        return [*transcript.lines(60), *transcript.tail(60, 50)]

    compressed = rows()
    monkeypatch.setattr(layout, "PackedList", lambda kind: [])
    assert rows() == compressed
