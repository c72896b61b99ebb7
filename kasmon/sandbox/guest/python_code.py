"""Compiles the code of one turn into runnable parts; `await` is allowed at top level, a last expression is shown."""

import __future__

import ast
import builtins
import linecache
import types

CO_COROUTINE = 0x80  # `inspect` is slow to import
FILE = "<python #"
LINES_KEPT = 4 * 1024 * 1024
"""How many characters of earlier turns are kept for tracebacks; the oldest are dropped first."""
_compile = compile  # bound here, as elsewhere: code may replace a builtin
AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class PythonCode:
    """Compiles turn after turn; `from __future__` imports stay in effect."""

    def __init__(self, main: types.ModuleType) -> None:
        self._flags = 0
        self._held: dict[str, int] = {}
        main.__dict__["__builtins__"] = builtins

    def parts(self, code: str, turn: object) -> list[tuple[types.CodeType, bool]]:
        """Return the code objects to run, in order, each with whether its result must be awaited.

        Raises:
            SyntaxError: before anything was run.
        """
        name = f"{FILE}{turn}>"
        self._hold(name, code)
        tree = _compile(code, name, "exec", ast.PyCF_ONLY_AST | AWAITS | self._flags, dont_inherit=True)
        assert isinstance(tree, ast.Module)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        wholes: list[tuple[ast.AST, str]] = [(tree, "exec")] if tree.body else []
        wholes += [(ast.Interactive(body=list[ast.stmt](last)), "single")] if last else []
        compiled: list[types.CodeType] = []
        for whole, mode in wholes:
            flags = AWAITS | self._flags
            compiled.append(_compile(whole, name, mode, flags, dont_inherit=True))  # type: ignore[call-overload]
            self._flags |= compiled[-1].co_flags & __future__.annotations.compiler_flag
        return [(part, bool(part.co_flags & CO_COROUTINE)) for part in compiled]

    def _hold(self, name: str, code: str) -> None:
        """Make the lines of *code* available to tracebacks."""
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        self._held[name] = len(code)
        while len(self._held) > 1 and sum(self._held.values()) > LINES_KEPT:
            oldest = next(iter(self._held))
            del self._held[oldest]
            linecache.cache.pop(oldest, None)
