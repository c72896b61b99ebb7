"""`kasmon mcp` where the package that speaks the protocol is there, and where it is not."""

import sys

import pytest

from kasmon.cli import mcp
from kasmon.errors import UnavailableError


@pytest.fixture
def _no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp" or name == "kasmon.mcp.server"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)


def test_doctor_shows_how_an_agent_gets_it() -> None:
    check = mcp.check()

    assert ("mcp", "ok") == (check.id, check.level)
    assert check.text.endswith("claude mcp add kasmon -- kasmon mcp")


@pytest.mark.usefixtures("_no_package")
def test_without_its_package_the_error_shows_how_to_get_it() -> None:
    with pytest.raises(UnavailableError, match=r"not installed. `pipx install --force '\.\[mcp\]'` in kasmon's clone"):
        mcp.mcp()

    assert "`pipx install --force '.[mcp]'` in kasmon's clone" in mcp.check().text


@pytest.mark.usefixtures("_no_package")
def test_a_package_of_another_version_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", __import__("json"))

    with pytest.raises(UnavailableError, match="another version is installed"):
        mcp.mcp()
