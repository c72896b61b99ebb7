"""A shell is idle where its prompt stands at the cursor; of all else its screen says nothing rather than wrong."""

import pytest

from kasmon.detection.reader import ScreenReading, read
from kasmon.detection.rules.catalog import shipped
from kasmon.detection.terminal_screen import cells, shown


def at_cursor(row: str, shell: str = "zsh") -> ScreenReading:
    """What is read where the cursor stands behind *row*."""
    chosen = shipped().rules(shell)
    assert chosen is not None
    return read(shown(["$ make", "done", row], cursor=(cells(row), 2)), chosen.rules)


@pytest.mark.parametrize(
    "prompt",
    [
        "$ ",
        "# ",
        "% ",
        "❯ ",
        "somebody@vm:~/work$ ",
        "root@vm:/srv# ",
        "somebody@vm ~/work % ",
        "somebody@vm ~/work> ",
        "[somebody@vm work]$ ",
        "(venv) somebody@vm:~$ ",
        "bash-5.2$ ",
        "sh-5.1# ",
        "~/work $ ",
        "/srv/app ❯ ",
        "(main) ~/work % ",
        "➜  work git:(main) ✗ ",
    ],
)
def test_a_prompt_at_the_cursor_is_idle(prompt: str) -> None:
    assert ("idle", "prompt") == (at_cursor(prompt).state, at_cursor(prompt).rule)


@pytest.mark.parametrize(
    "row",
    [
        "",
        "> ",
        ">>> ",
        "... ",
        "(Pdb) ",
        "(gdb) ",
        "mysql> ",
        "sqlite> ",
        "irb(main):001> ",
        "In [1]: ",
        ":",
        "--More--",
        "(END)",
        "Your name: ",
        "downloading 50% ",
        "cost: 5$ ",
        "quote> ",
        "heredoc> ",
        "dquote> ",
        "somebody@vm:~$ sleep 60",
        "Sun Nov 22 06:24:49 UTC 2026",
    ],
)
def test_a_row_that_is_no_shell_prompt_has_no_state(row: str) -> None:
    assert "unclear" == at_cursor(row).state


@pytest.mark.parametrize(
    ("row", "asking"),
    [
        ("Password: ", "auth"),
        ("[sudo] password for somebody: ", "auth"),
        ("somebody@vm's password: ", "auth"),
        ("Enter passphrase for key '/home/somebody/.ssh/id_ed25519': ", "auth"),
        ("Continue? [Y/n] ", "question"),
        ("Are you sure you want to continue connecting (yes/no/[fingerprint])? ", "question"),
        ("Proceed (y/n)? ", "question"),
    ],
)
def test_a_question_of_a_program_in_the_foreground_is_a_question(row: str, asking: str) -> None:
    assert ("asking", asking) == (at_cursor(row).state, at_cursor(row).asking)


def test_a_prompt_above_the_cursor_is_none_any_more_and_text_behind_one_is_a_draft() -> None:
    chosen = shipped().rules("bash")
    assert chosen is not None
    assert "unclear" == read(shown(["somebody@vm:~$ sleep 60", ""], cursor=(0, 1)), chosen.rules).state
    assert "unclear" == read(shown(["somebody@vm:~$ "], cursor=(0, 0)), chosen.rules).state
    assert "unclear" == read(shown(["somebody@vm:~$ "], cursor=(15, 0), cursor_visible=False), chosen.rules).state

    draft = at_cursor("somebody@vm:~$ git commit").composer
    assert draft is not None
    assert "git commit" == draft.draft
