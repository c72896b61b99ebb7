"""A prompt with fields is no format: a field is one word in braces, and its text is inserted as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.config import parse
from kasmon.config.prompt_template import fill_prompt, prompt_fields
from kasmon.errors import ConfigError, UsageError

WORDS = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]*\Z")


@given(parts=st.lists(st.tuples(st.text(), WORDS, st.text(min_size=1).filter(str.strip))), last=st.text())
def test_each_field_is_replaced_by_its_text_and_the_rest_is_unchanged(
    parts: list[tuple[str, str, str]], last: str
) -> None:
    def escaped(text: str) -> str:
        return text.replace("{", "{{").replace("}", "}}")

    values = {name: value for _, name, value in parts}
    text = "".join(f"{escaped(before)}{{{name}}}" for before, name, _ in parts) + escaped(last)

    assert tuple(dict.fromkeys(name for _, name, _ in parts)) == prompt_fields(text)
    assert "".join(before + values[name] for before, name, _ in parts) + last == fill_prompt(text, values)


NO_FIELDS = ["{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{0}", "{}", "{ a }", "{a", "a}", "{{a}", "{{{a", "{a-b}", "{é}"]


@pytest.mark.parametrize("text", NO_FIELDS)
def test_other_format_syntax_is_refused(text: str) -> None:
    for function in (prompt_fields, lambda text: fill_prompt(text, {"a": "x", "a.b": "x", "": "x", "0": "x"})):
        with pytest.raises(UsageError, match="belongs to no field"):
            function(f"Fix {text} now")


@pytest.mark.parametrize("text", NO_FIELDS)
def test_an_invalid_prompt_in_the_config_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"[templates.fix]\ntags = ['x']\nprompt = 'Fix {text} now'\n")

    assert (3, "templates.fix.prompt") == (caught.value.line, caught.value.key)
    assert "stand for braces" in str(caught.value)


def test_a_text_with_braces_is_not_expanded_again() -> None:
    assert "{b} {a.b} {{" == fill_prompt("{a} {b}", {"a": "{b}", "b": "{a.b} {{"})


@pytest.mark.parametrize("values", [{}, {"issue": ""}, {"issue": " \n"}, {"other": "x"}])
def test_a_field_without_a_text_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="'issue' has no value"):
        fill_prompt("Fix {issue}", values)
