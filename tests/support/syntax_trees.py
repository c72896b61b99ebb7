"""The syntax trees of kasmon's modules: made and walked once a process, whichever tests look at them."""

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def modules() -> dict[str, ast.Module]:
    """What each module of kasmon says, by its path within the project."""
    gc.disable()  # millions of nodes that stay: to look for garbage among them takes longer than to make them
    trees = {str(path.relative_to(ROOT)): parsed(path) for path in sorted((ROOT / "kasmon").rglob("*.py"))}
    for each in trees.values():
        nodes(each)
    gc.freeze()
    gc.enable()
    return trees


@cache
def parsed(path: Path) -> ast.Module:
    return parse(path.read_text("utf-8"))


@cache
def parse(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def nodes(within: ast.AST) -> tuple[ast.AST, ...]:
    """*within* and all that stands in it, as `ast.walk` has it."""
    return tuple(ast.walk(within))
