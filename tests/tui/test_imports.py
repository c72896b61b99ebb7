"""What the modules of the dashboard import: no circle, and the outside world in three folders alone."""

import ast
import re
from collections.abc import Iterator, Mapping

import pytest

from tests.support.syntax_trees import modules, nodes

Arrows = Mapping[str, set[str]]


def name_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """The modules among *known* that *tree* imports, at its top, later or for types alone, or whose name it holds."""
    for node in nodes(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]  # for `import_module`
        yield from (name for name in names if name in known)


def arrows() -> Arrows:
    trees = {name_of(path): tree for path, tree in modules().items() if path.startswith("kasmon/tui/")}
    return {name: set(imports_of(tree, set(trees))) for name, tree in trees.items()}


def circles(graph: Arrows) -> list[list[str]]:
    """The strongly connected components of more than one module: each module of one reaches every other."""

    def reach(start: str) -> set[str]:
        found, left = set[str](), [start]
        while left:
            new = graph.get(left.pop(), set()) - found
            found |= new
            left += new
        return found

    reached = {name: reach(name) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def test_no_module_of_the_dashboard_imports_itself_through_others() -> None:
    assert [] == circles(arrows())


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, [["b", "c"]]),
        ({"a": {"a"}}, [["a"]]),
    ],
)
def test_an_import_cycle_is_found(graph: Arrows, found: list[list[str]]) -> None:
    assert found == circles(graph)


@pytest.mark.parametrize(
    "source",
    [
        "import kasmon.tui.app",
        "from kasmon.tui.app import Kasmon",
        "from kasmon.tui import app",
        "def f():\n    from kasmon.tui.app import Kasmon",
        "if TYPE_CHECKING:\n    from kasmon.tui.app import Kasmon",
        "import_module('kasmon.tui.app')",
    ],
)
def test_an_import_counts_wherever_it_is(source: str) -> None:
    assert ["kasmon.tui.app"] == [*imports_of(ast.parse(source), {"kasmon.tui", "kasmon.tui.app"})]


OUTSIDE = ("kasmon/tui/gateway/", "kasmon/tui/process/", "kasmon/tui/textual_ext/")
"""The folders that read files, and that reach other programs and the terminal."""
PROGRAMS = frozenset(["create_subprocess_exec", "create_subprocess_shell", "open_connection", "open_unix_connection"])
TO_FILES = frozenset(
    ["open_url", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "touch", "unlink", "rmtree"]
)
OF_THE_SYSTEM = re.compile(r"os\.(open|scandir|listdir|walk|fork|exec|spawn|popen|system|startfile|killpg)")
LIBRARIES = frozenset(
    [
        *("asyncio.subprocess", "http", "shutil", "socket", "sqlite3", "subprocess", "tempfile", "urllib.request"),
        "webbrowser",
    ]
)


def io_of(node: ast.AST) -> set[str]:
    """By what *node* opens a file, a socket, a program or a browser."""
    match node:
        case ast.Import(names=names):
            return {name.name for name in names} & LIBRARIES
        case ast.ImportFrom(module=str(module)):
            return {module} & LIBRARIES
        case ast.Call(func=ast.Name(id="open")):
            return {"open"}
        case ast.Attribute(value=ast.Name(id="os"), attr=name) if OF_THE_SYSTEM.match(f"os.{name}"):
            return {f"os.{name}"}
        case ast.Attribute(attr=name):
            return {name} & {*TO_FILES, *PROGRAMS}
    return set()


def test_no_other_folder_opens_a_file_a_socket_a_program_or_a_browser() -> None:
    assert {} == {
        path: found
        for path, tree in modules().items()
        if path.startswith("kasmon/tui/") and not path.startswith(OUTSIDE)
        if (found := {way for node in nodes(tree) for way in io_of(node)})
    }


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import subprocess", {"subprocess"}),
        ("def f():\n    from socket import socket", {"socket"}),
        ("from asyncio.subprocess import PIPE", {"asyncio.subprocess"}),
        ("asyncio.create_subprocess_exec('ls')", {"create_subprocess_exec"}),
        ("open('x')", {"open"}),
        ("Path('x').read_text()", {"read_text"}),
        ("os.killpg(1, 9)", {"os.killpg"}),
        ("self.inbox.open()", set()),
    ],
)
def test_an_access_to_the_outside_is_found(source: str, found: set[str]) -> None:
    assert found == {way for node in nodes(ast.parse(source)) for way in io_of(node)}
