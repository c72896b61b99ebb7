"""Links to requests: what a token opens, until when, and how often."""

import os
from pathlib import Path

import pytest

from kasmon.errors import NotFoundError, UnavailableError
from kasmon.model.permission import Decision
from kasmon.paths import Paths
from kasmon.store import request_links, signed_records
from kasmon.store.request_links import LinkState, RequestLinks
from tests.support.sample_fleet import NOW, command

ASKED = command("fix-auth", "git push --force")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(state=tmp_path / "s", config=tmp_path / "c")


def test_a_token_finds_the_link_to_exactly_that_request(paths: Paths) -> None:
    token = RequestLinks(paths).create(ASKED, 15, NOW)
    link = RequestLinks(paths).find(token)

    assert link
    assert (ASKED.id, ASKED.session, ASKED.digest) == (link.request, link.session, link.digest)
    assert [LinkState.OPEN, LinkState.EXPIRED] == [link.state(NOW + 899), link.state(NOW + 900)]
    assert LinkState.EXPIRED is link.state(NOW - 3600), "the clock was set back"


def test_neither_file_contains_the_token_and_only_the_user_reads_them(paths: Paths) -> None:
    token = RequestLinks(paths).create(ASKED, 15, NOW)

    for path in (paths.request_links, paths.request_links_key):
        assert token[12:].encode() not in path.read_bytes()
        assert 0o600 == path.stat().st_mode & 0o777


def test_every_changed_character_of_a_token_makes_it_unknown(paths: Paths) -> None:
    links = RequestLinks(paths)
    token = links.create(ASKED, 15, NOW)
    wrong = [token[:at] + ("A" if token[at] != "A" else "E") + token[at + 1 :] for at in range(len(token))]

    assert [] == [each for each in (*wrong, "", token[:-1], token + "A", token.upper(), "é") if links.find(each)]
    assert links.find(token)


@pytest.mark.parametrize("field", ["request", "session", "digest", "expires_at", "created_at"])
def test_a_record_that_was_changed_opens_nothing(paths: Paths, field: str) -> None:
    links = RequestLinks(paths)
    token = links.create(ASKED, 15, NOW)
    [link] = links.list_all()
    before = f'"{field}":' + (f'"{getattr(link, field)}"' if field[-3:] != "_at" else f"{getattr(link, field)}")
    after = f'"{field}":' + ('"other"' if field[-3:] != "_at" else f"{getattr(link, field) + 9e5}")
    content = paths.request_links.read_text()
    assert before in content
    paths.request_links.write_text(content.replace(before, after))

    assert links.find(token) is None


def test_a_link_is_used_once_also_from_another_process(paths: Paths) -> None:
    token = RequestLinks(paths).create(ASKED, 15, NOW)
    mine, other = RequestLinks(paths), RequestLinks(paths)
    link = mine.find(token)
    assert link

    assert other.use(link.id, Decision.DENY, NOW + 1)
    assert not mine.use(link.id, Decision.ALLOW, NOW + 2)
    [kept] = mine.list_all()
    assert (LinkState.USED, Decision.DENY, NOW + 1) == (kept.state(NOW + 3), kept.decision, kept.used_at)


def test_a_record_of_use_that_cannot_be_written_leaves_the_link_open(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = RequestLinks(paths)
    links.create(ASKED, 15, NOW)

    def fails(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(signed_records, "write_private", fails)
        with pytest.raises(OSError, match="No space"):
            links.use(links.list_all()[0].id, Decision.ALLOW, NOW)
    assert LinkState.OPEN is links.list_all()[0].state(NOW)


def test_one_or_all_are_revoked_and_a_used_one_stays_used(paths: Paths) -> None:
    links = RequestLinks(paths)
    tokens = [links.create(ASKED, 15, NOW) for _ in range(4)]
    first, used, *others = (link.id for link in links.list_all())
    links.use(used, Decision.ALLOW, NOW)

    assert [first] == [link.id for link in links.revoke(NOW, first)]
    assert others == [link.id for link in links.revoke(NOW)]
    assert () == links.revoke(NOW, first)
    found = [links.find(token) for token in tokens]
    states = [link.state(NOW) for link in found if link]
    assert [LinkState.REVOKED, LinkState.USED, LinkState.REVOKED, LinkState.REVOKED] == states
    with pytest.raises(NotFoundError, match="there is no link 'other'"):
        links.revoke(NOW, "other")


def test_there_are_only_so_many_records_and_open_ones_stay_longest(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_links, "MAX_LINKS", 3)
    links = RequestLinks(paths)
    opened, used, *more = (links.create(ASKED, 15, NOW + number) for number in range(4))
    # the third and the fourth are there, so one of the first three was dropped: the oldest, as all were open
    assert [False, True, True, True] == [links.find(token) is not None for token in (opened, used, *more)]
    links.use(used[:12], Decision.ALLOW, NOW + 5)
    links.create(ASKED, 15, NOW + 6)

    assert [False, True, True] == [links.find(token) is not None for token in (used, *more)]
    links.create(ASKED, 15, NOW + 100_000)
    assert 1 == len(links.list_all()), "links that expired a day ago are forgotten"


def test_a_damaged_file_accepts_no_link_and_the_next_link_works(paths: Paths) -> None:
    links = RequestLinks(paths)
    token = links.create(ASKED, 15, NOW)
    paths.request_links.write_bytes(b"{")

    assert (None, ()) == (links.find(token), links.list_all())
    assert not links.use(token[:12], Decision.ALLOW, NOW)
    assert links.find(links.create(ASKED, 15, NOW))


def test_a_key_that_others_read_is_not_used(paths: Paths) -> None:
    links = RequestLinks(paths)
    token = links.create(ASKED, 15, NOW)
    os.chmod(paths.request_links_key, 0o640)  # noqa: PTH101 (not through a link)

    for call in (lambda: links.find(token), lambda: links.create(ASKED, 15, NOW)):
        with pytest.raises(UnavailableError, match="readable by others"):
            call()
    paths.request_links_key.unlink()
    assert links.find(token) is None
    assert links.find(links.create(ASKED, 15, NOW))
    assert links.find(token) is None
