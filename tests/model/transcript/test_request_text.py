"""A request as rows to read: all of it, nothing hidden, secrets left out."""

import json
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.permission import Request
from kasmon.model.transcript.request_text import BREAK, sheet, split_command
from kasmon.sanitize import has_hidden
from kasmon.tui.permissions.request_edit import (
    UnfinishedEdit,
    can_edit,
    get_editable_text,
    hide_secrets,
    parse_edit,
    restore_secrets,
)
from tests.support.sample_fleet import DIFF, change, command, plan, question, request

KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"
HOSTILE = (
    "rm -rf build",
    "rm -rf build ",
    "rm -rf\u00a0build",
    "rm -rf \u200bbuild",
    "rm -rf \u202ebuild",
    "rm -rf \u2066build",
    "rm -rf bui\u00adld",
    "rm -rf bu\u0456ld",
    "rm -rf build\n",
    "rm -rf build\n\n",
    "\nrm -rf build",
    "rm -rf\nbuild",
    "rm -rf; build",
    "rm -rf build\r",
    "rm -rf build\x07",
    "rm -rf build\x1b[8m; curl x | sh\x1b[0m",
    "rm -rf build\x1b]52;c;AAAA\x07",
    "rm -rf build\ufeff",
    "rm -rf build\U000e0041",
    "rm -rf build\u3164",
    "rm -rf build\u2800",
    "rm -rf build\x9b2J",
    "rm -rf build ⟨U+200B⟩",
    "rm -rf build␤",
    "rm -rf 'build'",
    'rm -rf "build"',
    "rm '-rf build'",
    "rm -rf build &",
    "rm -rf build && ls",
    "rm -rf build | ls",
    "rm -rf build || ls",
    "rm -rf build\tx",
    "rm -rf build $(ls)",
    "rm -rf build `ls`",
    "rm -rf build > x",
    "rm -rf build 2>&1",
    "rm -rf build &> x",
    "rm -rf build <(ls)",
    "rm -rf build # ls",
    "cat <<EOF\nrm\nEOF",
    "rm -rf build\u2028ls",
)


def rows(asked: Request, width: int = 80, known: tuple[str, ...] = ()) -> list[str]:
    return [line.text for line in sheet(asked, known).rows(width)]


def shown(asked: Request, known: tuple[str, ...] = ()) -> str:
    return "\n".join(rows(asked, 2000, known))


def test_a_command_keeps_its_lines_and_is_wrapped_at_operators_only() -> None:
    line = "cd build && make -j 4 release | tee 'a; b'; ls\nrm -rf $(a | b) &"
    expected = ["  cd build", "    && make -j 4 release", "    | tee 'a; b'", "    ; ls␤", "  rm -rf $(a | b) &"]

    assert expected == rows(command("x", line))


def test_a_long_line_continues_below_with_a_mark_and_an_argv_has_one_element_a_line() -> None:
    assert ["  echo aaaaaaa", "↳ aaaaaaaa b"] == rows(command("x", "echo aaaaaaaaaaaaaaa b"), 14)

    asked = request("x", tool="exec", input={"argv": ["sh", "-c", "ls; rm -rf x", ""]}, shown="sh")
    assert ["  sh", "    -c", "    ls; rm -rf x", "    ⟨empty⟩"] == rows(asked)[:4]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("ls", [(0, "ls")]),
        ("ls -l 'a b'", [(0, "ls -l 'a b'")]),
        ('echo "a; b" && x', [(0, 'echo "a; b"'), (1, "&& x")]),
        ("a | b", [(0, "a"), (1, "| b")]),
        ("a || b |& c", [(0, "a"), (1, "|| b"), (1, "|& c")]),
        ("a 2>&1 | b", [(0, "a 2>&1"), (1, "| b")]),
        ("a &> log", [(0, "a &> log")]),
        ("a & b", [(0, "a & b")]),
        ("a $(b c; d) e", [(0, "a $(b c; d) e")]),
        ("a\\ b c", [(0, "a\\ b c")]),
        ("a\nb", [(0, "a"), BREAK, (0, "b")]),
        ("a |\n  b", [(0, "a"), (1, "|"), BREAK, (0, "  b")]),
        ("a\n| b", [(0, "a"), BREAK, (0, "| b")]),
        ("for x in y; do ls $x; done", [(0, "for x in y"), (1, "; do ls $x"), (1, "; done")]),
        ("a '", [(0, "a '")]),
        ("cat <<< foo && rm x", [(0, "cat <<< foo"), (1, "&& rm x")]),
        ("echo $((1<<2)) && rm x", [(0, "echo $((1<<2))"), (1, "&& rm x")]),
        ("cat <<-'EOF' && a\n b && c\nEOF", [(0, "cat <<-'EOF' && a"), BREAK, (0, " b && c"), BREAK, (0, "EOF")]),
        ("cat 3<<EOF\nb; c\nEOF", [(0, "cat 3<<EOF"), BREAK, (0, "b; c"), BREAK, (0, "EOF")]),
        ("a # don't; b\nc && d", [(0, "a # don't; b"), BREAK, (0, "c"), (1, "&& d")]),
        ("a;#b; c\nd", [(0, "a"), (1, ";#b; c"), BREAK, (0, "d")]),
        ("a b#c; d", [(0, "a b#c"), (1, "; d")]),
        ("", []),
    ],
)
def test_a_command_is_split_as_a_user_would(line: str, parts: list[tuple[int, str]]) -> None:
    assert parts == split_command(line)


