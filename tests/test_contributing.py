"""The examples of CONTRIBUTING work, and every file, function and command that it names exists."""

import ast
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from kasmon.backends.base import Backend
from kasmon.config.parser import parse
from kasmon.config.profile import resolve
from kasmon.detection.reader import read
from kasmon.detection.rules import file as screens
from kasmon.detection.terminal_screen import captured
from kasmon.errors import UnableError
from kasmon.model.commands import Interrupt, Launch, Mode, Prompt, Stop
from kasmon.model.events import MessageWritten, SessionEnded
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.tui.theme import theme
from tests.support.agents.backend_contract import Contract
from tests.support.wait import auntil

ROOT = Path(__file__).parents[1]


def example(name: str) -> str:
    """The block of the page that is called so."""
    (found,) = re.findall(
        rf"^```\w+ {re.escape(name)}\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return str(found)


def module(name: str) -> ModuleType:
    """The module that the block is."""
    made = ModuleType(name.replace("/", "."))
    exec(compile(example(name), name, "exec"), vars(made))
    return made


# The page itself


def test_every_file_that_a_page_names_exists() -> None:
    """Paths begin at the root, in the package or in a folder with packages; `backends/new` is the reader's own."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    named = {*re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9.]*)`", page), *re.findall(r"`([a-z_0-9/]+\.py)`", page)}
    homes = [ROOT / home for home in ("", "kasmon", "kasmon/sandbox", "kasmon/supervisor", "tests", "tests/sandbox")]

    assert 60 < len(named)
    assert {"backends/new/"} == {
        name
        for name in named
        if not any((home / name).exists() or next(home.glob(f"{name.split('.')[0]}.py"), None) for home in homes)
    }


STATION = re.compile(r"`(kasmon/[a-z0-9_/]+\.py):(\w+)(?:\.(\w+))?`")


def source_of(path: str, owner: str, member: str) -> str:
    """The source of the function *owner* of the module at *path*, or of the method *member* of its class *owner*."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    text = (ROOT / path).read_text("utf-8") if (ROOT / path).is_file() else ""
    found = next((node for node in ast.parse(text).body if isinstance(node, kinds) and node.name == owner), None)
    if member and found is not None:
        found = next((node for node in found.body if isinstance(node, kinds) and node.name == member), None)
    return ast.unparse(found) if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) else ""


def defined(path: str, owner: str, member: str) -> bool:
    return source_of(path, owner, member) != ""


def path_of(title: str) -> list[str]:
    """The steps of the path with this title."""
    path = (ROOT / "CONTRIBUTING.md").read_text().split(f"\n### {title}\n")[1].split("\n### ")[0]
    return re.findall(r"^\d+\. ((?:.*\n)(?:   .*\n)*)", path, re.MULTILINE)


def gaps(steps: list[str]) -> list[str]:
    """The steps that neither call the next one nor say by what they hand over to it."""
    wrong = []
    for step, after in itertools.pairwise(steps):
        [here], [there] = STATION.findall(step), STATION.findall(after)
        name = there[2] or there[1]
        if "hands over" not in step and not re.search(rf"\b{name}\b", source_of(*here).partition("\n")[2]):
            wrong.append(step)
    return wrong


@pytest.mark.parametrize(
    "title",
    [
        "An event: Claude asks for a permission",
        "A command: the answer goes back",
        "Output of a terminal",
        "A prompt: `kasmon send` to a terminal agent",
    ],
)
def test_a_value_reaches_the_next_step_of_its_path_without_a_function_between(title: str) -> None:
    steps = path_of(title)

    assert 10 < len(steps) <= 20
    assert [] == gaps(steps)
    direct = [n for n in range(1, len(steps) - 1) if "hands over" not in steps[n - 1]]
    missed = [n for n in direct if [steps[n - 1]] == gaps([*steps[:n], *steps[n + 1 :]])]
    assert len(direct) < 2 * len(missed)  # often the name of the step after the next stands there, too


