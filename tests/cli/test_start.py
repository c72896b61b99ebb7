"""How a kasmon process begins: quickly, without Textual's variables, and never with a screen where there is none."""

import subprocess
import sys

import pytest

from kasmon.__main__ import forget_textual, plain_grep, plain_ls, plain_run
from tests.support.cli.cli_runner import Cli

HEAVY = ["textual", "rich", "libtmux", "psutil", "watchfiles", "asyncio", "cyclopts", "pyte", "tomlkit"]


@pytest.mark.parametrize("words", ["ls", "ls --json", "ls --state asking,idle --wave=2", "grep --json --max 5 word"])
def test_a_plain_ls_or_grep_loads_nothing_heavy(kasmon: Cli, words: str) -> None:
    """A status bar asks every second; and half of a search's time would be the library's."""
    code = (
        f"import sys; sys.argv = ['kasmon', *{words.split()!r}]; from kasmon.__main__ import main; main();"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=kasmon.environment, capture_output=True, text=True, check=True
    )

    assert "[]\n" == done.stderr


def test_running_code_in_a_sandbox_loads_neither_the_library_nor_what_makes_sandboxes(kasmon: Cli) -> None:
    """It takes a millisecond inside; what is loaded for it is what one waits for."""
    code = (
        "import sys; sys.argv = ['kasmon', 'sandbox', 'run', 'nobody', 'true']; from kasmon.__main__ import main;"
        "code = main(); print(*sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], env=kasmon.environment, capture_output=True, text=True)

    heavy = {"cyclopts", "textual", "rich", "psutil", "tomlkit", "hashlib", "kasmon.supervisor.sessions.operations"}
    heavy |= {"kasmon.supervisor.sandboxes.operations", "kasmon.sandbox.managed.sandbox"}
    assert (3, set()) == (done.returncode, heavy & set(done.stdout.split()))
    assert "there is no session 'nobody'" in done.stderr


DAILY = ["answer", "ctx", "ls", "sessions", "show", "plan.commands", "send", "watch"]
"""What is called all day long, by people and by scripts."""


def test_daily_commands_load_no_terminal_and_look_at_no_process() -> None:
    """A run-time twin of the import contracts: what a shared module imports at its top, every command pays for."""
    code = (
        f"import sys, kasmon.cli.app\nimport {', '.join(f'kasmon.cli.{name}' for name in DAILY)}\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    heavy = {
        "textual",
        "libtmux",
        "psutil",
        "watchfiles",
        "pyte",
        "tomlkit",
        "kasmon.backends.tmux",
        "kasmon.host.structured.host",
    }
    assert set() == heavy & set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("", (None, None, False)),
        ("--json", (None, None, True)),
        ("--state asking,idle --wave 2", ("asking,idle", 2, False)),
        ("--wave=2 --state=asking --json", ("asking", 2, True)),
        ("--watch", None),
        ("--help", None),
        ("--state", None),
        ("--state --json", None),
        ("--wave -2", None),
        ("--wave=", None),
        ("--json=true", None),
        ("x", None),
    ],
)
def test_whatever_is_not_written_plainly_is_left_to_the_library(words: str, meant: object) -> None:
    assert meant == plain_ls(words.split())


@pytest.mark.parametrize("words", ["--wave 2", "--state asking", "--wave=2 --json", "--json --state=asking"])
def test_both_ways_of_reading_an_ls_say_the_same(kasmon: Cli, words: str) -> None:
    """`--no-such=` would be an error to both; an empty `--` only sends it the long way."""
    assert plain_ls(words.split()) is not None
    assert plain_ls([*words.split(), "--"]) is None
    assert kasmon("ls", *words.split()) == kasmon("ls", *words.split(), "--")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("word", ("word", None, False, False)),
        ("--json word", ("word", None, False, True)),
        ("-i --max=3 word", ("word", 3, True, False)),
        ("word -m 3 --ignore-case", ("word", 3, True, False)),
        ("", None),
        ("two words", None),
        ("-- word", None),
        ("-E word", None),
        ("word --session fix-auth", None),
        ("word -C 2", None),
        ("word --max", None),
        ("word --max -1", None),
        ("word --max 1 --max 2", None),
        (f"word --max {'9' * 5000}", None),
        ("word --json=true", None),
        ("--help", None),
    ],
)
def test_a_grep_that_is_not_written_plainly_is_left_to_the_library(words: str, meant: object) -> None:
    assert meant == plain_grep(words.split())


