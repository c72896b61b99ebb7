"""Each private name of Textual that the dashboard uses: its owner still has it, with the same signature.

A new Textual that fails here needs a look at the module of `kasmon/tui/textual_ext/` that is named beside it.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from textual import _context, strip
from textual._compositor import Compositor, CompositorUpdate
from textual._parser import ParseError
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, TextArea

from tests.support.syntax_trees import modules, nodes

HOME: Final = "kasmon/tui/textual_ext/"

METHODS: Final[list[tuple[str, type[Any], str, str]]] = [
    ("app.py", App, "_handle_exception", "self, error"),
    ("backdrop.py", Compositor, "_render_chops", "self, crop, is_rendered_line"),
    ("driver.py", XTermParser, "_sequence_to_key_events", "self, sequence, alt=False"),
    ("driver.py", LinuxDriver, "_sigtstp_application", "self, *_"),
    ("driver.py", LinuxDriver, "_sigcont_application", "self, *_"),
    ("driver.py", LinuxDriver, "_run_input_thread", "self"),
    ("driver.py", LinuxDriver, "run_input_thread", "self"),
    ("driver.py", LinuxDriver, "process_message", "self, message"),
    ("driver.py", LinuxDriver, "disable_input", "self"),
    ("modal.py", App, "_replace_screen", "self, screen"),
    ("modal.py", Screen, "_pop_result_callback", "self"),
    ("modal.py", Widget, "_post_register", "self, app"),
    ("inputs.py", Input, "_on_key", "self, event"),
    ("inputs.py", TextArea, "_on_key", "self, event"),
    ("inputs.py", Widget, "_forward_event", "self, event"),
    ("repaint.py", App, "_display", "self, screen, renderable"),
    ("repaint.py", CompositorUpdate, "render_segments", "self, console"),
    ("repaint.py", StylesCache, "set_dirty", "self, *regions"),
    ("repaint.py", Widget, "render_lines", "self, crop"),
    ("screen.py", Screen, "_on_resize", "self, event"),
    ("screen.py", Screen, "_on_screen_resume", "self, event"),
    ("screen.py", Screen, "_on_timer_update", "self"),
    ("screen.py", Screen, "_refresh_layout", "self, size=None, scroll=False"),
]
"""The module that calls or overrides it, its owner, its name, its parameters."""

ATTRIBUTES: Final[list[tuple[str, type[Any], str]]] = [
    ("app.py", App, "_exception"),
    ("app.py", App, "_exception_event"),
    ("app.py", App, "_filters"),
    ("app.py", App, "_return_code"),
    ("backdrop.py", Compositor, "_full_map"),
    ("backdrop.py", Screen, "_compositor"),
    ("backdrop.py", Screen, "_layout_required"),
    ("backdrop.py", Widget, "_dirty_regions"),
    ("driver.py", App, "_driver"),
    ("driver.py", LinuxDriver, "_app"),
    ("driver.py", LinuxDriver, "_auto_restart"),
    ("driver.py", LinuxDriver, "_debug"),
    ("driver.py", LinuxDriver, "_file"),
    ("driver.py", LinuxDriver, "_loop"),
    ("driver.py", LinuxDriver, "_must_signal_resume"),
    ("driver.py", LinuxDriver, "_writer_thread"),
    ("driver.py", LinuxDriver, "exit_event"),
    ("driver.py", LinuxDriver, "input_tty"),
    ("driver.py", XTermParser, "_timeout_time"),
    ("driver.py", XTermParser, "mouse_pixels"),
    ("driver.py", XTermParser, "terminal_pixel_size"),
    ("driver.py", XTermParser, "terminal_size"),
    ("modal.py", App, "_screen_stack"),
    ("inputs.py", Widget, "_bindings"),
    ("repaint.py", App, "_batch_count"),
    ("repaint.py", Compositor, "visible_widgets"),
    ("repaint.py", Screen, "_layout_required"),
    ("repaint.py", Screen, "_repaint_required"),
    ("repaint.py", Widget, "_layout_required"),
    ("repaint.py", Widget, "_styles_cache"),
    ("repaint.py", Widget, "content_offset"),
    ("screen.py", Compositor, "_full_map"),
    ("screen.py", Compositor, "full_map"),
    ("screen.py", Screen, "_dirty_widgets"),
    ("timers.py", Timer, "_skip"),
]
"""The module that uses it, its owner, its name."""

MODULES: Final = {
    "textual._compositor": CompositorUpdate,
    "textual._context": _context.visible_screen_stack,
    "textual._parser": ParseError,
    "textual._xterm_parser": XTermParser,
}
"""A private module -> what is imported of it."""

NAMES: Final = {name for _, _, name, _ in METHODS} | {name for _, _, name in ATTRIBUTES}
PRIVATE: Final = {name for name in NAMES if name.startswith("_")}


@pytest.mark.parametrize(("user", "owner", "name", "parameters"), METHODS)
def test_a_method_has_the_same_parameters(user: str, owner: type[Any], name: str, parameters: str) -> None:
    found = inspect.signature(inspect.getattr_static(owner, name)).parameters.values()

    bare = [each.replace(annotation=inspect.Parameter.empty) for each in found]
    assert parameters == ", ".join(map(str, bare)), f"see {HOME}{user}"


@pytest.mark.parametrize(("user", "owner", "name"), ATTRIBUTES)
def test_each_attribute_exists(user: str, owner: type[Any], name: str) -> None:
    classes = [each for each in owner.__mro__ if each.__module__.startswith("textual")]
    is_set = any(re.search(rf"self\.{name}\b.*=", inspect.getsource(each)) for each in classes)

    assert name in dir(owner) or is_set, f"see {HOME}{user}"


def test_a_strip_takes_its_caches_from_the_module() -> None:
    """`strips.py` replaces the class there."""
    assert "FIFOCache" in vars(strip)
    assert 7 == sum(name.endswith("_cache") and name != "_render_cache" for name in Strip.__slots__)


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each private module or name of Textual that *tree* uses, and that is not its own, with its line."""
    own = {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("textual._"):
            yield node.lineno, str(node.module)
        elif isinstance(node, ast.Attribute) and node.attr in PRIVATE - own:
            yield node.lineno, node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in PRIVATE:
            yield node.lineno, node.name


def test_no_other_folder_uses_a_private_name_of_textual() -> None:
    """Neither one that is listed nor another: a private name is used where kasmon defines it."""
    others = {
        path: tree for path, tree in modules().items() if path.startswith("kasmon/tui/") and not path.startswith(HOME)
    }
    assert {} == {path: found for path, tree in others.items() if (found := list(private_names(tree)))}
    ours = {"_replace"}.union(*map(defined, modules().values()))  # a method of every NamedTuple
    assert {} == {path: names for path, tree in others.items() if (names := private_attributes(tree) - ours)}


def test_a_private_name_that_is_not_defined_is_found() -> None:
    tree = ast.parse(
        "class A:\n  _a = 1\n  def _f(self):\n    self._b = 2\n    return self._a, self._b, self._f, self._registry"
    )

    assert {"_registry"} == private_attributes(tree) - defined(tree)


def private_attributes(tree: ast.Module) -> set[str]:
    return {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr)}


def defined(tree: ast.Module) -> set[str]:
    """The functions, classes, variables and attributes that *tree* defines or sets."""
    named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    found = {node.name for node in nodes(tree) if isinstance(node, named)}
    stored = [node for node in nodes(tree) if isinstance(getattr(node, "ctx", None), ast.Store)]
    found |= {node.attr for node in stored if isinstance(node, ast.Attribute)}
    return found | {node.id for node in stored if isinstance(node, ast.Name)}


def test_each_private_module_of_textual_is_listed() -> None:
    used = {name for path, tree in modules().items() if path.startswith(HOME) for _, name in private_names(tree)}

    assert set(MODULES) == used - NAMES


def test_each_private_name_that_the_folder_uses_of_another_object_is_listed() -> None:
    """A name that the folder itself defines or sets is its own."""
    trees = [tree for path, tree in modules().items() if path.startswith(HOME)]

    assert set() == set().union(*map(private_attributes, trees)) - set().union(*map(defined, trees)) - NAMES
