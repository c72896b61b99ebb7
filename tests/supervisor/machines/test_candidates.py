"""The machines that are offered: those in use, and the names in ssh's own config."""

from pathlib import Path

import pytest

from kasmon.supervisor.machines.candidates import MOST, config_of, find_machines, machines_in_use
from tests.support.sample_fleet import fleet, session

CONFIG = """
# Host commented
Host box  "gpu one" gpu-2 # the rest of it
    HostName 10.0.0.1
host=equal
Host *.example.org !not-this bad?
Host -oProxyCommand=x
Include more/*.conf
Match host other
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    (folder / "more").mkdir(parents=True)
    (folder / "config").write_text(CONFIG)
    return folder


def test_names_are_offered_and_patterns_are_not(ssh: Path) -> None:
    (ssh / "more" / "work.conf").write_text("Host work\nInclude ~/.ssh/config\n")

    assert ("box", "gpu-2", "equal", "work") == find_machines(("ssh",), fleet())


def test_hosts_in_use_come_first_each_once() -> None:
    shown = fleet(
        session("a", agent="claude@box"), session("b", agent="shell@me@box"), session("c"), session("d", agent="x@box")
    )

    assert ("box", "me@box") == machines_in_use(shown)


@pytest.mark.parametrize("words", [("ssh", "-F", "{}"), ("ssh", "-v", "-F{}")])
def test_the_config_is_the_one_that_ssh_uses(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "own"
    path.write_text("Host own\n")
    ssh = tuple(word.format(path) for word in words)

    assert path == config_of(ssh)
    assert ("own",) == find_machines(ssh, fleet())


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\0Host x", b'Host "open', b"Include [\nInclude /no/such/*\n", b"", b"Include config"]
)
def test_an_invalid_config_offers_nothing(ssh: Path, content: bytes) -> None:
    (ssh / "config").write_bytes(content)

    assert () == find_machines(("ssh",), fleet())


def test_no_config_offers_nothing_and_a_very_long_one_the_first(tmp_path: Path, ssh: Path) -> None:
    assert () == find_machines(("ssh", "-F", str(tmp_path)), fleet())
    assert () == find_machines(("ssh", "-F", str(tmp_path / "gone")), fleet())

    (ssh / "config").write_text("\n".join(f"Host h{n}" for n in range(1000)))
    assert MOST == len(find_machines(("ssh",), fleet()))