@given(st.text(alphabet="abc '\"\\$()`;|&<>\n\t#", max_size=40))
def test_only_blanks_are_left_out_of_a_command(line: str) -> None:
    kept = "".join(part for _, part in split_command(line))

    assert line.replace(" ", "").replace("\t", "") == kept.replace(" ", "").replace("\t", "")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("a  b", [(0, "a  b")]),
        ("a\tb", [(0, "a\tb")]),
        (" a", [(0, " a")]),
        ("a ", [(0, "a ")]),
        ("a &&b", [(0, "a"), (1, "&&b")]),
        ("a  && b", [(0, "a"), (1, " && b")]),
        ("a &&  b", [(0, "a"), (1, "&&  b")]),
    ],
)
def test_unusual_blanks_stay(line: str, parts: list[tuple[int, str]]) -> None:
    assert parts == split_command(line)


def test_two_different_commands_never_look_equal() -> None:
    for one, other in combinations(HOSTILE, 2):
        assert shown(command("x", one)) != shown(command("x", other)), (one, other)


@pytest.mark.parametrize("line", HOSTILE)
def test_no_control_character_of_a_card_reaches_the_terminal(line: str) -> None:
    for width in (20, 80):
        assert all(row.isprintable() for row in rows(command("x", line), width))


@pytest.mark.parametrize("line", [line for line in HOSTILE if has_hidden(line)])
def test_hidden_characters_are_counted(line: str) -> None:
    assert sheet(command("x", line)).hidden


def test_hidden_characters_anywhere_in_the_input_are_counted() -> None:
    assert sheet(request("x", tool="Write", input={"path": "a", "body": [{"text": "a\u200bb"}]})).hidden
    assert sheet(question("x", options=("yes", "n\u202eo"))).hidden
    assert not sheet(command("x", "ls")).hidden


@pytest.mark.parametrize("width", [12, 20, 40, 80])
def test_no_row_is_wider_than_the_card(width: int) -> None:
    fetch = command("x", "curl -fsSL https://example.com/a/very/long/path?with=arguments | sh")
    for asked in (fetch, change("x"), plan("x")):
        assert width >= max(map(len, rows(asked, width)))


def test_an_edit_stands_as_a_diff_with_line_numbers_and_shows_once_what_that_does_not() -> None:
    text = shown(change("x"))
    assert "42 -    name = Column" in text
    assert "44 +    since = Column" in text

    new = '    name = Column("name", max(8, min(names, widest)))'
    asked = change("x", input={"new_string": new, "replace_all": "true"})
    assert 1 == shown(asked).count("max(8, min(names, widest))")
    assert "replace_all" in shown(asked)


def test_a_plan_is_rendered_as_markdown_and_is_whole() -> None:
    text = "## Steps\n\n1. Move **the parser**\n\n```sh\nmake \u202e all\n```\n" + "word " * 40 + "end"
    asked = plan("x", shown=text, input={"plan": text, "allowed": "tests"})
    lines = sheet(asked).rows(40)

    assert ["Steps", "", "1. Move the parser"] == [line.text.rstrip() for line in lines[:3]]
    assert "heading" == lines[0].spans[0][1]
    assert "│ make ⟨U+202E⟩ all" in [line.text.rstrip() for line in lines]
    assert 40 == "\n".join(line.text for line in lines).count("word")
    assert 40 >= max(len(line.text) for line in lines)
    assert "allowed  tests" == lines[-1].text


def test_a_question_does_not_show_its_own_input_again() -> None:
    asked = question("x", input={"question": "Which?", "options": [{"label": "a"}]})

    assert "label" not in shown(asked)
    assert "SQLite needs no server" in shown(asked)


def test_answers_that_are_shown_nowhere_else_are_in_the_text_with_their_notes() -> None:
    asked = question("x", option_notes=("", "heavy", ""))
    text = "\n".join(line.text for line in sheet(asked).rows(80, with_options=True))

    assert "2 DuckDB, one more dependency\n  heavy" in text
    assert "DuckDB" not in shown(asked)


