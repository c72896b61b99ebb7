"""Names and layout, as CONTRIBUTING has them: what this file lists as an exception has its reason beside it."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2] / "kasmon"

BANNED: Final = frozenset(
    {"told", "heard", "said", "word", "words", "way", "ways", "ground", "grounds", "lot", "seat", "desk", "pen", "hand"}
    | {"hands", "deed", "deeds", "inside", "far", "place", "places", "room", "rooms", "house"}
)
"""Words with a private meaning: they are no part of a module's or a class's name."""
NOUNS: Final = {
    "encoding": "a standard noun: how keys and mouse reports become bytes",
    "formatting": "a standard noun: how numbers and times become text",
    "listing": "a standard noun: a list that a command prints",
    "matching": "a standard noun: which stored conversation belongs to which session",
    "provisioning": "a standard noun: making virtual machines",
    "quoting": "a standard noun: quotes in tmux's command language",
    "wording": "a standard noun: the text of a message",
}
"""Words on -ing or -ed that end a module's name."""
NOT_SPLIT: Final = {
    "sandbox/guest": "the files that run inside a sandbox are copied there as one flat folder",
}
"""Folders with more than `FILES` modules."""
FILES: Final = 20


DIALECT: Final = re.compile(
    r"\b(nobody|somebody|whoever|deeds?|wishes|tenants?|goes on|stands there|what becomes of|by its own word)\b",
    re.IGNORECASE,
)
"""Words of the older docstrings that name no actor or have a private meaning."""


class Named(NamedTuple):
    """A module or a class, and where it is."""

    name: str
    where: str


def modules() -> list[Named]:
    return [Named(path.stem, str(path.relative_to(ROOT))) for path in sorted(ROOT.rglob("*.py"))]


def classes() -> list[Named]:
    """Every class at the top of a module."""
    found: list[Named] = []
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        where = str(path.relative_to(ROOT))
        found += [Named(node.name, where) for node in tree.body if isinstance(node, ast.ClassDef)]
    return found


def words(name: str) -> list[str]:
    """The words of a name in camel case or with underscores, in small letters."""
    return [word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", part)]


def banned(names: list[Named]) -> list[Named]:
    return [named for named in names if BANNED & set(words(named.name))]


def participles(names: list[Named]) -> list[Named]:
    """Modules whose name ends in -ing or -ed without being a standard noun."""
    ends = ((named, words(named.name)[-1]) for named in names if words(named.name))
    return [named for named, end in ends if re.search(r"(ing|ed)$", end) and end not in {*NOUNS, "speed", "embed"}]


def shared(names: list[Named]) -> list[str]:
    """The public class names that more than one module defines."""
    count = Counter(named.name for named in names if not named.name.startswith("_"))
    return sorted(name for name, number in count.items() if number > 1)


def crowded(names: list[Named]) -> list[str]:
    """The folders with more than `FILES` modules besides `__init__` and `__main__`."""
    flat = Counter(str(Path(named.where).parent) for named in names if not named.name.startswith("__"))
    return sorted(folder for folder, number in flat.items() if number > FILES)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of *source*, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for number, line in enumerate(source.splitlines(), 1):
        if (comment := re.search(r"(?:^|\s)# (.*)", line)) is not None:
            yield number, comment[1]


def dialect(source: str) -> list[tuple[int, str]]:
    return [(line, found[0]) for line, text in prose(source) for found in DIALECT.finditer(" ".join(text.split()))]


def test_docstrings_and_comments_are_in_plain_english() -> None:
    found = [
        (str(path.relative_to(ROOT)), *each)
        for path in sorted(ROOT.rglob("*.py"))
        for each in dialect(path.read_text())
    ]
    assert [] == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('def f():\n    """Ends when nobody\n    reads it."""', [(2, "nobody")]),
        ('x = 1\n"""It goes\non."""', [(2, "goes on")]),
        ("x = 1  # Whoever reads it", [(1, "Whoever")]),
        ('x = "nobody"  # the user of that name', []),
        ("x = 1  # indeed", []),
    ],
)
def test_dialect_is_found_in_prose_and_not_in_values(source: str, found: list[tuple[int, str]]) -> None:
    assert found == dialect(source)


def test_no_word_with_a_private_meaning_is_part_of_a_name() -> None:
    assert [] == banned(modules()) + banned(classes())


def test_no_participle_is_the_name_of_a_module() -> None:
    assert [] == participles(modules())


def test_a_class_has_a_name_of_its_own() -> None:
    assert [] == shared(classes())


def test_a_folder_has_as_many_files_as_a_reader_takes_in() -> None:
    assert sorted(NOT_SPLIT) == crowded(modules())


def test_no_exception_outlives_its_reason() -> None:
    ends = {words(named.name)[-1] for named in modules() if words(named.name)}
    assert [] == [noun for noun in NOUNS if noun not in ends]


@pytest.mark.parametrize("name", ["Told", "TheRoom", "_Way", "_Grounds", "house", "prompt_desk", "far"])
def test_a_banned_word_is_found_anywhere_in_a_name(name: str) -> None:
    assert [Named(name, "x.py")] == banned([Named(name, "x.py")])


@pytest.mark.parametrize("name", ["Handler", "Farm", "Password", "roommate", "always", "LostSession"])
def test_a_banned_word_within_a_longer_word_is_none(name: str) -> None:
    assert [] == banned([Named(name, "x.py")])


@pytest.mark.parametrize(
    ("name", "found"), [("adopted", 1), ("request_editing", 1), ("key_encoding", 0), ("string", 1)]
)
def test_a_participle_is_told_from_a_standard_noun(name: str, found: int) -> None:
    assert found == len(participles([Named(name, "x.py")]))


def test_a_name_that_two_modules_define_is_found_and_a_private_one_is_not() -> None:
    names = [
        Named("Row", "a.py"),
        Named("Row", "b.py"),
        Named("_Row", "a.py"),
        Named("_Row", "b.py"),
        Named("Cell", "a.py"),
    ]
    assert ["Row"] == shared(names)


@pytest.mark.parametrize(("number", "found"), [(FILES, []), (FILES + 1, ["a"])])
def test_a_folder_is_crowded_from_one_file_over_the_limit(number: int, found: list[str]) -> None:
    names = [Named(f"module_{n}", f"a/module_{n}.py") for n in range(number)]
    assert found == crowded([*names, Named("__init__", "a/__init__.py")])
