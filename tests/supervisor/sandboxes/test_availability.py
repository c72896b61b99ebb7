"""Which sandboxes can be had here, and for which agents; what cannot be is refused before anything is made."""

import time
from pathlib import Path

import pytest

from kasmon.config import Config
from kasmon.config.schema import Profile
from kasmon.errors import NoSandboxError, UnableError
from kasmon.model.sandbox.policy import Tier
from kasmon.paths import Paths
from kasmon.sandbox import tiers
from kasmon.sandbox.e2b.tier import E2b
from kasmon.sandbox.jail.jail import Jail
from kasmon.sandbox.microvm.machine import MicroVm
from kasmon.supervisor.sandboxes import create
from kasmon.supervisor.sandboxes.availability import list_tiers
from kasmon.supervisor.sessions.create import NewSession, prepare

CONFIG = Config(agents={"shell": Profile(program="/bin/sh")}, default_agent="shell")


class Mute(Jail):
    """A tier in which nothing runs but interpreters."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    return Paths(state=tmp_path / "s" / "kasmon", config=tmp_path / "c", given_runtime=tmp_path / "r")


def test_every_tier_is_offered_and_an_unavailable_one_gives_the_reason(here: Paths) -> None:
    found = {each.tier: each for each in list_tiers(here)}

    assert ["jail", "microvm", "e2b"] == list(found)
    assert found["microvm"].why_not
    assert ("no API key for the service is set", True) == (found["e2b"].why_not, "E2B_API_KEY" in found["e2b"].hint)


def test_a_machine_needs_an_image_and_the_error_names_the_build_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("qemu", "qemu-img"):
        (tmp_path / name).write_text("#!/bin/sh\necho QEMU emulator version 8.2.0\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    machines = MicroVm(program=str(tmp_path / "qemu"), image=tmp_path / "image")

    assert ("there is no image", "Build it: `kasmon sandbox image build`.") == machines.missing()


@pytest.mark.parametrize("tier", ["e2b", "microvm"])
def test_a_session_in_an_unavailable_sandbox_is_refused_at_once_and_not_created(
    here: Paths, tmp_path: Path, tier: Tier
) -> None:
    wanted = NewSession(name="x", sandbox=tier, workdir=str(tmp_path))
    with pytest.raises(NoSandboxError, match=f"sandbox '{tier}' is unavailable here") as refused:
        prepare(here, CONFIG, wanted, time.time())

    assert 69 == refused.value.exit_code
    assert not here.sessions.exists()


def test_interpreters_in_an_unavailable_sandbox_are_refused_too(here: Paths) -> None:
    with pytest.raises(NoSandboxError):
        create.prepare(here, CONFIG, create.NewSandbox(name="x", tier="microvm"), time.time())

    assert not here.sessions.exists()


def test_a_tier_without_agents_names_the_others(here: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiers.TIERS, "e2b", f"{__name__}:Mute")

    assert ["e2b"] == [each.tier for each in list_tiers(here) if not each.has_agents]
    with pytest.raises(UnableError, match="this version of kasmon cannot run an agent in a sandbox 'e2b'") as refused:
        prepare(here, CONFIG, NewSession(name="x", sandbox="e2b", workdir=str(tmp_path)), time.time())
    assert "Take `jail`, `microvm`." == refused.value.hint


def test_a_service_with_a_key_and_an_sdk_is_complete(here: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_KEY", "key")
    found = E2b(here).missing()

    assert found is None or "not installed" in found.why
