"""What an agent stores is asked outside of any session: all its pages, nothing odd in them, and no process is left."""

from pathlib import Path

import pytest

from kasmon.backends.acp import backend
from kasmon.errors import LaunchError, UnableError
from kasmon.model.commands import ConversationOffers
from tests.backends.acp.test_session_start import agents
from tests.support.acp.odd_session import launch


async def listed(
    name: str, folder: Path, *, everywhere: bool = False, handshake_s: float | None = None
) -> ConversationOffers:
    """What the odd agent *name* lists for *folder*; no process of ours is left then."""
    offers = await backend.list_conversations(
        launch(name, folder, handshake_s=handshake_s), {}, "" if everywhere else str(folder)
    )
    assert [] == agents()
    return offers


async def test_all_pages_are_listed_newest_first_without_those_of_other_folders(tmp_path: Path) -> None:
    offers = await listed("lists", tmp_path)

    assert ["talk-1", "talk-2"] == [each.id for each in offers.conversations]
    assert ["tidy up", "red \ufffdtitle of two lines"] == [each.title for each in offers.conversations]
    assert [1_796_032_800.0, 0.0] == [each.used_at for each in offers.conversations]
    assert offers.is_whole


async def test_conversations_of_all_folders_are_listed_with_their_folder(tmp_path: Path) -> None:
    offers = await listed("lists", tmp_path, everywhere=True)

    folders = {each.id: each.folder for each in offers.conversations}
    assert {"talk-1": str(tmp_path), "talk-2": str(tmp_path), "talk-4": "/elsewhere"} == folders


async def test_a_folder_is_identified_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert ["talk-1", "talk-2"] == [each.id for each in (await listed("lists", tmp_path / "link")).conversations]


async def test_a_list_in_circles_ends_and_a_very_long_one_is_cut_and_says_so(tmp_path: Path) -> None:
    offers = await listed("lists_for_ever", tmp_path)
    assert (["talk-1"], True) == ([each.id for each in offers.conversations], offers.is_whole)

    offers = await listed("lists_very_many", tmp_path)
    assert (500, False) == (len(offers.conversations), offers.is_whole)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lists_nonsense", "did not list its conversations: its answer is invalid"),
        ("lists_after_a_log_in", "requires a login: Authentication required .* It offers: Log in with a browser."),
        ("dies_before_it_lists", "ended before it responded to 'session/list'. Its message: out of memory"),
        ("silent", "did not respond to 'initialize' within 0.5 s. Its message: waiting for the moon"),
        ("from_the_future", "speaks version 2 of the Agent Client Protocol"),
    ],
)
async def test_an_agent_that_fails_to_list_conversations_is_ended_with_the_reason(
    name: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(LaunchError, match=why):
        await listed(name, tmp_path, handshake_s=0.5 if name == "silent" else None)
    assert [] == agents()


async def test_an_agent_without_the_list_ability_gets_no_request(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match="does not list its conversations"):
        await listed("plain", tmp_path)
    assert [] == agents()
