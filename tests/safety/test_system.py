"""Which modules depend on the operating system, the processor or the C library."""

import ast
from collections.abc import Iterator

import pytest

from tests.support.syntax_trees import modules, nodes, parse

EXCEPTIONS = {
    "kasmon/bench/run.py": "names the machine in its report",
    "kasmon/emit.py": "starts at each hook of an agent, so it imports nothing of kasmon",
    "kasmon/sandbox/agent/identify.py": "processes of a jail",
    "kasmon/sandbox/guest/": "runs in a sandbox, where kasmon is not",
    "kasmon/sandbox/jail/": "a jail is made of namespaces",
    "kasmon/sandbox/microvm/": "machines for Linux hosts",
    "kasmon/sandbox/network/namespace_connect.py": "enters a jail's network",
    "kasmon/sandbox/shared/credentials.py": "searches a jail's memory files",
    "kasmon/sandbox/shared/filesystem_view.py": "folders that no jail shows",
    "kasmon/sandbox/shared/guest_paths.py": "where a sandbox mounts nothing",
    "kasmon/sandbox/shared/host_folders.py": "users of a jail",
    "kasmon/sandbox/shared/processes.py": "processes of a jail",
}
"""Modules that may read /proc or ask for the system, and why."""
SYSTEM = "kasmon/system/"
OF_PROCESSORS = {
    "kasmon/sandbox/microvm/": "its kernel and image are Debian's for x86-64",
    "kasmon/sandbox/jail/seccomp.py": "the numbers of calls, for x86-64 and aarch64",
    "kasmon/backends/codex/program_path.py": "npm's names of processors",
}
"""Modules that may name a processor, and why."""
PROCESSORS = ("x86_64", "x86-64", "amd64", "aarch64", "arm64")
CALLS = {"SO_PEERCRED", "LOCAL_PEERCRED", "LOCAL_PEERPID", "kqueue", "F_GETPATH"}


def texts(tree: ast.Module) -> Iterator[str]:
    """All texts of a module but docstrings and the texts below assignments."""
    bare = {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


def asks_for_the_system(tree: ast.Module) -> bool:
    for node in nodes(tree):
        match node:
            case ast.Attribute(value=ast.Name("sys"), attr="platform"):
                return True
            case ast.Attribute(value=ast.Name("platform"), attr="system" | "uname" | "libc_ver" | "release"):
                return True
            case ast.Attribute(attr="sysname"):
                return True
            case ast.Attribute(attr=attribute) | ast.Name(attribute) if attribute in CALLS:
                return True
    return any(text == "/proc" or "/proc/" in text for text in texts(tree))


def remembers_the_system(node: ast.AST, is_kept: bool = True) -> bool:
    """Whether *node* reads `system.HERE` at its import, or in a function whose results are cached.

    Such a value would outlive a test's replacement of `HERE`. *is_kept* is whether what *node* reads stays.
    """
    match node:
        case ast.Attribute(value=ast.Name("system"), attr="HERE"):
            return is_kept
        case ast.ImportFrom(module="kasmon.system", names=names) if any(each.name == "HERE" for each in names):
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            is_cached = any("cache" in ast.unparse(each) for each in node.decorator_list)
            at_import = (node.args, *node.decorator_list)
            return any(remembers_the_system(each, is_cached) for each in node.body) or any(
                remembers_the_system(each, is_kept) for each in at_import
            )
        case ast.Lambda():
            return remembers_the_system(node.args, is_kept) or remembers_the_system(node.body, is_kept=False)
    return any(remembers_the_system(each, is_kept) for each in ast.iter_child_nodes(node))


def loads_a_library_by_name(tree: ast.Module) -> bool:
    """Whether it loads another C library than the process's own, whose name differs between glibc, musl and macOS."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("ctypes.CDLL", "CDLL", "ctypes.util.find_library", "find_library")
        and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value is None)
        for node in nodes(tree)
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import sys\nif sys.platform == 'linux': pass", True),
        ("import platform\nplatform.system()", True),
        ("open('/proc/self/stat')", True),
        ("pid = 1\nopen(f'/proc/{pid}/stat')", True),
        ("connection.getsockopt(1, socket.SO_PEERCRED)", True),
        ('"""Reads /proc/self."""\nfrom kasmon import system\nsystem.HERE.list_pids()', False),
    ],
)
def test_every_test_for_a_system_is_found(source: str, expected: bool) -> None:
    assert expected is asks_for_the_system(parse(source))


def test_only_the_system_package_and_what_linux_alone_has_depend_on_the_system() -> None:
    asking = {path for path, tree in modules().items() if asks_for_the_system(tree)}

    assert set() == {path for path in asking if not path.startswith((SYSTEM, *EXCEPTIONS))}
    assert [] == [name for name in EXCEPTIONS if not any(path.startswith(name) for path in asking)]


def test_no_processor_is_assumed_outside_microvms() -> None:
    naming = {
        path for path, tree in modules().items() if any(name in text for name in PROCESSORS for text in texts(tree))
    }

    assert set() == {path for path in naming if not path.startswith(tuple(OF_PROCESSORS))}
    assert [] == [name for name in OF_PROCESSORS if not any(path.startswith(name) for path in naming)]


def test_no_c_library_is_assumed() -> None:
    assert [] == [path for path, tree in modules().items() if loads_a_library_by_name(tree)]
    assert loads_a_library_by_name(parse("import ctypes\nctypes.CDLL('libc.so.6')"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from kasmon import system\nFOLDER = system.HERE.read_folder(1)", True),
        ("def limits(here=system.HERE): ...", True),
        ("class Check:\n    openers = system.HERE.openers", True),
        ("@cache\ndef boot():\n    return system.HERE.read_boot_id()", True),
        ("@functools.lru_cache(maxsize=4)\ndef boot():\n    return system.HERE.read_boot_id()", True),
        ("def boot():\n    from kasmon.system import HERE\n    return HERE.read_boot_id()", True),
        ("def boot():\n    return _boot_of(system.HERE)\n@cache\ndef _boot_of(here):\n    return here", False),
        ("read = lambda pid: system.HERE.read_folder(pid)", False),
    ],
)
def test_every_cached_system_value_is_found(source: str, expected: bool) -> None:
    assert expected is remembers_the_system(parse(source))


def test_no_value_of_one_system_is_remembered_for_another() -> None:
    assert [] == [path for path, tree in modules().items() if remembers_the_system(tree)]
