"""The commit message in an agent's answer."""

import pytest

from kasmon.supervisor.finish.commit_message import PROMPT, parse_message

FOUND = "Fix the login\n\nIt failed:\n  twice."
TWO = "● BEGIN COMMIT MESSAGE\n  First\n  END COMMIT MESSAGE\n● BEGIN COMMIT MESSAGE\n  Second\n  END COMMIT MESSAGE"
ANSWER = "Sure.\n\nBEGIN COMMIT MESSAGE\nFix the login\n\nIt failed:\n  twice.\nEND COMMIT MESSAGE\nDone."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ANSWER, FOUND),
        (f"> {PROMPT}\n\n" + "\n".join(f"  {line}" for line in ANSWER.splitlines()), FOUND),
        (TWO, "Second"),
        ("BEGIN COMMIT MESSAGE\nA \x1b[31mred\x1b[0m one\nEND COMMIT MESSAGE", "A red one"),
        (PROMPT, ""),
        ("BEGIN COMMIT MESSAGE\nnever ended", ""),
    ],
)
def test_it_is_the_last_one_that_is_marked(text: str, message: str) -> None:
    assert message == parse_message(text)
