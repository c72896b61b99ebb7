"""The commit message in an agent's answer."""

import pytest

from kasmon.host.journal.redaction import Redactor
from kasmon.model.review.comments import build_prompt as build_comments
from kasmon.repository.branch import PullRequest
from kasmon.supervisor.finish import feedback
from kasmon.supervisor.finish.commit_message import PROMPT, is_of_kasmon, parse_message

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
def test_the_last_matching_message_is_marked(text: str, message: str) -> None:
    assert message == parse_message(text)


def test_prompts_of_kasmon_are_distinguished_from_those_of_the_user() -> None:
    request = PullRequest(number=7, url="u", branch="b", base="main")
    fix = feedback.build_prompt(request, feedback.Feedback([("Log", "x")], []), Redactor(()), pushes=True)
    conflict = "The rebase of your branch kasmon/fix with main has conflicts in:"

    written = (PROMPT, build_comments([]) + "\n\n", fix, f"Round 2 of 5. {fix}", conflict)
    assert [True] * 5 == [is_of_kasmon(text) for text in written]
    assert [False, False] == [is_of_kasmon(text) for text in ("Of all reviews, read the last.", "The merge fails")]
