"""How a kasmon process begins: quickly, without Textual's variables, and never with a screen where there is none."""

import gc
import inspect
import shlex
import subprocess
import sys

import pytest

from kasmon.__main__ import forget_textual
from kasmon.cli.app import build
from kasmon.cli.arguments import parse, signature_of
from kasmon.cli.commands import COMMANDS, DEFAULT, find, load, run
from kasmon.cli.completion import PARAMETERS
from tests.support.cli.cli_runner import Cli
from tests.support.reference_pages import HELP_FILE, command_help, command_parameters

HEAVY = ["textual", "rich", "libtmux", "psutil", "watchfiles", "asyncio", "cyclopts", "pyte", "tomlkit"]


QUICK = (
    *("--version", "--help", "ls", "ls --json", "ls --state asking,idle --wave=2", "grep --json --max 5 word", "inbox"),
    *("show fix-auth", "read fix-auth", "send fix-auth more", "wait fix-auth --for idle,working", "__complete show f"),
    *("answer nobody-1 allow --digest 0", "__complete config ui.th", "__complete new --agent cl"),
    *("explain fix-auth", "new more -- cat", "interrupt fix-auth", "stop fix-auth", "restart ended", "rm ended"),
    *("stop --all --yes", "send --to state=idle more", "task result --json", "task prepare --json"),
)
"""Commands that people and scripts wait for many times a day."""


@pytest.mark.parametrize("words", QUICK)
def test_a_quick_command_loads_nothing_heavy(kasmon: Cli, words: str) -> None:
    """A status bar asks every second; and half of the time of the others would be the libraries'."""
    if "fix-auth" in words or "more" in words:
        kasmon.new("fix-auth", "say hello")
    if "ended" in words:
        kasmon.new("ended", "say hello")
        kasmon("stop", "ended")
    code = (
        f"import sys; sys.argv = ['kasmon', *{words.split()!r}]; from kasmon.__main__ import main; main();"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=kasmon.environment, capture_output=True, text=True, check=True
    )

    assert "[]" == done.stderr.splitlines()[-1]


UNUSED = {
    "ls": {"shutil", "json", "socket", "threading", "kasmon.host.journal.redaction", "kasmon.agents.catalog"},
    "inbox": {"shutil", "json", "socket", "threading", "kasmon.host.journal.redaction", "kasmon.agents.catalog"},
    "read fix-auth": {"shutil", "json", "kasmon.host.journal.redaction", "kasmon.agents.catalog"},
    "show fix-auth": {"subprocess", "tempfile", "json", "kasmon.host.journal.redaction", "tomllib"},
    "explain fix-auth": {"subprocess", "tempfile", "shutil", "json", "kasmon.host.journal.redaction", "tomllib"},
    "send fix-auth more": {"subprocess", "shutil", "json", "kasmon.host.journal.redaction", "tomllib"},
    "stop fix-auth": {"subprocess", "shutil", "json", "kasmon.host.journal.redaction", "tomllib"},
    "undo fix-auth": {"json", "socket", "kasmon.supervisor.machines.link_client"},
    "task offer --json": {"kasmon.supervisor.plans.machines.task_work", "kasmon.supervisor.plans.peers.context"},
    "show fix-auth --files": {"kasmon.supervisor.machines.link_client"},
    "comments fix-auth": {"kasmon.supervisor.machines.link_client"},
    "new more -- cat": {"shutil", "kasmon.host.journal.session_log", "kasmon.backends.project_trust.claude"},
}
"""Command -> what it does not need, and was loaded for it once: each takes 1 to 100 ms."""


@pytest.mark.parametrize("words", UNUSED)
def test_a_command_loads_nothing_that_only_others_need(kasmon: Cli, words: str) -> None:
    kasmon.new("fix-auth", "say hello")
    code = (
        f"import sys; sys.argv = ['kasmon', *{words.split()!r}]; from kasmon.__main__ import main; main();"
        f"print(sorted({UNUSED[words]!r} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=kasmon.environment, capture_output=True, text=True, check=True
    )

    assert "[]" == done.stderr.splitlines()[-1]


def test_a_frequent_command_reads_no_file_of_an_agent(kasmon: Cli) -> None:
    (kasmon.paths.agents / "parrot").mkdir(parents=True)
    (kasmon.paths.agents / "parrot" / "profile.toml").write_text('title = "Parrot"')
    kasmon.new("fix-auth", "say hello")
    for words in ("--version", "ls", "ls --json", "inbox"):
        code = (
            "import sys\nopened = []\n"
            "sys.addaudithook(lambda name, rest: opened.append(str(rest[0])) if name == 'open' else None)\n"
            f"sys.argv = ['kasmon', *{words.split()!r}]\nfrom kasmon.__main__ import main\nmain()\n"
            "print([each for each in opened if 'agents' in each and each.endswith('.toml')], file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], env=kasmon.environment, capture_output=True, text=True, check=True
        )

        assert "[]" == done.stderr.splitlines()[-1], words


