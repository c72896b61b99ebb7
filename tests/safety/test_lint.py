"""What no module of kasmon does; and each lint sees what it is there for."""

import ast

import pytest

from tests.support.safety import lints
from tests.support.safety.lints import LINTS, WRITERS, Lint, functions
from tests.support.syntax_trees import modules


def name_of(lint: Lint) -> str:
    return lint.__name__


@pytest.mark.parametrize("lint", LINTS, ids=name_of)
def test_no_module_of_kasmon_breaks_a_rule(lint: Lint) -> None:
    findings = [f"{name}:{line}: {why}" for name, tree in modules().items() for line, why in lint(tree, name)]

    assert [] == findings


def test_every_excused_function_exists() -> None:
    """A name that is gone would excuse the next thing that is called so."""
    known = {(name, function) for name, tree in modules().items() for function in functions(tree).values()}

    assert set() == WRITERS - known


PLANTED = [
    (lints.no_foreign_markup, "Static(session.name)"),
    (lints.no_foreign_markup, "Static(f'to {name}')"),
    (lints.no_foreign_markup, "Label(name, classes='x')"),
    (lints.no_foreign_markup, "self.app.notify(text, severity='error')"),
    (lints.no_foreign_markup, "Content.from_markup(f'[b]{name}[/b]')"),
    (lints.no_foreign_markup, "Text.from_markup(name)"),
    (lints.no_foreign_markup, "RichLog(markup=True)"),
    (lints.no_foreign_markup, "TextArea(placeholder=f'Write to {name}')"),
    (lints.no_foreign_markup, "Hit(score, Content(words), run, help=line)"),
    (lints.no_foreign_markup, "frame.border_title = title"),
    (lints.no_foreign_markup, "quiet = Content(name)\nquiet = name\nTextArea(placeholder=quiet)"),
    (lints.no_foreign_markup, "self.border_subtitle = f'{n} of {m}'"),
    (lints.no_foreign_markup, "table.tooltip = session.last_line"),
    (lints.no_foreign_markup, "Option(name if name else 'none')"),
    (lints.no_shell, "subprocess.run(line, shell=True)"),
    (lints.no_shell, "subprocess.run(line, shell=wanted)"),
    (lints.no_shell, "await asyncio.create_subprocess_shell(line)"),
    (lints.no_shell, "os.system(line)"),
    (lints.no_shell, "os.popen(line)"),
    (lints.no_shell, "eval(text)"),
    (lints.no_tmux_elsewhere, "subprocess.run(['tmux', '-S', socket, 'ls'])"),
    (lints.no_tmux_elsewhere, "subprocess.run([program, '-S', socket, 'send-keys', text])"),
    (lints.no_tmux_elsewhere, "os.execvp('tmux', ('tmux', '-u', 'x'))"),
    (lints.no_tmux_elsewhere, "client.submit('kill-server')"),
    (lints.no_tmux_elsewhere, "client.submit('send-keys -t %1 x')"),
    (lints.no_browser, "import webbrowser"),
    (lints.no_browser, "from webbrowser import open as show"),
    (lints.no_browser, "self.app.open_url(link)"),
    (lints.one_database, "sqlite3.connect(path)"),
    (lints.one_database, "def connect(path):\n    return sqlite3.connect(path)"),
    (lints.no_careless_writing, "open(path, 'w')"),
    (lints.no_careless_writing, "path.open('ab')"),
    (lints.no_careless_writing, "path.open(mode='r+')"),
    (lints.no_careless_writing, "path.write_text(text)"),
    (lints.no_careless_writing, "path.write_bytes(data)"),
    (lints.no_careless_writing, "os.open(path, os.O_WRONLY | os.O_CREAT)"),
    (lints.no_killing_by_name, "subprocess.run(['pkill', '-f', name])"),
    (lints.no_open_permission, "path.mkdir()"),
    (lints.no_open_permission, "path.mkdir(mode=0o755)"),
    (lints.no_open_permission, "path.chmod(0o644)"),
    (lints.no_open_permission, "path.chmod(0o700 | 0o005)"),
    (lints.no_open_permission, "os.chmod(path, mode)"),
    (lints.no_possessive_group, "re.compile(r'(?:a|b?c){1,4}+d')"),
    (lints.no_possessive_group, "re.compile(r'(ab?)?+d')"),
]


@pytest.mark.parametrize(("lint", "planted"), PLANTED, ids=[f"{lint.__name__}: {text}" for lint, text in PLANTED])
def test_a_planted_fault_is_found(lint: Lint, planted: str) -> None:
    assert [*lint(ast.parse(planted), "kasmon/tui/planted.py")]


HARMLESS = [
    (lints.no_foreign_markup, "Static(Content(name), markup=False)"),
    (lints.no_foreign_markup, "self.notify(name, markup=False)"),
    (lints.no_foreign_markup, "frame.border_title = Content(title)"),
    (lints.no_foreign_markup, "Input(placeholder='a name')"),
    (lints.no_foreign_markup, "quiet = Content(name)\nTextArea(placeholder=quiet)"),
    (lints.no_foreign_markup, "Content.from_markup('[b]ours[/b]')"),
    (lints.no_shell, "subprocess.run([program, text], shell=False)"),
    (lints.no_careless_writing, "path.open('rb')"),
    (lints.no_careless_writing, "app.permissions.open()"),
    (lints.no_open_permission, "path.mkdir(mode=0o700, exist_ok=True)"),
    (lints.no_open_permission, "path.chmod(0o600)"),
]


@pytest.mark.parametrize(("lint", "text"), HARMLESS, ids=[f"{lint.__name__}: {text}" for lint, text in HARMLESS])
def test_harmless_code_is_accepted(lint: Lint, text: str) -> None:
    assert [] == [*lint(ast.parse(text), "kasmon/tui/harmless.py")]
