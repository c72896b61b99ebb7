"""A screen's file is read strictly: what cannot be used is told with file, line, key and what is allowed."""

import msgspec
import pytest

from kasmon.detection.rules.file import parse
from kasmon.detection.rules.schema import ComposerRule, MenuRule
from kasmon.errors import ConfigError

GOOD = """\
program = "vim"

[[rule]]
name = "insert"
state = "working"
in = "bottom 1"
all = ['^-- INSERT --']

[[menu]]
name = "swap"
kind = "question"
in = "screen"
question = '^Swap file'
choice = '(?P<label>Open|Quit)'
row = true

[menu.answers]
allow = '^Open$'
"""


def test_a_file_needs_nothing_but_its_program() -> None:
    assert "vim" == parse('program = "vim"').file.program


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "why", "allowed"),
    [
        ('program = "vim"', "", None, "", "missing required field `program`", ()),
        ('"vim"', '"../vim"', 1, "program", "is not a program name", ()),
        ('"vim"', "7", 1, "program", "expected `str`, got `int`", ()),
        ('"vim"', '"vim"\nversion = "1"', 2, "version", "there is no such key", ("also", "composer", "menu")),
        ('"vim"', '"vim"\nversions = "9"', 2, "versions", "'9' is not a version bound", ()),
        ('"working"', '"busy"', 5, "rule[0].state", "'busy' is not a state", ("starting", "idle", "working")),
        ('"working"', '"idle|idle"', 5, "rule[0].state", "is not a state", ("unclear",)),
        (
            '"bottom 1"',
            '"bottom"',
            6,
            "rule[0].in",
            "the region 'bottom' is not defined",
            ("screen", "bottom N", "title"),
        ),
        ("all =", "al =", 7, "rule[0].al", "there is no such key", ("all", "any", "in", "none")),
        ("'^-- INSERT --'", "'(a+)+'", 7, "rule[0].all", "it repeats a group", ()),
        ("'^-- INSERT --'", "{ in = 'box', match = 'x' }", 7, "rule[0].all", "the region 'box' is not defined", ()),
        ("'^-- INSERT --'", "{ match = 'x', look = 'red' }", 7, "rule[0].all[0].look", "invalid enum value", ()),
        ('"question"\n', '"riddle"\n', 11, "menu[0].kind", "invalid enum value", ("permission", "question")),
        ("(?P<label>Open|Quit)", "Open|Quit", 14, "menu[0].choice", "has no group (?P<label>...)", ()),
        ("allow =", "permit =", 17, "menu[0].answers", "invalid enum value", ()),
        ("[[rule]]", "[[rule]", 3, "", "it is not valid TOML", ()),
        ("[[rule]]", f"x = {'9' * 5000}\n[[rule]]", None, "", "it is not valid TOML", ()),
        ('"insert"\n', '"insert"\nmenu = "open"\n', 5, "rule[0].menu", "the menu 'open' is not defined", ("swap",)),
        ("[[menu]]", '[[rule]]\nname = "insert"\nstate = "idle"\n[[menu]]', 10, "rule[1].name", "is defined twice", ()),
    ],
)
def test_a_fault_is_reported_with_its_place(
    old: str, new: str, line: int | None, key: str, why: str, allowed: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(GOOD.replace(old, new, 1), "vim.toml")

    error = caught.value
    assert ("vim.toml", line, key) == (error.file, error.line, error.key)
    assert why in error.why
    assert set(allowed) <= set(error.allowed)


@pytest.mark.parametrize(
    ("table", "kind", "no_pattern"),
    [
        ("[[menu]]", MenuRule, {"name", "area", "opens", "opens_it", "then"}),
        ("[composer]", ComposerRule, {"modes", "clear", "newline"}),
    ],
    ids=["menu", "composer"],
)
@pytest.mark.parametrize(
    ("source", "why"), [("(a+)+", "it repeats a group"), ("(a)?+", "it repeats a group"), ("(", "not a valid pattern")]
)
def test_no_pattern_is_used_that_was_not_checked(
    table: str, kind: type[msgspec.Struct], no_pattern: set[str], source: str, why: str
) -> None:
    """Also not one that a later version adds to the schema."""
    fields = [each.name for each in msgspec.structs.fields(kind) if each.type is str and each.name not in no_pattern]
    text = f"{GOOD}\n[composer]\nfirst = '^(?P<draft>.*)'\n"

    for field in fields:
        kept = "\n".join(line for line in text.split("\n") if not line.startswith(f"{field} ="))
        with pytest.raises(ConfigError, match=why) as caught:
            parse(kept.replace(table, f"{table}\n{field} = '{source}'"), "vim.toml")
        assert caught.value.key.endswith(f".{field}")


@pytest.mark.parametrize(("key", "group"), [("key", "key"), ("covers", "text"), ("entry", "text"), ("toggle", "on")])
def test_a_pattern_that_is_asked_for_a_group_has_it(key: str, group: str) -> None:
    with pytest.raises(ConfigError, match=rf"has no group \(\?P<{group}>"):
        parse(GOOD.replace("[[menu]]", f"[[menu]]\n{key} = '^x'"), "vim.toml")


def test_the_last_of_several_rules_is_found_by_its_line() -> None:
    text = GOOD + '\n[[rule]]\nname = "other"\nstate = "idel"\n'

    with pytest.raises(ConfigError, match=r"vim.toml:22 at 'rule\[1\].state'"):
        parse(text, "vim.toml")