def test_every_step_of_the_eight_paths_exists() -> None:
    chapter = (ROOT / "CONTRIBUTING.md").read_text().split("## Eight paths through the code")[1].split("\n## ")[0]
    paths = chapter.split("\n### ")[1:]

    assert 8 == len(paths)
    assert all(4 < len(STATION.findall(path)) <= 20 for path in paths)
    assert [] == [station for path in paths for station in STATION.findall(path) if not defined(*station)]
    for path in paths:
        steps = re.split(r"^(\d+)\. ", path.split("\n\n", 1)[1], flags=re.MULTILINE)
        assert [*range(1, len(steps) // 2 + 1)] == [int(number) for number in steps[1::2]]
        assert all(STATION.search(step) for step in steps[2::2])
    assert not defined("kasmon/supervisor/sessions/session_operations.py", "no_such", "")
    assert not defined("kasmon/supervisor/no_such.py", "send", "")
    assert not defined("kasmon/tmux/hub.py", "Hub", "")
    assert not defined("kasmon/tmux/hub.py", "Hub", "no_such")


FOREIGN: Final = {"App.suspend", "Compositor.full_map", "Process.wait", "Screen._on_timer_update", "Screen.dismiss"}
"""Members of classes of Textual and asyncio."""


def members(text: str) -> set[str]:
    """Return `Class.member` of each method, field and attribute that the classes of a module have."""
    classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    assigned = {
        f"{of.name}.{target.id}"
        for of in classes
        for node in of.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return assigned | {f"{of.name}.{name}" for of in classes for node in ast.walk(of) if (name := member_name(node))}


def member_name(node: ast.AST) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
            return name
    return ""


def test_every_member_of_a_class_that_the_pages_name_exists() -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "kasmon").rglob("*.py")]
    pages = [path.read_text("utf-8") for path in (ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))]
    named = set(re.findall(r"`([A-Z]\w+\.[a-z_]+)(?![\w.])", "".join(pages + sources))) - {"CHANGELOG.md"}
    ours = {name for source in sources for name in members(source)}

    assert 15 < len(named)
    assert FOREIGN == named - ours
    assert {"A.f", "A.x", "A.y"} == members("class A:\n    x: int\n    def f(self):\n        self.y = 1")


def test_every_command_that_a_page_names_exists() -> None:
    page, makefile = (ROOT / name for name in ("CONTRIBUTING.md", "Makefile"))
    named = re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(), re.MULTILINE)

    assert {*named} <= {*re.findall(r"^([a-z-]+):", makefile.read_text(), re.MULTILINE)}


# A terminal agent


@pytest.mark.parametrize(
    ("screen", "state"), [("May I speak?\n[y/n]", "asking"), ("hello\n\n> ", "idle"), ("something else", "unclear")]
)
def test_the_screen_of_a_terminal_agent_is_read_by_its_rules_file(screen: str, state: str) -> None:
    rules = screens.parse(example("agents/parrot/screen.toml"), "parrot")
    rows = screen.split("\n")

    assert state == read(captured(screen, cursor=(2, len(rows) - 1)), rules).state


def test_an_acp_agent_is_a_config_section(tmp_path: Path) -> None:
    program = tmp_path / "goose"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    goose = resolve(parse(example("config.toml"), "config.toml"), "goose", environment={"PATH": str(tmp_path)})

    assert ("acp", Mode.SDK) == (goose.backend, goose.mode)
    assert "acp" in goose.argv


# A backend


class TestParrot(Contract):
    """The promises of every backend that a parrot, which does nothing by itself, can be held to."""

    backend: Backend = module("backends/parrot.py").backend

    async def test_it_repeats_its_prompt_and_is_idle_again(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("hello")
            said = await heard.until_said(MessageWritten)
            await heard.until(SessionState.IDLE)

            assert isinstance(said, MessageWritten)
            assert ("hello", 1) == (said.text, heard.session.turns)

    async def test_it_stops_on_request_and_closing_twice_ends_it_once(self) -> None:
        async with self.opened() as heard:
            await heard.agent.send(Stop())
            await heard.agent.aclose()

            assert 1 == sum(isinstance(fact, SessionEnded) for fact in await heard.until_over())

    async def test_unsupported_commands_are_refused(self) -> None:
        async with self.opened() as heard:
            with pytest.raises(UnableError):
                await heard.agent.send(Interrupt())
            await heard.agent.send(Prompt(text="on"))
            await auntil(lambda: heard.session.turns == 1)

    def launch(self, generation: int = 1, resume: str | None = None) -> Launch:
        return Launch(session=SessionId("parrot"), name="parrot", agent="parrot", mode=Mode.SDK, backend="parrot")


# A theme


def test_a_theme_is_a_copy_with_another_colour_and_is_accepted(tmp_path: Path) -> None:
    variables = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path / "c"),
        "XDG_STATE_HOME": str(tmp_path / "s"),
        "XDG_RUNTIME_DIR": str(tmp_path / "r"),
    }
    (tmp_path / "r").mkdir(mode=0o700)

    done = subprocess.run(["sh", "-e", "-c", example("theme")], cwd=ROOT, env=variables, capture_output=True, text=True)

    assert 0 == done.returncode, done.stderr
    made = theme.parse((tmp_path / "c/kasmon/themes/fjord.toml").read_text(), "fjord.toml")
    assert ("Fjord", "#8fd3c1") == (made.title, made.colors.accent)
    assert 'theme = "fjord"' in (tmp_path / "c/kasmon/config.toml").read_text()
