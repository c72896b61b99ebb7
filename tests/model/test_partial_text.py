"""Which streamed text stays in a transcript: what no whole block came for, once, and nothing else."""

import pytest

from kasmon.model.events import (
    Event,
    MessageWritten,
    PartialTextWritten,
    SessionEnded,
    SessionStarted,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnEnded,
)
from kasmon.model.partial_text import PartialText
from kasmon.model.transcript.export import export_events

SAID = (PartialTextWritten(at=1.0, text="so "), PartialTextWritten(at=2.0, text="far"))
THOUGHT = (PartialTextWritten(at=1.0, text="hm", thinking=True),)
RUN = ToolStarted(at=0.0, call="1", tool="python", title="", input="print(1)")
ENDS = (TurnEnded(at=3.0, reason="interrupted"), TurnEnded(at=3.0), SessionEnded(at=3.0), SessionStarted(at=3.0, pid=1))


def kept(*events: Event) -> list[tuple[str, bool]]:
    """The text that stays of *events*, and whether it is a thought."""
    parts = PartialText()
    return [(part.text, part.thinking) for event in events for part in parts.add(event)]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_an_unfinished_partial_text_is_kept_once_when_nothing_can_complete_it(end: Event) -> None:
    assert [("hm", True), ("so far", False)] == kept(*THOUGHT, *SAID, end, end)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_a_complete_block_replaces_its_parts(end: Event) -> None:
    assert [] == kept(
        *THOUGHT, ThoughtWritten(at=2.0, text="hm, yes"), *SAID, MessageWritten(at=3.0, text="so far"), end
    )
    assert [("so far", False)] == kept(*THOUGHT, ThoughtWritten(at=2.0, text="hm, yes"), *SAID, end)
    assert [] == kept(*THOUGHT, MessageWritten(at=3.0, text="so far"), end)
    assert [("so far", False)] == kept(*SAID, ThoughtWritten(at=2.0, text="hm, yes"), end)


def test_output_of_code_is_in_the_end_of_its_run_also_after_a_change_of_host() -> None:
    over = ToolFinished(at=4.0, call="1", output="so far", exit_code=0)

    assert [] == kept(RUN, *SAID, over, *ENDS)
    assert [] == kept(RUN, *SAID, SessionStarted(at=3.0, pid=1), over, *ENDS)
    assert [("so far", False)] == kept(RUN, *SAID, RUN)
    assert [("so far", False)] == kept(RUN, over, *SAID, ENDS[0])


def test_an_export_has_unfinished_texts_in_the_middle_and_at_its_end() -> None:
    exported = "".join(export_events([*SAID, ENDS[0], *SAID], in_terminal=False))

    assert 2 == exported.count("(unfinished)")
    assert 2 == exported.count("so far")
