"""Logins of browsers: what a link makes, what a cookie proves, and until when."""

from pathlib import Path

import pytest

from kasmon.errors import NotFoundError
from kasmon.paths import Paths
from kasmon.store import web_logins
from kasmon.store.signed_records import new_id
from kasmon.store.web_logins import LINK_MINUTES, LoginState, WebLogins
from tests.support.sample_fleet import NOW

DAY_S = 86_400


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(state=tmp_path / "s", config=tmp_path / "c")


def test_a_link_logs_in_once_and_only_its_cookie_proves_that(paths: Paths) -> None:
    logins = WebLogins(paths)
    token = logins.create(NOW)
    link = logins.find_link(token)
    assert link
    assert [LoginState.UNUSED, LoginState.EXPIRED] == [link.state(NOW), link.state(NOW + LINK_MINUTES * 60)]

    cookie = WebLogins(paths).use(link.id, "Phone", 2, NOW + 1)
    again = logins.use(link.id, "Phone", 2, NOW + 2)

    assert (True, "") == (bool(cookie), again)
    assert logins.find_link(token) is None
    assert logins.find(token, NOW + 2) is None, "a link is no cookie"
    login = logins.find(cookie, NOW + 2)
    assert login
    assert (link.id, "Phone") == (login.id, login.browser)
    assert logins.find(cookie, NOW + 2 * DAY_S + 2) is None
    assert logins.find(cookie, NOW - 3600) is None, "the clock was set back"
    assert logins.find(logins.use(logins.create(NOW)[:12], "", 2, NOW)[:12] + cookie[12:], NOW) is None
    for path in (paths.web_logins, paths.request_links_key):
        assert cookie[12:].encode() not in path.read_bytes()
        assert token[12:].encode() not in path.read_bytes()
        assert 0o600 == path.stat().st_mode & 0o777


@pytest.mark.parametrize("field", ["created_at", "expires_at", "used_at"])
def test_a_record_that_was_changed_proves_nothing(paths: Paths, field: str) -> None:
    logins = WebLogins(paths)
    cookie = logins.use(logins.create(NOW)[:12], "", 2, NOW)
    [login] = logins.list_all()
    content, before = paths.web_logins.read_text(), f'"{field}":{getattr(login, field)}'
    assert before in content
    paths.web_logins.write_text(content.replace(before, f'"{field}":{getattr(login, field) + 60}'))

    assert logins.find(cookie, NOW + 61) is None


def test_one_or_all_are_revoked_also_links_that_were_not_used(paths: Paths) -> None:
    logins = WebLogins(paths)
    ids = [logins.create(NOW)[:12] for _ in range(3)]
    cookie = logins.use(ids[0], "", 2, NOW)

    assert [ids[1]] == [login.id for login in logins.revoke(NOW, ids[1])]
    assert "" == logins.use(ids[1], "", 2, NOW)
    assert [ids[0], ids[2]] == [login.id for login in logins.revoke(NOW)]
    assert (None, False, "") == (
        logins.find(cookie, NOW),
        logins.is_active(ids[0], NOW),
        logins.use(ids[2], "", 2, NOW),
    )
    with pytest.raises(NotFoundError, match="there is no login 'other'"):
        logins.revoke(NOW, "other")


def test_the_path_of_the_list_stays_the_same_until_the_key_is_removed(paths: Paths) -> None:
    logins = WebLogins(paths)
    assert logins.place != logins.place, "without a key there is none"
    cookie = logins.use(logins.create(NOW)[:12], "", 2, NOW)
    place = logins.place

    assert [place] * 2 == [logins.place, WebLogins(paths).place]
    paths.request_links_key.unlink()
    logins.create(NOW)
    assert place != logins.place
    assert logins.find(cookie, NOW) is None


def test_there_are_only_so_many_records_and_active_ones_stay_longest(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_logins, "MAX_LOGINS", 3)
    logins = WebLogins(paths)
    cookie = logins.use(logins.create(NOW)[:12], "", 2, NOW)
    for number in range(5):
        logins.create(NOW + number)

    assert 3 == len(logins.list_all())
    assert logins.find(cookie, NOW)


def test_no_id_looks_like_an_option_of_the_command_line() -> None:
    assert [] == [each for each in (new_id() for _ in range(1000)) if each.startswith("-")]
