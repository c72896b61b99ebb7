"""What `kasmon bench` measures of sandboxes: each scene runs, ends by itself, and leaves no process of ours.

The counts are small and the figures are not judged: how fast this machine is, is no property of kasmon.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kasmon.bench import jails, keeping, run, runs
from kasmon.bench.figure import Figure
from kasmon.paths import places

SCENES = ("jail", "jails", "run", "standby", "run-host", "checkpoint")
JAILED = tuple(name for name in SCENES if name != "checkpoint")


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    yield
    assert [] == list(places().demos.glob("*.json"))
    assert [] == [process for process in psutil.Process().children(recursive=True) if process.is_running()]


def test_what_issue_6_asks_for_can_be_measured_by_name() -> None:
    assert run.scenes(1, 1.0).keys() >= set(SCENES)


def test_where_no_jail_can_be_made_it_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert 0 == run.main(JAILED, rounds=1, seconds=0.1, json=True)

    left_out = json.loads(capsys.readouterr().out)["left_out"]
    assert set(JAILED) == left_out.keys()
    assert all("bubblewrap is not installed" in why for why in left_out.values())


def test_a_checkpoint_of_a_workspace_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "SETTLED_S", 0.0)
    [figure] = keeping.keeping(2, files=7, size_bytes=7000)

    assert (50, 2) == (figure.target, figure.samples)
    assert figure.value > 0


@pytest.mark.sandboxes
@pytest.mark.parametrize(
    ("measure", "targets"),
    [
        (lambda: [jails.ready(1)], [150]),
        (lambda: jails.many(0.1, 2), [40, 15, 1]),
        (lambda: runs.requests(1), [1, 10, 1, 10, 2, 10]),
        (lambda: [runs.standby(1)], [10]),
    ],
    ids=["jail", "jails", "run", "standby"],
)
def test_jails_are_measured(
    can_jail: None, measure: Callable[[], list[Figure]], targets: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jails, "REST_S", 0.0)

    figures = measure()

    assert targets == [figure.target for figure in figures]
    assert all(figure.value > 0 for figure in figures if figure.unit != "% of a core")


@pytest.mark.sandboxes
def test_a_session_is_measured_through_its_host(can_jail: None) -> None:
    steady, woken = runs.through_host(1, 1)

    assert (None, 100) == (steady.target, woken.target)
    assert 0 < steady.value
