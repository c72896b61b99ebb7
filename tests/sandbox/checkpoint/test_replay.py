"""What a sandbox ran, from its log: for whoever asks to run it again."""

import msgspec
import pytest

from kasmon.errors import NotFoundError
from kasmon.host.journal.session_log import fitted
from kasmon.model.events import Checkpointed, Event, NoticeRaised, ToolFinished, ToolStarted
from kasmon.sandbox.checkpoint.replay import ReplayedRun, find_runs, replay


def ran(call: str, interpreter: str, code: str, exit_code: int | None = 0) -> list[Event]:
    text = msgspec.json.encode({"code": code}).decode()
    return [
        ToolStarted(at=1.0, call=call, tool=interpreter, input=text),
        ToolFinished(at=2.0, call=call, exit_code=exit_code),
    ]


def kept(name: str, turn: int, commit: str) -> Event:
    return Checkpointed(at=3.0, checkpoint=name, turn=turn, commit=commit)


def nothing(blob: str) -> str:
    raise FileNotFoundError(blob)


LOG: list[Event] = [
    *ran("1", "python", "x = 1"),
    NoticeRaised(at=1.0, text="a notice"),
    *ran("2", "bash", "false", 1),
    kept("c1", 1, "aaa"),
    *ran("3", "node", "let y = 2"),
    kept("c2", 2, "bbb"),
    ToolStarted(at=1.0, call="4", tool="python", input='{"code": "while True: pass"}'),
]


def test_each_run_has_its_end_and_the_files_stored_after_it() -> None:
    assert (
        ReplayedRun(at=1.0, interpreter="python", code="x = 1", exit_code=0, turn=1, commit="aaa"),
        ReplayedRun(at=1.0, interpreter="bash", code="false", exit_code=1, turn=1, commit="aaa"),
        ReplayedRun(at=1.0, interpreter="node", code="let y = 2", exit_code=0, turn=2, commit="bbb"),
        ReplayedRun(at=1.0, interpreter="python", code="while True: pass", exit_code=None),
    ) == find_runs(LOG, nothing)


def test_what_leads_to_a_checkpoint_ends_there_and_has_none_of_an_agents_own_tools() -> None:
    assert (("python", "x = 1"), ("bash", "false")) == replay(LOG, nothing, "c1")
    assert 4 == len(replay(LOG, nothing))
    with pytest.raises(NotFoundError):
        replay(LOG, nothing, "c9")

    mine = ToolStarted(at=1.0, call="1", tool="bash", input='{"command": "ls"}')
    assert () == find_runs([mine, ToolStarted(at=1.0, call="2", tool="Read", input='{"code": "x"}')], nothing)


def test_a_code_longer_than_an_event_is_whole() -> None:
    code = "x = 1\n" * 100_000
    whole = msgspec.json.encode({"code": code}).decode()
    cut = fitted(ran("1", "python", code)[0])

    assert isinstance(cut, ToolStarted)
    assert len(cut.input) < 20_000
    assert [code] == [each.code for each in find_runs([cut], lambda _: whole)]
    assert () == find_runs([cut], nothing)
