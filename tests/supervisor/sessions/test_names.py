"""Names are proper, and one session's alone."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.errors import NameTakenError, UnavailableError, UsageError
from kasmon.model.events import SessionCreated, SessionForgotten, SessionRenamed
from kasmon.model.permission import SessionId
from kasmon.sanitize import clean_line
from kasmon.store.event_log import EventLog
from kasmon.supervisor.sessions.names import TAG_CELLS, WIDTH_CELLS, announce, check_name, check_tags, width_cells
from tests.support.supervisor.env import NOW, Env, launch


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("fix-auth", "fix-auth"),
        ("  two words ", "two words"),
        ("#(touch x)", "#(touch x)"),
        ("[@click=app.quit]x[/]", "[@click=app.quit]x[/]"),
        ("\x1b]52;c;eA==\x07red\x1b[31m", "red"),
        ("two\nlines", "two lines"),
        ("日本語", "日本語"),
    ],
)
def test_a_name_is_shown_cleaned_and_otherwise_unchanged(given: str, shown: str) -> None:
    assert shown == check_name(given)


@pytest.mark.parametrize(
    "name", ["", "   ", "\n", "\x1b[31m", "\x07", "x" * (WIDTH_CELLS + 1), "語" * (WIDTH_CELLS // 2 + 1)]
)
def test_a_name_that_is_blank_or_too_wide_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name)


@pytest.mark.parametrize("name", ["x" * WIDTH_CELLS, "語" * (WIDTH_CELLS // 2), "e\u0301" * WIDTH_CELLS])
def test_a_name_of_the_maximum_width_is_accepted(name: str) -> None:
    assert WIDTH_CELLS == width_cells(check_name(name))


def created(session: str, name: str) -> SessionCreated:
    return SessionCreated(at=NOW, launch=launch(session, name=name))


def renamed(session: str, name: str) -> SessionRenamed:
    return SessionRenamed(at=NOW, session=SessionId(session), name=name)


def names(env: Env) -> list[tuple[str, str]]:
    """Each session that was made, and the name that it was made with."""
    facts = [*EventLog(env.paths.fleet_log).events()]
    return [(fact.launch.session, fact.launch.name) for fact in facts if isinstance(fact, SessionCreated)]


def test_a_taken_name_is_refused_and_nothing_is_written(env: Env) -> None:
    announce(env.paths, created("abcdefgh", "docs"))
    announce(env.paths, created("qrstuvwx", "tests"))
    before = env.paths.fleet_log.read_bytes()

    for fact in (created("zzzzzzzz", "docs"), renamed("qrstuvwx", "docs"), created("zzzzzzzz", "abcdefgh")):
        with pytest.raises(NameTakenError, match="already exists: abcdefgh"):
            announce(env.paths, fact)

    assert before == env.paths.fleet_log.read_bytes()


def test_a_name_is_free_when_its_session_is_renamed_or_removed(env: Env) -> None:
    announce(env.paths, created("abcdefgh", "docs"))
    announce(env.paths, renamed("abcdefgh", "docs"))
    announce(env.paths, renamed("abcdefgh", "papers"))
    announce(env.paths, created("qrstuvwx", "docs"))
    env.says(SessionForgotten(at=NOW, session=SessionId("abcdefgh")))
    announce(env.paths, created("zzzzzzzz", "papers"))

    assert [("qrstuvwx", "docs"), ("zzzzzzzz", "papers")] == names(env)[1:]


def test_names_that_differ_in_case_are_two(env: Env) -> None:
    announce(env.paths, created("abcdefgh", "docs"))
    announce(env.paths, created("qrstuvwx", "Docs"))

    assert [("abcdefgh", "docs"), ("qrstuvwx", "Docs")] == names(env)


def test_one_of_many_simultaneous_requests_for_a_name_succeeds(env: Env) -> None:
    def wants(number: int) -> bool:
        try:
            announce(env.paths, created(f"abcdefg{chr(97 + number)}", "docs"))
        except NameTakenError:
            return False
        return True

    with ThreadPoolExecutor(16) as crowd:
        assert 1 == sum(crowd.map(wants, range(16)))
    assert 1 == len(list(EventLog(env.paths.fleet_log).read()))


def test_a_full_fleet_log_is_an_error_that_names_it(env: Env) -> None:
    env.paths.fleet_log.mkdir()

    with pytest.raises(UnavailableError, match=r"fleet\.jsonl"):
        announce(env.paths, created("abcdefgh", "docs"))


@given(st.lists(st.text(max_size=40), max_size=3))
def test_valid_tags_are_words_that_can_be_displayed_and_stay_valid(texts: list[str]) -> None:
    try:
        tags = check_tags(texts)
    except UsageError:
        return
    assert tags == check_tags(tags) == tuple(sorted(set(tags)))
    for tag in tags:
        assert [tag] == tag.split()
        assert tag == clean_line(tag)
        assert 0 < width_cells(tag) <= TAG_CELLS
        assert "," not in tag


def test_tags_are_in_small_letters_each_once_and_sorted() -> None:
    assert ("api", "é") == check_tags(["e\u0301", "API", "api", " É "])


@pytest.mark.parametrize(
    "tag", ["", " ", "-x", "a b", "a,b", "a\tb", "a\x07", "a\u202e", "\u200b", "x" * 33, "語" * 17]
)
def test_an_invalid_tag_is_refused(tag: str) -> None:
    with pytest.raises(UsageError):
        check_tags([tag])
