"""A second agent in one checkout is found, whatever folder of it the agent is in."""

from pathlib import Path
from typing import Any, Final

import pytest

from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.worktrees.shared_checkout import describe_sharers, find_repository_top, list_sharers
from tests.support.git_repo import Repo

PROFILES: Final = {"claude": "claude", "mine": "mine-cli"}


def agent(name: str, folder: Path, at: float = 1.0, **fields: Any) -> Session:
    begun: dict[str, Any] = {
        "id": SessionId(name),
        "name": name,
        "agent": "claude",
        "program": "claude",
        "workdir": str(folder),
        "created_at": at,
        "state": SessionState.WORKING,
        "generation": 1,
    }
    return Session(**begun | fields)


def test_agents_that_started_in_the_checkout_earlier_share_it(repo: Repo) -> None:
    (repo.folder / "src").mkdir()
    first, second = agent("one", repo.folder), agent("two", repo.folder / "src", at=2.0)

    assert [first] == list_sharers(second, [first, second], PROFILES)
    assert [] == list_sharers(first, [first, second], PROFILES)


def test_a_link_to_the_checkout_leads_to_it(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repo.folder)

    assert str(repo.folder) == find_repository_top(str(tmp_path / "link"))


def test_neither_a_worktree_nor_a_folder_outside_of_git_is_a_shared_checkout(repo: Repo, tmp_path: Path) -> None:
    repo.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    assert [] == list_sharers(agent("two", tmp_path / "other", at=2.0), [agent("one", repo.folder)], PROFILES)

    assert [] == list_sharers(agent("two", tmp_path, at=2.0), [agent("one", tmp_path)], PROFILES)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"state": SessionState.ENDED}, id="ended"),
        pytest.param({"program": "htop"}, id="no agent"),
        pytest.param({"agent": "claude@build"}, id="on another machine"),
        pytest.param({"plan": "p1"}, id="task of the same plan"),
        pytest.param({"id": SessionId("parent")}, id="its parent"),
    ],
)
def test_a_session_that_cannot_change_files_or_belongs_to_it_is_none(repo: Repo, fields: dict[str, Any]) -> None:
    new = agent("two", repo.folder, at=2.0, plan="p1", parent=SessionId("parent"))

    assert [] == list_sharers(new, [agent("one", repo.folder, **fields)], PROFILES)
    assert ["one"] == [other.name for other in list_sharers(new, [agent("one", repo.folder)], PROFILES)]


def test_a_program_of_a_profile_and_a_structured_session_are_agents(repo: Repo) -> None:
    own = agent("own", repo.folder, agent="mine", program="mine-cli")
    structured = agent("structured", repo.folder, program="", mode=Mode.SDK)

    assert [own, structured] == list_sharers(agent("two", repo.folder, at=2.0), [own, structured], PROFILES)


def test_the_first_of_several_is_named(tmp_path: Path) -> None:
    names = [agent(name, tmp_path) for name in ("one", "two", "three")]

    assert "one works in the same checkout" == describe_sharers(names[:1])
    assert "one and 2 more work in the same checkout" == describe_sharers(names)
