"""What every error says reads like a sentence, whatever the cause in it says."""

import pytest

from kasmon.errors import GitError


@pytest.mark.parametrize(
    ("cause", "ending"),
    [
        ("it is gone", "it is gone."),
        ("It is gone.", "It is gone."),
        ("really?", "really?"),
        ("Stop!", "Stop!"),
        ("and so on...", "and so on..."),
        ("and so on…", "and so on…"),
        ("", ": ."),
    ],
)
def test_a_cause_that_ends_with_a_mark_gets_no_second_one(cause: str, ending: str) -> None:
    error = GitError("look", cause, hint="Look.")

    assert error.message.endswith(ending)
    assert f"{error.message} Look." == str(error)
    assert cause == error.why
