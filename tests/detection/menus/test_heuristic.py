"""A screen that stands still with its cursor in a list of choices is probably asking, in any language, without keys."""

import pytest

from kasmon.detection.menus.heuristic import MenuGuess, probably_asking
from kasmon.detection.terminal_screen import TerminalScreen, cells, shown
from kasmon.model.permission import Decision
from tests.support.detection.expected import reading_of, screen_of
from tests.support.detection.golden import Case, cases

CASES = list(cases())
UNLIKE = {
    "opencode": "its choices stand beside each other, and only colours tell which is marked",
    "kimi": "it marks its question as it marks a choice",
}
"""The agents whose dialogs no stranger could read, and why."""
PERMISSIONS = [
    case
    for case in CASES
    if case.expected.get("asking") == "permission" and reading_of(case).menu and case.agent not in UNLIKE
]
QUIET = [case for case in CASES if reading_of(case).composer and reading_of(case).state in ("idle", "working")]

CHINESE = """\
  Bash 命令

    rm -rf build

  是否继续？

❯ 1. 是
  2. 是，本次会话不再询问
  3. 否，告诉它该怎么做

按 Esc 取消"""
GERMAN = """\
╭────────────────────────────────────────────╮
│ Befehl ausführen?                          │
│                                            │
│   git push --force                         │
│                                            │
│   1) Ja                                    │
│ > 2) Ja, immer                             │
│   3) Nein                                  │
╰────────────────────────────────────────────╯"""
ARABIC = """\
هل تريد المتابعة؟

● 1. نعم
  2. نعم دائما
  3. لا"""
JAPANESE = """\
フォルダを信頼しますか？

▶ はい
  いいえ"""
RADIO = """\
Quelle couleur ?

  ○ rouge
  ● bleu
  ○ vert"""


def still(text: str, cursor: tuple[int, int] | None = None, *, visible: bool = True) -> MenuGuess | None:
    rows = text.split("\n")
    where = cursor or (cells(rows[-1]), len(rows) - 1)
    return probably_asking(shown(rows, cursor=where, cursor_visible=visible))


@pytest.mark.parametrize("visible", [True, False])
@pytest.mark.parametrize("text", [CHINESE, GERMAN, ARABIC, JAPANESE, RADIO])
def test_a_marked_choice_is_probably_a_question_in_any_language(text: str, visible: bool) -> None:
    found = still(f"{text}\n", visible=visible)
    question = next(row for row in text.split("\n") if row.strip(" │╭─╮"))

    assert found is not None
    assert "list" == found.sign
    assert question.strip(" │") in found.text


@pytest.mark.parametrize("mark", ["❯", "›", "●", ">", "▶", "→", "*"])
@pytest.mark.parametrize("number", ["1.", "1)", "[1]", "(1)", "1:", "1、"])
def test_any_mark_and_number_style_is_found(mark: str, number: str) -> None:
    text = f"Weiter?\n\n{mark} {number} Ja\n  {number.replace('1', '2')} Nein\n"

    assert still(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "Proceed? [y/N] ",
        "继续吗？ (y/n)",
        "Fortfahren? [J/n]: ",
        "Would you like to log in to Amp? [(y)es, (n)o]:",
        "Продолжить? (д/н) ".replace("д", "y").replace("н", "n"),
        "Overwrite it? (yes/no/all)? ",
        "متابعة؟ [y/n] ",
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
    ],
)
def test_letters_to_choose_from_at_the_cursor_are_probably_a_question(text: str) -> None:
    found = still(f"some output\n\n{text}")

    assert found is not None
    assert "keys" == found.sign


@pytest.mark.parametrize(
    "text",
    [
        "Password: ",
        "[sudo] password for ada: ",
        "Password for 'https://git.example': ",
        "Enter passphrase for key '/home/ada/.ssh/id_ed25519': ",
        "Enter PIN：",
        "Overwrite results? ",
        "覆盖吗？",
        "Press Enter to continue...",
        "Press any key",
        "Please press [ENTER] to go on.",
    ],
)
def test_a_question_right_before_the_cursor_on_the_last_row_is_probably_one(text: str) -> None:
    found = still(f"some output\n{text}")

    assert found is not None
    assert (text.strip(), "line") == (found.text, found.sign)
    assert still(f"{text}\nsome output") is None
    assert still(f"{text}\n") is None
    assert still(text, visible=False) is None


def test_numbers_need_a_mark_or_somebody_to_type_one_and_a_ground_of_its_own_is_a_mark() -> None:
    listed = "1) rouge\n2) bleu\n"
    assert still(f"{listed}Votre choix : ") is not None
    assert still(f"{listed}#? ") is not None
    assert still(listed) is None
    assert still(f"{listed}$ ") is None

    assert still("Weiter?\n\n  1. Ja\n\x1b[7m  2. Nein\x1b[0m\n  3. Nie\n", visible=False) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n" * 20,
        "The steps are:\n\n1. build\n2. test\n3. ship\n\nDone.\n\n❯ ",
        "- one\n- two\n- three\n\n$ ",
        "● I changed a file\n● and another one\n\n> ",
        "1. only one\n",
        "2. two\n4. four\n",
        "[1/7] building\n[2/7] testing\n",
        "12:01 start\n12:02 end\n",
        ">>> print(1)\n1\n>>> ",
        "> quoted\n> text\n",
        "root@here:~# ",
        "✓ 12 passed\n✗ 1 failed\n",
        "50% done (3/7)\n",
        "> what is this?",
        "$ ls what?",
        "❯ Press Enter to continue",
        "Wrong password, 2 tries left",
        "???",
    ],
)
def test_a_still_text_is_no_question(text: str) -> None:
    assert still(text) is None


def test_a_list_far_above_the_cursor_is_a_part_of_a_text() -> None:
    assert still("❯ 1. one\n  2. two\n" + "text\n" * 8 + "$ ") is None


@pytest.mark.parametrize("case", PERMISSIONS, ids=[case.id for case in PERMISSIONS])
def test_a_real_dialog_of_an_unknown_agent_is_probably_a_question(case: Case) -> None:
    assert probably_asking(screen_of(case)) is not None


@pytest.mark.parametrize("case", QUIET, ids=[case.id for case in QUIET])
def test_a_real_screen_of_an_idle_or_working_agent_is_no_question(case: Case) -> None:
    found = probably_asking(screen_of(case))

    assert found is None or "slash" in case.name  # a list of commands to choose from


def test_a_guess_has_no_keys() -> None:
    """All that kasmon offers then is to go there."""
    assert {"text", "sign"} == set(MenuGuess.__struct_fields__)
    assert not any(isinstance(getattr(MenuGuess, name, None), Decision) for name in dir(MenuGuess))


def test_a_row_of_a_thousand_columns_is_searched_quickly() -> None:
    for row in ("(" * 1000, "[y/" * 333, "1." * 500, "❯ " * 500, "[(a)a/" * 160, "pin press enter " * 70):
        assert probably_asking(TerminalScreen(shown([row] * 40).rows, cursor=(999, 39))) is None