def test_running_code_in_a_sandbox_loads_neither_the_library_nor_the_code_that_creates_sandboxes(kasmon: Cli) -> None:
    """It takes a millisecond inside; what is loaded for it is what one waits for."""
    code = (
        "import sys; sys.argv = ['kasmon', 'sandbox', 'run', 'nobody', 'true']; from kasmon.__main__ import main;"
        "code = main(); print(*sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], env=kasmon.environment, capture_output=True, text=True)

    heavy = {
        "cyclopts",
        "textual",
        "rich",
        "psutil",
        "tomlkit",
        "hashlib",
        "kasmon.supervisor.sessions.session_operations",
    }
    heavy |= {"kasmon.supervisor.sandboxes.sandbox_operations", "kasmon.sandbox.managed.sandbox"}
    assert (3, set()) == (done.returncode, heavy & set(done.stdout.split()))
    assert "there is no session 'nobody'" in done.stderr


def test_a_session_on_a_running_fork_server_starts_without_libraries_that_only_the_first_one_needs(
    kasmon: Cli,
) -> None:
    kasmon.new("first", "say hello")
    code = (
        "import sys; sys.argv = ['kasmon', 'new', 'second', '--agent', 'scripted', '--mode', 'sdk'];"
        "from kasmon.__main__ import main; main(); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=kasmon.environment, capture_output=True, text=True, check=True
    )

    unused = {
        "_hashlib",
        "tempfile",
        "subprocess",
        "tomllib",
        "kasmon.store.rules",
        "kasmon.backends.project_trust.claude",
    }
    assert set() == unused & set(done.stdout.split())


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


PLAIN = {
    "ls": {},
    "ls --json": {"wants_json": True},
    "ls --state asking,idle --wave 2": {"state": "asking,idle", "wave": 2},
    "ls --wave=2 --state=asking --json": {"state": "asking", "wave": 2, "wants_json": True},
    "ls --watch": {"watch": True},
    "ls --": {},
    "grep word": {"pattern": "word"},
    "grep --json word": {"pattern": "word", "wants_json": True},
    "grep -i --max=3 word": {"pattern": "word", "max_": 3, "ignore_case": True},
    "grep word -m 3 --ignore-case": {"pattern": "word", "max_": 3, "ignore_case": True},
    "grep -- -word": {"pattern": "-word"},
    "grep word --session a --session b": {"pattern": "word", "session": ["a", "b"]},
    "sandbox run lab true": {"name": "lab", "code": "true"},
    "sandbox run lab - --lang python": {"name": "lab", "code": "-", "lang": "python"},
    "sandbox run lab - --env python": {"name": "lab", "code": "-", "env": "python"},
    "sandbox run --lang=node lab --json 1": {"name": "lab", "code": "1", "lang": "node", "wants_json": True},
    "sandbox run --env=node lab --json 1": {"name": "lab", "code": "1", "env": "node", "wants_json": True},
    "sandbox run lab 'a=b --json' --timeout 0.5": {"name": "lab", "code": "a=b --json", "timeout": 0.5},
    "sandbox forward lab 8080 --at 0": {"name": "lab", "port": 8080, "at": 0},
    "sandbox image build --size max": {"size": ["max"]},
    "new x --env A --env B=c --in=y -- sh -c true": {
        "name": "x",
        "argv": ("sh", "-c", "true"),
        "env": ["A", "B=c"],
        "beside": "y",
    },
    "wait a b --for idle,ended --timeout 5 --any": {
        "sessions": ("a", "b"),
        "for_": "idle,ended",
        "timeout": 5.0,
        "any_": True,
    },
    "send a - --when idle": {"words": ("a", "-"), "when": "idle"},
    "plan clean p --ignored x": {"wanted": "p", "ignored": ["x"]},
}
"""Commands as they are mostly written, and the arguments that their function gets."""


@pytest.mark.parametrize("line", PLAIN)
def test_both_parsers_of_a_command_agree(line: str) -> None:
    name, words = find(shlex.split(line))
    command = load(COMMANDS[name])
    parsed = parse(command, words)
    _, library, _ = build(name.partition(" ")[0]).parse_args(shlex.split(line), exit_on_error=False, print_error=False)

    assert parsed is not None
    assert PLAIN[line] == inspect.signature(command).bind(*parsed[0], **parsed[1]).arguments
    assert PLAIN[line] == library.arguments


@pytest.mark.parametrize(
    "line",
    [
        *("ls --help", "ls --state", "ls --state --json", "ls --wave -2", "ls --wave=", "ls --json=true", "ls x"),
        *("ls --wave 1 --wave 2", "grep", "grep two words", "grep word --max", "grep word --max -1", "grep --help"),
        *("grep word --max 1 --max 2", "grep word --json=true", f"grep word --max {'9' * 5000}", "grep -im word"),
        *("sandbox run lab", "sandbox run lab true more", "sandbox run lab -c", "sandbox run - true"),
        *("sandbox run lab true --lang ruby", "sandbox run lab true --env ruby", "sandbox run lab true --env"),
        *("sandbox run lab ''", "sandbox run lab true --json=true", "sandbox run lab true --timeout 0"),
        *("sandbox run --help", "sandbox forward lab 65536", "sandbox forward lab 0", "wait x", "show", "show -x"),
    ],
)
def test_any_complex_command_line_is_left_to_the_library(line: str) -> None:
    name, words = find(shlex.split(line))

    assert None is parse(load(COMMANDS[name]), words)


@pytest.mark.parametrize("line", ["mcp", "mcp --unknown"])
def test_the_garbage_collector_is_off_only_while_a_command_is_loaded(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def command() -> int:
        seen.append(gc.isenabled())
        return 0

    monkeypatch.setattr("kasmon.cli.mcp.mcp", command)
    monkeypatch.setattr("kasmon.cli.app.run", lambda *_: command())
    gc.disable()
    try:
        assert 0 == run(shlex.split(line))
    finally:
        gc.enable()
    assert [True] == seen


def test_the_stored_help_and_parameters_of_completion_are_those_of_the_commands() -> None:
    assert HELP_FILE.read_text("utf-8") == command_help(), "run `make pages`"
    assert HELP_FILE.read_text("utf-8").isascii()
    assert PARAMETERS.read_text("utf-8") == command_parameters(), "run `make pages`"


def test_every_option_and_argument_has_a_help_text() -> None:
    without = []
    for name, function in {"": DEFAULT, **COMMANDS}.items():
        signature = signature_of(load(function))
        rest = [signature.rest] if signature.rest else []
        arguments = [*signature.words, *rest, *signature.options.values()]
        without += [f"{name} {each.name}" for each in arguments if not each.arg.help]

    assert [] == without


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("new", "`kasmon new` requires NAME. See `kasmon new --help`."),
        ("rename lab", "`kasmon rename` requires NAME. See `kasmon rename --help`."),
        ("sandbox run", "`kasmon sandbox run` requires SESSION. See `kasmon sandbox run --help`."),
        ("finish fix --update", "--update requires a value. See `kasmon finish --help`."),
    ],
)
def test_a_missing_argument_is_named_with_its_command(kasmon: Cli, line: str, expected: str) -> None:
    done = kasmon(*line.split())

    assert (2, "", f"kasmon: {expected}\n") == (done.code, done.out, done.err)


