"""What an agent's sandbox gets: said in words, and agreed to once for just that."""

from pathlib import Path

import pytest

from kasmon.config import ResolvedProfile, SandboxConfig
from kasmon.config.schema import SHIPPED
from kasmon.errors import RefusedError, UsageError
from kasmon.model.commands import Mode
from kasmon.model.sandbox.policy import CopiedFile, Credential, Mount
from kasmon.paths import Paths, user_paths
from kasmon.sandbox.jail.probe import lacking
from kasmon.supervisor.sandboxes import agent_policy


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "login").write_text("token")
    return user_paths({"XDG_STATE_HOME": str(tmp_path / "s"), "HOME": str(tmp_path)})


def resolved(**confined: object) -> ResolvedProfile:
    sandboxing = SandboxConfig(**confined)  # type: ignore[arg-type]
    return ResolvedProfile(agent="mine", mode=Mode.TMUX, backend="tmux", sandbox="jail", confined=sandboxing)


def test_everything_that_the_sandbox_gets_is_listed(here: Paths) -> None:
    wanted = resolved(
        network=("example.org",),
        files=(CopiedFile(source="~/login"), CopiedFile(source="~/none")),
        credentials=(Credential(name="KEY", variable="MY_KEY", aliases=("TOKEN",)),),
        mounts=(Mount(source="/srv", writable=True),),
    )
    said = "\n".join(agent_policy.describe_sandbox(wanted, "/work"))

    for word in (
        "'/work'",
        "may reach example.org",
        "copies of ~/login,",
        "KEY, TOKEN, from 'MY_KEY'",
        "'/srv', for wr",
    ):
        assert word in said
    assert "~/none" not in said
    assert "has no network access" in "\n".join(agent_policy.describe_sandbox(resolved(), "/work"))


def test_passed_files_need_consent_once_and_again_when_they_change(here: Paths) -> None:
    wanted = resolved(files=(CopiedFile(source="~/login"),))
    with pytest.raises(RefusedError, match=r"~/login.*has not been confirmed"):
        agent_policy.check_agreed(here, wanted, agrees=False)
    agent_policy.check_agreed(here, wanted, agrees=True)
    agent_policy.check_agreed(here, wanted, agrees=False)

    for changed in (
        resolved(files=(CopiedFile(source="~/login"),), network=("example.org",)),
        resolved(files=(CopiedFile(source="~/login"),), mounts=(Mount(source="/srv", writable=True),)),
        resolved(files=(CopiedFile(source="~/login"),), project="/srv"),
        resolved(files=(CopiedFile(source="~/login"),), project="/srv", project_writable=True),
        resolved(files=(CopiedFile(source="~/login", target="elsewhere"),)),
    ):
        with pytest.raises(RefusedError):
            agent_policy.check_agreed(here, changed, agrees=False)


def test_nothing_is_asked_where_nothing_is_handed_over_and_nonsense_is_refused_before_anything(here: Paths) -> None:
    agent_policy.check_agreed(here, resolved(network=("github",)), agrees=False)
    agent_policy.check_agreed(here, resolved(files=(CopiedFile(source="~/none"),)), agrees=False)
    assert not (here.state / agent_policy.AGREED).exists()

    for faulty in (
        resolved(network=("1.2.3.4",)),
        resolved(credentials=(Credential(name="KEY"),)),
        resolved(files=(CopiedFile(source="/etc/hostname"),)),
        resolved(mounts=(Mount(source="/no/such"),)),
    ):
        with pytest.raises((UsageError, RefusedError)):
            agent_policy.policy_of(faulty)


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini"])
def test_the_shipped_settings_of_an_agent_are_a_valid_policy(here: Paths, agent: str) -> None:
    if found := lacking("bwrap"):
        pytest.skip(found.why)
    policy = agent_policy.policy_of(
        ResolvedProfile(agent=agent, mode=Mode.TMUX, backend="tmux", sandbox="jail", confined=SHIPPED[agent].confined)
    )

    assert policy.hosts
    assert all(host.endswith(":443") for host in policy.hosts)
    assert policy.files
