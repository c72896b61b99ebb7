"""What an agent's sandbox gets: said in words, and agreed to once for just that."""

from pathlib import Path

import pytest

from kasmon.config import Resolved, Sandboxing
from kasmon.config.schema import SHIPPED
from kasmon.errors import RefusedError, UsageError
from kasmon.model.command import Mode
from kasmon.model.sandbox import Credential, Handed, Mount
from kasmon.paths import Places, places
from kasmon.sandbox.jail.probing import lacking
from kasmon.supervisor import confining


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "login").write_text("token")
    return places({"XDG_STATE_HOME": str(tmp_path / "s"), "HOME": str(tmp_path)})


def resolved(**confined: object) -> Resolved:
    sandboxing = Sandboxing(**confined)  # type: ignore[arg-type]
    return Resolved(agent="mine", mode=Mode.TMUX, backend="tmux", sandbox="jail", confined=sandboxing)


def test_all_that_it_gets_is_said(here: Places) -> None:
    wanted = resolved(
        network=("example.org",),
        files=(Handed(source="~/login"), Handed(source="~/none")),
        credentials=(Credential(name="KEY", variable="MY_KEY", aliases=("TOKEN",)),),
        mounts=(Mount(source="/srv", writable=True),),
    )
    said = "\n".join(confining.told(wanted, "/work"))

    for word in (
        "'/work'",
        "may reach example.org",
        "copies of ~/login,",
        "KEY, TOKEN, from 'MY_KEY'",
        "'/srv', for wr",
    ):
        assert word in said
    assert "~/none" not in said
    assert "reaches nobody" in "\n".join(confining.told(resolved(), "/work"))


def test_what_is_handed_over_is_agreed_to_once_and_again_when_it_changes(here: Places) -> None:
    wanted = resolved(files=(Handed(source="~/login"),))
    with pytest.raises(RefusedError, match=r"~/login.*nobody has agreed"):
        confining.check_agreed(here, wanted, agrees=False)
    confining.check_agreed(here, wanted, agrees=True)
    confining.check_agreed(here, wanted, agrees=False)

    for changed in (
        resolved(files=(Handed(source="~/login"),), network=("example.org",)),
        resolved(files=(Handed(source="~/login"),), mounts=(Mount(source="/srv", writable=True),)),
        resolved(files=(Handed(source="~/login"),), project="/srv"),
        resolved(files=(Handed(source="~/login"),), project="/srv", project_writable=True),
        resolved(files=(Handed(source="~/login", target="elsewhere"),)),
    ):
        with pytest.raises(RefusedError):
            confining.check_agreed(here, changed, agrees=False)


def test_nothing_is_asked_where_nothing_is_handed_over(here: Places) -> None:
    confining.check_agreed(here, resolved(network=("github",)), agrees=False)
    confining.check_agreed(here, resolved(files=(Handed(source="~/none"),)), agrees=False)
    assert not (here.state / confining.AGREED).exists()


def test_what_makes_no_sense_is_refused_before_anything_is_made(here: Places) -> None:
    for faulty in (
        resolved(network=("1.2.3.4",)),
        resolved(credentials=(Credential(name="KEY"),)),
        resolved(files=(Handed(source="/etc/hostname"),)),
        resolved(mounts=(Mount(source="/no/such"),)),
    ):
        with pytest.raises((UsageError, RefusedError)):
            confining.policy_of(faulty)


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini"])
def test_what_is_shipped_for_an_agent_is_a_policy(here: Places, agent: str) -> None:
    if found := lacking("bwrap"):
        pytest.skip(found.why)
    policy = confining.policy_of(
        Resolved(agent=agent, mode=Mode.TMUX, backend="tmux", sandbox="jail", confined=SHIPPED[agent].confined)
    )

    assert policy.hosts
    assert all(host.endswith(":443") for host in policy.hosts)
    assert policy.files
