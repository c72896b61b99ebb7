"""The script in a prompt: its steps, and where a conversation stands in it."""

import pytest

from tests.support.model_stub.script import OVER, PLAIN, By, Message, ScriptError, Step, next_turn, place, turns

SCRIPT = "label %% say one %% bash touch x %% say two"
PROMPT = Message(By.USER, SCRIPT)
CALL, RESULT, SPOKEN = Message(By.CALL, "Bash"), Message(By.RESULT, "out"), Message(By.MODEL, "one")


def test_a_tool_ends_a_turn_and_one_with_a_plus_is_called_in_the_turn_before() -> None:
    assert [(Step("say", "one"), Step("bash", "touch x")), (Step("say", "two"),)] == turns(SCRIPT)
    assert [(Step("bash", "a"), Step("bash", "b")), (Step("say", "c"),)] == turns("x %% bash a %% +bash b %% say c")


def test_what_a_client_puts_behind_the_end_is_no_part_of_the_script_and_an_unknown_verb_is_an_error() -> None:
    assert [(Step("say", "one"),)] == turns("x %% say one %% end\n<reminder> %% say two")

    with pytest.raises(ScriptError, match="'sya' is no verb"):
        turns("x %% sya hello")


def test_a_prompt_without_a_script_gets_a_plain_answer_and_the_result_of_a_tool_the_next_turn() -> None:
    assert PLAIN == next_turn(place([Message(By.USER, "hello")]))
    assert (Step("say", "two"),) == next_turn(place([PROMPT, SPOKEN, CALL, RESULT]))


def test_parallel_calls_are_one_turn() -> None:
    both = Message(By.USER, "x %% bash a %% +bash b %% say c")

    assert (Step("say", "c"),) == next_turn(place([both, CALL, CALL, RESULT, RESULT]))
    assert ("out", "out") == place([both, CALL, CALL, RESULT, RESULT]).results


def test_a_script_that_ends_with_a_tool_says_so_and_a_prompt_without_one_ends_the_one_before() -> None:
    assert OVER == next_turn(place([Message(By.USER, "x %% bash a"), CALL, RESULT]))
    assert PLAIN == next_turn(place([PROMPT, SPOKEN, CALL, RESULT, SPOKEN, Message(By.USER, "thanks")]))


def test_the_latest_script_counts() -> None:
    at = place([PROMPT, SPOKEN, CALL, RESULT, SPOKEN, Message(By.USER, "again %% say three")])

    assert (Step("say", "three"),) == next_turn(at)
    assert () == at.results


def test_a_prompt_steered_into_a_turn_continues_the_script() -> None:
    at = place([PROMPT, SPOKEN, CALL, RESULT, Message(By.USER, "hurry")])

    assert (Step("say", "two"),) == next_turn(at)
    assert "hurry" == at.prompt


@pytest.mark.parametrize("note", ["[Request interrupted by user for tool use]", "<turn_aborted> it was"])
def test_an_interrupt_ends_the_script(note: str) -> None:
    talk = [PROMPT, SPOKEN, CALL, RESULT, Message(By.USER, note), Message(By.USER, "go on")]

    assert PLAIN == next_turn(place(talk))


def test_text_that_a_client_adds_in_the_users_name_is_no_prompt() -> None:
    assert SCRIPT == place([PROMPT, Message(By.USER, "<environment_context>root</environment_context>")]).prompt


def test_the_last_of_several_prompts_in_one_message_counts() -> None:
    at = place([Message(By.USER, "go %% fail 400\ngo %% say still here")])

    assert (Step("say", "still here"),) == next_turn(at)
