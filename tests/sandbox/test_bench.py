"""What `kasmon bench` measures of sandboxes: each scene runs, ends by itself, and leaves no process of ours.

The counts are small and the figures are not judged: how fast this machine is, is no property of kasmon.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from kasmon.bench import files, run
from kasmon.bench.sandboxes import jails, runs, snapshots
from kasmon.bench.support.figure import Figure
from kasmon.errors import SandboxError
from kasmon.paths import user_paths
from kasmon.sandbox.microvm.machine import MicroVm
from tests.support.sandbox.machine_image import IMAGE, need_machine, warmed

SCENES = ("jail", "jails", "run", "standby", "run-host", "checkpoint")
KEPT = ("microvm-boot", "microvm-clone", "microvm-pause", "microvm-resume", "microvm-clones")
JAILED = tuple(name for name in SCENES if name != "checkpoint")


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    before = psutil.Process().children(recursive=True)  # such as the fork server of the tests before
    yield
    assert [] == list(user_paths().demos.glob("*.json"))
    assert [] == [
        process
        for process in psutil.Process().children(recursive=True)
        if process.is_running() and process not in before
    ]


def test_the_measurements_of_issue_6_have_names() -> None:
    assert run.scenes(1, 1.0).keys() >= set(SCENES)


def test_without_a_jail_the_measurement_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert 0 == run.main(JAILED, rounds=1, seconds=0.1, json=True)

    left_out = json.loads(capsys.readouterr().out)["left_out"]
    assert set(JAILED) == left_out.keys()
    assert all("bubblewrap is not installed" in why for why in left_out.values())


def test_memories_can_be_measured_by_name() -> None:
    assert run.scenes(1, 1.0).keys() >= set(KEPT)


def test_an_unavailable_tier_is_not_measured_and_its_row_gives_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert 0 == run.main(KEPT, rounds=1)

    rows = capsys.readouterr().out.splitlines()[-len(KEPT) :]
    assert list(KEPT) == [row.partition(": not measured: ")[0] for row in rows]
    assert all("QEMU is not installed" in row for row in rows)


def test_a_checkpoint_of_a_workspace_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SETTLED_S", 0.0)
    [figure] = files.measure_checkpoints(2, files=7, size_bytes=7000)

    assert (50, 2) == (figure.target, figure.samples)
    assert figure.value > 0


@pytest.mark.sandboxes
@pytest.mark.parametrize(
    ("measure", "targets"),
    [
        (lambda: [jails.measure_start(1)], [150]),
        (lambda: jails.measure_many(0.1, 2), [40, 15, 1]),
        (lambda: runs.measure_runs(1), [1, 10, 1, 10, 2, 10]),
        (lambda: [runs.measure_standby(1)], [10]),
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
    steady, woken = runs.measure_host_runs(1, 1)

    assert (None, 100) == (steady.target, woken.target)
    assert 0 < steady.value


@pytest.mark.sandboxes
@pytest.mark.timeout(240)  # the first one starts the machine that all are copies of
def test_microvms_are_measured_and_failed_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    need_machine()
    warmed(MicroVm(user_paths(), image=IMAGE))
    monkeypatch.setattr(snapshots, "MicroVm", partial(MicroVm, image=IMAGE))

    pause, wake = snapshots.measure_pause(1), snapshots.measure_resume(1)
    took, holds, failed = snapshots.measure_many(2)

    assert (1000, 1000, None, None, 0) == (pause.target, wake.target, took.target, holds.target, failed.target)
    assert (2, True, 0) == (holds.samples, failed.met, failed.value)
    assert 0 < snapshots.measure_copy(1).value < snapshots.measure_boot(1).value
    assert all("emulated (TCG), without KVM" in figure.note for figure in (pause, wake, took))


@pytest.mark.sandboxes
def test_a_microvm_that_would_have_to_be_started_is_no_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need_machine()
    (tmp_path / "image").symlink_to(IMAGE)
    monkeypatch.setattr(snapshots, "MicroVm", partial(MicroVm, image=tmp_path / "image"))

    with pytest.raises(SandboxError, match="no warm microVM to be copied"):
        snapshots.measure_copy(1)