def test_the_language_has_one_name_in_the_help_and_is_not_given_together_with_its_old_name(kasmon: Cli) -> None:
    shown = kasmon("sandbox", "run", "--help").out
    both = kasmon("sandbox", "run", "lab", "true", "--lang", "python", "--env", "python")

    assert ("--lang" in shown, "--env" in shown) == (True, False)
    assert (2, True) == (both.code, "--env is the old name of --lang" in both.err)


def test_a_help_entry_is_wrapped_once(kasmon: Cli) -> None:
    lines = [line for line in kasmon("--help", COLUMNS="80").out.splitlines() if line]

    assert "  adopt: Adopt a pane of your own tmux (kasmon ls --tmux lists them); kasmon" in lines
    assert "    never resizes, renames or ends it." in lines
    assert all(line[:2] == "  " and len(line) <= 80 for line in lines[lines.index("Commands:") + 1 :])


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


def test_without_a_terminal_the_dashboard_names_other_commands(kasmon: Cli) -> None:
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
def test_an_unsupported_terminal_gets_a_sentence(kasmon: Cli, term: str, told: str, words: str) -> None:
    what, instead = INSTEAD[words]

    said = f"kasmon: {what} cannot open here: {told}, which cannot draw a screen. {instead}\r\n"
    assert (2, said) == kasmon.terminal(*words.split(), TERM=term)


def test_the_dashboard_opens_on_a_terminal_and_restores_it(kasmon: Cli) -> None:
    kasmon.new("fix-auth", "say hello")

    code, said = kasmon.terminal(typed=[("fix-auth", "q")], TEXTUAL_PRESS="x", TEXTUAL_DRIVER="no.such:Driver")

    assert 0 == code, said[-2000:]
    assert said.index("\x1b[?1049h") < said.index("fix-auth") < said.rindex("\x1b[?1049l")
    farewell = "1 agent is still running. Run `kasmon` to open the dashboard again."
    assert said.rindex("\x1b[?1049l") < said.index(farewell), "it is read after the dashboard is gone"
    assert "idle" == kasmon.json("wait", "fix-auth", "--for", "idle", "--timeout", "10")["sessions"][0]["state"]
