"""`kasmon acp` where it cannot serve."""

import sys

import pytest

from kasmon.cli.acp.command import acp
from kasmon.errors import SessionNotFoundError, UnavailableError, UsageError


def test_without_its_package_the_error_shows_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kasmon.acp.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "acp", None)

    with pytest.raises(UnavailableError, match=r"`pipx install --force '\.\[acp\]'` in kasmon's clone"):
        acp()


def test_a_session_and_a_profile_exclude_each_other_and_a_missing_session_is_named() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        acp("lab", agent="claude")

    with pytest.raises(SessionNotFoundError, match="'lab'"):
        acp("lab")