@pytest.mark.parametrize("words", ["nothing", "--json nothing", "--max 0 nothing"])
def test_both_ways_of_reading_a_grep_say_the_same(kasmon: Cli, words: str) -> None:
    assert plain_grep(words.split()) is not None
    assert plain_grep(["--context=1", *words.split()]) is None
    assert kasmon("grep", *words.split()) == kasmon("grep", "--context=1", *words.split())


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("lab true", ("lab", "true", "bash", False)),
        ("lab - --lang python", ("lab", "-", "python", False)),
        ("lab - --env python", ("lab", "-", "python", False)),
        ("--lang=node lab --json 1", ("lab", "1", "node", True)),
        ("--env=node lab --json 1", ("lab", "1", "node", True)),
        ("lab", None),
        ("lab true more", None),
        ("lab -c", None),
        ("lab -- -c", None),
        ("- true", None),
        ("lab true --lang ruby", None),
        ("lab true --env ruby", None),
        ("lab true --lang python --env python", None),
        ("lab true --env", None),
        ("lab true --timeout 5", None),
        ("lab true --json=true", None),
        ("--help", None),
    ],
)
def test_a_run_that_is_not_written_plainly_is_left_to_the_library(words: str, meant: object) -> None:
    assert meant == plain_run(words.split())


def test_the_language_has_one_name_in_the_help_and_its_old_name_cannot_be_given_beside_it(kasmon: Cli) -> None:
    shown = kasmon("sandbox", "run", "--help").out
    both = kasmon("sandbox", "run", "lab", "true", "--lang", "python", "--env", "python")

    assert ("--lang" in shown, "--env" in shown) == (True, False)
    assert (2, True) == (both.code, "--env is the old name of --lang" in both.err)


def test_a_help_entry_is_wrapped_once(kasmon: Cli) -> None:
    lines = [line for line in kasmon("--help", COLUMNS="80").out.splitlines() if line]

    assert "  adopt: Adopt a pane of your own tmux (kasmon ls --tmux lists them); kasmon" in lines
    assert "    never resizes, renames or ends it." in lines
    assert all(line[:2] == "  " and len(line) <= 80 for line in lines[lines.index("Commands:") + 1 :])


def test_a_code_keeps_every_letter_on_the_short_way() -> None:
    assert ("lab", "echo 'a=b' --json", "bash", False) == plain_run(["lab", "echo 'a=b' --json"])
    assert None is plain_run(["lab", ""])


def test_textuals_variables_are_dropped_but_for_two() -> None:
    """TEXTUAL_PRESS would press keys, TEXTUAL_DRIVER import code, TEXTUAL open connections."""
    given = [
        "TEXTUAL",
        "TEXTUAL_PRESS",
        "TEXTUAL_DRIVER",
        "TEXTUAL_SCREENSHOT",
        "TEXTUAL_THEME",
        "TEXTUAL_ANIMATIONS",
        "X",
    ]
    environment = dict.fromkeys(given, "x")

    forget_textual(environment)
    assert ["TEXTUAL_THEME", "TEXTUAL_ANIMATIONS", "X"] == list(environment)

    for_kasmons_own = dict.fromkeys(given, "x") | {"KASMON_DEV": "1"}
    forget_textual(for_kasmons_own)
    assert [*given, "KASMON_DEV"] == list(for_kasmons_own)


def test_without_a_terminal_the_dashboard_says_what_works_instead(kasmon: Cli) -> None:
    done = kasmon()

    assert (2, "") == (done.code, done.out)
    said = "kasmon: the dashboard cannot open here: this is not a terminal. `kasmon ls --watch` works anywhere.\n"
    assert said == done.err


INSTEAD = {
    "": ("the dashboard", "`kasmon ls --watch` works anywhere."),
    "demo": ("the demo", "`kasmon demo --headless 5` runs without a screen."),
}
"""A command that wants a terminal -> what it shows there, and what works without."""


@pytest.mark.parametrize(
    ("term", "told"), [("", "TERM is not set"), ("dumb", "TERM is dumb"), ("unknown", "TERM is unknown")]
)
@pytest.mark.parametrize("words", INSTEAD)
def test_a_terminal_that_cannot_draw_gets_a_sentence(kasmon: Cli, term: str, told: str, words: str) -> None:
    what, instead = INSTEAD[words]

    said = f"kasmon: {what} cannot open here: {told}, which cannot draw a screen. {instead}\r\n"
    assert (2, said) == kasmon.terminal(*words.split(), TERM=term)


def test_the_dashboard_opens_on_a_terminal_and_gives_it_back(kasmon: Cli) -> None:
    kasmon.new("fix-auth", "say hello")

    code, said = kasmon.terminal(typed=[("fix-auth", "q")], TEXTUAL_PRESS="x", TEXTUAL_DRIVER="no.such:Driver")

    assert 0 == code, said[-2000:]
    assert said.index("\x1b[?1049h") < said.index("fix-auth") < said.rindex("\x1b[?1049l")
    farewell = "1 agent is still running. Run `kasmon` to open the dashboard again."
    assert said.rindex("\x1b[?1049l") < said.index(farewell), "it is read after the dashboard is gone"
    assert "idle" == kasmon.json("wait", "fix-auth", "--for", "idle", "--timeout", "10")["sessions"][0]["state"]