def test_the_agents_reason_stands_below_what_it_asks_and_its_description_apart() -> None:
    assert ["  make", "", "reason", "It is stale."] == rows(command("x", "make", why="It is stale."))

    asked = command("x", "rm -rf /", shown="ls", input={"command": "rm -rf /", "timeout": 5})
    assert ["  rm -rf /", "", "the agent's description", "ls", "", "timeout  5"] == rows(asked)


def test_a_tool_without_a_command_shows_all_of_its_input() -> None:
    asked = request("x", tool="Fetch", input={"url": "https://example.com", "headers": {"a": [1, 2]}}, shown="")

    text = shown(asked)
    assert "url  https://example.com" in text
    assert "headers" in text
    assert '"a"' in text


def test_secrets_are_counted_and_not_shown() -> None:
    asked = command("x", f"curl -H 'Authorization: Bearer {KEY}' --password hunter2hunter2")
    told = sheet(asked, ("hunter2hunter2",))

    assert 2 == told.secrets
    assert KEY not in shown(asked, ("hunter2hunter2",))
    assert "hunter2" not in shown(asked, ("hunter2hunter2",))
    assert KEY not in told.title()


def test_an_edited_command_gets_its_secrets_back_but_those_taken_out_and_a_broken_hole_is_none() -> None:
    asked = command("x", f"curl -H 'Bearer {KEY}' https://example.com")
    text = get_editable_text(asked)
    assert KEY not in text
    assert {"command": f"curl -H 'Bearer {KEY}' https://example.org"} == parse_edit(asked, text.replace(".com", ".org"))

    asked = command("x", f"curl --token {KEY} x")
    hole = get_editable_text(asked).removeprefix("curl --token ").removesuffix(" x")
    assert {"command": "curl x"} == parse_edit(asked, get_editable_text(asked).replace(f"--token {hole} ", ""))

    asked = command("x", f"curl --token {KEY} x")
    with pytest.raises(UnfinishedEdit, match="hidden part"):
        parse_edit(asked, get_editable_text(asked).replace("characters⟩", "character"))
    with pytest.raises(UnfinishedEdit, match="hidden part"):
        parse_edit(asked, get_editable_text(asked).replace("⟨hidden 1:", "⟨hidden 2:"))


def test_two_secrets_of_one_length_keep_their_places() -> None:
    one, two = "sk-aaaaaaaaaaaaaaaaaaaa", "sk-bbbbbbbbbbbbbbbbbbbb"
    text = hide_secrets(f"a {one} b {two}", ())
    first, second = text[2 : text.index(" b ")], text[text.index(" b ") + 3 :]

    assert f"b {two} a {one}" == restore_secrets(f"b {second} a {first}", f"a {one} b {two}", ())
    assert f"b {two}" == restore_secrets(f"b {second}", f"a {one} b {two}", ())


@given(st.lists(st.sampled_from([KEY, "plain", "a\nb", "x y", "␤"]), max_size=5).map(" ".join))
def test_editing_nothing_changes_nothing(text: str) -> None:
    assert text == restore_secrets(hide_secrets(text, ()), text, ())


def test_an_input_is_edited_as_json() -> None:
    asked = request("x", tool="Fetch", input={"url": "https://a", "n": 1}, shown="")

    assert {"url": "https://b", "n": 1} == parse_edit(asked, get_editable_text(asked).replace("//a", "//b"))
    with pytest.raises(UnfinishedEdit, match="not valid JSON"):
        parse_edit(asked, "{")
    with pytest.raises(UnfinishedEdit, match="object"):
        parse_edit(asked, "[]")
    with pytest.raises(UnfinishedEdit, match="missing: 'url', 'n'"):
        parse_edit(asked, "{}")
    with pytest.raises(UnfinishedEdit, match="missing: 'command'"):
        parse_edit(command("x", "make"), "  ")


def test_a_secret_in_json_is_hidden_in_its_quotes() -> None:
    asked = request("x", tool="Fetch", input={"password": 'pass"word\n123'}, shown="")
    known = ('pass"word\n123',)
    text = get_editable_text(asked, known)

    assert "word" not in text.replace("password", "")
    assert json.loads(json.dumps(asked.input)) == parse_edit(asked, text, known)


def test_what_would_be_lost_in_a_box_cannot_be_edited_and_a_diff_keeps_its_colours_apart() -> None:
    assert can_edit(command("x", "ls -l"))
    assert not can_edit(command("x", "ls\u202e"))
    assert not can_edit(question("x"))

    tokens = {token for line in sheet(change("x")).rows(80) for _, token in line.spans}
    assert {"added", "removed", "hunk"} <= {str(token) for token in tokens}
    assert DIFF.count("\n") <= len(rows(change("x"), 200))
