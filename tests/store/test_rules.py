"""Standing rules outlive us, can be listed and revoked, and a file that cannot be read allows nothing and is kept."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import ConfigError, NotFoundError
from kasmon.model.rule import Rule, RuleEffect
from kasmon.store.rules import RuleBook


@pytest.fixture
def book(tmp_path: Path) -> RuleBook:
    return RuleBook(tmp_path / "kasmon" / "rules.toml")


def rule(text: str = "git push", effect: RuleEffect = RuleEffect.ALLOW, of: str = "abcdefgh") -> Rule:
    return Rule(id="", effect=effect, scope="session", of=of, tool="Bash", match="words", text=text)


def test_there_are_none_at_first_and_a_rule_is_kept_under_an_id_of_its_own(book: RuleBook) -> None:
    assert () == book.read()
    assert not book.path.exists()

    kept = [book.add(rule()), book.add(rule("git pull"))]
    assert ["k1", "k2"] == [each.id for each in kept]
    assert tuple(kept) == RuleBook(book.path).read()
    assert 0o600 == book.path.stat().st_mode & 0o777


def test_adding_the_same_rule_again_adds_nothing(book: RuleBook) -> None:
    assert book.add(rule()) == book.add(msgspec.structs.replace(rule(), made_at=7.0, request="abcdefgh-9"))
    assert 1 == len(book.read())


def test_to_deny_is_not_the_same_as_to_allow(book: RuleBook) -> None:
    book.add(rule())
    book.add(rule(effect=RuleEffect.DENY))

    assert [RuleEffect.ALLOW, RuleEffect.DENY] == [each.effect for each in book.read()]


def test_a_revoked_rule_is_gone_and_its_id_is_not_given_to_another(book: RuleBook) -> None:
    first, second = book.add(rule()), book.add(rule("git pull"))

    assert first == book.remove(first.id)
    assert (second,) == book.read()
    assert "k3" == book.add(rule("git fetch")).id


def test_revoking_a_missing_rule_is_an_error(book: RuleBook) -> None:
    with pytest.raises(NotFoundError, match="'k9'"):
        book.remove("k9")


def test_a_removed_session_leaves_no_rule(book: RuleBook) -> None:
    book.add(rule())
    other = book.add(rule(of="bcdefghi"))
    book.drop_session("abcdefgh")

    assert (other,) == book.read()


@pytest.mark.parametrize("text", ["[[rule", "rule = 7", '[[rule]]\nid = "k1"\n', "\x00", f"x = {'9' * 5000}"])
def test_an_unreadable_file_is_an_error_and_stays_unchanged(book: RuleBook, text: str) -> None:
    book.path.parent.mkdir(mode=0o700)
    book.path.write_text(text)
    for use in (book.read, lambda: book.add(rule()), lambda: book.remove("k1")):
        with pytest.raises(ConfigError, match=r"rules\.toml"):
            use()

    assert text == book.path.read_text()


def test_hostile_text_is_preserved(book: RuleBook) -> None:
    hostile = 'a"]\n[[rule]]\nid = "k9" \x1b[31m \u202e'
    book.add(rule(hostile))

    assert [hostile] == [each.text for each in book.read()]


def test_simultaneous_writers_lose_no_rule(book: RuleBook) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: RuleBook(book.path).add(rule(f"git {number}")), range(40)))

    assert {f"git {number}" for number in range(40)} == {each.text for each in book.read()}
    assert 40 == len({each.id for each in book.read()})
