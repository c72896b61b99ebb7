"""Whether KVM is taken: by the time of a start on this very machine, written down, and never because it is there."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import SandboxError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import user_paths
from kasmon.sandbox.microvm import qemu_program
from kasmon.sandbox.microvm.machine import MicroVm
from kasmon.sandbox.microvm.qemu_program import ACCELERATED, EMULATED
from tests.support.sandbox.machine_image import IMAGE, ended, need_machine


def starting(**took_ms: float | None) -> Callable[[str, float | None], float]:
    """What starts machines that take so long; None is one that hangs."""

    def started(accelerator: str, limit_s: float | None) -> float:
        took = took_ms["kvm" if accelerator == ACCELERATED else "tcg"]
        if took is None or (limit_s is not None and took > limit_s * 1000):
            raise SandboxError("the machine did not wait", f"it took longer than {limit_s:g} s")
        return took

    return started


def test_kvm_is_used_if_a_start_with_it_is_faster() -> None:
    found = qemu_program.run_trial("here", starting(tcg=5000, kvm=700))

    assert found.uses_kvm
    assert "with KVM: a start takes 5000 ms emulated, 700 ms with it" == found.sentence


@pytest.mark.parametrize(
    ("kvm", "said"),
    [(2500.0, "it is no faster here: a start takes 2500 ms with it"), (None, "did not boot within 3.0 s")],
    ids=["slower", "hangs"],
)
def test_kvm_that_is_slower_or_hangs_is_not_used_and_the_reason_is_reported(kvm: float | None, said: str) -> None:
    found = qemu_program.run_trial("here", starting(tcg=2000, kvm=kvm))

    assert not found.uses_kvm
    assert said in found.sentence
    assert "2000 ms emulated" in found.sentence


def test_it_may_take_no_longer_than_what_is_emulated() -> None:
    assert "did not boot within 8.0 s" in qemu_program.run_trial("here", starting(tcg=8000, kvm=8001)).sentence


def test_the_result_applies_to_the_tested_machine_only(tmp_path: Path) -> None:
    path = tmp_path / "machines" / "kvm.json"
    found = qemu_program.store_trial(path, qemu_program.run_trial("here", starting(tcg=2, kvm=1)))

    assert found == qemu_program.load_trial(path, "here")
    assert qemu_program.load_trial(path, "there") is None
    path.write_bytes(path.read_bytes()[:-5])
    assert qemu_program.load_trial(path, "here") is None


def test_another_image_or_another_qemu_is_another_machine() -> None:
    assert qemu_program.identity("true", "a") == qemu_program.identity("true", "a")
    assert 3 == len(
        {qemu_program.identity("true", "a"), qemu_program.identity("true", "b"), qemu_program.identity("bash", "a")}
    )


def test_kvm_that_is_missing_or_closed_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "kvm"
    monkeypatch.setattr(qemu_program, "KVM", device)
    me = (os.geteuid(), os.getegid())
    assert f"this machine has no {device}" == qemu_program.find_obstacle(me)
    device.touch(mode=0o600)
    assert "" == qemu_program.find_obstacle(me)
    assert re.fullmatch(
        rf"(user 61003, as whom QEMU runs,|this user) may not open {device}", qemu_program.find_obstacle((61003, 1))
    )


@pytest.mark.sandboxes
@pytest.mark.timeout(240)
class TestOnThisMachine:
    @pytest.fixture
    def vm(self, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MicroVm]:
        """Machines of a QEMU that hangs with KVM, which may be opened."""
        need_machine()
        (shared / "kvm").touch()
        (shared / "kvm").chmod(0o666)
        monkeypatch.setattr(qemu_program, "KVM", shared / "kvm")
        qemu = shared / "qemu"
        qemu.write_text(
            f'#!/bin/sh\ncase " $* " in *" -accel kvm "*) exec sleep 600;; esac\nexec {qemu_program.PROGRAM} "$@"\n'
        )
        qemu.chmod(0o755)
        folder = shared / "state" / "image"
        folder.parent.mkdir()
        folder.symlink_to(IMAGE)
        vm = MicroVm(user_paths(), image=folder, program=str(qemu))
        yield vm
        ended(vm)

    def test_kvm_that_hangs_is_ended_and_reported_and_not_tried_again(self, vm: MicroVm) -> None:
        said = vm.provisioning.describe_accelerator(emulated_ms=500)

        assert re.match("emulated, without KVM: a machine with it did not boot within 3.0 s, and was ended", said)
        assert EMULATED == vm.provisioning.accelerator
        assert [] == list(vm.host_folders.base.glob("*/lock"))
        again = MicroVm(vm.paths, image=vm.provisioning.image_folder, program=vm.provisioning.program)
        again.provisioning._time_start = None  # type: ignore[assignment, method-assign]  # it would stumble if it were tried
        assert said == again.provisioning.describe_accelerator()

    def test_a_machine_that_was_faster_and_fails_later_is_emulated_and_reported(self, vm: MicroVm) -> None:
        qemu_program.store_trial(
            vm.provisioning._trial, qemu_program.run_trial(vm.provisioning._identity, starting(tcg=9000, kvm=1))
        )
        assert ACCELERATED == vm.provisioning.accelerator
        assert vm.provisioning.made_by.cpu.endswith(" kvm")
        policy = SandboxPolicy(session=SessionId("a" * 8), tier="microvm")

        runtime = vm.create(policy)

        assert any(
            "Machines are emulated from now on: a machine with it did not start" in each for each in runtime.notices
        )
        assert EMULATED == vm.provisioning.accelerator
        assert not vm.provisioning.made_by.cpu.endswith(" kvm")
        assert not msgspec.json.decode(vm.provisioning._trial.read_bytes(), type=qemu_program.KvmTrial).uses_kvm
