"""What the modules of the dashboard import: no circle, and the outside world in three folders alone."""

import ast
from collections.abc import Iterator, Mapping

import pytest

from tests.syntax import modules, nodes

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


def test_no_module_of_the_dashboard_reaches_itself_by_its_imports() -> None:
    assert [] == circles(arrows())


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, [["b", "c"]]),
        ({"a": {"a"}}, [["a"]]),
    ],
)
def test_a_circle_is_found(graph: Arrows, found: list[list[str]]) -> None:
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
